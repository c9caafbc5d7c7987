//! Where a session is in its life.

use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};

/// Where a session is in its life. TCP's names are those of IPVS.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Zeroable,
    NoUninit,
    CheckedBitPattern,
)]
#[repr(u8)]
pub enum State {
    /// A free slot.
    #[default]
    Vacant = 0,
    /// TCP: a SYN was seen.
    SynRecv,
    /// TCP: the handshake is complete.
    Established,
    /// TCP: the client closed its side.
    FinWait,
    /// TCP: the real server closed its side.
    CloseWait,
    /// TCP: both sides closed; an acknowledgement is missing.
    LastAck,
    /// TCP: both sides closed and acknowledged.
    TimeWait,
    /// TCP: reset.
    Close,
    /// UDP that nobody has answered yet; told as [`State::Udp`].
    UdpNew,
    /// UDP. This state and those below it are not TCP's.
    Udp,
    /// UDP of a service that schedules each datagram by itself: an answer is waited for.
    OnePacket,
    /// SCTP.
    Sctp,
    /// ICMP echo.
    Icmp,
    /// Another protocol.
    Other,
    /// No connection but what was decided about later ones: a client's real server
    /// (persistence), or an inside endpoint's pool address and port (source NAT).
    Template,
    /// TCP: both sides closed and acknowledged, counted as closed, and there for a moment more.
    Ended,
}

impl State {
    /// How many states there are.
    pub const COUNT: usize = 16;

    /// Places of a table that is looked up by four bits.
    pub const PLACES: usize = 16;

    /// Every state of a connection that counts and has a name of its own.
    pub const ALL: [Self; 12] = [
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::Udp,
        Self::OnePacket,
        Self::Sctp,
        Self::Icmp,
        Self::Other,
    ];

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vacant => "VACANT",
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait | Self::Ended => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::UdpNew | Self::Udp => "UDP",
            Self::OnePacket => "ONE_PACKET",
            Self::Sctp => "SCTP",
            Self::Icmp => "ICMP",
            Self::Other => "OTHER",
            Self::Template => "TEMPLATE",
        }
    }

    /// Whether a session's service may say how long it may be silent: nothing shows its end yet,
    /// and nothing more is known to be missing.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Established | Self::UdpNew | Self::Udp | Self::Sctp | Self::Other)
    }

    /// Whether a side has closed a connection, or a reset has ended it.
    #[inline(always)]
    pub const fn is_closing(self) -> bool {
        (self as u8).wrapping_sub(Self::FinWait as u8) <= Self::Close as u8 - Self::FinWait as u8
    }

    /// Whether nobody has shown yet that both ends mean it.
    #[inline(always)]
    pub const fn is_half_open(self) -> bool {
        matches!(self, Self::SynRecv | Self::UdpNew)
    }

    /// The state that it is told as.
    pub const fn told(self) -> Self {
        if matches!(self, Self::UdpNew) { Self::Udp } else { self }
    }
}
