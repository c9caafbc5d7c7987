//! Rings between workers: one for each ordered pair, so that each has one producer and one
//! consumer and needs no lock.
//!
//! What a turn hands over goes into a ring at once, and comes out of it in bursts: the two workers
//! pass the cache lines that say how full it is to and fro, so the less often the better.

use crate::chunks::{self, Helping};
use crate::queue::Burst;
use arrayvec::ArrayVec;
use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::Frame;
use sluice_director::dealing::{Chunk, ChunkExchange};
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, Round};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Frames that one ring can hold.
const RING: usize = 1024;

/// What the receiving worker shall do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handoff {
    /// Run it through its path, as received from the port, with what it has behind it.
    Process(Round),
    /// Send it by the port, which the sender has no queue of.
    Send,
    /// The same, in fragments of at most so many bytes of IP packet.
    Cut(u16),
    /// Give it to the kernel by the port's twin, which the sender has no queue of.
    Kernel,
    /// Know that nothing more of a fence's flow comes by this ring. Without a frame.
    Mark(u32),
}

/// A frame on its way to another worker, or a mark among them.
pub(crate) struct HandoffMessage<F> {
    pub frame: Option<F>,
    pub port: PortId,
    pub handoff: Handoff,
}

impl<F> HandoffMessage<F> {
    /// A frame that came by a port, or is to leave by it.
    pub const fn of(frame: F, port: PortId, handoff: Handoff) -> Self {
        Self { frame: Some(frame), port, handoff }
    }
}

/// A ring's end to put messages in, and those that wait for the end of the turn.
pub(crate) struct Sender<F> {
    ring: Producer<HandoffMessage<F>>,
    pending: ArrayVec<HandoffMessage<F>, BURST>,
    flushed: bool,
}

impl<F> Sender<F> {
    /// Adds a message; gives how many had to be dropped for it.
    pub fn push(&mut self, message: HandoffMessage<F>) -> usize {
        let dropped = if self.pending.is_full() { self.flush() } else { 0 };
        self.pending.push(message);
        dropped
    }

    /// Puts so many messages into the ring, and ahead of them what waits; gives how many had to be
    /// dropped because it is full.
    pub fn push_all(
        &mut self,
        count: usize,
        messages: impl Iterator<Item = HandoffMessage<F>>,
    ) -> usize {
        let before = if self.pending.is_empty() { 0 } else { self.flush() };
        self.flushed = true;
        before + put(&mut self.ring, count, messages)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Puts what waits into the ring; gives how many had to be dropped because it is full.
    pub fn flush(&mut self) -> usize {
        self.flushed = true;
        put(&mut self.ring, self.pending.len(), self.pending.drain(..))
    }

    /// Puts a mark behind all that is in the ring; `false` if that is full. Nothing may wait.
    pub fn mark(&mut self, fence: u32) -> bool {
        debug_assert!(self.pending.is_empty(), "it would overtake what waits");
        self.flushed = true;
        let (frame, port, handoff) = (None, PortId(0), Handoff::Mark(fence));
        self.ring.push(HandoffMessage { frame, port, handoff }).is_ok()
    }

    /// Says that the receiver has something to do besides.
    pub const fn call(&mut self) {
        self.flushed = true;
    }

    /// Whether it was flushed since this was last asked.
    pub fn was_flushed(&mut self) -> bool {
        std::mem::take(&mut self.flushed)
    }
}

/// Puts so many messages into a ring at once; gives how many had to be dropped.
#[inline(always)]
fn put<F>(
    ring: &mut Producer<HandoffMessage<F>>,
    count: usize,
    mut messages: impl Iterator<Item = HandoffMessage<F>>,
) -> usize {
    // How far the receiver is, is looked up only when there may be too little room: that is in its
    // cache.
    let mut room = count;
    if let Err(ChunkError::TooFewSlots(slots)) = ring.write_chunk_uninit(room) {
        room = slots;
    }
    if let Ok(chunk) = ring.write_chunk_uninit(room) {
        chunk.fill_from_iter(&mut messages);
    }
    messages.count()
}

/// What has each frame behind it that was handed over.
pub(crate) type Rounds = ArrayVec<Round, BURST>;

/// Turns that messages wait for a burst that they can join.
const PATIENCE: u8 = 4;

/// A ring's end to take messages out of.
pub(crate) struct Receiver<F> {
    ring: Consumer<HandoffMessage<F>>,
    /// Turns that the first has waited, or those before it.
    waited: u8,
}

impl<F: Frame> Receiver<F> {
    /// Lets those from the first on that came by a port join a burst of it, as many as there is
    /// room for.
    pub fn join(&mut self, port: PortId, burst: &mut Burst<F>, rounds: &mut Rounds) {
        let most = self.ring.slots().min(burst.remaining_capacity());
        let Ok(chunk) = self.ring.read_chunk(most) else { return };
        // Where the ring begins anew, the rest joins another burst.
        let (first, _) = chunk.as_slices();
        let is_other = |message: &HandoffMessage<F>| {
            message.port != port || !matches!(message.handoff, Handoff::Process(_))
        };
        let count = first.iter().position(is_other).unwrap_or(first.len());
        for HandoffMessage { frame, handoff, .. } in chunk.into_iter().take(count) {
            if let (Handoff::Process(round), Some(frame)) = (handoff, frame) {
                frame.prefetch_far();
                burst.push(frame);
                rounds.push(round);
            }
        }
    }

