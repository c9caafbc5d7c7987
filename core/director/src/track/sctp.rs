//! The life of an SCTP association, as far as its packets prove it.
//!
//! Each side chooses a verification tag that all packets to it carry, and takes an ABORT or a
//! SHUTDOWN COMPLETE only with that tag, or with the T bit and the tag of the other (RFC 9260
//! 8.5.1). A session knows the lower 24 bits of both, from INIT and the INIT ACK that answers it,
//! or where answers do not come by from the COOKIE ECHO: whoever sees no packet needs 2²³ tries.
//! They are where of TCP the sequence numbers are. Only INIT opens a session, where nothing else is
//! configured.
//!
//! Chunks that matter are marked with TCP's flags: INIT as a SYN, INIT ACK as SYN and ACK, COOKIE
//! ECHO as ACK, what ends an association as RST, with the T bit as RST and ACK. The segment's end
//! is the packet's verification tag; of INIT and INIT ACK the acknowledgement is the tag that they
//! tell of.

use super::Segment;
use crate::counters::Direction;
use crate::session::{Core, State};
use sluice_wire::sctp;
use sluice_wire::tcp::{ACK, RST, SYN};

/// Bit of `Session::closing`: the tag of packets of the direction is known.
const fn known_bit(direction: usize) -> u8 {
    1 << direction
}

/// Bit of `Session::closing`: the client has used the tag that the real server chose.
pub const SETTLED: u8 = 4;

/// What tracking needs of an SCTP packet.
pub fn segment(packet: &[u8]) -> Segment {
    let Some(header) = sctp::Header::parse(packet) else { return Segment::default() };
    let end = header.tag();
    let told = packet.get(sctp::HEADER + 4..).and_then(|value| value.first_chunk());
    let ack = told.map_or(0, |tag| u32::from_be_bytes(*tag));
    // A first fragment seldom has the whole chunk, but its tag is the association's.
    let Some(chunk) = sctp::first_chunk(packet) else { return Segment { flags: 0, ack: 0, end } };
    let reflected = if chunk.flags & sctp::REFLECTED != 0 { ACK } else { 0 };
    match chunk.kind {
        sctp::INIT if end == 0 => Segment { flags: SYN, ack, end },
        sctp::INIT_ACK => Segment { flags: SYN | ACK, ack, end },
        sctp::COOKIE_ECHO => Segment { flags: ACK, ack: 0, end },
        sctp::ABORT | sctp::SHUTDOWN_COMPLETE => Segment { flags: RST | reflected, ack: 0, end },
        _ => Segment { flags: 0, ack: 0, end },
    }
}

/// Whether a packet may open a session.
pub const fn opens(segment: Segment, mid_stream: bool) -> bool {
    match segment.flags & (SYN | ACK | RST) {
        SYN => true,
        0 | ACK => mid_stream,
        _ => false,
    }
}

/// Notes the tag that the first packet of a session tells of: of INIT that of the answers, else its
/// own.
pub(super) const fn begin(session: &mut Core, segment: Segment) {
    if segment.flags & SYN != 0 {
        set(session, 1, segment.ack);
    } else {
        set(session, 0, segment.end);
    }
}

/// The tag that packets of a direction carry, its lower 24 bits, if it is known.
const fn tag(session: &Core, direction: usize) -> Option<u32> {
    if session.closing & known_bit(direction) == 0 {
        return None;
    }
    Some((session.seen[direction] as u32) << 8 | session.fin.to_le_bytes()[direction] as u32)
}

/// The reverse.
const fn set(session: &mut Core, direction: usize, tag: u32) {
    let mut low = session.fin.to_le_bytes();
    low[direction] = tag as u8;
    session.fin = u16::from_le_bytes(low);
    session.seen[direction] = (tag >> 8) as u16;
    session.closing |= known_bit(direction);
}

/// Moves an association on; `false` if the packet would have ended it but has the wrong tag.
pub(super) fn follow(session: &mut Core, direction: Direction, segment: Segment) -> bool {
    let of = direction as usize;
    let carried = Some(segment.end & 0xff_ffff);
    match (segment.flags & (SYN | ACK | RST), direction) {
        (RST, _) if tag(session, of) == carried => session.state = State::Close,
        (flags, _) if flags == RST | ACK && tag(session, 1 - of) == carried => {
            session.state = State::Close;
        }
        (flags, _) if flags & RST != 0 => return false,
        // Each INIT that comes again may be answered with another tag.
        (flags, Direction::Outbound)
            if flags == SYN | ACK
                && tag(session, 1) == carried
                && session.closing & SETTLED == 0 =>
        {
            set(session, 0, segment.ack);
        }
        (ACK, Direction::Inbound) => {
            if tag(session, 0).is_none() {
                set(session, 0, segment.end);
            }
            if tag(session, 0) == carried {
                session.closing |= SETTLED;
            }
        }
        _ => {}
    }
    true
}
