//! What a scheduler is: the one trait of all.

use super::Share;
use super::mh::Table;
use super::p2c::Random;
use super::positions::Positions;
use super::seat::Seat;

/// What one scheduler keeps of a service's real servers at one worker, by their positions.
pub(super) trait Scheduler: Sized {
    /// Whether each session that begins or ends changes something of it.
    const COUNTS: bool;

    /// For the real servers of a plan that was adopted. `known` is what the same scheduler kept
    /// before; what is still there is to go on where it was. [`Self::set`] follows for each.
    fn adopt(known: Option<Self>, to: &Change<'_>) -> Self;

    /// Puts a real server where it belongs by what its seat says.
    #[inline(always)]
    fn set(&mut self, _position: u32, _seat: &Seat) {}

    /// The position of the real server for a new session; `None` when nobody takes one.
    fn pick(&mut self, ask: Ask<'_>) -> Option<u32>;

    /// How far away a real server's turn among equals is, for whichever scheduler comes next.
    fn left(&mut self, _position: u32) -> Option<u64> {
        None
    }
}

/// From the real servers before to those of a plan that is adopted.
pub(super) struct Change<'a> {
    pub(super) seats: &'a [Seat],
    /// The position that each had before.
    pub(super) origins: &'a [Option<u32>],
    /// Whether there are as many, each where it was: a structure can stay, whoever changed in
    /// itself.
    pub(super) same: bool,
    /// How far away the turn of each was.
    pub(super) left: &'a [Option<u64>],
    pub(super) share: Share,
}

/// What a choice may go by.
pub(super) struct Ask<'a> {
    /// The hash of what the scheduler hashes.
    pub(super) key: u64,
    /// The table of the service, if it has one.
    pub(super) table: Option<&'a Table>,
    /// Milliseconds now.
    pub(super) now: u64,
    pub(super) random: &'a mut Random,
    /// Positions of those that take sessions now.
    pub(super) open: &'a Positions,
    pub(super) seats: &'a mut [Seat],
}
