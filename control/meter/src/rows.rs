//! The samples of each family, from what was counted last.

use crate::families as f;
use crate::families::Family;
use crate::ledger::{Account, Counted, Ledger, Owner, endpoint};
use crate::networks::label;
use crate::page::{Page, Value, labels};
use crate::process::Process;
use crate::sample::{Check, Sample, WorkerFigures};
use sluice_api::model;
use sluice_director::path::Stage;
use sluice_director::plan::{HealthState, Plan, Real, RealId, Service};
use sluice_director::reason::{Fate, Reason};
use std::collections::HashSet;

/// The states of a real server, as the command line names them.
pub(crate) const STATES: [&str; 5] = ["up", "full", "standby", "draining", "down"];
const UP: usize = 0;
const FULL: usize = 1;
const STANDBY: usize = 2;
const DRAINING: usize = 3;
const DOWN: usize = 4;

/// Labels of services and real servers, by their places in the ledger: made once a plan.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    epoch: Option<u64>,
    owners: Vec<String>,
    /// As the ledger's owners list them.
    accounts: Vec<Vec<String>>,
}

impl Tags {
    /// Makes them anew if they are those of another plan.
    pub fn follow(&mut self, plan: &Plan, ledger: &Ledger) {
        if self.epoch == Some(plan.epoch) {
            return;
        }
        self.epoch = Some(plan.epoch);
        let network = |owner: &Owner| label(plan, plan.service(owner.id)?.network);
        let tag = |owner: &Owner, own: &[(&str, &str)]| {
            labels(&own.iter().copied().chain(network(owner)).collect::<Vec<_>>())
        };
        let owner = |owner: &Owner| {
            tag(owner, &[(if owner.is_rule { "rule" } else { "service" }, &owner.name)])
        };
        self.owners = ledger.owners().iter().map(owner).collect();
        let accounts = |owner: &Owner| {
            let of = |account: &Account| {
                tag(owner, &[("service", &owner.name), ("real", &account.real())])
            };
            ledger.accounts_of(owner).map(of).collect()
        };
        self.accounts = ledger.owners().iter().map(accounts).collect();
    }
}

/// A real server that has series.
struct Row<'a> {
    tag: &'a str,
    account: &'a Account,
    state: usize,
    weight: u16,
}

/// The director itself.
pub(crate) fn director(page: &mut Page, sample: &Sample, version: &str, times: [f64; 2]) {
    let [sampled, reloaded] = times;
    page.family(&f::BUILD);
    page.sample(&labels(&[("version", version)]), None, true);
    page.one(&f::SAMPLED, sampled);
    page.one(&f::CONFIG_EPOCH, sample.config_epoch);
    page.one(&f::PLAN_EPOCH, sample.plan.epoch);
    page.one(&f::DURABLE, sample.durable);
    page.one(&f::DIFFERS, sample.differs_from_file);
    page.one(&f::RELOAD_OK, sample.last_reload.as_ref().is_none_or(|reload| reload.ok));
    page.one(&f::RELOAD_AT, reloaded);
    page.one(&f::HUGE_PAGES, sample.huge_pages);
    page.one(&f::CHECK_RESTARTS, sample.check_restarts);
}

/// Sessions of all workers together, and reasons. What workers said last.
pub(crate) fn sessions(
    page: &mut Page,
    counters: &sluice_director::counters::Counters,
    workers: &[(u16, bool, WorkerFigures)],
) {
    let sum =
        |of: fn(&WorkerFigures) -> u64| workers.iter().map(|(_, _, said)| of(said)).sum::<u64>();
    page.one(&f::SESSIONS, sum(|said| said.sessions));
    page.one(&f::SESSIONS_LIMIT, sum(|said| said.session_capacity));
    page.one(&f::SESSIONS_OPENED, counters.created);
    page.one(&f::SESSIONS_CLOSED, counters.closed);
    page.one(&f::SESSIONS_EXPIRED, counters.expired);
    page.one(&f::SESSIONS_KILLED, counters.killed);
    page.one(&f::SESSIONS_EVICTED, counters.evicted);
    page.one(&f::SESSIONS_HALF_OPEN, sum(|said| said.half_open));
    page.one(&f::PRESSED, sum(|said| u64::from(said.pressed)));
    page.one(&f::ENDS_IGNORED, counters.ignored_ends);
    page.one(&f::TABLE_BYTES, sum(|said| said.table_bytes));
    for (family, fate) in [(&f::DROPPED, Fate::Dropped), (&f::TO_KERNEL, Fate::Kernel)] {
        page.family(family);
        for reason in Reason::ALL.iter().filter(|reason| reason.fate() == fate) {
            page.sample("", Some(("reason", reason.name())), counters.of(*reason));
        }
    }
}

