//! The compiled configuration: everything by index, immutable, swapped as a whole.
//!
//! Ids are stable: what a new plan has in common with the one before keeps its id, and what it
//! no longer has stays as a tombstone, since sessions that were opened before may still name it
//! (they go on until they end). A tombstone's id is given to something new only when the caller
//! vouches that no session uses it.

mod compile;

pub use compile::{CompileError, Retired};

use crate::blueprint::{Mode, NoSession, Ports, Protocol, Scheduling};
use crate::session::State;
use bytemuck::Zeroable;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// Index of a virtual service in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable)]
#[repr(transparent)]
pub struct ServiceId(pub u16);

/// Index of a real server in a plan; below 2²⁴.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable)]
#[repr(transparent)]
pub struct RealId(pub u32);

/// Index of a local address in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Zeroable)]
#[repr(transparent)]
pub struct LocalId(pub u16);

/// A virtual service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The operator's name for it.
    pub name: String,
    /// IP protocol.
    pub protocol: Protocol,
    /// Virtual address.
    pub vip: IpAddr,
    /// Virtual ports.
    pub ports: Ports,
    /// Its place in the configuration, from 0.
    pub position: usize,
    /// Forwarding mode.
    pub mode: Mode,
    /// Scheduler.
    pub scheduler: Scheduling,
    /// Its real servers, in the configured order.
    pub reals: Vec<RealId>,
    /// Those of them that take new sessions.
    pub eligible: Vec<RealId>,
    /// Index of its local pool.
    pub pool: usize,
    /// False for a tombstone.
    pub live: bool,
}

/// A real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Real {
    /// The service it belongs to.
    pub service: ServiceId,
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Weight; 0 while it drains.
    pub weight: u16,
    /// False for a tombstone.
    pub live: bool,
}

/// A local pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The operator's name for it.
    pub name: String,
    /// Its addresses.
    pub locals: Vec<LocalId>,
    /// First local port.
    pub first_port: u16,
    /// Number of local ports for each address: 1 to 65,535.
    pub ports: u32,
}

impl Pool {
    /// The ports that belong to `worker` of `workers`: how many, and the offset of the first.
    pub fn share(&self, worker: u16, workers: u16) -> (u32, u32) {
        let (worker, workers) = (u32::from(worker), u32::from(workers.max(1)));
        let start = self.ports * worker / workers;
        let end = self.ports * (worker + 1) / workers;
        (start, end - start)
    }

    /// The worker that `port` belongs to, if it is one of the pool's.
    #[inline(always)]
    pub fn owner(&self, port: u16, workers: u16) -> Option<u16> {
        let offset = u32::from(port.checked_sub(self.first_port)?);
        if offset >= self.ports {
            return None;
        }
        Some((((offset + 1) * u32::from(workers) - 1) / self.ports) as u16)
    }
}

/// The addresses of one family, by the plan's ids, as the packet path reads them.
#[derive(Clone, Debug, Default)]
pub struct Side<A> {
    pub(crate) vips: Vec<Option<A>>,
    pub(crate) reals: Vec<Option<(A, u16)>>,
    pub(crate) locals: Vec<Option<A>>,
    pub(crate) service_of: FxHashMap<(u8, A, u16), ServiceId>,
    pub(crate) vip_set: FxHashMap<A, ()>,
    pub(crate) pool_of: FxHashMap<A, u32>,
}

impl<A: Copy + Eq + std::hash::Hash> Side<A> {
    /// Virtual address of a service.
    #[inline(always)]
    pub fn vip(&self, id: ServiceId) -> Option<A> {
        self.vips.get(usize::from(id.0)).copied().flatten()
    }

    /// Address and port of a real server.
    #[inline(always)]
    pub fn real(&self, id: RealId) -> Option<(A, u16)> {
        self.reals.get(id.0 as usize).copied().flatten()
    }

    /// A local address.
    #[inline(always)]
    pub fn local(&self, id: LocalId) -> Option<A> {
        self.locals.get(usize::from(id.0)).copied().flatten()
    }

    /// The service at an endpoint.
    pub fn service_at(&self, protocol: u8, address: A, port: u16) -> Option<ServiceId> {
        self.service_of.get(&(protocol, address, port)).copied()
    }

    /// Whether the address is a VIP or a local address.
    pub fn owns(&self, address: A) -> bool {
        self.vip_set.contains_key(&address) || self.pool_of.contains_key(&address)
    }
}

/// A compiled configuration.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Its number: one more than that of the plan it replaced.
    pub epoch: u64,
    /// Virtual services by id.
    pub services: Vec<Service>,
    /// Real servers by id.
    pub reals: Vec<Real>,
    /// Local addresses by id.
    pub locals: Vec<IpAddr>,
    /// Local pools; behind the configured ones those addresses that left the configuration. No
    /// new session gets these, but packets of old ones still reach them.
    pub pools: Vec<Pool>,
    /// Milliseconds without a packet after which a session in each state is over.
    pub timeout_ms: [u32; State::COUNT],
    /// The answer to TCP without a session.
    pub no_session: NoSession,
    /// Whether any TCP packet may open a session.
    pub accept_mid_stream: bool,
    pub(crate) v4: Side<u32>,
}

impl Plan {
    /// A service by its id.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        self.services.get(usize::from(id.0))
    }

    /// Services that are configured, with their ids.
    pub fn live_services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        let numbered = self.services.iter().enumerate();
        numbered.filter(|(_, s)| s.live).map(|(id, s)| (ServiceId(id as u16), s))
    }

    /// The pool that a local address belongs to.
    #[inline(always)]
    pub(crate) fn pool_of<A: Copy + Eq + std::hash::Hash>(
        &self,
        side: &Side<A>,
        address: A,
    ) -> Option<&Pool> {
        side.pool_of.get(&address).and_then(|pool| self.pools.get(*pool as usize))
    }
}
