//! Round robin: one after the other, whatever their weights (as IPVS's `rr`).

use super::positions::Positions;
use super::roster::{FULL_STEP, Seat};

/// Turns that real servers in slow start may let pass before somebody is taken all the same.
const PATIENCE: u32 = 16;

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Rr {
    /// Position that the next turn begins at.
    pub(super) cursor: u32,
}

impl Rr {
    /// The next of those that are open. One in slow start takes so many of sixteen turns.
    #[inline(always)]
    pub(super) fn pick(&mut self, open: &Positions, seats: &mut [Seat]) -> Option<u32> {
        let position = open.next_around(self.cursor)?;
        // Of one that has all of its turns each leaves what it has saved as it is.
        if seats.get(position as usize)?.step == FULL_STEP {
            self.cursor = position + 1;
            return Some(position);
        }
        self.pick_slowly(open, seats)
    }

    /// The same where the next is in slow start.
    #[cold]
    fn pick_slowly(&mut self, open: &Positions, seats: &mut [Seat]) -> Option<u32> {
        for patience in (0..PATIENCE).rev() {
            let position = open.next_around(self.cursor)?;
            self.cursor = position + 1;
            let seat = seats.get_mut(position as usize)?;
            seat.credit += seat.step;
            if seat.credit >= FULL_STEP || patience == 0 {
                seat.credit = seat.credit.saturating_sub(FULL_STEP);
                return Some(position);
            }
        }
        None
    }
}
