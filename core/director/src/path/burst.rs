//! The lanes of one turn: what each stage leaves for the next.

use super::group::{Group, Together};
use super::{BURST, tunnel};
use crate::family::Tuple;
use crate::fib::HopId;
use crate::frame::Frame;
use crate::plan::{Forwarding, Plan, RealId};
use crate::reason::Reason;
use crate::session::Flow;
use crate::track::Segment;
use bytemuck::Zeroable;
use sluice_lanes::level::LANES;

/// What parsing found in one packet that may be ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Parsed<A> {
    /// Offset of the IP header in the frame.
    pub l3: u8,
    pub ttl: u8,
    /// Offset of the transport header in the frame; 0 for an odd packet. Behind tags and all the
    /// extension headers that are walked through it takes more than a byte.
    pub l4: u16,
    /// Length of the IP packet in bytes.
    pub length: u16,
    pub segment: Segment,
    pub tuple: Tuple<A>,
}

impl<A: Copy> Parsed<A> {
    /// Whether it has no tuple of its own: an ICMP error or a fragment.
    pub const fn is_exception(&self) -> bool {
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

/// One packet on the general path.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Lane<A> {
    pub hash: u64,
    /// The candidate, then the flow; [`Flow::NONE`] when there is none. Once it is tracked, what
    /// `ipip` needs instead: the real server's id.
    pub flow: Flow,
    /// Which frame of the turn it is.
    pub frame: u8,
    /// How it is forwarded.
    pub forwarding: Forwarding,
    /// Where it goes; [`HopId::NONE`] as long as that is not known, and when its verdict is
    /// something else.
    pub hop: HopId,
    pub parsed: Parsed<A>,
    /// What the tuple becomes.
    pub new: Tuple<A>,
}

impl<A: Default> Lane<A> {
    /// One that nothing is known of yet.
    pub fn none() -> Self {
        Self {
            hash: 0,
            flow: Flow::NONE,
            frame: 0,
            forwarding: Forwarding::default(),
            hop: HopId::NONE,
            parsed: Parsed::default(),
            new: Tuple::default(),
        }
    }
}

impl<A> Lane<A> {
    /// Puts a packet that is written into the tunnel to its real server.
    pub fn enter_tunnel<B: Frame>(&self, plan: &Plan, frame: &mut B) -> Option<Reason> {
        tunnel::enter(plan, (RealId(self.flow.0), self.hash), self.parsed.l3, frame)
    }
}

/// Packets that have room in a burst at a time: more than are under way between the stages, so that
/// long turns take no more of the cache than short ones.
pub(super) const WINDOW: usize = 64;
/// Groups of them.
pub(super) const GROUPS: usize = WINDOW / LANES;

// Frames of a turn are named by a byte, and windows follow each other.
const _: () = assert!(BURST - 1 <= u8::MAX as usize && BURST.is_multiple_of(WINDOW));

/// Where in the window a packet is that goes by itself, by its group of the turn and its lane.
#[inline(always)]
pub(super) const fn position(group: usize, lane: usize) -> usize {
    group % GROUPS * LANES + lane
}

/// The packets of one family that are under way.
pub(super) struct Burst<F: Together> {
    /// Those that go one at a time.
    pub lanes: [Lane<F::Addr>; WINDOW],
    /// What is known of eight lanes each.
    pub groups: [Group<F::Words>; GROUPS],
}

impl<F: Together> Burst<F> {
    pub fn new() -> Box<Self> {
        Box::new(Self { lanes: [Lane::none(); WINDOW], groups: [Group::zeroed(); GROUPS] })
    }

    /// Takes a flow from all packets that have it as a hint.
    #[cold]
    pub fn forget(&mut self, flow: Flow) {
        let Self { lanes, groups } = self;
        for hint in lanes.iter_mut().map(|lane| &mut lane.flow).filter(|hint| **hint == flow) {
            *hint = Flow::NONE;
        }
        for hint in groups.iter_mut().flat_map(|group| &mut group.flow).filter(|f| **f == flow.0) {
            *hint = Flow::NONE.0;
        }
    }
}
