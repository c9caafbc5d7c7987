//! Who will be taken is told ahead where it can be, and asking changes nothing.

use super::*;

fn guess(desk: &Desk, key: u64, ahead: u32) -> Option<RealId> {
    desk.schedulers.guess(&desk.plan, ServiceId(0), key, ahead)
}

#[test]
fn who_is_next_is_guessed_before_each_pick() {
    for scheduler in ALL.into_iter().chain(FEW) {
        // One desk is asked each time, the other never.
        let all = || service(scheduler, reals([3, 1, 0, 2, 5]));
        let (mut asked, mut other) = (Desk::new(all()), Desk::new(all()));
        let mut right = 0;
        for step in 0..600 {
            let key = stable_hash(address(step), 0, 0);
            let guessed = guess(&asked, key, 0);
            let real = asked.pick_for(key).unwrap();
            assert_eq!(Ok(real), other.pick_for(key), "{scheduler:?}");
            right += u32::from(guessed == Some(real));
            asked.opened(real);
            other.opened(real);
            if step % 3 == 2 {
                asked.close(real);
                other.close(real);
            }
        }
        // `lblc` and `lblcr` may be about to choose another one.
        assert!(right > 550, "{scheduler:?}: {right} of 600");
    }
}

/// Round robin and the hashes tell it of more than the next, and where nobody is nobody is told.
#[test]
fn round_robin_and_hashes_look_further() {
    for count in [1, 3, 16, 100] {
        let mut desk = Desk::new(service(Scheduling::Rr, reals(vec![1; count])));
        for _ in 0..150 {
            let guessed: Vec<_> = (0..8).map(|ahead| guess(&desk, 0, ahead).unwrap()).collect();
            let picked: Vec<_> = (0..8).map(|_| desk.open().unwrap()).collect();
            assert_eq!(guessed, picked);
            desk.open().unwrap();
        }
    }
    let mut desk = Desk::new(service(Scheduling::Sh, reals([1; 8])));
    for step in 0..50 {
        let key = stable_hash(address(step), 0, 0);
        assert_eq!(guess(&desk, key, 7), desk.pick_for(key).ok());
    }
    let mut desk = Desk::new(service(Scheduling::Wlc, reals([1; 8])));
    assert_eq!(guess(&desk, 0, 1), None, "it depends on the first");
    assert_eq!(guess(&desk, 0, 0), desk.open().ok());
    for scheduler in [Scheduling::Rr, Scheduling::Sh, Scheduling::P2c] {
        let desk = Desk::new(service(scheduler, Vec::new()));
        assert_eq!(guess(&desk, 0, 0), None);
        assert_eq!(guess(&desk, 0, 3), None);
    }
}
