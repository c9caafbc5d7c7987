//! What nearly always holds: that all frames of a turn leave by one port as they are.

use crate::fib::PortId;

/// How many of a turn's frames leave by one port as they are.
#[derive(Clone, Copy, Default)]
pub(super) struct Leaving {
    by: PortId,
    frames: usize,
}

impl Leaving {
    /// Adds frames that leave by a port; those of others than the first are not counted.
    #[inline(always)]
    pub fn add(&mut self, port: PortId, frames: usize) {
        if self.frames == 0 {
            self.by = port;
        }
        if self.by == port {
            self.frames += frames;
        }
    }

    /// The port that so many frames leave by, if that is all of them.
    pub const fn all(&self, frames: usize) -> Option<PortId> {
        if self.frames == frames && frames > 0 { Some(self.by) } else { None }
    }
}
