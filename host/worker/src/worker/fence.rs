//! Flows whose way to their owner changes: the owner's fences, and the marks by which workers say
//! that nothing is left of the old way ([`sluice_director::dealing::FenceOrder`]).

use super::Worker;
use crate::queue::{Burst, Queue};
use crate::ring::{Handoff, Rounds};
use sluice_director::dealing::{FenceOrder, Held, Way};
use sluice_director::fib::PortId;
use sluice_director::path::BURST;
use sluice_director::{Reason, Time};
use std::collections::VecDeque;

/// Fewer frames than this are all that were in a queue: drivers that do not give as many as are
/// asked for give at least so many if there are.
const SHORT: usize = 32;
/// The most frames that a receive queue holds: no driver of DPDK's has larger rings.
const LONGEST_QUEUE: usize = 1 << 15;

/// A mark that is to be given to a flow's owner.
pub(super) struct Owed {
    fence: u32,
    owner: u16,
    /// Frames that each queue that was never found empty has given at least.
    received: usize,
}

impl<Q: Queue> Worker<Q> {
    /// Puts up a fence for a flow of this worker's. `false` if it cannot.
    pub fn fence(&mut self, order: &FenceOrder) -> bool {
        let others = 0..self.rings.help.len() as u16;
        let waits = match order.to_way {
            Way::Direct => others.filter(|worker| *worker != self.number).collect(),
            Way::Handed => vec![self.number],
        };
        let is_up = self.spreads.fence(order, waits);
        if is_up {
            self.rings.note_spread(true);
        }
        is_up
    }

    /// The way of a fence's flow has changed: its owner is to get a mark behind all that is left of
    /// the old one. It may be this worker.
    pub fn owe_mark(&mut self, fence: u32, owner: u16) {
        self.owed.push(Owed { fence, owner, received: 0 });
    }

    /// The way of a fence's flow does not change after all.
    pub fn take_down(&mut self, fence: u32) {
        self.spreads.take_down(fence);
    }

    /// Looks into all receive queues, and gives the marks that are owed if these are empty. Gives
    /// how many frames came; while marks are owed there always is something to do.
    #[cold]
    #[inline(never)]
    pub(super) fn give_marks(&mut self, now: Time) -> usize {
        let (mut all, mut least) = (1, usize::MAX);
        for at in 0..self.ports.len() {
            self.enter(PortId(at as u16));
            for queue in 0..self.ports[at].lines.len() {
                let (came, joined) = self.serve_line_untimed(now, at, queue);
                all += came + joined;
                if came >= SHORT {
                    least = least.min(came);
                }
            }
        }
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain_mut(|mark| {
            // What was there when it was asked for has come if so many came since.
            mark.received = mark.received.saturating_add(least);
            mark.received < LONGEST_QUEUE || !self.give_mark(mark)
        });
        self.owed = owed;
        all
    }

    /// Gives a mark; `false` if the ring has no room for it.
    fn give_mark(&mut self, mark: &Owed) -> bool {
        if mark.owner == self.number {
            self.spreads.mark(mark.fence, mark.owner);
            return true;
        }
        let Some(Some(ring)) = self.rings.to.get_mut(usize::from(mark.owner)) else { return true };
        let dropped = ring.flush();
        let given = ring.mark(mark.fence);
        self.owes_wakes = true;
        self.count(dropped, Reason::HandOffFull);
        given
    }

    /// A worker has given a mark.
    pub(super) fn take_mark(&mut self, handoff: Handoff, sender: usize) {
        if let Handoff::Mark(fence) = handoff {
            self.spreads.mark(fence, sender as u16);
        }
    }

    /// Lets go on what fences need not hold any more, behind all that has come.
    #[cold]
    #[inline(never)]
    pub(super) fn release(&mut self, now: Time) -> usize {
        let mut frames = 0;
        let before = self.spreads.fences();
        while let Some(held) = self.spreads.released(now) {
            frames += held.len();
            self.go_on_with(now, held);
        }
        (self.spreads.fences()..before).for_each(|_| self.rings.note_spread(false));
        frames
    }

    /// Runs frames through the path, in bursts of those that came by one port, in one way.
    fn go_on_with(&mut self, now: Time, held: VecDeque<Held<Q::Frame>>) {
        let (mut burst, mut rounds) = (Burst::new(), Rounds::new());
        let mut alike = None;
        for Held { port, round, frame } in held {
            let of = (port, round.is_some());
            if let Some((before, _)) = alike
                && (alike != Some(of) || burst.len() == BURST)
            {
                self.process_handed(now, before, &mut burst, &mut rounds);
                burst.clear();
            }
            alike = Some(of);
            burst.push(frame);
            rounds.extend(round);
        }
        if let Some((port, _)) = alike {
            self.process_handed(now, port, &mut burst, &mut rounds);
        }
    }
}
