//! What has happened: the last events, kept for whoever asks, and told to whoever follows.
//!
//! Everybody who follows reads from the one list, each at a place of its own: there is no queue to
//! fill, and who is too slow finds that the list went on, and is told how much was missed.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::model::{Event, EventKind, Events};
use crate::query::WrongValue;

/// Between signs of life on a stream where nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that are written at a time.
const TOGETHER: usize = 64;

/// Which events. What is empty does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Of one of these kinds.
    pub kinds: Vec<EventKind>,
    /// About this service.
    pub service: Option<String>,
    /// After the one with this number. `None`: all that are kept; of a stream those to come.
    pub after: Option<u64>,
}

impl EventQuery {
    /// Whether an event is one of those that are asked for; its number aside.
    pub fn matches(&self, event: &Event) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.service.as_ref().is_none_or(|service| *service == event.service)
    }

    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let kinds = self.kinds.iter().map(|kind| ("kind", kind.name().to_owned()));
        let service = self.service.iter().map(|service| ("service", service.clone()));
        let after = self.after.iter().map(|after| ("after", after.to_string()));
        kinds.chain(service).chain(after).collect()
    }
}

/// The last [`Events::KEPT`] events.
#[derive(Debug)]
pub struct EventLog {
    kept: Mutex<VecDeque<Event>>,
    /// Number of the last one.
    last: watch::Sender<u64>,
    /// Tells this director's events from those of one before it.
    started: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            last: watch::Sender::new(0),
            started: now_unix_ms(SystemTime::now()),
        }
    }
}

