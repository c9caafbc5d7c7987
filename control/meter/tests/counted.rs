//! Sums over changes of the configuration, and the last hour, against plain arithmetic.
#![forbid(unsafe_code)]

use sluice_api::model::RatesQuery;
use sluice_config::Config;
use sluice_director::counters::{Counters, RealCounters, ServiceDrops};
use sluice_director::plan::{Plan, Retired, ServiceId};
use sluice_director::reason::Reason;
use sluice_meter::{
    Identity, Ledger, Meter, SERVICE_STEP_S, SERVICES_KEPT, Sample, Work, WorkerFigures,
    WorkerSample,
};
use std::sync::Arc;
use std::time::Duration;

/// A plan with a service of real servers 192.0.2.N for each list.
fn plan(services: &[(&str, &[u8])], before: Option<&Plan>, retired: &Retired) -> Plan {
    let mut text = String::from("[[port]]\nname = \"front\"\ndevice = \"af_xdp:eth0\"\n");
    for (at, (name, reals)) in services.iter().enumerate() {
        let reals = reals.iter().map(|r| format!("{{ address = \"192.0.2.{r}\", port = 80 }}"));
        let (reals, port) = (reals.collect::<Vec<_>>().join(", "), 1 + at % 60_000);
        let vip = format!("198.51.100.{}", 1 + at / 60_000);
        text += &format!(
            "[[service]]\nname = \"{name}\"\nprotocol = \"tcp\"\nvip = \"{vip}\"\n\
             port = {port}\nmode = \"nat\"\nreal = [{reals}]\n"
        );
    }
    let config = Config::parse("file", &text).expect("a configuration").config;
    Plan::compile(&config.spec(), before, retired).expect("a plan")
}

fn counted(packets: u64, sessions: u64, active: u64) -> RealCounters {
    RealCounters {
        packets: [packets, 0],
        bytes: [packets * 100, 0],
        sessions,
        active,
        ..RealCounters::default()
    }
}

fn counters(reals: &[RealCounters]) -> Counters {
    Counters { reals: reals.to_vec(), ..Counters::default() }
}

fn packets(ledger: &Ledger, service: &str) -> u64 {
    let owner = ledger.owners().iter().find(|owner| &*owner.name == service);
    owner.map_or(0, |owner| owner.counted.packets[0])
}

/// A real server leaves with its sessions, its id goes to another, it comes back: neither sum of a
/// service ever falls, and nothing is counted twice.
#[test]
fn sums_never_fall() {
    let mut ledger = Ledger::default();
    let both = plan(&[("web", &[11, 12])], None, &Retired::default());
    ledger.add(&both, &counters(&[counted(100, 10, 2), counted(50, 5, 1)]));
    assert_eq!(packets(&ledger, "web"), 150);
    let one = plan(&[("web", &[12])], Some(&both), &Retired::default());
    ledger.add(&one, &counters(&[counted(110, 10, 2), counted(60, 6, 1)]));
    assert_eq!((packets(&ledger, "web"), ledger.owners()[0].counted.active), (170, 3));
    // Nobody uses the first id any more: it is given to another real server, and begins again.
    let first = both.services[0].reals[0];
    let retired = Retired { reals: [first].into(), ..Retired::default() };
    let other = plan(&[("web", &[12, 13])], Some(&one), &retired);
    assert_eq!(other.services[0].reals[1], first);
    ledger.add(&other, &counters(&[counted(7, 1, 1), counted(60, 6, 1)]));
    assert_eq!(packets(&ledger, "web"), 177);
    let reals: Vec<_> = ledger.accounts_of(&ledger.owners()[0]).collect();
    let told = reals.iter().map(|account| (account.real(), account.counted.packets[0]));
    let wanted = [("192.0.2.12:80".to_owned(), 60), ("192.0.2.13:80".to_owned(), 7)];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
    // A service that is gone leaves no series, and the whole keeps what it counted.
    // (The first has its address, and so its id, under another name.)
    let none = plan(&[("heir", &[8]), ("dns", &[9])], Some(&other), &Retired::default());
    let reals = [counted(7, 1, 1), counted(61, 6, 1), counted(0, 0, 0), counted(1, 1, 1)];
    ledger.add(&none, &counters(&reals));
    assert_eq!((packets(&ledger, "web"), packets(&ledger, "dns")), (0, 1));
    assert_eq!(ledger.all().packets[0], 179);
}

