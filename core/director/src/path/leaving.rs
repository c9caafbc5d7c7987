//! Where frames of a turn go: nearly always all leave by one port as they are; some are left to the
//! other table.

use super::Verdict;
use super::shared::{Scratch, Statistics};
use crate::fib::PortId;
use crate::reason::Reason;

/// The port that frames with these verdicts all leave by, if it is one.
#[inline(always)]
pub(super) fn by_one(verdicts: &[Verdict]) -> Option<PortId> {
    let Verdict::Tx(port) = *verdicts.first()? else { return None };
    // No early end: so it takes few instructions.
    let strangers = verdicts.iter().filter(|verdict| **verdict != Verdict::Tx(port));
    (strangers.count() == 0).then_some(port)
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
