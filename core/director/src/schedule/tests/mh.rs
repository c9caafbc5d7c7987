//! Maglev's table: shares, disruption, agreement.

use super::super::mh::{Recipe, Table};
use super::*;

const SIZE: u32 = 65_537;

type Entry = (IpAddr, u16, u32);

fn farm(weights: impl IntoIterator<Item = u32>) -> Vec<Entry> {
    (0..).zip(weights).map(|(number, weight)| (address(number), 80, weight)).collect()
}

fn table(reals: &[Entry]) -> Table {
    Table::build(Recipe::new(Scheduling::Mh, reals.iter().copied(), SIZE, 0))
}

/// Whose each entry is, whatever the positions.
fn owners(reals: &[Entry]) -> Vec<IpAddr> {
    table(reals).cells().iter().map(|at| reals[*at as usize].0).collect()
}

fn counts(table: &Table, reals: usize) -> Vec<u32> {
    let mut counts = vec![0; reals];
    table.cells().iter().for_each(|at| counts[*at as usize] += 1);
    counts
}

/// Within one in a hundred of the weight.
#[test]
fn entries_are_shared_by_weight() {
    for weights in [
        vec![1; 100],
        (0..100).map(|n| 1 + n % 10).collect(),
        (1..=100).map(|n| n * 7 % 101 + 40).collect::<Vec<u32>>(),
        vec![60_000, 30_000, 10_000],
    ] {
        for scheduler in [Scheduling::Mh, Scheduling::Sh] {
            let reals = farm(weights.clone());
            let table = Table::build(Recipe::new(scheduler, reals, SIZE, 0));
            let size = table.len() as f64;
            let total: u32 = weights.iter().sum();
            let mut worst: f64 = 0.0;
            for (count, weight) in counts(&table, weights.len()).iter().zip(&weights) {
                let share = size * f64::from(*weight) / f64::from(total);
                worst = worst.max((f64::from(*count) / share - 1.0).abs());
            }
            println!("{}, {} reals: {:.3} %", scheduler.name(), weights.len(), worst * 100.0);
            assert!(worst < 0.01, "{worst}");
        }
    }
}

/// However small its weight, who has one gets an entry; who has none does not.
#[test]
fn extreme_weights() {
    let reals = farm(std::iter::once(u32::from(u16::MAX)).chain([1; 500]).chain([0; 10]));
    let counts = counts(&table(&reals), reals.len());
    assert!(counts[1..501].iter().all(|count| (7..=8).contains(count)), "7.94 is the share");
    assert_eq!(counts[501..], [0; 10]);
    assert!(table(&farm([0, 0])).lookup(1).is_none());
    assert!(table(&[]).lookup(1).is_none());
    assert_eq!(table(&farm([0, 3])).lookup(u64::MAX), Some(1));
}

/// When one of a hundred leaves, hardly anybody moves but its own clients.
#[test]
fn disruption_is_near_the_ideal() {
    for (weights, bound) in
        [(vec![1; 100], 1.12), ((0..100).map(|n| 1 + n % 4).collect::<Vec<u32>>(), 1.35)]
    {
        let (mut sum, mut worst) = (0.0, 0.0f64);
        for gone in (0..100).step_by(10) {
            let reals = farm(weights.clone());
            let before = owners(&reals);
            let mut rest = reals.clone();
            let gone = rest.remove(gone).0;
            let moved = before.iter().zip(owners(&rest)).filter(|(a, b)| *a != b).count();
            let own = before.iter().filter(|owner| **owner == gone).count();
            sum += moved as f64 / own as f64 / 10.0;
            worst = worst.max(moved as f64 / own as f64);
        }
        println!("one of 100 leaves: {sum:.3} times its own cells move, {worst:.3} at most");
        assert!((1.0..1.1).contains(&sum) && worst < bound, "{sum} {worst}");
    }
}

/// Maglev as in the paper: one takes the next free entry after the other.
fn maglev(reals: &[Entry], size: u64) -> Vec<IpAddr> {
    let mut order: Vec<_> = reals.iter().map(|r| (stable_hash(r.0, r.1, 0), r.0)).collect();
    order.sort_unstable();
    let way = |(hash, address): &(u64, IpAddr)| {
        let skip = 1 + hash::scale(hash::mix(hash ^ hash::GOLDEN), size - 1);
        (hash::scale(*hash, size), skip, *address)
    };
    let mut ways: Vec<_> = order.iter().map(way).collect();
    let mut entries = vec![None; size as usize];
    for turn in 0..entries.len() {
        let at = turn % ways.len();
        let (next, skip, address) = &mut ways[at];
        while entries[*next as usize].is_some() {
            *next = (*next + *skip) % size;
        }
        entries[*next as usize] = Some(*address);
    }
    entries.into_iter().flatten().collect()
}

/// With as many cells, ours moves fewer clients than the original.
#[test]
fn less_disruption_than_maglev() {
    let reals = farm([1; 100]);
    let moved = |owners: &dyn Fn(&[Entry]) -> Vec<IpAddr>| {
        let before = owners(&reals);
        let ratio = |gone: usize| {
            let mut rest = reals.clone();
            let gone = rest.remove(gone).0;
            let moved = before.iter().zip(owners(&rest)).filter(|(a, b)| *a != b).count();
            moved as f64 / before.iter().filter(|owner| **owner == gone).count() as f64
        };
        (0..100).step_by(10).map(ratio).sum::<f64>() / 10.0
    };
    let original = [65_537, 524_309].map(|size| moved(&|reals| maglev(reals, size)));
    let ours = moved(&owners);
    println!("moved for each of its own: Maglev {original:.3?}, ours {ours:.3}");
    assert!(original[0] > original[1] && original[1] > ours, "{original:?} {ours}");
}

/// Draining one moves the same entries as removing it.
#[test]
fn drained_is_as_gone() {
    let mut reals = farm([1; 20]);
    reals[7].2 = 0;
    let drained = owners(&reals);
    reals.remove(7);
    assert_eq!(drained, owners(&reals));
}

/// The order in the configuration does not matter, the seed does.
#[test]
fn directors_agree() {
    let reals = farm((0..50).map(|n| 1 + n % 5));
    let mut mixed = reals.clone();
    let mut cases = Cases(3);
    for at in (1..mixed.len()).rev() {
        mixed.swap(at, cases.below(at + 1));
    }
    assert_ne!(mixed, reals);
    assert_eq!(owners(&mixed), owners(&reals));
    let other = Table::build(Recipe::new(Scheduling::Mh, reals.clone(), SIZE, 1));
    let ours = table(&reals);
    let same = other.cells().into_iter().zip(ours.cells()).filter(|(a, b)| a == b);
    assert!(same.count() < ours.len() / 20);
}

#[test]
fn sizes_become_primes() {
    for (wanted, mh, sh) in [
        (0, 11, 1),
        (1, 11, 1),
        (100, 809, 100),
        (65_537, 524_309, 65_537),
        (655_373, 655_373, 655_373),
    ] {
        let of = |scheduler| Table::build(Recipe::new(scheduler, farm([1, 1]), wanted, 0)).len();
        assert_eq!((of(Scheduling::Mh), of(Scheduling::Sh)), (mh, sh));
    }
}

/// A table is kept as long as it would come out the same.
#[test]
fn a_table_knows_its_recipe() {
    let recipe = |weight, seed| Recipe::new(Scheduling::Mh, farm([1, weight]), 101, seed);
    let table = Table::build(recipe(2, 0));
    assert!(table.is_of(&recipe(2, 0)));
    assert!(!table.is_of(&recipe(3, 0)) && !table.is_of(&recipe(2, 1)));
}
