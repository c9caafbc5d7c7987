//! Who gets no sessions: drained, down, full; and who gets few: slow start.

use super::*;

#[test]
fn without_weight_or_life_there_are_no_new_sessions() {
    for scheduler in sharing() {
        let mut all = reals([3, 0, 2, 1]);
        all[2].down = true;
        let mut desk = Desk::new(service(scheduler, all.clone()));
        for _ in 0..1000 {
            desk.open().unwrap();
        }
        let counts = desk.opened_with();
        assert!(counts[0] > 0 && counts[3] > 0, "{scheduler:?} {counts:?}");
        assert_eq!((counts[1], counts[2]), (0, 0), "{scheduler:?}");
        let eligible = [0, 1, 2, 3, 4].map(|id| desk.schedulers.is_eligible(RealId(id)));
        assert_eq!(eligible, [true, false, false, true, false]);

        for real in &mut all {
            real.weight = 0;
        }
        desk.change(service(scheduler, all));
        assert_eq!(desk.pick(), Err(Refused::NoReal), "{scheduler:?}");
        desk.change(service(scheduler, Vec::new()));
        assert_eq!(desk.pick(), Err(Refused::NoReal), "{scheduler:?}");
    }
}

/// Up to its upper limit, and not again before it is below the lower one.
#[test]
fn limits_hold_for_every_scheduler() {
    for scheduler in sharing().chain(FEW) {
        let mut all = reals([1, 5, 2]);
        for (real, upper) in all.iter_mut().zip([8, 10, 12]) {
            real.upper_sessions = upper;
        }
        all[1].lower_sessions = 3;
        let mut desk = Desk::new(service(scheduler, all));
        for _ in 0..30 {
            desk.open().unwrap();
        }
        assert_eq!(desk.active(), [8, 10, 12], "{scheduler:?}");
        assert_eq!(desk.pick(), Err(Refused::AllFull), "{scheduler:?}");
        let full = |desk: &Desk| desk.schedulers.full().map(|real| real.0).collect::<Vec<_>>();
        assert_eq!(full(&desk), [0, 1, 2]);
        for _ in 0..7 {
            desk.close(RealId(1));
            assert_eq!(full(&desk), [0, 1, 2], "as it is scheduled");
            assert_eq!(desk.pick(), Err(Refused::AllFull), "{scheduler:?}: 3 is not below 3");
        }
        desk.close(RealId(1));
        assert_eq!(full(&desk), [0, 2]);
        assert_eq!(desk.open(), Ok(RealId(1)), "{scheduler:?}: below its lower limit");
        desk.close(RealId(0));
        desk.close(RealId(0));
        assert!(!desk.schedulers.is_eligible(RealId(0)), "six of eight are three quarters");
        desk.close(RealId(0));
        assert!(desk.schedulers.is_eligible(RealId(0)));
        for _ in 0..10 {
            desk.open().unwrap();
        }
        assert_eq!(desk.active(), [8, 10, 12], "{scheduler:?}");
    }
}

/// Each worker has its part of a limit, rounded up.
#[test]
fn limits_are_shared_by_workers() {
    let mut one = real(0, 1);
    one.upper_sessions = 10;
    for worker in 0..4 {
        let mut desk = Desk::of_worker(service(Scheduling::Rr, vec![one.clone()]), worker, 4);
        for _ in 0..3 {
            desk.open().unwrap();
        }
        assert_eq!(desk.pick(), Err(Refused::AllFull));
        desk.close(RealId(0));
        assert_eq!(desk.pick(), Ok(RealId(0)), "two of three are less than three quarters");
    }
}

/// A full real server's clients are spread over the others, and always go the same way.
#[test]
fn hashes_walk_on() {
    for scheduler in [Scheduling::Sh, Scheduling::Mh] {
        let mut all = reals([1; 10]);
        let mut free = Desk::new(service(scheduler, all.clone()));
        all[4].upper_sessions = 1;
        let mut desk = Desk::new(service(scheduler, all));
        desk.opened(RealId(4));
        let mut others = [0; 10];
        for client in 0..20_000 {
            let key = stable_hash(address(client), 7, 1);
            let (without, with) = (free.pick_for(key).unwrap(), desk.pick_for(key).unwrap());
            assert_eq!(desk.pick_for(key), Ok(with));
            if without == RealId(4) {
                others[with.0 as usize] += 1;
            } else {
                assert_eq!(with, without, "only its own clients go elsewhere");
            }
        }
        assert_eq!(others.iter().filter(|count| (150..300).contains(*count)).count(), 9);
        assert_eq!(others[4], 0);
    }
}