fn now_unix_ms(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl EventLog {
    /// Notes an event, which gets its number, and its time unless it has one.
    pub fn note(&self, mut event: Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        event.id = kept.back().map_or(1, |last| last.id + 1);
        if event.at_unix_ms == 0 {
            event.at_unix_ms = now_unix_ms(SystemTime::now());
        }
        if kept.len() == Events::KEPT {
            kept.pop_front();
        }
        let id = event.id;
        kept.push_back(event);
        drop(kept);
        self.last.send_replace(id);
    }

    /// Those that are asked for.
    pub fn list(&self, query: &EventQuery) -> Events {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let after = query.after.unwrap_or(0);
        let wanted = kept.iter().filter(|event| event.id > after && query.matches(event));
        Events { events: wanted.cloned().collect() }
    }

    /// The next after a number, and how many between are not kept any more.
    fn next(&self, after: u64) -> (Vec<Event>, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = kept.front() else { return (Vec::new(), 0) };
        let lost = (first.id - 1).saturating_sub(after);
        let from = (after + lost + 1 - first.id) as usize;
        (kept.iter().skip(from).take(TOGETHER).cloned().collect(), lost)
    }

    fn last_id(&self) -> u64 {
        *self.last.borrow()
    }

    /// The name of an event in a stream.
    fn name(&self, id: u64) -> String {
        format!("{:x}-{id}", self.started)
    }

    /// The place that a client was at, and whether it was one of this director's life.
    fn place(&self, name: &str) -> Result<(u64, bool), WrongValue> {
        let wrong = || WrongValue::new(name, "the id of an event that this stream has sent");
        let (started, id) = name.split_once('-').ok_or_else(wrong)?;
        let started = u64::from_str_radix(started, 16).map_err(|_| wrong())?;
        let id: u64 = id.parse().map_err(|_| wrong())?;
        Ok(match started == self.started {
            // What this director has not said yet nobody can have heard.
            true => (id.min(self.last_id()), true),
            false => (0, false),
        })
    }
}

/// What a client gets who follows.
pub(crate) struct Feed {
    log: Arc<EventLog>,
    changed: watch::Receiver<u64>,
    /// Changes when whoever follows has to show again that they may.
    expires: Option<watch::Receiver<u64>>,
    query: EventQuery,
    after: u64,
    waiting: VecDeque<Bytes>,
    /// What limits how many may follow.
    _place: OwnedSemaphorePermit,
}

impl Feed {
    /// From where the query says, or from where a client was that lost its connection.
    pub(crate) fn new(
        log: &Arc<EventLog>,
        query: EventQuery,
        last_id: Option<&str>,
        expires: Option<watch::Receiver<u64>>,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, WrongValue> {
        let (mut after, mut known) = (query.after.unwrap_or_else(|| log.last_id()), true);
        if let Some(name) = last_id {
            (after, known) = log.place(name)?;
        }
        let mut feed = Self {
            changed: log.last.subscribe(),
            log: Arc::clone(log),
            expires,
            query,
            after: after.min(log.last_id()),
            waiting: VecDeque::new(),
            _place: place,
        };
        // So that the answer begins at once.
        feed.waiting.push_back(Bytes::from_static(b"retry: 2000\n: following\n\n"));
        if !known {
            feed.waiting.push_back(Bytes::from_static(b"event: lost\ndata: {\"lost\":null}\n\n"));
        }
        Ok(feed)
    }

    /// What is to be written next; `None` at the end.
    pub(crate) async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if let Some(bytes) = self.waiting.pop_front() {
                return Some((bytes, self));
            }
            self.changed.borrow_and_update();
            if self.gather() {
                continue;
            }
            let over = async {
                match &mut self.expires {
                    Some(expires) => drop(expires.changed().await),
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                changed = tokio::time::timeout(HEARTBEAT, self.changed.changed()) => changed,
                () = over => return None,
            };
            match changed {
                Ok(Ok(())) => {}
                // Nothing will ever happen again.
                Ok(Err(_)) => return None,
                Err(_) => self.waiting.push_back(Bytes::from_static(b": alive\n\n")),
            }
        }
    }

    /// Takes what has happened since. Says whether anything has.
    fn gather(&mut self) -> bool {
        let (events, lost) = self.log.next(self.after);
        if lost > 0 {
            self.after += lost;
            let id = self.log.name(self.after);
            let told = format!("id: {id}\nevent: lost\ndata: {{\"lost\":{lost}}}\n\n");
            self.waiting.push_back(told.into());
        }
        let mut text = String::new();
        for event in &events {
            self.after = event.id;
            if self.query.matches(event) {
                // Plain data can always be written as JSON, and that on one line; so can text.
                let data = serde_json::to_string(event).unwrap_or_default();
                let (id, kind) = (self.log.name(event.id), event.kind.name());
                let _ = write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n");
            }
        }
        if !text.is_empty() {
            self.waiting.push_back(text.into());
        }
        lost > 0 || !events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    fn event(service: &str, kind: EventKind) -> Event {
        Event { service: service.to_owned(), ..Event::new(kind, "because") }
    }

    fn feed(log: &Arc<EventLog>, query: EventQuery, last_id: Option<&str>) -> Feed {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
        let mut feed = Feed::new(log, query, last_id, None, place).expect("a feed");
        feed.waiting.retain(|bytes| !bytes.starts_with(b"retry"));
        feed
    }

    /// What comes without waiting.
    fn all(mut feed: Feed) -> String {
        while feed.gather() {}
        feed.waiting.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    #[test]
    fn who_was_away_goes_on_where_they_were() {
        let log = Arc::new(EventLog::default());
        (0..10).for_each(|_| log.note(event("web", EventKind::Health)));
        let text = all(feed(&log, EventQuery::default(), Some(&log.name(7))));
        let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, [log.name(8), log.name(9), log.name(10)]);
        assert!(all(feed(&log, EventQuery::default(), None)).is_empty(), "only what is to come");
        let from_start = EventQuery { after: Some(0), ..EventQuery::default() };
        assert_eq!(all(feed(&log, from_start, None)).matches("event: health").count(), 10);
        // The numbers of another director's life say nothing here.
        let text = all(feed(&log, EventQuery::default(), Some("1-7")));
        assert!(text.starts_with("event: lost\ndata: {\"lost\":null}\n\n"), "{text}");
        assert_eq!(text.matches("event: health").count(), 10);
        assert!(log.place("7").is_err() && log.place("x-7").is_err() && log.place("1-").is_err());
    }

    #[test]
    fn who_is_too_slow_is_told_what_was_lost() {
        let log = Arc::new(EventLog::default());
        log.note(event("web", EventKind::Health));
        let slow = feed(&log, EventQuery::default(), None);
        (0..Events::KEPT + 20).for_each(|_| log.note(event("web", EventKind::Config)));
        let text = all(slow);
        let begins = format!("id: {}\nevent: lost\ndata: {{\"lost\":20}}\n\n", log.name(21));
        assert!(text.starts_with(&begins), "{}", &text[..200]);
        assert_eq!(text.matches("event: config").count(), Events::KEPT);
    }

    #[test]
    fn kinds_and_services_are_told_apart() {
        let log = Arc::new(EventLog::default());
        log.note(event("web", EventKind::Health));
        log.note(event("dns", EventKind::Health));
        log.note(event("web", EventKind::Override));
        let query = |kinds: &[EventKind], service: Option<&str>, after| EventQuery {
            kinds: kinds.to_vec(),
            service: service.map(str::to_owned),
            after,
        };
        for (query, ids) in [
            (query(&[], None, None), &[1, 2, 3][..]),
            (query(&[EventKind::Health], None, None), &[1, 2]),
            (query(&[EventKind::Health, EventKind::Override], Some("web"), None), &[1, 3]),
            (query(&[], Some("web"), Some(1)), &[3]),
            (query(&[EventKind::Config], None, None), &[]),
        ] {
            let found: Vec<u64> = log.list(&query).events.iter().map(|event| event.id).collect();
            assert_eq!(found, ids, "{query:?}");
        }
    }
}
