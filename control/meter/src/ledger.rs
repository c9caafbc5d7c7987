//! Sums that never fall, by service and real server.
//!
//! Workers count by a real server's id. An id is given again once nobody uses it, and a service's
//! sum over its present real servers falls when one leaves: for whoever computes rates either is a
//! restart of the counter, and shows a peak that never was. So what each id has counted since the
//! last sample is added to two sums that stay: that of the real server, by its address, and that of
//! its service, by its name.

use sluice_director::counters::{Counters, RealCounters, ServiceDrops};
use sluice_director::plan::{Plan, RealId, Service, ServiceId};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Counts of a service or real server.
pub type Counted = RealCounters;

/// A virtual service or rule of source NAT.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its name.
    pub name: Arc<str>,
    /// Its id in the plan.
    pub id: ServiceId,
    /// Whether it is a rule of source NAT.
    pub is_rule: bool,
    /// What it has counted.
    pub counted: Counted,
    /// What was dropped of it.
    pub drops: ServiceDrops,
    /// Its real servers: places of their accounts, the configured ones first and in order.
    pub accounts: Vec<u32>,
}

/// A real server of a service.
#[derive(Clone, Debug)]
pub struct Account {
    /// The service: its place.
    pub owner: u32,
    /// Address.
    pub address: IpAddr,
    /// Port; 0 for the one that the client sent to.
    pub port: u16,
    /// Its id in the plan; absent if it has left the configuration.
    pub live: Option<RealId>,
    /// What it has counted.
    pub counted: Counted,
}

impl Account {
    /// The real server as an operator names it: `192.0.2.11:80`; without a port if it has none of
    /// its own.
    pub fn real(&self) -> String {
        endpoint(self.address, self.port)
    }
}

pub(crate) fn endpoint(address: IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => SocketAddr::new(address, port).to_string(),
    }
}

/// What an id stood for, as workers tell it.
type Identity = (ServiceId, IpAddr, u16);

#[derive(Clone, Debug)]
struct Entry {
    identity: Identity,
    /// Place of the account; none for real servers of services that have left.
    account: Option<u32>,
    last: Counted,
}

/// What a service's id has counted of drops.
#[derive(Clone, Debug)]
struct Refused {
    /// Since which plan the service is there: it tells that an id was given again.
    born: u64,
    /// Place of its owner; none for services that have left.
    owner: Option<u32>,
    last: ServiceDrops,
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Number of the plan that the rest is for.
    epoch: Option<u64>,
    owners: Vec<Owner>,
    accounts: Vec<Account>,
    /// By real server's id.
    entries: Vec<Entry>,
    /// By service's id.
    refused: Vec<Refused>,
    all: Counted,
}

