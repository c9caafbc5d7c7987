//! What can be chosen on the command line, by the names that configuration and output use.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sluice_director::path::PagePolicy;
use sluice_director::spec::{self, Scheduling};

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
        self.of_spec().name()
    }

    pub const fn of_spec(self) -> spec::Mode {
        match self {
            Self::Fnat => spec::Mode::Fnat,
            Self::Nat => spec::Mode::Nat,
            Self::Dr => spec::Mode::Dr,
            Self::Ipip => spec::Mode::Ipip,
            Self::Snat => spec::Mode::Snat,
        }
    }

    /// Whether answers come by the director.
    pub const fn answers(self) -> bool {
        !matches!(self, Self::Dr | Self::Ipip)
    }

    /// The name of a scheduler in output, where the mode has one.
    pub const fn scheduled_by(self, scheduler: Scheduling) -> &'static str {
        match self {
            Self::Snat => "-",
            _ => scheduler.name(),
        }
    }

    /// Whether sessions have a local address and port.
    pub const fn has_pool(self) -> bool {
        matches!(self, Self::Fnat | Self::Snat)
    }
}

/// Reads a scheduler by its name.
pub fn scheduler() -> impl TypedValueParser<Value = Scheduling> {
    let names = Scheduling::ALL.iter().map(|scheduler| scheduler.name());
    PossibleValuesParser::new(names).try_map(|word| {
        let found = Scheduling::ALL.iter().find(|scheduler| scheduler.name() == word);
        found.copied().ok_or("no scheduler")
    })
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
    pub const fn of_spec(self) -> spec::Mapping {
        match self {
            Self::EndpointIndependent => spec::Mapping::EndpointIndependent,
            Self::PerSession => spec::Mapping::PerSession,
        }
    }
}

impl Protocol {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        self.of_spec().name()
    }

    pub const fn of_spec(self) -> spec::Protocol {
        match self {
            Self::Udp => spec::Protocol::Udp,
            Self::Tcp => spec::Protocol::Tcp,
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
