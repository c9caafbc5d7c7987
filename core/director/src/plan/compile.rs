//! From a blueprint to a plan, keeping the ids of the plan before.

use super::{LocalId, Plan, Pool, Real, RealId, Service, ServiceId, Side};
use crate::blueprint::{Blueprint, Ports, Timeouts, VirtualService};
use crate::family::{Family, Ipv4};
use crate::session::State;
use rustc_hash::FxHashMap;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

const MAX_SERVICES: usize = 1 << 16;
const MAX_REALS: usize = 1 << 24;
const MAX_LOCALS: usize = 1 << 16;

/// What a plan cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// A service names a pool that is not there.
    NoSuchPool {
        /// The service.
        service: String,
        /// The pool it names.
        pool: String,
    },
    /// Two services have the same protocol, address and port.
    DuplicateService {
        /// The second one.
        service: String,
    },
    /// An address is in two pools.
    DuplicateLocal {
        /// The address.
        address: IpAddr,
    },
    /// More of something than ids can name, tombstones included.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchPool { service, pool } => {
                write!(f, "service {service:?}: there is no pool {pool:?}")
            }
            Self::DuplicateService { service } => {
                write!(f, "service {service:?}: another has its protocol, VIP and port")
            }
            Self::DuplicateLocal { address } => write!(f, "{address} is in two pools"),
            Self::TooMany { what, limit } => write!(f, "more than {limit} {what}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Ids of an earlier plan's tombstones that no session uses any more.
#[derive(Clone, Debug, Default)]
pub struct Retired {
    /// Real servers.
    pub reals: HashSet<RealId>,
    /// Virtual services.
    pub services: HashSet<ServiceId>,
}

impl Plan {
    /// Compiles a blueprint. `before` is the plan it will replace; `retired` names tombstones of
    /// that plan whose ids may be used again.
    pub fn compile(
        blueprint: &Blueprint,
        before: Option<&Self>,
        retired: &Retired,
    ) -> Result<Self, CompileError> {
        let mut plan = before.map_or_else(Self::default, Self::all_tombstones);
        plan.epoch = before.map_or(1, |before| before.epoch + 1);
        plan.timeout_ms = timeouts_ms(&blueprint.timeouts);
        plan.no_session = blueprint.no_session;
        plan.accept_mid_stream = blueprint.accept_mid_stream;
        let mut ids = Ids::of(&plan, retired);
        for pool in &blueprint.pools {
            let locals = pool.addresses.iter().map(|a| ids.local(&mut plan.locals, *a));
            plan.pools.push(Pool {
                name: pool.name.clone(),
                locals: locals.collect::<Result<_, _>>()?,
                first_port: *pool.ports.start(),
                ports: u32::from(*pool.ports.end()).saturating_sub((*pool.ports.start()).into())
                    + 1,
            });
        }
        for (position, service) in blueprint.services.iter().enumerate() {
            plan.add_service(service, position, &mut ids)?;
        }
        if let Some(before) = before {
            plan.keep_former_locals(before);
        }
        plan.v4 = side::<Ipv4>(&plan)?;
        Ok(plan)
    }

    /// This plan's ids, with nothing configured.
    fn all_tombstones(&self) -> Self {
        let mut plan = self.clone();
        for service in &mut plan.services {
            service.live = false;
            service.reals.clear();
            service.eligible.clear();
        }
        for real in &mut plan.reals {
            real.live = false;
            real.weight = 0;
        }
        plan.pools.clear();
        plan
    }

    /// Sessions may still use local addresses that the configuration no longer has.
    fn keep_former_locals(&mut self, before: &Self) {
        let present: HashSet<LocalId> =
            self.pools.iter().flat_map(|pool| pool.locals.iter().copied()).collect();
        for pool in &before.pools {
            let gone = pool.locals.iter().copied().filter(|local| !present.contains(local));
            let locals: Vec<_> = gone.collect();
            if !locals.is_empty() {
                self.pools.push(Pool { locals, ..pool.clone() });
            }
        }
    }

    fn add_service(
        &mut self,
        from: &VirtualService,
        position: usize,
        ids: &mut Ids,
    ) -> Result<(), CompileError> {
        let pool = self.pools.iter().position(|pool| pool.name == from.pool).ok_or_else(|| {
            CompileError::NoSuchPool { service: from.name.clone(), pool: from.pool.clone() }
        })?;
        let id = ids.service(&mut self.services, from)?;
        if self.services[usize::from(id.0)].live {
            return Err(CompileError::DuplicateService { service: from.name.clone() });
        }
        let mut service = Service {
            name: from.name.clone(),
            protocol: from.protocol,
            vip: from.vip,
            ports: from.ports,
            position,
            mode: from.mode,
            scheduler: from.scheduler,
            reals: Vec::with_capacity(from.reals.len()),
            eligible: Vec::new(),
            pool,
            live: true,
        };
        for real in &from.reals {
            let real = Real {
                service: id,
                address: real.address,
                port: real.port,
                weight: real.weight,
                live: true,
            };
            let weight = real.weight;
            let real = ids.real(&mut self.reals, real)?;
            service.reals.push(real);
            if weight > 0 {
                service.eligible.push(real);
            }
        }
        self.services[usize::from(id.0)] = service;
        Ok(())
    }
}

/// Which ids are taken by what.
struct Ids {
    services: HashMap<(u8, IpAddr, Ports), ServiceId>,
    reals: HashMap<(ServiceId, IpAddr, u16), RealId>,
    locals: HashMap<IpAddr, LocalId>,
    free_services: Vec<ServiceId>,
    free_reals: Vec<RealId>,
}

impl Ids {
    fn of(plan: &Plan, retired: &Retired) -> Self {
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
                ids.services.insert((service.protocol.number(), service.vip, service.ports), id);
            }
        }
        for (id, real) in plan.reals.iter().enumerate() {
            let id = RealId(id as u32);
            if !retired.reals.contains(&id) && !retired.services.contains(&real.service) {
                ids.reals.insert((real.service, real.address, real.port), id);
            }
        }
        for (id, local) in plan.locals.iter().enumerate() {
            ids.locals.insert(*local, LocalId(id as u16));
        }
        ids
    }

    fn service(
        &mut self,
        all: &mut Vec<Service>,
        from: &VirtualService,
    ) -> Result<ServiceId, CompileError> {
        let key = (from.protocol.number(), from.vip, from.ports);
        if let Some(id) = self.services.get(&key) {
            return Ok(*id);
        }
        let id = match self.free_services.pop() {
            Some(id) => id,
            None if all.len() == MAX_SERVICES => {
                return Err(CompileError::TooMany { what: "services", limit: MAX_SERVICES });
            }
            None => {
                all.push(Service {
                    name: String::new(),
                    protocol: from.protocol,
                    vip: from.vip,
                    ports: from.ports,
                    position: 0,
                    mode: from.mode,
                    scheduler: from.scheduler,
                    reals: Vec::new(),
                    eligible: Vec::new(),
                    pool: 0,
                    live: false,
                });
                ServiceId((all.len() - 1) as u16)
            }
        };
        self.services.insert(key, id);
        Ok(id)
    }

    fn real(&mut self, all: &mut Vec<Real>, real: Real) -> Result<RealId, CompileError> {
        let key = (real.service, real.address, real.port);
        let known = self.reals.get(&key).copied().or_else(|| self.free_reals.pop());
        let id = match known {
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

    fn local(&mut self, all: &mut Vec<IpAddr>, address: IpAddr) -> Result<LocalId, CompileError> {
        if let Some(id) = self.locals.get(&address) {
            return Ok(*id);
        }
        if all.len() == MAX_LOCALS {
            return Err(CompileError::TooMany { what: "local addresses", limit: MAX_LOCALS });
        }
        all.push(address);
        let id = LocalId((all.len() - 1) as u16);
        self.locals.insert(address, id);
        Ok(id)
    }
}

/// The addresses of one family.
fn side<F: Family>(plan: &Plan) -> Result<Side<F::Addr>, CompileError> {
    let mut side = Side {
        vips: plan.services.iter().map(|s| F::from_ip(s.vip)).collect(),
        reals: plan.reals.iter().map(|r| F::from_ip(r.address).map(|a| (a, r.port))).collect(),
        locals: plan.locals.iter().map(|l| F::from_ip(*l)).collect(),
        service_of: FxHashMap::default(),
        vip_set: FxHashMap::default(),
        pool_of: FxHashMap::default(),
    };
    for (id, service) in plan.live_services() {
        if let Some(vip) = F::from_ip(service.vip) {
            side.service_of.insert((service.protocol.number(), vip, service.ports.first), id);
            side.vip_set.insert(vip, ());
        }
    }
    for (number, pool) in plan.pools.iter().enumerate() {
        for local in &pool.locals {
            let Some(address) = side.local(*local) else { continue };
            if side.pool_of.insert(address, number as u32).is_some() {
                return Err(CompileError::DuplicateLocal { address: F::to_ip(address) });
            }
        }
    }
    Ok(side)
}

fn timeouts_ms(timeouts: &Timeouts) -> [u32; State::COUNT] {
    let mut ms = [0; State::COUNT];
    for (state, seconds) in [
        (State::SynRecv, timeouts.tcp_syn_recv_s),
        (State::Established, timeouts.tcp_established_s),
        (State::FinWait, timeouts.tcp_fin_wait_s),
        (State::CloseWait, timeouts.tcp_close_wait_s),
        (State::LastAck, timeouts.tcp_last_ack_s),
        (State::TimeWait, timeouts.tcp_time_wait_s),
        (State::Close, timeouts.tcp_close_s),
        (State::Udp, timeouts.udp_s),
    ] {
        ms[state as usize] = seconds.saturating_mul(1000);
    }
    ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::{LocalPool, Protocol, RealServer};
    use proptest::prelude::*;

    fn service(name: &str, port: u16, reals: &[u8]) -> VirtualService {
        VirtualService {
            name: name.into(),
            protocol: Protocol::Tcp,
            vip: "198.51.100.200".parse().unwrap(),
            ports: Ports::one(port),
            pool: "lan".into(),
            reals: reals
                .iter()
                .map(|r| RealServer {
                    address: [192, 0, 2, *r].into(),
                    port: 80,
                    ..RealServer::default()
                })
                .collect(),
            ..VirtualService::default()
        }
    }

    fn blueprint(services: Vec<VirtualService>) -> Blueprint {
        let addresses = vec!["192.0.2.10".parse().unwrap()];
        let pool = LocalPool { name: "lan".into(), addresses, ports: 1024..=65535 };
        Blueprint { services, pools: vec![pool], ..Blueprint::default() }
    }

    fn id_of(plan: &Plan, real: u8) -> usize {
        let address = IpAddr::from([192, 0, 2, real]);
        plan.reals.iter().position(|r| r.live && r.address == address).unwrap()
    }

    #[test]
    fn ids_outlive_a_change() {
        let none = Retired::default();
        let first = Plan::compile(&blueprint(vec![service("a", 80, &[11, 12])]), None, &none);
        let first = first.unwrap();
        let second = blueprint(vec![service("b", 81, &[20]), service("a", 80, &[12, 13])]);
        let second = Plan::compile(&second, Some(&first), &none).unwrap();
        assert_eq!(id_of(&first, 12), id_of(&second, 12));
        assert!(!second.reals[id_of(&first, 11)].live, "a removed real server is a tombstone");
        assert_eq!(second.v4.real(RealId(id_of(&first, 11) as u32)).unwrap().1, 80);
        assert_eq!(second.epoch, 2);
        let third = Plan::compile(&blueprint(vec![service("a", 80, &[11])]), Some(&second), &none);
        assert_eq!(id_of(&third.unwrap(), 11), id_of(&first, 11), "it comes back as itself");
    }

    /// A session's local address still leads to it after it left the configuration.
    #[test]
    fn former_local_addresses_are_kept() {
        let none = Retired::default();
        let first = Plan::compile(&blueprint(vec![service("a", 80, &[11])]), None, &none).unwrap();
        let mut changed = blueprint(vec![service("a", 80, &[11])]);
        changed.pools[0].addresses = vec!["192.0.2.20".parse().unwrap()];
        let second = Plan::compile(&changed, Some(&first), &none).unwrap();
        let third = Plan::compile(&changed, Some(&second), &none).unwrap();
        for plan in [&second, &third] {
            assert_eq!(plan.pools.len(), 2);
            assert_eq!(plan.pools[plan.services[0].pool].locals, [LocalId(1)]);
            assert_eq!(plan.pool_of(&plan.v4, 0xc000_020a).unwrap().locals, [LocalId(0)]);
        }
        changed.pools[0].addresses = vec!["192.0.2.10".parse().unwrap()];
        let fourth = Plan::compile(&changed, Some(&third), &none).unwrap();
        assert_eq!(fourth.pools[0].locals, [LocalId(0)], "it comes back as itself");
    }

    #[test]
    fn retired_ids_are_used_again() {
        let none = Retired::default();
        let first = Plan::compile(&blueprint(vec![service("a", 80, &[11])]), None, &none).unwrap();
        let second = Plan::compile(&blueprint(vec![]), Some(&first), &none).unwrap();
        let retired = Retired { reals: [RealId(0)].into(), services: [ServiceId(0)].into() };
        let third = blueprint(vec![service("b", 90, &[12])]);
        let third = Plan::compile(&third, Some(&second), &retired).unwrap();
        assert_eq!((third.services.len(), third.reals.len()), (1, 1));
        assert_eq!(third.services[0].name, "b");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let none = Retired::default();
        let twice = blueprint(vec![service("a", 80, &[]), service("b", 80, &[])]);
        let error = Plan::compile(&twice, None, &none).unwrap_err();
        assert_eq!(error, CompileError::DuplicateService { service: "b".into() });
        let mut poolless = blueprint(vec![service("a", 80, &[])]);
        poolless.pools.clear();
        let error = Plan::compile(&poolless, None, &none).unwrap_err().to_string();
        assert_eq!(error, "service \"a\": there is no pool \"lan\"");
    }

    proptest! {
        /// Every port of a pool belongs to one worker, and `owner` agrees with `share`.
        #[test]
        fn ports_are_shared_out(first in 1u16..60_000, ports in 1u32..5000, workers in 1u16..65) {
            let pool = Pool { first_port: first, ports, ..Pool::default() };
            let mut next = 0;
            for worker in 0..workers {
                let (start, count) = pool.share(worker, workers);
                prop_assert_eq!(start, next);
                next = start + count;
                for offset in [start, (start + count).saturating_sub(1)] {
                    if count > 0 {
                        let port = first + offset as u16;
                        prop_assert_eq!(pool.owner(port, workers), Some(worker));
                    }
                }
            }
            prop_assert_eq!(next, ports);
            prop_assert_eq!(pool.owner(first - 1, workers), None);
        }
    }
}
