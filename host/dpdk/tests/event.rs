//! The ordered stage of `event_sw` keeps the order, whichever helper is slow and whatever is
//! dropped.

use sluice_dpdk::{DROPPED, Eal, EalConfig, EventStage, HugePages};

/// Numbers that go through.
const ALL: u64 = 20_000;

fn dropped(number: u64) -> bool {
    number % 97 == 5
}

/// Runs numbers through a stage, and gives what comes out.
fn run(stage: &mut EventStage, helpers: u16) -> Vec<u64> {
    let (mut next, mut out, mut rounds) = (0, Vec::new(), 0_u64);
    let expected = (0..ALL).filter(|number| !dropped(*number)).count();
    while out.len() < expected {
        assert!(rounds < 1_000_000, "{} of {expected} came out", out.len());
        let some: Vec<u64> = (next..ALL.min(next + 1 + rounds % 50)).collect();
        next += stage.deal(&some) as u64;
        stage.schedule().unwrap();
        for helper in 0..helpers {
            // One has its turn every time, one every second time, one every third time, …
            if rounds % (u64::from(helper) + 1) != 0 {
                continue;
            }
            let mut taken = [0; 32];
            let count = stage.take(helper, &mut taken);
            let taken = &mut taken[..count];
            taken.iter_mut().filter(|number| dropped(**number)).for_each(|n| *n = DROPPED);
            let mut given = 0;
            while given < count {
                given += stage.give(helper, &taken[given..]);
            }
        }
        stage.schedule().unwrap();
        let mut came = [0; 64];
        let count = stage.collect(&mut came);
        out.extend_from_slice(&came[..count]);
        rounds += 1;
    }
    out
}

#[test]
fn order_holds_whoever_is_slow() {
    // A device takes megabytes.
    let config = EalConfig {
        huge_pages: HugePages::Off,
        frames: 1024,
        memory_mb: Some(256),
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).unwrap();
    for helpers in [1, 2, 4] {
        let mut stage = EventStage::open(&eal, helpers).unwrap();
        let expected: Vec<u64> = (0..ALL).filter(|number| !dropped(*number)).collect();
        assert_eq!(run(&mut stage, helpers), expected, "{helpers} helpers");
    }
}
