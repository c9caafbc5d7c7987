//! Packets of a spread flow on their way from the flow's owner to a helper and back.

use crate::frame::Frame;
use crate::path::{FlowRewrite, Verdict};
use arrayvec::ArrayVec;
use std::sync::Arc;

/// The most frames of a chunk.
pub const CHUNK: usize = 32;
/// The most chunks of an owner that a helper has at a time.
pub const AHEAD: usize = 8;
/// Frames that are asked for ahead of the one that is rewritten.
const PREFETCHED: usize = 4;

/// Frames of a flow, in their order. It is a box that belongs to its flow and goes to and fro, so
/// nothing is allocated, and what is under way is bounded.
pub struct Chunk<F> {
    /// Which flow of its owner.
    pub(super) flow: u32,
    pub(super) rewrite: Arc<FlowRewrite>,
    /// What is left of it: all of it until it is worked on.
    pub frames: ArrayVec<F, CHUNK>,
    /// Frames that had no room for an outer header.
    pub dropped: usize,
}

impl<F> Chunk<F> {
    /// How its frames are rewritten.
    pub fn rewrite(&self) -> &FlowRewrite {
        &self.rewrite
    }
}

impl<F: Frame> Chunk<F> {
    /// Rewrites all frames.
    pub fn work(&mut self) {
        let Self { rewrite, frames, .. } = self;
        frames.iter().take(PREFETCHED).for_each(Frame::prefetch_far);
        for at in 0..frames.len() {
            frames.get(at + PREFETCHED).into_iter().for_each(Frame::prefetch);
            let frame = &mut frames[at];
            if !matches!(rewrite.apply(frame), Verdict::Tx(_)) {
                return self.work_with_holes(at);
            }
        }
    }

    /// The same from a frame on that cannot be rewritten.
    #[cold]
    fn work_with_holes(&mut self, from: usize) {
        let before = self.frames.len();
        let mut at = 0;
        self.frames.retain(|frame| {
            at += 1;
            at <= from || at > from + 1 && matches!(self.rewrite.apply(frame), Verdict::Tx(_))
        });
        self.dropped += before - self.frames.len();
    }
}
