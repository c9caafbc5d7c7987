//! Ids of a plan under construction: what an earlier plan had keeps its own, what is new gets one
//! that nothing uses.

use super::{CompileError, LocalId, Plan, Real, RealId, Service, ServiceId};
use crate::spec::{Mode, NetworkId, Ports};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

const MAX_SERVICES: usize = 1 << 16;
const MAX_REALS: usize = 1 << 24;
const MAX_LOCALS: usize = 1 << 16;

/// Ids of an earlier plan's tombstones that no session uses any more.
#[derive(Clone, Debug, Default)]
pub struct Retired {
    /// Real servers.
    pub reals: HashSet<RealId>,
    /// Virtual services.
    pub services: HashSet<ServiceId>,
}

/// What makes a service itself: its endpoint, or the name of a rule of source NAT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// Protocol, address and ports; and which table its sessions are in, which they cannot leave.
    Service(NetworkId, u8, IpAddr, Ports, bool),
    Snat(String),
}

impl Identity {
    pub fn of(service: &Service) -> Self {
        if service.snat.is_some() {
            return Self::Snat(service.name.clone());
        }
        let Service { network, protocol, vip, ports, extended, .. } = *service;
        Self::Service(network, protocol.number(), vip, ports, extended)
    }
}

/// What makes a real server itself: its service, endpoint and mode, and whether it is a double.
pub(super) type RealKey = (ServiceId, IpAddr, u16, Mode, bool);

fn key(real: &Real) -> RealKey {
    (real.service, real.address, real.port, real.mode, real.is_probe)
}

/// Which ids are taken by what.
pub(super) struct Ids {
    services: HashMap<Identity, ServiceId>,
    reals: HashMap<RealKey, RealId>,
    locals: HashMap<(NetworkId, IpAddr), LocalId>,
    free_services: Vec<ServiceId>,
    free_reals: Vec<RealId>,
}

impl Ids {
    pub fn of(plan: &Plan, retired: &Retired) -> Self {
        let mut ids = Self {
            services: HashMap::new(),
            reals: HashMap::new(),
            locals: HashMap::new(),
            free_services: retired.services.iter().copied().collect(),
            free_reals: retired.reals.iter().copied().collect(),
        };
        ids.free_services.sort_unstable();
        ids.free_reals.sort_unstable();
        for (id, service) in plan.services.iter().enumerate() {
            let id = ServiceId(id as u16);
            if !retired.services.contains(&id) {
                ids.services.insert(Identity::of(service), id);
            }
        }
        for (id, real) in plan.reals.iter().enumerate() {
            let id = RealId(id as u32);
            if !retired.reals.contains(&id) && !retired.services.contains(&real.service) {
                ids.reals.insert(key(real), id);
            }
        }
        let locals = plan.local_networks.iter().zip(&plan.locals);
        for (id, (network, local)) in locals.enumerate() {
            ids.locals.insert((*network, *local), LocalId(id as u16));
        }
        ids
    }

    /// The id that a service has.
    pub fn service_named(&self, identity: &Identity) -> Option<ServiceId> {
        self.services.get(identity).copied()
    }

    /// The id that a real server has.
    pub fn real_named(&self, key: &RealKey) -> Option<RealId> {
        self.reals.get(key).copied()
    }

    /// The id that a local address has.
    pub fn local_named(&self, network: NetworkId, address: IpAddr) -> Option<LocalId> {
        self.locals.get(&(network, address)).copied()
    }

    /// The id of a service; `service` is put there.
    pub fn service(
        &mut self,
        all: &mut Vec<Service>,
        service: Service,
    ) -> Result<ServiceId, CompileError> {
        let identity = Identity::of(&service);
        let known = self.services.get(&identity).copied();
        let id = match known.or_else(|| self.free_services.pop()) {
            Some(id) if all[usize::from(id.0)].live => {
                return Err(CompileError::DuplicateService { service: service.name });
            }
            Some(id) => {
                let former = std::mem::replace(&mut all[usize::from(id.0)], service);
                if known.is_some() {
                    all[usize::from(id.0)].succeed(former);
                }
                id
            }
            None if all.len() == MAX_SERVICES => {
                return Err(CompileError::TooMany { what: "services", limit: MAX_SERVICES });
            }
            None => {
                all.push(service);
                ServiceId((all.len() - 1) as u16)
            }
        };
        self.services.insert(identity, id);
        Ok(id)
    }

    /// The id of a real server; `real` is put there, and keeps what checks found of it.
    pub fn real(&mut self, all: &mut Vec<Real>, mut real: Real) -> Result<RealId, CompileError> {
        let key = key(&real);
        let known = self.reals.get(&key).copied();
        if let Some(former) = known.and_then(|id| all.get(id.0 as usize)) {
            (real.found_down, real.was_up) = (former.found_down, former.was_up);
        }
        let id = match known.or_else(|| self.free_reals.pop()) {
            Some(id) => {
                all[id.0 as usize] = real;
                id
            }
            None if all.len() == MAX_REALS => {
                return Err(CompileError::TooMany { what: "real servers", limit: MAX_REALS });
            }
            None => {
                all.push(real);
                RealId((all.len() - 1) as u32)
            }
        };
        self.reals.insert(key, id);
        Ok(id)
    }

    /// The id of a local address.
    pub fn local(
        &mut self,
        (all, networks): (&mut Vec<IpAddr>, &mut Vec<NetworkId>),
        (network, address): (NetworkId, IpAddr),
    ) -> Result<LocalId, CompileError> {
        if let Some(id) = self.locals.get(&(network, address)) {
            return Ok(*id);
        }
        if all.len() == MAX_LOCALS {
            return Err(CompileError::TooMany { what: "local addresses", limit: MAX_LOCALS });
        }
        all.push(address);
        networks.push(network);
        let id = LocalId((all.len() - 1) as u16);
        self.locals.insert((network, address), id);
        Ok(id)
    }
}
