//! Isolated networks: the part of a plan that is one network's.
//!
//! One plan has the services, real servers and local addresses of all networks, so that an id
//! means the same to everybody who counts, lists or checks. Each network's packets are run against
//! [`Plan::of_network`], where nothing else's can be found: neither an address nor a port of
//! another network is in any of its tables, and the other networks' ids stand for nothing. So the
//! same addresses may be in use in several networks, and a session needs no field for its network:
//! each network has a table of its own.

use super::{AddressFilter, Forwarding, HealthState, Plan, Real, Service, ServiceId, side::side};
use crate::family::{Ipv4, Ipv6};
use crate::spec::{ClientAddress, Mode, NetworkId, Orphans, Spec};
use std::net::{IpAddr, Ipv4Addr};

/// The number of a network among these; the default one's for no name.
pub(super) fn number(networks: &[String], name: &str) -> Option<NetworkId> {
    if name.is_empty() {
        return Some(NetworkId::DEFAULT);
    }
    let place = networks.iter().position(|known| known == name)?;
    u16::try_from(place + 1).ok().map(NetworkId)
}

impl Plan {
    /// Gives networks numbers. One that was there keeps its own, and one that is gone leaves it to
    /// nobody: workers and ports know networks by their numbers, and learn of others when the
    /// director is started again. Outer source addresses of tunnels may change at any time.
    pub(super) fn add_networks(&mut self, spec: &Spec) {
        for name in &spec.networks {
            if !self.networks.contains(name) {
                self.networks.push(name.clone());
            }
        }
        self.network_tunnels = self.by_network(spec, &spec.network_tunnels);
        self.network_probes = self.by_network(spec, &spec.network_probes);
    }

    /// What a configuration says of its networks, in the order of their numbers.
    fn by_network<T: Copy + Default>(&self, spec: &Spec, said: &[T]) -> Vec<T> {
        let of = |name: &String| {
            let place = spec.networks.iter().position(|known| known == name);
            place.and_then(|place| said.get(place)).copied().unwrap_or_default()
        };
        self.networks.iter().map(of).collect()
    }

    /// How many networks there are, with the default one.
    pub const fn network_count(&self) -> u16 {
        self.networks.len() as u16 + 1
    }

    /// A network's name; `None` for the default one, and for one that is not there.
    pub fn network_name(&self, network: NetworkId) -> Option<&str> {
        let place = usize::from(network.0).checked_sub(1)?;
        self.networks.get(place).map(String::as_str)
    }

    /// This plan for the packets of one network. Ids, epoch and revision are the same.
    #[must_use]
    pub fn of_network(&self, network: NetworkId) -> Self {
        let mut plan = self.clone();
        plan.network = network;
        if self.networks.is_empty() {
            return plan;
        }
        let is_ours = |id: ServiceId| self.is_of(id, network);
        for service in plan.services.iter_mut().filter(|service| service.network != network) {
            *service = Service { network: service.network, ..Service::default() };
        }
        for real in plan.reals.iter_mut().filter(|real| !is_ours(real.service)) {
            *real = nobody(real);
        }
        for pool in plan.pools.iter_mut().filter(|pool| pool.network != network) {
            (pool.locals, pool.peers) = Default::default();
        }
        plan.snat_order.retain(|id| is_ours(*id));
        plan.snat_former.retain(|id| is_ours(*id));
        plan.turned.retain(|id| is_ours(*id));
        if network != NetworkId::DEFAULT {
            let at = usize::from(network.0 - 1);
            plan.probes_from = self.network_probes.get(at).copied().unwrap_or_default();
            plan.tunnel = self.network_tunnels.get(at).copied().unwrap_or_default();
        }
        plan.settle_tables();
        plan
    }

    fn is_of(&self, id: ServiceId, network: NetworkId) -> bool {
        self.service(id).is_some_and(|service| service.network == network)
    }

