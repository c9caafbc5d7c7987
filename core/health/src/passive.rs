//! What the connections of clients tell of a real server: a check that sends nothing.
//!
//! A handshake fails when the real server refuses it, or when nothing comes back. Clients that
//! never answer (a SYN flood) look the same from where answers do not pass, so what counts is that
//! *none* was completed since the last one that was: a real server that serves anybody is not
//! condemned.

use std::time::Duration;

/// How long handshakes may take before silence is a failure: a lost first segment is sent again
/// after 1 s, and after 3 s once more (RFC 6298).
pub const PATIENCE: Duration = Duration::from_millis(3500);

/// What was counted of a real server's connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Connections opened by clients.
    pub opened: u64,
    /// Those whose handshake was completed.
    pub completed: u64,
    /// Those that the real server refused with a reset.
    pub refused: u64,
    /// Packets that came back; `None` where they do not pass by the director.
    pub answers: Option<u64>,
}

/// Watches one real server.
#[derive(Clone, Debug)]
pub struct Passive {
    /// Failures in a row that condemn it; at least 1.
    failures: u32,
    /// At the last completed handshake.
    base: Option<Sample>,
    /// When the first connection after that was seen.
    since: Option<Duration>,
}

impl Passive {
    /// Condemns after so many failures in a row; 0 is 1.
    pub fn new(failures: u32) -> Self {
        Self { failures: failures.max(1), base: None, since: None }
    }

    /// Takes what was counted until now, and says why the real server is to be condemned, if it
    /// is. It begins anew after that.
    pub fn observe(&mut self, now: Duration, sample: Sample) -> Option<String> {
        let Some(base) = self.base.filter(|base| goes_on(base, &sample)) else {
            self.begin(sample);
            return None;
        };
        let refused = sample.refused - base.refused;
        if refused >= u64::from(self.failures) {
            self.begin(sample);
            return Some(format!("it refused {refused} connections of clients in a row"));
        }
        let opened = sample.opened - base.opened;
        if opened == 0 {
            return None;
        }
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        let silent = sample.answers == base.answers;
        if opened < u64::from(self.failures) || waited < PATIENCE || !silent {
            return None;
        }
        self.begin(sample);
        let what = match sample.answers {
            Some(_) => "nothing came back for",
            None => "no handshake was completed for",
        };
        Some(format!("{what} {opened} connections of clients in {} s", waited.as_secs()))
    }

    fn begin(&mut self, sample: Sample) {
        self.base = Some(sample);
        self.since = None;
    }
}

/// Whether nothing was completed since, and the counts are the same real server's still.
fn goes_on(base: &Sample, sample: &Sample) -> bool {
    base.completed == sample.completed
        && base.opened <= sample.opened
        && base.refused <= sample.refused
        && base.answers.is_some() == sample.answers.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(opened: u64, completed: u64, refused: u64, answers: Option<u64>) -> Sample {
        Sample { opened, completed, refused, answers }
    }

    fn run(samples: &[Sample]) -> Vec<Option<String>> {
        let mut passive = Passive::new(3);
        let each = (0u64..).zip(samples);
        each.map(|(second, it)| passive.observe(Duration::from_secs(second), *it)).collect()
    }

    #[test]
    fn refusals_in_a_row_condemn_at_once() {
        let told = run(&[
            sample(10, 10, 7, Some(90)),
            sample(12, 10, 9, Some(92)),
            sample(13, 10, 10, Some(93)),
            sample(14, 10, 11, Some(94)),
        ]);
        let refused = "it refused 3 connections of clients in a row".to_owned();
        assert_eq!(told, [None, None, Some(refused), None], "and then it begins anew");
    }

    #[test]
    fn silence_condemns_when_handshakes_had_their_time() {
        for answers in [Some(5), None] {
            let told = run(&[
                sample(0, 0, 0, answers),
                sample(2, 0, 0, answers),
                sample(4, 0, 0, answers),
                sample(4, 0, 0, answers),
                sample(5, 0, 0, answers),
                sample(6, 0, 0, answers),
            ]);
            assert_eq!(told[..5], [None, None, None, None, None]);
            let reason = told[5].as_deref().expect("four seconds have passed");
            assert!(reason.ends_with("6 connections of clients in 4 s"), "{reason}");
        }
    }

    #[test]
    fn whoever_serves_anybody_is_spared() {
        let served = |second: u64| sample(100 * second, second, 90 * second, None);
        assert!(run(&(0..20).map(served).collect::<Vec<_>>()).iter().all(Option::is_none));
        // It answers, and clients do not: a flood.
        let flooded = |second: u64| sample(1000 * second, 0, 0, Some(1000 * second));
        assert!(run(&(0..20).map(flooded).collect::<Vec<_>>()).iter().all(Option::is_none));
        // Nobody comes.
        assert!(run(&[sample(7, 3, 2, Some(1)); 20]).iter().all(Option::is_none));
    }

    #[test]
    fn counts_of_another_begin_anew() {
        let told = run(&[sample(50, 0, 9, None), sample(3, 0, 3, None), sample(3, 0, 5, None)]);
        assert_eq!(told, [None, None, None]);
    }
}
