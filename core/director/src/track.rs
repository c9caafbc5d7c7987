//! The life of a session as its packets show it: TCP's states, or just that it is alive.
//!
//! Whoever knows a connection's four-tuple can send a reset or a FIN in an end's name. The end
//! takes it only where its sequence number fits (RFC 9293 3.10.7.4, RFC 5961 3), so the director
//! must not take more. Of each direction a session knows the *unit* of 64 KiB that its sequence
//! numbers have come to ([`Core::seen`]). A reset or FIN counts if its number is in that unit or
//! the next one, which a blind sender hits once in 2¹⁵ packets, or if it acknowledges such a number
//! of the other direction and is at most 4 MiB away, so that it counts where data before it was
//! lost. Any other is forwarded, for the end to decide, and the session stays as it is.
//!
//! A session follows the numbers by the same rule: a segment in the next unit moves its direction
//! on; one that is further away does so only if it acknowledges what the other direction has come
//! to. What the real server sends is known from the client's first acknowledgement, also in the
//! modes in which its packets do not come by.
//!
//! A TCP session is over when each side's FIN has been acknowledged by the other, in whatever
//! order, or with a reset. Nothing can follow a FIN, so its acknowledgement carries exactly the
//! number after it, which is remembered in full: the unit as of any segment, and its lower half in
//! [`Core::fin`]. While the FINs of both sides are under way, the lower half of the real server's
//! is where the client's next hop was, which is looked up again when it is needed.

pub mod sctp;

use crate::counters::Direction;
use crate::session::{Core, State};
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

/// Bit of `Session::closing`: a FIN was seen in the direction.
const fn fin_bit(direction: usize) -> u8 {
    1 << direction
}

/// Bit of `Session::closing`: the FIN of the direction was acknowledged.
const fn acked_bit(direction: usize) -> u8 {
    4 << direction
}

const BOTH_FINS: u8 = fin_bit(0) | fin_bit(1);
const ALL_ACKED: u8 = BOTH_FINS | acked_bit(0) | acked_bit(1);

/// Units that a reset or FIN may be away from what its direction has come to if it acknowledges
/// what the other one has: 4 MiB.
const REACH: u16 = 64;
/// Units behind which a segment is no old one, whatever it acknowledges: the largest window is 1
/// GiB (RFC 7323 2.3).
const OLD: u16 = 1 << 14;
/// A connection that one side has closed, or that nobody has answered, is given up for a new one
/// of the same client port after so long a silence.
const SILENT_MS: u32 = 1000;
/// How far above its FIN a client begins that uses its port again before [`SILENT_MS`]. The fastest
/// clock for initial numbers is Linux's, of 64 ns: it comes to so much in two seconds.
const NEXT: u32 = 1 << 25;

/// Where a connection is, by what was seen of its end; meaningless where nothing was.
const ENDING: [State; 16] = {
    let mut states = [State::Established; 16];
    let mut closing = 1;
    while closing < states.len() {
        states[closing] = match closing as u8 {
            ALL_ACKED => State::TimeWait,
            seen if seen & BOTH_FINS == BOTH_FINS => State::LastAck,
            seen if seen & fin_bit(0) != 0 => State::FinWait,
            _ => State::CloseWait,
        };
        closing += 1;
    }
    states
};

/// So many datagrams of a client that nobody has answered make a flow that is meant. Where answers
/// go past the director two have to do. Until then their number is where a FIN's would be.
pub const ENOUGH: u16 = 64;

/// What of a TCP segment matters to a session's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Flags byte.
    pub flags: u8,
    /// Acknowledgement number.
    pub ack: u32,
    /// Sequence number of what would follow the segment's data (a SYN or FIN not counted).
    pub end: u32,
}

/// The unit of 64 KiB that a sequence number is in.
const fn unit(number: u32) -> u16 {
    (number >> 16) as u16
}

/// Whether a number is where a direction has come to: in that unit or the next.
const fn fits(number: u32, seen: u16) -> bool {
    unit(number).wrapping_sub(seen) <= 1
}

/// Whether a packet leaves its session as it is: the test for the fast path. Of what is not TCP
/// only the beginning and the end of an SCTP association change anything ([`sctp`]).
#[inline(always)]
pub const fn is_plain(session: &Core, direction: Direction, segment: Segment) -> bool {
    let (state, flags) = (session.state as u8, segment.flags as u32);
    let open = state == State::Established as u8;
    let known = unit(segment.end) == session.seen[direction as usize];
    let notable = if open { ENDS } else { 0xff };
    ((open & known) | (state >= State::Udp as u8)) & (flags & notable == 0)
}

