//! `[[check]]` as typed data.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::Question;

/// `[[check]]`: how the health of real servers is found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The operator's name for it; unique.
    pub name: String,
    /// What it does.
    pub kind: CheckKind,
    /// Milliseconds from one probe to the next, 100 to 3,600,000.
    pub interval_ms: u32,
    /// The same while the state is in doubt.
    pub fast_interval_ms: Option<u32>,
    /// Milliseconds that a probe may take, 10 to 600,000.
    pub timeout_ms: u32,
    /// Passes in a row that make a real server up, 1 to 100.
    pub rise: u16,
    /// Failures in a row that make it down, 1 to 100.
    pub fall: u16,
    /// Instead of `fall`: milliseconds without a pass.
    pub dead_after_ms: Option<u32>,
    /// How far an interval may be off, in percent, 0 to 50.
    pub jitter_percent: u8,
    /// What is assumed until the first probe is over.
    pub initial: Initial,
    /// The port that probes go to. `None`: the real server's.
    pub port: Option<u16>,
    /// HTTP: the method.
    pub method: Method,
    /// HTTP: the path, with a query if there is one.
    pub path: String,
    /// HTTP: the `Host` field. `None`: the address.
    pub host: Option<String>,
    /// HTTP: statuses that will do; at least one range.
    pub status: Vec<RangeInclusive<u16>>,
    /// HTTP and UDP: what the body or answer must hold.
    pub expect: Option<String>,
    /// HTTP and UDP: a regular expression that must match somewhere in the body or answer.
    pub expect_regex: Option<String>,
    /// UDP: what is sent.
    pub send: String,
    /// DNS: the name that is asked for.
    pub dns_name: String,
    /// DNS: the type that is asked for.
    pub dns_type: Question,
    /// DNS: the code that the answer must have, 0 to 15.
    pub dns_code: u8,
    /// DNS: an address that must be in the answer.
    pub dns_address: Option<IpAddr>,
    /// gRPC: the service that is asked about; empty for the server as a whole.
    pub grpc_service: String,
    /// TLS: the server's name. `None`: the address.
    pub tls_name: Option<String>,
    /// TLS: whether the certificate is verified.
    pub tls_verify: bool,
    /// TLS: a file of certificate authorities. `None`: the system's.
    pub tls_authorities: Option<PathBuf>,
    /// TLS: days before its end from which on a certificate is remarked on.
    pub tls_expiry_days: u32,
    /// Connections of clients that fail in a row and make it down at once; 0 for none.
    pub passive_failures: u32,
    /// Seconds in which probes count for nothing after that.
    pub passive_hold_s: u32,
    /// Which way probes take.
    pub through: Through,
    /// Script: the program and its arguments.
    pub command: Vec<String>,
    /// Source address of probes.
    pub source: Option<IpAddr>,
    /// Mark of probes' packets; 0 for none.
    pub mark: u32,
    /// Interface that probes leave by.
    pub interface: Option<String>,
}

/// What a check does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// Connects.
    Tcp,
    /// Connects and shakes hands.
    Tls,
    /// Asks for a path.
    Http,
    /// Asks for a path over TLS.
    Https,
    /// Sends a datagram.
    Udp,
    /// Asks a name server.
    Dns,
    /// Asks gRPC's health service.
    Grpc,
    /// Asks gRPC's health service over TLS.
    Grpcs,
    /// ICMP echo.
    Ping,
    /// Nothing: clients' connections are watched.
    Passive,
    /// Runs a program.
    Script,
}

impl CheckKind {
    /// Whether it speaks TLS.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Https | Self::Grpcs)
    }

    /// Whether it speaks HTTP.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether its probes may go through the data path.
    pub const fn may_go_through(self) -> bool {
        self.has_port()
    }

    /// Whether its probes go to a port.
    pub const fn has_port(self) -> bool {
        !matches!(self, Self::Ping | Self::Passive | Self::Script)
    }
}

/// Which way probes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Through {
    /// From the director's own addresses straight to the real server.
    #[default]
    Direct,
    /// To the service's address, through the data path, as a client's packets.
    Service,
}

/// What is assumed of a real server until its first probe is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// It gets new sessions.
    #[default]
    Up,
    /// It gets none.
    Down,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The whole resource.
    #[default]
    Get,
    /// Its head only.
    Head,
    /// What may be done with it.
    Options,
}
