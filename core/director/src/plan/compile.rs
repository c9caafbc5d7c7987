//! From a spec to a plan, keeping the ids of the plan before.

use super::clients::Clients;
use super::hairpins;
use super::ids::{Ids, Retired};
use super::{Forwarding, HealthState, Owner, Plan, Pool, Real, Service, ServiceId, Snat};
use super::{networks, tables};
use crate::fib::PortId;
use crate::schedule::mh::{Recipe, Table};
use crate::spec::{
    Hashes, Mode, NetworkId, Orphans, Protocol, RealServer, SnatRule, Spec, VirtualService,
};
use std::net::IpAddr;
use std::sync::Arc;

/// What a plan cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// Something names a network that is not there.
    NoSuchNetwork {
        /// What names it.
        of: String,
        /// The network.
        network: String,
    },
    /// A service names a pool that is not there, or not in its network.
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
            Self::NoSuchNetwork { of, network } => {
                write!(f, "{of:?}: there is no network {network:?}")
            }
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

impl Plan {
    /// Compiles a spec. `before` is the plan it will replace; `retired` names tombstones of
    /// that plan whose ids may be used again.
    pub fn compile(
        spec: &Spec,
        before: Option<&Self>,
        retired: &Retired,
    ) -> Result<Self, CompileError> {
        let mut plan = before.map_or_else(Self::default, |plan| plan.all_tombstones(retired));
        plan.epoch = before.map_or(1, |before| before.epoch + 1);
        plan.revision = 0;
        plan.turned.clear();
        plan.no_session = spec.no_session;
        plan.gives_way = spec.gives_way;
        plan.refused = spec.refused;
        plan.accept_mid_stream = spec.accept_mid_stream;
        plan.tunnel = spec.tunnel;
        plan.icmp_errors_per_s = spec.icmp_errors_per_s;
        plan.hash_seed = spec.hash_seed;
        plan.probes_from = spec.probes_from;
        plan.add_networks(spec);
        let numbered = plan.networks.clone();
        let network_of = |of: &str, network: &str| {
            let no_such = || CompileError::NoSuchNetwork { of: of.into(), network: network.into() };
            let known = network.is_empty() || spec.networks.iter().any(|name| name == network);
            networks::number(&numbered, network).filter(|_| known).ok_or_else(no_such)
        };
        let extended = tables::extended(spec, &plan, retired);
        let mut ids = Ids::of(&plan, retired);
        for pool in &spec.pools {
            let network = network_of(&pool.name, &pool.network)?;
            plan.add_pool((pool, network), &mut ids)?;
        }
        for (position, service) in spec.services.iter().enumerate() {
            let network = network_of(&service.name, &service.network)?;
            let what = (service, network, extended[position]);
            plan.add_service(what, position, &mut ids, before)?;
        }
        for (position, rule) in spec.snat.iter().enumerate() {
            let network = network_of(&rule.name, &rule.network)?;
            plan.add_snat((rule, network), position, &mut ids)?;
        }
        plan.snat_former = plan.former_rules();
        plan.settle_timeouts(&spec.timeouts);
        plan.settle_health();
        plan.settle_orphans();
        if let Some(before) = before {
            plan.keep_former_locals(before);
        }
        plan.share_pools(before);
        plan.settle_hairpins();
        plan.note_narrow_locals();
        plan.settle_tables();
        Ok(plan)
    }

    /// This plan's ids, with nothing configured.
    fn all_tombstones(&self, retired: &Retired) -> Self {
        let mut plan = self.clone();
        for service in &mut plan.services {
            if !service.live {
                service.born = 0;
            }
            service.live = false;
            service.reals.clear();
            service.probes.clear();
        }
        for id in &retired.services {
            let Some(service) = plan.services.get_mut(usize::from(id.0)) else { continue };
            // Nobody has to look for its sessions any more.
            service.owner = None;
            service.former_owners.clear();
            service.sessions_since = 0;
        }
        for real in &mut plan.reals {
            real.live = false;
            real.weight = 0;
        }
        plan.pools.clear();
        plan.snat_order.clear();
        plan
    }

    /// Whether sessions of a service take ports of IPv4 addresses: a local address is of the
    /// family of those that it speaks to.
    pub(super) fn takes_v4_ports(&self, service: &Service) -> bool {
        let outside = service.snat.as_ref();
        let mut reals = service.reals.iter().filter_map(|real| self.real(*real));
        outside.is_some_and(|snat| snat.sources.iter().any(|net| net.address.is_ipv4()))
            || reals.any(|real| real.forwarding.translates_both() && real.address.is_ipv4())
    }

    /// Which local addresses the IPv4 table's sessions may have: those of its services' pools, and
    /// those that were, since a session keeps its own whatever becomes of the pool.
    fn note_narrow_locals(&mut self) {
        self.narrow_locals.resize(self.locals.len(), false);
        let narrow = self.services.iter().filter(|service| service.live && !service.extended);
        for pool in narrow.filter_map(|service| self.pools.get(service.pool?)) {
            for local in pool.all_locals() {
                self.narrow_locals[usize::from(local.0)] = true;
            }
        }
    }

