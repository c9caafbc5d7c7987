//! Parts on their own.

use super::world::ms;
use crate::incoming::{Incoming, Next, Place, REORDER};
use crate::progress::Progress;
use crate::replay::{REPLAY_WINDOW, Replay};
use proptest::prelude::*;
use std::collections::HashSet;

proptest! {
    #[test]
    fn the_replay_window_is_as_a_set_says(steps in prop::collection::vec(
        prop_oneof![0..200u64, 3900..4300u64, 0..20_000u64], 1..400,
    ), ahead in 0..3u64) {
        let (mut replay, mut seen, mut highest) = (Replay::new(), HashSet::new(), 0u64);
        for step in steps {
            let counter = (highest + ahead * 50).saturating_sub(step);
            let recent = counter + REPLAY_WINDOW > highest;
            let new = counter != 0 && recent && !seen.contains(&counter);
            prop_assert_eq!(replay.is_new(counter), new, "{} below {}", counter, highest);
            if new {
                replay.mark(counter);
                seen.insert(counter);
                highest = highest.max(counter);
            }
            highest = highest.max(1);
            if highest == 1 && replay.is_new(1) {
                replay.mark(1);
                seen.insert(1);
            }
            let jump = highest + step;
            if step % 3 == 0 && replay.is_new(jump) {
                replay.mark(jump);
                seen.insert(jump);
                highest = highest.max(jump);
            }
        }
    }
}

#[test]
fn the_replay_window_takes_the_largest_counter() {
    let mut replay = Replay::new();
    replay.mark(u64::MAX);
    assert!(!replay.is_new(u64::MAX) && !replay.is_new(5));
    assert!(replay.is_new(u64::MAX - REPLAY_WINDOW + 1));
    assert!(!replay.is_new(u64::MAX - REPLAY_WINDOW));
}

#[test]
fn a_closed_replay_window_takes_what_comes_after() {
    for counter in [1, 63, 64, 65, 4096, 10_000] {
        let mut replay = Replay::new();
        replay.close(counter);
        assert!((0..=counter).all(|it| !replay.is_new(it)), "{counter}");
        for next in (counter + 1..counter + 10_000).step_by(2) {
            replay.mark(next + 1);
            assert!(replay.is_new(next), "{next} after {counter}");
            replay.mark(next);
            assert!(!replay.is_new(next) && !replay.is_new(next + 1));
        }
    }
}

#[test]
fn a_stream_is_put_in_order() {
    let mut incoming = Incoming::default();
    assert_eq!(incoming.place(1), Place::Beyond);
    incoming.begin(10);
    incoming.begin(99);
    assert_eq!(incoming.place(9), Place::Seen);
    assert_eq!(incoming.place(10), Place::Next);
    assert_eq!(incoming.place(10 + REORDER), Place::Beyond);
    for sequence in [12, 13, 16] {
        assert_eq!(incoming.place(sequence), Place::Later);
        incoming.hold(sequence, &[sequence as u8]);
        assert_eq!(incoming.place(sequence), Place::Seen);
        incoming.came(ms(1));
    }
    assert_eq!(incoming.ack_at(), Some(ms(1)), "at once because of the gap");
    assert_eq!(incoming.acknowledge(ms(1)), [(10, 2), (14, 2)]);
    assert_eq!(incoming.ack_at(), Some(ms(11)), "again while it is there");
    assert_eq!(incoming.next(), None);
    incoming.raise(15);
    assert_eq!(incoming.next(), Some(Next::Lost(2)));
    assert_eq!(incoming.next(), Some(Next::Data(vec![12])));
    assert_eq!(incoming.next(), Some(Next::Data(vec![13])));
    assert_eq!(incoming.next(), Some(Next::Lost(1)));
    assert_eq!((incoming.next(), incoming.expected()), (None, 15));
}

#[test]
fn a_sender_repeats_what_is_missing_once_and_what_times_out() {
    let mut progress = Progress::new(ms(0), 1);
    for sequence in 1..=5 {
        assert_eq!(progress.take(ms(0), 1, 6), Some((sequence, false)));
    }
    assert_eq!(progress.take(ms(0), 1, 6), None);
    progress.acknowledge(ms(1), 2, 6);
    progress.missing(ms(1), 1, &[(0, 4), (9, u64::MAX)]);
    progress.missing(ms(2), 1, &[(2, 2)]);
    assert_eq!(progress.take(ms(2), 1, 6), Some((2, true)));
    assert_eq!(progress.take(ms(2), 1, 6), Some((3, true)));
    assert_eq!(progress.take(ms(2), 1, 6), None);
    progress.missing(ms(22), 1, &[(3, 1)]);
    assert_eq!(progress.take(ms(22), 1, 6), Some((3, true)));
    assert_eq!(progress.deadline(), Some(ms(51)));
    assert!(!progress.tick(ms(51)));
    assert_eq!(progress.take(ms(51), 1, 6), Some((2, true)));
    assert_eq!(progress.deadline(), Some(ms(151)), "twice as long");
    // What nobody can have acknowledged is not heeded.
    progress.acknowledge(ms(52), 7, 6);
    assert_eq!(progress.acked(), 2);
    assert!(progress.tick(ms(2001)) && progress.behind());
    progress.acknowledge(ms(2002), 6, 6);
    assert_eq!((progress.behind(), progress.deadline()), (false, None));
}
