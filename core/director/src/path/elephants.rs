//! The sessions with the most traffic, found by looking at every 128th packet or so.
//!
//! What is seen goes into Space-Saving (Metwally, Agrawal, El Abbadi 2005), in sets of
//! [`WAYS`] places so that no more than these are looked at: a session without a place takes, in
//! its set, that of the one with the least score, and its score; so whoever has more than a part in
//! [`WAYS`] of its set's samples has a place, and that is what a part in [`PLACES`] of all samples
//! comes to. Scores are halved with each window, so that what has ended makes room. Rates are those
//! of the last whole window.
//!
//! A session with `n` samples in a window is known to about 1/√n of its rate: at 1 Mpps one with a
//! tenth of the traffic to some 4 %.

use super::burst::{GROUPS, WINDOW, position};
use super::engine::Engine;
use super::inspect::{self, SessionInfo};
use super::parse::Parse;
use super::sweep::expired;
use super::table::Table;
use super::{Path, Shared};
use crate::counters::Direction;
use crate::family::Family;
use crate::plan::Plan;
use crate::session::{Flow, SessionOf, State};
use crate::time::Time;
use rustc_hash::FxHasher;
use sluice_table::Slot;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// Packets for each that is looked at, on average.
const PERIOD: u32 = 128;
/// The fewest between two: no window of a burst has more than one, which makes it cheap.
const LEAST_GAP: u32 = WINDOW as u32;
/// Sessions that are counted at a time.
pub const PLACES: usize = 256;
/// Of these, the ones that a session may have: those that begin with the hash of its number.
const WAYS: usize = 8;
/// How long a window is at least.
const WINDOW_MS: u64 = 1000;
/// An empty place: no session has this number.
const EMPTY: u32 = u32::MAX;

const _: () = assert!(LEAST_GAP < PERIOD && LEAST_GAP as usize >= WINDOW);

/// A session with much traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elephant {
    /// Which.
    pub session: SessionInfo,
    /// Packets a second, inbound and outbound.
    pub packets_per_s: [u64; 2],
    /// Bytes of IP packets a second, inbound and outbound.
    pub bytes_per_s: [u64; 2],
    /// Packets that were looked at: what the rates were told from.
    pub samples: u32,
}

/// What was seen of a session in a window, inbound and outbound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    samples: [u32; 2],
    bytes: [u64; 2],
}

/// The places of one worker.
pub(super) struct Sketch {
    /// Numbers of sessions; which table they are of is in the lowest bit.
    sessions: [u32; PLACES],
    scores: [u32; PLACES],
    /// What tells a session from the next one with its number.
    tags: [u32; PLACES],
    now: [Seen; PLACES],
    before: [Seen; PLACES],
    /// When the window began, and how long the last one was.
    since: Time,
    before_ms: u64,
    /// Packets until the next that is looked at.
    gap: u32,
    random: u32,
}

/// A packet that is looked at.
struct Sample {
    session: u32,
    tag: u32,
    direction: Direction,
    length: u16,
}

impl Sketch {
    pub fn new(seed: u64) -> Box<Self> {
        Box::new(Self {
            sessions: [EMPTY; PLACES],
            scores: [0; PLACES],
            tags: [0; PLACES],
            now: [Seen::default(); PLACES],
            before: [Seen::default(); PLACES],
            since: Time::default(),
            before_ms: 0,
            gap: LEAST_GAP,
            random: seed as u32 | 1,
        })
    }

    /// Which of the next packets is to be looked at, by its position; no more than one of a
    /// window, and most often none.
    #[inline(always)]
    pub fn pick(&mut self, packets: usize) -> Option<usize> {
        let gap = self.gap;
        if let Some(left) = gap.checked_sub(packets as u32) {
            self.gap = left;
            return None;
        }
        self.gap = self.next_gap() + gap - packets as u32;
        Some(gap as usize)
    }

    /// At least [`LEAST_GAP`] and [`PERIOD`] on average, so that no rhythm of the traffic meets it.
    #[cold]
    fn next_gap(&mut self) -> u32 {
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        LEAST_GAP + self.random % (2 * (PERIOD - LEAST_GAP) + 1)
    }

    fn record(&mut self, now: Time, sample: &Sample) {
        self.turn_over(now);
        let set = set_of(sample.session);
        let known = set.clone().find(|place| self.sessions[*place] == sample.session);
        let least = || set.clone().min_by_key(|place| self.scores[*place]);
        let Some(place) = known.or_else(least) else { return };
        if known.is_none() || self.tags[place] != sample.tag {
            // The score stays: its excess over what was seen is the most it may be wrong by.
            (self.sessions[place], self.tags[place]) = (sample.session, sample.tag);
            (self.now[place], self.before[place]) = (Seen::default(), Seen::default());
        }
        self.scores[place] = self.scores[place].saturating_add(1);
        let (seen, direction) = (&mut self.now[place], sample.direction as usize);
        seen.samples[direction] += 1;
        seen.bytes[direction] += u64::from(sample.length);
    }

