//! The last hour, bounded: a place every two seconds for the whole director, one every thirty
//! seconds for each service that had any traffic.
//!
//! A service takes 2,880 bytes, so [`SERVICES_KEPT`] of them take 29 MB; the director itself some
//! 200 kB. A service without traffic takes nothing, one that had none for an hour is forgotten, and
//! one too many is not kept.

use crate::busy::Work;
use crate::ledger::{Counted, Owner};
use sluice_api::model::{RateColumns, Rates, RatesQuery, WorkerRates};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Seconds from place to place of the whole director.
pub const STEP_S: u32 = 2;
/// Seconds from place to place of a service.
pub const SERVICE_STEP_S: u32 = 30;
/// Services whose last hour is kept, at most.
pub const SERVICES_KEPT: usize = 10_000;
/// What is kept, in seconds.
const SPAN_S: u32 = 3_600;
const PLACES: usize = (SPAN_S / STEP_S) as usize;
const SERVICE_PLACES: usize = (SPAN_S / SERVICE_STEP_S) as usize;

/// Inbound packets and bytes, outbound packets and bytes, new sessions.
const COUNTS: usize = 5;
/// These a second, and open sessions.
type Values = [f32; COUNTS + 1];

/// What is counted of the whole director, besides what is counted of services too.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What was forwarded.
    pub forwarded: Counted,
    /// Open sessions.
    pub sessions: u64,
    /// Packets received.
    pub received: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// What each worker's time went into.
    pub workers: Vec<Work>,
}

/// A time that has ended.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    at_ms: u64,
    over_ms: u32,
}

#[derive(Clone, Debug)]
struct Place {
    stamp: Stamp,
    values: [f64; COUNTS + 1],
    received: f64,
    dropped: f64,
    busy: Box<[f32]>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// Counts when the last place ended.
    mark: Counted,
    /// Ends where the stamps end.
    values: VecDeque<Values>,
    /// Places since the last that was not empty.
    quiet: usize,
}

/// The last hour.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When the present place began, and what was counted then.
    mark: Option<(u64, Totals)>,
    places: VecDeque<Place>,
    service_mark: Option<u64>,
    stamps: VecDeque<Stamp>,
    lines: HashMap<Arc<str>, Line>,
}

fn counts(counted: &Counted) -> [u64; COUNTS] {
    let ([pi, po], [bi, bo]) = (counted.packets, counted.bytes);
    [pi, bi, po, bo, counted.sessions]
}

/// Per second. A count that began again tells of what it has since.
fn rate(now: u64, before: u64, over_ms: u64) -> f64 {
    let count = if now < before { now } else { now - before };
    count as f64 * 1e3 / over_ms.max(1) as f64
}

fn push<T>(places: &mut VecDeque<T>, limit: usize, place: T) {
    if places.len() == limit {
        places.pop_front();
    }
    places.push_back(place);
}

impl History {
    /// Notes what was counted until now (milliseconds since 1970).
    pub fn note(&mut self, now_ms: u64, totals: Totals, owners: &[Owner]) {
        let step_ms = u64::from(STEP_S) * 1000;
        match &self.mark {
            Some((since, _)) if now_ms / step_ms <= since / step_ms => {}
            Some((since, before)) => {
                let place = place(now_ms, now_ms - since, &totals, before);
                push(&mut self.places, PLACES, place);
                self.mark = Some((now_ms, totals));
            }
            None => self.mark = Some((now_ms, totals)),
        }
        let step_ms = u64::from(SERVICE_STEP_S) * 1000;
        match self.service_mark {
            Some(since) if now_ms / step_ms <= since / step_ms => {}
            Some(since) => {
                self.service_mark = Some(now_ms);
                self.note_services(now_ms, now_ms - since, owners);
            }
            None => {
                self.service_mark = Some(now_ms);
                for owner in owners.iter().filter(|owner| owner.counted != Counted::default()) {
                    let line = Line { mark: owner.counted, ..Line::default() };
                    self.lines.insert(Arc::clone(&owner.name), line);
                }
            }
        }
    }

