//! What the daemon does and notices becomes events for the operator.

use sluice_api::model::{Event, EventKind, PortState, Ports, SessionCounts};
use sluice_director::Reason;
use sluice_state::{Applied, Author, Change, Refusal};
use std::collections::HashMap;
use tracing::{info, warn};

/// A change that is in force: an event for the whole, and one for each real server that an operator
/// said something about. A whole that is one such word is told once, as that.
pub(crate) fn applied(author: &Author, applied: &Applied) -> Vec<Event> {
    let of =
        |event: Event| Event { author: Some(author.clone()), epoch: Some(applied.epoch), ..event };
    let over = |change: &Change, reason: String| {
        let Change::Override { service, real, .. } = change else { return None };
        Some(of(Event {
            service: service.clone(),
            address: Some(real.ip()),
            port: Some(real.port()),
            ..Event::new(EventKind::Override, reason)
        }))
    };
    match &applied.changes[..] {
        [] => return Vec::new(),
        // Its summary says as much, and whether it came by a rollback.
        [only @ Change::Override { .. }] => {
            return over(only, applied.summary.clone()).into_iter().collect();
        }
        _ => {}
    }
    let whole = of(Event {
        service: only_service(&applied.changes).unwrap_or_default().to_owned(),
        ..Event::new(EventKind::Config, applied.summary.clone())
    });
    let each = applied.changes.iter();
    let each = each.filter_map(|change| over(change, change.lines().join("; ")));
    [whole].into_iter().chain(each).collect()
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

/// What was last seen, to notice what has changed.
#[derive(Default)]
pub(crate) struct Seen {
    pub ports: PortNews,
    pub pressure: PressureNews,
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

/// Whether workers were under pressure from half-open sessions at the last look.
#[derive(Default)]
pub(crate) struct PressureNews {
    /// How many had been evicted before the pressure began.
    since: Option<u64>,
}

impl PressureNews {
    /// Says when that begins, and when it ends.
    pub(crate) fn look(&mut self, now: &SessionCounts) -> Option<Event> {
        let SessionCounts { half_open, live, evicted, .. } = *now;
        let text = match (self.since, now.pressed_workers) {
            (None, 1..) => {
                self.since = Some(evicted);
                let text = format!(
                    "pressure by half-open sessions began: {half_open} of {live} sessions are \
                     half-open; they expire after three seconds, and the oldest are evicted"
                );
                warn!(half_open, live, "{text}");
                text
            }
            (Some(before), 0) => {
                self.since = None;
                let gone = evicted.saturating_sub(before);
                let text = format!("pressure by half-open sessions ended: {gone} were evicted");
                info!(evicted = gone, "{text}");
                text
            }
            _ => return None,
        };
        Some(Event::new(EventKind::Sessions, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_told_when_it_begins_and_when_it_ends() {
        let mut news = PressureNews::default();
        let mut look = |pressed_workers, evicted| {
            let counts = SessionCounts {
                pressed_workers,
                evicted,
                half_open: 7,
                live: 9,
                ..SessionCounts::default()
            };
            news.look(&counts).map(|event| event.reason)
        };
        assert_eq!(look(0, 5), None);
        assert!(look(1, 6).is_some_and(|text| text.contains("7 of 9 sessions")));
        assert_eq!(look(2, 30), None);
        assert!(look(0, 36).is_some_and(|text| text.ends_with("30 were evicted")));
        assert_eq!(look(0, 36), None);
    }
    use sluice_api::model::{Port, Received, Sent};
    use sluice_state::{Override, RealState, Source};
    use std::net::SocketAddr;

    fn ports(states: &[PortState]) -> Ports {
        let port = |(at, state): (usize, &PortState)| Port {
            name: format!("p{at}"),
            device: "tap:t".to_owned(),
            network: None,
            driver: String::new(),
            interface: None,
            mac: None,
            mtu: None,
            state: *state,
            queues: 1,
            twin: None,
            rx: Received::default(),
            tx: Sent::default(),
            trouble: None,
            steering: None,
            copies: None,
        };
        Ports { ports: states.iter().enumerate().map(port).collect() }
    }

    fn drained(service: &str, last: u8) -> Change {
        let after = Override { state: Some(RealState::Drain), ..Override::default() };
        let real = SocketAddr::from(([192, 0, 2, last], 80));
        Change::Override { service: service.to_owned(), real, before: None, after: Some(after) }
    }

    #[test]
    fn an_override_is_told_once() {
        let tell = |summary: &str, changes: Vec<Change>| -> Vec<(EventKind, String)> {
            let summary = summary.to_owned();
            let done = Applied { epoch: 7, summary, changes, durable: true };
            let events = applied(&Author::of(Source::Api), &done);
            assert!(events.iter().all(|event| event.epoch == Some(7)));
            events.into_iter().map(|event| (event.kind, event.reason)).collect()
        };
        let line = "service \"web\": real 192.0.2.11:80: override (none) -> drain";
        let one = tell(line, vec![drained("web", 11)]);
        assert_eq!(one, [(EventKind::Override, line.to_owned())]);
        let back = tell(&format!("back to epoch 3: {line}"), vec![drained("web", 11)]);
        assert_eq!(back, [(EventKind::Override, format!("back to epoch 3: {line}"))]);
        // Of several the whole is a count.
        let two = tell("overrides: 2 changed", vec![drained("web", 11), drained("web", 12)]);
        let kinds: Vec<EventKind> = two.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [EventKind::Config, EventKind::Override, EventKind::Override]);
        assert_eq!(two.iter().filter(|(_, reason)| reason.contains("192.0.2.11")).count(), 1);
        assert!(tell("", Vec::new()).is_empty());
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
