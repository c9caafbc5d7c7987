//! What the operator's socket shows, put together from the workers' reports and the ports.

mod networks;
mod ports;
mod rules;

use crate::crew::Crew;
use sluice_api::model;
use sluice_config::{Config, Prefix, RealServer, Snat, VirtualService};
use sluice_director::counters::{Counters, Direction, RealCounters, ServiceDrops};
use sluice_director::path::{Elephant, SessionInfo, Stage};
use sluice_director::plan::{HealthState, Plan, RealId, Service, ServiceId};
use sluice_meter::{RecentWork, Work};
use sluice_worker::Report;
use std::collections::HashMap;
use std::net::SocketAddr;

pub use networks::{drops_in, networks};
pub use ports::{port_names, ports};
pub use rules::ports_rules;

/// The last epochs, the newest first.
pub fn history(history: &sluice_state::History, limit: usize) -> model::HistoryPage {
    let epochs = history.epochs().iter().rev().take(limit);
    model::HistoryPage {
        epoch: history.last(),
        reaches_back_to: history.reach().0,
        epochs: epochs.map(model::HistoryLine::from).collect(),
    }
}

/// Everything counted, over all workers.
pub fn total(reports: &[Report]) -> Counters {
    let mut sum = Counters::default();
    reports.iter().for_each(|report| sum.add(&report.counters));
    sum
}

/// Why packets of the service with this name were dropped; or the names of all services.
pub fn drops_of(plan: &Plan, reports: &[Report], name: &str) -> Result<model::Drops, Vec<String>> {
    let Some((id, _)) = plan.live_services().find(|(_, service)| service.name == name) else {
        let mut services: Vec<_> = plan.live_services().collect();
        services.sort_by_key(|(_, service)| service.position);
        return Err(services.into_iter().map(|(_, service)| service.name.clone()).collect());
    };
    let mut sum = ServiceDrops::default();
    for report in reports {
        report.counters.services.get(usize::from(id.0)).into_iter().for_each(|it| sum.add(it));
    }
    Ok(model::Drops::of_service(&sum))
}

/// Workers as they are shown.
pub fn workers(crew: &Crew, reports: &[Report], recent: &RecentWork) -> Vec<model::Worker> {
    let shown = |report: &Report| model::Worker {
        worker: report.worker,
        core: crew.core(report.worker),
        sessions: report.sessions.into(),
        session_capacity: report.session_capacity.into(),
        packets: report.packets,
        turns: report.turns,
        empty_turns: report.empty_turns,
        sleeps: report.sleeps,
        held_frames: report.held as u64,
        busy_share: recent.share(report.worker, work(report)),
    };
    reports.iter().map(shown).collect()
}

/// What a worker's time went into.
pub fn work(report: &Report) -> Work {
    Work { busy_ms: report.busy_ms, life_ms: report.life_ms }
}

/// Where the workers' time goes.
pub fn stages(crew: &Crew, reports: &[Report]) -> model::Stages {
    let of = |report: &Report| {
        let counts = &report.stages;
        let stages = Stage::ALL.map(|stage| model::StageTicks {
            stage: stage.name().to_owned(),
            ticks: counts.ticks[stage as usize],
        });
        model::WorkerStages {
            worker: report.worker,
            core: crew.core(report.worker),
            packets: report.packets,
            bursts: report.bursts,
            timed_packets: counts.packets,
            timed_bursts: counts.bursts,
            looked_up: counts.looked_up,
            found: counts.found,
            stages: stages.to_vec(),
        }
    };
    let ticks_per_s = reports.first().map_or(0, |report| report.ticks_per_s);
    model::Stages { ticks_per_s, workers: reports.iter().map(of).collect() }
}

