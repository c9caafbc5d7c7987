//! From a hash to candidates: buckets of one cache line with ten 16-bit tags and ten 32-bit
//! values.
//!
//! A key lives in its home bucket, or, when that is full, in its other bucket, which is computed
//! from the home bucket and the tag alone (`other = spread(tag) − home`, modulo the number of
//! buckets, is its own inverse for any number of buckets, so a table can have just the size it
//! needs). When both are full, an inhabitant is moved to its own other bucket. A home bucket
//! counts its keys that live elsewhere and has a bit for each of sixteen kinds of tags that those
//! may have, so a lookup reads a second line only when there is a reason to: with six of ten places
//! in use, one in 78 keys is away from home by Poisson's formula.
//!
//! A tag match is only a candidate (two keys in 65,535 share one): the caller compares the whole
//! key and goes on to the next candidate when it differs.

#[cfg(test)]
mod tests;

use crate::region::{PagePolicy, Pages, Region, RegionError};
use bytemuck::{NoUninit, Zeroable};
use sluice_lanes::level::Instructions;
use sluice_lanes::words::Words;
use sluice_lanes::{prefetch, tags};
use std::num::NonZeroU64;

/// Largest value that can be stored; the top bit of a place says that its key is away from home.
pub const MAX_VALUE: u32 = AWAY - 1;
/// No candidate.
pub const NONE: u32 = u32::MAX;

const AWAY: u32 = 1 << 31;
const WIDTH: usize = tags::WIDTH;
/// Place in `words` of the count of keys that call this bucket home and live elsewhere.
const ELSEWHERE: usize = WIDTH;
/// Place in `words` of the kinds of tags that they have: a bit for each that one has, and until
/// the count is zero again those that one had.
const KINDS: usize = WIDTH + 1;
/// Inhabitants that are moved, one to the place of the next, to make room for a key.
const MOVES: u32 = 2;
/// Of ten places, six are used when the table holds what it was made for. With seven a session
/// takes three bytes less, but more than twice as many keys are away from home: packets take 1 to
/// 3 % longer, mostly since nobody can foretell which of eight are away.
const PLACES_PER_TEN: usize = 6;

/// One cache line: ten tags (0: free), the count of keys that are elsewhere, what kinds of tags
/// they have, and ten values.
#[repr(C, align(64))]
#[derive(Clone, Copy, Zeroable, NoUninit)]
struct Bucket {
    words: [u16; tags::LOADED],
    values: [u32; WIDTH],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[inline(always)]
    fn matching(&self, tag: u16) -> u32 {
        tags::matching(&self.words, tag)
    }

    fn free_place(&self) -> Option<usize> {
        let free = self.matching(0);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Whether a key with this tag that calls the bucket home may live elsewhere.
    #[inline(always)]
    const fn is_elsewhere(&self, tag: u16) -> bool {
        self.words[KINDS] & kind(tag) != 0
    }

    /// Whether one more key may live elsewhere.
    const fn lets_go(&self) -> bool {
        self.words[ELSEWHERE] != u16::MAX
    }

    /// A key with this tag lives elsewhere from now on.
    const fn let_go(&mut self, tag: u16) {
        self.words[ELSEWHERE] += 1;
        self.words[KINDS] |= kind(tag);
    }

    /// One that lived elsewhere does no more.
    const fn took_back(&mut self) {
        self.words[ELSEWHERE] -= 1;
        if self.words[ELSEWHERE] == 0 {
            self.words[KINDS] = 0;
        }
    }

    fn set(&mut self, place: usize, tag: u16, value: u32) {
        self.words[place] = tag;
        self.values[place] = value;
    }
}

/// The bit of a tag's kind.
const fn kind(tag: u16) -> u16 {
    1 << (tag >> 12)
}

/// No room for a key: both of its buckets are full and so are those of their inhabitants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What the first look at a hash found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// A candidate in the home bucket.
    Candidate(u32),
    /// None at home, but keys of this bucket live elsewhere: [`Index::second`] must look there.
    Elsewhere,
    /// No such key.
    None,
}

/// A free place in the home bucket of a key that the index does not have: see [`Index::vacancy`].
/// One word, so that it is handed on in a register: the bucket, and below it the place and one
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vacancy(NonZeroU64);

const _: () = assert!(size_of::<Option<Vacancy>>() == 8);

impl Vacancy {
    #[inline(always)]
    fn new(bucket: usize, place: u32) -> Option<Self> {
        NonZeroU64::new((bucket as u64) << 8 | u64::from(place + 1)).map(Self)
    }

    /// The bucket, and the place in it.
    #[inline(always)]
    const fn at(self) -> (usize, usize) {
        let word = self.0.get();
        ((word >> 8) as usize, (word as u8).wrapping_sub(1) as usize)
    }
}

