//! Timing the stages of a turn, by a clock that the caller brings: the core has none.

/// A stage of a burst's way, for those who time it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Taking frames from a port.
    Receive,
    /// Picking out misdirected frames: other workers have their local ports.
    Screen,
    /// Finding the owner workers of these.
    Owner,
    /// Adding frames to the burst that other workers have handed over.
    Join,
    /// Reading headers.
    Parse,
    /// Looking for sessions.
    Find,
    /// Verifying, tracking, rewriting.
    Track,
    /// Opening sessions, with the packets that open them.
    Open,
    /// Handing frames to ports.
    Send,
    /// Taking them out of the burst, and handing them over to these workers.
    HandOff,
    /// Ending sessions that have timed out.
    Expire,
}

impl Stage {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All, in the order of a burst.
    pub const ALL: [Self; 11] = [
        Self::Receive,
        Self::Screen,
        Self::Owner,
        Self::Join,
        Self::Parse,
        Self::Find,
        Self::Track,
        Self::Open,
        Self::Send,
        Self::HandOff,
        Self::Expire,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Screen => "screen",
            Self::Owner => "owner",
            Self::Join => "join",
            Self::Parse => "parse",
            Self::Find => "find",
            Self::Track => "track",
            Self::Open => "open",
            Self::Send => "send",
            Self::HandOff => "hand_off",
            Self::Expire => "expire",
        }
    }

    /// What is done in it.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Receive => "take frames from a port",
            Self::Screen => "pick out misdirected frames",
            Self::Owner => "find their owner workers",
            Self::Join => "add frames that other workers handed over",
            Self::Parse => "read headers",
            Self::Find => "look for sessions",
            Self::Track => "verify, track, rewrite",
            Self::Open => "open sessions, with the packets that open them",
            Self::Send => "hand frames to ports",
            Self::HandOff => "take out what is other workers', and hand it over",
            Self::Expire => "end sessions that have timed out",
        }
    }
}

/// What a turn tells of itself while it runs.
pub trait Probe {
    /// Whether it wants to be told anything.
    const ON: bool;

    /// What was done since the last mark belongs to this stage.
    fn mark(&mut self, stage: Stage);

    /// The same if it is so, and nothing otherwise.
    #[inline(always)]
    fn mark_if(&mut self, so: bool, stage: Stage) {
        if so {
            self.mark(stage);
        }
    }

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
