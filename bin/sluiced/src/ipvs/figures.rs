//! Counts since the start or the last zeroing, and rates, as IPVS tells them.
//!
//! The sums are those of the ledger, which never fall; zeroing remembers where they stood. Rates
//! are over the last seconds: the kernel's are smoothed over about as long.

use sluice_director::counters::{Counters, RealCounters};
use sluice_director::plan::Plan;
use sluice_ipvs::{Destination, Service, ServiceKey, Stats};
use sluice_meter::{Account, Counted, Ledger, Owner};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How far back rates look.
const WINDOW: Duration = Duration::from_secs(4);
/// The shortest time that makes a rate.
const SHORTEST: Duration = Duration::from_millis(500);

/// Sums by service.
type Sums = HashMap<Arc<str>, Sum>;

/// Of a service and its real servers.
#[derive(Clone, Debug, Default)]
struct Sum {
    whole: Counted,
    /// By address and port.
    reals: Vec<(SocketAddr, Counted)>,
}

impl Sum {
    /// Of the service itself, or of a real server.
    fn of(&self, place: Option<SocketAddr>) -> Option<&Counted> {
        let Some(real) = place else { return Some(&self.whole) };
        let at = self.reals.binary_search_by_key(&real, |(at, _)| *at).ok()?;
        self.reals.get(at).map(|(_, counted)| counted)
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    ledger: Ledger,
    /// Where sums stood when they were zeroed.
    zeroed: Sums,
    /// Sums of the last seconds, the oldest first.
    past: VecDeque<(Duration, Sums)>,
}

impl Figures {
    /// Adds what was counted until `at`, time since the start.
    pub fn take(&mut self, at: Duration, plan: &Plan, counters: &Counters) {
        self.ledger.add(plan, counters);
        if self.past.back().is_some_and(|(last, _)| at.saturating_sub(*last) < SHORTEST) {
            return;
        }
        while self.past.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= WINDOW) {
            self.past.pop_front();
        }
        let sums = self.sums();
        self.past.push_back((at, sums));
        let now = self.past.back().map(|(_, sums)| sums);
        self.zeroed.retain(|service, _| now.is_some_and(|now| now.contains_key(service)));
    }

    /// Of services and of rules of source NAT: a rule's name is no service's.
    fn sums(&self) -> Sums {
        self.ledger
            .owners()
            .iter()
            .map(|owner| (Arc::clone(&owner.name), self.sum(owner)))
            .collect()
    }

    fn sum(&self, owner: &Owner) -> Sum {
        let reals = self.ledger.accounts_of(owner);
        let mut reals: Vec<_> = reals.map(|account| (endpoint(account), account.counted)).collect();
        reals.sort_unstable_by_key(|(at, _)| *at);
        Sum { whole: owner.counted, reals }
    }

