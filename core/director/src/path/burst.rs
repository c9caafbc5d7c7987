//! The lanes of one turn: what each stage leaves for the next.

use super::BURST;
use crate::family::Tuple;
use crate::fib::HopId;
use crate::session::Flow;
use crate::track::Segment;

/// What parsing found in one packet that may be ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// One packet on its way through the stages: a cache line, so that a stage finds everything from
/// one address.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Lane<A> {
    pub parsed: Parsed<A>,
    pub hash: u64,
    /// The candidate, then the flow; [`Flow::NONE`] when there is none.
    pub flow: Flow,
    /// What the tuple becomes.
    pub new: Tuple<A>,
    /// Where it goes; [`HopId::NONE`] as long as that is not known, and when its verdict is
    /// something else.
    pub hop: HopId,
    /// Which frame of the turn it is.
    pub frame: u8,
}

const _: () = assert!(size_of::<Lane<u32>>() == 64);

/// Up to [`BURST`] packets of one family.
pub(super) struct Burst<A> {
    pub len: usize,
    pub lanes: [Lane<A>; BURST],
}

impl<A: Copy + Default> Burst<A> {
    pub fn new() -> Box<Self> {
        let lane = Lane {
            parsed: Parsed::default(),
            hash: 0,
            flow: Flow::NONE,
            new: Tuple::default(),
            hop: HopId::NONE,
            frame: 0,
        };
        Box::new(Self { len: 0, lanes: [lane; BURST] })
    }
}
