//! The compiled configuration: everything by index, immutable, swapped as a whole.
//!
//! Ids are stable: what a new plan has in common with the one before keeps its id, and what it
//! no longer has stays as a tombstone, since sessions that were opened before may still name it
//! (they go on until they end). A tombstone's id is given to something new only when the caller
//! vouches that no session uses it.

mod address_filter;
mod addresses;
mod clients;
mod compile;
pub(crate) mod forwarding;
mod hairpins;
mod health_state;
mod ids;
mod names;
mod networks;
mod pools;
mod port_sharing;
mod probes;
mod real;
pub(crate) mod side;
mod steered;
mod tables;
mod timeouts;

pub(crate) use address_filter::AddressFilter;
pub use clients::Clients;
pub use compile::CompileError;
pub use forwarding::Forwarding;
pub use health_state::HealthState;
pub use ids::Retired;
pub(crate) use names::Renamed;
pub use names::{Names, RealName, Resolver, ServiceName};
pub use pools::Pool;
pub(crate) use port_sharing::PortSharing;
pub use probes::{MAX_PROBED, probe_port};
pub(crate) use side::Side;
pub use steered::TakenEndpoint;

use crate::encap::Encap;
use crate::fib::PortId;
use crate::schedule::mh::Table;
use crate::session::{Core, State};
use crate::spec::{
    AllDown, ClientAddress, HashKey, Mapping, Mode, Network, NetworkId, NoSession, Orphans,
    Persistence, Ports, Protocol, Refusal, Scheduling, TunnelSources,
};
use bytemuck::{NoUninit, Pod, Zeroable};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Index of a virtual service in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable, NoUninit)]
#[repr(transparent)]
pub struct ServiceId(pub u16);

/// Index of a real server in a plan; below 2²⁴.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable)]
#[repr(transparent)]
pub struct RealId(pub u32);

/// Index of a local address in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable, Pod)]
#[repr(transparent)]
pub struct LocalId(pub u16);

/// A virtual service, or a rule of source NAT.
#[derive(Clone, Debug)]
pub struct Service {
    /// The operator's name for it.
    pub name: String,
    /// The network that it and its real servers are in.
    pub network: NetworkId,
    /// IP protocol.
    pub protocol: Protocol,
    /// Virtual address; unspecified for a rule of source NAT.
    pub vip: IpAddr,
    /// Virtual ports.
    pub ports: Ports,
    /// Its place in the configuration, from 0.
    pub position: usize,
    /// Forwarding mode of real servers that have none of their own, and what it means.
    pub mode: Mode,
    pub(crate) forwarding: Forwarding,
    /// Scheduler.
    pub scheduler: Scheduling,
    /// What `sh` and `mh` hash.
    pub hash: HashKey,
    /// The table of `mh` and `sh`.
    pub table: Option<Arc<Table>>,
    /// Its real servers, in the configured order. A rule of source NAT has one, which stands for
    /// all that its connections go to.
    pub reals: Vec<RealId>,
    /// For each of them one that probes go to: see [`probes`].
    pub(crate) probes: Vec<RealId>,
    /// Index of its local pool, if it needs one.
    pub pool: Option<usize>,
    /// Whether each datagram is scheduled by itself.
    pub one_packet: bool,
    /// Persistence.
    pub persistence: Option<Persistence>,
    /// What becomes of the sessions of real servers that leave it.
    pub on_removed: Orphans,
    /// What becomes of the sessions of real servers that are down.
    pub on_down: Orphans,
    /// What becomes of new sessions when all are down.
    pub all_down: AllDown,
    /// The most sessions at a time; 0 for no limit.
    pub max_sessions: u32,
    /// The most new sessions in a second; 0 for no limit.
    pub max_new_per_s: u32,
    /// Seconds in which the weight of a new real server rises.
    pub slow_start_s: u32,
    /// How real servers learn the client's address.
    pub client_address: ClientAddress,
    /// Milliseconds that an open session may be silent; 0 for what the plan says of its state.
    pub idle_ms: u32,
    /// Who may open sessions; none for everybody.
    pub clients: Option<Arc<Clients>>,
    /// What a rule of source NAT says besides.
    pub snat: Option<Snat>,
    /// What says which worker its sessions belong to; without it, to the one that receives them.
    pub owner: Option<Owner>,
    /// What said so before: sessions from then may still be where that leads.
    pub former_owners: Vec<Owner>,
    /// The number of the plan since which it is there without a break; 0 if it has long gone.
    pub born: u64,
    /// The number of the plan since which it may have sessions, removed in between or not; 0 if it
    /// has none any more.
    pub sessions_since: u64,
    /// Whether its sessions are in the extended table, whatever its family: see [`Plan::wide_v4`].
    pub extended: bool,
    /// False for a tombstone.
    pub live: bool,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: String::new(),
            network: NetworkId::DEFAULT,
            protocol: Protocol::default(),
            vip: IpAddr::from([0, 0, 0, 0]),
            ports: Ports::ALL,
            position: 0,
            mode: Mode::default(),
            forwarding: Forwarding::of(Mode::default()),
            scheduler: Scheduling::default(),
            hash: HashKey::default(),
            table: None,
            reals: Vec::new(),
            probes: Vec::new(),
            pool: None,
            one_packet: false,
            persistence: None,
            on_removed: Orphans::default(),
            on_down: Orphans::default(),
            all_down: AllDown::default(),
            max_sessions: 0,
            max_new_per_s: 0,
            slow_start_s: 0,
            client_address: ClientAddress::default(),
            idle_ms: 0,
            clients: None,
            snat: None,
            owner: None,
            former_owners: Vec::new(),
            born: 0,
            sessions_since: 0,
            extended: false,
            live: false,
        }
    }
}

