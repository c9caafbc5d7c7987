//! What a plan says of the packets that are taken from ports, for those who make rules of it.

use super::{Plan, Pool, Real, Snat};
use crate::plan::LocalId;
use crate::spec::{Mode, Network, Protocol};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// A protocol and ports at an address; 0 stands for every protocol.
pub type TakenEndpoint = (u8, IpAddr, RangeInclusive<u16>);

impl Plan {
    /// What is taken because it is for a virtual service.
    pub fn taken_for_services(&self) -> impl Iterator<Item = TakenEndpoint> {
        self.live_services().map(|(_, service)| {
            let ports = service.ports.first..=service.ports.last;
            (service.protocol.number(), service.vip, ports)
        })
    }

    /// What a real server of NAT mode answers from. Its own packets to elsewhere are the kernel's.
    pub fn taken_from_real(&self, real: &Real) -> Option<TakenEndpoint> {
        let service = self.service(real.service).filter(|service| service.live)?;
        if real.mode != Mode::Nat {
            return None;
        }
        let ports = match real.port {
            0 => service.ports.first..=service.ports.last,
            port => port..=port,
        };
        Some((service.protocol.number(), real.address, ports))
    }

    /// Local addresses, with their ports, and whether answers to ping are taken, too.
    pub fn taken_for_locals(&self) -> Vec<(IpAddr, RangeInclusive<u16>, bool)> {
        let rules = self.snat_rules().filter(|(_, _, rule)| {
            rule.protocols.is_empty() || rule.protocols.contains(&Protocol::Icmp)
        });
        let of_ping: BTreeSet<&str> = rules
            .filter_map(|(_, service, _)| self.pools.get(service.pool?))
            .map(|pool| pool.name.as_str())
            .collect();
        let address = |id: LocalId| self.locals.get(usize::from(id.0)).copied();
        let of = |pool: &Pool| -> Vec<_> {
            let (ports, echo) = (pool.port_range(), of_ping.contains(pool.name.as_str()));
            let addresses = pool.all_locals().filter_map(address);
            addresses.map(|address| (address, ports.clone(), echo)).collect()
        };
        // Answers to probes come to nobody else.
        let probes = self.probes_from.into_iter().flatten();
        let probes = probes.map(|address| (address, 1024..=u16::MAX, false));
        self.pools.iter().flat_map(of).chain(probes).collect()
    }

    /// Where connections do not go to that a rule of source NAT takes, as far as the plan says it:
    /// a rule for everywhere is for what leaves the networks that source NAT is for.
    pub fn not_taken_by(&self, rule: &Snat) -> Vec<Network> {
        if !rule.destinations.is_empty() {
            return Vec::new();
        }
        let inside = self.snat_rules().flat_map(|(_, _, rule)| &rule.sources);
        // A rule for everybody is not for nobody.
        inside.filter(|net| net.prefix > 0).copied().collect()
    }
}

impl Pool {
    fn port_range(&self) -> RangeInclusive<u16> {
        let last = u32::from(self.first_port) + self.ports.saturating_sub(1);
        self.first_port..=u16::try_from(last).unwrap_or(u16::MAX)
    }
}
