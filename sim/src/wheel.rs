//! What happens when: a ring of milliseconds for what is near, a heap for what is far. Events of
//! one millisecond come in the order in which they were put in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SLOTS: u64 = 1024;

/// Events by their time in milliseconds.
#[derive(Debug)]
pub(crate) struct Wheel<E> {
    slots: Vec<Vec<E>>,
    now: u64,
    /// Events in slots.
    near: usize,
    far: BinaryHeap<Reverse<(u64, u64, usize)>>,
    parked: Vec<Option<E>>,
    free: Vec<usize>,
    count: u64,
}

impl<E> Wheel<E> {
    pub fn new(now: u64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            now,
            near: 0,
            far: BinaryHeap::new(),
            parked: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }

    /// Puts an event in; one of the past happens in the next millisecond.
    pub fn put(&mut self, at: u64, event: E) {
        let at = at.max(self.now + 1);
        if at - self.now < SLOTS {
            self.near += 1;
            self.slots[(at % SLOTS) as usize].push(event);
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.parked.push(None);
            self.parked.len() - 1
        });
        self.parked[place] = Some(event);
        self.count += 1;
        self.far.push(Reverse((at, self.count, place)));
    }

    /// Goes to the next millisecond and swaps its events into `out`, which is empty.
    pub fn advance(&mut self, out: &mut Vec<E>) {
        self.now += 1;
        // What came within reach goes to its slot before anything nearer is put there.
        while let Some(Reverse((at, _, place))) = self.far.peek().copied()
            && at - self.now < SLOTS
        {
            self.far.pop();
            self.free.push(place);
            if let Some(event) = self.parked[place].take() {
                self.near += 1;
                self.slots[(at % SLOTS) as usize].push(event);
            }
        }
        let slot = &mut self.slots[(self.now % SLOTS) as usize];
        self.near -= slot.len();
        std::mem::swap(slot, out);
    }

    /// Milliseconds in which certainly nothing happens.
    pub fn idle(&self) -> u64 {
        if self.near > 0 {
            let near = (1..SLOTS)
                .take_while(|ahead| self.slots[((self.now + ahead) % SLOTS) as usize].is_empty());
            return near.count() as u64;
        }
        self.far.peek().map_or(0, |Reverse((at, ..))| (at - self.now).saturating_sub(SLOTS))
    }

    /// Lets milliseconds pass in which nothing happens: at most [`Wheel::idle`].
    pub fn skip(&mut self, ms: u64) {
        self.now += ms;
    }

    /// Every event, whenever it would happen.
    pub fn drain(&mut self) -> Vec<E> {
        self.near = 0;
        self.far.clear();
        self.free.clear();
        let slots = self.slots.iter_mut().flat_map(std::mem::take);
        slots.chain(std::mem::take(&mut self.parked).into_iter().flatten()).collect()
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
            wheel.advance(&mut out);
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
        assert_eq!(wheel.drain(), [1, 2]);
    }
}
