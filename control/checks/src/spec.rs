//! What is to be checked, and how.

use crate::socket::Way;
use sluice_health::{Rules, State, dns, expect::Expect, http};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Whose health it is: a real server as a service's configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The service's name.
    pub service: Arc<str>,
    /// The real server's address.
    pub address: IpAddr,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
}

/// One check of one real server.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Whose health it finds out.
    pub key: Key,
    /// Name of the check, for people.
    pub check: Arc<str>,
    /// Where probes go.
    pub address: IpAddr,
    /// The port that they go to; without meaning for [`Kind::Ping`].
    pub port: u16,
    /// What they say and want to hear.
    pub kind: Arc<Kind>,
    /// Where their packets leave.
    pub way: Way,
    /// The real server's place in its service, if probes go through the data path to the service's
    /// address: their source port says which one they are for.
    pub place: Option<usize>,
    /// How often, how long, how many.
    pub rules: Rules,
    /// What is assumed until the first finding: up or down.
    pub initial: State,
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Connects, and resets the connection.
    Tcp,
    /// Connects and shakes hands.
    Tls(Tls),
    /// Asks for a path.
    Http {
        /// The whole request's bytes; see [`http::request`].
        request: Vec<u8>,
        /// What the answer must be.
        wanted: http::Wanted,
        /// HTTPS.
        tls: Option<Tls>,
    },
    /// Sends a datagram.
    Udp {
        /// Its content.
        payload: Vec<u8>,
        /// What the answer must hold. `None`: silence will do, and only an ICMP error is a failure.
        expect: Option<Expect>,
    },
    /// Asks a name server, over UDP.
    Dns {
        /// The name.
        name: String,
        /// The type.
        of: dns::Type,
        /// What the answer must be.
        wanted: dns::Wanted,
    },
    /// Asks gRPC's health service.
    Grpc {
        /// The service that is asked about; empty for all.
        service: String,
        /// Over TLS.
        tls: Option<Tls>,
    },
    /// ICMP echo.
    Ping,
    /// Nothing: clients' connections are watched.
    Passive,
    /// Runs a program; 0 is a pass.
    Script {
        /// Absolute path of the program, and its arguments.
        command: Vec<String>,
    },
}

/// How TLS is spoken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The name that is asked for and verified. Without one it is the address.
    pub name: Option<String>,
    /// Whether the certificate is verified.
    pub verify: bool,
    /// A file of certificate authorities, instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Days before its end from which on a certificate is remarked on.
    pub expiry_days: u32,
}
