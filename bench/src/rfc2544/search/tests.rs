//! The search against simulated devices whose capacity is known.

use super::*;
use crate::clients::Random;
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { least_pps: 1_000, most_pps: 20_000_000, trials: 500, phases: 3, first_s: 0.1 };
const WIDTH: f64 = 0.005;

fn goal(name: &'static str, loss_ratio: f64) -> Goal {
    Goal { name, loss_ratio, exceed_ratio: 0.5, duration_s: 1.0, sum_s: 3.0, width: WIDTH }
}

fn goals() -> Vec<Goal> {
    vec![goal("PDR", 1e-5), goal("NDR", 0.0)]
}

/// Sends `load` for as long as it was asked to; `lost` tells how many of how many.
fn outcome(ask: Ask, lost: impl FnOnce(u64) -> u64) -> Outcome {
    let sent = (ask.load_pps as f64 * ask.duration_s) as u64;
    let received = sent - lost(sent).min(sent);
    Outcome { sent, received, effective_s: ask.duration_s, fell_short: false }
}

/// Runs a search to its end.
fn run(limits: Limits, mut device: impl FnMut(Ask) -> Outcome) -> Search {
    let mut search = Search::new(goals(), limits);
    while let Some(ask) = search.next() {
        assert!((limits.least_pps..=limits.most_pps).contains(&ask.load_pps), "{ask:?}");
        assert!(ask.duration_s > 0.0 && ask.duration_s <= 1.0, "{ask:?}");
        search.report(device(ask));
        assert!(search.used() <= limits.trials);
    }
    assert_eq!(search.next(), None, "the end is the end");
    search
}

/// What must hold of every result, whatever the device did.
fn consistent(search: &Search) {
    let found = search.found();
    for goal in &found {
        if let (Some(lower), Some(upper)) = (goal.lower_pps, goal.upper_pps) {
            assert!(lower < upper, "{goal:?}");
            let near = (upper - lower) as f64 <= WIDTH * upper as f64 || upper - lower == 1;
            let limited = search.generator_limit_pps().is_some_and(|limit| lower >= limit);
            assert!(near || limited || !goal.finished, "{goal:?}");
        }
        let throughput = goal.throughput_pps.unwrap_or(0.0);
        assert!(throughput <= search.most_forwarded_pps() * (1.0 + 1e-9), "{goal:?}");
        assert_eq!(goal.lower_pps.is_some(), goal.throughput_pps.is_some());
    }
    let [pdr, ndr] = &found[..] else { panic!("{found:?}") };
    assert!(ndr.lower_pps <= pdr.lower_pps, "{found:?}");
    assert!(ndr.upper_pps.unwrap_or(u64::MAX) <= pdr.upper_pps.unwrap_or(u64::MAX), "{found:?}");
}

