//! `sluice services` and `sluice sessions`.

use std::fmt::Display;
use std::net::IpAddr;

use anstyle::Style;
use sluice_api::SessionQuery;
use sluice_api::model::{Balanced, Real, RealState, Service, Services, Sessions, SnatRule};
use sluice_director::spec::ClientAddress;

use super::figures::{count, span_ms, traffic};
use super::networks::network_of;
use super::table::{Align, Cell, Table};
use super::{BAD, NOTE, Shown};

/// What stands for a local endpoint where there is none.
const NONE: &str = "-";

/// Virtual services, each with its real servers below it, and then rules of source NAT.
pub fn services(services: &Services, width: Option<usize>) -> Shown {
    use Align::{Left, Name, Right};
    let mut table = Table::new([
        ("SERVICE", Name),
        ("NETWORK", Left),
        ("ADDRESS", Left),
        ("FORWARDING", Name),
        ("ACTIVE", Right),
        ("ESTABLISHED", Right),
        ("BOUND", Right),
        ("SESSIONS", Right),
        ("PACKETS IN", Right),
        ("PACKETS OUT", Right),
        ("BYTES IN", Right),
        ("BYTES OUT", Right),
    ]);
    let isolated = services.services.iter().any(|service| service.network.is_some())
        || services.snat.iter().any(|rule| rule.network.is_some());
    for service in &services.services {
        table.row(with_counts(of_service(service), &service.counted));
        for real in &service.reals {
            table.row(with_counts(of_real(real, service), &real.counted));
        }
    }
    for rule in &services.snat {
        table.row(with_counts(of_rule(rule), &rule.counted));
    }
    match services.services.is_empty() && services.snat.is_empty() {
        true => Shown { text: String::new(), remark: Some("no services".to_owned()) },
        false => Shown::new(table.without("NETWORK", !isolated).within(width)),
    }
}

/// An address and what stands for its port: `192.0.2.11:80`, `[2001:db8::11]:*`.
pub(crate) fn endpoint(address: IpAddr, port: impl Display) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

/// A real server's port, which is 0 where it is the one that the client sent to.
pub(crate) fn real_port(port: u16) -> String {
    if port == 0 { "*".to_owned() } else { port.to_string() }
}

fn of_service(service: &Service) -> [Cell; 4] {
    let at = endpoint(service.vip, &service.ports);
    let mut forwarding = format!("{} {}", service.mode, service.scheduler);
    let mut more = |text: String| forwarding.extend([", ", &text]);
    if let Some(pool) = &service.pool {
        more(format!("pool {pool}"));
    }
    if service.one_packet {
        more("one packet".to_owned());
    }
    if let Some(persistence) = service.persistence {
        more(format!("persistent {} s by /{}", persistence.timeout_s, persistence.prefix));
    }
    if service.client_address != ClientAddress::Hidden.name() {
        more(service.client_address.clone());
    }
    let protocol = service.protocol.name();
    [
        service.name.as_str().into(),
        network_of(&service.network).into(),
        format!("{protocol} {at}").into(),
        forwarding.into(),
    ]
}

fn of_real(real: &Real, service: &Service) -> [Cell; 4] {
    let at = endpoint(real.address, real_port(real.port));
    let (state, style) = worded(real.state, &real.full_at, real.lower_sessions);
    let own = if real.mode == service.mode { "" } else { &format!("{}, ", real.mode) };
    let forwarding = Cell::from(format!("{own}weight {}, {state}", real.weight));
    let forwarding = style.map_or(forwarding.clone(), |style| forwarding.style(style));
    ["".into(), "".into(), format!("-> {at}").into(), forwarding]
}

/// A real server's state in words, and how they look.
fn worded(state: RealState, full_at: &[u16], lower: u32) -> (String, Option<Style>) {
    match state {
        RealState::Up if full_at.is_empty() => ("up".to_owned(), None),
        RealState::Up => (format!("full at {}", workers(full_at)), Some(NOTE)),
        RealState::Draining => ("draining".to_owned(), Some(NOTE)),
        RealState::Full => (format!("full until below {}", count(lower.into())), Some(NOTE)),
        RealState::Down => ("down".to_owned(), Some(BAD)),
        RealState::Standby => ("stands by".to_owned(), None),
    }
}

