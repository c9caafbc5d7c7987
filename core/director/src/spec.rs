//! The director's configuration as plain data, before it is compiled.
//!
//! A [`Spec`] is what a configuration file, an API or a test describes. It names things by
//! what an operator calls them; the plan is the compiled form with indices in place
//! of names. The spec's author has validated it (names resolve, no duplicates, ranges hold);
//! compiling still refuses what cannot be represented.

mod health;
mod scheduling;
mod snat;
mod timeouts;
mod tunnel;

pub use health::{AllDown, CheckAt};
pub(crate) use scheduling::schedulers;
pub use scheduling::{HashKey, Hashes, Scheduling};
pub use snat::{Mapping, Network, SnatRule, TunnelSources};
pub use timeouts::Timeouts;
pub use tunnel::TunnelOptions;

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The IP protocol that a virtual service balances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// IP protocol 6.
    #[default]
    Tcp,
    /// IP protocol 17.
    Udp,
    /// IP protocol 132 (RFC 9260).
    Sctp,
    /// ICMP or ICMPv6 echo; for `snat` rules only.
    Icmp,
    /// All of them, and all their ports; ICMP stays with the kernel.
    Any,
}

impl Protocol {
    /// The IP protocol number (IANA); 0 for any. ICMP's is that of IPv4, for both families.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
            Self::Icmp => 1,
            Self::Any => 0,
        }
    }

    /// The name used in configuration, output and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Icmp => "icmp",
            Self::Any => "any",
        }
    }
}

/// The ports of a virtual service: one, a range, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last; not below the first.
    pub last: u16,
}

impl Ports {
    /// Every port, and packets of protocols without ports.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// One port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Whether `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// Those that are among both.
    pub fn common(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// The port, if there is just one.
    pub fn single(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self::ALL
    }
}

impl std::fmt::Display for Ports {
    /// `80`, `8000-8099` or `*`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ALL => f.write_str("*"),
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// An isolated network: 0 for the default one, then those of [`Spec::networks`] in their order.
/// Nothing of one network reaches another, and the same addresses may be in use in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId(pub u16);

impl NetworkId {
    /// The network of whatever names none.
    pub const DEFAULT: Self = Self(0);
}

/// How packets reach a real server, by IPVS's and DPVS's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Full NAT: client → VIP becomes laddr:lport → real, and back.
    #[default]
    Fnat = 0,
    /// Destination NAT: client → VIP becomes client → real; the director is the real server's
    /// gateway.
    Nat = 1,
    /// Direct routing: only the link-layer destination changes.
    Dr = 2,
    /// IP in IP (RFC 2003, RFC 2473): the packet is encapsulated to the real server.
    Ipip = 3,
    /// Generic UDP Encapsulation (draft-ietf-intarea-gue) to the real server.
    Gue = 5,
    /// Generic Routing Encapsulation (RFC 2784) to the real server.
    Gre = 6,
    /// Source NAT of the real servers' own connections: the mode of a [`SnatRule`], of no service.
    Snat = 4,
}

impl Mode {
    /// Those that a real server can have.
    pub const OF_REALS: [Self; 6] =
        [Self::Fnat, Self::Nat, Self::Dr, Self::Ipip, Self::Gue, Self::Gre];

    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fnat => "fnat",
            Self::Nat => "nat",
            Self::Dr => "dr",
            Self::Ipip => "ipip",
            Self::Gue => "gue",
            Self::Gre => "gre",
            Self::Snat => "snat",
        }
    }

    /// Whether packets get an outer header to the real server.
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::Ipip | Self::Gue | Self::Gre)
    }

    /// Whether packets keep the virtual address and port, which real servers then hold too.
    pub const fn keeps_destination(self) -> bool {
        matches!(self, Self::Dr) || self.is_tunnel()
    }
}

/// What becomes of the sessions of a real server that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Orphans {
    /// They go on until they end.
    #[default]
    Keep,
    /// They end with their client's next packet; TCP is answered with a reset. What the real server
    /// still sends is dropped.
    Reset,
    /// Their client's next packet goes to another real server, by the scheduler; UDP goes on there,
    /// while a TCP real server that knows nothing of the connection resets it.
    Reschedule,
}

