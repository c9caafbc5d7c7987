//! What ends a session, what does not, and what is taken for the acknowledgement of a FIN.

use super::*;
use Direction::{Inbound, Outbound};
use proptest::prelude::*;

fn segment(flags: u8, end: u32, ack: u32) -> Segment {
    Segment { flags, ack, end }
}

/// A session whose client has come to one number and whose real server to another.
fn open(client: u32, server: u32) -> Core {
    let seen = [unit(client), unit(server)];
    Core { state: State::Established, seen, ..Core::default() }
}

fn run(mut session: Core, steps: &[(Direction, u8, u32, u32)]) -> Vec<State> {
    let follow = |(direction, flags, ack, end): &(Direction, u8, u32, u32)| {
        tcp(&mut session, *direction, segment(*flags, *end, *ack));
        session.state
    };
    steps.iter().map(follow).collect()
}

fn opened() -> Core {
    Core { state: State::SynRecv, ..Core::default() }
}

#[test]
fn the_client_closes_first() {
    let states = run(
        opened(),
        &[
            (Outbound, SYN | ACK, 101, 500),
            (Inbound, ACK, 501, 101),
            (Inbound, FIN | ACK, 501, 101),
            (Outbound, ACK, 102, 501),
            (Outbound, FIN | ACK, 102, 501),
            (Inbound, ACK, 502, 102),
        ],
    );
    use State::{Established, FinWait, LastAck, SynRecv, TimeWait};
    assert_eq!(states, [SynRecv, Established, FinWait, FinWait, LastAck, TimeWait]);
}

#[test]
fn the_real_server_closes_first_and_the_fins_are_combined() {
    let states = run(
        opened(),
        &[
            (Inbound, ACK, 501, 101),
            (Outbound, FIN | ACK, 101, 600),
            (Inbound, FIN | ACK, 601, 101),
            (Outbound, ACK, 102, 601),
        ],
    );
    use State::{CloseWait, Established, LastAck, TimeWait};
    assert_eq!(states, [Established, CloseWait, LastAck, TimeWait]);
}

/// Both FINs cross; the session stays until both are acknowledged, and an acknowledgement of
/// data that was under way does not count.
#[test]
fn simultaneous_close() {
    let states = run(
        opened(),
        &[
            (Inbound, ACK, 501, 101),
            (Inbound, FIN | ACK, 501, 101),
            (Outbound, FIN | ACK, 101, 600),
            (Inbound, ACK, 590, 102),
            (Inbound, ACK, 601, 102),
            (Outbound, ACK, 102, 601),
        ],
    );
    use State::{Established, FinWait, LastAck, TimeWait};
    assert_eq!(states, [Established, FinWait, LastAck, LastAck, LastAck, TimeWait]);
}

#[test]
fn numbers_wrap() {
    let last = u32::MAX;
    let states = run(
        open(last - 70_000, last),
        &[
            (Inbound, ACK, last, last),
            (Inbound, FIN | ACK, last, last),
            (Outbound, FIN | ACK, 0, last),
            (Inbound, ACK, 0, 0),
        ],
    );
    assert_eq!(states[3], State::TimeWait);
    let mut session = open(last, 7);
    tcp(&mut session, Inbound, segment(ACK, 900, 7));
    assert_eq!(session.seen[0], 0);
    assert!(tcp(&mut session, Inbound, segment(RST, 901, 0)));
}