/// The index.
pub struct Index {
    buckets: Region<Bucket>,
    live: u64,
}

impl Index {
    /// An index made for `keys` keys.
    pub fn new(keys: u64, policy: PagePolicy) -> Result<Self, RegionError> {
        let buckets = (keys as usize * 10).div_ceil(WIDTH * PLACES_PER_TEN).max(2);
        Ok(Self { buckets: Region::new(buckets, policy)?, live: 0 })
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        let tag = hash as u16;
        tag | u16::from(tag == 0)
    }

    /// Where eight keys are at home, by the upper halves of their hashes.
    #[inline(always)]
    pub fn homes<I: Instructions>(&self, instructions: I, upper: Words<I>) -> Words<I> {
        let [_, homes] = upper.multiply(Words::splat(instructions, self.buckets.len() as u32));
        homes
    }

    /// Their tags, twice in each word, by the lower halves.
    #[inline(always)]
    pub fn tags<I: Instructions>(lower: Words<I>) -> Words<I> {
        let tags = lower & 0xffff;
        let tags = tags | (tags.is_word(0) & 1);
        tags | tags.shl::<16>()
    }

    /// The other bucket of a key with `tag` that has `bucket` as one of its two.
    #[inline(always)]
    fn other(&self, bucket: usize, tag: u16) -> usize {
        let buckets = self.buckets.len();
        let mixed = u32::from(tag).wrapping_mul(0x9e37_79b1);
        let spread = ((u64::from(mixed) * buckets as u64) >> 32) as usize;
        if spread >= bucket { spread - bucket } else { spread + buckets - bucket }
    }

