//! The schedule and the verdict of one check: when the next probe is due, how long it may take, and
//! when findings make a real server up or down.
//!
//! Invariant: at most one probe is under way, and each ends by a finding or at its deadline, so a
//! check never stops. The first finding decides at once: nobody has to wait for `rise` or `fall`
//! findings to learn of a real server that was never looked at.

use crate::finding::Finding;
use std::collections::VecDeque;
use std::time::Duration;

/// Findings that are remembered.
pub const HISTORY: usize = 8;
/// The longest time before the first probe.
const SPREAD: Duration = Duration::from_secs(1);

/// How often a check looks, and how much it takes to change its mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// From the start of a probe to that of the next.
    pub interval: Duration,
    /// The same while findings speak against the state; the interval without.
    pub fast_interval: Option<Duration>,
    /// How long a probe may take.
    pub timeout: Duration,
    /// Passes in a row that make it up; at least 1.
    pub rise: u16,
    /// Failures in a row that make it down; at least 1.
    pub fall: u16,
    /// Instead of `fall`: how long there has been no pass when it is down.
    pub dead_after: Option<Duration>,
    /// How far an interval may be off, in percent of it: 0 to 50. So that checks that began
    /// together do not stay together.
    pub jitter_percent: u8,
}

/// What is known of a real server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It answers as it should.
    Up,
    /// It does not.
    Down,
}

impl State {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// When.
    pub at: Duration,
    /// The evidence.
    pub reason: String,
}

/// A probe that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// When it began.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
    /// What it found.
    pub finding: Finding,
}

/// What a check wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Begin a probe with this number.
    Begin {
        /// The number that its finding must bear.
        probe: u64,
    },
    /// End the probe with this number; its time is up.
    Abandon {
        /// The number.
        probe: u64,
    },
    /// Tell that the state has changed.
    Turned(Transition),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Waiting { until: Duration },
    Probing { since: Duration },
}

/// The check of one real server.
#[derive(Clone, Debug)]
pub struct Check {
    rules: Rules,
    state: State,
    /// Findings in a row that speak against the state.
    against: u16,
    phase: Phase,
    probe: u64,
    random: u64,
    /// When it last passed, or began.
    passed_at: Duration,
    /// Until when passes count for nothing.
    held_until: Duration,
    since: Duration,
    reason: String,
    past: VecDeque<Past>,
    outputs: VecDeque<Output>,
}

impl Check {
    /// A check that begins now with what is known already. `seed` tells checks apart: it decides
    /// where in the first second, or interval if that is shorter, the first probe is.
    pub fn new(rules: Rules, state: State, seed: u64, now: Duration) -> Self {
        let mut check = Self {
            state,
            against: 0,
            phase: Phase::Waiting { until: now },
            probe: 0,
            random: seed,
            passed_at: now,
            held_until: Duration::ZERO,
            since: now,
            reason: String::new(),
            past: VecDeque::with_capacity(HISTORY),
            outputs: VecDeque::new(),
            rules,
        };
        let spread = check.rules.interval.min(SPREAD);
        check.phase = Phase::Waiting { until: now + spread.mul_f64(check.chance()) };
        check
    }