type Column = (&'static Family, fn(&Counted) -> u64);

const SERVICE_COLUMNS: [Column; 9] = [
    (&f::SERVICE_SESSIONS, |c| c.active),
    (&f::SERVICE_ESTABLISHED, |c| c.established.into()),
    (&f::SERVICE_CLOSING, |c| c.closing.into()),
    (&f::SERVICE_BOUND, |c| c.bound.into()),
    (&f::SERVICE_OPENED, |c| c.sessions),
    (&f::SERVICE_IN_PACKETS, |c| c.packets[0]),
    (&f::SERVICE_OUT_PACKETS, |c| c.packets[1]),
    (&f::SERVICE_IN_BYTES, |c| c.bytes[0]),
    (&f::SERVICE_OUT_BYTES, |c| c.bytes[1]),
];
const REAL_COLUMNS: [Column; 9] = [
    (&f::REAL_SESSIONS, |c| c.active),
    (&f::REAL_ESTABLISHED, |c| c.established.into()),
    (&f::REAL_CLOSING, |c| c.closing.into()),
    (&f::REAL_BOUND, |c| c.bound.into()),
    (&f::REAL_OPENED, |c| c.sessions),
    (&f::REAL_IN_PACKETS, |c| c.packets[0]),
    (&f::REAL_OUT_PACKETS, |c| c.packets[1]),
    (&f::REAL_IN_BYTES, |c| c.bytes[0]),
    (&f::REAL_OUT_BYTES, |c| c.bytes[1]),
];
const SNAT_COLUMNS: [Column; 6] = [
    (&f::SNAT_SESSIONS, |c| c.active),
    (&f::SNAT_OPENED, |c| c.sessions),
    (&f::SNAT_IN_PACKETS, |c| c.packets[0]),
    (&f::SNAT_OUT_PACKETS, |c| c.packets[1]),
    (&f::SNAT_IN_BYTES, |c| c.bytes[0]),
    (&f::SNAT_OUT_BYTES, |c| c.bytes[1]),
];

/// Services and their real servers, and rules of source NAT.
pub(crate) fn balanced(page: &mut Page, sample: &Sample, ledger: &Ledger, tags: &Tags) {
    let plan = &sample.plan;
    let owners = || ledger.owners().iter().zip(&tags.owners);
    let services = || owners().filter(|(owner, _)| !owner.is_rule);
    page.family(&f::SERVICE);
    for (owner, _) in services() {
        let Some(service) = plan.service(owner.id) else { continue };
        let (vip, ports) = (service.vip.to_string(), service.ports.to_string());
        let tag = [
            ("service", &*owner.name),
            ("protocol", model::Protocol::from(service.protocol).name()),
            ("vip", &vip),
            ("port", &ports),
            ("mode", mode_of(plan, service)),
            ("scheduler", service.scheduler.name()),
        ];
        let tag: Vec<_> = tag.into_iter().chain(label(plan, service.network)).collect();
        page.sample(&labels(&tag), None, true);
    }
    for (family, of) in SERVICE_COLUMNS {
        page.family(family);
        services().for_each(|(owner, tag)| page.sample(tag, None, of(&owner.counted)));
    }
    page.family(&f::SERVICE_DROPPED);
    for (owner, tag) in services() {
        for (reason, packets) in owner.drops.by_reason().filter(|(_, packets)| *packets > 0) {
            page.sample(tag, Some(("reason", reason.name())), packets);
        }
    }
    let full: HashSet<RealId> = sample.full.iter().copied().collect();
    let shown = rows(plan, ledger, tags, &full);
    page.family(&f::SERVICE_REALS);
    for ((_, tag), rows) in services().zip(&shown) {
        let mut counts = [0_u64; STATES.len()];
        rows.iter().for_each(|row| counts[row.state] += 1);
        for (state, count) in STATES.iter().zip(counts) {
            page.sample(tag, Some(("state", state)), count);
        }
    }
    if sample.real_servers {
        reals(page, &shown);
    }
    for (family, of) in SNAT_COLUMNS {
        page.family(family);
        let rules = owners().filter(|(owner, _)| owner.is_rule);
        rules.for_each(|(owner, tag)| page.sample(tag, None, of(&owner.counted)));
    }
}

/// As `sluice services` shows it.
fn mode_of(plan: &Plan, service: &Service) -> &'static str {
    let reals = service.reals.iter().filter_map(|id| plan.real(*id));
    model::mode_of(service.mode, reals.map(|real| real.mode))
}

