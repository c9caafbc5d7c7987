//! The configuration as typed data: what the file says, defaults filled in.
//!
//! A [`Config`] that came out of [`Config::load`] or [`Config::parse`] has been checked: names
//! resolve, addresses are where they may be, numbers are in range. The types hold what the
//! operator wrote (ranges as ranges); [`Config::spec`] is the packet path's view of it.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use sluice_director::spec::{
    Mapping, NetworkId, NoSession, Protocol, Refusal, Timeouts, VirtualService,
};

use crate::{AddressRange, Check, Device, Ipvs, Mac, Prefix};

/// A whole configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[director]`: the process.
    pub director: Director,
    /// `[api]`: the API over the network.
    pub api: Api,
    /// `[limits]`: what memory is set aside for.
    pub limits: Limits,
    /// `[timeouts]`: how long an idle session lives.
    pub timeouts: Timeouts,
    /// `[tcp]`: policy for TCP packets without a session.
    pub tcp: Tcp,
    /// `[icmp]`: errors that the director sends by itself.
    pub icmp: Icmp,
    /// `[elephants]`: flows that several workers process.
    pub elephants: Elephants,
    /// `[ipip]`: outer source addresses.
    pub ipip: Ipip,
    /// `[metrics]`: what is shown to Prometheus.
    pub metrics: Metrics,
    /// `[sync]`: session synchronisation with other directors.
    pub sync: SessionSync,
    /// `[announce]`: interfaces for routing daemons.
    pub announce: Announce,
    /// `[ipvs]`: what programs that know IPVS have set.
    pub ipvs: Ipvs,
    /// `[[network]]`, in the file's order; the default network is not among them.
    pub networks: Vec<IsolatedNetwork>,
    /// `[[port]]`, in the file's order; a port's index here is its `PortId`.
    pub ports: Vec<Port>,
    /// `[[pool]]`, in the file's order.
    pub pools: Vec<Pool>,
    /// `[[service]]`, in the file's order.
    pub services: Vec<VirtualService>,
    /// `[[check]]`, in the file's order.
    pub checks: Vec<Check>,
    /// `[[snat]]`, in the file's order, which is that in which they are tried.
    pub snat: Vec<Snat>,
    /// `[[route]]`: static routes, for replay only.
    pub routes: Vec<Route>,
    /// `[[neighbour]]`: static neighbours, for replay only.
    pub neighbours: Vec<Neighbour>,
}

impl Config {
    /// How many workers the director runs, 1 to 64: one for each core named, or one.
    pub fn workers(&self) -> usize {
        self.director.cores.as_ref().map_or(1, Vec::len)
    }

    /// How many sessions one worker may hold, at least 1: the limit split evenly and rounded down,
    /// so that all workers together never exceed it.
    pub fn sessions_per_worker(&self) -> u32 {
        let workers = u32::try_from(self.workers()).unwrap_or(u32::MAX).max(1);
        (self.limits.sessions / workers).max(1)
    }

    /// How much there is of everything, for a line.
    pub fn summary(&self) -> String {
        let spec = self.spec();
        format!(
            "{} services, {} real servers, {} local addresses, {} ports",
            self.services.len(),
            self.services.iter().map(|service| service.reals.len()).sum::<usize>(),
            spec.pools.iter().map(|pool| pool.addresses.len()).sum::<usize>(),
            self.ports.len(),
        )
    }

    /// The index of the port called `name`, which is its `PortId`.
    pub fn port_id(&self, name: &str) -> Option<u16> {
        self.ports.iter().position(|port| port.name == name).and_then(|id| u16::try_from(id).ok())
    }

    /// Where checks through the data path come from in each network, by its name.
    pub fn probe_addresses(&self) -> impl Iterator<Item = (&str, &[IpAddr])> {
        let isolated = self.networks.iter().map(|it| (it.name.as_str(), &*it.probe_addresses));
        std::iter::once(("", &*self.director.probe_addresses)).chain(isolated)
    }

    /// The network called `name`: 0, the default one, for no name, then from 1 in the file's order.
    pub fn network_id(&self, name: &str) -> Option<NetworkId> {
        if name.is_empty() {
            return Some(NetworkId::DEFAULT);
        }
        let at = self.networks.iter().position(|network| network.name == name)?;
        u16::try_from(at + 1).ok().map(NetworkId)
    }
}