/// As [`worded`], in a cell of its own.
pub(super) fn state_of(state: RealState, full_at: &[u16], lower: u32) -> Cell {
    let (text, style) = worded(state, full_at, lower);
    let cell = Cell::from(text);
    style.map_or(cell.clone(), |style| cell.style(style))
}

/// Some workers by their numbers: `worker 0`, `workers 1, 2`.
fn workers(numbers: &[u16]) -> String {
    let listed: Vec<_> = numbers.iter().map(u16::to_string).collect();
    format!("worker{} {}", if numbers.len() == 1 { "" } else { "s" }, listed.join(", "))
}

fn of_rule(rule: &SnatRule) -> [Cell; 4] {
    let mut between = format!("from {}", first_of(&rule.sources));
    if !rule.destinations.is_empty() {
        between.extend([" to ", &first_of(&rule.destinations)]);
    }
    let protocols = rule.protocols.iter().map(|protocol| format!(" {}", protocol.name()));
    let protocols: String = protocols.collect();
    let egress = rule.egress.as_ref().map_or(String::new(), |port| format!(", by {port}"));
    let forwarding = format!("snat{protocols} {}{egress}, pool {}", rule.mapping, rule.pool);
    [rule.name.as_str().into(), network_of(&rule.network).into(), between.into(), forwarding.into()]
}

/// The first of a list, and how many more there are.
fn first_of(networks: &[String]) -> String {
    match networks {
        [] => String::new(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} (+{})", more.len()),
    }
}

fn with_counts(named: [Cell; 4], counted: &Balanced) -> [Cell; 12] {
    let [name, network, address, forwarding] = named;
    let Balanced { sessions_total, sessions_active, packets, bytes, .. } = counted;
    [
        name,
        network,
        address,
        forwarding,
        count(*sessions_active).into(),
        count(counted.sessions_established).into(),
        count(counted.clients_bound).into(),
        count(*sessions_total).into(),
        count(packets.inbound).into(),
        count(packets.outbound).into(),
        traffic(bytes.inbound).into(),
        traffic(bytes.outbound).into(),
    ]
}

/// Open sessions that were asked for by `query`.
pub fn sessions(sessions: &Sessions, query: &SessionQuery, width: Option<usize>) -> Shown {
    use Align::{Left, Name, Right};
    let mut table = Table::new([
        ("PROTOCOL", Left),
        ("CLIENT", Left),
        ("VIRTUAL", Left),
        ("LOCAL", Left),
        ("REAL", Left),
        ("MODE", Left),
        ("STATE", Left),
        ("IDLE", Right),
        ("EXPIRES IN", Right),
        ("WORKER", Right),
        ("NETWORK", Left),
        ("SERVICE", Name),
    ]);
    for session in &sessions.sessions {
        table.row([
            session.protocol.name().into(),
            session.client.to_string().into(),
            session.virtual_.to_string().into(),
            session.local.map_or(NONE.to_owned(), |local| local.to_string()).into(),
            session.real.to_string().into(),
            session.mode.as_str().into(),
            session.state.name().into(),
            span_ms(session.idle_ms).into(),
            span_ms(session.expires_ms).into(),
            session.worker.to_string().into(),
            network_of(&session.network).into(),
            session.service.as_str().into(),
        ]);
    }
    let unrestricted = SessionQuery { limit: query.limit, ..SessionQuery::default() };
    let remark = match (sessions.sessions.len(), sessions.more) {
        (0, _) if *query == unrestricted => Some("no sessions".to_owned()),
        (0, _) => Some("no session is like that".to_owned()),
        (_, true) => Some(format!(
            "there are more than these {}; go on with --cursor {}, or look for fewer",
            count(query.limit.into()),
            sessions.next.as_deref().unwrap_or_default()
        )),
        (_, false) => None,
    };
    let table = table.without("NETWORK", sessions.sessions.iter().all(|it| it.network.is_none()));
    let text = if sessions.sessions.is_empty() { String::new() } else { table.within(width) };
    Shown { text, remark }
}