fn reals(page: &mut Page, shown: &[Vec<Row<'_>>]) {
    page.family(&f::REAL_UP);
    shown.iter().flatten().for_each(|row| page.sample(row.tag, None, row.state != DOWN));
    page.family(&f::REAL_STATE);
    for row in shown.iter().flatten() {
        page.sample(row.tag, Some(("state", STATES[row.state])), true);
    }
    page.family(&f::REAL_WEIGHT);
    shown.iter().flatten().for_each(|row| page.sample(row.tag, None, u64::from(row.weight)));
    for (family, of) in REAL_COLUMNS {
        page.family(family);
        for row in shown.iter().flatten() {
            page.sample(row.tag, None, of(&row.account.counted));
        }
    }
}

/// The real servers of each service that have series: the configured ones, and those that have
/// left and still have sessions.
fn rows<'a>(
    plan: &Plan,
    ledger: &'a Ledger,
    tags: &'a Tags,
    full: &HashSet<RealId>,
) -> Vec<Vec<Row<'a>>> {
    let services = ledger.owners().iter().zip(&tags.accounts).filter(|(o, _)| !o.is_rule);
    let row = |(account, tag): (&'a Account, &'a String)| {
        let live = account.live.and_then(|id| Some((id, plan.real(id)?)));
        let (state, weight) = match live {
            Some((id, real)) => (state(real, full.contains(&id)), real.weight),
            None if account.counted.active > 0 => (DRAINING, 0),
            None => return None,
        };
        Some(Row { tag, account, state, weight })
    };
    services.map(|(o, tags)| ledger.accounts_of(o).zip(tags).filter_map(row).collect()).collect()
}

/// As `sluice services` shows it.
fn state(real: &Real, full: bool) -> usize {
    match real.health_state {
        HealthState::Down => DOWN,
        _ if real.weight == 0 => DRAINING,
        HealthState::StandsBy => STANDBY,
        HealthState::Serves if real.upper_sessions > 0 && full => FULL,
        HealthState::Serves => UP,
    }
}

/// Health checks.
pub(crate) fn checks(page: &mut Page, checks: &[Check]) {
    let tag = |check: &Check| {
        let real = endpoint(check.address, check.port);
        labels(&[("service", &check.service), ("real", &real), ("check", &check.check)])
    };
    let mut tagged: Vec<_> = checks.iter().map(|check| (tag(check), check)).collect();
    tagged.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    page.family(&f::CHECK_UP);
    for (tag, check) in &tagged {
        check.up.into_iter().for_each(|up| page.sample(tag, None, up));
    }
    page.family(&f::CHECK_PASSED);
    for (tag, check) in &tagged {
        check.passed.into_iter().for_each(|passed| page.sample(tag, None, passed));
    }
    page.family(&f::CHECK_SECONDS);
    for (tag, check) in &tagged {
        check.took_s.into_iter().for_each(|took| page.sample(tag, None, took));
    }
    page.family(&f::CHECK_PROBES);
    tagged.iter().for_each(|(tag, check)| page.sample(tag, None, check.probes));
}