    /// Begins a new window if this one has been long enough.
    fn turn_over(&mut self, now: Time) {
        let age_ms = now.0.saturating_sub(self.since.0);
        if age_ms < WINDOW_MS {
            return;
        }
        self.before = std::mem::replace(&mut self.now, [Seen::default(); PLACES]);
        (self.since, self.before_ms) = (now, age_ms);
        let halvings = (age_ms / WINDOW_MS).min(31) as u32;
        for place in 0..PLACES {
            self.scores[place] >>= halvings;
            if self.scores[place] == 0 && self.before[place] == Seen::default() {
                self.sessions[place] = EMPTY;
            }
        }
    }

    /// Sessions that had traffic in the last whole window, those with the most first: their
    /// numbers, tags, and what was seen.
    fn ranked(&self) -> Vec<(u32, u32, Seen)> {
        let all = (0..PLACES).map(|at| (self.sessions[at], self.tags[at], self.before[at]));
        let mut all: Vec<_> = all.filter(|(_, _, seen)| *seen != Seen::default()).collect();
        all.sort_by_key(|(session, _, seen)| {
            (std::cmp::Reverse(seen.samples[0] + seen.samples[1]), *session)
        });
        all
    }

    /// What was counted once in so many packets, as a rate.
    fn per_s(&self, counted: u64) -> u64 {
        (counted * u64::from(PERIOD) * 1000).checked_div(self.before_ms).unwrap_or(0)
    }
}

/// The places that a session may have.
const fn set_of(session: u32) -> Range<usize> {
    // Fibonacci hashing (Knuth 6.4): the upper bits depend on all of the number's.
    let hash = session.wrapping_mul(0x9e37_79b1) as usize >> 16;
    let first = hash % (PLACES / WAYS) * WAYS;
    first..first + WAYS
}

/// What tells a session from another that gets its number.
fn tag<F: Family>(session: &SessionOf<F>) -> u32 {
    let mut hasher = FxHasher::default();
    let ports = (session.client_port, session.virtual_port, session.local_port);
    (F::to_ip(session.client), ports, session.real().0, session.protocol()).hash(&mut hasher);
    hasher.finish() as u32
}

/// A session's number in both tables.
const fn number<F: Family>(id: u32) -> u32 {
    id << 1 | F::WIDE as u32
}

impl Sketch {
    /// Counts packets of a session that no turn looked at, as often as it would have.
    pub(super) fn record_dealt<F: Family>(
        &mut self,
        now: Time,
        (flow, session): (Flow, &SessionOf<F>),
        (packets, bytes): (u64, u64),
    ) {
        let mut left = packets as usize;
        while left > 0 {
            let part = left.min(WINDOW);
            left -= part;
            if self.pick(part).is_some() {
                let (session, tag) = (number::<F>(flow.id()), tag::<F>(session));
                let (direction, length) = (flow.direction(), (bytes / packets) as u16);
                self.record(now, &Sample { session, tag, direction, length });
            }
        }
    }
}

/// Counts a packet of a group whose flows were looked for and not yet followed.
#[cold]
#[inline(never)]
pub(super) fn sample<F: Parse>(
    engine: &Engine<F>,
    shared: &mut Shared,
    now: Time,
    (at, lane): (usize, usize),
) {
    let group = &engine.burst.groups[at % GROUPS];
    let (flow, length) = if group.quick >> lane & 1 == 1 {
        (Flow(group.flow[lane]), group.lengths[lane] as u16)
    } else if group.slow >> lane & 1 == 1 {
        let slow = &engine.burst.lanes[position(at, lane)];
        (slow.flow, slow.parsed.length)
    } else {
        return;
    };
    if flow == Flow::NONE {
        return;
    }
    let Some(session) = engine.table.sessions.slab().get(flow.id()) else { return };
    let (session, tag, direction) = (number::<F>(flow.id()), tag::<F>(session), flow.direction());
    shared.statistics.sketch.record(now, &Sample { session, tag, direction, length });
}

