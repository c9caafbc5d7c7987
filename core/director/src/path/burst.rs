//! The lanes of one turn: what each stage leaves for the next.

use super::BURST;
use crate::blueprint::Mode;
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
    /// Offset of the transport header in the frame; 0 for an odd packet.
    pub l4: u8,
    pub ttl: u8,
    /// Length of the IP packet in bytes.
    pub length: u16,
    pub segment: Segment,
}

impl<A: Copy> Parsed<A> {
    /// Whether it has no tuple of its own: an ICMP error or a fragment.
    pub const fn is_odd(&self) -> bool {
        self.l4 == 0
    }

    /// The same with a tuple of another form.
    pub const fn with<B>(&self, tuple: Tuple<B>) -> Parsed<B> {
        Parsed {
            tuple,
            l3: self.l3,
            l4: self.l4,
            ttl: self.ttl,
            length: self.length,
            segment: self.segment,
        }
    }
}

/// One packet on its way through the stages: a cache line, so that a stage finds everything from
/// one address.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Lane<A> {
    pub parsed: Parsed<A>,
    pub hash: u64,
    /// The candidate, then the flow; [`Flow::NONE`] when there is none. Once it is tracked, what
    /// `ipip` needs instead: the real server's id.
    pub flow: Flow,
    /// What the tuple becomes.
    pub new: Tuple<A>,
    /// Where it goes; [`HopId::NONE`] as long as that is not known, and when its verdict is
    /// something else.
    pub hop: HopId,
    /// Which frame of the turn it is.
    pub frame: u8,
    /// How it is forwarded.
    pub mode: Mode,
}

const _: () = assert!(size_of::<Lane<u32>>() == 64);
const _: () = assert!(size_of::<Lane<u128>>() == 128);

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
            mode: Mode::Fnat,
        };
        Box::new(Self { len: 0, lanes: [lane; BURST] })
    }
}
