//! Both ends of rings in one process, and ends whose peer lies.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::fuzzing::{BYTES, SIZE, Shelf, frame, memory_says, pair, place};

fn send(tx: &mut TxRing, frames: &[Vec<u8>]) -> Result<Sent, Lie> {
    tx.send(frames.iter().map(Vec::as_slice))
}

#[test]
fn a_frame_that_needs_several_buffers_comes_whole() {
    for client_sends in [true, false] {
        let (mut tx, mut rx, _) = pair(client_sends);
        let frames = [frame(1, 60), frame(2, 128), frame(3, 129), frame(4, 700), frame(5, 14)];
        let sent = send(&mut tx, &frames).unwrap();
        assert_eq!((sent.taken, sent.errors), (5, 0));
        assert_eq!(sent.bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        let mut shelf = Shelf::new(9);
        assert_eq!(rx.receive(64, &mut shelf).unwrap().frames, 5);
        assert_eq!(shelf.frames, frames);
    }
}

#[test]
fn what_no_ring_can_carry_is_counted_and_what_is_too_long_for_us_too() {
    for client_sends in [true, false] {
        let (mut tx, mut rx, _) = pair(client_sends);
        let most = usize::from(SIZE) * BYTES as usize;
        let sent = send(&mut tx, &[frame(1, most + 1), frame(2, most), frame(3, 60)]).unwrap();
        assert_eq!((sent.taken, sent.errors), (2, 1), "the second fills the ring");
        let mut shelf = Shelf::new(9);
        let came = rx.receive(64, &mut shelf).unwrap();
        assert_eq!((came.frames, came.errors), (0, 1), "longer than the room");
        assert_eq!(send(&mut tx, &[frame(3, 60)]).unwrap().taken, 1);
        assert_eq!(rx.receive(64, &mut shelf).unwrap().frames, 1);
    }
}

#[test]
fn room_that_was_given_back_is_seen_by_a_frame_that_needs_several_buffers() {
    for client_sends in [true, false] {
        let (mut tx, mut rx, _) = pair(client_sends);
        let bytes = BYTES as usize;
        assert_eq!(send(&mut tx, &[frame(1, 7 * bytes)]).unwrap().taken, 1);
        assert_eq!(send(&mut tx, &[frame(2, 7 * bytes)]).unwrap().taken, 1, "two are left");
        assert_eq!(rx.receive(64, &mut Shelf::new(9)).unwrap().frames, 2);
        assert_eq!(send(&mut tx, &[frame(3, 5 * bytes)]).unwrap().taken, 1);
        assert_eq!(rx.receive(64, &mut Shelf::new(9)).unwrap().frames, 1);
    }
}

#[test]
fn frames_wait_in_the_ring_while_there_is_no_room() {
    let (mut tx, mut rx, _) = pair(true);
    let frames: Vec<_> = (0..20).map(|number| frame(number, 60)).collect();
    assert_eq!(send(&mut tx, &frames).unwrap().taken, usize::from(SIZE));
    let mut shelf = Shelf::new(3);
    let came = rx.receive(64, &mut shelf).unwrap();
    assert_eq!((came.frames, came.no_room), (3, true));
    let mut shelf = Shelf::new(99);
    assert_eq!(rx.receive(5, &mut shelf).unwrap().frames, 5);
    assert_eq!(rx.receive(64, &mut shelf).unwrap().frames, 8);
    assert!(shelf.frames.iter().eq(&frames[3..16]));
}

#[test]
fn a_sleeping_receiver_is_to_be_woken() {
    for client_sends in [true, false] {
        let (mut tx, rx, _) = pair(client_sends);
        assert_eq!(send(&mut tx, &[frame(1, 60)]).unwrap().taken, 1);
        assert!(!tx.ring.wants_interrupt());
        rx.ring.want_interrupts(true);
        assert!(tx.ring.wants_interrupt());
    }
}

#[test]
fn an_index_that_cannot_be_ends_the_link() {
    let (mut tx, mut rx, _) = pair(true);
    rx.ring.set_head(SIZE + 1);
    assert_eq!(rx.receive(64, &mut Shelf::new(9)), Err(Lie::Index));
    tx.ring.set_tail(1);
    assert_eq!(send(&mut tx, &[frame(1, 60)]), Err(Lie::Index), "more consumed than sent");
    let (mut tx, mut rx, _) = pair(false);
    rx.ring.set_tail(SIZE + 1);
    assert_eq!(rx.receive(64, &mut Shelf::new(9)), Err(Lie::Index));
    tx.ring.set_head(u16::MAX);
    assert_eq!(send(&mut tx, &[frame(1, 60)]), Err(Lie::Index));
}

#[test]
fn an_index_that_goes_back_while_frames_are_sent_ends_the_link() {
    for client_sends in [true, false] {
        let (mut tx, _rx, regions) = pair(client_sends);
        let liar = Ring::find(&regions, place(client_sends)).unwrap();
        // Two that fit, and one that needs more than is left, so that the index is read again.
        let frames = [frame(1, 60), frame(2, 60), frame(3, 15 * BYTES as usize)];
        let frames = frames.iter().enumerate().map(|(number, frame)| {
            if number == 2 {
                // Nothing is free, says the peer now.
                if client_sends {
                    liar.set_tail(0_u16.wrapping_sub(SIZE))
                } else {
                    liar.set_head(0)
                }
            }
            &frame[..]
        });
        assert_eq!(tx.send(frames), Err(Lie::Index));
    }
}

#[test]
fn a_frame_without_an_end_ends_the_link() {
    let (tx, mut rx, _) = pair(true);
    let endless = Descriptor { flags: NEXT, region: 0, length: 10, offset: 0 };
    (0..SIZE).for_each(|index| tx.ring.set_descriptor(index, endless));
    tx.ring.set_head(3);
    let mut shelf = Shelf::new(9);
    assert_eq!(rx.receive(64, &mut shelf), Ok(Came::default()), "the rest may come");
    tx.ring.set_head(SIZE);
    assert_eq!(rx.receive(64, &mut shelf), Err(Lie::Chain));
}

#[test]
fn a_buffer_elsewhere_costs_the_frame_or_the_link() {
    let (tx, mut rx, regions) = pair(true);
    let size = (0..).find(|size| regions[0].at(0, size + 1).is_none()).unwrap();
    for (index, bad) in [
        Descriptor { flags: 0, region: 1, length: 60, offset: 0 },
        Descriptor { flags: 0, region: 0, length: 60, offset: size - 59 },
        Descriptor { flags: 0, region: 0, length: u32::MAX, offset: u32::MAX },
        Descriptor { flags: 0, region: 0, length: 0, offset: 0 },
        Descriptor { flags: 0, region: u16::MAX, length: 60, offset: 0 },
    ]
    .into_iter()
    .enumerate()
    {
        tx.ring.set_descriptor(index as u16, bad);
    }
    tx.ring.set_descriptor(5, Descriptor { flags: 0, region: 0, length: 60, offset: size - 60 });
    tx.ring.set_head(6);
    let came = rx.receive(64, &mut Shelf::new(9)).unwrap();
    assert_eq!((came.frames, came.errors), (1, 5), "the good one at the very end is taken");

    let (mut tx, rx, _) = pair(false);
    rx.ring.set_descriptor(0, Descriptor { flags: 0, region: 7, length: 99, offset: 0 });
    assert_eq!(send(&mut tx, &[frame(1, 60)]), Err(Lie::Buffer));
}

#[test]
fn a_server_cannot_make_us_read_beyond_our_buffer() {
    let (tx, mut rx, _) = pair(false);
    tx.ring.set_descriptor(0, Descriptor { flags: 0, region: 0, length: BYTES + 1, offset: 0 });
    tx.ring.set_descriptor(1, Descriptor { flags: 0, region: 9, length: BYTES, offset: 77 });
    tx.ring.set_tail(2);
    let mut shelf = Shelf::new(9);
    let came = rx.receive(64, &mut shelf).unwrap();
    assert_eq!((came.frames, came.errors), (1, 1), "where a buffer is is not asked");
}

proptest! {
    #[test]
    fn frames_come_as_they_were_sent(
        client_sends in any::<bool>(),
        steps in proptest::collection::vec((0_usize..12, 1_usize..400, 0_usize..20), 1..200),
    ) {
        let (mut tx, mut rx, _) = pair(client_sends);
        let (mut expected, mut number) = (VecDeque::new(), 0);
        let mut shelf = Shelf::new(usize::MAX);
        for (count, length, most) in steps {
            let frames: Vec<_> = (0..count).map(|n| frame(number + n, length + n)).collect();
            let sent = send(&mut tx, &frames).unwrap();
            prop_assert_eq!(sent.errors, 0);
            expected.extend(frames.into_iter().take(sent.taken));
            number += sent.taken;
            let came = rx.receive(most, &mut shelf).unwrap();
            prop_assert_eq!(came.errors, 0);
            for frame in shelf.frames.drain(..) {
                prop_assert_eq!(Some(frame), expected.pop_front());
            }
        }
        // Everything has come when nothing more comes.
        while rx.receive(64, &mut shelf).unwrap().frames > 0 {}
        prop_assert!(shelf.frames.drain(..).eq(expected));
    }

    #[test]
    fn random_memory_harms_nobody(
        client_sends in any::<bool>(),
        words in proptest::collection::vec((0_u16..640, any::<u32>()), 1..300),
        calm in any::<bool>(),
    ) {
        let mut data = Vec::new();
        for (at, word) in words {
            // A calm peer writes small numbers, which pass more checks.
            let word = if calm { word & 0x000f_001f } else { word };
            data.extend(at.to_ne_bytes());
            data.extend(word.to_ne_bytes());
        }
        memory_says(client_sends, &data);
    }
}
