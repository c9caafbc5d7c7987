//! What the daemon does and notices becomes events for the operator.

use sluice_api::model::{Event, EventKind, PortState, Ports};
use sluice_director::Reason;
use sluice_state::{Applied, Author, Change, Refusal};
use std::collections::HashMap;

/// A change that is in force: an event for the whole, and one for each real server that an operator
/// said something about.
pub(crate) fn applied(author: &Author, applied: &Applied) -> Vec<Event> {
    let of =
        |event: Event| Event { author: Some(author.clone()), epoch: Some(applied.epoch), ..event };
    if applied.changes.is_empty() {
        return Vec::new();
    }
    let mut events = vec![of(Event {
        service: only_service(&applied.changes).unwrap_or_default().to_owned(),
        ..Event::new(EventKind::Config, applied.summary.clone())
    })];
    for change in &applied.changes {
        let Change::Override { service, real, .. } = change else { continue };
        events.push(of(Event {
            service: service.clone(),
            address: Some(real.ip()),
            port: Some(real.port()),
            ..Event::new(EventKind::Override, change.lines().join("; "))
        }));
    }
    events
}

/// The service that all changes are about, if they are about one.
fn only_service(changes: &[Change]) -> Option<&str> {
    let mut services = changes.iter().map(Change::service);
    let first = services.next()??;
    services.all(|service| service == Some(first)).then_some(first)
}

/// A file that was refused.
pub(crate) fn refused(refusal: &Refusal) -> Event {
    Event::new(EventKind::Reload, refusal.to_string())
}

/// Packets that were dropped for want of something.
pub(crate) fn dropped(due: &[(Reason, u64)]) -> Vec<Event> {
    let tell = |(reason, packets): &(Reason, u64)| {
        let text = format!("{}: {packets} packets: {}", reason.name(), reason.text());
        Event::new(EventKind::Drops, text)
    };
    due.iter().map(tell).collect()
}

/// The ports' states as they were last seen.
#[derive(Default)]
pub(crate) struct PortNews(HashMap<String, PortState>);

impl PortNews {
    /// Ports that are in another state than before. What is up at first is no news.
    pub(crate) fn look(&mut self, ports: &Ports) -> Vec<Event> {
        let mut events = Vec::new();
        for port in &ports.ports {
            let before = self.0.insert(port.name.clone(), port.state).unwrap_or(PortState::Up);
            if before != port.state {
                let word = match port.state {
                    PortState::Up => "is up",
                    PortState::Down => "is down, or has no carrier",
                    PortState::Gone => "is closed: its interface is gone",
                };
                events.push(Event::new(EventKind::Port, format!("port {} {word}", port.name)));
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::{Port, Received, Sent};

    fn ports(states: &[PortState]) -> Ports {
        let port = |(at, state): (usize, &PortState)| Port {
            name: format!("p{at}"),
            device: "tap:t".to_owned(),
            driver: String::new(),
            interface: None,
            mac: None,
            mtu: None,
            state: *state,
            queues: 1,
            twin: None,
            rx: Received::default(),
            tx: Sent::default(),
            steering: None,
        };
        Ports { ports: states.iter().enumerate().map(port).collect() }
    }

    #[test]
    fn a_port_is_told_once_for_each_change() {
        use PortState::{Down, Gone, Up};
        let mut news = PortNews::default();
        let told = |events: Vec<Event>| -> Vec<String> {
            events.into_iter().map(|event| event.reason).collect()
        };
        assert!(news.look(&ports(&[Up, Up])).is_empty());
        assert_eq!(told(news.look(&ports(&[Up, Down]))), ["port p1 is down, or has no carrier"]);
        assert!(news.look(&ports(&[Up, Down])).is_empty());
        let both = told(news.look(&ports(&[Gone, Up])));
        assert_eq!(both, ["port p0 is closed: its interface is gone", "port p1 is up"]);
    }
}
