//! Round robin: one after the other, whatever their weights (as IPVS's `rr`).

use super::positions::Positions;
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::{FULL_STEP, Seat};

/// Turns that real servers in slow start may let pass before somebody is taken all the same.
const PATIENCE: u32 = 16;

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Rr {
    /// Position that the next turn begins at.
    cursor: u32,
}

impl Scheduler for Rr {
    const COUNTS: bool = false;

    fn adopt(known: Option<Self>, to: &Change<'_>) -> Self {
        let cursor = match known {
            Some(known) if to.same => known.cursor,
            Some(known) => moved(known.cursor, to.origins),
            None => to.share.start(to.seats.len()),
        };
        Self { cursor }
    }

    /// The next of those that are open. One in slow start takes so many of sixteen turns.
    #[inline(always)]
    fn pick(&mut self, ask: Ask<'_>) -> Option<u32> {
        let position = ask.open.next_around(self.cursor)?;
        // Of one that has all of its turns each leaves what it has saved as it is.
        if ask.seats.get(position as usize)?.step == FULL_STEP {
            self.cursor = position + 1;
            return Some(position);
        }
        self.pick_slowly(ask.open, ask.seats)
    }
}

impl Rr {
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

/// Where the one at the cursor, or the first after it that is still there, is now.
fn moved(cursor: u32, origins: &[Option<u32>]) -> u32 {
    let now = (0u32..).zip(origins).filter_map(|(at, origin)| origin.map(|origin| (origin, at)));
    now.filter(|(origin, _)| *origin >= cursor).min().map_or(0, |(_, at)| at)
}