    fn pool_named(
        &self,
        (network, service): (NetworkId, &str),
        pool: &str,
    ) -> Result<Option<usize>, CompileError> {
        if pool.is_empty() {
            return Ok(None);
        }
        let is = |known: &Pool| known.name == pool && known.network == network;
        let found = self.pools.iter().position(is);
        found.map(Some).ok_or_else(|| CompileError::NoSuchPool {
            service: service.to_owned(),
            pool: pool.to_owned(),
        })
    }

    fn add_service(
        &mut self,
        (from, network, extended): (&VirtualService, NetworkId, bool),
        position: usize,
        ids: &mut Ids,
        before: Option<&Self>,
    ) -> Result<(), CompileError> {
        let mode_of = |real: &RealServer| real.mode.unwrap_or(from.mode);
        let answers_client = |mode| Forwarding::of(mode).answers_client();
        let nat = answers_client(from.mode)
            || from.reals.iter().any(|real| answers_client(mode_of(real)));
        let pool = self.pool_named((network, &from.name), &from.pool)?;
        let service = Service {
            name: from.name.clone(),
            network,
            protocol: from.protocol,
            vip: from.vip,
            ports: from.ports,
            position,
            mode: from.mode,
            forwarding: Forwarding::of(from.mode),
            scheduler: from.scheduler,
            hash: from.hash,
            table: None,
            reals: Vec::with_capacity(from.reals.len()),
            probes: Vec::new(),
            pool,
            one_packet: from.one_packet,
            persistence: from.persistence,
            on_removed: from.on_removed,
            on_down: from.on_down,
            all_down: from.all_down,
            max_sessions: from.max_sessions,
            max_new_per_s: from.max_new_per_s,
            slow_start_s: from.slow_start_s,
            client_address: from.client_address,
            idle_ms: from.idle_timeout_s.saturating_mul(1000),
            clients: Clients::of(&from.deny, &from.allow).map(Arc::new),
            snat: None,
            owner: match from.persistence {
                Some(persistence) => Some(Owner::Network(persistence.prefix)),
                None => nat.then_some(Owner::Endpoint),
            },
            former_owners: Vec::new(),
            born: self.epoch,
            sessions_since: self.epoch,
            extended,
            live: true,
        };
        let id = ids.service(&mut self.services, service)?;
        for (position, real) in from.reals.iter().enumerate() {
            let how = (mode_of(real), real.tunnel.or(from.tunnel));
            let real = Real::of(real, (id, position), how);
            let real = ids.real(&mut self.reals, real)?;
            self.services[usize::from(id.0)].reals.push(real);
        }
        if from.probed {
            self.add_probes(id, ids)?;
        }
        let table = self.table(id, from.mh_table, before);
        self.services[usize::from(id.0)].table = table;
        Ok(())
    }

    /// The hash table of a service that schedules by one: that of the plan before, as long as
    /// nothing that it is made of has changed.
    pub(super) fn table(
        &self,
        id: ServiceId,
        size: u32,
        before: Option<&Self>,
    ) -> Option<Arc<Table>> {
        let service = self.service(id)?;
        if service.scheduler.hashes() == Hashes::Nothing {
            return None;
        }
        let reals = service.reals.iter().filter_map(|real| self.real(*real));
        // Whom checks found down keeps its places: its clients go elsewhere as those of one that is
        // full, and come back to it. A fallback has none: it takes what nobody else does.
        let idle = |real: &Real| real.down || real.fallback;
        let reals = reals.map(|r| (r.address, r.port, if idle(r) { 0 } else { r.weight.into() }));
        let known = before.and_then(|plan| plan.service(id)).and_then(|s| s.table.as_ref());
        let wanted = Recipe::new(service.scheduler, reals, size, self.hash_seed);
        match known {
            Some(table) if table.is_of(&wanted) => Some(Arc::clone(table)),
            _ => Some(Arc::new(Table::build(wanted))),
        }
    }

    /// A rule of source NAT is a service with one real server, which stands for the outside.
    fn add_snat(
        &mut self,
        (from, network): (&SnatRule, NetworkId),
        position: usize,
        ids: &mut Ids,
    ) -> Result<(), CompileError> {
        let nowhere = IpAddr::from([0, 0, 0, 0]);
        let service = Service {
            name: from.name.clone(),
            network,
            protocol: Protocol::Any,
            vip: nowhere,
            position,
            mode: Mode::Snat,
            forwarding: Forwarding::of(Mode::Snat),
            pool: self.pool_named((network, &from.name), &from.pool)?,
            snat: Some(Snat {
                sources: from.sources.clone(),
                destinations: from.destinations.clone(),
                protocols: from.protocols.clone(),
                egress: from.egress.map(PortId),
                mapping: from.mapping,
                hairpinning: hairpins::of(from),
                established_ms: from.tcp_established_s.saturating_mul(1000),
            }),
            owner: Some(Owner::Endpoint),
            extended: true,
            live: true,
            ..Service::default()
        };
        let id = ids.service(&mut self.services, service)?;
        let outside = Real {
            service: id,
            position: 0,
            address: nowhere,
            port: 0,
            weight: 1,
            mode: Mode::Snat,
            forwarding: Forwarding::of(Mode::Snat),
            encap: None,
            upper_sessions: 0,
            lower_sessions: 0,
            down: false,
            fallback: false,
            is_probe: false,
            found_down: false,
            was_up: true,
            health_state: HealthState::Serves,
            orphans: Orphans::Keep,
            live: true,
        };
        let outside = ids.real(&mut self.reals, outside)?;
        self.services[usize::from(id.0)].reals.push(outside);
        self.snat_order.push(id);
        Ok(())
    }

