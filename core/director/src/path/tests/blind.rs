//! What a sender who knows a connection's addresses and ports, and no more, can do to it.

use super::lab::{BACK, CLIENT, FRONT, LOCAL, Lab, Packet, REAL, VIP, tcp};
use crate::path::{SessionFilter, Verdict};
use crate::session::State;
use crate::spec::Mode;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

const PORT: u16 = 2000;
/// Where the numbers of both sides begin; the client's are about to wrap.
const ISS: (u32, u32) = (u32::MAX - 3, 0x7654_3210);

/// A connection, and what both sides send in it.
struct Connection {
    lab: Lab,
    /// The client as the real server sees it.
    seen_client: ([u8; 4], u16),
    real: [u8; 4],
}

impl Connection {
    fn open(mode: Mode) -> Self {
        let mut lab = Lab::with(|b| b.services[1].mode = mode, 1000, (0, 1));
        let mut syn = tcp((CLIENT, PORT), (VIP, 80), SYN, (ISS.0, 0), b"");
        assert_eq!(lab.one(FRONT, &mut syn), Verdict::Tx(BACK));
        let there = Packet::read(&syn);
        let mut connection = Self { lab, seen_client: (there.src, there.sport), real: REAL };
        let (client, server) = (ISS.0.wrapping_add(1), ISS.1.wrapping_add(1));
        connection.server(SYN | ACK, ISS.1, client, b"");
        connection.client(ACK, client, server, b"");
        connection.client(ACK, client, server, b"a request");
        connection.server(ACK, server, client.wrapping_add(9), b"");
        assert_eq!(connection.states(), [State::Established]);
        connection
    }

    fn client(&mut self, flags: u8, seq: u32, ack: u32, data: &[u8]) -> Packet {
        let mut frame = tcp((CLIENT, PORT), (VIP, 80), flags, (seq, ack), data);
        assert_eq!(self.lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        Packet::read(&frame)
    }

    fn server(&mut self, flags: u8, seq: u32, ack: u32, data: &[u8]) {
        let mut frame = tcp((self.real, 80), self.seen_client, flags, (seq, ack), data);
        assert_eq!(self.lab.one(BACK, &mut frame), Verdict::Tx(FRONT));
    }

    fn states(&self) -> Vec<State> {
        let (mut out, lab) = (Vec::new(), &self.lab);
        lab.path.list(&lab.plan, lab.now, &SessionFilter::default(), (0, 1000), &mut out);
        out.iter().map(|session| session.state).collect()
    }

    /// The client's and the real server's next numbers.
    fn next(&self) -> (u32, u32) {
        (ISS.0.wrapping_add(10), ISS.1.wrapping_add(1))
    }
}

const MODES: [Mode; 2] = [Mode::Fnat, Mode::Nat];

#[test]
fn blind_rst_keeps_session() {
    for mode in MODES {
        let mut connection = Connection::open(mode);
        for flags in [RST, RST | ACK] {
            connection.client(flags, 0x1234_5678, 0x0bad_cafe, b"");
            connection.server(flags, 0x1234_5678, 0x0bad_cafe, b"");
        }
        assert_eq!(connection.states(), [State::Established]);
        let (client, server) = connection.next();
        connection.client(ACK, client, server, b"more");
        connection.server(ACK, server, client.wrapping_add(4), b"of it");
        assert_eq!(connection.lab.path.counters().ignored_ends, 4);
    }
}

#[test]
fn blind_fin_and_syn_move_nothing() {
    for mode in MODES {
        let mut connection = Connection::open(mode);
        connection.client(FIN | ACK, 0x1234_5678, 0x0bad_cafe, b"");
        let there = connection.client(SYN, 0x4444_0000, 0, b"");
        assert_eq!((there.dst, there.sport), (REAL, connection.seen_client.1));
        assert_eq!(connection.states(), [State::Established]);
        assert_eq!(connection.lab.path.counters().created, 1);
    }
}

/// The client has closed its side and waits for the answer.
#[test]
fn blind_syn_keeps_a_half_closed_session() {
    for mode in MODES {
        let mut connection = Connection::open(mode);
        let (client, server) = connection.next();
        connection.client(FIN | ACK, client, server, b"");
        assert_eq!(connection.states(), [State::FinWait]);
        let there = connection.client(SYN, 0x4444_0000, 0, b"");
        assert_eq!((there.dst, there.sport), (REAL, connection.seen_client.1));
        connection.server(ACK, server, client.wrapping_add(1), b"the answer");
        assert_eq!(connection.states(), [State::FinWait]);
        // Long after, it is the client that uses its port again.
        connection.lab.after_s(6);
        connection.client(SYN, 0x4444_0000, 0, b"");
        assert_eq!(connection.states(), [State::SynRecv]);
    }
}

/// A client that has forgotten a connection resets what its SYN is answered with.
#[test]
fn the_answer_to_a_challenge_frees_the_session() {
    for mode in MODES {
        let mut connection = Connection::open(mode);
        let (client, server) = connection.next();
        connection.client(SYN, 0x4444_0000, 0, b"");
        connection.server(ACK, server, client, b"");
        connection.client(RST, client, 0, b"");
        connection.lab.after_s(4);
        connection.lab.path.sweep_all(&connection.lab.plan, connection.lab.now);
        assert_eq!(connection.states(), []);
        connection.client(SYN, 0x4444_0000, 0, b"");
        assert_eq!(connection.states(), [State::SynRecv]);
    }
}

/// Both sides close with much under way: acknowledgements of what was sent before a FIN end
/// nothing, wherever their lower halves are alike.
#[test]
fn an_old_acknowledgement_ends_nothing() {
    let mut connection = Connection::open(Mode::Fnat);
    let (client, server) = connection.next();
    connection.client(FIN | ACK, client, server, b"");
    let (client, data) = (client.wrapping_add(1), [7; 1000]);
    for at in 0..200 {
        connection.server(ACK, server + at * 1000, client, &data);
    }
    let fin = server + 200_000;
    connection.server(FIN | ACK, fin, client, b"");
    connection.client(ACK, client, fin + 1 - (2 << 16), b"");
    assert_eq!(connection.states(), [State::LastAck]);
    connection.client(ACK, client, fin + 1, b"");
    assert!(matches!(*connection.states(), [] | [State::TimeWait]));
}

/// While both FINs are under way the way to the client is found all the same.
#[test]
fn fins_that_cross_lose_no_packet() {
    let mut connection = Connection::open(Mode::Fnat);
    let (client, server) = connection.next();
    connection.client(FIN | ACK, client, server, b"");
    connection.server(FIN | ACK, server, client, b"");
    for _ in 0..3 {
        connection.server(ACK, server + 1, client, b"");
        connection.client(ACK, client.wrapping_add(1), server, b"");
    }
    assert_eq!(connection.states(), [State::LastAck]);
    connection.server(ACK, server + 1, client.wrapping_add(1), b"");
    connection.server(ACK, server + 1, client.wrapping_add(1), b"");
    assert_eq!(connection.states(), [State::LastAck]);
    connection.client(ACK, client.wrapping_add(1), server + 1, b"");
    assert!(matches!(*connection.states(), [] | [State::TimeWait]));
    assert_eq!(LOCAL, connection.seen_client.0);
}
