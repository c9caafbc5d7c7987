//! What travels: sessions, and the real servers that they belong to.

use std::net::IpAddr;

/// Longest name of a rule of source NAT, or of a network, in bytes.
pub const LONGEST_NAME: usize = 255;

/// The virtual service or rule a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A virtual service.
    Service {
        /// Name of its network, of at most [`LONGEST_NAME`] bytes; empty for the default one.
        network: String,
        /// IP protocol number; 0 is every protocol.
        protocol: u8,
        /// Virtual address.
        vip: IpAddr,
        /// First port of its range.
        first_port: u16,
        /// Last port of its range.
        last_port: u16,
        /// Whether its sessions are in the table of extended sessions.
        extended: bool,
    },
    /// A rule of source NAT by name, of at most [`LONGEST_NAME`] bytes.
    Rule(String),
}

/// The real server of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Real {
    /// What it is a real server of.
    pub service: Service,
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 is the one that the client sent to.
    pub port: u16,
    /// How packets are forwarded to it: a number that both ends know, from 1 on.
    pub mode: u8,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new or goes on.
    Live,
    /// It is over.
    Ended,
}

/// A session by its addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Whether it goes on.
    pub change: Change,
    /// IP protocol number.
    pub protocol: u8,
    /// State, as a number that both ends know.
    pub state: u8,
    /// How far its closing is, as bits that both ends know.
    pub closing: u8,
    /// Address of the client.
    pub client: IpAddr,
    /// Port of the client.
    pub client_port: u16,
    /// Port that the client sends to.
    pub virtual_port: u16,
    /// Local address and port, where the source is translated.
    pub local: Option<(IpAddr, u16)>,
    /// Outside address, of source NAT only.
    pub far: Option<IpAddr>,
    /// Milliseconds since its last packet when it was sent.
    pub idle_ms: u32,
    /// Where its FIN was, in the low bits of the sequence number.
    pub fin: u16,
    /// What was seen of it from either side.
    pub seen: [u16; 2],
    /// Initial sequence number or the difference of it.
    pub isn: u32,
}