/// `[director]`: the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Director {
    /// One worker on each of these cores, by the kernel's CPU number. `None`: one worker on the
    /// last core that the process may use.
    pub cores: Option<Vec<u16>>,
    /// What a worker does when there is nothing to do.
    pub idle: Idle,
    /// Whether memory comes from huge pages.
    pub huge_pages: HugePages,
    /// The least important messages that are logged.
    pub log_level: LogLevel,
    /// How messages are logged.
    pub log_format: LogFormat,
    /// Path of the socket on which `sluice` talks to the director.
    pub control_socket: PathBuf,
    /// Group whose members may use it: a name, or a number.
    pub control_group: String,
    /// Folder in which applied changes are kept.
    pub state_dir: PathBuf,
    /// Whether sessions outlive the process.
    pub keep_sessions: bool,
    /// Seconds after its end during which the kernel drops what is the director's.
    pub hold_s: u16,
    /// Seed of the schedulers that hash, below 2^53.
    pub hash_seed: u64,
    /// Where checks through the data path come from, at most one of each family.
    pub probe_addresses: Vec<IpAddr>,
}

/// `[api]`: the API over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Where to listen; empty: nowhere.
    pub listen: Vec<SocketAddr>,
    /// PEM file with the chain of certificates. `None`: HTTP, on loopback addresses only.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key; there if and only if there is a certificate.
    pub key: Option<PathBuf>,
    /// File of tokens; there if anything listens.
    pub tokens: Option<PathBuf>,
    /// Names that browsers may call the director by, besides those of its certificate.
    pub names: Vec<String>,
}

/// `[sync]`: session synchronisation with other directors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSync {
    /// Address and UDP port of this director. `None`: sessions are not synchronised.
    pub listen: Option<SocketAddr>,
    /// Those of the others; there if there is `listen`.
    pub peers: Vec<SocketAddr>,
    /// Multicast group and UDP port that all of them receive.
    pub group: Option<SocketAddr>,
    /// Files of the shared secrets, the newest first; there if there is `listen`.
    pub key_files: Vec<PathBuf>,
    /// Most bytes of UDP payload.
    pub datagram: u16,
}

/// `[announce]`: interfaces that hold what a routing daemon is to announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announce {
    /// That of VIPs and pool addresses. `None`: nothing is announced.
    pub interface: Option<String>,
    /// That of other directors' pool addresses; only if there is `interface`.
    pub peer_interface: Option<String>,
}

/// What a worker does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// It sleeps, and wakes on traffic.
    #[default]
    Adaptive,
    /// It goes on polling: least latency, a whole core always.
    Busy,
}

/// Whether memory comes from huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// When the machine has any; ordinary pages otherwise.
    #[default]
    Auto,
    /// The director does not start without.
    Required,
    /// Ordinary pages.
    Off,
}

/// The least important messages that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What stopped something from working.
    Error,
    /// And what may soon.
    Warn,
    /// And what changed.
    #[default]
    Info,
    /// And why.
    Debug,
    /// And everything else.
    Trace,
}

/// How messages are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line, with OpenTelemetry's names.
    Json,
}

/// `[metrics]`: what is shown to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Whether each real server and health check has series of its own.
    pub real_servers: bool,
}

/// `[limits]`: what memory is set aside for at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions of the whole director, 1 to 2^30; at least one for each worker.
    pub sessions: u32,
    /// Frames that one worker may hold while a neighbour is resolved, 0 to 65536.
    pub held_frames: u32,
    /// Fragmented datagrams that one worker follows at a time, 0 to 2^20.
    pub fragments: u32,
}

/// `[tcp]`: policy for TCP packets that belong to no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The answer to a packet that may not open a session.
    pub no_session: NoSession,
    /// Whether any packet, not only a SYN, may open a session.
    pub accept_mid_stream: bool,
}

/// `[icmp]`: errors that the director sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// The most that a worker sends in a second, 0 to 1,000,000; 0 for none.
    pub errors_per_s: u32,
    /// The answer to a new connection that is refused.
    pub refused: Refusal,
}

/// `[elephants]`: flows that several workers process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elephants {
    /// Who may spread a flow.
    pub mode: Spreading,
    /// Packets a second above which the director does; 0 disregards them.
    pub packets_per_s: u64,
    /// Bits a second above which it does; 0 disregards them.
    pub bits_per_s: u64,
    /// Percent of what its worker can process above which it does; 0 disregards them.
    pub worker_percent: u8,
    /// Seconds below half of that after which it ends.
    pub leave_after_s: u32,
    /// Flows that the director spreads at a time.
    pub max_flows: usize,
    /// Workers for each of them; 0 for all.
    pub workers: u16,
}