#[test]
fn a_reset_that_fits_ends_it_and_a_syn_means_a_new_one() {
    let mut session = open(1000, 5000);
    let syn = segment(SYN, 77_000_000, 0);
    assert!(
        !is_reuse(&session, Inbound, false, syn, 900_000),
        "a SYN does not disturb a live session"
    );
    tcp(&mut session, Inbound, syn);
    assert_eq!(session.state, State::Established);
    assert!(tcp(&mut session, Outbound, segment(RST | ACK, 5000, 1000)));
    assert_eq!(session.state, State::Close);
    assert!(!is_reuse(&session, Outbound, false, segment(SYN | ACK, 1, 1), 0));
    for state in [State::Close, State::LastAck, State::TimeWait] {
        session.state = state;
        assert!(is_reuse(&session, Inbound, false, syn, 0), "{state:?}");
        assert!(!is_reuse(&session, Inbound, false, segment(SYN | ACK, 1, 1), 0), "{state:?}");
        assert!(!is_reuse(&session, Inbound, false, segment(ACK, 1, 1), 0), "{state:?}");
    }
    for state in [State::FinWait, State::CloseWait, State::SynRecv] {
        session.state = state;
        assert!(!is_reuse(&session, Inbound, false, syn, SILENT_MS), "{state:?}");
        assert!(is_reuse(&session, Inbound, false, syn, SILENT_MS + 1), "{state:?}");
    }
    // Past the director a client's FIN may be all that is seen of the end.
    session.state = State::FinWait;
    let number = session.seen[0] as u32 * 65536 + u32::from(session.fin);
    for (end, is) in [(0, true), (NEXT, true), (NEXT + 1, false), (u32::MAX, false)] {
        let next = segment(SYN, number.wrapping_add(end), 0);
        assert_eq!(is_reuse(&session, Inbound, true, next, 0), is, "{end}");
        assert_eq!(is_reuse(&session, Inbound, true, next, 0), is, "{end}");
        assert!(!is_reuse(&session, Inbound, false, next, 0));
    }
    session.state = State::SynRecv;
    let again = segment(SYN, 1000, 0);
    assert!(!is_reuse(&session, Inbound, false, again, 30_000), "the same SYN again");
}

/// The session is as before, and the caller is told that somebody tried.
#[test]
fn blind_rst_keeps_session() {
    for direction in [Inbound, Outbound] {
        for flags in [RST, RST | ACK, FIN | ACK, FIN] {
            let mut session = open(0x1234_0000, 0xfff0_0000);
            let before = *session.bytes();
            assert!(!tcp(&mut session, direction, segment(flags, 0x7000_0000, 0x3000_0000)));
            assert_eq!(*session.bytes(), before, "{direction:?} {flags:#x}");
        }
    }
}

/// Of all 65,536 units two are believed, so that a sender who knows nothing needs 2¹⁵ packets to
/// try them all; what it acknowledges makes that no better, since of that, too, two units count.
#[test]
fn who_does_not_know_the_numbers_needs_two_to_the_fifteen_tries() {
    let believed = |direction, flags, number: fn(u32) -> (u32, u32)| {
        let tries = (0..=u16::MAX).filter(|unit| {
            let mut session = open(0x8123_4567, 0x0000_0007);
            let (end, ack) = number(u32::from(*unit) << 16);
            tcp(&mut session, direction, segment(flags, end, ack));
            session.state != State::Established
        });
        tries.count()
    };
    for direction in [Inbound, Outbound] {
        for flags in [RST, RST | ACK, FIN | ACK] {
            assert_eq!(believed(direction, flags, |unit| (unit, 0x4000_0000)), 2);
        }
        assert_eq!(believed(direction, RST, |unit| (0x4000_0000, unit)), 0);
    }
    assert_eq!(believed(Inbound, RST | ACK, |unit| (0x4000_0000, unit)), 0);
    assert_eq!(believed(Inbound, RST | ACK, |unit| (0x8150_0000, unit)), 2);
    assert_eq!(believed(Outbound, FIN | ACK, |unit| (0x0030_0000, unit)), 2);
}

/// Nor is the place moved by one who does not know it.
#[test]
fn blind_data_moves_nothing() {
    let moved = |direction, answers: bool| {
        let tries = (0..=u16::MAX).filter(|unit| {
            let mut session = open(0x8123_4567, 0x0000_0007);
            let ack = [0x0000_0007, 0x8123_4567][direction as usize];
            let ack = if answers { ack } else { 0x4000_0000 };
            let before = session.seen;
            tcp(&mut session, direction, segment(ACK, u32::from(*unit) << 16, ack));
            session.seen != before
        });
        tries.count()
    };
    for direction in [Inbound, Outbound] {
        // The next unit; and in the client's own unit what it acknowledges.
        assert!(moved(direction, false) <= 3);
        // Whoever knows the other side's numbers may tell of any but old ones.
        assert_eq!(moved(direction, true), 0xbfff);
    }
}

