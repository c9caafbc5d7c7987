//! What happens when: a ring of milliseconds for what is near, a heap for what is far. Events of
//! one millisecond come in the order in which they were put in.
//!
//! All events lie in one slab, and a millisecond is a list through it: what was freed last is used
//! first and still in the cache, and nothing is allocated once as many events were under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SLOTS: u64 = 1024;
/// No event.
const NONE: u32 = u32::MAX;

/// Events by their time in milliseconds.
#[derive(Debug)]
pub(crate) struct Wheel<E> {
    /// First and last event of each millisecond.
    slots: Vec<(u32, u32)>,
    /// A bit for each slot that has events.
    filled: [u64; SLOTS as usize / 64],
    now: u64,
    /// Events in slots.
    near: usize,
    far: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Events, each with the next one of its millisecond.
    events: Vec<(Option<E>, u32)>,
    free: Vec<u32>,
    count: u64,
}

impl<E> Wheel<E> {
    pub fn new(now: u64) -> Self {
        Self {
            slots: vec![(NONE, NONE); SLOTS as usize],
            filled: [0; SLOTS as usize / 64],
            now,
            near: 0,
            far: BinaryHeap::new(),
            events: Vec::with_capacity(SLOTS as usize),
            free: Vec::with_capacity(SLOTS as usize),
            count: 0,
        }
    }

    /// Puts an event in; one of the past happens in the next millisecond.
    pub fn put(&mut self, at: u64, event: E) {
        let at = at.max(self.now + 1);
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = (Some(event), NONE);
                place
            }
            None => {
                self.events.push((Some(event), NONE));
                (self.events.len() - 1) as u32
            }
        };
        if at - self.now < SLOTS {
            return self.append(at, place);
        }
        self.count += 1;
        self.far.push(Reverse((at, self.count, place)));
    }

    /// Adds an event to its millisecond.
    fn append(&mut self, at: u64, place: u32) {
        self.near += 1;
        let number = (at % SLOTS) as usize;
        self.filled[number / 64] |= 1 << (number % 64);
        let (first, last) = &mut self.slots[number];
        if *last == NONE {
            *first = place;
        } else {
            self.events[*last as usize].1 = place;
        }
        *last = place;
    }

    /// Goes on to a time and puts all events until then into `out`, in their order.
    pub fn advance_to(&mut self, at: u64, out: &mut Vec<E>) {
        while self.now < at {
            self.advance(out);
        }
    }

    /// Goes to the next millisecond and adds its events to `out`.
    fn advance(&mut self, out: &mut Vec<E>) {
        self.now += 1;
        // What came within reach goes to its slot before anything nearer is put there.
        while let Some(Reverse((at, _, place))) = self.far.peek().copied()
            && at - self.now < SLOTS
        {
            self.far.pop();
            self.append(at, place);
        }
        self.empty((self.now % SLOTS) as usize, out);
    }

    /// Moves a slot's events into `out`.
    fn empty(&mut self, number: usize, out: &mut Vec<E>) {
        let (mut place, _) = std::mem::replace(&mut self.slots[number], (NONE, NONE));
        self.filled[number / 64] &= !(1 << (number % 64));
        while place != NONE {
            let (event, next) = &mut self.events[place as usize];
            out.extend(event.take());
            self.near -= 1;
            self.free.push(place);
            place = *next;
        }
    }

    /// Milliseconds in which certainly nothing happens.
    pub fn idle(&self) -> u64 {
        if self.near == 0 {
            let first = self.far.peek();
            return first.map_or(0, |Reverse((at, ..))| (at - self.now).saturating_sub(SLOTS));
        }
        let mut ahead = 1;
        while ahead < SLOTS {
            let number = ((self.now + ahead) % SLOTS) as usize;
            let rest = self.filled[number / 64] >> (number % 64);
            if rest != 0 {
                return ahead + u64::from(rest.trailing_zeros()) - 1;
            }
            ahead += 64 - number as u64 % 64;
        }
        SLOTS - 1
    }

    /// Lets milliseconds pass in which nothing happens: at most [`Wheel::idle`].
    pub fn skip(&mut self, ms: u64) {
        self.now += ms;
    }

    /// Every event, whenever it would happen, in no order.
    pub fn drain(&mut self) -> Vec<E> {
        if self.events.len() == self.free.len() {
            return Vec::new();
        }
        self.near = 0;
        self.far.clear();
        self.free.clear();
        self.slots.fill((NONE, NONE));
        self.filled.fill(0);
        self.events.drain(..).filter_map(|(event, _)| event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_at_its_time() {
        let mut wheel = Wheel::new(100);
        let times = [101, 101, 150, 1123, 1124, 1125, 5000, 90_000, 50];
        for (number, at) in times.iter().enumerate() {
            wheel.put(*at, number);
        }
        let (mut now, mut out, mut got) = (100, Vec::new(), Vec::new());
        while got.len() < times.len() {
            let idle = wheel.idle();
            wheel.skip(idle);
            now += idle + 1;
            wheel.advance_to(now, &mut out);
            got.extend(out.drain(..).map(|number| (now, number)));
        }
        let right = [
            (101, 0),
            (101, 1),
            (101, 8),
            (150, 2),
            (1123, 3),
            (1124, 4),
            (1125, 5),
            (5000, 6),
            (90_000, 7),
        ];
        assert_eq!(got, right);
        wheel.put(90_010, 1);
        wheel.put(900_010, 2);
        let mut left = wheel.drain();
        left.sort_unstable();
        assert_eq!(left, [1, 2]);
    }
}
