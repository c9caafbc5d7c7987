//! What can be chosen on the command line, by the names that configuration and output use.

use clap::ValueEnum;
use sluice_director::blueprint;
use sluice_director::path::PagePolicy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Full NAT
    Fnat,
    /// Destination NAT
    Nat,
    /// Direct routing
    Dr,
    /// IP in IP
    Ipip,
    /// Source NAT
    Snat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// Round robin
    Rr,
    /// Weighted round robin
    Wrr,
    /// Least sessions
    Lc,
    /// Least sessions for its weight
    Wlc,
    /// Shortest expected delay
    Sed,
    /// One without sessions, else the shortest expected delay
    Nq,
    /// The highest weight
    Fo,
    /// The highest weight until it has as many sessions
    Ovf,
    /// The same real server until it is overloaded
    Lblc,
    /// The same few real servers
    Lblcr,
    /// Hash of the destination
    Dh,
    /// Hash of the client
    Sh,
    /// Maglev's consistent hash of the client
    Mh,
    /// The better of two chosen at random
    P2c,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// IPv4
    #[value(name = "4")]
    V4,
    /// IPv6
    #[value(name = "6")]
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mapping {
    /// All connections of an inside address and port
    #[value(name = "endpoint_independent")]
    EndpointIndependent,
    /// Each connection has its own
    #[value(name = "per_session")]
    PerSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Sessions that are open with their first packet
    Udp,
    /// Sessions whose handshake is complete
    Tcp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Pages {
    /// Reserved huge pages where there are enough, else ordinary ones
    Auto,
    /// Reserved huge pages or an error
    Huge,
    /// Ordinary pages, merged by the kernel where it can
    Ordinary,
}

impl Mode {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        self.of_blueprint().name()
    }

    pub const fn of_blueprint(self) -> blueprint::Mode {
        match self {
            Self::Fnat => blueprint::Mode::Fnat,
            Self::Nat => blueprint::Mode::Nat,
            Self::Dr => blueprint::Mode::Dr,
            Self::Ipip => blueprint::Mode::Ipip,
            Self::Snat => blueprint::Mode::Snat,
        }
    }

    /// Whether answers come by the director.
    pub const fn answers(self) -> bool {
        !matches!(self, Self::Dr | Self::Ipip)
    }

    /// Whether sessions have a local address and port.
    pub const fn has_pool(self) -> bool {
        matches!(self, Self::Fnat | Self::Snat)
    }
}

impl Scheduler {
    pub const fn of_blueprint(self) -> blueprint::Scheduling {
        match self {
            Self::Rr => blueprint::Scheduling::Rr,
            Self::Wrr => blueprint::Scheduling::Wrr,
            Self::Lc => blueprint::Scheduling::Lc,
            Self::Wlc => blueprint::Scheduling::Wlc,
            Self::Sed => blueprint::Scheduling::Sed,
            Self::Nq => blueprint::Scheduling::Nq,
            Self::Fo => blueprint::Scheduling::Fo,
            Self::Ovf => blueprint::Scheduling::Ovf,
            Self::Lblc => blueprint::Scheduling::Lblc,
            Self::Lblcr => blueprint::Scheduling::Lblcr,
            Self::Dh => blueprint::Scheduling::Dh,
            Self::Sh => blueprint::Scheduling::Sh,
            Self::Mh => blueprint::Scheduling::Mh,
            Self::P2c => blueprint::Scheduling::P2c,
        }
    }

    /// The name used in configuration and output, where the mode has a scheduler.
    pub const fn name(self, mode: Mode) -> &'static str {
        match mode {
            Mode::Snat => "-",
            _ => self.of_blueprint().name(),
        }
    }
}

impl Family {
    /// 4 or 6.
    pub const fn version(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}

impl Mapping {
    pub const fn of_blueprint(self) -> blueprint::Mapping {
        match self {
            Self::EndpointIndependent => blueprint::Mapping::EndpointIndependent,
            Self::PerSession => blueprint::Mapping::PerSession,
        }
    }
}

impl Protocol {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        self.of_blueprint().name()
    }

    pub const fn of_blueprint(self) -> blueprint::Protocol {
        match self {
            Self::Udp => blueprint::Protocol::Udp,
            Self::Tcp => blueprint::Protocol::Tcp,
        }
    }
}

impl Pages {
    pub const fn policy(self) -> PagePolicy {
        match self {
            Self::Auto => PagePolicy::Auto,
            Self::Huge => PagePolicy::HugeOnly,
            Self::Ordinary => PagePolicy::Ordinary,
        }
    }
}
