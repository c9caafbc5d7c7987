//! The lanes of one turn as parallel arrays.

use super::BURST;
use crate::family::Tuple;
use crate::session::Flow;
use crate::track::Segment;

/// What parsing found in one packet that may be ours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parsed<A> {
    pub tuple: Tuple<A>,
    /// Offset of the IP header in the frame.
    pub l3: u8,
    /// Offset of the TCP or UDP header in the frame.
    pub l4: u8,
    pub ttl: u8,
    /// Length of the IP packet in bytes.
    pub length: u16,
    pub segment: Segment,
}

/// Up to [`BURST`] packets of one family.
pub(super) struct Burst<A> {
    pub len: usize,
    /// Which frame of the turn each lane is.
    pub frame: [u8; BURST],
    pub parsed: [Parsed<A>; BURST],
    pub hash: [u64; BURST],
    /// The candidate, then the flow, then [`Flow::NONE`] when the lane is done with.
    pub flow: [Flow; BURST],
}

impl<A: Copy + Default> Burst<A> {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            len: 0,
            frame: [0; BURST],
            parsed: [Parsed::default(); BURST],
            hash: [0; BURST],
            flow: [Flow::NONE; BURST],
        })
    }

    /// Adds a lane. The caller adds no more than [`BURST`].
    #[inline(always)]
    pub fn push(&mut self, frame: usize, parsed: Parsed<A>, hash: u64) {
        let at = self.len % BURST;
        self.frame[at] = frame as u8;
        self.parsed[at] = parsed;
        self.hash[at] = hash;
        self.len += 1;
    }
}