/// Those that go by open sessions.
const LEAST: [Scheduling; 5] =
    [Scheduling::Lc, Scheduling::Wlc, Scheduling::Sed, Scheduling::Nq, Scheduling::P2c];

/// Ten real servers take sessions; an eleventh comes and takes ever more.
#[test]
fn slow_start() {
    for scheduler in sharing() {
        let slow = |count| VirtualService {
            slow_start_s: 160,
            ..service(scheduler, reals(vec![4; count]))
        };
        let mut desk = Desk::new(slow(10));
        for _ in 0..5000 {
            desk.open().unwrap();
        }
        let counts = desk.opened_with();
        assert!(counts.iter().all(|c| *c > 400), "{scheduler:?}: no slow start at the start");
        desk.now = Time(10_000);
        desk.change(slow(11));
        for sixteenths in [1, 4, 8, 15, 16, 16] {
            desk.now = Time(10_000 + sixteenths * 10_000 + 1);
            let before = desk.opened_with()[10];
            desk.next(10_500);
            let got = desk.opened_with()[10] - before;
            // With as many sessions already, all of the newcomer's are "least".
            if !LEAST.contains(&scheduler) {
                let share = 10_500.0 * sixteenths as f64 / (160 + sixteenths) as f64;
                let bound = share * 0.12 + 15.0;
                assert!((got as f64 - share).abs() < bound, "{scheduler:?} {sixteenths}: {got}");
            }
        }
        assert!(desk.schedulers.rosters[0].is_settled(), "{scheduler:?}");
    }
}

/// The sessions that stay are a sixteenth after a sixteenth of the time, and so on.
#[test]
fn slow_start_of_least_sessions() {
    for scheduler in LEAST {
        let slow = |count| VirtualService {
            slow_start_s: 16,
            ..service(scheduler, reals(vec![2; count]))
        };
        let mut desk = Desk::new(slow(10));
        for _ in 0..16_000 {
            desk.open().unwrap();
        }
        desk.change(slow(11));
        for sixteenths in [1u64, 2, 8, 16] {
            desk.now = Time(1000 + sixteenths * 1000);
            for _ in 0..3000 {
                desk.open().unwrap();
            }
            let active = desk.active();
            let share = active[0] as f64 * sixteenths as f64 / 16.0;
            let most = share + 0.02 * active[0] as f64;
            assert!(active[10] as f64 <= most, "{scheduler:?} {sixteenths}: {active:?}");
            if scheduler != Scheduling::P2c {
                assert!(active[10] as f64 >= share * 0.98, "{scheduler:?} {sixteenths}");
            }
        }
    }
}

/// Coming back is a start, too: from down, from weight 0, and from outside the configuration.
#[test]
fn who_comes_back_starts_slowly() {
    let changes: [fn(&mut Vec<RealServer>); 3] =
        [|all| all[1].down = true, |all| all[1].weight = 0, |all| all.truncate(1)];
    for away in changes {
        let of = |reals| VirtualService { slow_start_s: 100, ..service(Scheduling::Wrr, reals) };
        let mut desk = Desk::new(of(reals([10, 10])));
        let mut without = reals([10, 10]);
        away(&mut without);
        desk.change(of(without));
        desk.now = Time(5000);
        desk.change(of(reals([10, 10])));
        let before = desk.opened_with()[1];
        desk.next(17 * 10);
        assert_eq!(desk.opened_with()[1] - before, 10, "one in seventeen");
        desk.change(of(reals([10, 10])));
        desk.now = Time(55_000);
        desk.next(24 * 10);
        let got = desk.opened_with()[1] - before - 10;
        assert!((80..=81).contains(&got), "half of its weight after half of the time: {got}");
    }
}