    /// Makes what packets are looked up in, of all else that the plan says.
    pub(super) fn settle_tables(&mut self) {
        let hidden = ClientAddress::Hidden;
        self.tells_client = self.services.iter().any(|s| s.client_address != hidden);
        let is_extended = |id: ServiceId| self.services[usize::from(id.0)].extended;
        let wide = self.services.iter().any(|s| s.extended && s.vip.is_ipv4())
            || self.reals.iter().any(|r| r.address.is_ipv4() && is_extended(r.service));
        let v4 = side::<Ipv4>(self, |id| !is_extended(id));
        let extended = side::<Ipv6>(self, is_extended);
        (self.wide_v4, self.v4, self.extended) = (wide, v4, extended);
        self.address_filter = AddressFilter::of(self, &self.v4);
    }
}

/// What stands at the id of a real server of another network: no session names it, and no packet
/// comes from it.
fn nobody(real: &Real) -> Real {
    Real {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        port: 0,
        weight: 0,
        mode: Mode::Dr,
        forwarding: Forwarding::of(Mode::Dr),
        encap: None,
        upper_sessions: 0,
        lower_sessions: 0,
        down: true,
        found_down: false,
        was_up: false,
        health_state: HealthState::Down,
        orphans: Orphans::Keep,
        live: false,
        ..real.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LocalId, Retired};
    use crate::spec::{
        LocalPool, Network, Ports, RealServer, SnatRule, Spec, TunnelSources, VirtualService,
    };

    const BLUE: NetworkId = NetworkId(1);
    const RED: NetworkId = NetworkId(2);

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// The same service, pool and rule in each of these networks.
    fn spec(networks: &[&str]) -> Spec {
        let service = |network: &&str| VirtualService {
            name: format!("web-{network}"),
            network: (*network).to_owned(),
            vip: ip(1),
            ports: Ports::one(80),
            pool: format!("lan-{network}"),
            reals: vec![RealServer { address: ip(11), ..RealServer::default() }],
            ..VirtualService::default()
        };
        let pool = |network: &&str| LocalPool {
            name: format!("lan-{network}"),
            network: (*network).to_owned(),
            addresses: vec![ip(10)],
            peer_addresses: Vec::new(),
            ports: 1024..=65535,
        };
        let rule = |network: &&str| SnatRule {
            name: format!("out-{network}"),
            network: (*network).to_owned(),
            pool: format!("lan-{network}"),
            ..SnatRule::default()
        };
        Spec {
            networks: vec!["blue".to_owned(), "red".to_owned()],
            services: networks.iter().map(service).collect(),
            pools: networks.iter().map(pool).collect(),
            snat: networks.iter().map(rule).collect(),
            ..Spec::default()
        }
    }

    fn compile(spec: &Spec, before: Option<&Plan>) -> Plan {
        Plan::compile(spec, before, &Retired::default()).expect("a plan")
    }

    fn vip() -> u32 {
        u32::from_be_bytes([192, 0, 2, 1])
    }

    #[test]
    fn each_network_finds_its_own_of_the_same_addresses() {
        let plan = compile(&spec(&["", "blue", "red"]), None);
        assert_eq!(plan.locals, [ip(10); 3], "a local address of each network has its own id");
        let mut pools = Vec::new();
        for (at, network) in [NetworkId::DEFAULT, BLUE, RED].into_iter().enumerate() {
            let own = plan.of_network(network);
            let found = own.v4.service_at(6, vip(), 80);
            assert_eq!(found, Some(ServiceId(at as u16)));
            let pool = own.pool_of(&own.v4, u32::from_be_bytes([192, 0, 2, 10])).unwrap();
            pools.push(pool.locals[0].clone());
            assert_eq!(own.snat_rules().count(), 1);
            assert_eq!(own.live_services().count(), 1);
        }
        assert_eq!(pools, [[LocalId(0)], [LocalId(1)], [LocalId(2)]]);
    }

    #[test]
    fn what_is_in_one_network_only_is_nowhere_else() {
        let plan = compile(&spec(&["blue"]), None);
        let blue = plan.of_network(BLUE);
        assert!(blue.v4.service_at(6, vip(), 80).is_some() && blue.v4.owns(vip()));
        for network in [NetworkId::DEFAULT, RED] {
            let other = plan.of_network(network);
            assert_eq!(other.v4.service_at(6, vip(), 80), None);
            for address in [1, 10, 11] {
                let address = u32::from_be_bytes([192, 0, 2, address]);
                assert!(!other.v4.owns(address) && !other.v4.has_nat_real(address));
                assert!(!other.extended.owns(u128::from(address) | 0xffff << 32));
            }
            assert!(!other.is_inside(ip(11)) && other.snat_order.is_empty());
            assert!(!other.uses_extended(), "it takes no memory");
        }
    }

    /// A real server that leaves one network and one like it in another are two.
    #[test]
    fn ids_are_not_shared_between_networks() {
        let first = compile(&spec(&["blue"]), None);
        let second = compile(&spec(&["red"]), Some(&first));
        let red = second.of_network(RED).v4.service_at(6, vip(), 80).unwrap();
        assert_ne!(Some(red), first.of_network(BLUE).v4.service_at(6, vip(), 80));
        assert_ne!(second.services[usize::from(red.0)].reals, first.services[0].reals);
        let blue = second.of_network(BLUE);
        assert!(blue.pools.iter().any(|pool| pool.locals[0] == [LocalId(0)]), "sessions go on");
        assert_eq!(blue.v4.service_at(6, vip(), 80), None);
    }

    /// Workers go by numbers: a reload that takes a network out, or puts one before it, must not
    /// give its ports to another.
    #[test]
    fn a_network_keeps_its_number() {
        let first = compile(&spec(&["blue", "red"]), None);
        let mut other = spec(&["red"]);
        other.networks = vec!["green".to_owned(), "red".to_owned()];
        let second = compile(&other, Some(&first));
        assert_eq!(second.networks, ["blue", "red", "green"]);
        assert_eq!(second.of_network(BLUE).live_services().count(), 0);
        assert!(second.of_network(RED).v4.service_at(6, vip(), 80).is_some());
        let back = compile(&spec(&["blue"]), Some(&second));
        assert!(back.of_network(BLUE).v4.service_at(6, vip(), 80).is_some());
        other.services[0].network = "blue".to_owned();
        let gone = Plan::compile(&other, Some(&first), &Retired::default());
        assert!(gone.is_err(), "its number is known, but it is not there");
    }

    #[test]
    fn tunnels_have_the_source_of_their_network() {
        let source = |last| TunnelSources {
            v4: Some(Network { address: ip(last), prefix: 32 }),
            ..TunnelSources::default()
        };
        let mut spec = spec(&["", "blue", "red"]);
        spec.tunnel = source(1);
        spec.network_tunnels = vec![source(2)];
        let first = compile(&spec, None);
        assert_eq!(first.of_network(NetworkId::DEFAULT).tunnel, source(1));
        assert_eq!(first.of_network(BLUE).tunnel, source(2));
        assert_eq!(first.of_network(RED).tunnel, TunnelSources::default(), "not the default's");
        // They go by name when networks come and go.
        spec.networks = vec!["red".to_owned(), "blue".to_owned()];
        spec.network_tunnels = vec![source(3), TunnelSources::default()];
        let second = compile(&spec, Some(&first));
        assert_eq!(second.of_network(RED).tunnel, source(3));
        assert_eq!(second.of_network(BLUE).tunnel, TunnelSources::default());
    }

    #[test]
    fn probes_come_from_addresses_of_their_network() {
        let mut spec = spec(&["", "blue", "red"]);
        spec.probes_from = [Some(ip(200)), None];
        spec.network_probes = vec![[Some(ip(201)), None], [None, None]];
        let first = compile(&spec, None);
        let from = |plan: &Plan, network| plan.of_network(network).probes_from[0];
        assert_eq!(from(&first, NetworkId::DEFAULT), Some(ip(200)));
        assert_eq!((from(&first, BLUE), from(&first, RED)), (Some(ip(201)), None));
        spec.networks = vec!["red".to_owned(), "blue".to_owned()];
        let second = compile(&spec, Some(&first));
        assert_eq!((from(&second, BLUE), from(&second, RED)), (None, Some(ip(201))), "by name");
    }

    #[test]
    fn a_pool_of_another_network_is_none() {
        let mut spec = spec(&["", "blue"]);
        spec.services[1].pool = "lan-".to_owned();
        assert!(Plan::compile(&spec, None, &Retired::default()).is_err());
        spec.services[1].network = "green".to_owned();
        assert!(Plan::compile(&spec, None, &Retired::default()).is_err());
    }
}