    /// Whether messages may wait for the next turn: few, and not for long, whose first is for a
    /// port whose bursts it can join. None may.
    pub fn may_wait(&mut self, joins: impl Fn(PortId) -> bool) -> bool {
        let few = self.ring.slots() < BURST / 4;
        let joins = self.ring.peek().map_or(true, |message| {
            matches!(message.handoff, Handoff::Process(_)) && joins(message.port)
        });
        let may = few && joins && self.waited < PATIENCE;
        self.waited = if may && !self.ring.is_empty() { self.waited + 1 } else { 0 };
        may
    }
}

impl<F> Receiver<F> {
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes as many as there is room for.
    pub fn take(&mut self, messages: &mut ArrayVec<HandoffMessage<F>, BURST>) {
        let count = self.ring.slots().min(messages.remaining_capacity());
        if let Ok(chunk) = self.ring.read_chunk(count) {
            messages.extend(chunk);
        }
    }
}

/// One worker's ends of the rings: by the other worker's number, its own place empty.
pub struct Rings<F> {
    pub(crate) to: Vec<Option<Sender<F>>>,
    pub(crate) from: Vec<Option<Receiver<F>>>,
    /// What they help each other with.
    pub(crate) help: Vec<Option<Helping<F>>>,
    /// Whether a helper was given a chunk since this was last asked.
    pub(crate) gave: bool,
    /// Flows that are spread, of all workers.
    spread: Arc<AtomicUsize>,
}

impl<F> Default for Rings<F> {
    fn default() -> Self {
        let (to, from, help) = (Vec::new(), Vec::new(), Vec::new());
        Self { to, from, help, gave: false, spread: Arc::default() }
    }
}

impl<F> Rings<F> {
    /// Whether any worker has a flow that is spread. One load of a line that nobody writes.
    #[inline(always)]
    pub(crate) fn any_spread(&self) -> bool {
        self.spread.load(Ordering::Relaxed) != 0
    }