/// The sessions with the most traffic of all workers, `limit` of them, and the flows that are
/// spread.
pub fn elephants(
    plan: &Plan,
    found: Vec<(u16, Elephant)>,
    limit: usize,
    spread: Vec<model::SpreadFlow>,
) -> model::Elephants {
    let rate = |elephant: &Elephant, direction: Direction| model::Rate {
        packets_per_s: elephant.packets_per_s[direction as usize],
        bytes_per_s: elephant.bytes_per_s[direction as usize],
    };
    let shown = found.iter().filter_map(|(worker, elephant)| {
        Some(model::Elephant {
            session: session(plan, *worker, &elephant.session)?,
            inbound: rate(elephant, Direction::Inbound),
            outbound: rate(elephant, Direction::Outbound),
            samples: elephant.samples,
        })
    });
    let mut elephants: Vec<_> = shown.collect();
    elephants.sort_by_key(|one| {
        std::cmp::Reverse(one.inbound.packets_per_s + one.outbound.packets_per_s)
    });
    elephants.truncate(limit);
    model::Elephants { elephants, spread }
}

/// Sessions of all workers together.
pub fn sessions(reports: &[Report], total: &Counters) -> model::SessionCounts {
    model::SessionCounts {
        live: reports.iter().map(|report| u64::from(report.sessions)).sum(),
        capacity: reports.iter().map(|report| u64::from(report.session_capacity)).sum(),
        created: total.created,
        closed: total.closed,
        expired: total.expired,
        killed: total.killed,
        evicted: total.evicted,
        half_open: reports.iter().map(|report| u64::from(report.half_open)).sum(),
        pressed_workers: reports.iter().filter(|report| report.pressed).count() as u16,
        ignored_ends: total.ignored_ends,
    }
}

/// Memory of the session tables.
pub fn memory(reports: &[Report]) -> model::Memory {
    model::Memory {
        bytes: reports.iter().map(|report| report.table_bytes as u64).sum(),
        pages: reports.first().map_or("", |report| report.table_pages).to_owned(),
        kept: !reports.is_empty() && reports.iter().all(|report| report.kept),
    }
}

/// Virtual services and rules of source NAT as they are shown: what the configuration says of
/// them, and what the plan's ids count.
pub fn services(config: &Config, plan: &Plan, reports: &[Report]) -> model::Services {
    let known = Known::of(reports);
    let by_name: HashMap<&str, (ServiceId, &Service)> =
        plan.live_services().map(|found| (found.1.name.as_str(), found)).collect();
    let rules: HashMap<&str, &Service> =
        plan.snat_rules().map(|(_, rule, _)| (rule.name.as_str(), rule)).collect();
    let services = config.services.iter().filter_map(|configured| {
        let (id, compiled) = by_name.get(configured.name.as_str())?;
        Some(service(plan, &known, configured, (*id, compiled)))
    });
    let rules = config.snat.iter().map(|configured| {
        let compiled = rules.get(configured.name.as_str());
        let reals = compiled.map_or(&[][..], |compiled| &compiled.reals);
        rule(configured, sum(reals.iter().map(|id| known.counted(*id))))
    });
    model::Services { services: services.collect(), snat: rules.collect() }
}

/// What workers know of real servers.
struct Known {
    total: Counters,
    /// At which workers each is full.
    full: HashMap<RealId, Vec<u16>>,
    workers: usize,
}

/// Real servers that are full at every one of `workers` workers.
pub fn full_everywhere(reports: &[Report], workers: usize) -> Vec<RealId> {
    let mut at: HashMap<RealId, usize> = HashMap::new();
    for real in reports.iter().flat_map(|report| &report.full) {
        *at.entry(*real).or_default() += 1;
    }
    at.into_iter().filter(|(_, count)| *count == workers).map(|(real, _)| real).collect()
}

impl Known {
    fn of(reports: &[Report]) -> Self {
        let mut full: HashMap<RealId, Vec<u16>> = HashMap::new();
        for report in reports {
            for real in &report.full {
                full.entry(*real).or_default().push(report.worker);
            }
        }
        Self { total: total(reports), full, workers: reports.len() }
    }

    fn counted(&self, id: RealId) -> RealCounters {
        self.total.reals.get(id.0 as usize).copied().unwrap_or_default()
    }

    fn full_at(&self, id: RealId) -> &[u16] {
        self.full.get(&id).map_or(&[], Vec::as_slice)
    }
}

fn sum(of: impl Iterator<Item = RealCounters>) -> RealCounters {
    of.fold(RealCounters::default(), |mut sum, counted| {
        sum.add(&counted);
        sum
    })
}

