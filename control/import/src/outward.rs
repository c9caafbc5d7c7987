//! DPVS's services by match become rules of source NAT, and what they translate to their pools.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sluice_config::AddressRange;
use sluice_ipvs::{Addresses, Family, Match, MatchProtocol};

use crate::note::{Place, Report};
use crate::target::{Made, Table, Target};

/// A service by match.
#[derive(Debug)]
struct Rule {
    is: Match,
    place: Place,
    end: usize,
    addresses: BTreeSet<IpAddr>,
    weights: BTreeSet<u32>,
}

/// Services by match, as they are found.
#[derive(Debug, Default)]
pub(crate) struct Outward {
    rules: Vec<Rule>,
}

impl Outward {
    /// Adds one; `false` when it is there.
    pub fn add(&mut self, is: Match, place: Place, end: usize) -> bool {
        let new = self.rules.iter().all(|rule| rule.is != is);
        if new {
            let (addresses, weights) = Default::default();
            self.rules.push(Rule { is, place, end, addresses, weights });
        }
        new
    }

    /// Adds an address that sources of one become; `false` when there is no such service. Of
    /// weight 0 it is not used.
    pub fn address(&mut self, is: &Match, address: IpAddr, weight: u32) -> bool {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.is == *is) else { return false };
        if weight > 0 {
            rule.addresses.insert(address);
            rule.weights.insert(weight);
        }
        true
    }

    /// Makes rules and pools of them; those that share an address share a pool.
    pub fn settle(self, target: &mut Target, report: &mut Report) {
        let mut pools: Vec<BTreeSet<IpAddr>> = Vec::new();
        for rule in self.rules.iter().filter(|rule| !rule.addresses.is_empty()) {
            let (meets, mut apart): (Vec<_>, Vec<_>) =
                pools.into_iter().partition(|pool| !pool.is_disjoint(&rule.addresses));
            apart.push(meets.into_iter().flatten().chain(rule.addresses.clone()).collect());
            pools = apart;
        }
        for rule in &self.rules {
            let found = pools.iter().find(|pool| !pool.is_disjoint(&rule.addresses));
            let Some((pool, first)) = found.and_then(|pool| Some((pool, *pool.first()?))) else {
                let means = "a service by match that translates to no address";
                let instead = "name one: `-a -H … -r ADDRESS:0 -J`, or pool of a [[snat]] rule";
                report.lost(&rule.place, &rule.is.rule_name(), means, instead);
                continue;
            };
            if rule.weights.len() > 1 {
                let how = "the addresses of a pool take turns";
                report.differs(&rule.place, "weight", "uses some addresses more than others", how);
            }
            let name = format!("outside-{first}").replace(':', "_");
            let made = |table| Made { table, place: rule.place.clone(), end: rule.end };
            if !target.pools.iter().any(|other| other.name() == name) {
                let mut table = Table::new();
                table.insert("name".to_owned(), name.as_str().into());
                let list: Vec<Value> = pool.iter().map(|it| it.to_string().into()).collect();
                table.insert("addresses".to_owned(), list.into());
                target.pools.push(made(table));
            }
            target.rules.push(made(table(&rule.is, &name)));
        }
    }
}

fn table(is: &Match, pool: &str) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
    put("name", is.rule_name().into());
    put("sources", networks(is.family(), is.sources()));
    if is.destinations().is_some() {
        put("destinations", networks(is.family(), is.destinations()));
    }
    let protocol = match is.protocol() {
        MatchProtocol::Tcp => "tcp",
        MatchProtocol::Udp => "udp",
        MatchProtocol::Icmp | MatchProtocol::Icmpv6 => "icmp",
    };
    put("protocols", vec![Value::from(protocol)].into());
    if let Some(egress) = is.egress() {
        put("egress", egress.into());
    }
    put("pool", pool.into());
    table
}

fn networks(family: Family, range: Option<Addresses>) -> Value {
    let Some(range) = range.and_then(|(first, last)| AddressRange::new(first, last)) else {
        let all = if family == Family::Ipv4 { "0.0.0.0/0" } else { "::/0" };
        return vec![Value::from(all)].into();
    };
    let list: Vec<Value> = range.prefixes().iter().map(|it| it.to_string().into()).collect();
    list.into()
}