/// A device that forwards so much and no more.
fn wall(capacity: f64) -> impl Fn(Ask) -> Outcome {
    move |ask| {
        let excess = (ask.load_pps as f64 - capacity).max(0.0) * ask.duration_s;
        outcome(ask, |_| excess.ceil() as u64)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_known_capacity_is_found_within_the_width(capacity in 1_000u64..20_000_000) {
        let search = run(LIMITS, wall(capacity as f64));
        consistent(&search);
        for goal in search.found() {
            prop_assert!(goal.finished);
            let (lower, upper) = (goal.lower_pps.unwrap(), goal.upper_pps.unwrap());
            // So much more than the capacity may be offered.
            let most = capacity as f64 / (1.0 - goal.goal.loss_ratio) + 1.0;
            prop_assert!((lower as f64) <= most && (upper as f64) > capacity as f64);
            let throughput = goal.throughput_pps.unwrap();
            let near = (1.0 - 2.0 * WIDTH) * capacity as f64 - 1.0..=most;
            prop_assert!(near.contains(&throughput), "{throughput} of {capacity}");
        }
        prop_assert!(search.used() <= 80, "{} trials", search.used());
    }

    #[test]
    fn what_is_beyond_the_limits_is_said_so(below in any::<bool>()) {
        let capacity = if below { 500.0 } else { 30e6 };
        let search = run(LIMITS, wall(capacity));
        consistent(&search);
        for goal in search.found() {
            prop_assert!(goal.finished);
            let expected = match below {
                true => (None, Some(LIMITS.least_pps)),
                false => (Some(LIMITS.most_pps), None),
            };
            prop_assert_eq!((goal.lower_pps, goal.upper_pps), expected);
        }
        if !below {
            prop_assert_eq!(search.forwarded_at_most_pps(), LIMITS.most_pps as f64);
        }
    }

    /// One trial in ten loses a packet more, whatever the load: half of them may.
    #[test]
    fn noise_that_the_exceed_ratio_covers_does_not_spoil_it(
        seed in any::<u64>(), capacity in 100_000u64..10_000_000,
    ) {
        let mut random = Random::new(seed);
        let search = run(LIMITS, |ask| {
            let mut outcome = wall(capacity as f64)(ask);
            outcome.received -= u64::from(random.below(10) == 0);
            outcome
        });
        consistent(&search);
        let pdr = &search.found()[0];
        let near = 0.97 * capacity as f64..=1.001 * capacity as f64;
        // A packet of 10,000 and more is too few to be a share of 0.001 %.
        if capacity > 2_000_000 {
            prop_assert!(near.contains(&pdr.throughput_pps.unwrap()), "{pdr:?} of {capacity}");
        }
        prop_assert!(search.found().iter().all(|goal| goal.finished));
    }

    /// It loses in a band of loads far below what it can carry.
    #[test]
    fn loss_that_comes_and_goes_with_the_load(
        capacity in 2_000_000u64..10_000_000, from in 10_000u64..1_900_000, wide in 1u64..500_000,
    ) {
        let band = from..from + wide;
        let search = run(LIMITS, |ask| match band.contains(&ask.load_pps) {
            true => outcome(ask, |sent| sent / 100),
            false => wall(capacity as f64)(ask),
        });
        consistent(&search);
        for goal in search.found() {
            prop_assert!(goal.finished);
            let lower = goal.lower_pps.unwrap();
            prop_assert!(!band.contains(&lower), "{lower} in {band:?}");
        }
    }

    #[test]
    fn the_generators_limit_is_the_bound_and_said_so(
        limit in 10_000u64..15_000_000, capacity in 5_000u64..20_000_000,
    ) {
        let search = run(LIMITS, |ask| {
            let offered = ask.load_pps.min(limit);
            let fell_short = offered < ask.load_pps;
            let given = Ask { load_pps: offered, ..ask };
            Outcome { fell_short, ..wall(capacity as f64)(given) }
        });
        consistent(&search);
        let said = search.generator_limit_pps().unwrap();
        prop_assert!(said.abs_diff(limit) <= 1 + limit / 1000, "{said} instead of {limit}");
        for goal in search.found() {
            prop_assert!(goal.finished);
            let lower = goal.lower_pps.unwrap() as f64;
            let reachable = capacity.min(limit) as f64;
            prop_assert!(lower <= reachable * 1.001 + 1.0 && lower >= reachable * 0.98 - 1.0);
            if capacity > limit + limit / 100 {
                prop_assert_eq!(goal.upper_pps, None);
            }
        }
    }

    /// For a moment it can do more than for long.
    #[test]
    fn a_generator_that_tires_is_no_reason_to_go_on_for_ever(
        limit in 100_000u64..9_000_000, capacity in 50_000u64..20_000_000,
    ) {
        let search = run(LIMITS, |ask| {
            let able = if ask.duration_s < 1.0 { limit + limit / 5 } else { limit };
            let offered = ask.load_pps.min(able);
            let fell_short = offered < ask.load_pps;
            let given = Ask { load_pps: offered, ..ask };
            Outcome { fell_short, ..wall(capacity as f64)(given) }
        });
        consistent(&search);
        prop_assert!(search.used() <= 100, "{} trials", search.used());
        for goal in search.found() {
            prop_assert!(goal.finished);
            let reachable = capacity.min(limit) as f64;
            let lower = goal.lower_pps.unwrap() as f64;
            prop_assert!(lower <= reachable * 1.001 + 1.0 && lower >= reachable * 0.98 - 1.0);
        }
    }

    /// Whatever comes back, in every field.
    #[test]
    fn nothing_keeps_it_from_ending(
        seed in any::<u64>(), phases in 1u8..6, trials in 1u32..300, least in 1u64..1000,
        range in 0u64..10_000_000,
    ) {
        let most_pps = least + range;
        let limits = Limits { least_pps: least, most_pps, trials, phases, first_s: 0.05 };
        let mut random = Random::new(seed);
        let search = run(limits, |ask| {
            let sent = random.next() % 1_000_000;
            let received = match random.below(3) {
                0 => sent,
                1 => sent - sent / 200_000,
                _ => random.next() % (sent + 2),
            };
            let effective_s = ask.duration_s * f64::from(random.below(300)) / 100.0;
            Outcome { sent, received, effective_s, fell_short: random.below(20) == 0 }
        });
        for goal in search.found() {
            if let (Some(lower), Some(upper)) = (goal.lower_pps, goal.upper_pps) {
                prop_assert!(lower < upper);
            }
        }
    }
}

/// The number of trials does not depend on the bound of them: a device that is as it is needs few.
#[test]
fn a_search_is_short() {
    let search = run(LIMITS, wall(7_654_321.0));
    assert!(search.used() < 60, "{} trials", search.used());
    let seconds: f64 = search.trials.values().flatten().map(|trial: &Trial| trial.duration_s).sum();
    assert!(seconds < 30.0, "{seconds} s");
}

#[test]
fn with_too_few_trials_it_says_that_it_is_not_done() {
    let search = run(Limits { trials: 3, ..LIMITS }, wall(5e6));
    assert_eq!(search.used(), 3);
    assert!(search.found().iter().all(|goal| !goal.finished));
}

/// The first trial offers the most for as long as any goal's trials last.
#[test]
fn the_most_is_offered_first() {
    let mut search = Search::new(goals(), LIMITS);
    assert_eq!(search.next(), Some(Ask { load_pps: LIMITS.most_pps, duration_s: 1.0 }));
    // What was not asked for is not taken.
    let mut other = Search::new(goals(), LIMITS);
    other.report(Outcome { sent: 1, received: 1, effective_s: 1.0, fell_short: false });
    assert_eq!(other.used(), 0);
}
