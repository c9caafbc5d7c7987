//! Order while a NIC's rule begins to bring a flow to its owner, and when it ends.
//!
//! A flow comes to its owner in one of two ways: by a queue of the owner's, or handed over by the
//! worker whose queue it came to. A rule of a NIC changes which, and what is still under way in the
//! old way would be overtaken by what comes in the new one. So a *fence* is put up before the rule
//! changes, and what comes in the new way is held. Once the rule has changed, each worker that may
//! have something of the flow looks into its receive queues until it has found them empty, and then
//! says so by a mark in the ring in which it hands packets over: behind the last of them. When all
//! marks have come, nothing is left in the old way, and what is held goes on.
//!
//! What is held is bounded in number and in time. At a bound it goes on, and from then on what
//! still comes in the old way is dropped, until all marks have come: no packet overtakes another,
//! and what is lost is what waited there at that moment.
//!
//! One mark of each worker suffices because packets reach their owner in one step. Flows whose
//! packets are seen to go round are not redirected ([`Spreading::goes_round`]).
//!
//! [`Spreading::goes_round`]: super::Spreading::goes_round

use super::{ChunkExchange, Spreads};
use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::{BURST, Dealt, FlowMatch, Round};
use crate::spec::NetworkId;
use crate::time::Time;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Packets of a flow that are held at most, but for a burst.
pub const MOST_HELD: usize = 4096;
/// Milliseconds that one is held at most, and a turn.
pub const LONGEST_HELD_MS: u64 = 20;
/// Fences of one owner at a time.
const MOST_FENCES: usize = 4;

/// How a packet comes to the owner of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a queue of the owner's.
    Direct,
    /// Handed over by another worker.
    Handed,
}

/// A flow whose way changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceOrder {
    /// What marks name it by. No two have the same.
    pub id: u32,
    /// The network that it is in.
    pub network: NetworkId,
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port of its packets as they arrive.
    pub from: (IpAddr, u16),
    /// Their destination.
    pub to: (IpAddr, u16),
    /// The way in which they are to come from now on.
    pub to_way: Way,
}

/// A packet that is held, or was.
pub struct Held<F> {
    /// The port that it came by.
    pub port: PortId,
    /// What it has behind it if it was handed over.
    pub round: Option<Round>,
    /// The packet.
    pub frame: F,
}

/// A flow whose way changes, at its owner.
pub(super) struct Fence<F> {
    order: FenceOrder,
    flow: FlowMatch,
    /// Workers whose marks have not come.
    waits: Vec<u16>,
    held: VecDeque<Held<F>>,
    /// When the first of these came.
    since: Option<Time>,
    /// Whether a bound was reached, so that nothing is held any more.
    open: bool,
}

impl<F: Frame> Fence<F> {
    /// Takes what is held out of a burst, and what is dropped; gives how many the latter are.
    fn sift(
        &mut self,
        (now, port): (Time, PortId),
        burst: &mut ArrayVec<F, BURST>,
        rounds: &mut ArrayVec<Round, BURST>,
        helpers: &mut impl ChunkExchange<F>,
    ) -> usize {
        let own = burst.len() - rounds.len();
        let (frames, before) = (std::mem::take(burst), std::mem::take(rounds));
        let mut dropped = 0;
        for (at, frame) in frames.into_iter().enumerate() {
            let round = at.checked_sub(own).map(|at| before[at]);
            let is_new = round.is_some() == (self.order.to_way == Way::Handed);
            // Before the bound the new way waits, behind it the old one has lost its turn.
            if is_new == self.open || !self.flow.has(frame.bytes()) {
                burst.push(frame);
                rounds.extend(round);
            } else if is_new {
                self.since = self.since.or(Some(now));
                self.held.push_back(Held { port, round, frame });
            } else {
                helpers.late(frame, Dealt::Owners);
                dropped += 1;
            }
        }
        dropped
    }
}

impl<F> Fence<F> {
    fn is_at_bound(&self, now: Time) -> bool {
        let long = |since: Time| now.0.saturating_sub(since.0) >= LONGEST_HELD_MS;
        self.held.len() >= MOST_HELD || self.since.is_some_and(long)
    }
}

impl<F> Spreads<F> {
    /// Puts up a fence, until marks of these workers have come. `false` if it cannot be: the flow
    /// has one, or there are many.
    pub fn fence(&mut self, order: &FenceOrder, waits: Vec<u16>) -> bool {
        let FenceOrder { network, protocol, from, to, .. } = *order;
        let same = |known: &Fence<F>| {
            let other = &known.order;
            (other.network, other.protocol) == (network, protocol)
                && (other.from, other.to) == (from, to)
        };
        let Some(flow) = FlowMatch::new(protocol, from, to) else { return false };
        if self.fences.len() >= MOST_FENCES || self.fences.iter().any(same) {
            return false;
        }
        let held = VecDeque::with_capacity(MOST_HELD + BURST);
        self.fences.push(Fence { order: *order, flow, waits, held, since: None, open: false });
        self.note_whether_idle();
        true
    }

    /// How many fences are up.
    pub const fn fences(&self) -> usize {
        self.fences.len()
    }

    /// How many frames fences hold.
    pub(super) fn held(&self) -> usize {
        self.fences.iter().map(|fence| fence.held.len()).sum()
    }

    /// A worker's mark has come: what it had in the old way is through.
    pub fn mark(&mut self, fence: u32, worker: u16) {
        let fences = self.fences.iter_mut().filter(|it| it.order.id == fence);
        fences.for_each(|it| it.waits.retain(|waited| *waited != worker));
    }

    /// The way does not change after all.
    pub fn take_down(&mut self, fence: u32) {
        let fences = self.fences.iter_mut().filter(|it| it.order.id == fence);
        fences.for_each(|it| it.waits.clear());
    }

    /// What goes on now, in its order, if a fence is not needed any more or has reached a bound. To
    /// be asked once all that has come in the turn was dealt.
    pub fn released(&mut self, now: Time) -> Option<VecDeque<Held<F>>> {
        let is_due = |it: &Fence<F>| it.waits.is_empty() || !it.open && it.is_at_bound(now);
        let at = self.fences.iter().position(is_due)?;
        let fence = &mut self.fences[at];
        if !fence.waits.is_empty() {
            fence.open = true;
            return Some(std::mem::take(&mut fence.held));
        }
        let fence = self.fences.swap_remove(at);
        self.note_whether_idle();
        Some(fence.held)
    }
}

impl<F: Frame> Spreads<F> {
    /// Takes what fences hold out of a burst; gives how many had to be dropped.
    pub(super) fn sift(
        &mut self,
        (network, now, port): (NetworkId, Time, PortId),
        (burst, rounds): (&mut ArrayVec<F, BURST>, &mut ArrayVec<Round, BURST>),
        helpers: &mut impl ChunkExchange<F>,
    ) -> usize {
        let fences = self.fences.iter_mut().filter(|fence| fence.order.network == network);
        fences.map(|fence| fence.sift((now, port), burst, rounds, helpers)).sum()
    }
}
