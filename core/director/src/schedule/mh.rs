//! `mh` and `sh`: the client's hash is looked up in a table that says whose it is.
//!
//! The table of `mh` goes back to Maglev's (Eisenbud et al., Maglev: A Fast and Reliable Software
//! Network Load Balancer, NSDI 2016, 3.4): each real server goes through the cells in an order of
//! its own and takes those that are free. Ours differs in when it does (see [`shuffled`]), which
//! leaves a smaller part of the others' clients moved when a real server leaves, for the same
//! evenness. That of `sh` is filled in the configured order, to each as much as its weight says;
//! it is simpler, and any change moves many clients.
//!
//! Directors with the same real servers and seed make the same table of `mh`, in whatever order
//! their configurations name them. A table is made when a plan is compiled and is then read by all
//! workers.

use super::hash::{GOLDEN, mix, scale, stable_hash};
use crate::spec::Scheduling;
use std::net::IpAddr;

/// The largest table.
const MAX_SIZE: u32 = 1 << 25;
/// Cells of an entry of `mh`, as long as there are no more than `MANY`. How far chance alone takes
/// real servers from their shares, and so how much has to be evened out, goes down with the square
/// root of the number of cells.
const CELLS: u32 = 8;
const MANY: u32 = 65_537 * CELLS;
/// How far from its share a real server of `mh` may be, in parts of 10,000.
const SLACK: u64 = 95;

/// What a table is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    shuffled: bool,
    reals: Vec<(IpAddr, u16, u32)>,
    size: u32,
    seed: u64,
}

impl Recipe {
    /// For real servers by position: address, port, weight (0 for one that shall get nothing).
    /// `size` is the number of entries; `mh` makes
    /// up to eight cells of each, and rounds up to a prime.
    pub fn new(
        scheduler: Scheduling,
        reals: impl IntoIterator<Item = (IpAddr, u16, u32)>,
        size: u32,
        seed: u64,
    ) -> Self {
        let shuffled = scheduler == Scheduling::Mh;
        Self { shuffled, reals: reals.into_iter().collect(), size: size.clamp(1, MAX_SIZE), seed }
    }
}

/// Positions of real servers by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    recipe: Recipe,
    cells: Cells,
}

/// Positions; none at all when no real server has a weight. Half the memory is half the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cells {
    Narrow(Box<[u16]>),
    Wide(Box<[u32]>),
}

impl Cells {
    fn new(cells: Vec<u32>) -> Self {
        let narrow: Result<_, _> = cells.iter().map(|cell| u16::try_from(*cell)).collect();
        narrow.map_or_else(|_| Self::Wide(cells.into_boxed_slice()), Self::Narrow)
    }
}

impl Table {
    /// Makes the table. 65,537 entries take some ten milliseconds.
    pub fn build(recipe: Recipe) -> Self {
        let total: u64 = recipe.reals.iter().map(|(.., weight)| u64::from(*weight)).sum();
        let cells = match (total, recipe.shuffled) {
            (0, _) => Vec::new(),
            (_, true) => shuffled(&recipe, total),
            (_, false) => in_order(&recipe, total),
        };
        Self { recipe, cells: Cells::new(cells) }
    }

    /// The number of entries that was asked for.
    pub const fn size(&self) -> u32 {
        self.recipe.size
    }

    /// Whether the table is what this would make.
    pub fn is_of(&self, recipe: &Recipe) -> bool {
        self.recipe == *recipe
    }

