//! The life of a session as its packets show it: TCP's states, or just that it is alive.
//!
//! A TCP session is over when each side's FIN has been acknowledged by the other, in whatever
//! order, or with a reset. To tell the acknowledgement of a FIN from one of earlier data, the low
//! half of the number that answers each FIN is remembered: nothing can follow a FIN, so its
//! acknowledgement carries exactly that number.

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

/// Where a connection is, by what was seen of its end; meaningless where nothing was.
const ENDING: [State; 16] = {
    let mut states = [State::SynRecv; 16];
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

/// What of a TCP segment matters to a session's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Flags byte.
    pub flags: u8,
    /// Acknowledgement number, low half.
    pub ack: u16,
    /// Sequence number of what would follow the segment's data, low half (a FIN not counted).
    pub end: u16,
}

/// Whether a packet leaves the state as it is: the test for the fast path. Of what is not TCP only
/// the end of an SCTP association, which is marked as a reset is, changes anything.
#[inline(always)]
pub const fn is_plain(state: State, flags: u8) -> bool {
    let open = state as u8 == State::Established as u8;
    let notable = if open { ENDS } else { 0xff };
    (open | (state as u8 >= State::Udp as u8)) & (flags as u32 & notable == 0)
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
#[inline(always)]
pub fn is_reuse(session: &Core, direction: Direction, segment: Segment) -> bool {
    segment.flags as u32 & OPENS_OF == OPENS
        && direction == Direction::Inbound
        && session.state.is_ending()
}

/// Whether a segment that is not plain may change anything, if it opens no new connection.
#[inline(always)]
pub const fn moves(segment: Segment) -> bool {
    segment.flags as u32 & BEGINS_OF != BEGINS
}

/// Moves a session on that [`is_plain`] says is not plain.
pub fn tcp(session: &mut Core, direction: Direction, segment: Segment) {
    let flags = segment.flags;
    if flags & RST != 0 {
        session.state = State::Close;
        return;
    }
    if flags & SYN != 0 || session.state >= State::Udp {
        return;
    }
    // Other bits are not about the end.
    if session.closing & ALL_ACKED | flags & FIN == 0 {
        let completes = session.state == State::SynRecv && direction == Direction::Inbound;
        if completes && flags & ACK != 0 {
            session.state = State::Established;
        }
        return;
    }
    let (of, other) = (direction as usize, 1 - direction as usize);
    if flags & FIN != 0 {
        session.closing |= fin_bit(of);
        session.fin_ack[of] = segment.end.wrapping_add(1);
    }
    let answers = session.closing & fin_bit(other) != 0
        && flags & ACK != 0
        && segment.ack == session.fin_ack[other];
    if answers {
        session.closing |= acked_bit(other);
    }
    if !matches!(session.state, State::Close | State::TimeWait) {
        session.state = ENDING[usize::from(session.closing & ALL_ACKED)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Inbound, Outbound};

    fn run(steps: &[(Direction, u8, u16, u16)]) -> Vec<State> {
        let mut session = Core { state: State::SynRecv, ..Core::default() };
        steps
            .iter()
            .map(|(direction, flags, ack, end)| {
                let segment = Segment { flags: *flags, ack: *ack, end: *end };
                tcp(&mut session, *direction, segment);
                session.state
            })
            .collect()
    }

    #[test]
    fn the_client_closes_first() {
        let states = run(&[
            (Outbound, SYN | ACK, 101, 500),
            (Inbound, ACK, 501, 101),
            (Inbound, FIN | ACK, 501, 101),
            (Outbound, ACK, 102, 501),
            (Outbound, FIN | ACK, 102, 501),
            (Inbound, ACK, 502, 102),
        ]);
        use State::{Established, FinWait, LastAck, SynRecv, TimeWait};
        assert_eq!(states, [SynRecv, Established, FinWait, FinWait, LastAck, TimeWait]);
    }

    #[test]
    fn the_real_server_closes_first_and_the_fins_are_combined() {
        let states = run(&[
            (Inbound, ACK, 501, 101),
            (Outbound, FIN | ACK, 101, 600),
            (Inbound, FIN | ACK, 601, 101),
            (Outbound, ACK, 102, 601),
        ]);
        use State::{CloseWait, Established, LastAck, TimeWait};
        assert_eq!(states, [Established, CloseWait, LastAck, TimeWait]);
    }

    /// Both FINs cross; the session stays until both are acknowledged, and an acknowledgement of
    /// data that was under way does not count.
    #[test]
    fn simultaneous_close() {
        let states = run(&[
            (Inbound, ACK, 501, 101),
            (Inbound, FIN | ACK, 501, 101),
            (Outbound, FIN | ACK, 101, 600),
            (Inbound, ACK, 590, 102),
            (Inbound, ACK, 601, 102),
            (Outbound, ACK, 102, 601),
        ]);
        use State::{Established, FinWait, LastAck, TimeWait};
        assert_eq!(states, [Established, FinWait, LastAck, LastAck, LastAck, TimeWait]);
    }

    #[test]
    fn numbers_wrap() {
        let states = run(&[
            (Inbound, ACK, 1, 0xffff),
            (Inbound, FIN | ACK, 1, 0xffff),
            (Outbound, FIN | ACK, 0, 0xffff),
            (Inbound, ACK, 0, 0),
        ]);
        assert_eq!(states[3], State::TimeWait);
    }

    #[test]
    fn a_reset_ends_it_and_a_syn_means_a_new_one() {
        let mut session = Core { state: State::Established, ..Core::default() };
        let with = |flags| Segment { flags, ..Segment::default() };
        assert!(!is_reuse(&session, Inbound, with(SYN)), "a SYN does not disturb a live session");
        tcp(&mut session, Inbound, with(SYN));
        assert_eq!(session.state, State::Established);
        tcp(&mut session, Outbound, with(RST | ACK));
        assert_eq!(session.state, State::Close);
        tcp(&mut session, Inbound, with(ACK));
        assert_eq!(session.state, State::Close);
        assert!(!is_reuse(&session, Outbound, with(SYN | ACK)));
        for state in [State::Close, State::FinWait, State::LastAck, State::TimeWait] {
            session.state = state;
            assert!(is_reuse(&session, Inbound, with(SYN)), "{state:?}");
            assert!(!is_reuse(&session, Inbound, with(SYN | ACK)), "{state:?}");
            assert!(!is_reuse(&session, Inbound, with(ACK)), "{state:?}");
        }
    }

    #[test]
    fn what_is_not_tcp_is_plain_until_an_association_ends() {
        for state in [State::Udp, State::OnePacket, State::Icmp, State::Other, State::Sctp] {
            assert!(is_plain(state, 0), "{state:?}");
        }
        let mut session = Core { state: State::Sctp, ..Core::default() };
        assert!(!is_plain(session.state, RST));
        tcp(&mut session, Inbound, Segment { flags: RST, ..Segment::default() });
        assert_eq!(session.state, State::Close);
    }
}
