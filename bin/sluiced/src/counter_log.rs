//! Looks at the counters once in a while and logs what an operator should know of, each reason at
//! most once a period, however many packets there are.

use sluice_director::Reason;
use sluice_director::counters::Counters;
use std::time::{Duration, Instant};
use tracing::warn;

/// The period.
const QUIET: Duration = Duration::from_secs(10);

/// Reasons that mean that the director lacks something, not that a packet was odd.
const WATCHED: [Reason; 11] = [
    Reason::SessionsFull,
    Reason::ServiceShare,
    Reason::RepeatAwaited,
    Reason::LocalPortsExhausted,
    Reason::NoReal,
    Reason::NoRoute,
    Reason::Unresolved,
    Reason::HandOffFull,
    Reason::TxFull,
    Reason::TooBig,
    Reason::NotLinear,
];

/// What was logged when.
pub struct Watch {
    logged: [Option<(Instant, u64)>; Reason::COUNT],
}

impl Default for Watch {
    fn default() -> Self {
        Self { logged: [None; Reason::COUNT] }
    }
}

impl Watch {
    /// Logs the watched reasons that have counted since they were last logged, and gives them.
    pub fn look(&mut self, total: &Counters) -> Vec<(Reason, u64)> {
        let due = self.due(total, Instant::now());
        for (reason, packets) in &due {
            warn!(reason = reason.name(), packets, "{}", reason.text());
        }
        due
    }

    fn due(&mut self, total: &Counters, now: Instant) -> Vec<(Reason, u64)> {
        let mut due = Vec::new();
        for reason in WATCHED {
            let count = total.of(reason);
            let (at, before) = match self.logged[reason as usize] {
                Some((at, before)) => (Some(at), before),
                None => (None, 0),
            };
            let quiet = at.is_some_and(|at| now.duration_since(at) < QUIET);
            if count > before && !quiet {
                self.logged[reason as usize] = Some((now, count));
                due.push((reason, count - before));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_period_with_all_that_came_since() {
        let (mut watch, mut total, start) = (Watch::default(), Counters::default(), Instant::now());
        assert!(watch.due(&total, start).is_empty());
        total.reasons[Reason::SessionsFull as usize] = 5;
        total.reasons[Reason::NotOurs as usize] = 5;
        assert_eq!(watch.due(&total, start), [(Reason::SessionsFull, 5)]);
        total.reasons[Reason::SessionsFull as usize] = 9;
        assert!(watch.due(&total, start + QUIET / 2).is_empty());
        assert_eq!(watch.due(&total, start + QUIET), [(Reason::SessionsFull, 4)]);
        assert!(watch.due(&total, start + QUIET * 3).is_empty());
    }
}