    /// From now on the counts of these services begin at 0.
    pub fn zero<'a>(&mut self, services: impl Iterator<Item = &'a str>) {
        let wanted: HashSet<&str> = services.collect();
        let now = self.ledger.owners().iter().filter(|owner| wanted.contains(&*owner.name));
        let now: Vec<_> = now.map(|it| (Arc::clone(&it.name), self.sum(it))).collect();
        self.zeroed.extend(now);
    }

    /// Puts figures on services and their destinations.
    pub fn put_on(&self, services: &mut [Service]) {
        let owners: HashMap<&str, &Owner> =
            self.ledger.owners().iter().map(|it| (&*it.name, it)).collect();
        for service in services {
            let Some(owner) = owners.get(&*service.name) else { continue };
            let now = self.sum(owner);
            service.stats = self.stats(&service.name, &now, None);
            for it in &mut service.destinations {
                let real = SocketAddr::new(it.address, it.port);
                it.stats = self.stats(&service.name, &now, Some(real));
                if let Some(counted) = now.of(Some(real)) {
                    gauges(it, counted);
                }
            }
            // Of a rule of source NAT no address is counted by itself.
            if let (ServiceKey::Match(_), [it]) = (service.spec.key, &mut service.destinations[..])
            {
                it.stats = service.stats;
                gauges(it, &now.whole);
            }
        }
    }

    /// Of a service, or of one of its real servers.
    fn stats(&self, service: &str, now: &Sum, place: Option<SocketAddr>) -> Stats {
        let Some(sum) = now.of(place) else { return Stats::default() };
        let none = Counted::default();
        let within = |sums: &Sums| sums.get(service).and_then(|sum| sum.of(place)).copied();
        let zeroed = within(&self.zeroed).unwrap_or(none);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let newest = self.past.back();
        let (over, then) = match (self.past.front(), newest) {
            (Some((first, sums)), Some((last, newest))) if last > first => {
                let newest = within(newest).unwrap_or(*sum);
                ((*last - *first).as_secs_f64(), Some((newest, within(sums).unwrap_or(none))))
            }
            _ => (1.0, None),
        };
        let rate = |of: fn(&Counted) -> u64| {
            let counted = then.map_or(0, |(now, then)| since(of(&now), of(&then)));
            (counted as f64 / over).round() as u64
        };
        Stats {
            connections: since(sum.sessions, zeroed.sessions),
            in_packets: since(sum.packets[0], zeroed.packets[0]),
            out_packets: since(sum.packets[1], zeroed.packets[1]),
            in_bytes: since(sum.bytes[0], zeroed.bytes[0]),
            out_bytes: since(sum.bytes[1], zeroed.bytes[1]),
            connections_per_s: rate(|it| it.sessions),
            in_packets_per_s: rate(|it| it.packets[0]),
            out_packets_per_s: rate(|it| it.packets[1]),
            in_bytes_per_s: rate(|it| it.bytes[0]),
            out_bytes_per_s: rate(|it| it.bytes[1]),
        }
    }
}

/// How many sessions it has, as IPVS divides them, and how many clients are bound to it.
fn gauges(it: &mut Destination, counted: &RealCounters) {
    it.active = u32::try_from(counted.flowing()).unwrap_or(u32::MAX);
    (it.inactive, it.persistent) = (counted.closing, counted.bound);
}