    fn note_services(&mut self, now_ms: u64, over_ms: u64, owners: &[Owner]) {
        let over = u32::try_from(over_ms).unwrap_or(u32::MAX);
        push(&mut self.stamps, SERVICE_PLACES, Stamp { at_ms: now_ms, over_ms: over });
        let mut former = std::mem::take(&mut self.lines);
        let mut kept = former.values().filter(|line| line.values.capacity() > 0).count();
        for owner in owners {
            let known = former.remove(&owner.name);
            if known.is_none() && owner.counted == Counted::default() {
                continue;
            }
            let mut line = known.unwrap_or_default();
            let before = counts(&line.mark);
            let now = counts(&owner.counted);
            let mut values = [0.0; COUNTS + 1];
            for (value, (now, before)) in values.iter_mut().zip(now.into_iter().zip(before)) {
                *value = rate(now, before, over_ms) as f32;
            }
            values[COUNTS] = owner.counted.active as f32;
            line.quiet = if values == [0.0; COUNTS + 1] { line.quiet + 1 } else { 0 };
            line.mark = owner.counted;
            let has_room = line.values.capacity() > 0;
            if has_room && line.quiet >= SERVICE_PLACES {
                line.values = VecDeque::new();
                kept -= 1;
            } else if has_room {
                push(&mut line.values, SERVICE_PLACES, values);
            } else if line.quiet == 0 && kept < SERVICES_KEPT {
                line.values.reserve_exact(SERVICE_PLACES);
                line.values.push_back(values);
                kept += 1;
            }
            self.lines.insert(Arc::clone(&owner.name), line);
        }
    }

    /// Bytes that services' places take.
    pub fn bytes(&self) -> usize {
        self.lines.values().map(|line| line.values.capacity() * size_of::<Values>()).sum()
    }

    /// What was asked for. The service must be one of the last that were noted.
    pub fn rates(&self, query: &RatesQuery, now_ms: u64) -> Rates {
        let base = if query.service.is_some() { SERVICE_STEP_S } else { STEP_S };
        let step_s = query.step_s.unwrap_or(base).div_ceil(base) * base;
        let since = query.since_unix_ms.unwrap_or(0);
        let mut rates = Rates {
            service: query.service.clone(),
            step_s,
            now_unix_s: now_ms as f64 / 1e3,
            ..Rates::default()
        };
        match &query.service {
            Some(name) => self.service_rates(name, since, step_s, &mut rates),
            None => self.director_rates(since, step_s, &mut rates),
        }
        rates
    }

    fn service_rates(&self, name: &str, since: u64, step_s: u32, rates: &mut Rates) {
        let empty = VecDeque::new();
        let line = self.lines.get(name);
        let values = line.map_or(&empty, |line| &line.values);
        if values.is_empty() && line.is_some_and(|line| line.quiet == 0) {
            // One too many: nothing is known, which is not the same as nothing.
            return;
        }
        let missing = self.stamps.len().saturating_sub(values.len());
        let values = std::iter::repeat_n(&[0.0; COUNTS + 1], missing).chain(values);
        let places = self.stamps.iter().zip(values).filter(|(stamp, _)| stamp.at_ms > since);
        let places: Vec<_> =
            places.map(|(stamp, values)| (*stamp, values.map(f64::from))).collect();
        for bucket in buckets(&places, step_s, |(stamp, _)| *stamp) {
            push_columns(rates, bucket, |(stamp, _)| *stamp, |(_, values)| values);
        }
    }

