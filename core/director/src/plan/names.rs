//! What the ids in sessions stand for, so that a later plan can take sessions over by names.
//!
//! Ids mean something within one run of the director only. Session memory that outlives it is read
//! with the names that the ids had then: endpoints of services and real servers, names of rules of
//! source NAT, local addresses. Two plans may give the same thing different ids.

use super::ids::{Identity, Ids};
use super::networks::number;
use super::{LocalId, Plan, Pool, RealId, Retired, Service, ServiceId};
use crate::spec::{Mode, NetworkId, Ports};
use std::net::IpAddr;

/// What all ids of a plan stand for, each list by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Virtual services and rules of source NAT.
    pub services: Vec<ServiceName>,
    /// Real servers.
    pub reals: Vec<RealName>,
    /// Local addresses, each with its network's name.
    pub locals: Vec<(String, IpAddr)>,
}

/// What makes a virtual service, or a rule of source NAT, itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// A service.
    Service {
        /// The name of its network; empty for the default one.
        network: String,
        /// IP protocol number; 0 for every protocol.
        protocol: u8,
        /// Virtual address.
        vip: IpAddr,
        /// First and last virtual port.
        ports: (u16, u16),
        /// Whether its sessions are in the extended table.
        extended: bool,
    },
    /// A rule of source NAT, by its name.
    Rule(String),
}

/// What makes a real server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealName {
    /// The id of its service.
    pub service: ServiceId,
    /// Address.
    pub address: IpAddr,
    /// Port; 0 for the one that the client sent to.
    pub port: u16,
    /// Forwarding mode.
    pub mode: Mode,
    /// Whether it stands for another that probes go to.
    pub is_probe: bool,
}

/// What makes something itself in a plan; `None` in a network that the plan does not have.
fn identity(networks: &[String], name: &ServiceName) -> Option<Identity> {
    match name {
        ServiceName::Rule(name) => Some(Identity::Snat(name.clone())),
        ServiceName::Service { network, protocol, vip, ports: (first, last), extended } => {
            let (network, ports) =
                (number(networks, network)?, Ports { first: *first, last: *last });
            Some(Identity::Service(network, *protocol, *vip, ports, *extended))
        }
    }
}

impl Plan {
    fn name_of(&self, service: &Service) -> ServiceName {
        match Identity::of(service) {
            Identity::Snat(name) => ServiceName::Rule(name),
            Identity::Service(network, protocol, vip, Ports { first, last }, extended) => {
                let network = self.network_or_default(network);
                ServiceName::Service { network, protocol, vip, ports: (first, last), extended }
            }
        }
    }

    fn network_or_default(&self, network: NetworkId) -> String {
        self.network_name(network).unwrap_or_default().to_owned()
    }

    /// What its ids stand for.
    pub fn names(&self) -> Names {
        let locals = self.local_networks.iter().zip(&self.locals);
        let reals = self.reals.iter().map(|real| RealName {
            service: real.service,
            address: real.address,
            port: real.port,
            mode: real.mode,
            is_probe: real.is_probe,
        });
        Names {
            services: self.services.iter().map(|service| self.name_of(service)).collect(),
            reals: reals.collect(),
            locals: locals.map(|(net, local)| (self.network_or_default(*net), *local)).collect(),
        }
    }
}

impl Plan {
    /// A number for all that sessions need to go on here: services and rules of source NAT, real
    /// servers with their modes, local addresses. Plans of any order that have the same have the
    /// same number; others rarely do. It is the same on every machine and in every version.
    pub fn fingerprint(&self) -> u64 {
        // What is in the default network has no more to its name than where there is no other.
        let within = |network| match self.network_name(network) {
            Some(network) => format!("network {network} "),
            None => String::new(),
        };
        let name = |service: &Service| match self.name_of(service) {
            ServiceName::Service { protocol, vip, ports: (first, last), extended, .. } => {
                let network = within(service.network);
                format!("{network}service {protocol} {vip} {first} {last} {extended}")
            }
            ServiceName::Rule(name) => format!("rule {name}"),
        };
        let services = self.services.iter().filter(|service| service.live);
        let reals = self.reals.iter().filter(|real| real.live && !real.is_probe).map(|real| {
            let of = self.service(real.service).map(name).unwrap_or_default();
            format!("{of} real {} {} {}", real.address, real.port, real.mode.name())
        });
        let locals = self.pools.iter().flat_map(Pool::all_locals);
        let locals = locals.filter_map(|id| {
            let id = usize::from(id.0);
            Some((self.local_networks.get(id)?, self.locals.get(id)?))
        });
        let locals =
            locals.map(|(network, address)| format!("{}local {address}", within(*network)));
        // A sum does not depend on the order.
        services
            .map(name)
            .chain(reals)
            .chain(locals)
            .map(|item| fnv_1a(&item))
            .fold(0, u64::wrapping_add)
    }
}

