//! Rules of source NAT: which of them are configured, and which one a packet is for.

use super::{Snapshot, Status};
use crate::universe::{Rule, Service, Universe, is_in};
use crate::wire::{Addr, TCP, Tuple, is_v4, to_ip};
use sluice_director::spec::{Network, Protocol, SnatRule};

fn network((net, bits): &(Addr, u32)) -> Network {
    let prefix = if is_v4(*net) { bits - 96 } else { *bits };
    Network { address: to_ip(*net), prefix: prefix as u8 }
}

/// What is configured of them.
pub(super) fn spec(universe: &Universe, status: &Status) -> Vec<SnatRule> {
    let all = universe.services.iter().zip(&status.services).enumerate();
    let rule = |(number, (service, status)): (usize, (&Service, &super::ServiceStatus))| {
        let rule = service.rule.as_ref().filter(|_| status.present)?;
        let protocol = |of: &u8| if *of == TCP { Protocol::Tcp } else { Protocol::Udp };
        Some(SnatRule {
            name: format!("s{number}"),
            network: String::new(),
            sources: rule.sources.iter().map(network).collect(),
            destinations: rule.destinations.iter().map(network).collect(),
            protocols: rule.protocols.iter().map(protocol).collect(),
            egress: None,
            pool: format!("p{}", service.pool),
            mapping: rule.mapping,
            hairpinning: false,
            tcp_established_s: rule.established_s,
        })
    };
    all.filter_map(rule).collect()
}

impl Snapshot {
    /// Rules that are configured, the first that counts first.
    fn rules<'a>(&'a self, universe: &'a Universe) -> impl Iterator<Item = (usize, &'a Rule)> {
        let all = universe.services.iter().enumerate();
        let there = all.filter(|(at, _)| self.status.services[*at].present);
        there.filter_map(|(at, service)| Some((at, service.rule.as_ref()?)))
    }

    /// The rule that a packet from inside is for: it is to nobody here, and there is a way.
    fn rule_at(&self, universe: &Universe, tuple: Tuple) -> Option<usize> {
        let own = universe.links.iter().flat_map(|link| link.own).flatten();
        let mut vips = universe.services.iter().zip(&self.status.services);
        let here = vips.any(|(service, status)| status.present && service.vip == tuple.dst)
            || self.locals.contains_key(&tuple.dst)
            || own.into_iter().any(|own| own == tuple.dst);
        if here {
            return None;
        }
        let mut inside = self.rules(universe).map(|(_, rule)| is_in(&rule.sources, tuple.dst));
        let inside = inside.any(|inside| inside);
        let mut rules = self.rules(universe);
        let fits = |rule: &Rule| rule.matches(tuple) && !(inside && rule.destinations.is_empty());
        let (at, _) = rules.find(|(_, rule)| fits(rule))?;
        self.next(universe, tuple.dst).map(|_| at)
    }

    /// The service or rule that a packet without a session is for.
    pub fn service_of(&self, universe: &Universe, tuple: Tuple) -> Option<usize> {
        let service = self.service_at(universe, tuple.protocol, (tuple.dst, tuple.dport));
        service.or_else(|| self.rule_at(universe, tuple))
    }

    /// Rules that are, or once were, there and say which worker a packet from inside belongs to.
    pub fn once_ruled<'a>(
        &'a self,
        universe: &'a Universe,
        tuple: Tuple,
    ) -> impl Iterator<Item = usize> + 'a {
        let all = universe.services.iter().zip(&self.once_owned).enumerate();
        let fits = move |service: &Service| service.rule.as_ref().is_some_and(|r| r.matches(tuple));
        all.filter(move |(_, (service, once))| **once && fits(service)).map(|(at, _)| at)
    }
}