    fn director_rates(&self, since: u64, step_s: u32, rates: &mut Rates) {
        let (mut received, mut dropped) = (Vec::new(), Vec::new());
        let places: Vec<&Place> = self.places.iter().filter(|p| p.stamp.at_ms > since).collect();
        let workers = self.places.back().map_or(0, |place| place.busy.len());
        let mut busy = vec![Vec::new(); workers];
        for bucket in buckets(&places, step_s, |place| place.stamp) {
            push_columns(rates, bucket, |place| place.stamp, |place| &place.values);
            let of = |value: &dyn Fn(&Place) -> f64| {
                average(bucket.iter().map(|place| (place.stamp, value(place))))
            };
            received.push(tenths(of(&|place| place.received)));
            dropped.push(tenths(of(&|place| place.dropped)));
            for (worker, column) in busy.iter_mut().enumerate() {
                let share = of(&|place| place.busy.get(worker).map_or(0.0, |s| f64::from(*s)));
                column.push((share * 1e3).round() / 1e3);
            }
        }
        rates.received_packets_per_s = Some(received);
        rates.drops_per_s = Some(dropped);
        let of = |(worker, busy_share)| WorkerRates { worker, busy_share };
        rates.workers = (0..).zip(busy).map(of).collect();
    }
}

fn place(now_ms: u64, over_ms: u64, now: &Totals, before: &Totals) -> Place {
    let [new, old] = [now, before].map(|totals| counts(&totals.forwarded));
    let mut values = [0.0; COUNTS + 1];
    for (value, (now, before)) in values.iter_mut().zip(new.into_iter().zip(old)) {
        *value = rate(now, before, over_ms);
    }
    values[COUNTS] = now.sessions as f64;
    let share = |(at, work): (usize, &Work)| {
        work.share_since(before.workers.get(at).copied().unwrap_or_default()) as f32
    };
    Place {
        stamp: Stamp { at_ms: now_ms, over_ms: u32::try_from(over_ms).unwrap_or(u32::MAX) },
        values,
        received: rate(now.received, before.received, over_ms),
        dropped: rate(now.dropped, before.dropped, over_ms),
        busy: now.workers.iter().enumerate().map(share).collect(),
    }
}

/// Places by the step that they end in.
fn buckets<T>(places: &[T], step_s: u32, stamp: impl Fn(&T) -> Stamp) -> Vec<&[T]> {
    let step_ms = u64::from(step_s.max(1)) * 1000;
    // A place that ends a moment after a step's end is of that step.
    let number = move |place: &T| stamp(place).at_ms / step_ms;
    places.chunk_by(|a, b| number(a) == number(b)).collect()
}

/// Each place counts for as long as it was.
fn average(values: impl Iterator<Item = (Stamp, f64)>) -> f64 {
    let add = |(sum, over): (f64, f64), (stamp, value): (Stamp, f64)| {
        let weight = f64::from(stamp.over_ms.max(1));
        (sum + value * weight, over + weight)
    };
    let (sum, over) = values.fold((0.0, 0.0), add);
    sum / over.max(1.0)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn push_columns<'a, T>(
    rates: &mut Rates,
    bucket: &'a [T],
    stamp: impl Fn(&T) -> Stamp,
    values: impl Fn(&'a T) -> &'a [f64; COUNTS + 1],
) {
    let Some(last) = bucket.last() else { return };
    rates.at_unix_s.push(stamp(last).at_ms as f64 / 1e3);
    let of = |column: usize| tenths(average(bucket.iter().map(|p| (stamp(p), values(p)[column]))));
    let RateColumns { packets_per_s, bytes_per_s } = &mut rates.inbound;
    packets_per_s.push(of(0));
    bytes_per_s.push(of(1));
    let RateColumns { packets_per_s, bytes_per_s } = &mut rates.outbound;
    packets_per_s.push(of(2));
    bytes_per_s.push(of(3));
    rates.new_sessions_per_s.push(of(4));
    rates.sessions.push(of(5));
}

/// Milliseconds since 1970 of a moment after a start.
pub(crate) fn unix_ms(began_unix_ms: u64, after: Duration) -> u64 {
    began_unix_ms + u64::try_from(after.as_millis()).unwrap_or(u64::MAX - began_unix_ms)
}
