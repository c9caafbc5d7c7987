//! `sluice services` and `sluice sessions`.

use std::net::SocketAddr;

use sluice_api::SessionQuery;
use sluice_api::model::{Balanced, Real, RealState, Service, Services, Sessions};

use super::figures::{count, span_ms, traffic};
use super::table::{Align, Cell, Table};
use super::{NOTE, Shown};

/// Virtual services, each with its real servers below it.
pub fn services(services: &Services) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("SERVICE", Left),
        ("ADDRESS", Left),
        ("FORWARDING", Left),
        ("ACTIVE", Right),
        ("SESSIONS", Right),
        ("PACKETS IN", Right),
        ("PACKETS OUT", Right),
        ("BYTES IN", Right),
        ("BYTES OUT", Right),
    ]);
    for service in &services.services {
        table.row(with_counts(of_service(service), &service.counted));
        for real in &service.reals {
            table.row(with_counts(of_real(real), &real.counted));
        }
    }
    match services.services.is_empty() {
        true => Shown { text: String::new(), remark: Some("no services".to_owned()) },
        false => Shown::new(table.text()),
    }
}

fn of_service(service: &Service) -> [Cell; 3] {
    let at = SocketAddr::new(service.vip, service.port);
    let Service { name, protocol, mode, scheduler, pool, .. } = service;
    [
        name.as_str().into(),
        format!("{} {at}", protocol.name()).into(),
        format!("{mode} {scheduler}, pool {pool}").into(),
    ]
}

fn of_real(real: &Real) -> [Cell; 3] {
    let at = SocketAddr::new(real.address, real.port);
    let (state, style) = match real.state {
        RealState::Up => ("up", None),
        RealState::Draining => ("draining", Some(NOTE)),
    };
    let forwarding = Cell::from(format!("weight {}, {state}", real.weight));
    let forwarding = style.map_or(forwarding.clone(), |style| forwarding.style(style));
    ["".into(), format!("-> {at}").into(), forwarding]
}

fn with_counts([name, address, forwarding]: [Cell; 3], counted: &Balanced) -> [Cell; 9] {
    let Balanced { sessions_total, sessions_active, packets, bytes } = counted;
    [
        name,
        address,
        forwarding,
        count(*sessions_active).into(),
        count(*sessions_total).into(),
        count(packets.inbound).into(),
        count(packets.outbound).into(),
        traffic(bytes.inbound).into(),
        traffic(bytes.outbound).into(),
    ]
}

/// Open sessions that were asked for by `query`.
pub fn sessions(sessions: &Sessions, query: &SessionQuery) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PROTOCOL", Left),
        ("CLIENT", Left),
        ("VIRTUAL", Left),
        ("LOCAL", Left),
        ("REAL", Left),
        ("STATE", Left),
        ("IDLE", Right),
        ("EXPIRES IN", Right),
        ("WORKER", Right),
        ("SERVICE", Left),
    ]);
    for session in &sessions.sessions {
        table.row([
            session.protocol.name().into(),
            session.client.to_string().into(),
            session.virtual_.to_string().into(),
            session.local.to_string().into(),
            session.real.to_string().into(),
            session.state.name().into(),
            span_ms(session.idle_ms).into(),
            span_ms(session.expires_ms).into(),
            session.worker.to_string().into(),
            session.service.as_str().into(),
        ]);
    }
    let unrestricted = SessionQuery { limit: query.limit, ..SessionQuery::default() };
    let remark = match (sessions.sessions.len(), sessions.more) {
        (0, _) if *query == unrestricted => Some("no sessions".to_owned()),
        (0, _) => Some("no session is like that".to_owned()),
        (_, true) if query.limit < SessionQuery::MAX_LIMIT => Some(format!(
            "there are more than these {}; see more with --limit N, or look for fewer",
            count(query.limit.into())
        )),
        (_, true) => {
            Some(format!("there are more than these {}; look for fewer", count(query.limit.into())))
        }
        (_, false) => None,
    };
    let text = if sessions.sessions.is_empty() { String::new() } else { table.text() };
    Shown { text, remark }
}
