//! A session in one direction.

use crate::counters::Direction;

/// A session's id and a direction, as the index stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(pub u32);

impl Flow {
    /// No flow.
    pub const NONE: Self = Self(u32::MAX);

    /// The flow of a session in a direction.
    #[inline(always)]
    pub const fn new(id: u32, direction: Direction) -> Self {
        Self(id << 1 | direction as u32)
    }

    /// The session's id.
    #[inline(always)]
    pub const fn id(self) -> u32 {
        self.0 >> 1
    }

    /// The direction.
    #[inline(always)]
    pub const fn direction(self) -> Direction {
        if self.0 & 1 == 0 { Direction::Inbound } else { Direction::Outbound }
    }
}
