//! What IPVS knows.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::matching::Match;

/// Flags of a service, as `linux/ip_vs.h` has them.
pub mod flags {
    /// It is persistent.
    pub const PERSISTENT: u32 = 0x1;
    /// The kernel has it in its table; every service that is listed has this.
    pub const HASHED: u32 = 0x2;
    /// Each datagram is scheduled by itself.
    pub const ONE_PACKET: u32 = 0x4;
    /// A flag of the scheduler: `flag-1`, `sh-fallback`, `mh-fallback`.
    pub const SCHEDULER_1: u32 = 0x8;
    /// A flag of the scheduler: `flag-2`, `sh-port`, `mh-port`.
    pub const SCHEDULER_2: u32 = 0x10;
    /// A flag of the scheduler: `flag-3`.
    pub const SCHEDULER_3: u32 = 0x20;
}

/// A version of IP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsFamily")]
pub enum Family {
    /// IPv4, `AF_INET`.
    Ipv4,
    /// IPv6, `AF_INET6`.
    Ipv6,
}

impl Family {
    /// That of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

/// A transport protocol that a service can have.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsProtocol")]
pub enum Protocol {
    /// 6.
    Tcp,
    /// 17.
    Udp,
    /// 132.
    Sctp,
}

impl Protocol {
    /// Its number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// That of a number, where a service can have it.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// Which service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "IpvsServiceKey")]
pub enum ServiceKey {
    /// By a firewall mark other than 0.
    Mark {
        /// The mark.
        mark: u32,
        /// Of which packets.
        family: Family,
    },
    /// By what clients connect to.
    Address {
        /// The protocol.
        protocol: Protocol,
        /// The virtual address.
        address: IpAddr,
        /// The port; 0 for all.
        port: u16,
    },
    /// By where connections from inside come from and go to: source NAT, a word of DPVS.
    Match(
        /// As DPVS's `--match` says it: `proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk0`.
        #[schemars(with = "String")]
        Match,
    ),
}

impl ServiceKey {
    /// The version of IP of its clients.
    pub const fn family(&self) -> Family {
        match *self {
            Self::Mark { family, .. } => family,
            Self::Address { address, .. } => Family::of(address),
            Self::Match(it) => it.family(),
        }
    }
}

/// What a service is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsServiceSpec")]
pub struct ServiceSpec {
    /// Which.
    pub key: ServiceKey,
    /// Its scheduler's name, at most 15 bytes.
    pub scheduler: String,
    /// Of [`flags`].
    #[serde(default)]
    pub flags: u32,
    /// Seconds of persistence, where [`flags::PERSISTENT`] is set.
    #[serde(default)]
    pub timeout_s: u32,
    /// What makes one client of many for persistence: the mask for IPv4 (most significant byte
    /// first), the prefix's length for IPv6; with all bits (`u32::MAX`, 128) each is its own.
    pub netmask: u32,
    /// The persistence engine, at most 15 bytes (`sip`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_engine: Option<String>,
    /// What `ipvsadm` of DPVS adds. Not sent by stock programs: then an edit keeps what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
}

/// What `ipvsadm` of DPVS says of a service, beyond IPVS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "IpvsSettings")]
pub struct Settings {
    /// `client_address` of the service: `proxy_v1`, `proxy_v2`, `toa`; none for `hidden`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_address: Option<String>,
    /// Seconds that an idle connection stays; none for the director's timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_timeout_s: Option<u32>,
    /// Whether connections end when their destination is no longer there (`--expire-quiescent`).
    pub expire_quiescent: bool,
}

/// A service as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IpvsService")]
pub struct Service {
    /// What it is.
    pub spec: ServiceSpec,
    /// Whose it is: `file`, `api` or `ipvsadm`.
    pub owner: String,
    /// What the director calls it.
    pub name: String,
    /// Sums over its destinations.
    pub stats: Stats,
    /// Its destinations, in no order that means anything.
    pub destinations: Vec<Destination>,
}

/// How packets reach a destination.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsMethod")]
pub enum Method {
    /// NAT: `IP_VS_CONN_F_MASQ`, 0.
    Masq,
    /// This machine itself: 1. No command makes one.
    Local,
    /// A tunnel: 2.
    Tunnel,
    /// Direct routing: 3.
    Route,
    /// Past everything: 4. No command makes one.
    Bypass,
    /// Full NAT: 5, a word of DPVS.
    FullNat,
    /// Source NAT: 6, a word of DPVS.
    Snat,
}

impl Method {
    /// All, by their number.
    pub const ALL: [Self; 7] = [
        Self::Masq,
        Self::Local,
        Self::Tunnel,
        Self::Route,
        Self::Bypass,
        Self::FullNat,
        Self::Snat,
    ];

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// How a tunnel is made.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsTunnelKind")]
pub enum TunnelKind {
    /// IP in IP: 0.
    Ipip,
    /// Generic UDP encapsulation: 1.
    Gue,
    /// GRE: 2.
    Gre,
}

/// A destination's tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsTunnel")]
pub struct Tunnel {
    /// Its kind.
    pub kind: TunnelKind,
    /// GUE's UDP port, else 0.
    #[serde(default)]
    pub port: u16,
    /// 0 no checksum, 1 checksum, 2 remote checksum offload.
    #[serde(default)]
    pub flags: u16,
}

impl Tunnel {
    /// What a destination has when nothing is said.
    pub const IPIP: Self = Self { kind: TunnelKind::Ipip, port: 0, flags: 0 };
}

/// A destination. What only a list tells is ignored in commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsDestination")]
pub struct Destination {
    /// Its address; for tunnels and full NAT of either family.
    pub address: IpAddr,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
    /// How packets reach it.
    pub method: Method,
    /// Its tunnel, with [`Method::Tunnel`].
    #[serde(default = "ipip")]
    pub tunnel: Tunnel,
    /// Its weight.
    pub weight: u32,
    /// Connections from which on it gets no new ones, 0 for no limit.
    #[serde(default)]
    pub upper: u32,
    /// Connections below which it gets new ones again.
    #[serde(default)]
    pub lower: u32,
    /// Established connections now.
    #[serde(default)]
    pub active: u32,
    /// Other connections now.
    #[serde(default)]
    pub inactive: u32,
    /// Clients that are bound to it by persistence.
    #[serde(default)]
    pub persistent: u32,
    /// What went through it.
    #[serde(default)]
    pub stats: Stats,
}

const fn ipip() -> Tunnel {
    Tunnel::IPIP
}

/// Counts since the start or the last zeroing, and rates over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "IpvsStats")]
pub struct Stats {
    /// Connections.
    pub connections: u64,
    /// Packets from clients.
    pub in_packets: u64,
    /// Packets to clients.
    pub out_packets: u64,
    /// Bytes from clients.
    pub in_bytes: u64,
    /// Bytes to clients.
    pub out_bytes: u64,
    /// Connections a second.
    pub connections_per_s: u64,
    /// Packets a second from clients.
    pub in_packets_per_s: u64,
    /// Packets a second to clients.
    pub out_packets_per_s: u64,
    /// Bytes a second from clients.
    pub in_bytes_per_s: u64,
    /// Bytes a second to clients.
    pub out_bytes_per_s: u64,
}

/// Idle seconds after which connections end. In a command 0 keeps what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsTimeouts")]
pub struct Timeouts {
    /// TCP, established.
    pub tcp_s: u32,
    /// TCP, after a FIN.
    pub tcp_fin_s: u32,
    /// UDP.
    pub udp_s: u32,
}

/// Which end of the synchronisation of connections.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsRole")]
pub enum Role {
    /// It sends: 1.
    Master,
    /// It receives: 2.
    Backup,
}

/// A daemon that synchronises connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsDaemon")]
pub struct Daemon {
    /// Which end.
    pub role: Role,
    /// The interface's name, at most 15 bytes.
    pub interface: String,
    /// 0 to 255; only what has the same one is received.
    pub sync_id: u32,
    /// The longest datagram's payload in bytes, 0 for what the interface's MTU allows.
    #[serde(default)]
    pub maximum_length: u16,
    /// The multicast group, none for 224.0.0.81.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// The UDP port, 0 for 8848.
    #[serde(default)]
    pub port: u16,
    /// The TTL, 0 for 1.
    #[serde(default)]
    pub ttl: u8,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IpvsConnection")]
pub struct Connection {
    /// Its IP protocol's number.
    pub protocol: u8,
    /// The client's address and port.
    pub client: (IpAddr, u16),
    /// The virtual address and port.
    #[serde(rename = "virtual")]
    pub virtual_: (IpAddr, u16),
    /// The local address and port that its destination sees, with full NAT.
    pub local: Option<(IpAddr, u16)>,
    /// The destination's address and port.
    pub destination: (IpAddr, u16),
    /// Its state, by IPVS's names (`ESTABLISHED`, `FIN_WAIT`, `UDP`, `NONE`).
    pub state: String,
    /// Seconds until it ends when nothing comes.
    pub expires_s: u32,
}

/// What IPVS tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IpvsInfo")]
pub struct Info {
    /// The version: major << 16 | minor << 8 | patch. 1.2.1 is 0x010201.
    pub version: u32,
    /// Buckets of the table of connections.
    pub table_size: u32,
    /// Services.
    pub services: u32,
}

/// A local address of a service (DPVS).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IpvsLocalAddress")]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Connections for which no port was free.
    #[serde(default)]
    pub conflicts: u64,
    /// Connections that have it now.
    #[serde(default)]
    pub connections: u32,
}

/// The local addresses of a service (DPVS).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IpvsLocalAddresses")]
pub struct LocalAddresses {
    /// Which service.
    pub key: ServiceKey,
    /// Its addresses.
    pub addresses: Vec<LocalAddress>,
}

/// Which list of clients (DPVS).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IpvsList")]
pub enum List {
    /// They are refused.
    Deny,
    /// Only they are served, where there are any.
    Allow,
}