/// An open session by its number, if it is the one that was seen.
fn open_session<F: Parse>(
    table: &Table<F>,
    plan: &Plan,
    now: Time,
    (number, tagged): (u32, u32),
) -> Option<SessionInfo> {
    let session = table.sessions.slab().get(number >> 1)?;
    let is_open = !session.is_vacant() && session.state != State::Template;
    if !is_open || expired(session, plan, now) || tag::<F>(session) != tagged {
        return None;
    }
    inspect::info::<F>(plan, now, session)
}

impl Path {
    /// The sessions with the most traffic in the last second or so, at most `limit` of them and no
    /// more than [`PLACES`], those with the most packets first.
    pub fn elephants(&mut self, plan: &Plan, now: Time, limit: usize) -> Vec<Elephant> {
        self.shared.statistics.sketch.turn_over(now);
        let sketch = &self.shared.statistics.sketch;
        let all = sketch.ranked().into_iter().filter_map(|(number, tag, seen)| {
            let session = match number & 1 {
                0 => open_session(&self.v4.table, plan, now, (number, tag)),
                _ => open_session(&self.extended.table, plan, now, (number, tag)),
            }?;
            Some(Elephant {
                session,
                packets_per_s: seen.samples.map(|samples| sketch.per_s(samples.into())),
                bytes_per_s: seen.bytes.map(|bytes| sketch.per_s(bytes)),
                samples: seen.samples[0] + seen.samples[1],
            })
        });
        all.take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(sketch: &mut Sketch, at_ms: u64, session: u32, times: u32) {
        let sample = Sample { session, tag: session, direction: Direction::Inbound, length: 100 };
        (0..times).for_each(|_| sketch.record(Time(at_ms), &sample));
    }

    #[test]
    fn one_packet_in_a_period_is_picked_whatever_the_bursts() {
        for burst in [1, 7, 32, WINDOW] {
            let mut sketch = Sketch::new(7);
            let (mut picked, mut positions) = (0_u32, [0_u32; WINDOW]);
            let turns = 128_000_000 / (burst * 128);
            for _ in 0..turns {
                if let Some(at) = sketch.pick(burst) {
                    assert!(at < burst);
                    (picked, positions[at]) = (picked + 1, positions[at] + 1);
                }
            }
            let expected = (turns * burst) as f64 / f64::from(PERIOD);
            assert!((f64::from(picked) / expected - 1.0).abs() < 0.02, "{burst}: {picked}");
            let part = f64::from(picked) / burst as f64;
            let even = positions[..burst].iter().all(|n| (f64::from(*n) / part - 1.0).abs() < 0.35);
            assert!(even, "{burst}: {positions:?}");
        }
    }

    #[test]
    fn whoever_has_a_part_in_the_places_has_one() {
        let mut sketch = Sketch::new(1);
        // Each of two elephants has a 64th of the samples, between mice that come once each.
        for round in 0..2000_u32 {
            see(&mut sketch, 0, 1_000_000, 4);
            see(&mut sketch, 0, 2_000_000, 4);
            (0..248).for_each(|mouse| see(&mut sketch, 0, round * 248 + mouse, 1));
        }
        sketch.turn_over(Time(1000));
        let first: Vec<u32> =
            sketch.ranked().iter().take(2).map(|(session, ..)| *session).collect();
        assert_eq!(first, [1_000_000, 2_000_000]);
        // Mice inherit scores, not what was seen.
        assert!(sketch.ranked()[2].2.samples[0] < 3);
        let rate = sketch.per_s(sketch.ranked()[0].2.samples[0].into());
        assert!((900_000..=8000 * 128).contains(&rate), "{rate}");
    }

    #[test]
    fn what_has_ended_is_forgotten_and_a_number_may_be_anothers() {
        let mut sketch = Sketch::new(1);
        see(&mut sketch, 0, 5, 1000);
        sketch.turn_over(Time(2000));
        assert_eq!(sketch.per_s(1000), 64_000, "over the two seconds that the window lasted");
        see(&mut sketch, 2001, 6, 1);
        assert_eq!(sketch.ranked().len(), 1);
        sketch.turn_over(Time(3100));
        assert_eq!(sketch.ranked().iter().map(|(session, ..)| *session).collect::<Vec<_>>(), [6]);
        sketch.turn_over(Time(60_000));
        sketch.turn_over(Time(62_000));
        assert!(sketch.sessions.iter().all(|session| *session == EMPTY));
        see(&mut sketch, 62_001, 9, 10);
        let other = Sample { session: 9, tag: 77, direction: Direction::Outbound, length: 60 };
        sketch.record(Time(62_002), &other);
        sketch.turn_over(Time(63_100));
        let expected = Seen { samples: [0, 1], bytes: [0, 60] };
        assert_eq!(sketch.ranked(), [(9, 77, expected)]);
    }
}
