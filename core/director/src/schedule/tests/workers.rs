//! Several workers, each of which knows its own sessions only.

use super::*;

/// What one real server has, for its weight: the fullest and the mean.
fn fullest(active: &[u64], weights: &[u16]) -> f64 {
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    let mean = active.iter().sum::<u64>() as f64 / total as f64;
    let loads = active.iter().zip(weights).map(|(a, w)| *a as f64 / f64::from(*w));
    loads.fold(0.0, f64::max) / mean
}

/// Sessions come and go at random, at random workers. Beside the workers' own choices runs the
/// ideal: one director that knows all sessions. Says how far the fullest is above the mean, with
/// the ideal and with these workers, at the worst of several moments.
fn compare(workers: u16, weights: &[u16], level: usize) -> (f64, f64) {
    let of = || service(Scheduling::Wlc, reals(weights.iter().copied()));
    let mut desks: Vec<_> = (0..workers).map(|w| Desk::of_worker(of(), w, workers)).collect();
    let mut ideal = Desk::new(of());
    let mut open: Vec<(usize, RealId, RealId)> = Vec::new();
    let mut cases = Cases(7);
    let mut worst = (0.0f64, 0.0f64);
    for step in 0..500_000 {
        // As many come as go once the level is reached.
        if open.len() < level || cases.below(2) == 0 {
            let worker = cases.below(desks.len());
            open.push((worker, desks[worker].open().unwrap(), ideal.open().unwrap()));
        } else {
            let (worker, real, same) = open.swap_remove(cases.below(open.len()));
            desks[worker].close(real);
            ideal.close(same);
        }
        if step % 1000 == 0 && step > 4 * level {
            let mut sum = vec![0; weights.len()];
            for desk in &desks {
                sum.iter_mut().zip(desk.active()).for_each(|(sum, active)| *sum += active);
            }
            worst.0 = worst.0.max(fullest(&ideal.active(), weights));
            worst.1 = worst.1.max(fullest(&sum, weights));
        }
    }
    worst
}

#[test]
fn the_sum_is_nearly_as_even_as_the_ideal() {
    let weights: Vec<u16> = (0..50).map(|n| 1 + n % 5).collect();
    for (workers, level, bound) in [(1, 20_000, 1e-9), (4, 20_000, 0.03), (8, 20_000, 0.05)] {
        let (ideal, ours) = compare(workers, &weights, level);
        println!("wlc, {workers} workers, {level} sessions: fullest {ours:.4}, ideal {ideal:.4}");
        assert!(ours - ideal <= bound, "{workers} workers: {ours} against {ideal}");
    }
}

/// Workers do not all begin with the same real server.
#[test]
fn workers_begin_apart() {
    for scheduler in [Scheduling::Rr, Scheduling::Wrr, Scheduling::Lc, Scheduling::Wlc] {
        let first = |worker| {
            Desk::of_worker(service(scheduler, reals([1; 8])), worker, 4).open().unwrap().0
        };
        assert_eq!([0, 1, 2, 3].map(first), [0, 2, 4, 6], "{scheduler:?}");
    }
}