fn service(
    plan: &Plan,
    known: &Known,
    configured: &VirtualService,
    (id, compiled): (ServiceId, &Service),
) -> model::Service {
    // Both have the configuration's order.
    let of_service = configured.reals.iter().zip(&compiled.reals);
    let of_service: Vec<_> = of_service.map(|(real, id)| (real.clone(), *id, true)).collect();
    // Real servers that were removed and still have sessions.
    let leaving = plan.reals.iter().enumerate().filter_map(|(at, real)| {
        let real_id = RealId(at as u32);
        let left = real.service == id && !real.live && known.counted(real_id).active > 0;
        let (address, port, weight) = (real.address, real.port, real.weight);
        let mode = Some(real.mode);
        let real = RealServer { address, port, weight, mode, ..RealServer::default() };
        left.then_some((real, real_id, false))
    });
    let reals: Vec<_> = of_service.into_iter().chain(leaving).collect();
    let real = |(real, id, configured): &(RealServer, RealId, bool)| model::Real {
        address: real.address,
        port: real.port,
        mode: real.mode.unwrap_or(compiled.mode).name().to_owned(),
        weight: real.weight,
        state: state(
            real,
            plan.real(*id).map(|real| real.health_state),
            known.full_at(*id).len() == known.workers,
            *configured,
        ),
        full_at: known.full_at(*id).to_vec(),
        upper_sessions: real.upper_sessions,
        lower_sessions: lower(real),
        counted: known.counted(*id).into(),
    };
    model::Service {
        name: configured.name.clone(),
        network: named(&configured.network),
        protocol: configured.protocol.into(),
        vip: configured.vip,
        ports: configured.ports.to_string(),
        mode: model::mode_of(
            compiled.mode,
            configured.reals.iter().map(|real| real.mode.unwrap_or(compiled.mode)),
        )
        .to_owned(),
        scheduler: configured.scheduler.name().to_owned(),
        pool: named(&configured.pool),
        persistence: configured.persistence.map(model::Persistence::from),
        one_packet: configured.one_packet,
        client_address: configured.client_address.name().to_owned(),
        counted: sum(reals.iter().map(|(_, id, _)| known.counted(*id))).into(),
        reals: reals.iter().map(real).collect(),
    }
}

/// A name, if there is one.
fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// Sessions below which a real server is not full any more: three quarters, if it does not say.
fn lower(real: &RealServer) -> u32 {
    match real.lower_sessions {
        0 => (u64::from(real.upper_sessions) * 3).div_ceil(4) as u32,
        lower => lower.min(real.upper_sessions),
    }
}

/// Whether a real server that is full at all workers, or not, takes new sessions, and why not.
fn state(
    real: &RealServer,
    health_state: Option<HealthState>,
    full: bool,
    configured: bool,
) -> model::RealState {
    if configured && health_state == Some(HealthState::Down) {
        model::RealState::Down
    } else if !configured || real.weight == 0 {
        model::RealState::Draining
    } else if health_state == Some(HealthState::StandsBy) {
        model::RealState::Standby
    } else if real.upper_sessions > 0 && full {
        model::RealState::Full
    } else {
        model::RealState::Up
    }
}

fn rule(configured: &Snat, counted: RealCounters) -> model::SnatRule {
    let networks = |networks: &[Prefix]| networks.iter().map(Prefix::to_string).collect();
    let protocols = configured.protocols.iter().flatten();
    model::SnatRule {
        name: configured.name.clone(),
        network: named(&configured.network),
        sources: networks(&configured.sources),
        destinations: networks(configured.destinations.as_deref().unwrap_or_default()),
        protocols: protocols.map(|protocol| (*protocol).into()).collect(),
        egress: configured.egress.clone(),
        pool: configured.pool.clone(),
        mapping: configured.mapping.name().to_owned(),
        counted: counted.into(),
    }
}

