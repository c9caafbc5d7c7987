//! The director's configuration as plain data, before it is compiled.
//!
//! A [`Blueprint`] is what a configuration file, an API or a test describes. It names things by
//! what an operator calls them; the plan is the compiled form with indices in place
//! of names. The blueprint's author has validated it (names resolve, no duplicates, ranges hold);
//! compiling still refuses what cannot be represented.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// An IP protocol that a virtual service can balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

impl Protocol {
    /// The IP protocol number (IANA).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The name used in configuration, output and counters: `tcp` or `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// How packets reach a real server, by IPVS's and DPVS's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Full NAT: client → VIP becomes laddr:lport → real, and back.
    Fnat,
}

impl Mode {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fnat => "fnat",
        }
    }
}

/// How a real server is chosen for a new session, by IPVS's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// Round robin over the real servers in the order they were configured.
    Rr,
}

impl Scheduling {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
        }
    }
}

/// One destination of a virtual service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its share of new sessions; 0 drains it: live sessions stay, new ones go elsewhere.
    pub weight: u16,
}

/// A virtual service and its real servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualService {
    /// The operator's name for it; unique.
    pub name: String,
    /// IP protocol.
    pub protocol: Protocol,
    /// The virtual address.
    pub vip: IpAddr,
    /// The virtual port.
    pub port: u16,
    /// Forwarding mode.
    pub mode: Mode,
    /// Scheduler.
    pub scheduler: Scheduling,
    /// Name of the local pool for `fnat`.
    pub pool: String,
    /// Real servers, in the order they were configured.
    pub reals: Vec<RealServer>,
}

/// A local pool: source addresses and ports of FNAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPool {
    /// The operator's name for it; unique.
    pub name: String,
    /// Local addresses; an address belongs to one pool only.
    pub addresses: Vec<IpAddr>,
    /// Local ports, the same for each address.
    pub ports: RangeInclusive<u16>,
}

/// What is answered to a TCP packet that belongs to no session and may not open one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoSession {
    /// Nothing: it is dropped and counted.
    #[default]
    Drop,
    /// A reset (RFC 9293 3.10.7.1), and counted.
    Reset,
}

/// Session timeouts in seconds, counted from the session's last packet. The defaults are IPVS's
/// where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// SYN seen, handshake not complete.
    pub tcp_syn_recv_s: u32,
    /// Handshake complete.
    pub tcp_established_s: u32,
    /// The client closed its side first.
    pub tcp_fin_wait_s: u32,
    /// The real server closed its side first.
    pub tcp_close_wait_s: u32,
    /// Both sides closed, the last acknowledgement is missing.
    pub tcp_last_ack_s: u32,
    /// After the four-way close. 0 deletes the session with the last acknowledgement.
    pub tcp_time_wait_s: u32,
    /// After a reset. 0 deletes the session with the reset.
    pub tcp_close_s: u32,
    /// UDP.
    pub udp_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_recv_s: 60,
            tcp_established_s: 900,
            tcp_fin_wait_s: 120,
            tcp_close_wait_s: 60,
            tcp_last_ack_s: 30,
            tcp_time_wait_s: 0,
            tcp_close_s: 0,
            udp_s: 300,
        }
    }
}

/// Everything the packet path is configured with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blueprint {
    /// Virtual services.
    pub services: Vec<VirtualService>,
    /// Local pools.
    pub pools: Vec<LocalPool>,
    /// Session timeouts.
    pub timeouts: Timeouts,
    /// The answer to a TCP packet that belongs to no session.
    pub no_session: NoSession,
    /// Whether any TCP packet, not only a SYN, may open a session.
    pub accept_mid_stream: bool,
}