/// Of the flags in [`OPENS_OF`] these are set in a segment that opens a connection.
pub const OPENS: u32 = SYN as u32;
/// See [`OPENS`].
pub const OPENS_OF: u32 = (SYN | ACK | RST) as u32;

/// Of the flags in [`BEGINS_OF`] these are set in a segment that belongs to the beginning of a
/// connection and changes nothing if it is not the first.
pub const BEGINS: u32 = SYN as u32;
/// See [`BEGINS`].
pub const BEGINS_OF: u32 = (SYN | RST) as u32;
/// The flag of TCP that ends a connection at once.
pub const RESETS: u32 = RST as u32;

/// Flags of TCP that may change the state of an open connection.
pub const ENDS: u32 = (SYN | FIN | RST) as u32;

/// Whether a segment opens a new connection where the old one is over, but for what may still be
/// under way: the client uses its port again, and means neither the old real server nor the local
/// port whose far end may still be in TIME_WAIT.
///
/// A SYN alone proves nothing (RFC 9293 3.10.7.4): where a connection may be alive it goes to its
/// real server, whose acknowledgement lets a client that has forgotten it reset it.
///
/// Where the real server answers past the director (`past`), nothing tells that it has closed too.
/// There the rule of TIME_WAIT holds from the client's FIN on: the new connection's number is a
/// little above.
#[inline(always)]
pub fn is_reuse(
    session: &Core,
    direction: Direction,
    past: bool,
    segment: Segment,
    idle_ms: u32,
) -> bool {
    let opens = segment.flags as u32 & OPENS_OF == OPENS && direction == Direction::Inbound;
    opens
        && match session.state {
            State::LastAck | State::TimeWait | State::Close | State::Ended => true,
            State::FinWait if past => idle_ms > SILENT_MS || is_next(session, segment),
            State::FinWait | State::CloseWait => idle_ms > SILENT_MS,
            State::SynRecv => idle_ms > SILENT_MS && !fits(segment.end, session.seen[0]),
            _ => false,
        }
}

/// Whether a SYN has a number that the client would choose next after its FIN (RFC 6528 3, RFC 9293
/// 3.4.1).
const fn is_next(session: &Core, segment: Segment) -> bool {
    let above = segment.end.wrapping_sub(number(session, 0));
    above <= NEXT
}

/// Whether a segment that is not plain may change anything, if it opens no new connection.
#[inline(always)]
pub const fn moves(state: State, segment: Segment) -> bool {
    segment.flags as u32 & BEGINS_OF != BEGINS || state as u8 >= State::Udp as u8
}

/// Notes where the numbers of a new session begin, by its first packet.
#[inline(always)]
pub const fn begin(session: &mut Core, segment: Segment) {
    if matches!(session.state, State::Sctp) {
        return sctp::begin(session, segment);
    }
    session.seen = [unit(segment.end), unit(segment.ack)];
}

/// The same of one whose first packet came from the outside: of its client nothing is known yet.
pub const fn begin_outside(session: &mut Core, segment: Segment) {
    session.seen = [unit(segment.ack), unit(segment.end)];
}

/// A host inside accepts a connection that came from the outside ([`begin_outside`]). Gives whether
/// this is what the segment does.
pub const fn accept_inside(session: &mut Core, segment: Segment) -> bool {
    let accepts = matches!(session.state, State::SynRecv)
        && segment.flags & (SYN | ACK | RST | FIN) == SYN | ACK
        && fits(segment.ack, session.seen[1]);
    if accepts {
        session.seen = [unit(segment.end), unit(segment.ack)];
        session.state = State::Established;
    }
    accepts
}

/// Whether the lower half of a FIN's number is where the client's next hop would be.
pub const fn has_no_hop(session: &Core) -> bool {
    is_pending(session, 0) && is_pending(session, 1)
}

/// Whether a direction has sent a FIN that is not acknowledged.
const fn is_pending(session: &Core, direction: usize) -> bool {
    session.closing & (fin_bit(direction) | acked_bit(direction)) == fin_bit(direction)
}

/// How well a segment fits the numbers of its session.
#[derive(Clone, Copy)]
struct Fit {
    /// It is where its direction has come to.
    near: bool,
    /// It acknowledges what the other direction has come to.
    answers: bool,
    /// It may end the connection.
    ends: bool,
}