    /// Rules of source NAT that are gone, and may have sessions.
    fn former_rules(&self) -> Vec<ServiceId> {
        let gone = self.services.iter().enumerate();
        let gone = gone.filter(|(_, s)| !s.live && s.snat.is_some() && s.owner.is_some());
        gone.map(|(id, _)| ServiceId(id as u16)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LocalId, RealId};
    use crate::spec::{LocalPool, Ports};

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

    fn spec(services: Vec<VirtualService>) -> Spec {
        let addresses = vec!["192.0.2.10".parse().unwrap()];
        let pool = LocalPool {
            network: String::new(),
            name: "lan".into(),
            addresses,
            ports: 1024..=65535,
            peer_addresses: Vec::new(),
        };
        Spec { services, pools: vec![pool], ..Spec::default() }
    }

    fn id_of(plan: &Plan, real: u8) -> usize {
        let address = IpAddr::from([192, 0, 2, real]);
        plan.reals.iter().position(|r| r.live && r.address == address).unwrap()
    }

    #[test]
    fn ids_outlive_a_change() {
        let none = Retired::default();
        let first = Plan::compile(&spec(vec![service("a", 80, &[11, 12])]), None, &none);
        let first = first.unwrap();
        let second = spec(vec![service("b", 81, &[20]), service("a", 80, &[12, 13])]);
        let second = Plan::compile(&second, Some(&first), &none).unwrap();
        assert_eq!(id_of(&first, 12), id_of(&second, 12));
        assert!(!second.reals[id_of(&first, 11)].live, "a removed real server is a tombstone");
        assert_eq!(second.v4.real(RealId(id_of(&first, 11) as u32)).unwrap().port_for(1), 80);
        assert_eq!(second.epoch, 2);
        let third = Plan::compile(&spec(vec![service("a", 80, &[11])]), Some(&second), &none);
        assert_eq!(id_of(&third.unwrap(), 11), id_of(&first, 11), "it comes back as itself");
    }

    /// A session's local address still leads to it after it left the configuration.
    #[test]
    fn former_local_addresses_are_kept() {
        let none = Retired::default();
        let first = Plan::compile(&spec(vec![service("a", 80, &[11])]), None, &none).unwrap();
        let mut changed = spec(vec![service("a", 80, &[11])]);
        changed.pools[0].addresses = vec!["192.0.2.20".parse().unwrap()];
        let second = Plan::compile(&changed, Some(&first), &none).unwrap();
        let third = Plan::compile(&changed, Some(&second), &none).unwrap();
        for plan in [&second, &third] {
            assert_eq!(plan.pools.len(), 2);
            assert_eq!(plan.pools[plan.services[0].pool.unwrap()].locals[0], [LocalId(1)]);
            assert_eq!(plan.pool_of(&plan.v4, 0xc000_020a).unwrap().locals[0], [LocalId(0)]);
        }
        changed.pools[0].addresses = vec!["192.0.2.10".parse().unwrap()];
        let fourth = Plan::compile(&changed, Some(&third), &none).unwrap();
        assert_eq!(fourth.pools[0].locals[0], [LocalId(0)], "it comes back as itself");
    }

    #[test]
    fn retired_ids_are_used_again() {
        let none = Retired::default();
        let first = Plan::compile(&spec(vec![service("a", 80, &[11])]), None, &none).unwrap();
        let second = Plan::compile(&spec(vec![]), Some(&first), &none).unwrap();
        let retired = Retired { reals: [RealId(0)].into(), services: [ServiceId(0)].into() };
        let third = spec(vec![service("b", 90, &[12])]);
        let third = Plan::compile(&third, Some(&second), &retired).unwrap();
        assert_eq!((third.services.len(), third.reals.len()), (1, 1));
        assert_eq!(third.services[0].name, "b");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let none = Retired::default();
        let twice = spec(vec![service("a", 80, &[]), service("b", 80, &[])]);
        let error = Plan::compile(&twice, None, &none).unwrap_err();
        assert_eq!(error, CompileError::DuplicateService { service: "b".into() });
        let mut poolless = spec(vec![service("a", 80, &[])]);
        poolless.pools.clear();
        let error = Plan::compile(&poolless, None, &none).unwrap_err().to_string();
        assert_eq!(error, "service \"a\": there is no pool \"lan\"");
    }
}
