//! The network between the directors: it loses, duplicates, delays and reorders, and is cut for a
//! while.

use crate::rng::Rng;
use std::collections::BTreeMap;

/// A datagram under way.
pub(super) struct Datagram {
    pub from: usize,
    pub to: usize,
    pub bytes: Box<[u8]>,
}

/// Links between all directors.
pub(super) struct Links {
    queue: BTreeMap<(u64, u64), Datagram>,
    serial: u64,
    /// Pairs that are cut, the lower number first.
    cut: Vec<(usize, usize)>,
    loss: u32,
    doubled: u32,
    delay_ms: u64,
    jitter_ms: u64,
    rng: Rng,
    pub carried: u64,
}

impl Links {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::of(&[seed, 220]);
        Self {
            queue: BTreeMap::new(),
            serial: 0,
            cut: Vec::new(),
            loss: *rng.pick(&[0, 0, 10, 50, 150]),
            doubled: *rng.pick(&[0, 20, 100]),
            delay_ms: *rng.pick(&[0, 1, 5, 20]),
            jitter_ms: *rng.pick(&[0, 2, 10, 40]),
            rng,
            carried: 0,
        }
    }

    const fn pair(one: usize, other: usize) -> (usize, usize) {
        if one < other { (one, other) } else { (other, one) }
    }

    /// Whether nothing gets through between two directors.
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&Self::pair(one, other))
    }

    /// Cuts a link, or mends it.
    pub fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        let pair = Self::pair(one, other);
        self.cut.retain(|other| *other != pair);
        if cut {
            self.cut.push(pair);
        }
    }

    /// Sends a datagram.
    pub fn send(&mut self, now: u64, from: usize, to: usize, bytes: &[u8]) {
        self.carried += 1;
        let copies = 1 + u64::from(self.rng.chance(self.doubled));
        for _ in 0..copies {
            let delay = self.delay_ms + self.rng.below(self.jitter_ms + 1);
            if self.rng.chance(self.loss) || self.is_cut(from, to) {
                continue;
            }
            self.serial += 1;
            let datagram = Datagram { from, to, bytes: bytes.into() };
            self.queue.insert((now + delay, self.serial), datagram);
        }
    }

    /// When the next datagram arrives.
    pub fn due(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next datagram that has arrived.
    pub fn arrived(&mut self, now: u64) -> Option<Datagram> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