#[test]
fn a_session_that_is_opened_knows_only_its_client() {
    let syn = segment(SYN, 0x5555_1000, 0);
    let new = || {
        let mut session = opened();
        begin(&mut session, syn);
        session
    };
    let mut session = new();
    assert!(!tcp(&mut session, Outbound, segment(RST, 0, 0)));
    assert!(!tcp(&mut session, Outbound, segment(RST | ACK, 0, 0x1111_0000)));
    assert!(!tcp(&mut session, Inbound, segment(RST, 0x1111_0000, 0)));
    assert!(tcp(&mut session, Inbound, segment(ACK, 0x1111_0000, 9)));
    assert_eq!((session.state, session.seen[0]), (State::SynRecv, 0x5555));
    assert!(tcp(&mut session, Outbound, segment(RST | ACK, 0, 0x5555_1001)), "it is refused");
    assert_eq!(session.state, State::Close);
    let mut session = new();
    assert!(tcp(&mut session, Inbound, segment(ACK, 0x5555_1001, 0x9999_0000)));
    assert_eq!((session.state, session.seen), (State::Established, [0x5555, 0x9999]));
    assert!(tcp(&mut session, Outbound, segment(RST, 0x9999_0001, 0)));
}

/// Data before a FIN was lost, or many segments in a row: both still count.
#[test]
fn a_real_close_after_losses_counts() {
    let mut session = open(100, 0x7000_0000);
    assert!(tcp(&mut session, Outbound, segment(FIN | ACK, 0x7030_0000, 101)));
    assert_eq!(session.state, State::CloseWait);
    let mut session = open(100, 0x7000_0000);
    assert!(tcp(&mut session, Outbound, segment(ACK, 0x7a00_0000, 101)));
    assert_eq!(session.seen[1], 0x7a00);
    assert!(tcp(&mut session, Outbound, segment(ACK, 0x7900_0000, 101)), "an old one");
    assert_eq!(session.seen[1], 0x7a00);
}

/// Where nobody took a reset the connection goes on.
#[test]
fn traffic_revives_a_session_that_was_reset() {
    let mut session = open(1000, 5000);
    assert!(tcp(&mut session, Inbound, segment(RST, 60_000, 0)));
    tcp(&mut session, Outbound, segment(ACK, 5000, 0x0700_0000));
    assert_eq!(session.state, State::Close, "not by what fits no better than the reset did");
    tcp(&mut session, Outbound, segment(ACK, 5000, 1000));
    assert_eq!(session.state, State::Established);
    tcp(&mut session, Inbound, segment(FIN | ACK, 1000, 5000));
    tcp(&mut session, Outbound, segment(RST, 5000, 0));
    assert_eq!(session.state, State::Close);
    tcp(&mut session, Outbound, segment(ACK, 5000, 1001));
    assert_eq!(session.state, State::FinWait);
}

/// The client closes its side, 200,000 bytes and a FIN come back, and an acknowledgement comes
/// that is 131,072 lower than the FIN's.
#[test]
fn an_old_acknowledgement_is_not_the_fins() {
    let fin = 5000 + 200_000;
    let mut session = open(1000, 5000);
    tcp(&mut session, Inbound, segment(FIN | ACK, 1000, 5000));
    for end in (5000..=fin).step_by(1000) {
        tcp(&mut session, Outbound, segment(ACK, end, 1001));
    }
    tcp(&mut session, Outbound, segment(FIN | ACK, fin, 1001));
    for lower in [3, 2, 1] {
        tcp(&mut session, Inbound, segment(ACK, 1001, fin + 1 - (lower << 16)));
        assert_eq!(session.state, State::LastAck, "{lower} units lower");
    }
    tcp(&mut session, Inbound, segment(ACK, 1001, fin + 1));
    assert_eq!(session.state, State::TimeWait);
}

#[test]
fn what_is_not_tcp_is_plain_until_an_association_ends() {
    for state in [State::Udp, State::OnePacket, State::Icmp, State::Other, State::Sctp] {
        let session = Core { state, seen: [7, 9], ..Core::default() };
        assert!(is_plain(&session, Inbound, segment(0, 0, 0)), "{state:?}");
    }
}

/// An association whose client chose one tag and whose real server another.
fn associated() -> Core {
    let mut session = Core { state: State::Sctp, ..Core::default() };
    begin(&mut session, segment(SYN, 0, 0x6262_8282));
    tcp(&mut session, Outbound, segment(SYN | ACK, 0x6262_8282, 0x5151_7171));
    tcp(&mut session, Inbound, segment(ACK, 0x5151_7171, 0));
    session
}

