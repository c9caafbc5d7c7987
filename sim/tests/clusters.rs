//! A bounded number of clusters of directors that synchronise their sessions.
//!
//! One seed more: `cargo run --release -p sluice-sim -- cluster --seed N`.

use sluice_sim::cluster::{Failure, Outcome, Recipe, run, run_traced};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many clusters: those of `make test`, or as many as `SLUICE_CLUSTERS` says.
fn seeds() -> u64 {
    std::env::var("SLUICE_CLUSTERS").map_or(20, |count| count.parse().expect("a number"))
}

const STEPS: u64 = 600;

#[test]
fn clusters_hold() {
    let (next, all) = (AtomicU64::new(0), Mutex::new((Outcome::default(), Vec::new())));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds() {
                        break;
                    }
                    let recipe = Recipe::new(seed, STEPS);
                    let result = run(&recipe);
                    let mut all = all.lock().unwrap();
                    match result {
                        Ok(outcome) => all.0.add(&outcome),
                        Err(failure) => all.1.push((recipe, failure)),
                    }
                }
            });
        }
    });
    let (total, failures): (Outcome, Vec<(Recipe, Failure)>) = all.into_inner().unwrap();
    for (recipe, failure) in &failures {
        eprintln!("step {}: {}\n  {recipe}", failure.outcome.steps, failure.what);
    }
    assert!(failures.is_empty(), "{} of {} clusters fail", failures.len(), seeds());
    // What is judged does happen.
    assert!(total.failovers > seeds() && total.went_on > 10 * seeds(), "{total:?}");
    assert!(total.dealt > 50 * seeds(), "{total:?}");
    assert!(total.younger < total.connections / 2, "{total:?}");
}

/// The same recipe is the same run.
#[test]
fn a_cluster_can_be_had_again() {
    for seed in 0..3 {
        let recipe = Recipe::new(seed, 200);
        assert_eq!(run(&recipe), run_traced(&recipe).0);
    }
}