/// A session as it is shown.
pub fn session(plan: &Plan, worker: u16, info: &SessionInfo) -> Option<model::Session> {
    let service = plan.service(info.service);
    let network = service.and_then(|service| plan.network_name(service.network));
    Some(model::Session {
        protocol: model::Protocol::of(info.protocol),
        client: SocketAddr::from(info.client),
        virtual_: SocketAddr::from(info.virtual_),
        local: info.local.map(SocketAddr::from),
        real: SocketAddr::from(info.real),
        mode: info.mode.name().to_owned(),
        state: model::SessionState::of(info.state)?,
        idle_ms: info.idle_ms.into(),
        expires_ms: info.expires_ms.into(),
        service: service.map_or_else(String::new, |service| service.name.clone()),
        network: network.map(str::to_owned),
        worker,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::Retired;
    use sluice_director::reason::Reason;

    const CONFIG: &str = r#"
        [[port]]
        name = "front"
        device = "af_xdp:eth0"
        [[pool]]
        name = "lan"
        addresses = ["192.0.2.10"]
        [[service]]
        name = "web"
        protocol = "tcp"
        vip = "198.51.100.200"
        port = 80
        mode = "fnat"
        pool = "lan"
        real = [
            { address = "192.0.2.11", port = 80, upper_sessions = 10, lower_sessions = 4 },
            { address = "192.0.2.12", port = 80, upper_sessions = 10 },
        ]
        [[snat]]
        name = "outbound"
        sources = ["192.0.2.0/25"]
        pool = "lan"
    "#;

    fn shown(full: [&[u32]; 2], active: u64) -> model::Services {
        let config = Config::parse("file", CONFIG).unwrap().config;
        let plan = Plan::compile(&config.spec(), None, &Retired::default()).unwrap();
        let counters = RealCounters { sessions: 20, active, ..RealCounters::default() };
        let counters = Counters {
            reals: vec![counters; plan.reals.len()],
            reasons: [0; Reason::COUNT],
            ..Counters::default()
        };
        let report = |worker: u16| Report {
            worker,
            counters: counters.clone(),
            full: full[usize::from(worker)].iter().map(|id| RealId(*id)).collect(),
            ..Report::default()
        };
        services(&config, &plan, &[report(0), report(1)])
    }

    /// A service has the mode of its real servers, whatever it would give one that says nothing:
    /// programs that know IPVS say it of each.
    #[test]
    fn a_services_mode_is_its_real_servers() {
        let mode = |[first, second]: [&str; 2]| {
            let text = CONFIG.replacen("upper_sessions", &format!("{first}upper_sessions"), 1);
            let text = text.replace("12\", port = 80, ", &format!("12\", port = 80, {second}"));
            let config = Config::parse("file", &text).unwrap().config;
            let plan = Plan::compile(&config.spec(), None, &Retired::default()).unwrap();
            services(&config, &plan, &[]).services[0].mode.clone()
        };
        assert_eq!(mode(["", ""]), "fnat");
        assert_eq!(mode(["mode = \"nat\", ", "mode = \"nat\", "]), "nat");
        assert_eq!(mode(["mode = \"dr\", ", ""]), "mixed");
    }

    /// What the schedulers think counts, not what the number of sessions looks like.
    #[test]
    fn full_is_who_gets_none() {
        let states = |full, active| {
            let shown = shown(full, active);
            let states = shown.services[0].reals.iter();
            states.map(|real| (real.state, real.full_at.clone())).collect::<Vec<_>>()
        };
        let (up, full) = (model::RealState::Up, model::RealState::Full);
        assert_eq!(states([&[], &[]], 6), [(up, vec![]), (up, vec![])]);
        assert_eq!(states([&[0], &[0]], 3), [(full, vec![0, 1]), (up, vec![])]);
        assert_eq!(states([&[1], &[0, 1]], 5), [(up, vec![1]), (full, vec![0, 1])]);
        let reals = &shown([&[], &[]], 0).services[0].reals;
        assert_eq!([reals[0].lower_sessions, reals[1].lower_sessions], [4, 8]);
    }

    #[test]
    fn rules_of_source_nat_are_counted() {
        let counted = shown([&[], &[]], 3).snat[0].counted;
        assert_eq!((counted.sessions_total, counted.sessions_active), (40, 6));
    }
}
