//! What the command needs of the machine it runs on.

use std::net::Ipv4Addr;

use sluice_ipvs::{Answer, Protocol, Request};

/// There is no answer: the director is down, or is no director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// What the stock program would say: one of the two below.
    pub why: &'static str,
    /// What to tell the operator.
    pub advice: String,
}

impl Gone {
    /// Nothing is there that would answer.
    pub const ABSENT: &str = "Protocol not available";
    /// Something answers that is of another version.
    pub const STRANGE: &str = "the director's answer is of another version than this program";
    /// It may not be asked.
    pub const DENIED: &str = "Permission denied (you must be root)";
}

/// The names under which services of a protocol are listed in `/etc/services`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `tcp`.
    Tcp,
    /// `udp`.
    Udp,
    /// `sctp`.
    Sctp,
}

impl Transport {
    /// Its name there.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl From<Protocol> for Transport {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
        }
    }
}

/// The machine, as the command sees it: the director, names, and three streams.
pub trait World {
    /// Asks the director.
    ///
    /// # Errors
    /// When nothing answers.
    fn ask(&mut self, request: &Request) -> Result<Answer, Gone>;
    /// Asks for changes, one after the other; an answer for each.
    ///
    /// # Errors
    /// When nothing answers.
    fn ask_all(&mut self, requests: &[Request]) -> Result<Vec<Answer>, Gone> {
        requests.iter().map(|request| self.ask(request)).collect()
    }
    /// The address of a host that is not written as one (`gethostbyname`, so IPv4 only).
    fn host_address(&mut self, name: &str) -> Option<Ipv4Addr>;
    /// The name of a host's address.
    fn host_name(&mut self, address: Ipv4Addr) -> Option<String>;
    /// The port of a service's name.
    fn service_port(&mut self, name: &str, transport: Transport) -> Option<u16>;
    /// The name of a service's port.
    fn service_name(&mut self, port: u16, transport: Transport) -> Option<String>;
    /// Prints to standard output, as it is.
    fn out(&mut self, text: &str);
    /// Prints to standard error, as it is.
    fn err(&mut self, text: &str);
    /// The next line of standard input, with or without its end; none at the end of all.
    fn line(&mut self) -> Option<String>;
    /// Whether there is more of standard input to be had without waiting, or its end.
    fn has_more(&mut self) -> bool;
}