/// Who may spread a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spreading {
    /// Nobody.
    Off,
    /// An operator.
    #[default]
    Observe,
    /// The director, too.
    Spread,
}

/// `[ipip]`, and of `[[network]]`: outer source addresses of packets in tunnels to real servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipip {
    /// For real servers with IPv4 addresses; an IPv4 prefix, or one address.
    pub source_v4: Option<Prefix>,
    /// For real servers with IPv6 addresses; an IPv6 prefix, or one address.
    pub source_v6: Option<Prefix>,
}

/// `[[network]]`: an isolated network, besides the default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolatedNetwork {
    /// The operator's name for it; unique.
    pub name: String,
    /// Number of the kernel's routing table that has its routes; unique, and none of 0, 253, 254
    /// and 255. Either this or `vrf` is there.
    pub table: Option<u32>,
    /// Name of the kernel's VRF device whose table has them; unique.
    pub vrf: Option<String>,
    /// Prefixes that its virtual addresses, local addresses and real servers are in. Empty: they
    /// may be any.
    pub cidr: Vec<Prefix>,
    /// Outer source addresses of its tunnels to real servers.
    pub tunnel: Ipip,
    /// Sessions over all workers, 1 to 2^30; at least one for each worker.
    pub sessions: u32,
    /// Where its checks through the data path come from, at most one of each family.
    pub probe_addresses: Vec<IpAddr>,
    /// The interfaces that hold what is to be announced of it.
    pub announce: Announce,
}

/// `[[port]]`: a network device and how it is driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The operator's name for it; unique, and safe as a file name.
    pub name: String,
    /// What it is.
    pub device: Device,
    /// Name of the network that its packets are of; empty for the default one.
    pub network: String,
    /// Pairs of receive and transmit queues, 1 to 64. `None`: as many as there are workers (for
    /// `af_xdp` at most as many as the interface has); those of `vxlan` have none.
    pub queues: Option<u16>,
    /// Name of the TAP interface that hands to the kernel what the director does not take.
    pub twin: Option<String>,
    /// Its MAC address. `None`: the device's own.
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes, 576 to 9216. `None`: the device's own.
    pub mtu: Option<u16>,
    /// Whether a NIC that is DPDK's gets flow rules.
    pub flow_rules: bool,
}

/// `[[pool]]`: source addresses and ports of FNAT and SNAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The operator's name for it; unique.
    pub name: String,
    /// Name of the network that its addresses are in; empty for the default one.
    pub network: String,
    /// Its addresses, as the file has them; no address is in two ranges of one network.
    pub addresses: Vec<AddressRange>,
    /// Those that other directors have in their pool of this name.
    pub peer_addresses: Vec<AddressRange>,
    /// Local ports, the same for each address; never 0.
    pub ports: RangeInclusive<u16>,
}

impl Pool {
    /// All that it has, other directors' addresses as well.
    pub fn ranges(&self) -> impl Iterator<Item = &AddressRange> {
        self.addresses.iter().chain(&self.peer_addresses)
    }
}

/// `[[snat]]`: a rule of source NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snat {
    /// The operator's name for it; unique.
    pub name: String,
    /// Name of the network that it is of, as its pool and its port are; empty for the default one.
    pub network: String,
    /// Networks that connections come from; at least one.
    pub sources: Vec<Prefix>,
    /// Networks that connections go to. `None`: everywhere; otherwise at least one.
    pub destinations: Option<Vec<Prefix>>,
    /// TCP, UDP and ICMP echo, or some of them. `None`: all three; otherwise at least one.
    pub protocols: Option<Vec<Protocol>>,
    /// Name of the port of this configuration that connections leave by. `None`: any.
    pub egress: Option<String>,
    /// Name of a pool of this configuration.
    pub pool: String,
    /// What shares a pool address and port.
    pub mapping: Mapping,
    /// Whether machines inside reach each other by what they have outside.
    pub hairpinning: bool,
    /// Seconds without a packet after which an established TCP connection is forgotten.
    pub tcp_established_s: u32,
}

/// `[[route]]`: a static route. A running director takes the kernel's instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// The next hop. `None`: destinations are on the link.
    pub via: Option<IpAddr>,
    /// Name of a port of this configuration.
    pub port: String,
}

/// `[[neighbour]]`: a static neighbour. A running director takes the kernel's instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: Mac,
    /// Name of a port of this configuration.
    pub port: String,
    /// 802.1Q VLAN id, 1 to 4094. `None`: untagged.
    pub vlan: Option<u16>,
}
