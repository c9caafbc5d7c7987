//! Where frames of a turn go: nearly always all leave by one port as they are; some are left to the
//! other table.

use super::Verdict;
use super::shared::{Scratch, Statistics};
use crate::fib::PortId;
use crate::reason::Reason;

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

    /// Adds a frame with this verdict.
    #[inline(always)]
    pub fn note(&mut self, verdict: &Verdict) {
        if let Verdict::Tx(port) = *verdict {
            self.add(port, 1);
        }
    }

    /// The port that so many frames leave by, if that is all of them.
    pub const fn all(&self, frames: usize) -> Option<PortId> {
        if self.frames == frames && frames > 0 { Some(self.by) } else { None }
    }
}

impl Scratch {
    /// Leaves a frame to the extended table.
    pub(super) fn defer(&mut self, frame: usize, verdicts: &mut [Verdict]) {
        if self.deferred.try_push(frame as u8).is_err() {
            verdicts[frame] = Verdict::Drop(Reason::NoSession);
        }
    }
}

impl Statistics {
    /// Counts verdicts that carry a reason.
    pub(super) fn count(&mut self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            match verdict {
                Verdict::Tx(_) | Verdict::Wait | Verdict::Fragment(..) | Verdict::Park(_) => {}
                Verdict::Answer(_, reason) | Verdict::Kernel(reason) | Verdict::Drop(reason) => {
                    self.counters.count(*reason);
                }
                Verdict::HandOff(_) => self.counters.handed_off += 1,
            }
        }
    }
}
