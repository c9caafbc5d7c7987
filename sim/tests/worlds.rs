//! A bounded number of worlds, and whether the checker can fail.
//!
//! One seed more: `cargo run --release -p sluice-sim -- --seed N`.

use sluice_sim::{Failure, Recipe, Sabotage, run, run_traced, shrink};

/// How many worlds: those of `make test`, or as many as `SLUICE_SEEDS` says.
fn seeds() -> u64 {
    std::env::var("SLUICE_SEEDS").map_or(200, |count| count.parse().expect("a number of worlds"))
}

const STEPS: u64 = 5000;

/// Runs seeds on as many threads as there are processors, and gives the failures.
fn failures(seeds: std::ops::Range<u64>) -> Vec<(Recipe, Failure)> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    std::thread::scope(|scope| {
        let parts = (0..threads).map(|part| {
            let mine = seeds.clone().filter(move |seed| seed % threads == part);
            scope.spawn(move || {
                let recipes = mine.map(|seed| Recipe::new(seed, STEPS));
                recipes.filter_map(|r| run(&r).err().map(|failure| (r, failure))).collect()
            })
        });
        let parts: Vec<_> = parts.collect();
        parts
            .into_iter()
            .flat_map(|part: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
                part.join().expect("no world panics")
            })
            .collect()
    })
}

#[test]
fn worlds_hold() {
    let failures = failures(0..seeds());
    for (recipe, failure) in &failures {
        eprintln!("{}\n  {recipe}", failure.what);
    }
    assert!(failures.is_empty(), "{} of {} worlds fail", failures.len(), seeds());
}

/// Ordinary worlds spread flows, and all that can become of a packet becomes of some.
#[test]
fn worlds_spread_flows() {
    let (mut flows, mut packets, mut rules) = (0, [0; 4], 0);
    for seed in 160..260 {
        let outcome = run(&Recipe::new(seed, STEPS)).unwrap();
        (flows, rules) = (flows + outcome.spread, rules + outcome.redirects);
        for (sum, more) in packets.iter_mut().zip(outcome.dealt) {
            *sum += more;
        }
    }
    assert!(flows > 300, "{flows} flows were spread");
    assert!(rules > 100, "{rules} rules of NICs were made and removed");
    let [dealt, own, kept, late] = packets;
    assert!(dealt > 2000 && own > 50 && kept > 1000 && late > 10, "{packets:?}");
}

/// Hosts inside open sessions to the outside, share mappings, and find pools used up.
#[test]
fn worlds_have_source_nat() {
    let mut outward = [0; 3];
    for seed in 0..40 {
        let outcome = run(&Recipe::new(seed, STEPS)).unwrap();
        outward.iter_mut().zip(outcome.outward).for_each(|(sum, more)| *sum += more);
    }
    let [opened, shared, refused] = outward;
    assert!(opened > 800 && shared > 100 && refused > 300, "{outward:?}");
}

/// The same recipe is the same run, packet for packet.
#[test]
fn a_run_can_be_had_again() {
    for seed in 0..20 {
        let recipe = Recipe::new(seed, 2000);
        let (first, second) = (run(&recipe), run_traced(&recipe).0);
        assert_eq!(first, second);
        assert_ne!(first.unwrap().digest, run(&Recipe::new(seed + 1000, 2000)).unwrap().digest);
    }
}

/// What is broken on purpose is noticed within a few worlds, and for the right reason.
#[test]
fn sabotage_is_noticed() {
    for (sabotage, told) in [
        (Sabotage::Payload, "payload"),
        (Sabotage::Header, "became"),
        (Sabotage::Mac, "goes by"),
        (Sabotage::Leak, "frames are in use"),
        (Sabotage::Miscount, "no_route"),
        (Sabotage::Crc, "its checksum was changed"),
        (Sabotage::Renumber, "became|leads to no real server"),
        (Sabotage::Amnesia, ""),
        (Sabotage::NoSweep, "sessions"),
        (Sabotage::OldPlan, ""),
        (Sabotage::Swerve, "leads to no real server|became|also used|has a session|goes by"),
        (Sabotage::WrongWorker, "handed to worker|though the first was Handed"),
        (Sabotage::Piece, "a later fragment"),
        (Sabotage::Deaf, "it went on waiting"),
        (Sabotage::Error, "an ICMP error"),
        (Sabotage::Overtake, "is next|leaves behind"),
        (Sabotage::CountTwice, "counts packets and bytes"),
        (Sabotage::Mislay, "is next|never came out"),
        (Sabotage::OuterSum, "an outer UDP header is wrong|a GRE header is wrong"),
        (Sabotage::Offset, "became"),
        (Sabotage::SackOffset, "became"),
        (Sabotage::NoFence, "leaves behind"),
        (Sabotage::EarlyMark, "leaves behind"),
        (Sabotage::Stale, "goes by|gone|became|there is no route"),
        (Sabotage::Remap, "outside endpoint|local port|also used"),
        (Sabotage::Misdeliver, "became"),
    ] {
        // Downloads that are spread, and whose real servers report what is missing, come late.
        let steps = if sabotage == Sabotage::SackOffset { 4 * STEPS } else { STEPS };
        let noticed = (0..60).find_map(|seed| {
            run(&Recipe { sabotage: Some(sabotage), ..Recipe::new(seed, steps) }).err()
        });
        let what = noticed.unwrap_or_else(|| panic!("{sabotage:?} is not noticed")).what;
        assert!(told.split('|').any(|told| what.contains(told)), "{sabotage:?}: {what}");
    }
}

/// A failing world becomes a handful of actions that still fail, by one command.
#[test]
fn a_failure_shrinks() {
    let mut seeds = 0..30;
    let (recipe, failure) = seeds
        .find_map(|seed| {
            let recipe = Recipe { sabotage: Some(Sabotage::OldPlan), ..Recipe::new(seed, STEPS) };
            run(&recipe).err().map(|failure| (recipe, failure))
        })
        .expect("a plan that is never adopted is noticed");
    let (small, failure) = shrink(&recipe, &failure, 400);
    let actions: u32 =
        small.only.iter().flatten().map(|range| range.end() - range.start() + 1).sum();
    assert!((1..=12).contains(&actions), "{actions} actions are left: {small}");
    assert_eq!(run(&small), Err(failure));
}
