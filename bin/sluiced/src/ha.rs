//! Which virtual addresses the machine has, and since when. What moves them (keepalived, a routing
//! daemon, an operator) does so by the kernel, which is all that is looked at.

mod transitions;

use crate::daemon::Daemon;
use crate::handover::unix_s;
use sluice_api::model::{Event, EventKind, Ha, HaAddress, HaNotify, HaRole, HaTransition};
use sluice_director::plan::{Plan, Service};
use sluice_director::spec::NetworkId;
use sluice_linux::Kernel;
use sluice_state::Author;
use sluice_sync::Standing;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;
use transitions::Transitions;

/// The virtual addresses of the running plan.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    held: BTreeMap<IpAddr, Held>,
    /// Whether another director is to take over.
    draining: bool,
    /// What programs that move them say.
    told: Transitions,
}

#[derive(Debug)]
struct Held {
    /// The kernel's interface.
    ifindex: Option<u32>,
    since: Instant,
    changes: u64,
    services: u64,
}

impl Addresses {
    /// Looks who has them now; what came or went becomes an event.
    pub fn look(&mut self, plan: &Plan, kernel: &Kernel) -> Vec<Event> {
        let mut services: BTreeMap<IpAddr, u64> = BTreeMap::new();
        // Other networks' addresses are moved by nobody.
        let is_moved = |service: &Service| service.network == NetworkId::DEFAULT;
        for (_, service) in plan.live_services().filter(|(_, service)| is_moved(service)) {
            *services.entry(service.vip).or_default() += 1;
        }
        self.held.retain(|vip, _| services.contains_key(vip));
        let has: BTreeMap<IpAddr, u32> = kernel
            .addresses()
            .filter(|address| !address.tentative && services.contains_key(&address.ip))
            .map(|address| (address.ip, address.ifindex))
            .collect();
        let mut events = Vec::new();
        for (vip, services) in services {
            let (ifindex, since) = (has.get(&vip).copied(), Instant::now());
            let new = || Held { ifindex, since, changes: 0, services };
            let held = self.held.entry(vip).or_insert_with(new);
            held.services = services;
            if held.ifindex == ifindex {
                continue;
            }
            let came = held.ifindex.is_some() != ifindex.is_some();
            *held = Held { since, changes: held.changes + 1, ..new() };
            if came {
                events.push(event(vip, ifindex.and_then(|index| kernel.link(index))));
            }
        }
        events
    }

    /// Begins where another process of this director ends.
    pub fn begin(&mut self, draining: bool, transitions: Vec<HaTransition>) {
        (self.draining, self.told) = (draining, Transitions::begin(transitions));
    }

    /// What programs have said that move addresses.
    pub fn transitions(&self) -> Vec<HaTransition> {
        self.told.shown()
    }

    /// Whether another director is to take over.
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// How many the machine has, and how many there are.
    fn counted(&self) -> (u32, u32) {
        let held = self.held.values().filter(|held| held.ifindex.is_some()).count();
        (held as u32, self.held.len() as u32)
    }

    /// What other directors are told.
    pub fn standing(&self, sessions: u64) -> Standing {
        let (held, addresses) = self.counted();
        Standing { held, addresses, draining: self.draining, sessions }
    }

    /// How they stand.
    pub fn shown(&self, kernel: &Kernel) -> Ha {
        let addresses = self.held.iter().map(|(vip, held)| HaAddress {
            vip: *vip,
            interface: held.ifindex.map(|index| match kernel.link(index) {
                Some(link) => link.name.clone(),
                None => format!("interface {index}"),
            }),
            for_s: held.since.elapsed().as_secs_f64(),
            changes: held.changes,
            services: held.services,
        });
        let addresses: Vec<_> = addresses.collect();
        let (held, all) = self.counted();
        let role = HaRole::of(held.into(), all.into());
        Ha {
            role,
            draining: self.draining,
            addresses,
            transitions: self.told.shown(),
            disagreement: self.told.disagreement(held, all),
            ..Ha::default()
        }
    }
}

fn event(vip: IpAddr, link: Option<&sluice_linux::Link>) -> Event {
    let reason = match link {
        Some(link) => format!("{vip} is this machine's now ({})", link.name),
        None => format!("{vip} is not this machine's any more"),
    };
    Event { address: Some(vip), ..Event::new(EventKind::Ha, reason) }
}

