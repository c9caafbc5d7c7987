//! The index against maps, when it is full, and against hashes that were chosen.

use super::*;
use proptest::prelude::*;
use sluice_lanes::level::{Kernel, LANES, Level};
use std::collections::{BTreeMap, HashSet};

/// Eight hashes at once.
struct FirstAt<'a>(&'a Index, [u64; LANES]);

impl Kernel for FirstAt<'_> {
    type Output = [First; LANES];

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) -> [First; LANES] {
        let Self(index, hashes) = self;
        let [upper, lower] = [32, 0]
            .map(|shift| Words::load(instructions, &hashes.map(|hash| (hash >> shift) as u32)));
        let (mut homes, mut tags) = ([0; LANES], [0; LANES]);
        index.homes(instructions, upper).store(&mut homes);
        Index::tags(lower).store(&mut tags);
        std::array::from_fn(|lane| index.first_at(instructions, homes[lane], tags[lane]))
    }
}

fn mix(key: u64) -> u64 {
    let x = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    let y = u128::from((x >> 64) as u64 ^ x as u64) * 0xa076_1d64_78bd_642f;
    (y >> 64) as u64 ^ y as u64
}

/// Made for a number of keys, it takes that number, finds each, and lets each go.
#[test]
fn holds_what_it_was_made_for() {
    let keys = 200_000u32;
    let mut index = Index::new(u64::from(keys), PagePolicy::Ordinary).unwrap();
    for key in 0..keys {
        index.insert(mix(u64::from(key)), key).unwrap();
    }
    let mut away = 0;
    for key in 0..keys {
        let hash = mix(u64::from(key));
        assert_eq!(index.find(hash, |v| v == key), Some(key));
        if key.is_multiple_of(97) {
            // Keys that are there, some that are not, and one whose tag would be zero.
            let hashes = std::array::from_fn(|lane| match lane {
                0 => hash,
                1 => hash & !0xffff,
                _ => mix(u64::from(key) * lane as u64),
            });
            for level in Level::available() {
                let firsts = level.run(FirstAt(&index, hashes));
                assert_eq!(firsts, hashes.map(|hash| index.first(hash)));
            }
        }
        away += u32::from(index.first(hash) == First::Elsewhere);
    }
    assert!(away < keys / 15, "{away} of {keys} keys need a second line");
    // Of keys that are not there, few more.
    let absent = (keys..2 * keys).map(|key| mix(u64::from(key)));
    let away = absent.filter(|hash| index.first(*hash) == First::Elsewhere).count();
    assert!(away < keys as usize / 25, "{away} of {keys} absent keys need a second line");
    for key in 0..keys {
        assert!(index.remove(mix(u64::from(key)), key));
    }
    assert_eq!(index.live(), 0);
    let clean = |b: &Bucket| b.words.iter().all(|w| *w == 0);
    assert!(index.buckets.iter().all(clean), "no tag and no count is left behind");
}

/// Room is made by moving inhabitants well beyond the size that the table was made for.
#[test]
fn fills_to_nineteen_of_twenty() {
    let mut index = Index::new(80_000, PagePolicy::Ordinary).unwrap();
    let places = index.buckets.len() * WIDTH;
    let held = (0..).take_while(|k| index.insert(mix(u64::from(*k)), *k).is_ok()).count();
    assert!(held * 20 > places * 18, "{held} of {places}");
    assert!((0..held as u32).all(|k| index.find(mix(u64::from(k)), |v| v == k) == Some(k)));
}

/// Hashes that an attacker chose to be alike fill two buckets and then are refused.
#[test]
fn equal_hashes_are_bounded() {
    let mut index = Index::new(1_000, PagePolicy::Ordinary).unwrap();
    let held = (0..100u32).take_while(|k| index.insert(42 << 32 | 7, *k).is_ok()).count();
    assert!((10..=20).contains(&held), "{held}");
    assert_eq!(index.insert(42 << 32 | 7, 99), Err(Full));
    assert_eq!(index.find(42 << 32 | 7, |v| v == 99), None);
}

proptest! {
    /// Against a map: few buckets and few tags, so that everything collides.
    #[test]
    fn behaves_like_a_multimap(
        ops in proptest::collection::vec((any::<bool>(), any::<bool>(), 0u32..60), 1..400),
        keys in 1u64..40,
    ) {
        let mut index = Index::new(keys, PagePolicy::Ordinary).unwrap();
        let mut model = BTreeMap::new();
        let hash = |key: u32| mix(u64::from(key)) & !0xfffc;
        // Places that were seen a while ago may be taken.
        let mut seen_free = BTreeMap::new();
        for (insert, look, key) in ops {
            if let Some(vacancy) = index.vacancy(hash(key)).filter(|_| look) {
                seen_free.insert(key, vacancy);
            }
            if insert && !model.contains_key(&key) {
                let inserted = match seen_free.get(&key) {
                    Some(vacancy) => index.insert_at(hash(key), *vacancy, key),
                    None => index.insert(hash(key), key),
                };
                if inserted.is_ok() {
                    model.insert(key, ());
                }
            } else {
                prop_assert_eq!(index.remove(hash(key), key), model.remove(&key).is_some());
            }
            prop_assert_eq!(index.live() as usize, model.len());
            for key in 0..60 {
                let mut seen = HashSet::new();
                let found = index.find(hash(key), |v| { seen.insert(v); v == key });
                prop_assert_eq!(found.is_some(), model.contains_key(&key), "key {}", key);
                let is_full = index.buckets[index.home(hash(key))].free_place().is_none();
                let vacant = index.vacancy(hash(key)).is_some();
                prop_assert_eq!(vacant, seen.is_empty() && !is_full, "key {}", key);
            }
        }
    }
}