impl Service {
    /// Takes over what must outlive a reload from itself as it was in the plan before.
    fn succeed(&mut self, former: Self) {
        if former.born != 0 {
            self.born = former.born;
        }
        if former.sessions_since != 0 {
            self.sessions_since = former.sessions_since;
        }
        let now = self.owner;
        self.former_owners = former.former_owners;
        self.former_owners.extend(former.owner);
        self.former_owners.sort_unstable();
        self.former_owners.dedup();
        self.former_owners.retain(|owner| Some(*owner) != now);
    }

    /// All that says or said which worker its sessions belong to.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.owner.into_iter().chain(self.former_owners.iter().copied())
    }
}

/// What of a client says which worker its sessions belong to: the same whichever service, table
/// or direction a packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Its address and port.
    Endpoint,
    /// So many first bits of its address: what persistence remembers of it.
    Network(u8),
}

/// What a rule of source NAT says, besides its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snat {
    /// Networks that connections come from.
    pub sources: Vec<Network>,
    /// Networks that connections go to; empty for everywhere.
    pub destinations: Vec<Network>,
    /// Protocols; empty for TCP, UDP and ICMP echo.
    pub protocols: Vec<Protocol>,
    /// The port that connections leave by.
    pub egress: Option<PortId>,
    /// What shares a pool address and port.
    pub mapping: Mapping,
    /// Whether hosts inside reach each other by what they have outside, if the pool allows it.
    pub hairpinning: bool,
    /// Milliseconds without a packet after which an established TCP connection is over; 0 for
    /// those of all.
    pub established_ms: u32,
}

impl Snat {
    /// Whether the rule is for a connection; by which port it leaves is not looked at.
    pub fn matches(&self, protocol: u8, from: IpAddr, to: IpAddr) -> bool {
        let known = match protocol {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            1 | 58 => Protocol::Icmp,
            _ => return false,
        };
        (self.protocols.is_empty() || self.protocols.contains(&known))
            && self.sources.iter().any(|net| net.contains(from))
            && (self.destinations.is_empty() || self.destinations.iter().any(|n| n.contains(to)))
    }
}

/// A real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Real {
    /// The service it belongs to.
    pub service: ServiceId,
    /// Its place among the service's real servers.
    pub position: u32,
    /// Address.
    pub address: IpAddr,
    /// Port; 0 for the one that the client sent to.
    pub port: u16,
    /// Weight; 0 while it drains.
    pub weight: u16,
    /// Forwarding mode, and what it means.
    pub mode: Mode,
    pub(crate) forwarding: Forwarding,
    /// What is put before its packets, if they go into a tunnel.
    pub(crate) encap: Option<Encap>,
    /// Sessions from which on it gets no new ones; 0 for no limit.
    pub upper_sessions: u32,
    /// Sessions below which it gets new ones again; 0 for three quarters of the upper limit.
    pub lower_sessions: u32,
    /// Whether the configuration says that it is dead.
    pub down: bool,
    /// Whether it is for when no other is up.
    pub fallback: bool,
    /// Whether it stands for another that probes go to: see [`probes`].
    pub is_probe: bool,
    /// Whether health checks found it dead; kept from plan to plan.
    pub found_down: bool,
    /// Whether it was up when any real server of the service was last.
    pub(crate) was_up: bool,
    /// What follows from all that: whether it gets new sessions.
    pub health_state: HealthState,
    /// What becomes of its sessions now: [`Orphans::Keep`] unless it is down.
    pub orphans: Orphans,
    /// False for a tombstone.
    pub live: bool,
}

