//! Source NAT: connections that real servers open to the outside.

use super::Shared;
use super::Verdict;
use super::engine::{Engine, Outcome, Turn};
use super::parse::Parse;
use crate::reason::Reason;
use crate::session::Flow;

impl<F: Parse> Engine<F> {
    /// A packet that is to nobody here: it may be one of a host inside to the outside.
    pub fn open_outside(
        &mut self,
        _shared: &mut Shared,
        _turn: Turn<'_>,
        _lane: usize,
    ) -> Result<Flow, Outcome> {
        Err(Outcome::Is(Verdict::Kernel(Reason::NotOurs)))
    }
}