    /// The position of the real server for a client's hash; `None` if no real server has a
    /// weight.
    #[inline]
    pub fn lookup(&self, hash: u64) -> Option<u32> {
        let at = scale(hash, self.len() as u64) as usize;
        match &self.cells {
            Cells::Narrow(cells) => cells.get(at).copied().map(u32::from),
            Cells::Wide(cells) => cells.get(at).copied(),
        }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Narrow(cells) => cells.len(),
            Cells::Wide(cells) => cells.len(),
        }
    }

    /// Whether no real server has a weight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position in each cell.
    pub fn cells(&self) -> Vec<u32> {
        match &self.cells {
            Cells::Narrow(cells) => cells.iter().map(|cell| u32::from(*cell)).collect(),
            Cells::Wide(cells) => cells.to_vec(),
        }
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

/// A real server on its way through the cells.
struct Walker {
    hash: u64,
    position: u32,
    weight: u64,
    /// The cell that it looks at next, and how far it is to the one after.
    cell: u32,
    skip: u32,
    /// The round of its first look.
    first: u64,
    /// Rounds from one look to the next: whole ones, and so many parts of 1 / `weight` more, which
    /// add up in `carry`.
    rounds: u64,
    parts: u64,
    carry: u64,
    /// Who looks after it in the same round.
    next: u32,
    /// Cells that are its own, and bounds for their number: within a hundredth of its share,
    /// and the share itself, rounded down and up.
    owned: u64,
    least: u64,
    floor: u64,
    ceiling: u64,
    most: u64,
}

const NOBODY: u32 = u32::MAX;

/// Cells by position. First everybody looks at the cells in its own order, as often as its weight
/// says, and whoever comes by a cell first has it. Who has more than its share keeps it so far:
/// were it to wait, as in Maglev, who comes by next would have the cell, and so on, so that one
/// that leaves would change much that is not its own. Only then what is out of bounds is evened
/// out. Nothing depends on positions: ties go by the real servers' own hashes.
fn shuffled(recipe: &Recipe, total: u64) -> Vec<u32> {
    let size = prime_from(recipe.size.max((recipe.size * CELLS).min(MANY)));
    let mut walkers = walkers(recipe, size, total);
    let mut cells = race(&mut walkers, size);
    even_out(&mut walkers, &mut cells);
    for cell in &mut cells {
        *cell = walkers.get(*cell as usize).map_or(0, |walker| walker.position);
    }
    cells
}

/// Those with a weight, by their hashes.
fn walkers(recipe: &Recipe, size: u32, total: u64) -> Vec<Walker> {
    let mut order = Vec::with_capacity(recipe.reals.len());
    for (position, &(address, port, weight)) in recipe.reals.iter().enumerate() {
        if weight > 0 {
            order.push((stable_hash(address, port, recipe.seed), position as u32, weight.into()));
        }
    }
    order.sort_unstable();
    let largest = order.iter().map(|(.., weight)| *weight).max().unwrap_or(1);
    let walker = |(hash, position, weight): (u64, u32, u64)| {
        let cells = u64::from(size) * weight;
        let (floor, ceiling) = (cells / total, cells.div_ceil(total));
        let bound = |parts: u64| u128::from(cells) * u128::from(parts);
        let whole = u128::from(total) * 10_000;
        Walker {
            hash,
            position,
            weight,
            cell: scale(hash, size.into()) as u32,
            skip: 1 + scale(mix(hash ^ GOLDEN), u64::from(size) - 1) as u32,
            first: largest / 2 / weight,
            rounds: largest / weight,
            parts: largest % weight,
            carry: largest / 2 % weight,
            next: NOBODY,
            owned: 0,
            least: (bound(10_000 - SLACK).div_ceil(whole) as u64).min(floor).max(1),
            floor,
            ceiling,
            most: ((bound(10_000 + SLACK) / whole) as u64).max(ceiling),
        }
    };
    order.into_iter().map(walker).collect()
}

/// Who comes by each cell first. A real server looks at its k-th cell in round (k + ½) × the
/// largest weight / its weight. The rounds are a ring of lists, each in the order in which its
/// members were put there, so who leaves does not reorder the others.
fn race(walkers: &mut [Walker], size: u32) -> Vec<u32> {
    if walkers.iter().all(|walker| (walker.rounds, walker.parts) == (1, 0)) {
        return race_of_equals(walkers, size);
    }
    let slowest = walkers.iter().map(|walker| walker.rounds).max().unwrap_or(1);
    let length = (slowest as usize + 2).next_power_of_two();
    let mut ring = Ring { rounds: vec![(NOBODY, NOBODY); length] };
    for who in 0..walkers.len() {
        ring.join(walkers, who as u32, walkers[who].first as usize);
    }
    let mut cells = vec![NOBODY; size as usize];
    // The same as whether a cell is somebody's, in a thirty-second of the memory.
    let mut taken = vec![0u64; cells.len().div_ceil(64)];
    let mut left = cells.len();
    let mut round = 0;
    // The last ones are found in less looks from the other side.
    while left * walkers.len() > cells.len() {
        let Some(who) = ring.leave(walkers, round) else {
            round += 1;
            continue;
        };
        let walker = &mut walkers[who as usize];
        let cell = walker.step(size);
        let (word, bit) = (&mut taken[cell / 64], 1 << (cell % 64));
        if *word & bit == 0 {
            *word |= bit;
            cells[cell] = who;
            left -= 1;
        }
        walker.carry += walker.parts;
        let more = walker.carry >= walker.weight;
        walker.carry -= if more { walker.weight } else { 0 };
        let rounds = walker.rounds as usize + usize::from(more);
        ring.join(walkers, who, round + rounds);
    }
    finish(walkers, &mut cells);
    cells
}

/// The same where each looks once in a round: no list is needed for who comes next, and nothing is
/// guessed. It ends with a round, which makes no difference.
fn race_of_equals(walkers: &mut [Walker], size: u32) -> Vec<u32> {
    let mut ways: Vec<_> = walkers.iter().map(|walker| (walker.cell, walker.skip)).collect();
    let mut cells = vec![NOBODY; size as usize];
    let mut left = cells.len();
    while left * ways.len() > cells.len() {
        for (who, (cell, skip)) in (0..).zip(&mut ways) {
            left -= usize::from(look(&mut cells, *cell, who));
            *cell = after(*cell, *skip, size);
        }
    }
    finish(walkers, &mut cells);
    cells
}

/// Gives a cell to who looks at it, if it is nobody's; whether it was. Written in either case: it
/// is as likely as not, and a wrong guess costs more.
#[inline(always)]
fn look(cells: &mut [u32], cell: u32, who: u32) -> bool {
    let Some(owner) = cells.get_mut(cell as usize) else { return false };
    let free = *owner == NOBODY;
    *owner = if free { who } else { *owner };
    free
}

/// The cell behind another in an order of cells.
#[inline(always)]
fn after(cell: u32, skip: u32, size: u32) -> u32 {
    let next = cell + skip;
    // Less than nothing wraps around to what is larger.
    next.min(next.wrapping_sub(size))
}

/// Who will come by each free cell first: the skip's inverse modulo the size tells how many looks
/// a real server still needs.
fn finish(walkers: &mut [Walker], cells: &mut [u32]) {
    let size = cells.len() as u64;
    let reciprocal = u64::MAX / size;
    let inverse = |walker: &Walker| power(walker.skip.into(), size - 2, size);
    let ways: Vec<_> =
        walkers.iter().map(|w| (scale(w.hash, size), inverse(w), w.weight)).collect();
    for (cell, owner) in (0u64..).zip(cells.iter_mut()).filter(|(_, owner)| **owner == NOBODY) {
        // The round is (k + ½) / weight, up to a factor.
        let mut earliest = (u64::MAX, 0);
        for (who, (start, inverse, weight)) in (0u32..).zip(&ways) {
            let look = remainder((cell + size - start) * inverse, size, reciprocal);
            let half = 2 * look + 1;
            if *owner == NOBODY || half * earliest.1 < earliest.0 * weight {
                (earliest, *owner) = ((half, *weight), who);
            }
        }
    }
    for owner in cells {
        if let Some(walker) = walkers.get_mut(*owner as usize) {
            walker.owned += 1;
        }
    }
}

/// A number modulo the size, by its reciprocal in 64 bits: a division takes several times as long.
#[inline(always)]
const fn remainder(number: u64, size: u64, reciprocal: u64) -> u64 {
    let quotient = ((number as u128 * reciprocal as u128) >> 64) as u64;
    // One too little at most, as long as the number is small beside 2⁶⁴.
    let rest = number - quotient * size;
    if rest >= size { rest - size } else { rest }
}

/// By Fermat's little theorem the inverse of `base`, if `exponent` is two less than the prime.
fn power(mut base: u64, mut exponent: u64, prime: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * base % prime;
        }
        base = base * base % prime;
        exponent /= 2;
    }
    result
}

