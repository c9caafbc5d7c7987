//! ICMP errors about packets of sessions.

use super::engine::{Engine, Outcome, Turn};
use super::parse::Parse;
use super::{Shared, Verdict, odd};
use crate::frame::Frame;
use crate::reason::Reason;

impl<F: Parse> Engine<F> {
    /// Decides on an ICMP error.
    pub(super) fn error<B: Frame>(
        &mut self,
        _shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        frame: &mut B,
    ) -> Outcome {
        let l3 = usize::from(self.burst.lanes[lane].parsed.l3);
        let Some(ends) = frame.bytes().get(l3..).and_then(odd::ends::<F>) else {
            return Outcome::Is(Verdict::Drop(Reason::Truncated));
        };
        if !F::side(turn.view.plan).owns(ends.dst) {
            return Outcome::Is(Verdict::Kernel(Reason::NotOurs));
        }
        Outcome::Is(Verdict::Drop(Reason::IcmpError))
    }
}