impl Orphans {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Reset => "reset",
            Self::Reschedule => "reschedule",
        }
    }
}

/// How a real server of FNAT learns its client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// Not at all.
    #[default]
    Hidden,
    /// TCP option 254 in the segments that open the connection (the `toa` kernel module).
    Toa,
    /// PROXY protocol version 1, a line of text; TCP only.
    ProxyV1,
    /// PROXY protocol version 2, binary; at the front of a TCP stream, or of each UDP datagram.
    ProxyV2,
}

impl ClientAddress {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Toa => "toa",
            Self::ProxyV1 => "proxy_v1",
            Self::ProxyV2 => "proxy_v2",
        }
    }
}

/// Persistence: a client's new sessions go where its earlier ones went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Persistence {
    /// Seconds from the client's last new session.
    pub timeout_s: u32,
    /// Bits of the client's address that count: 1 to 32, or 1 to 128 for IPv6.
    pub prefix: u8,
}

/// One destination of a virtual service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 for the port that the client sent to.
    pub port: u16,
    /// Its share of new sessions; 0 drains it: live sessions stay, new ones go elsewhere.
    pub weight: u16,
    /// Its own forwarding mode; the service's without one.
    pub mode: Option<Mode>,
    /// What it has of its own in a tunnel's headers.
    pub tunnel: TunnelOptions,
    /// Sessions from which on it gets no new ones; 0 for no limit.
    pub upper_sessions: u32,
    /// Sessions below which it gets new ones again after it was at its upper limit; 0 for
    /// three quarters of that.
    pub lower_sessions: u32,
    /// Whether it is known to be dead: it gets no new sessions, and `on_down` rules the others.
    pub down: bool,
    /// Whether it gets new sessions only while no other real server of the service is up.
    pub fallback: bool,
    /// How health checks reach it, where that differs.
    pub check: CheckAt,
}

impl Default for RealServer {
    fn default() -> Self {
        Self {
            address: IpAddr::from([0, 0, 0, 0]),
            port: 0,
            weight: 1,
            mode: None,
            tunnel: TunnelOptions::default(),
            upper_sessions: 0,
            lower_sessions: 0,
            down: false,
            fallback: false,
            check: CheckAt::default(),
        }
    }
}

/// A virtual service and its real servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualService {
    /// The operator's name for it; unique.
    pub name: String,
    /// Name of the network that it and its real servers are in; empty for the default one.
    pub network: String,
    /// IP protocol.
    pub protocol: Protocol,
    /// The virtual address.
    pub vip: IpAddr,
    /// The virtual ports; of services that overlap the most specific takes a packet.
    pub ports: Ports,
    /// Forwarding mode of real servers that have none of their own.
    pub mode: Mode,
    /// What tunnels' headers have, where real servers say nothing else.
    pub tunnel: TunnelOptions,
    /// Scheduler.
    pub scheduler: Scheduling,
    /// What `sh` and `mh` hash.
    pub hash: HashKey,
    /// Entries of the table of `mh`: a prime, more than a hundred for each real server.
    pub mh_table: u32,
    /// Name of the local pool for `fnat`; may be empty when no real server is of that mode.
    pub pool: String,
    /// Whether each datagram is scheduled by itself; UDP only.
    pub one_packet: bool,
    /// Persistence, if wanted.
    pub persistence: Option<Persistence>,
    /// What becomes of the sessions of a real server that left the configuration.
    pub on_removed: Orphans,
    /// What becomes of the sessions of a real server that is down.
    pub on_down: Orphans,
    /// What becomes of new sessions when all are down.
    pub all_down: AllDown,
    /// Name of the health check of its real servers; empty without. The packet path makes nothing
    /// of it.
    pub check: String,
    /// Whether that check goes through the data path.
    pub probed: bool,
    /// The most sessions at a time; 0 for no limit.
    pub max_sessions: u32,
    /// The most new sessions in a second; 0 for no limit.
    pub max_new_per_s: u32,
    /// Seconds in which the weight of a real server that was added or came back rises; 0 for
    /// at once.
    pub slow_start_s: u32,
    /// How real servers of FNAT learn the client's address.
    pub client_address: ClientAddress,
    /// Seconds that an open session may be silent; 0 for what [`Timeouts`] say.
    pub idle_timeout_s: u32,
    /// Clients that may open no sessions.
    pub deny: Vec<Network>,
    /// The only clients that may, if there are any.
    pub allow: Vec<Network>,
    /// Real servers, in the order they were configured.
    pub reals: Vec<RealServer>,
}

