//! A million sessions, and who got them.

use super::*;

const SESSIONS: u64 = 1_000_000;

/// The largest distance of a count from its share by weight.
fn worst(counts: &[u64], weights: &[u16]) -> f64 {
    let (sum, total) = (counts.iter().sum::<u64>(), weights.iter().map(|w| u64::from(*w)).sum());
    let share = |weight: u16| sum as f64 * f64::from(weight) / total as f64;
    let total: u64 = total;
    assert!(total > 0 && counts.len() == weights.len());
    let distance = |(count, weight): (&u64, &u16)| (*count as f64 - share(*weight)).abs();
    counts.iter().zip(weights).map(distance).fold(0.0, f64::max)
}

/// The same as parts of the share.
fn worst_part(counts: &[u64], weights: &[u16]) -> f64 {
    let sum: u64 = counts.iter().sum();
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    let part = |(count, weight): (&u64, &u16)| {
        (*count as f64 * total as f64 / (sum as f64 * f64::from(*weight)) - 1.0).abs()
    };
    counts.iter().zip(weights).map(part).fold(0.0, f64::max)
}

fn weights() -> Vec<u16> {
    (1..=100).collect()
}

#[test]
fn rr_is_even() {
    let mut desk = Desk::new(service(Scheduling::Rr, reals(weights())));
    for _ in 0..SESSIONS {
        desk.open().unwrap();
    }
    assert_eq!(desk.opened_with(), vec![SESSIONS / 100; 100]);
}

#[test]
fn wrr_is_exact_over_each_cycle() {
    let mut desk = Desk::new(service(Scheduling::Wrr, reals(weights())));
    for cycle in 1..=SESSIONS / 5050 {
        for _ in 0..5050 {
            desk.open().unwrap();
        }
        let wanted: Vec<_> = weights().iter().map(|w| u64::from(*w) * cycle).collect();
        assert_eq!(desk.opened_with(), wanted, "cycle {cycle}");
    }
}

/// A common divisor of the weights makes the cycle shorter.
#[test]
fn the_cycle_of_wrr_is_the_shortest() {
    let mut desk = Desk::new(service(Scheduling::Wrr, reals([300, 100, 200])));
    for _ in 0..1000 {
        let mut cycle = desk.next(6);
        cycle.sort_unstable();
        assert_eq!(cycle, [0, 0, 0, 1, 2, 2]);
    }
}

/// Nobody has its turns in a row while others wait.
#[test]
fn wrr_is_smooth() {
    for (weights, bound) in [
        (vec![5, 1, 1], 1.0),
        (vec![1; 100].into_iter().chain([100]).collect(), 1.01),
        ((1..=100).collect(), 2.0),
        ((1..=1000).map(|n| 1 + n * 37 % 91).collect(), 2.0),
    ] {
        let mut desk = Desk::new(service(Scheduling::Wrr, reals(weights.clone())));
        let mut most: f64 = 0.0;
        for _ in 0..20_000 {
            desk.open().unwrap();
            most = most.max(worst(&desk.opened_with(), &weights));
        }
        println!("wrr, {} real servers: never more than {most:.2} off", weights.len());
        assert!(most < bound, "{most}");
    }
}

/// Sessions that stay are as even as whole numbers can be.
#[test]
fn lc_and_wlc_are_even() {
    let weights = weights();
    let mut lc = Desk::new(service(Scheduling::Lc, reals(weights.clone())));
    let mut wlc = Desk::new(service(Scheduling::Wlc, reals(weights.clone())));
    for _ in 0..SESSIONS {
        lc.open().unwrap();
        wlc.open().unwrap();
    }
    assert_eq!(lc.active(), vec![SESSIONS / 100; 100]);
    let worst = worst(&wlc.active(), &weights);
    assert!(worst <= 1.0, "{worst}");
}

/// Sessions that are over before the next one comes are spread by weight as well.
#[test]
fn short_sessions_take_turns() {
    let weights = weights();
    for (scheduler, weights) in [(Scheduling::Lc, vec![1; 100]), (Scheduling::Wlc, weights)] {
        let mut desk = Desk::new(service(scheduler, reals(weights.clone())));
        desk.next(SESSIONS as usize);
        let worst = worst(&desk.opened_with(), &weights);
        println!("{}, short sessions: {worst:.1} off at most", scheduler.name());
        assert!(worst_part(&desk.opened_with(), &weights) < 0.01, "{worst}");
    }
}

/// A million clients: what a table cannot help is chance.
#[test]
fn hashes_are_spread_by_weight() {
    for scheduler in [Scheduling::Sh, Scheduling::Mh] {
        let weights: Vec<u16> = (0..100).map(|n| 1 + n % 10).collect();
        let mut desk = Desk::new(service(scheduler, reals(weights.clone())));
        for _ in 0..SESSIONS {
            desk.open().unwrap();
        }
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        for (count, weight) in desk.opened_with().iter().zip(&weights) {
            let share = SESSIONS as f64 * f64::from(*weight) / total;
            // Five standard deviations, and one in a hundred of the table.
            let bound = 5.0 * share.sqrt() + share / 100.0;
            assert!((*count as f64 - share).abs() < bound, "{count} of {share}");
        }
    }
}

#[test]
fn a_client_stays_with_its_real_server() {
    for scheduler in [Scheduling::Sh, Scheduling::Mh] {
        let mut one = Desk::of_worker(service(scheduler, reals(weights())), 0, 2);
        let mut other = Desk::of_worker(service(scheduler, reals(weights())), 1, 2);
        for client in 0..1000 {
            let key = stable_hash(address(client), 0, 0);
            let real = one.pick_for(key).unwrap();
            one.opened(real);
            assert_eq!(one.pick_for(key), Ok(real));
            assert_eq!(other.pick_for(key), Ok(real), "whichever worker meets it");
        }
    }
}

/// The fullest is log log n above its share, not log n / log log n: here two or three sessions
/// of a thousand, where one random choice gives a hundred.
#[test]
fn two_choices_are_even() {
    for weights in [vec![1; 1000], (0..1000).map(|n| 1 + n % 4).collect::<Vec<u16>>()] {
        let mut desk = Desk::new(service(Scheduling::P2c, reals(weights.clone())));
        for _ in 0..SESSIONS {
            desk.open().unwrap();
        }
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let above = |(count, weight): (u64, &u16)| {
            let weight = f64::from(*weight);
            (count as f64 - SESSIONS as f64 * weight / total) / weight
        };
        let worst = desk.active().into_iter().zip(&weights).map(above).fold(0.0, f64::max);
        println!("p2c: at most {worst:.1} sessions for its weight above its share");
        assert!((0.5..6.0).contains(&worst), "{worst}");
    }
}

/// One real server with nearly all of the weight gets nearly all of the sessions.
#[test]
fn two_choices_respect_extreme_weights() {
    let weights: Vec<u16> = std::iter::once(900).chain([1; 100]).collect();
    let mut desk = Desk::new(service(Scheduling::P2c, reals(weights.clone())));
    for _ in 0..100_000 {
        desk.open().unwrap();
    }
    let part = worst_part(&desk.active(), &weights);
    assert!(part < 0.08, "{part}");
}
