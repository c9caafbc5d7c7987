//! What a change of the plan leaves as it was.

use super::*;

#[test]
fn rr_goes_on_where_it_was() {
    let mut desk = Desk::new(service(Scheduling::Rr, reals([1; 6])));
    assert_eq!(desk.next(4), [0, 1, 2, 3]);
    let mut fewer = reals([1; 6]);
    fewer.remove(4);
    fewer.remove(0);
    fewer.push(real(9, 1));
    desk.change(service(Scheduling::Rr, fewer));
    assert_eq!(desk.next(6), [5, 6, 1, 2, 3, 5], "4 is gone, the next after it is 5");
}

/// What does not concern a service does not disturb its order.
#[test]
fn turns_stay_in_order() {
    for scheduler in [Scheduling::Rr, Scheduling::Wrr, Scheduling::Lc, Scheduling::Wlc] {
        let weights = [5, 3, 2, 7, 1];
        let mut one = Desk::new(service(scheduler, reals(weights)));
        let mut other = Desk::new(service(scheduler, reals(weights)));
        for count in [3, 11, 18, 40] {
            assert_eq!(one.next(count), other.next(count), "{scheduler:?}");
            let mut second = service(Scheduling::Rr, reals([1, 1]));
            second.ports = Ports::one(81);
            one.change_all(vec![service(scheduler, reals(weights)), second], &Retired::default());
        }
    }
}

/// After any change, the next cycle of wrr is exact again, and nobody waits much longer.
#[test]
fn wrr_stays_exact_after_changes() {
    let mut cases = Cases(1);
    for _ in 0..300 {
        let mut random = |count: usize| -> Vec<RealServer> {
            let mut all = reals((0..count).map(|_| 1 + cases.below(9) as u16));
            for _ in 0..cases.below(count) {
                all.remove(cases.below(all.len()));
            }
            all
        };
        let (before, after) = (random(12), random(12));
        let mut desk = Desk::new(service(Scheduling::Wrr, before.clone()));
        desk.next(cases.below(100));
        desk.change(service(Scheduling::Wrr, after.clone()));
        let counts = desk.opened_with();
        let cycle: usize = after.iter().map(|real| usize::from(real.weight)).sum();
        desk.next(cycle);
        for (id, real) in desk.plan.reals.iter().enumerate() {
            let got = desk.opened_with()[id] - counts.get(id).copied().unwrap_or(0);
            assert_eq!(got, u64::from(real.weight), "{id} {before:?} {after:?}");
        }
    }
}

/// A weight that changes moves nobody else's turn.
#[test]
fn a_changed_weight_counts_at_once() {
    let mut desk = Desk::new(service(Scheduling::Wrr, reals([4, 4, 4])));
    desk.next(7);
    desk.change(service(Scheduling::Wrr, reals([4, 8, 4])));
    let mut cycle = desk.next(4);
    cycle.sort_unstable();
    assert_eq!(cycle, [0, 1, 1, 2]);
}

/// Sessions are counted across changes, also those of real servers that were away.
#[test]
fn sessions_stay_counted() {
    for scheduler in [Scheduling::Lc, Scheduling::Wlc, Scheduling::P2c] {
        let mut desk = Desk::new(service(scheduler, reals([1, 1, 1])));
        for _ in 0..30 {
            desk.open().unwrap();
        }
        let [.., third] = desk.active()[..] else { panic!() };
        desk.change(service(scheduler, reals([1, 1])));
        for _ in 0..20 {
            desk.open().unwrap();
        }
        desk.close(RealId(2));
        desk.change(service(scheduler, reals([1, 1, 1])));
        let missing = 60 - desk.active().iter().sum::<u64>();
        for _ in 0..missing {
            desk.open().unwrap();
        }
        let active = desk.active();
        assert!(active.iter().all(|count| count.abs_diff(20) <= 2), "{active:?} {third}");
    }
}

/// A limit that comes or goes with a change holds from then on.
#[test]
fn limits_come_and_go() {
    let mut all = reals([1, 1]);
    let mut desk = Desk::new(service(Scheduling::Rr, all.clone()));
    for _ in 0..20 {
        desk.open().unwrap();
    }
    all[0].upper_sessions = 10;
    desk.change(service(Scheduling::Rr, all.clone()));
    assert_eq!(desk.next(3), [1, 1, 1]);
    desk.close(RealId(0));
    desk.change(service(Scheduling::Rr, all.clone()));
    assert!(!desk.schedulers.is_eligible(RealId(0)), "it is still on its way down");
    all[0].upper_sessions = 0;
    desk.change(service(Scheduling::Rr, all));
    assert!(desk.schedulers.is_eligible(RealId(0)));
}

/// An id that is given to another real server carries nothing over.
#[test]
fn a_new_owner_of_an_id_is_new() {
    let of = |reals| VirtualService { slow_start_s: 10, ..service(Scheduling::Wrr, reals) };
    let mut desk = Desk::new(of(reals([1, 1])));
    desk.next(10);
    desk.change(of(vec![real(0, 1)]));
    let retired = Retired { reals: [RealId(1)].into(), ..Retired::default() };
    desk.change_all(vec![of(vec![real(0, 1), real(7, 1)])], &retired);
    assert_eq!(desk.plan.reals.len(), 2, "the id was used again");
    let before = desk.opened_with()[1];
    desk.next(17);
    assert_eq!(desk.opened_with()[1] - before, 1, "so it starts slowly");
}

/// Another scheduler starts with what is known: the sessions.
#[test]
fn the_scheduler_changes() {
    for from in sharing() {
        for to in sharing() {
            let mut desk = Desk::new(service(from, reals([2, 1, 1])));
            desk.opened(RealId(0));
            desk.next(5);
            desk.change(service(to, reals([2, 1, 1])));
            desk.next(50);
            let by_sessions =
                matches!(to, Scheduling::Lc | Scheduling::Wlc | Scheduling::Nq | Scheduling::P2c);
            let first = desk.next(20).contains(&0);
            assert_eq!(first, !by_sessions, "{from:?} {to:?}");
        }
    }
}