    /// What is to be done now, until there is `None`.
    pub fn poll_output(&mut self, now: Duration) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        match self.phase {
            Phase::Waiting { until } if now >= until => {
                self.probe += 1;
                self.phase = Phase::Probing { since: now };
                return Some(Output::Begin { probe: self.probe });
            }
            Phase::Probing { since } if now >= since + self.rules.timeout => {
                self.outputs.push_back(Output::Abandon { probe: self.probe });
                let text = format!("no answer within {}", seconds(self.rules.timeout));
                self.conclude(now, Finding::fail(text));
            }
            _ => self.look_for_death(now),
        }
        self.outputs.pop_front()
    }

    /// When [`Self::poll_output`] has something to say without anything else having happened.
    pub fn poll_timeout(&self) -> Duration {
        if !self.outputs.is_empty() {
            return Duration::ZERO;
        }
        let due = match self.phase {
            Phase::Waiting { until } => until,
            Phase::Probing { since } => since + self.rules.timeout,
        };
        match self.rules.dead_after.filter(|_| self.state == State::Up) {
            Some(limit) => due.min(self.passed_at + limit),
            None => due,
        }
    }

    /// A probe is over. One that has been given up, or is none of this check's, is ignored.
    pub fn handle(&mut self, now: Duration, probe: u64, finding: Finding) {
        if matches!(self.phase, Phase::Probing { .. }) && probe == self.probe {
            self.conclude(now, finding);
        }
    }

    /// Something else than a probe has found it down: passes count for nothing during `hold`, since
    /// probes passed before, too.
    pub fn condemn(&mut self, now: Duration, hold: Duration, reason: String) {
        self.held_until = now + hold;
        self.against = 0;
        if self.state != State::Down {
            self.turn(now, State::Down, reason);
        }
    }

    /// What is known.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Since when.
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// The evidence of the last change; empty before the first.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The last findings, the latest at the end; at most [`HISTORY`].
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &Past> {
        self.past.iter()
    }

    /// When the next probe is due; `None` while one is under way.
    pub const fn next(&self) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Probing { .. } => None,
        }
    }

    fn conclude(&mut self, now: Duration, finding: Finding) {
        let Phase::Probing { since } = self.phase else { return };
        let (passed, blind, text) = (finding.passed, finding.blind, finding.text.clone());
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(Past { at: since, took: now.saturating_sub(since), finding });
        // Who does not look cannot say that nobody answers.
        if passed || blind {
            self.passed_at = now;
        }
        let counts = !(blind || passed && now < self.held_until);
        let agrees = self.state == if passed { State::Up } else { State::Down };
        self.against = match (counts, agrees) {
            (false, _) => self.against,
            (true, true) => 0,
            (true, false) => self.against.saturating_add(1),
        };
        let enough = match (self.state, passed, self.rules.dead_after) {
            (State::Unknown, ..) => true,
            (_, true, _) => self.against >= self.rules.rise,
            (_, false, None) => self.against >= self.rules.fall,
            (_, false, Some(_)) => false,
        };
        if counts && !agrees && enough {
            self.turn(now, if passed { State::Up } else { State::Down }, text);
        }
        let interval = match self.rules.fast_interval {
            Some(fast) if self.against > 0 => fast,
            _ => self.rules.interval,
        };
        let until = since + self.jittered(interval);
        self.phase = Phase::Waiting { until: until.max(now) };
        self.look_for_death(now);
    }

    /// Turns down what has not passed for too long.
    fn look_for_death(&mut self, now: Duration) {
        let Some(limit) = self.rules.dead_after else { return };
        if self.state != State::Up || now < self.passed_at + limit {
            return;
        }
        let last = self.past.back().filter(|past| !past.finding.passed);
        let last = last.map(|past| format!(": {}", past.finding.text)).unwrap_or_default();
        self.turn(now, State::Down, format!("no good answer for {}{last}", seconds(limit)));
    }

    fn turn(&mut self, now: Duration, to: State, reason: String) {
        let from = std::mem::replace(&mut self.state, to);
        self.against = 0;
        self.since = now;
        self.reason.clone_from(&reason);
        self.outputs.push_back(Output::Turned(Transition { from, to, at: now, reason }));
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        let off = f64::from(self.rules.jitter_percent.min(50)) / 100.0;
        interval.mul_f64(1.0 + off * (2.0 * self.chance() - 1.0))
    }

    /// A number from 0 to below 1 (splitmix64, Steele et al. 2014): jitter needs no more.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// `2 s`, `0.5 s`: as an operator writes it.
fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    fn rules() -> Rules {
        Rules {
            interval: 3 * S,
            fast_interval: None,
            timeout: S,
            rise: 2,
            fall: 3,
            dead_after: None,
            jitter_percent: 0,
        }
    }

    /// Runs a check in virtual time against a peer that answers, or not, by the number of the
    /// probe, after `delay`; gives the transitions.
    fn run(
        check: &mut Check,
        until: Duration,
        delay: Duration,
        mut peer: impl FnMut(u64) -> Option<bool>,
    ) -> Vec<Transition> {
        let (mut now, mut turned) = (Duration::ZERO, Vec::new());
        let mut answer: Option<(Duration, u64, bool)> = None;
        while now < until {
            while let Some(output) = check.poll_output(now) {
                match output {
                    Output::Begin { probe } => {
                        answer = peer(probe).map(|passed| (now + delay, probe, passed));
                    }
                    Output::Abandon { .. } => answer = None,
                    Output::Turned(transition) => turned.push(transition),
                }
            }
            let timer = check.poll_timeout();
            assert!(timer > now, "a check that wants to be called again must have a reason");
            now = answer.map_or(timer, |(at, ..)| at.min(timer));
            if let Some((_, probe, passed)) = answer.take_if(|(at, ..)| *at <= now) {
                let finding = if passed { Finding::pass("ok") } else { Finding::fail("bad") };
                check.handle(now, probe, finding);
            }
        }
        turned
    }

    #[test]
    fn the_first_finding_decides() {
        for (passes, to) in [(true, State::Up), (false, State::Down)] {
            let mut check = Check::new(rules(), State::Unknown, 1, Duration::ZERO);
            let turned = run(&mut check, 2 * S, Duration::ZERO, |_| Some(passes));
            assert_eq!(turned.len(), 1);
            assert_eq!((turned[0].from, turned[0].to), (State::Unknown, to));
            assert!(turned[0].at <= S);
        }
    }

    #[test]
    fn silence_is_a_failure_with_its_reason() {
        let mut check = Check::new(rules(), State::Up, 1, Duration::ZERO);
        let turned = run(&mut check, 30 * S, Duration::ZERO, |_| None);
        assert_eq!(turned.len(), 1);
        assert_eq!(turned[0].reason, "no answer within 1 s");
        // Three probes, three seconds apart, and the last one's timeout.
        let first = check.past().next().map(|_| turned[0].at - 7 * S);
        assert!(first.is_some_and(|first| first <= S), "{:?}", turned[0].at);
    }

    #[test]
    fn dead_after_so_many_seconds() {
        let rules = Rules { dead_after: Some(8 * S), ..rules() };
        let mut check = Check::new(rules, State::Unknown, 1, Duration::ZERO);
        let turned = run(&mut check, 60 * S, Duration::ZERO, |probe| (probe <= 3).then_some(true));
        assert_eq!(turned.len(), 2, "{turned:?}");
        let last_pass = turned[0].at + 6 * S;
        assert_eq!(turned[1].at, last_pass + 8 * S);
        assert_eq!(turned[1].reason, "no good answer for 8 s: no answer within 1 s");
    }

    #[test]
    fn looks_more_often_when_in_doubt() {
        let rules = Rules { fast_interval: Some(S), ..rules() };
        let mut check = Check::new(rules, State::Up, 1, Duration::ZERO);
        let turned = run(&mut check, 6 * S, Duration::ZERO, |_| Some(false));
        assert_eq!(turned.len(), 1);
        let starts: Vec<_> = check.past().map(|past| past.at).collect();
        assert_eq!(starts[1] - starts[0], S);
        assert_eq!(starts[2] - starts[1], S);
        assert_eq!(starts[3] - starts[2], 3 * S, "there is no doubt any more");
    }

    #[test]
    fn late_and_strange_findings_count_for_nothing() {
        let mut check = Check::new(rules(), State::Unknown, 1, Duration::ZERO);
        let Some(Output::Begin { probe }) = check.poll_output(S) else { panic!("no probe") };
        check.handle(S, probe + 1, Finding::fail("not mine"));
        assert_eq!(check.poll_output(S), None);
        assert_eq!(check.poll_output(2 * S), Some(Output::Abandon { probe }));
        check.handle(2 * S, probe, Finding::pass("too late"));
        assert!(matches!(check.poll_output(2 * S), Some(Output::Turned(t)) if t.to == State::Down));
        assert_eq!(check.poll_output(2 * S), None);
    }

    #[test]
    fn a_check_that_cannot_look_changes_nothing() {
        for rules in [rules(), Rules { dead_after: Some(8 * S), ..rules() }] {
            let mut check = Check::new(rules, State::Up, 1, Duration::ZERO);
            for _ in 0..20 {
                let now = check.poll_timeout();
                let Some(Output::Begin { probe }) = check.poll_output(now) else { panic!() };
                check.handle(now, probe, Finding::blind("no more files"));
                assert_eq!(check.poll_output(now), None);
            }
            assert_eq!(check.state(), State::Up);
        }
    }

    /// The state after each finding, by the words of the documentation.
    fn model(findings: &[bool], rise: usize, fall: usize) -> State {
        let Some(first) = findings.first() else { return State::Unknown };
        let mut up = *first;
        for end in 1..=findings.len() {
            let run = findings[..end].iter().rev().take_while(|f| **f != up).count();
            if run >= if up { fall } else { rise } {
                up = !up;
            }
        }
        if up { State::Up } else { State::Down }
    }

    #[test]
    fn the_condemned_wait_whatever_probes_say() {
        let mut check = Check::new(rules(), State::Up, 1, Duration::ZERO);
        check.condemn(S, 10 * S, "refused".to_owned());
        let turned = run(&mut check, 60 * S, Duration::ZERO, |_| Some(true));
        let turned: Vec<_> = turned.iter().map(|it| (it.to, it.reason.as_str())).collect();
        assert_eq!(turned, [(State::Down, "refused"), (State::Up, "ok")]);
        assert!(check.since() >= 11 * S && check.since() <= 20 * S, "{:?}", check.since());
    }

    proptest! {
        #[test]
        fn rise_and_fall_are_the_model(
            findings in prop::collection::vec(any::<bool>(), 0..40),
            rise in 1u16..5, fall in 1u16..5, jitter_percent in 0u8..50, seed in any::<u64>(),
        ) {
            let rules = Rules { rise, fall, jitter_percent, ..rules() };
            let mut check = Check::new(rules, State::Unknown, seed, Duration::ZERO);
            let (mut now, mut begun) = (Duration::ZERO, Duration::ZERO);
            for (at, passed) in findings.iter().enumerate() {
                now = check.poll_timeout();
                let Some(Output::Begin { probe }) = check.poll_output(now) else {
                    return Err(TestCaseError::fail("no probe"));
                };
                let gap = (now - begun).as_secs_f64();
                if at > 0 {
                    let off = 3.0 * f64::from(jitter_percent) / 100.0 + 1e-6;
                    prop_assert!((gap - 3.0).abs() <= off, "{gap} s between probes");
                }
                begun = now;
                let text = "x";
                check.handle(now, probe, match passed {
                    true => Finding::pass(text),
                    false => Finding::fail(text),
                });
                while check.poll_output(now).is_some() {}
                let expected = model(&findings[..=at], rise.into(), fall.into());
                prop_assert_eq!(check.state(), expected);
            }
            prop_assert!(check.past().count() <= HISTORY);
            prop_assert!(now >= begun);
        }

        /// However slow or silent the peer, probes go on at the interval and never overlap.
        #[test]
        fn a_check_never_stops(
            delay_ms in 0u64..2000, seed in any::<u64>(), answers in any::<u64>(),
        ) {
            let mut check = Check::new(rules(), State::Unknown, seed, Duration::ZERO);
            let mut probes = 0u64;
            let delay = Duration::from_millis(delay_ms);
            run(&mut check, 60 * S, delay, |probe| {
                probes = probe;
                (answers >> (probe % 64) & 1 == 1).then_some(true)
            });
            prop_assert!((20..=21).contains(&probes), "{probes} probes in a minute");
        }
    }
}