/// Lists of who looks in which round.
struct Ring {
    /// The first and the last; a power of two of them.
    rounds: Vec<(u32, u32)>,
}

impl Ring {
    fn join(&mut self, walkers: &mut [Walker], who: u32, round: usize) {
        walkers[who as usize].next = NOBODY;
        let mask = self.rounds.len() - 1;
        let (first, last) = &mut self.rounds[round & mask];
        match walkers.get_mut(*last as usize) {
            Some(last) => last.next = who,
            None => *first = who,
        }
        *last = who;
    }

    fn leave(&mut self, walkers: &[Walker], round: usize) -> Option<u32> {
        let mask = self.rounds.len() - 1;
        let (first, last) = &mut self.rounds[round & mask];
        let who = *first;
        *first = walkers.get(who as usize)?.next;
        if *first == NOBODY {
            *last = NOBODY;
        }
        Some(who)
    }
}

/// Who has too little takes from who has too much, cell by cell in another order of its own: as
/// long as there are both, from the ones to the others; then from those above their share, or by
/// those below it.
fn even_out(walkers: &mut [Walker], cells: &mut [u32]) {
    let size = cells.len() as u32;
    for walker in walkers.iter_mut() {
        let hash = mix(walker.hash.wrapping_add(GOLDEN));
        walker.cell = scale(hash, size.into()) as u32;
        walker.skip = 1 + scale(mix(hash ^ GOLDEN), u64::from(size) - 1) as u32;
    }
    let mut low = walkers.iter().filter(|walker| walker.is_low()).count();
    let mut high = walkers.iter().filter(|walker| walker.is_high()).count();
    // More real servers than cells cannot all have one; that must end, too.
    for _ in 0..cells.len() {
        let mut nobody = true;
        for who in 0..walkers.len() {
            if low + high == 0 {
                return;
            }
            let wanted = if low > 0 { walkers[who].least } else { walkers[who].ceiling };
            if walkers[who].owned >= wanted {
                continue;
            }
            nobody = false;
            let cell = walkers[who].step(size);
            let owner = &mut walkers[cells[cell] as usize];
            let enough = if high > 0 { owner.most } else { owner.floor };
            if owner.owned > enough {
                let was_high = owner.is_high();
                owner.owned -= 1;
                high -= usize::from(was_high && !owner.is_high());
                let was_low = walkers[who].is_low();
                walkers[who].owned += 1;
                low -= usize::from(was_low && !walkers[who].is_low());
                cells[cell] = who as u32;
            }
        }
        if nobody {
            return;
        }
    }
}

impl Walker {
    /// The next cell in its order. The number of cells is a prime, so it comes by all of them.
    fn step(&mut self, size: u32) -> usize {
        let cell = self.cell;
        self.cell = after(cell, self.skip, size);
        cell as usize
    }

    fn is_low(&self) -> bool {
        self.owned < self.least
    }

    fn is_high(&self) -> bool {
        self.owned > self.most
    }
}

/// The first prime that is not below `number`, within what a table may be.
fn prime_from(number: u32) -> u32 {
    let is_prime = |n: u32| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (number.max(2)..).find(|n| is_prime(*n)).unwrap_or(2)
}
