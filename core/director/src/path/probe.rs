//! Timing the stages of a turn, by a clock that the caller brings: the core has none.

/// A stage of a burst's way, for those who time it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Taking frames from a port.
    Receive,
    /// Reading headers.
    Parse,
    /// Looking for sessions.
    Find,
    /// Verifying, tracking, opening sessions, rewriting.
    Track,
    /// Handing frames to ports.
    Send,
}

impl Stage {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All, in the order of a burst.
    pub const ALL: [Self; 5] = [Self::Receive, Self::Parse, Self::Find, Self::Track, Self::Send];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Find => "find",
            Self::Track => "track",
            Self::Send => "send",
        }
    }
}

/// What a turn tells of itself while it runs.
pub trait Probe {
    /// Whether it wants to be told anything.
    const ON: bool;

    /// What was done since the last mark belongs to this stage.
    fn mark(&mut self, stage: Stage);

    /// Of `packets` that sessions were looked for, `found` had a candidate at the first look.
    fn looked_up(&mut self, found: u32, packets: u32);
}

/// For turns that nobody times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unprobed;

impl Probe for Unprobed {
    const ON: bool = false;

    #[inline(always)]
    fn mark(&mut self, _: Stage) {}

    #[inline(always)]
    fn looked_up(&mut self, _: u32, _: u32) {}
}