impl Default for VirtualService {
    fn default() -> Self {
        Self {
            name: String::new(),
            network: String::new(),
            protocol: Protocol::Tcp,
            vip: IpAddr::from([0, 0, 0, 0]),
            ports: Ports::ALL,
            mode: Mode::Fnat,
            tunnel: TunnelOptions::default(),
            scheduler: Scheduling::Rr,
            hash: HashKey::Client,
            mh_table: 65_537,
            pool: String::new(),
            one_packet: false,
            persistence: None,
            on_removed: Orphans::Keep,
            on_down: Orphans::Reschedule,
            all_down: AllDown::Drop,
            check: String::new(),
            probed: false,
            max_sessions: 0,
            max_new_per_s: 0,
            slow_start_s: 0,
            client_address: ClientAddress::Hidden,
            idle_timeout_s: 0,
            deny: Vec::new(),
            allow: Vec::new(),
            reals: Vec::new(),
        }
    }
}

/// A local pool: source addresses and ports of FNAT and SNAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPool {
    /// The operator's name for it; unique.
    pub name: String,
    /// Name of the network that its addresses are in; empty for the default one.
    pub network: String,
    /// Local addresses, of either family or both; an address belongs to one pool of a network only.
    pub addresses: Vec<IpAddr>,
    /// Those that other directors take from their pool of this name: their sessions go on here, and
    /// no session of this director's takes one.
    pub peer_addresses: Vec<IpAddr>,
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

/// What is answered to a new connection that is refused: its service has no real server for it, or
/// is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// A reset to TCP (RFC 9293 3.10.7.1), port unreachable to UDP and SCTP, and counted.
    #[default]
    Answer,
    /// Nothing: it is dropped and counted.
    Drop,
}

/// Everything the packet path is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Names of the isolated networks besides the default one, which has none: see
    /// [`NetworkId`].
    pub networks: Vec<String>,
    /// Virtual services.
    pub services: Vec<VirtualService>,
    /// Local pools.
    pub pools: Vec<LocalPool>,
    /// Rules of source NAT.
    pub snat: Vec<SnatRule>,
    /// Outer source addresses of tunnels in the default network.
    pub tunnel: TunnelSources,
    /// Those of isolated networks, in the order of [`Self::networks`]; none for what is missing.
    pub network_tunnels: Vec<TunnelSources>,
    /// The most ICMP errors that a worker sends in a second; 0 for none.
    pub icmp_errors_per_s: u32,
    /// Seed of `sh` and `mh`: directors with the same configuration and seed choose alike.
    pub hash_seed: u64,
    /// Session timeouts.
    pub timeouts: Timeouts,
    /// The answer to a TCP packet that belongs to no session.
    pub no_session: NoSession,
    /// The answer to a new connection that is refused.
    pub refused: Refusal,
    /// Whether any TCP packet, not only a SYN, may open a session.
    pub accept_mid_stream: bool,
    /// Whether half-open sessions, and services above their share of the table, give way to new
    /// sessions when something runs short.
    pub gives_way: bool,
    /// Where health checks through the data path come from, in IPv4 and IPv6.
    pub probes_from: [Option<IpAddr>; 2],
    /// The same of each of [`Self::networks`], in their order; nowhere of those beyond the end.
    pub network_probes: Vec<[Option<IpAddr>; 2]>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            networks: Vec::new(),
            services: Vec::new(),
            pools: Vec::new(),
            snat: Vec::new(),
            tunnel: TunnelSources::default(),
            network_tunnels: Vec::new(),
            icmp_errors_per_s: 1000,
            hash_seed: 0,
            timeouts: Timeouts::default(),
            no_session: NoSession::default(),
            refused: Refusal::default(),
            accept_mid_stream: false,
            gives_way: true,
            probes_from: [None; 2],
            network_probes: Vec::new(),
        }
    }
}
