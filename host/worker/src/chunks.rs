//! Chunks of a spread flow on their way between the flow's owner and those who help it.
//!
//! Between two workers there are two rings each way: chunks to be rewritten, and chunks that are
//! done. A helper gives chunks back in the order in which it got them.

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::Frame;
use sluice_director::dealing::{AHEAD, Chunk};

/// One worker's ends of the rings between it and another.
pub(crate) struct Helping<F> {
    /// The own chunks: to the helper, and back.
    give: Producer<Box<Chunk<F>>>,
    done: Consumer<Box<Chunk<F>>>,
    /// How many of them the helper has.
    out: usize,
    /// The other's: from it, and back.
    take: Consumer<Box<Chunk<F>>>,
    give_back: Producer<Box<Chunk<F>>>,
}

impl<F> Helping<F> {
    /// Gives the helper a chunk to work on; gives it back if it has enough.
    pub fn give(&mut self, chunk: Box<Chunk<F>>) -> Result<(), Box<Chunk<F>>> {
        if self.out >= AHEAD {
            return Err(chunk);
        }
        let given = self.give.push(chunk);
        self.out += usize::from(given.is_ok());
        given.map_err(|rtrb::PushError::Full(chunk)| chunk)
    }

    /// How many chunks the helper has.
    pub const fn out(&self) -> usize {
        self.out
    }

    /// The first own chunk that is done.
    pub fn collect(&mut self) -> Option<Box<Chunk<F>>> {
        let chunk = self.done.pop().ok()?;
        self.out -= 1;
        Some(chunk)
    }

    /// Whether there is anything to do, or done.
    pub fn has_any(&self) -> bool {
        !self.take.is_empty() || !self.done.is_empty()
    }
}

impl<F: Frame> Helping<F> {
    /// Works on the other's chunks that are there; gives how many frames they had.
    pub fn help(&mut self) -> usize {
        let mut frames = 0;
        for _ in 0..AHEAD {
            let Ok(mut chunk) = self.take.pop() else { break };
            frames += chunk.frames.len();
            chunk.work();
            // Its ring has room for all that the other may have out.
            let given = self.give_back.push(chunk);
            debug_assert!(given.is_ok(), "more chunks than there may be");
        }
        frames
    }
}

/// The ends of the rings between two workers.
pub(crate) fn between<F>() -> (Helping<F>, Helping<F>) {
    let ((a_give, b_take), (b_back, a_done)) = (RingBuffer::new(AHEAD), RingBuffer::new(AHEAD));
    let ((b_give, a_take), (a_back, b_done)) = (RingBuffer::new(AHEAD), RingBuffer::new(AHEAD));
    (
        Helping { give: a_give, done: a_done, out: 0, take: a_take, give_back: a_back },
        Helping { give: b_give, done: b_done, out: 0, take: b_take, give_back: b_back },
    )
}