impl Fit {
    fn of(session: &Core, direction: Direction, segment: Segment) -> Self {
        let (of, other) = (direction as usize, 1 - direction as usize);
        let mut near = fits(segment.end, session.seen[of]);
        let mut answers = segment.flags & ACK != 0 && fits(segment.ack, session.seen[other]);
        if session.state != State::SynRecv {
            let away = unit(segment.end).wrapping_sub(session.seen[of]);
            let reaches = away.wrapping_add(REACH) <= 2 * REACH;
            return Self { near, answers, ends: near || answers && reaches };
        }
        // Nothing is known of the real server's numbers yet.
        match direction {
            Direction::Inbound => answers = false,
            Direction::Outbound => near = false,
        }
        Self { near, answers, ends: near || answers }
    }
}

/// Moves a session on that [`is_plain`] says is not plain. `false` if the packet would have ended
/// it or a direction of it, but does not fit it.
pub fn tcp(session: &mut Core, direction: Direction, segment: Segment) -> bool {
    let flags = segment.flags;
    if session.state == State::UdpNew {
        session.fin = session.fin.saturating_add(1);
        if direction == Direction::Outbound || session.fin >= ENOUGH {
            (session.state, session.fin) = (State::Udp, 0);
        }
        return true;
    }
    if session.state >= State::Udp {
        return session.state != State::Sctp || sctp::follow(session, direction, segment);
    }
    let fit = Fit::of(session, direction, segment);
    if flags & RST != 0 {
        if fit.ends {
            session.state = State::Close;
        }
        return fit.ends;
    }
    if flags & SYN != 0 {
        return true;
    }
    let finishes = flags & FIN != 0;
    if session.state != State::SynRecv {
        advance(session, direction, segment, fit);
        // What is still sent in step with both sides shows that nobody took the reset.
        if session.state == State::Close && !(fit.near && fit.answers) {
            return true;
        }
    } else if !fit.ends {
        return !finishes;
    } else if direction == Direction::Inbound && flags & ACK != 0 {
        session.seen = [unit(segment.end), unit(segment.ack)];
    } else if direction == Direction::Inbound || !finishes {
        return true;
    }
    if finishes && !fit.ends {
        return false;
    }
    let (of, other) = (direction as usize, 1 - direction as usize);
    if flags & ACK != 0 && is_pending(session, other) && segment.ack == number(session, other) {
        acknowledge(session, other);
    }
    if finishes && session.closing & acked_bit(of) == 0 {
        finish(session, of, segment.end.wrapping_add(1));
    }
    // Other bits are not about the end.
    session.state = ENDING[usize::from(session.closing & ALL_ACKED)];
    true
}

/// Follows a segment's numbers.
fn advance(session: &mut Core, direction: Direction, segment: Segment, fit: Fit) {
    let of = direction as usize;
    // What a FIN has come to is final.
    if session.closing & fin_bit(of) == 0 {
        let ahead = unit(segment.end).wrapping_sub(session.seen[of]);
        let moves = ahead == 1 || fit.answers && ahead.wrapping_add(OLD) >= OLD && ahead != 0;
        if moves {
            session.seen[of] = unit(segment.end);
        }
    }
    // Where the real server's packets do not come by, its client tells how far they are.
    if fit.near && direction == Direction::Inbound && segment.flags & ACK != 0 {
        let ahead = unit(segment.ack).wrapping_sub(session.seen[1]);
        if session.closing & fin_bit(1) == 0 && (1..1 << 15).contains(&ahead) {
            session.seen[1] = unit(segment.ack);
        }
    }
}

/// The number that acknowledges the FIN of a direction, which was not acknowledged yet.
const fn number(session: &Core, direction: usize) -> u32 {
    let elsewhere = direction == 1 && has_no_hop(session);
    let low = if elsewhere { session.client_hop } else { session.fin };
    (session.seen[direction] as u32) << 16 | low as u32
}

/// A FIN that this number acknowledges was sent.
const fn finish(session: &mut Core, direction: usize, number: u32) {
    let first = session.fin;
    let both = has_no_hop(session);
    session.closing |= fin_bit(direction);
    session.seen[direction] = unit(number);
    if !has_no_hop(session) {
        session.fin = number as u16;
        return;
    }
    session.hop_generation = 0;
    if direction == 1 {
        session.client_hop = number as u16;
        return;
    }
    if !both {
        session.client_hop = first;
    }
    session.fin = number as u16;
}

/// The FIN of a direction was acknowledged.
const fn acknowledge(session: &mut Core, direction: usize) {
    if direction == 0 && has_no_hop(session) {
        session.fin = session.client_hop;
    }
    session.closing |= acked_bit(direction);
}

#[cfg(test)]
mod tests;