impl Daemon {
    /// How high availability stands.
    pub fn ha(&self) -> Ha {
        let data = &self.dataplane;
        let sync = data.sync.as_ref().and_then(|sync| sync.shown(&data.crew.reports()));
        let (announce, upgrade) = (self.announced(), self.upgrades.last.clone());
        Ha { sync, announce, upgrade, ..self.kernel.addresses.shown(self.kernel.mirror.state()) }
    }

    /// Says whether another director is to take over.
    pub fn drain(&mut self, draining: bool, by: Author) -> Ha {
        let was = std::mem::replace(&mut self.kernel.addresses.draining, draining);
        if was != draining {
            let reason = match draining {
                true => "draining: another director is to take over",
                false => "not draining any more",
            };
            tracing::info!("{reason}");
            let event = Event { author: Some(by), ..Event::new(EventKind::Ha, reason) };
            self.operator.server.note_all([event]);
        }
        self.announce();
        self.ha()
    }

    /// A program says what a group of addresses has become. That is told, and changes nothing.
    pub fn notified(&mut self, said: HaNotify, by: Author) -> Ha {
        if let Some(reason) = self.kernel.addresses.told.note(said, unix_s()) {
            tracing::info!("{reason}");
            let event = Event { author: Some(by), ..Event::new(EventKind::Ha, reason) };
            self.operator.server.note_all([event]);
        }
        self.ha()
    }

    /// Looks at the virtual addresses again, after the plan or the kernel's tables have changed.
    pub fn follow_addresses(&mut self) {
        let events = self.kernel.addresses.look(&self.dataplane.plan, self.kernel.mirror.state());
        for event in &events {
            tracing::info!("{}", event.reason);
        }
        self.operator.server.note_all(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::spec::{Spec, VirtualService};
    use sluice_linux::Address;

    const VIP: &str = "198.51.100.200";

    fn plan(vips: &[&str]) -> Plan {
        let service = |(index, vip): (usize, &&str)| VirtualService {
            name: format!("s{index}"),
            vip: vip.parse().expect("an address"),
            ..VirtualService::default()
        };
        let services = vips.iter().enumerate().map(service).collect();
        let spec = Spec { services, ..Spec::default() };
        Plan::compile(&spec, None, &Default::default()).expect("a plan")
    }

    fn kernel(has: &[&str]) -> Kernel {
        let mut kernel = Kernel::default();
        kernel.insert_link(sluice_linux::Link {
            index: 3,
            name: "front".to_owned(),
            ..sluice_linux::Link::default()
        });
        for ip in has {
            let ip = ip.parse().expect("an address");
            let address = Address { ifindex: 3, ip, prefix_len: 32, peer: None, tentative: false };
            kernel.insert_address(address);
        }
        kernel
    }

    #[test]
    fn an_address_that_comes_or_goes_is_news() {
        let (mut addresses, both) = (Addresses::default(), plan(&[VIP, "2001:db8:1::200"]));
        assert_eq!(addresses.shown(&kernel(&[])).role, HaRole::Idle);
        assert!(addresses.look(&both, &kernel(&[])).is_empty(), "how it begins is no news");
        assert_eq!(addresses.shown(&kernel(&[])).role, HaRole::Standby);
        let one = kernel(&[VIP, "192.0.2.1"]);
        let told = addresses.look(&both, &one);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].reason, "198.51.100.200 is this machine's now (front)");
        assert!(addresses.look(&both, &one).is_empty());
        let shown = addresses.shown(&one);
        assert_eq!((shown.role, shown.addresses[0].changes), (HaRole::Partial, 1));
        assert_eq!(shown.addresses[0].interface.as_deref(), Some("front"));
        assert_eq!(shown.addresses[1].interface, None);
        let all = kernel(&[VIP, "2001:db8:1::200"]);
        assert_eq!(addresses.look(&both, &all).len(), 1);
        assert_eq!(addresses.shown(&all).role, HaRole::Active);
        let told = addresses.look(&plan(&[VIP]), &kernel(&[]));
        assert_eq!(told.len(), 1, "the other one is nobody's concern any more");
        assert_eq!(told[0].reason, "198.51.100.200 is not this machine's any more");
    }
}