/// So do those of what was dropped of a service, whose id another may have had.
#[test]
fn drops_of_a_service_never_fall() {
    let counted = |packets: &[u64]| {
        let refused = |packets: &u64| {
            let mut drops = ServiceDrops::default();
            (0..*packets).for_each(|_| drops.count(Reason::ServiceFull));
            drops
        };
        let services = packets.iter().map(refused).collect();
        Counters { services, ..Counters::default() }
    };
    let told = |ledger: &Ledger| -> Vec<(String, u64)> {
        let of = |o: &sluice_meter::Owner| (o.name.to_string(), o.drops.of(Reason::ServiceFull));
        ledger.owners().iter().map(of).collect()
    };
    let mut ledger = Ledger::default();
    let two = plan(&[("web", &[11]), ("dns", &[12])], None, &Retired::default());
    ledger.add(&two, &counted(&[5, 1]));
    ledger.add(&two, &counted(&[7, 1]));
    assert_eq!(told(&ledger), [("web".to_owned(), 7), ("dns".to_owned(), 1)]);
    // The second service leaves and its id is given to another, which begins at none.
    let one = plan(&[("web", &[11])], Some(&two), &Retired::default());
    ledger.add(&one, &counted(&[8, 1]));
    let gone = ServiceId(1);
    let retired = Retired { services: [gone].into(), reals: [two.services[1].reals[0]].into() };
    let other = plan(&[("web", &[11]), ("ftp", &[13])], Some(&one), &retired);
    ledger.add(&other, &counted(&[8, 0]));
    ledger.add(&other, &counted(&[8, 2]));
    assert_eq!(told(&ledger), [("web".to_owned(), 8), ("ftp".to_owned(), 2)]);
}

fn meter() -> Meter {
    Meter::new(Identity { version: "1.2.3", began_unix_ms: 1_790_000_000_000 })
}

fn sample(plan: &Arc<Plan>, at_s: f64, counters: Counters, received: u64) -> Sample {
    let figures = WorkerFigures {
        packets: received,
        sessions: 42,
        work: Work { busy_ms: (at_s * 250.0) as u64, life_ms: (at_s * 1000.0) as u64 },
        ..WorkerFigures::default()
    };
    Sample {
        at: Duration::from_secs_f64(at_s),
        plan: Arc::clone(plan),
        counters: Some(counters),
        workers: vec![WorkerSample { core: 1, figures: Some(figures) }],
        ..Sample::default()
    }
}

