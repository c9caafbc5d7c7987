//! Which hosts inside reach each other by what source NAT has given them outside.

use super::{Plan, Service};
use crate::spec::{Mapping, SnatRule};

/// Whether a rule lets hosts inside reach each other. Not if it says of everybody that they are
/// inside: nobody outside could be told from them.
pub(super) fn of(rule: &SnatRule) -> bool {
    rule.hairpinning
        && rule.mapping == Mapping::EndpointIndependent
        && rule.sources.iter().all(|network| network.prefix > 0)
}

impl Plan {
    /// Works out by which pools hosts inside reach each other.
    pub(super) fn settle_hairpins(&mut self) {
        for number in 0..self.pools.len() {
            self.pools[number].hairpins = self.pool_hairpins(number);
        }
    }

    /// Whether hosts inside reach each other by a pool. Not by one that services use: what real
    /// servers answer to it must be told apart by its destination alone.
    fn pool_hairpins(&self, pool: usize) -> bool {
        let mut users = self.services.iter().filter(|service| service.pool == Some(pool));
        let mut rules = self.snat_rules().filter(|(_, rule, _)| rule.pool == Some(pool));
        users.all(|service| service.snat.is_some()) && rules.any(|(_, _, snat)| snat.hairpinning)
    }

    /// Whether hosts inside may reach others, and be reached, by what a rule has given them.
    pub(crate) fn hairpins(&self, rule: &Service) -> bool {
        let pool = rule.pool.and_then(|pool| self.pools.get(pool));
        rule.snat.as_ref().is_some_and(|snat| snat.hairpinning)
            && pool.is_some_and(|pool| pool.hairpins)
    }
}
