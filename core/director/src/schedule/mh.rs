//! `mh` and `sh`: the client's hash is looked up in a table that says whose it is.
//!
//! The table of `mh` is Maglev's (Eisenbud et al., Maglev: A Fast and Reliable Software Network
//! Load Balancer, NSDI 2016, 3.4): each real server goes through the entries in an order of its
//! own and takes the next free one whenever it is its turn, until all are taken. When a real server
//! leaves, nearly all others' entries stay theirs. That of `sh` is filled in the configured order,
//! to each as much as its weight says; it is even simpler, and a change moves many clients.
//!
//! Directors with the same real servers and seed make the same table, in whatever order their
//! configurations name them (`mh` only). A table is made when a plan is compiled and is then read
//! by all workers.

use super::hash::{GOLDEN, mix, scale, stable_hash};
use crate::blueprint::Scheduling;
use std::net::IpAddr;

/// The largest table; also the most real servers that `mh` can serve.
const MAX_SIZE: u32 = 1 << 28;

/// What a table is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    shuffled: bool,
    reals: Vec<(IpAddr, u16, u32)>,
    size: u32,
    seed: u64,
}

impl Recipe {
    /// For real servers by position: address, port, weight (0 for one that shall get nothing). A
    /// `size` that is no prime is rounded up to the next one.
    pub fn new(
        scheduler: Scheduling,
        reals: impl IntoIterator<Item = (IpAddr, u16, u32)>,
        size: u32,
        seed: u64,
    ) -> Self {
        let shuffled = scheduler != Scheduling::Sh;
        Self { shuffled, reals: reals.into_iter().collect(), size: prime_from(size), seed }
    }
}

/// Positions of real servers by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    recipe: Recipe,
    /// Empty when no real server has a weight.
    entries: Box<[u32]>,
}

impl Table {
    /// Makes the table. 65,537 entries take a few milliseconds.
    pub fn build(recipe: Recipe) -> Self {
        let total: u64 = recipe.reals.iter().map(|(.., weight)| u64::from(*weight)).sum();
        let entries = match (total, recipe.shuffled) {
            (0, _) => Vec::new(),
            (_, true) => shuffled(&recipe, total),
            (_, false) => in_order(&recipe, total),
        };
        Self { recipe, entries: entries.into_boxed_slice() }
    }

    /// Whether the table is what this would make.
    pub fn is_of(&self, recipe: &Recipe) -> bool {
        self.recipe == *recipe
    }

    /// The position of the real server for a client's hash; `None` if no real server has a
    /// weight.
    #[inline]
    pub fn lookup(&self, hash: u64) -> Option<u32> {
        self.entries.get(scale(hash, self.entries.len() as u64) as usize).copied()
    }

    /// All entries.
    pub fn entries(&self) -> &[u32] {
        &self.entries
    }
}

/// Each real server's entries in one piece, in the order of their positions.
fn in_order(recipe: &Recipe, total: u64) -> Vec<u32> {
    let size = u64::from(recipe.size);
    let mut entries = Vec::with_capacity(recipe.size as usize);
    let mut sum = 0u64;
    for (position, (.., weight)) in recipe.reals.iter().enumerate() {
        sum += u64::from(*weight);
        // To the nearest entry, so that no real server is a whole one off.
        let end = (u128::from(sum) * u128::from(size) + u128::from(total / 2)) / u128::from(total);
        entries.resize(end as usize, position as u32);
    }
    entries
}

/// A real server on its way through the entries.
struct Walker {
    position: u32,
    weight: u64,
    /// The entry that it looks at next, and how far it is to the one after.
    entry: u32,
    skip: u32,
    /// Turns that it had.
    turns: u64,
    /// Who has a turn after it in the same round.
    next: u32,
}

const NOBODY: u32 = u32::MAX;

/// Maglev's way. Turns come in rounds; turn k of a real server is in round (k + ½) × the largest
/// weight / its weight, so that in whatever round the table is full, everybody has had turns in
/// proportion to the weights, to within half a turn. A round is a list in the order in which its
/// members were put there, which in the end is that of their own hashes: nothing depends on
/// positions, and who leaves does not reorder the others.
fn shuffled(recipe: &Recipe, total: u64) -> Vec<u32> {
    let mut walkers = walkers(recipe);
    let size = u64::from(recipe.size);
    let largest = walkers.iter().map(|w| w.weight).max().unwrap_or(1);
    // Everybody's turns are counted to the nearest: by then there were `size` of them.
    let last = (size + walkers.len() as u64) * largest / total + 2;
    let mut rounds = vec![(NOBODY, NOBODY); last as usize + 1];
    let join = |rounds: &mut [(u32, u32)], walkers: &mut [Walker], who: u32| {
        let walker = &mut walkers[who as usize];
        walker.next = NOBODY;
        let mut round = (2 * walker.turns + 1) * largest / (2 * walker.weight);
        if walker.turns == 0 {
            // Half an entry or less would be rounded to none; who has a weight gets one.
            round = round.min(size * largest / total / 2);
        }
        let Some((first, tail)) = rounds.get_mut(round as usize) else { return };
        match walkers.get_mut(*tail as usize) {
            Some(tail) => tail.next = who,
            None => *first = who,
        }
        *tail = who;
    };
    for who in 0..walkers.len() {
        join(&mut rounds, &mut walkers, who as u32);
    }
    let mut entries = vec![NOBODY; recipe.size as usize];
    let mut taken = vec![0u64; entries.len().div_ceil(64)];
    let mut left = entries.len();
    let mut round = 0;
    while left > 0 && round < rounds.len() {
        let who = rounds[round].0;
        let Some(walker) = walkers.get_mut(who as usize) else {
            round += 1;
            continue;
        };
        rounds[round].0 = walker.next;
        if walker.next == NOBODY {
            rounds[round].1 = NOBODY;
        }
        entries[walker.take(&mut taken, recipe.size)] = walker.position;
        left -= 1;
        join(&mut rounds, &mut walkers, who);
    }
    entries
}

/// Those with a weight, by their hashes.
fn walkers(recipe: &Recipe) -> Vec<Walker> {
    let mut order = Vec::with_capacity(recipe.reals.len());
    for (position, &(address, port, weight)) in recipe.reals.iter().enumerate() {
        if weight > 0 {
            order.push((stable_hash(address, port, recipe.seed), position as u32, weight));
        }
    }
    order.sort_unstable();
    let walker = |(hash, position, weight): (u64, u32, u32)| Walker {
        position,
        weight: weight.into(),
        entry: scale(hash, recipe.size.into()) as u32,
        skip: 1 + scale(mix(hash ^ GOLDEN), u64::from(recipe.size) - 1) as u32,
        turns: 0,
        next: NOBODY,
    };
    order.into_iter().map(walker).collect()
}

impl Walker {
    /// Takes the next free entry in its order. The size is a prime, so it comes by all of them;
    /// there must be a free one.
    fn take(&mut self, taken: &mut [u64], size: u32) -> usize {
        self.turns += 1;
        loop {
            let entry = self.entry as usize;
            self.entry += self.skip;
            if self.entry >= size {
                self.entry -= size;
            }
            let (word, bit) = (&mut taken[entry / 64], 1 << (entry % 64));
            if *word & bit == 0 {
                *word |= bit;
                return entry;
            }
        }
    }
}

/// The first prime that is not below `number`, within what a table may be.
fn prime_from(number: u32) -> u32 {
    let is_prime = |n: u32| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (number.clamp(2, MAX_SIZE)..).find(|n| is_prime(*n)).unwrap_or(2)
}