impl Ledger {
    /// Services, then rules of source NAT, each in the configuration's order.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// The accounts of a service's real servers.
    pub fn accounts_of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = &'a Account> {
        owner.accounts.iter().filter_map(|at| self.accounts.get(*at as usize))
    }

    /// Everything counted, also by what has left.
    pub const fn all(&self) -> &Counted {
        &self.all
    }

    /// Adds what was counted since the last time. The counters must be those of workers that all
    /// run this plan, or a revision of it.
    pub fn add(&mut self, plan: &Plan, counters: &Counters) {
        if self.epoch != Some(plan.epoch) {
            self.follow(plan);
        }
        self.all.clear_gauges();
        self.owners.iter_mut().for_each(|owner| owner.counted.clear_gauges());
        self.accounts.iter_mut().for_each(|account| account.counted.clear_gauges());
        for (entry, now) in self.entries.iter_mut().zip(&counters.reals) {
            let since = since(now, &entry.last);
            entry.last = *now;
            self.all.add(&since);
            let Some(account) = entry.account.and_then(|at| self.accounts.get_mut(at as usize))
            else {
                continue;
            };
            account.counted.add(&since);
            if let Some(owner) = self.owners.get_mut(account.owner as usize) {
                owner.counted.add(&since);
            }
        }
        for (refused, now) in self.refused.iter_mut().zip(&counters.services) {
            let since = now.since(&refused.last);
            refused.last = *now;
            if let Some(owner) = refused.owner.and_then(|at| self.owners.get_mut(at as usize)) {
                owner.drops.add(&since);
            }
        }
    }

    /// Makes itself ready for another plan; sums go along by name and address.
    fn follow(&mut self, plan: &Plan) {
        let former = std::mem::take(self);
        let accounts = former.accounts.iter().filter_map(|account| {
            let owner = former.owners.get(account.owner as usize)?;
            let key = (owner.is_rule, &*owner.name, account.address, account.port);
            Some((key, account.counted))
        });
        let accounts: HashMap<_, Counted> = accounts.collect();
        let owners = former.owners.iter().map(|o| ((o.is_rule, &*o.name), (o.counted, o.drops)));
        let owners: HashMap<_, (Counted, ServiceDrops)> = owners.collect();

        self.epoch = Some(plan.epoch);
        self.all = former.all;
        self.owners = live_owners(plan);
        for owner in &mut self.owners {
            let known = owners.get(&(owner.is_rule, &*owner.name)).copied();
            (owner.counted, owner.drops) = known.unwrap_or_default();
        }
        // Former services too: one whose address has changed still has sessions by its name.
        let by_name = self.owners.iter().zip(0..);
        let by_name: HashMap<_, u32> =
            by_name.map(|(o, at)| ((o.is_rule, Arc::clone(&o.name)), at)).collect();
        let of = |service: &Service| {
            by_name.get(&(service.snat.is_some(), service.name.as_str().into())).copied()
        };
        let by_service: Vec<Option<u32>> = plan.services.iter().map(of).collect();
        for (id, (service, owner)) in plan.services.iter().zip(&by_service).enumerate() {
            let known = former.refused.get(id).filter(|known| known.born == service.born);
            let last = known.map(|known| known.last).unwrap_or_default();
            self.refused.push(Refused { born: service.born, owner: *owner, last });
        }
        let mut places: HashMap<(u32, IpAddr, u16), u32> = HashMap::new();
        for (id, real) in plan.reals.iter().enumerate() {
            let identity = (real.service, real.address, real.port);
            let known = former.entries.get(id).filter(|entry| entry.identity == identity);
            let last = known.map(|entry| entry.last).unwrap_or_default();
            let owner = by_service.get(usize::from(real.service.0)).copied().flatten();
            let account = owner.map(|owner| {
                let place = places.entry((owner, real.address, real.port)).or_insert_with(|| {
                    let of = &self.owners[owner as usize];
                    let key = (of.is_rule, &*of.name, real.address, real.port);
                    self.accounts.push(Account {
                        owner,
                        address: real.address,
                        port: real.port,
                        live: None,
                        counted: accounts.get(&key).copied().unwrap_or_default(),
                    });
                    self.accounts.len() as u32 - 1
                });
                if real.live {
                    self.accounts[*place as usize].live = Some(RealId(id as u32));
                }
                *place
            });
            self.entries.push(Entry { identity, account, last });
        }
        self.list_accounts(plan);
    }

    /// Gives each service the list of its real servers: those configured, then those leaving.
    fn list_accounts(&mut self, plan: &Plan) {
        for (account, place) in self.accounts.iter().zip(0..) {
            self.owners[account.owner as usize].accounts.push(place);
        }
        let accounts = &self.accounts;
        for owner in &mut self.owners {
            let position = |place: &u32| {
                let live = accounts[*place as usize].live?;
                plan.real(live).map(|real| real.position)
            };
            owner.accounts.sort_by_key(|place| position(place).unwrap_or(u32::MAX));
        }
    }
}

fn live_owners(plan: &Plan) -> Vec<Owner> {
    let owner = |id: ServiceId, service: &Service, is_rule| Owner {
        name: service.name.as_str().into(),
        id,
        is_rule,
        counted: Counted::default(),
        drops: ServiceDrops::default(),
        accounts: Vec::new(),
    };
    let mut services: Vec<_> = plan.live_services().collect();
    services.sort_by_key(|(_, service)| service.position);
    let services = services.into_iter().map(|(id, service)| owner(id, service, false));
    let mut rules: Vec<_> = plan.snat_rules().collect();
    rules.sort_by_key(|(_, rule, _)| rule.position);
    services.chain(rules.into_iter().map(|(id, rule, _)| owner(id, rule, true))).collect()
}

/// What came on top; everything, if the counter began again.
fn since(now: &Counted, last: &Counted) -> Counted {
    let began_again = now.sessions < last.sessions
        || (0..2).any(|d| now.packets[d] < last.packets[d] || now.bytes[d] < last.bytes[d]);
    if began_again {
        return *now;
    }
    Counted {
        packets: [0, 1].map(|d| now.packets[d] - last.packets[d]),
        bytes: [0, 1].map(|d| now.bytes[d] - last.bytes[d]),
        sessions: now.sessions - last.sessions,
        handshakes: now.handshakes.saturating_sub(last.handshakes),
        refused: now.refused.saturating_sub(last.refused),
        ..*now
    }
}