/// A compiled configuration.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Its number: one more than that of the plan it replaced.
    pub epoch: u64,
    /// How often health and weights have changed it since it was compiled: see
    /// [`Plan::with_health`].
    pub revision: u64,
    /// Services that are not as in the revision before.
    pub(crate) turned: Vec<ServiceId>,
    /// Virtual services by id.
    pub services: Vec<Service>,
    /// Real servers by id.
    pub reals: Vec<Real>,
    /// Local addresses by id.
    pub locals: Vec<IpAddr>,
    /// The network of each of them.
    pub(crate) local_networks: Vec<NetworkId>,
    /// Names of the networks besides the default one.
    pub networks: Vec<String>,
    /// The network whose packets this plan is for: see [`Plan::of_network`].
    pub network: NetworkId,
    /// Outer source addresses of tunnels in that network,
    pub tunnel: TunnelSources,
    /// and in [`Self::networks`].
    pub(crate) network_tunnels: Vec<TunnelSources>,
    /// Where probes come from in that network.
    pub(crate) network_probes: Vec<[Option<IpAddr>; 2]>,
    /// The most ICMP errors that a worker sends in a second.
    pub icmp_errors_per_s: u32,
    /// Seed of `sh` and `mh`.
    pub hash_seed: u64,
    /// Local pools; behind the configured ones those addresses that left the configuration. No
    /// new session gets these, but packets of old ones still reach them.
    pub pools: Vec<Pool>,
    /// Milliseconds without a packet up to which a session in each state is not over, whatever its
    /// service says: what plain packets ask. See [`Plan::timeout_of`].
    pub timeout_ms: [u32; State::PLACES],
    /// Milliseconds without a packet after which a session in each state is over, if its service
    /// does not say otherwise.
    pub state_ms: [u32; State::PLACES],
    /// The answer to TCP without a session.
    pub no_session: NoSession,
    /// The answer to a new connection that is refused.
    pub refused: Refusal,
    /// Whether half-open sessions, and services above their share of the table, give way to new
    /// sessions when something runs short.
    pub gives_way: bool,
    /// Whether any TCP packet may open a session.
    pub accept_mid_stream: bool,
    /// Where health checks through the data path come from, in IPv4 and IPv6.
    pub probes_from: [Option<IpAddr>; 2],
    /// Rules of source NAT, in the configured order.
    pub(crate) snat_order: Vec<ServiceId>,
    /// Former rules of source NAT, which may still have sessions.
    pub(crate) snat_former: Vec<ServiceId>,
    /// Whether IPv4 packets may belong to sessions of the extended table: those across families, of
    /// source NAT, and of TCP that tells real servers the client's address need more room than an
    /// IPv4 session has.
    pub wide_v4: bool,
    /// Where [`Self::wide_v4`] is: which IPv4 packets are the IPv4 table's at most.
    pub(crate) address_filter: Option<AddressFilter>,
    /// Which tables' sessions use the ports of local addresses, by id.
    pub(crate) port_sharing: Vec<PortSharing>,
    /// Which local addresses sessions of the IPv4 table have, or had once, by id.
    pub(crate) narrow_locals: Vec<bool>,
    /// Whether any service tells its real servers the client's address.
    pub(crate) tells_client: bool,
    pub(crate) v4: Side<u32>,
    pub(crate) extended: Side<u128>,
}

impl Plan {
    /// A service by its id.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        self.services.get(usize::from(id.0))
    }

    /// Services that are configured, with their ids.
    pub fn live_services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.live().filter(|(_, s)| s.snat.is_none())
    }

    /// UDP ports that packets to real servers behind tunnels are sent to, in order. Real servers
    /// that left but have sessions are among them.
    pub fn tunnel_ports(&self) -> Vec<u16> {
        let ports = self.reals.iter().filter_map(|real| real.encap?.udp_port());
        ports.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Rules of source NAT that are configured, with their ids, in no order.
    pub fn snat_rules(&self) -> impl Iterator<Item = (ServiceId, &Service, &Snat)> {
        self.live().filter_map(|(id, s)| s.snat.as_ref().map(|snat| (id, s, snat)))
    }

    fn live(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        let numbered = self.services.iter().enumerate();
        numbered.filter(|(_, s)| s.live).map(|(id, s)| (ServiceId(id as u16), s))
    }

    /// Whether an address is one that a rule of source NAT is for.
    pub(crate) fn is_inside(&self, address: IpAddr) -> bool {
        let rules = self.snat_order.iter().filter_map(|id| self.service(*id)?.snat.as_ref());
        rules.flat_map(|snat| &snat.sources).any(|source| source.contains(address))
    }

    /// Whether any session may need the extended table.
    pub(crate) fn uses_extended(&self) -> bool {
        self.services.iter().any(|service| service.extended)
    }

    /// A real server by its id.
    pub fn real(&self, id: RealId) -> Option<&Real> {
        self.reals.get(id.0 as usize)
    }

    /// The service that a session, or what persistence remembers, is of: its real server's.
    #[inline(always)]
    pub(crate) fn service_of(&self, session: &Core) -> Option<ServiceId> {
        self.real(session.real()).map(|real| real.service)
    }

    /// The pool that a local address belongs to.
    #[inline(always)]
    pub(crate) fn pool_of<A: Copy + Eq + std::hash::Hash>(
        &self,
        side: &Side<A>,
        address: A,
    ) -> Option<&Pool> {
        self.pools.get(self.pool_number(side, address)?)
    }

    /// The number of the pool that has an address.
    #[inline(always)]
    pub(crate) fn pool_number<A: Copy + Eq + std::hash::Hash>(
        &self,
        side: &Side<A>,
        address: A,
    ) -> Option<usize> {
        side.pool_of.get(address).map(|pool| pool as usize)
    }
}