type WorkerColumn = (&'static Family, fn(&WorkerFigures) -> u64);

const WORKER_COLUMNS: [WorkerColumn; 15] = [
    (&f::WORKER_PACKETS, |w| w.packets),
    (&f::WORKER_BURSTS, |w| w.bursts),
    (&f::WORKER_TURNS, |w| w.turns),
    (&f::WORKER_EMPTY, |w| w.empty_turns),
    (&f::WORKER_SLEEPS, |w| w.sleeps),
    (&f::WORKER_HANDED, |w| w.handed_off),
    (&f::WORKER_SPREAD_FLOWS, |w| w.spread_flows),
    (&f::WORKER_SPREAD, |w| w.spread_packets),
    (&f::WORKER_HELD, |w| w.held),
    (&f::WORKER_SESSIONS, |w| w.sessions),
    (&f::WORKER_LIMIT, |w| w.session_capacity),
    (&f::WORKER_TIMED, |w| w.timed_bursts),
    (&f::WORKER_TIMED_PACKETS, |w| w.timed_packets),
    (&f::WORKER_LOOKUPS, |w| w.looked_up),
    (&f::WORKER_HITS, |w| w.found),
];

/// Workers: their core, whether they answered, and what they said last.
pub(crate) fn workers(page: &mut Page, workers: &[(u16, bool, WorkerFigures)]) {
    let tags: Vec<String> =
        (0..workers.len()).map(|number| labels(&[("worker", &number.to_string())])).collect();
    let tagged = || tags.iter().zip(workers);
    page.family(&f::WORKER);
    for (tag, (core, ..)) in tagged() {
        page.sample(tag, Some(("core", itoa::Buffer::new().format(*core))), true);
    }
    page.family(&f::WORKER_UP);
    tagged().for_each(|(tag, (_, answered, _))| page.sample(tag, None, *answered));
    page.family(&f::WORKER_SECONDS);
    for (tag, (_, _, said)) in tagged() {
        let [busy, life] = [said.work.busy_ms, said.work.life_ms].map(|ms| ms as f64 / 1e3);
        page.sample(tag, Some(("mode", "busy")), busy);
        page.sample(tag, Some(("mode", "idle")), (life - busy).max(0.0));
    }
    for (family, of) in WORKER_COLUMNS {
        page.family(family);
        tagged().for_each(|(tag, (_, _, said))| page.sample(tag, None, of(said)));
    }
    page.family(&f::WORKER_STAGES);
    for (tag, (_, _, said)) in tagged() {
        for stage in Stage::ALL {
            let seconds = said.stage_s[stage as usize];
            page.sample(tag, Some(("stage", stage.name())), seconds);
        }
    }
}

type PortColumn = (&'static Family, fn(&model::Port) -> u64);

const PORT_COLUMNS: [PortColumn; 8] = [
    (&f::PORT_QUEUES, |p| p.queues.into()),
    (&f::PORT_RX_PACKETS, |p| p.rx.packets),
    (&f::PORT_RX_BYTES, |p| p.rx.bytes),
    (&f::PORT_RX_MISSED, |p| p.rx.missed),
    (&f::PORT_RX_ERRORS, |p| p.rx.errors),
    (&f::PORT_TX_PACKETS, |p| p.tx.packets),
    (&f::PORT_TX_BYTES, |p| p.tx.bytes),
    (&f::PORT_TX_ERRORS, |p| p.tx.errors),
];

/// Ports.
pub(crate) fn ports(page: &mut Page, ports: &[model::Port]) {
    let tagged: Vec<_> = ports.iter().map(|port| (labels(&[("port", &port.name)]), port)).collect();
    page.family(&f::PORT);
    for port in ports {
        let interface = port.interface.as_deref().unwrap_or_default();
        let tag = [
            ("port", port.name.as_str()),
            ("device", &port.device),
            ("driver", &port.driver),
            ("interface", interface),
        ];
        page.sample(&labels(&tag), None, true);
    }
    page.family(&f::PORT_UP);
    tagged.iter().for_each(|(tag, p)| page.sample(tag, None, p.state == model::PortState::Up));
    page.family(&f::PORT_MTU);
    for (tag, port) in &tagged {
        port.mtu.into_iter().for_each(|mtu| page.sample(tag, None, u64::from(mtu)));
    }
    for (family, of) in PORT_COLUMNS {
        page.family(family);
        tagged.iter().for_each(|(tag, port)| page.sample(tag, None, of(port)));
    }
    page.family(&f::PORT_STEERED);
    for (tag, port) in &tagged {
        let Some(steering) = port.steering else { continue };
        for (verdict, packets) in
            [("taken", steering.taken), ("passed", steering.passed), ("unowned", steering.unowned)]
        {
            page.sample(tag, Some(("verdict", verdict)), packets);
        }
    }
    page.family(&f::PORT_COPIES);
    for (tag, port) in &tagged {
        let Some(copies) = port.copies else { continue };
        for (outcome, count) in
            [("offloaded", copies.offloaded), ("full", copies.full), ("failed", copies.failed)]
        {
            page.sample(tag, Some(("outcome", outcome)), count);
        }
    }
}

/// Virtual addresses.
pub(crate) fn addresses(page: &mut Page, ha: &model::Ha) {
    let tagged = ha.addresses.iter().map(|it| (labels(&[("vip", &it.vip.to_string())]), it));
    let tagged: Vec<_> = tagged.collect();
    page.family(&f::VIP_HELD);
    tagged.iter().for_each(|(tag, it)| page.sample(tag, None, it.interface.is_some()));
    page.family(&f::VIP_CHANGES);
    tagged.iter().for_each(|(tag, it)| page.sample(tag, None, it.changes));
    page.one(&f::DRAINING, ha.draining);
    groups(page, ha);
    if ha.announce.is_empty() {
        return;
    }
    let sum = |of: fn(&model::HaAnnounce) -> u64| ha.announce.iter().map(of).sum::<u64>();
    let counts = [("vip", sum(|it| it.vips)), ("pool", sum(|it| it.pool_addresses))];
    page.family(&f::ANNOUNCED);
    for (kind, count) in counts {
        page.sample(&labels(&[("kind", kind)]), None, count);
    }
    page.one(&f::UNSERVED, sum(|it| it.unserved.len() as u64));
}

/// What programs that move addresses say.
fn groups(page: &mut Page, ha: &model::Ha) {
    let tagged = ha.transitions.iter().map(|it| {
        let kind = match it.last.kind {
            model::HaGroupKind::Group => "group",
            model::HaGroupKind::Instance => "instance",
        };
        let (program, name) = (&*it.last.program, &*it.last.name);
        (labels(&[("program", program), ("kind", kind), ("name", name)]), it)
    });
    let tagged: Vec<_> = tagged.collect();
    page.family(&f::GROUP_STATE);
    for (tag, it) in &tagged {
        let state = it.last.state.name().to_ascii_lowercase();
        page.sample(tag, Some(("state", &*state)), true);
    }
    page.family(&f::GROUP_CHANGES);
    tagged.iter().for_each(|(tag, it)| page.sample(tag, None, it.changes));
    page.one(&f::DISAGREES, ha.disagreement.is_some());
}

type PeerColumn = (&'static Family, fn(&model::HaPeer) -> Value);

const PEER_COLUMNS: [PeerColumn; 6] = [
    (&f::SYNC_PEER_UP, |peer| peer.up.into()),
    (&f::SYNC_PEER_SYNCHRONISED, |peer| peer.synchronised.into()),
    (&f::SYNC_PEER_DIFFERS, |peer| peer.differs.into()),
    (&f::SYNC_PEER_BEHIND, |peer| peer.behind.into()),
    (&f::SYNC_PEER_LAG, |peer| (peer.lag_ms / 1e3).into()),
    (&f::SYNC_PEER_UNACKNOWLEDGED, |peer| peer.unacknowledged.into()),
];

/// Session synchronisation.
pub(crate) fn synchronisation(page: &mut Page, sync: &model::HaSync) {
    let tagged = sync.peers.iter().map(|it| (labels(&[("peer", &it.address.to_string())]), it));
    let tagged: Vec<_> = tagged.collect();
    page.one(&f::SYNCHRONISED, sync.synchronised);
    for (family, of) in PEER_COLUMNS {
        page.family(family);
        tagged.iter().for_each(|(tag, peer)| page.sample(tag, None, of(peer)));
    }
    page.one(&f::SYNC_REPORTS_WAITING, sync.reports_waiting);
    page.one(&f::SYNC_REPORTS_SENT, sync.reports_sent);
    page.family(&f::SYNC_REPORTS_RECEIVED);
    let model::HaReports { new, newer, ended, older, unknown, refused } = sync.reports_received;
    for (result, reports) in [
        ("new", new),
        ("newer", newer),
        ("ended", ended),
        ("older", older),
        ("unknown", unknown),
        ("refused", refused),
    ] {
        page.sample("", Some(("result", result)), reports);
    }
    page.one(&f::SYNC_ENDS_UNREPORTED, sync.ends_unreported);
    let datagrams = &sync.datagrams;
    page.one(&f::SYNC_SENT, datagrams.sent);
    page.one(&f::SYNC_RECEIVED, datagrams.received);
    page.one(&f::SYNC_TO_GROUP, datagrams.to_group);
    page.one(&f::SYNC_REPAIRED, datagrams.repaired);
    page.one(&f::SYNC_LOST, datagrams.lost);
    page.family(&f::SYNC_REJECTED);
    for (reason, rejected) in [
        ("forged", datagrams.forged),
        ("replayed", datagrams.replayed),
        ("malformed", datagrams.malformed),
    ] {
        page.sample("", Some(("reason", reason)), rejected);
    }
    page.one(&f::SYNC_SENT_BYTES, datagrams.bytes_sent);
    page.one(&f::SYNC_RECEIVED_BYTES, datagrams.bytes_received);
}

/// The process.
pub(crate) fn process(page: &mut Page, process: &Process, started_unix_s: f64) {
    page.one(&f::PROCESS_CPU, process.cpu.as_secs_f64());
    page.one(&f::PROCESS_OPEN_FDS, process.open_fds);
    if let Some(max) = process.max_fds {
        page.one(&f::PROCESS_MAX_FDS, max);
    }
    page.one(&f::PROCESS_RESIDENT, process.resident_bytes);
    page.one(&f::PROCESS_VIRTUAL, process.virtual_bytes);
    page.one(&f::PROCESS_THREADS, process.threads);
    page.one(&f::PROCESS_START, started_unix_s);
}