/// FNV-1a of 64 bits.
fn fnv_1a(text: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The ids that a plan has for what has these names.
pub struct Resolver {
    ids: Ids,
    networks: Vec<String>,
}

impl Resolver {
    /// That of a plan.
    pub fn new(plan: &Plan) -> Self {
        Self { ids: Ids::of(plan, &Retired::default()), networks: plan.networks.clone() }
    }

    /// A real server (not one for probes) of a service.
    pub fn real(
        &self,
        service: &ServiceName,
        (address, port, mode): (IpAddr, u16, Mode),
    ) -> Option<RealId> {
        let service = self.ids.service_named(&identity(&self.networks, service)?)?;
        self.ids.real_named(&(service, address, port, mode, false))
    }

    /// A local address of a network.
    pub fn local(&self, network: NetworkId, address: IpAddr) -> Option<LocalId> {
        self.ids.local_named(network, address)
    }
}

/// The ids that a plan has for what an earlier one had, by the ids there.
#[derive(Clone, Debug)]
pub(crate) struct Renamed {
    reals: Vec<Option<RealId>>,
    locals: Vec<Option<LocalId>>,
}

impl Renamed {
    /// Those of a plan. What it does not have has none: neither have probes, which begin anew.
    pub fn new(former: &Names, plan: &Plan) -> Self {
        let (ids, networks) = (Ids::of(plan, &Retired::default()), &plan.networks);
        let service = |name| ids.service_named(&identity(networks, name)?);
        let services: Vec<_> = former.services.iter().map(service).collect();
        let real = |name: &RealName| {
            let service = (*services.get(usize::from(name.service.0))?)?;
            ids.real_named(&(service, name.address, name.port, name.mode, false))
                .filter(|_| !name.is_probe)
        };
        let local = |(network, address): &(String, IpAddr)| {
            ids.local_named(number(networks, network)?, *address)
        };
        Self {
            reals: former.reals.iter().map(real).collect(),
            locals: former.locals.iter().map(local).collect(),
        }
    }

    /// A real server.
    #[inline(always)]
    pub fn real(&self, former: RealId) -> Option<RealId> {
        self.reals.get(former.0 as usize).copied().flatten()
    }

    /// A local address.
    #[inline(always)]
    pub fn local(&self, former: LocalId) -> Option<LocalId> {
        self.locals.get(usize::from(former.0)).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{LocalPool, RealServer, Spec, VirtualService};

    fn spec() -> Spec {
        let real =
            |last: u8| RealServer { address: [192, 0, 2, last].into(), ..RealServer::default() };
        let service = |name: &str, port| VirtualService {
            name: name.into(),
            vip: [198, 51, 100, 200].into(),
            ports: Ports::one(port),
            pool: "lan".into(),
            reals: vec![real(11), real(12)],
            ..VirtualService::default()
        };
        Spec {
            services: vec![service("a", 80), service("b", 443)],
            pools: vec![LocalPool {
                network: String::new(),
                name: "lan".into(),
                addresses: vec![[192, 0, 2, 10].into()],
                ports: 1024..=65535,
                peer_addresses: vec![[192, 0, 2, 20].into()],
            }],
            ..Spec::default()
        }
    }

    fn of(spec: &Spec) -> u64 {
        Plan::compile(spec, None, &Retired::default()).expect("a plan").fingerprint()
    }

    #[test]
    fn the_fingerprint_is_of_what_sessions_need() {
        let known = of(&spec());
        type Change = fn(&mut Spec);
        let alike: [Change; 4] = [
            |spec| spec.services.reverse(),
            |spec| spec.services[0].reals.reverse(),
            |spec| spec.services[0].reals[0].weight = 7,
            |spec| {
                let pool = &mut spec.pools[0];
                std::mem::swap(&mut pool.addresses, &mut pool.peer_addresses);
            },
        ];
        for (at, change) in alike.iter().enumerate() {
            let mut other = spec();
            change(&mut other);
            assert_eq!(of(&other), known, "change {at}");
        }
        let others: [Change; 6] = [
            |spec| spec.services.truncate(1),
            |spec| spec.services[0].reals.truncate(1),
            |spec| spec.services[0].ports = Ports::one(81),
            |spec| spec.services[0].reals[0].port = 8080,
            |spec| spec.services[0].reals[0].mode = Some(Mode::Dr),
            |spec| spec.pools[0].peer_addresses.clear(),
        ];
        for (at, change) in others.iter().enumerate() {
            let mut other = spec();
            change(&mut other);
            assert_ne!(of(&other), known, "change {at}");
        }
        // A later plan's leftovers are not of it.
        let before = Plan::compile(&spec(), None, &Retired::default()).expect("a plan");
        let mut less = spec();
        less.services.pop();
        let after = Plan::compile(&less, Some(&before), &Retired::default()).expect("a plan");
        assert_eq!(after.fingerprint(), of(&less));
    }
}
