//! The chunks of one flow, and dealing a burst's packets into them.

use super::ChunkExchange;
use super::chunk::Chunk;
use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::{BURST, Dealt, Round};
use std::collections::VecDeque;

/// Frames for the owner's path that wait for chunks before them.
pub(super) const WAITING: usize = 2 * BURST;
/// A helper with fewer chunks than this gets one that is not full.
const FEW: usize = 2;

/// What comes next in the order.
pub(super) enum Next<F> {
    /// The first chunk that this helper has.
    Helper(u16),
    /// A chunk that the owner has rewritten.
    Done(Box<Chunk<F>>),
    /// A frame for the owner's path, which came by a port.
    Owners { flow: u32, port: PortId, round: Option<Round>, frame: F },
}

/// What became of a flow's packets.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub dealt: u64,
    pub own: u64,
    pub kept: u64,
    pub late: u64,
}

/// The chunks of a flow, and whom they go to.
pub(super) struct Stock<F> {
    pub id: u32,
    pub helpers: Vec<u16>,
    /// Whose turn it is.
    pub turn: usize,
    /// Chunks that are here.
    pub idle: Vec<Box<Chunk<F>>>,
    /// The chunk that is being filled: the flow's last packets.
    pub open: Option<Box<Chunk<F>>>,
    /// Chunks and frames in the order.
    pub under_way: usize,
    pub tally: Tally,
}

impl<F> Stock<F> {
    /// Whether all that came is through.
    pub const fn is_through(&self) -> bool {
        self.under_way == 0 && self.open.is_none()
    }
}

/// The packets of one flow, as they are dealt.
pub(super) struct Dealing<'a, F, H> {
    pub stock: &'a mut Stock<F>,
    pub order: &'a mut VecDeque<Next<F>>,
    pub waiting: &'a mut usize,
    pub helpers: &'a mut H,
    /// Packets that there was no room for.
    pub late: usize,
}

impl<F: Frame, H: ChunkExchange<F>> Dealing<'_, F, H> {
    /// One that any worker may rewrite.
    #[inline(always)]
    pub fn plain(&mut self, mut frame: F) {
        let Some(chunk) = self.stock.open.as_mut() else { return self.open(frame) };
        self.helpers.dealt(&mut frame);
        chunk.frames.push(frame);
        if chunk.frames.is_full() {
            self.close();
        }
    }

    /// The same for the first of a chunk.
    fn open(&mut self, mut frame: F) {
        let Some(mut chunk) = self.stock.idle.pop() else {
            self.late += 1;
            return self.helpers.late(frame, Dealt::Plain);
        };
        self.helpers.dealt(&mut frame);
        chunk.frames.push(frame);
        self.stock.open = Some(chunk);
    }

    /// One for the owner's path.
    pub fn owners(&mut self, port: PortId, round: Option<Round>, frame: F) {
        self.close();
        if *self.waiting >= WAITING {
            self.late += 1;
            return self.helpers.late(frame, Dealt::Owners);
        }
        self.order.push_back(Next::Owners { flow: self.stock.id, port, round, frame });
        self.stock.tally.kept += 1;
        *self.waiting += 1;
        self.stock.under_way += 1;
    }

    /// Deals the chunk that is being filled if a helper has little to do. Otherwise it may as well
    /// be filled further: so chunks are as large as helpers are busy, and few packets are no reason
    /// to run out of chunks.
    pub fn close_for_idle(&mut self) {
        let has_little = |helper: &u16| self.helpers.out(*helper) < FEW;
        if self.stock.open.is_some() && self.stock.helpers.iter().any(has_little) {
            self.close();
        }
    }

    /// Deals the chunk that is being filled to whoever has room, from the one on whose turn it is.
    pub fn close(&mut self) {
        let Some(mut chunk) = self.stock.open.take() else { return };
        let Stock { helpers, turn, under_way, tally, .. } = &mut *self.stock;
        *under_way += 1;
        let frames = chunk.frames.len() as u64;
        for _ in 0..helpers.len() {
            let helper = helpers[*turn];
            *turn = (*turn + 1) % helpers.len();
            match self.helpers.give(helper, chunk) {
                Ok(()) => {
                    self.order.push_back(Next::Helper(helper));
                    tally.dealt += frames;
                    return;
                }
                Err(back) => chunk = back,
            }
        }
        chunk.work();
        tally.own += frames;
        self.order.push_back(Next::Done(chunk));
    }
}
