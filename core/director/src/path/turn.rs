//! What stages need to know of their turn, and what they make of a packet.

use super::others::Others;
use super::parse::Refused;
use super::{Verdict, View};
use crate::fib::PortId;
use crate::reason::Reason;
use crate::time::Time;

/// What tracking made of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is to be rewritten and sent.
    Forward,
    /// It belongs to no flow, as far as the stages saw.
    Unknown,
    /// It is to be rewritten, but its neighbour is not known.
    Unresolved,
    /// It may not go on; its sender may be told.
    Refuse(Reason),
    /// It is larger than the way allows, in bytes of its own headers and payload.
    TooBig(u16),
    /// It goes no further.
    Is(Verdict),
    /// The extended table may have a session for it.
    Wide,
    /// It is to be rewritten, and to go through the path once more ([`super::hairpin`]).
    Again,
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Is(verdict) => Self::Is(verdict),
            Refused::Wide => Self::Wide,
        }
    }
}

/// What a stage needs to know of its turn.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub view: View<'a>,
    pub now: Time,
    pub port: PortId,
    pub others: Others<'a>,
}