#[test]
fn blind_abort_keeps_an_association() {
    let (client, server) = (0x6262_8282, 0x5151_7171);
    for direction in [Inbound, Outbound] {
        let (own, other) = if direction == Inbound { (server, client) } else { (client, server) };
        for (flags, tag) in [(RST, 0), (RST, other), (RST | ACK, own), (RST | ACK, 0), (RST, 7)] {
            let mut session = associated();
            assert!(!tcp(&mut session, direction, segment(flags, tag, 0)));
            assert_eq!(session.state, State::Sctp, "{direction:?} {flags:#x} {tag:#x}");
        }
        for (flags, tag) in [(RST, own), (RST | ACK, other)] {
            let mut session = associated();
            assert!(tcp(&mut session, direction, segment(flags, tag, 0)));
            assert_eq!(session.state, State::Close, "{direction:?} {flags:#x}");
        }
    }
}

/// What comes later tells of no other tags.
#[test]
fn the_tags_of_an_association_stay() {
    let mut session = associated();
    let before = *session.bytes();
    tcp(&mut session, Inbound, segment(SYN, 0, 9));
    tcp(&mut session, Inbound, segment(ACK, 9, 0));
    tcp(&mut session, Outbound, segment(SYN | ACK, 0x6262_8282, 9));
    tcp(&mut session, Outbound, segment(SYN | ACK, 9, 9));
    assert_eq!(*session.bytes(), before);
    // Where answers do not come by, the client tells of the real server's.
    let mut session = Core { state: State::Sctp, ..Core::default() };
    begin(&mut session, segment(SYN, 0, 5));
    assert!(!tcp(&mut session, Inbound, segment(RST, 8, 0)));
    tcp(&mut session, Inbound, segment(ACK, 8, 0));
    assert!(tcp(&mut session, Inbound, segment(RST, 8, 0)));
}

/// One side of a connection that closes: where its FIN is, and how much before it is under way.
#[derive(Clone, Copy, Debug)]
struct Side {
    fin: u32,
    flight: u32,
}

fn side() -> impl Strategy<Value = Side> {
    (any::<u32>(), 0u32..1 << 30).prop_map(|(fin, flight)| Side { fin, flight })
}

proptest! {
    /// However the FINs and their acknowledgements are mixed with those of data, a FIN counts as
    /// acknowledged by its own number alone.
    #[test]
    fn only_its_own_number_acknowledges_a_fin(
        sides in [side(), side()],
        steps in proptest::collection::vec((0usize..2, 0u8..4, any::<u32>(), any::<bool>()), 1..60),
    ) {
        let mut session = open(sides[0].fin, sides[1].fin);
        let (mut sent, mut acked) = ([false; 2], [false; 2]);
        for (of, what, number, whole) in steps {
            let (mine, its) = (sides[of], sides[1 - of]);
            let direction = [Inbound, Outbound][of];
            // Units lower, or any number of bytes.
            let back = if whole { (number % (1 << 14)) << 16 } else { number };
            let behind = back % its.flight.max(1);
            let old = its.fin.wrapping_add(1).wrapping_sub(behind.max(1));
            let end = mine.fin.wrapping_add(u32::from(sent[of]));
            let answers = sent[1 - of] && what & 1 == 1;
            let ack = if answers { its.fin.wrapping_add(1) } else { old };
            let finishes = what & 2 != 0;
            let (flags, end) = if finishes { (FIN | ACK, mine.fin) } else { (ACK, end) };
            // One that counts only by what it acknowledges, too.
            let fits = Fit::of(&session, direction, segment(flags, end, ack)).ends;
            prop_assert!(fits, "the ends' own numbers fit");
            if session.state == State::TimeWait {
                break;
            }
            tcp(&mut session, direction, segment(flags, end, ack));
            sent[of] |= finishes;
            acked[1 - of] |= answers;
            let closing = (0..2).fold(0, |bits, d| {
                let fin = if sent[d] { fin_bit(d) } else { 0 };
                bits | fin | if acked[d] { acked_bit(d) } else { 0 }
            });
            prop_assert_eq!(session.closing, closing);
            prop_assert_eq!(session.state == State::TimeWait, closing == ALL_ACKED);
        }
    }
}

/// Its chunk is longer than what has come of it.
#[test]
fn a_first_fragment_of_sctp_tells_the_tag() {
    let mut packet = [0; 64];
    packet[4..8].copy_from_slice(&0x0102_0304_u32.to_be_bytes());
    packet[14..16].copy_from_slice(&3000_u16.to_be_bytes());
    let told = super::sctp::segment(&packet);
    assert_eq!(told, Segment { flags: 0, ack: 0, end: 0x0102_0304 });
}
