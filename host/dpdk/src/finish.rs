//! Finishing frames in software for devices that take complete ones only: see [`crate::vnet`] for
//! what may be left to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;

use crate::mbuf::Mbuf;
use crate::pool::FramePool;
use crate::queue::BURST;
use crate::vnet::piece;

/// How often a device that is full is tried again before the rest of a super-packet is lost.
const TRIES: usize = 64;

/// What a transmit queue needs for frames that are unfinished.
#[derive(Debug)]
pub(crate) struct Finisher {
    pool: FramePool,
    /// Segments that the device did not take, or that there was no buffer for.
    lost: Arc<AtomicU64>,
}

impl Finisher {
    /// Segments go into buffers of this pool; those that are lost are counted.
    pub const fn new(pool: FramePool, lost: Arc<AtomicU64>) -> Self {
        Self { pool, lost }
    }

    /// Sends frames, from the front; those that were taken leave the vector. `send` gives a device
    /// complete frames, and leaves in the vector what it has no room for. Of a super-packet it has
    /// to take all segments, or the rest is lost.
    pub fn tx<const N: usize>(
        &self,
        frames: &mut ArrayVec<Mbuf, N>,
        mut send: impl FnMut(&mut ArrayVec<Mbuf, N>),
    ) -> usize {
        let mut taken = 0;
        while !frames.is_empty() {
            let whole = frames.iter().take_while(|frame| frame.segment_size() == 0).count();
            if whole == 0 {
                let super_frame = frames.remove(0);
                self.cut(&super_frame, &mut send);
                taken += 1;
                continue;
            }
            let rest: ArrayVec<Mbuf, N> = frames.drain(whole..).collect();
            frames.iter_mut().for_each(Mbuf::complete_checksum);
            send(frames);
            let left = frames.len();
            taken += whole - left;
            frames.extend(rest);
            if left > 0 {
                break;
            }
        }
        taken
    }

    /// Cuts a super-packet and sends its segments.
    #[cold]
    fn cut<const N: usize>(&self, frame: &Mbuf, send: &mut impl FnMut(&mut ArrayVec<Mbuf, N>)) {
        let mut segments = ArrayVec::<Mbuf, N>::new();
        let size = frame.segment_size();
        let all = frame.transport().map_or(1, |place| place.segments(size));
        let mut sent = 0;
        let made = frame.cut(|headers, data| {
            if segments.is_full() {
                sent += insist(&mut segments, send);
            }
            let segment = piece(self.pool, headers, data);
            segment.is_some_and(|segment| segments.try_push(segment).is_ok())
        });
        sent += insist(&mut segments, send);
        debug_assert!(made.is_some(), "a super-packet has a place");
        self.lost.fetch_add(all.saturating_sub(sent) as u64, Ordering::Relaxed);
    }
}

/// Sends all of these if it can be; says how many. The others stay.
fn insist<const N: usize>(
    segments: &mut ArrayVec<Mbuf, N>,
    send: &mut impl FnMut(&mut ArrayVec<Mbuf, N>),
) -> usize {
    let before = segments.len();
    for _ in 0..TRIES {
        if segments.is_empty() {
            break;
        }
        send(segments);
        if !segments.is_empty() {
            thread::yield_now();
        }
    }
    before - segments.len()
}

/// Whether there is anything to be done to any of these.
#[inline]
pub(crate) fn is_due(frames: &[Mbuf]) -> bool {
    frames.iter().any(Mbuf::is_unfinished)
}

const _: () = assert!(BURST > 45, "a super-packet at the usual MTU is given to a device at once");