    /// One flow more that is spread, or one less.
    pub(crate) fn note_spread(&self, begins: bool) {
        if begins {
            self.spread.fetch_add(1, Ordering::Relaxed);
        } else {
            self.spread.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether another worker has left chunks here.
    pub(crate) fn has_chunks(&self) -> bool {
        self.any_spread() && self.help.iter().flatten().any(Helping::has_any)
    }
}

impl<F> Rings<F> {
    /// Puts a message for another worker with those that wait for the end of the turn; gives how
    /// many had to be dropped for it.
    #[inline]
    pub(crate) fn hand_over(&mut self, worker: u16, message: HandoffMessage<F>) -> usize {
        match self.to.get_mut(usize::from(worker)) {
            Some(Some(ring)) => ring.push(message),
            _ => 1,
        }
    }

    /// Hands over a message for each of `workers`, as [`Rings::hand_over`] does, but at once if all
    /// are for the same.
    pub(crate) fn hand_over_all(
        &mut self,
        workers: &[u16],
        messages: impl Iterator<Item = HandoffMessage<F>>,
    ) -> usize {
        let all = workers.first().filter(|first| workers.iter().all(|worker| worker == *first));
        match all.and_then(|worker| self.to.get_mut(usize::from(*worker))) {
            Some(Some(ring)) => ring.push_all(workers.len(), messages),
            _ => {
                let each = workers.iter().zip(messages);
                each.map(|(worker, message)| self.hand_over(*worker, message)).sum()
            }
        }
    }
}

impl<F> ChunkExchange<F> for Rings<F> {
    fn out(&self, helper: u16) -> usize {
        let helping = self.help.get(usize::from(helper)).and_then(Option::as_ref);
        helping.map_or(usize::MAX, Helping::out)
    }

    fn give(&mut self, helper: u16, chunk: Box<Chunk<F>>) -> Result<(), Box<Chunk<F>>> {
        let at = usize::from(helper);
        let Some(Some(helping)) = self.help.get_mut(at) else { return Err(chunk) };
        helping.give(chunk)?;
        self.to[at].iter_mut().for_each(Sender::call);
        self.gave = true;
        Ok(())
    }

    fn collect(&mut self, helper: u16) -> Option<Box<Chunk<F>>> {
        self.help.get_mut(usize::from(helper))?.as_mut()?.collect()
    }
}

/// Rings between all of `workers` workers; the n-th entry is for worker n.
pub fn mesh<F>(workers: usize) -> Vec<Rings<F>> {
    let spread = Arc::default();
    let mut rings: Vec<Rings<F>> = (0..workers)
        .map(|_| Rings {
            to: (0..workers).map(|_| None).collect(),
            from: (0..workers).map(|_| None).collect(),
            help: (0..workers).map(|_| None).collect(),
            gave: false,
            spread: Arc::clone(&spread),
        })
        .collect();
    for sender in 0..workers {
        for receiver in (0..workers).filter(|receiver| *receiver != sender) {
            let (producer, consumer) = RingBuffer::new(RING);
            rings[sender].to[receiver] =
                Some(Sender { ring: producer, pending: ArrayVec::new(), flushed: false });
            rings[receiver].from[sender] = Some(Receiver { ring: consumer, waited: 0 });
            if sender < receiver {
                let (first, second) = chunks::between();
                rings[sender].help[receiver] = Some(first);
                rings[receiver].help[sender] = Some(second);
            }
        }
    }
    rings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is lost in silence: what comes out, in order, and what was dropped is what went in.
    #[test]
    fn what_a_full_ring_drops_is_told() {
        let [mut first, mut second] = mesh::<usize>(2).try_into().ok().unwrap();
        let to = first.to[1].as_mut().unwrap();
        let from = second.from[0].as_mut().unwrap();
        let message = |frame| HandoffMessage::of(frame, PortId(0), Handoff::Send);
        let given = RING + BURST + 3;
        let mut dropped: usize = (0..given).map(|frame| to.push(message(frame))).sum();
        assert!(from.ring.slots() <= RING && !to.is_empty());
        dropped += to.flush();
        assert!(to.is_empty());
        let mut came = Vec::new();
        while !from.is_empty() {
            let mut messages = ArrayVec::new();
            from.take(&mut messages);
            came.extend(messages.iter().filter_map(|message| message.frame));
        }
        assert_eq!(came, (0..RING).collect::<Vec<_>>());
        assert_eq!(dropped, given - RING);
    }

    /// Who gets a message is who is named beside it, alone or with others, in the order given.
    #[test]
    fn all_and_each_go_where_they_are_to() {
        let mut rings = mesh::<u16>(3);
        let mut told = [const { Vec::new() }; 3];
        let mut number = 0;
        for workers in [&[1u16, 1, 1] as &[u16], &[2], &[1, 2, 1], &[2, 2], &[1, 0, 2], &[], &[1]] {
            let messages = workers.iter().map(|worker| {
                number += 1;
                told[usize::from(*worker)].push(number);
                HandoffMessage::of(number, PortId(0), Handoff::Send)
            });
            let own = workers.iter().filter(|worker| **worker == 0).count();
            assert_eq!(rings[0].hand_over_all(workers, messages), own, "no ring to itself");
        }
        for worker in 1..3 {
            assert_eq!(rings[0].to[worker].as_mut().unwrap().flush(), 0);
            let mut came = ArrayVec::new();
            rings[worker].from[0].as_mut().unwrap().take(&mut came);
            let came: Vec<_> = came.iter().filter_map(|message| message.frame).collect();
            assert_eq!(came, told[worker]);
        }
    }
}