fn endpoint(account: &Account) -> SocketAddr {
    SocketAddr::new(account.address, account.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::Config;
    use sluice_director::plan::Retired;
    use sluice_ipvs::{Method, Protocol, ServiceSpec, Tunnel};

    const CONFIG: &str = r#"
        [[port]]
        name = "front"
        device = "af_xdp:eth0"
        [[service]]
        name = "web"
        protocol = "tcp"
        vip = "198.51.100.200"
        port = 80
        mode = "dr"
        real = [{ address = "192.0.2.11" }, { address = "192.0.2.12" }]
    "#;

    fn web() -> Service {
        let destination = |last: u8| Destination {
            address: [192, 0, 2, last].into(),
            port: 80,
            method: Method::Route,
            tunnel: Tunnel::IPIP,
            weight: 1,
            upper: 0,
            lower: 0,
            active: 0,
            inactive: 0,
            persistent: 0,
            stats: Stats::default(),
        };
        let address = [198, 51, 100, 200].into();
        let key = ServiceKey::Address { protocol: Protocol::Tcp, address, port: 80 };
        Service {
            spec: ServiceSpec {
                key,
                scheduler: "rr".to_owned(),
                flags: 2,
                timeout_s: 0,
                netmask: u32::MAX,
                persistence_engine: None,
                settings: None,
            },
            owner: "file".to_owned(),
            name: "web".to_owned(),
            stats: Stats::default(),
            destinations: vec![destination(11), destination(12)],
        }
    }

    fn counters(sessions: [u64; 2]) -> Counters {
        let real = |sessions: u64| RealCounters {
            sessions,
            active: sessions / 2,
            closing: 1,
            bound: 3,
            packets: [sessions * 10, sessions * 8],
            bytes: [sessions * 1000, sessions * 80_000],
            ..RealCounters::default()
        };
        Counters { reals: sessions.map(real).to_vec(), ..Counters::default() }
    }

    fn shown(figures: &Figures) -> Service {
        let mut services = [web()];
        figures.put_on(&mut services);
        let [web] = services;
        web
    }

    #[test]
    fn counts_begin_again_when_zeroed_and_rates_go_on() {
        let config = Config::parse("file", CONFIG).unwrap().config;
        let plan = Plan::compile(&config.spec(), None, &Retired::default()).unwrap();
        let mut figures = Figures::default();
        figures.take(Duration::from_secs(10), &plan, &counters([10, 20]));
        let web = shown(&figures);
        assert_eq!((web.stats.connections, web.stats.in_packets), (30, 300));
        assert_eq!((web.stats.connections_per_s, web.destinations[1].active), (0, 9));
        figures.zero(["other"].into_iter());
        assert_eq!(shown(&figures).stats.connections, 30);
        figures.zero(["web"].into_iter());
        assert_eq!(shown(&figures).stats.connections, 0);
        figures.take(Duration::from_secs(12), &plan, &counters([14, 26]));
        let web = shown(&figures);
        assert_eq!((web.stats.connections, web.stats.connections_per_s), (10, 5));
        let second = &web.destinations[1];
        assert_eq!((second.stats.connections, second.stats.out_bytes), (6, 480_000));
        assert_eq!((second.stats.connections_per_s, second.stats.out_bytes_per_s), (3, 240_000));
        assert_eq!((second.active, second.inactive, second.persistent), (12, 1, 3));
    }

    #[test]
    fn a_rule_of_source_nat_is_counted_as_a_whole() {
        let list = "proto=tcp,src-range=192.0.2.0-192.0.2.255";
        let key = ServiceKey::Match(list.parse().unwrap());
        let text = r#"
            [[port]]
            name = "front"
            device = "af_xdp:eth0"
            [[pool]]
            name = "outside"
            addresses = ["198.51.100.10", "198.51.100.11"]
            [[snat]]
            name = "rule"
            sources = ["192.0.2.0/24"]
            pool = "outside"
        "#;
        let config = Config::parse("file", text).unwrap().config;
        let plan = Plan::compile(&config.spec(), None, &Retired::default()).unwrap();
        let mut figures = Figures::default();
        let mut counted = counters([10, 20]);
        counted.reals.truncate(1);
        figures.take(Duration::from_secs(10), &plan, &counted);
        let shown = |figures: &Figures, addresses: usize| {
            let mut service = web();
            service.spec.key = key;
            service.name = "rule".to_owned();
            service.destinations.truncate(addresses);
            let mut services = [service];
            figures.put_on(&mut services);
            let [service] = services;
            service
        };
        // Which of two addresses it was is not counted.
        let two = shown(&figures, 2);
        assert_eq!((two.stats.connections, two.stats.out_bytes), (10, 800_000));
        assert!(two.destinations.iter().all(|it| it.stats == Stats::default() && it.active == 0));
        let [one] = &shown(&figures, 1).destinations[..] else { panic!() };
        assert_eq!((one.stats.connections, one.active, one.inactive), (10, 4, 1));
        figures.zero(["rule"].into_iter());
        assert_eq!(shown(&figures, 1).stats.connections, 0);
    }

    #[test]
    fn rates_look_back_a_few_seconds_only() {
        let config = Config::parse("file", CONFIG).unwrap().config;
        let plan = Plan::compile(&config.spec(), None, &Retired::default()).unwrap();
        let mut figures = Figures::default();
        for second in 0..20 {
            let sessions = [100 * second.min(10), 0];
            figures.take(Duration::from_secs(second), &plan, &counters(sessions));
        }
        assert_eq!(shown(&figures).stats.connections_per_s, 0);
        assert_eq!(shown(&figures).stats.connections, 1000);
        assert!(figures.past.len() <= 6, "{}", figures.past.len());
    }
}
