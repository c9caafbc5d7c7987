//! Plays every committed corpus, and the golden cases as seeds, through its property.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, panic, thread};

use sluice_properties::{ALL, Property, Reached, corpus, reach, seeds, turn};
use sluice_testkit::golden;

/// Plays inputs; a failing one is named with the command that shows it again.
fn play(target: &str, property: Property, inputs: &[(String, Vec<u8>)]) {
    for (name, bytes) in inputs {
        let played = panic::catch_unwind(|| property(bytes));
        assert!(
            played.is_ok(),
            "{target}: {name} breaks the property; again, under the sanitizer, with the input in a \
             file (`corpus unpack`, see fuzz/README.md): cargo +nightly fuzz run {target} FILE"
        );
    }
}

#[test]
fn every_corpus() {
    for (target, property) in ALL {
        let inputs = corpus::inputs(target).expect(target);
        assert!(inputs.len() >= 20, "the corpus of {target} has only {} inputs", inputs.len());
        play(target, property, &inputs);
        println!("{target}: {} inputs", inputs.len());
    }
}

/// An unchanged corpus packs to the same bytes, so that a difference is one of inputs.
#[test]
fn archives_depend_only_on_their_inputs() {
    for (target, _) in ALL {
        let inputs = corpus::inputs(target).expect(target);
        let committed = fs::read(corpus::folder().join(format!("{target}.tar"))).expect(target);
        assert!(corpus::packed(&inputs).expect(target) == committed, "{target}: pack it again");
    }
}

#[test]
fn golden_cases_as_seeds() {
    let cases = golden::cases().expect("the golden cases can be made");
    let seeds = seeds::from_cases(&cases).expect("the golden cases can be read");
    for (target, property) in ALL {
        let of_target = seeds.iter().filter(|(of, _, _)| *of == target);
        let inputs: Vec<_> = of_target.map(|(_, name, b)| (name.clone(), b.clone())).collect();
        let of_frames = !["table", "health", "import", "ipvs", "memif"].contains(&target);
        assert!(!of_frames || inputs.len() >= 100, "{target}: {} seeds", inputs.len());
        play(target, property, &inputs);
    }
}

/// The judge has something to judge: the scenes show every mode in both IP versions and both
/// directions, and every kind of verdict.
#[test]
fn scenes_reach_everything() {
    let mut reached = Reached::new();
    for (target, name, script) in seeds::of_turns() {
        play(target, turn, &[(name, script.clone())]);
        reached.extend(reach(&script));
    }
    println!("{reached:?}");
    let modes = ["fnat", "nat", "dr", "ipip", "gue", "gre", "snat", "across"];
    let back = ["fnat back", "nat back", "snat back", "across back"];
    let kinds = [
        "cut",
        "parked",
        "fragment",
        "icmp_error",
        "too big",
        "time exceeded",
        "reset",
        "waits",
        "handed",
        "no_session",
        "kernel",
    ];
    for what in modes.into_iter().chain(back).chain(kinds) {
        for six in [false, true] {
            assert!(reached.contains(&(what, six)), "no scene shows {what}, IPv6 {six}");
        }
    }
}

/// The harness itself: a script whose frames are forwarded, answered and timed out gives sessions,
/// so that the properties are about something.
#[test]
fn random_scripts() {
    let scripts = std::env::var("SLUICE_SCRIPTS");
    let scripts: u64 = scripts.map_or(2000, |count| count.parse().expect("a number of scripts"));
    let next = AtomicU64::new(1);
    let play_all = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number > scripts {
                break;
            }
            let script = random_script(number);
            for (target, property) in ALL {
                play(target, property, &[(format!("{script:?}"), script.clone())]);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(play_all))));
}

fn random_script(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let length = next() % 200;
    (0..length).map(|_| (next() >> 32) as u8).collect()
}
