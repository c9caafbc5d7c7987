//! What the operator's socket shows, put together from the workers' reports and the ports.

use crate::crew::Crew;
use crate::ports::{Open, PortSlot, Ports};
use sluice_api::model;
use sluice_director::counters::{Counters, RealCounters};
use sluice_director::path::SessionInfo;
use sluice_director::plan::{Plan, RealId, Service, ServiceId};
use sluice_director::session::State;
use sluice_dpdk::PortState;
use sluice_worker::Report;
use std::net::SocketAddr;

/// Everything counted, over all workers.
pub fn total(reports: &[Report]) -> Counters {
    let mut sum = Counters::default();
    reports.iter().for_each(|report| sum.add(&report.counters));
    sum
}

/// Workers as they are shown.
pub fn workers(crew: &Crew, reports: &[Report]) -> Vec<model::Worker> {
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
        busy_share: report.busy_ms as f64 / report.life_ms.max(1) as f64,
    };
    reports.iter().map(shown).collect()
}

/// Sessions of all workers together.
pub fn sessions(reports: &[Report], total: &Counters) -> model::SessionCounts {
    model::SessionCounts {
        live: reports.iter().map(|report| u64::from(report.sessions)).sum(),
        capacity: reports.iter().map(|report| u64::from(report.session_capacity)).sum(),
        created: total.created,
        closed: total.closed,
        expired: total.expired,
    }
}

/// Memory of the session tables.
pub fn memory(reports: &[Report]) -> model::Memory {
    model::Memory {
        bytes: reports.iter().map(|report| report.table_bytes as u64).sum(),
        pages: reports.first().map_or("", |report| report.table_pages).to_owned(),
    }
}

/// Virtual services as they are shown.
pub fn services(plan: &Plan, total: &Counters) -> model::Services {
    let shown = |(id, service): (ServiceId, &Service)| {
        // Real servers that were removed and still have sessions.
        let leaving = plan.reals.iter().enumerate().filter(|(at, real)| {
            let active = total.reals.get(*at).is_some_and(|counted| counted.active > 0);
            real.service == id && !real.live && active
        });
        let leaving = leaving.map(|(at, _)| RealId(at as u32));
        let reals = service.reals.iter().copied().chain(leaving);
        let reals: Vec<_> = reals.filter_map(|id| real(plan, total, id)).collect();
        let mut sum = RealCounters::default();
        for (_, counted) in &reals {
            sum.add(counted);
        }
        model::Service {
            name: service.name.clone(),
            protocol: service.protocol.into(),
            vip: service.vip,
            port: service.ports.first,
            mode: service.mode.name().to_owned(),
            scheduler: service.scheduler.name().to_owned(),
            pool: plan.pools.get(service.pool).map_or_else(String::new, |pool| pool.name.clone()),
            counted: sum.into(),
            reals: reals.into_iter().map(|(shown, _)| shown).collect(),
        }
    };
    let mut services: Vec<_> = plan.live_services().collect();
    services.sort_by_key(|(_, service)| service.position);
    model::Services { services: services.into_iter().map(shown).collect() }
}

fn real(plan: &Plan, total: &Counters, id: RealId) -> Option<(model::Real, RealCounters)> {
    let real = plan.reals.get(id.0 as usize)?;
    let counted = total.reals.get(id.0 as usize).copied().unwrap_or_default();
    let takes_new = real.live && real.weight > 0;
    let shown = model::Real {
        address: real.address,
        port: real.port,
        weight: real.weight,
        state: if takes_new { model::RealState::Up } else { model::RealState::Draining },
        counted: counted.into(),
    };
    Some((shown, counted))
}

/// A session as it is shown.
pub fn session(plan: &Plan, worker: u16, info: &SessionInfo) -> Option<model::Session> {
    let protocol = match info.state {
        State::Udp => model::Protocol::Udp,
        _ => model::Protocol::Tcp,
    };
    Some(model::Session {
        protocol,
        client: SocketAddr::from(info.client),
        virtual_: SocketAddr::from(info.virtual_),
        local: SocketAddr::from(info.local),
        real: SocketAddr::from(info.real),
        state: model::SessionState::of(info.state)?,
        idle_ms: info.idle_ms.into(),
        expires_ms: info.expires_ms.into(),
        service: plan.service(info.service).map_or_else(String::new, |s| s.name.clone()),
        worker,
    })
}

/// Ports as they are shown.
pub fn ports(ports: &Ports) -> model::Ports {
    model::Ports { ports: ports.slots.iter().map(port).collect() }
}

fn port(slot: &PortSlot) -> model::Port {
    let config = &slot.config;
    let closed = model::Port {
        name: config.name.clone(),
        device: config.device.to_string(),
        driver: String::new(),
        interface: config.device.interface().map(str::to_owned),
        mac: None,
        mtu: None,
        state: model::PortState::Gone,
        queues: 0,
        twin: config.twin.clone(),
        rx: model::Received::default(),
        tx: model::Sent::default(),
        steering: None,
    };
    let Some(Open { port, twin, steer }) = &slot.open else { return closed };
    let stats = port.stats();
    let mac = port.mac().map(|byte| format!("{byte:02x}")).join(":");
    let control = twin.as_ref().unwrap_or(port).interface();
    model::Port {
        driver: port.driver().to_owned(),
        interface: control.map(|(name, _)| name.to_owned()),
        mac: Some(mac),
        mtu: Some(port.mtu()),
        state: match port.state() {
            PortState::Up => model::PortState::Up,
            PortState::Down => model::PortState::Down,
            PortState::Gone => model::PortState::Gone,
        },
        queues: port.queues(),
        rx: model::Received {
            packets: stats.rx_frames,
            bytes: stats.rx_bytes,
            missed: stats.rx_missed + stats.rx_no_buffer,
            errors: stats.rx_errors,
        },
        tx: model::Sent {
            packets: stats.tx_frames,
            bytes: stats.tx_bytes,
            errors: stats.tx_errors,
        },
        steering: steer.as_ref().and_then(steering),
        ..closed
    }
}

fn steering(steer: &sluice_steer::Steer) -> Option<model::Steering> {
    let counters = steer.counters().ok()?;
    Some(model::Steering {
        mode: match steer.mode() {
            sluice_steer::Mode::Native => model::SteeringMode::Native,
            sluice_steer::Mode::Generic => model::SteeringMode::Generic,
        },
        taken: counters.taken,
        passed: counters.passed,
        unowned: counters.unowned,
    })
}