    /// Asks for the home bucket of `hash`.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch::element(&self.buckets, self.home(hash));
    }

    /// Asks for a bucket of [`Self::homes`].
    #[inline(always)]
    pub fn prefetch_home(&self, home: u32) {
        prefetch::element(&self.buckets, home as usize);
    }

    /// Asks for the other bucket of `hash`, before [`Index::second`].
    #[inline(always)]
    pub fn prefetch_other(&self, hash: u64) {
        prefetch::read(&self.buckets[self.other(self.home(hash), Self::tag(hash))]);
    }

    /// The first candidate in the home bucket.
    #[inline(always)]
    pub fn first(&self, hash: u64) -> First {
        let (bucket, tag) = (&self.buckets[self.home(hash)], Self::tag(hash));
        let mask = bucket.matching(tag);
        if mask != 0 {
            First::Candidate(bucket.values[mask.trailing_zeros() as usize % WIDTH] & !AWAY)
        } else if bucket.is_elsewhere(tag) {
            First::Elsewhere
        } else {
            First::None
        }
    }

    /// [`Self::first`] of a key with one of [`Self::homes`] and [`Self::tags`].
    #[inline(always)]
    pub fn first_at<I: Instructions>(&self, instructions: I, home: u32, tags: u32) -> First {
        let bucket = &self.buckets[home as usize];
        let bytes: &[u8; size_of::<Bucket>()] = bytemuck::must_cast_ref(bucket);
        let front = bytes.first_chunk().unwrap_or(&[0; 32]);
        match instructions.first_equal(front, tags) {
            Some(place) => First::Candidate(bucket.values[place % WIDTH] & !AWAY),
            None if bucket.is_elsewhere(tags as u16) => First::Elsewhere,
            None => First::None,
        }
    }

    /// The first candidate in the other bucket, or [`NONE`].
    pub fn second(&self, hash: u64) -> u32 {
        let tag = Self::tag(hash);
        let bucket = &self.buckets[self.other(self.home(hash), tag)];
        let mask = bucket.matching(tag);
        if mask == 0 { NONE } else { bucket.values[mask.trailing_zeros() as usize] & !AWAY }
    }

    /// The first value among all candidates that `is_it` accepts.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let mut search = |bucket: &Bucket| {
            let mut mask = bucket.matching(tag);
            while mask != 0 {
                let value = bucket.values[mask.trailing_zeros() as usize] & !AWAY;
                if is_it(value) {
                    return Some(value);
                }
                mask &= mask - 1;
            }
            None
        };
        let bucket = &self.buckets[home];
        search(bucket).or_else(|| {
            bucket.is_elsewhere(tag).then(|| search(&self.buckets[self.other(home, tag)])).flatten()
        })
    }

    /// Looks at once whether the index has no candidate for a hash and where one would be added:
    /// `None` if there are any, or if there is no room at home.
    #[inline(always)]
    pub fn vacancy(&self, hash: u64) -> Option<Vacancy> {
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let bucket = &self.buckets[home];
        let free = bucket.matching(0);
        if (bucket.matching(tag) != 0) | (free == 0) {
            return None;
        }
        if bucket.is_elsewhere(tag) && self.second(hash) != NONE {
            return None;
        }
        Vacancy::new(home, free.trailing_zeros())
    }

    /// Adds a key where there was a vacancy for this hash. It does no harm if that is taken by now:
    /// then this is [`Self::insert`].
    #[inline(always)]
    pub fn insert_at(&mut self, hash: u64, at: Vacancy, value: u32) -> Result<(), Full> {
        let (bucket, place) = at.at();
        debug_assert!(value <= MAX_VALUE && self.home(hash) == bucket);
        match self.buckets.get_mut(bucket) {
            Some(bucket) if place < WIDTH && bucket.words[place] == 0 => {
                bucket.set(place, Self::tag(hash), value);
                self.live += 1;
                Ok(())
            }
            _ => self.insert(hash, value),
        }
    }

    /// Adds a key that is not in the index yet. `value` is at most [`MAX_VALUE`].
    pub fn insert(&mut self, hash: u64, value: u32) -> Result<(), Full> {
        debug_assert!(value <= MAX_VALUE);
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let other = self.other(home, tag);
        if let Some(place) = self.buckets[home].free_place() {
            self.buckets[home].set(place, tag, value);
        } else if let Some(place) = self.room_elsewhere(home, other) {
            self.buckets[other].set(place, tag, value | AWAY);
            self.buckets[home].let_go(tag);
        } else {
            let place = self.make_room(home, MOVES).ok_or(Full)?;
            self.buckets[home].set(place, tag, value);
        }
        self.live += 1;
        Ok(())
    }

    /// A place in `other` for a key whose home is `home`, unless that bucket's count of keys
    /// elsewhere is at its end.
    fn room_elsewhere(&self, home: usize, other: usize) -> Option<usize> {
        if other == home || !self.buckets[home].lets_go() {
            return None;
        }
        self.buckets[other].free_place()
    }

    /// A free place in `full`, made by moving one inhabitant to its own other bucket, and if need
    /// be one of that bucket's to its other one, at most `depth` times over.
    fn make_room(&mut self, full: usize, depth: u32) -> Option<usize> {
        for place in 0..WIDTH {
            if self.move_away(full, place) {
                return Some(place);
            }
        }
        for place in 0..if depth == 0 { 0 } else { WIDTH } {
            let target = self.other(full, self.buckets[full].words[place]);
            if self.make_room(target, depth - 1).is_some() {
                // The way there may have led back to this bucket: look again.
                if let Some(free) = self.buckets[full].free_place() {
                    return Some(free);
                }
                if self.move_away(full, place) {
                    return Some(place);
                }
            }
        }
        None
    }

    /// Moves the inhabitant of a place to its other bucket, if there is room.
    fn move_away(&mut self, from: usize, place: usize) -> bool {
        let (tag, value) = (self.buckets[from].words[place], self.buckets[from].values[place]);
        let target = self.other(from, tag);
        if target == from {
            return false;
        }
        let Some(free) = self.buckets[target].free_place() else { return false };
        if value & AWAY != 0 {
            self.buckets[target].took_back();
        } else if self.buckets[from].lets_go() {
            self.buckets[from].let_go(tag);
        } else {
            return false;
        }
        self.buckets[target].set(free, tag, value ^ AWAY);
        self.buckets[from].set(place, 0, 0);
        true
    }

    /// Removes the key that was inserted with this hash and value; `false` if there is none.
    pub fn remove(&mut self, hash: u64, value: u32) -> bool {
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let place_of = |bucket: &Bucket, value: u32| {
            let mut mask = bucket.matching(tag);
            while mask != 0 {
                let place = mask.trailing_zeros() as usize;
                if bucket.values[place] == value {
                    return Some(place);
                }
                mask &= mask - 1;
            }
            None
        };
        if let Some(place) = place_of(&self.buckets[home], value) {
            self.buckets[home].set(place, 0, 0);
        } else {
            let other = self.other(home, tag);
            let Some(place) = place_of(&self.buckets[other], value | AWAY) else { return false };
            self.buckets[other].set(place, 0, 0);
            self.buckets[home].took_back();
        }
        self.live -= 1;
        true
    }

    /// Keys in the index.
    pub const fn live(&self) -> u64 {
        self.live
    }

    /// The pages that the buckets lie in.
    pub const fn pages(&self) -> Pages {
        self.buckets.pages()
    }

    /// Bytes of address space that the buckets take.
    pub const fn mapped_bytes(&self) -> usize {
        self.buckets.mapped_bytes()
    }
}
