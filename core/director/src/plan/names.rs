//! What the ids in sessions stand for, so that a later plan can take sessions over by names.
//!
//! Ids mean something within one run of the director only. Session memory that outlives it is read
//! with the names that the ids had then: endpoints of services and real servers, names of rules of
//! source NAT, local addresses. Two plans may give the same thing different ids.

use super::ids::{Identity, Ids};
use super::{LocalId, Plan, RealId, Retired, ServiceId};
use crate::spec::{Mode, Ports};
use std::net::IpAddr;

/// What all ids of a plan stand for, each list by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Virtual services and rules of source NAT.
    pub services: Vec<ServiceName>,
    /// Real servers.
    pub reals: Vec<RealName>,
    /// Local addresses.
    pub locals: Vec<IpAddr>,
}

/// What makes a virtual service, or a rule of source NAT, itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// A service.
    Service {
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

impl From<&ServiceName> for Identity {
    fn from(name: &ServiceName) -> Self {
        match name {
            ServiceName::Rule(name) => Self::Snat(name.clone()),
            &ServiceName::Service { protocol, vip, ports: (first, last), extended } => {
                Self::Service(protocol, vip, Ports { first, last }, extended)
            }
        }
    }
}

impl From<Identity> for ServiceName {
    fn from(identity: Identity) -> Self {
        match identity {
            Identity::Snat(name) => Self::Rule(name),
            Identity::Service(protocol, vip, ports, extended) => {
                Self::Service { protocol, vip, ports: (ports.first, ports.last), extended }
            }
        }
    }
}

impl Plan {
    /// What its ids stand for.
    pub fn names(&self) -> Names {
        let reals = self.reals.iter().map(|real| RealName {
            service: real.service,
            address: real.address,
            port: real.port,
            mode: real.mode,
            is_probe: real.is_probe,
        });
        Names {
            services: self.services.iter().map(|service| Identity::of(service).into()).collect(),
            reals: reals.collect(),
            locals: self.locals.clone(),
        }
    }
}

/// The ids that a plan has for what has these names.
pub struct Resolver(Ids);

impl Resolver {
    /// That of a plan.
    pub fn new(plan: &Plan) -> Self {
        Self(Ids::of(plan, &Retired::default()))
    }

    /// A real server (not one for probes) of a service.
    pub fn real(
        &self,
        service: &ServiceName,
        (address, port, mode): (IpAddr, u16, Mode),
    ) -> Option<RealId> {
        let service = self.0.service_named(&service.into())?;
        self.0.real_named(&(service, address, port, mode, false))
    }

    /// A local address.
    pub fn local(&self, address: IpAddr) -> Option<LocalId> {
        self.0.local_named(address)
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
        let ids = Ids::of(plan, &Retired::default());
        let services = former.services.iter().map(|name| ids.service_named(&name.into()));
        let services: Vec<_> = services.collect();
        let real = |name: &RealName| {
            let service = (*services.get(usize::from(name.service.0))?)?;
            ids.real_named(&(service, name.address, name.port, name.mode, false))
                .filter(|_| !name.is_probe)
        };
        Self {
            reals: former.reals.iter().map(real).collect(),
            locals: former.locals.iter().map(|address| ids.local_named(*address)).collect(),
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