/// Two hours at a constant rate: an hour of it is there, in whatever step, and the rate is right.
#[test]
fn an_hour_is_kept_and_no_more() {
    let plan = Arc::new(plan(&[("web", &[11]), ("idle", &[12])], None, &Retired::default()));
    let mut meter = meter();
    for second in 0..7_200_u64 {
        let real = counted(second * 30, second * 2, 5);
        let all = counters(&[real, RealCounters::default()]);
        meter.take(sample(&plan, second as f64 * 1.0, all, second * 40));
    }
    let now = 1_790_000_000_000 + 7_200_000;
    let rates = meter.rates(&RatesQuery::default(), now).expect("rates");
    assert_eq!((rates.step_s, rates.at_unix_s.len()), (2, 1_800));
    assert!(rates.inbound.packets_per_s.iter().all(|rate| *rate == 30.0));
    assert!(rates.inbound.bytes_per_s.iter().all(|rate| *rate == 3_000.0));
    assert!(rates.new_sessions_per_s.iter().all(|rate| *rate == 2.0));
    assert!(rates.sessions.iter().all(|sessions| *sessions == 42.0));
    assert!(rates.received_packets_per_s.expect("received").iter().all(|rate| *rate == 40.0));
    assert!(rates.workers[0].busy_share.iter().all(|share| *share == 0.25));

    let minute = RatesQuery { step_s: Some(59), ..RatesQuery::default() };
    let rates = meter.rates(&minute, now).expect("rates");
    assert_eq!(rates.step_s, 60);
    assert!((60..=61).contains(&rates.at_unix_s.len()), "{}", rates.at_unix_s.len());
    assert!(rates.inbound.packets_per_s.iter().all(|rate| *rate == 30.0));

    let since_unix_ms = Some(now - 10_000);
    let last = RatesQuery { since_unix_ms, ..RatesQuery::default() };
    let last = meter.rates(&last, now).expect("rates").at_unix_s;
    assert_eq!(last.len(), 4, "{last:?}");

    let of = |name: &str| RatesQuery { service: Some(name.to_owned()), ..RatesQuery::default() };
    let web = meter.rates(&of("web"), now).expect("rates");
    assert_eq!((web.step_s, web.at_unix_s.len()), (SERVICE_STEP_S, 120));
    assert!(web.inbound.packets_per_s.iter().all(|rate| *rate == 30.0));
    assert!(web.sessions.iter().all(|sessions| *sessions == 5.0) && web.drops_per_s.is_none());
    let idle = meter.rates(&of("idle"), now).expect("rates");
    assert_eq!(idle.inbound.packets_per_s, vec![0.0; 120]);
    assert_eq!(meter.rates(&of("wep"), now), Err(vec!["web".to_owned(), "idle".to_owned()]));
}

/// A director that hung, or whose worker did, tells of a longer time, not of a peak.
#[test]
fn a_gap_is_no_peak() {
    let plan = Arc::new(plan(&[("web", &[11])], None, &Retired::default()));
    let mut meter = meter();
    for second in [0, 2, 4, 64, 66] {
        let all = counters(&[counted(second * 10, 0, 0)]);
        meter.take(sample(&plan, second as f64, all, 0));
    }
    let rates = meter.rates(&RatesQuery::default(), 0).expect("rates");
    assert_eq!(rates.inbound.packets_per_s, [10.0; 4]);
    assert_eq!(rates.at_unix_s.last(), Some(&1_790_000_066.0));
}

/// Memory has a limit, whatever the number of services, and those beyond it are not told as zero.
#[test]
fn history_is_bounded() {
    let names: Vec<String> = (0..SERVICES_KEPT + 5).map(|at| format!("s{at}")).collect();
    let services: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &[11][..])).collect();
    let plan = Arc::new(plan(&services, None, &Retired::default()));
    let mut meter = meter();
    for second in [0_u64, 30, 60, 90] {
        let reals = vec![counted(second * 10, 0, 0); plan.reals.len()];
        meter.take(sample(&plan, second as f64, counters(&reals), 0));
    }
    let page = meter.page(sluice_api::Exposition::Text, Vec::new, || None).expect("a page");
    let page = String::from_utf8(page.into()).expect("text");
    let bytes = page.lines().find_map(|line| line.strip_prefix("sluice_history_bytes "));
    assert_eq!(bytes.and_then(|bytes| bytes.parse().ok()), Some(SERVICES_KEPT * 2_880));
    let of = |name: &str| RatesQuery { service: Some(name.to_owned()), ..RatesQuery::default() };
    let known = meter.rates(&of("s0"), 0).expect("rates").inbound.packets_per_s;
    let unknown = meter.rates(&of(&names[SERVICES_KEPT]), 0).expect("rates").at_unix_s;
    assert_eq!((known, unknown.len()), (vec![10.0; 3], 0));
}
