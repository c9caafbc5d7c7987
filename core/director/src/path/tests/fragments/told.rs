//! Fragments of services that tell real servers who their client is.

use super::ORDERS;
use super::bed::{Ends, together, whole};
use super::bed::{Field, V4, V6, at, cut, data, datagram, ip, packets, pieces, spec};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::path::tests::lab::{BACK, FRONT, MemFrame, fib_of};
use crate::reason::Reason;
use crate::spec::{ClientAddress, Mode, Protocol, Spec};
use etherparse::{PacketBuilder, TcpHeader};
use sluice_testkit::World;
use sluice_wire::proxy_protocol::parse_v1;
use sluice_wire::tcp::{ACK, SYN};
use std::net::{IpAddr, SocketAddr};

const WAYS: [(&Ends, &Ends); 4] = [(&V4, &V4), (&V6, &V6), (&V4, &V6), (&V6, &V4)];

fn told(near: &Ends, far: &Ends, how: ClientAddress, protocol: Protocol) -> Spec {
    let mut made = spec(Mode::Fnat, at(near.vip), at(far.real));
    made.services[0].client_address = how;
    made.services[0].protocol = protocol;
    made
}

/// Version 2 by its specification (2.2, 2.2.5), padded to a multiple of eight bytes.
fn header(client: SocketAddr, vip: SocketAddr, datagram: bool, padded: bool) -> Vec<u8> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let mut body = [octets(client.ip()), octets(vip.ip())].concat();
    body.extend(client.port().to_be_bytes());
    body.extend(vip.port().to_be_bytes());
    if padded {
        body.extend([4, 0, 1, 0]);
    }
    let family = if client.is_ipv4() { 0x10 } else { 0x20 };
    let mut all = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    all.extend([0x21, family | if datagram { 2 } else { 1 }, 0, body.len() as u8]);
    all.extend(body);
    all
}

/// The header is in front of the whole datagram's data, in every order, of whatever versions, and
/// what the real server answers in fragments has none.
#[test]
fn datagrams_carry_the_header_in_their_first_fragment() {
    for (near, far) in WAYS {
        let (client, vip, real) = (at(near.client), at(near.vip), at(far.real));
        let expected = [header(client, vip, true, true), data(3000)].concat();
        assert!((expected.len() - 3000).is_multiple_of(8));
        for order in ORDERS {
            let made = told(near, far, ClientAddress::ProxyV2, Protocol::Udp);
            let mut field = Field::new(&made);
            let asked = cut(&datagram(client, vip, &data(3000)), &[1200, 2400], 77);
            let sent = packets(&field.through(FRONT, &asked, &order));
            let (local, to, payload) = together(&sent, 63);
            assert_eq!((local.ip(), to), (ip(far.local), real));
            assert_eq!(payload, expected, "{order:?}");
            let answer = cut(&datagram(real, local, &data(2000)), &[800, 1600], 5);
            let back = packets(&field.through(BACK, &answer, &order));
            assert_eq!(together(&back, 63), (vip, client, data(2000)));
            let lengths = |frames: &[MemFrame]| -> u64 {
                frames.iter().map(|frame| frame.bytes().len() as u64 - 14).sum()
            };
            let counted = &field.path.counters().reals[0];
            assert_eq!(counted.bytes, [lengths(&asked), lengths(&answer)], "as they came");
        }
    }
}

/// A first fragment that the header makes too large is cut, or its sender is told how much fits.
#[test]
fn what_no_longer_fits() {
    for (near, far) in WAYS {
        let (client, vip, real) = (at(near.client), at(near.vip), at(far.real));
        let crosses = near.client != far.client;
        let large = if client.is_ipv4() { 1456 } else { 1448 };
        // What may be cut becomes no IPv6 of more than 1,280 bytes (RFC 7915 4.1).
        let small = if client.is_ipv4() && crosses { 1168 } else { 1392 };
        for (place, fits) in [(small, true), (large, false)] {
            let mut field = Field::new(&told(near, far, ClientAddress::ProxyV2, Protocol::Udp));
            for (id, order) in [(77, [0, 1]), (78, [1, 0])] {
                let asked = cut(&datagram(client, vip, &data(2000)), &[place], id);
                let done = field.outcomes(FRONT, &asked, &order);
                if near.client == V6.client && !crosses && !fits {
                    assert_eq!(done[0].0, Verdict::Answer(FRONT, Reason::TooBig));
                    let told = &done[0].1.bytes()[14 + 40..];
                    assert_eq!(told[..8], [2, 0, told[2], told[3], 0, 0, 5, 164], "1500 - 56");
                    assert_eq!(told[8..][..40], asked[0].bytes()[14..][..40], "as it came");
                    assert_eq!(done[1].0, Verdict::Drop(Reason::TooBig), "of no use alone");
                    continue;
                }
                let left = pieces(&done, BACK);
                let expected = [header(client, vip, true, true), data(2000)].concat();
                let (_, to, payload) = together(&left, 63);
                assert_eq!((to, payload), (real, expected), "{place}");
                assert!(left.iter().all(|packet| packet.len() <= 1500));
                assert_eq!(left.len() > 2, !fits, "{place} {crosses}");
            }
        }
    }
}

/// A datagram that becomes IPv4 may be cut, also if it is too long without DF (RFC 7915 5.1) with
/// the header only.
#[test]
fn what_may_be_cut_may_be_cut_with_the_header() {
    let (client, vip, real) = (at(V6.client), at(V6.vip), at(V4.real));
    let mut field = Field::new(&told(&V6, &V4, ClientAddress::ProxyV2, Protocol::Udp));
    field.fib = fib_of(&field.plan, &World::default().with_mtus([1500, 600]));
    let mut ids = Vec::new();
    for length in [1100, 1232, 1232] {
        let asked = framed(&datagram(client, vip, &data(length)));
        let left = pieces(&field.outcomes(FRONT, &[asked], &[0]), BACK);
        assert!(left.len() > 2 && left.iter().all(|packet| packet.len() <= 600));
        ids.push(left[0][4..6].to_vec());
        let expected = [header(client, vip, true, false), data(length)].concat();
        let (_, to, payload) = together(&left, 63);
        assert_eq!((to, payload), (real, expected), "{length}");
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each has an identification of its own: {ids:?}");
}

/// Nothing may end beyond what 16 bits can tell.
#[test]
fn the_longest_datagram() {
    for (near, far) in WAYS {
        let (client, vip) = (at(near.client), at(near.vip));
        let mut field = Field::new(&told(near, far, ClientAddress::ProxyV2, Protocol::Udp));
        let four = near.client == V4.client || far.real == V4.real;
        let most = if four { 65_515 } else { 65_535 };
        let grows = header(client, vip, true, true).len();
        let head = if client.is_ipv4() { 20 } else { 40 };
        let lost = Verdict::Drop(Reason::Fragment);
        for (length, id, goes) in [(most - grows, 1, true), (most - grows + 1, 2, false)] {
            let mut packet = datagram(client, vip, &data(1000));
            packet[head + 4..head + 6].copy_from_slice(&(length as u16).to_be_bytes());
            let asked = cut(&packet, &[800], id);
            for piece in &asked {
                let verdict = field.one(FRONT, piece);
                assert_eq!(verdict, if goes { Verdict::Tx(BACK) } else { lost });
            }
        }
        // A later one of the first of these, which says where it lies.
        let mut packet = datagram(client, vip, &data(1000));
        packet[head + 4..head + 6].copy_from_slice(&800u16.to_be_bytes());
        let asked = cut(&packet, &[800], 3);
        assert_eq!(field.one(FRONT, &asked[0]), Verdict::Tx(BACK));
        let end = (most - grows) / 8 * 8;
        for (end, verdict) in [(end, Verdict::Tx(BACK)), (end + 8, lost)] {
            let mut bytes = asked[1].bytes().to_vec();
            let offset = (end - 208) as u16;
            if head == 20 {
                bytes[20..22].copy_from_slice(&(offset / 8).to_be_bytes());
                bytes[24..26].fill(0);
                let sum = sluice_wire::checksum::full(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            } else {
                bytes[56..58].copy_from_slice(&offset.to_be_bytes());
            }
            assert_eq!(field.one(FRONT, &MemFrame::new(&bytes)), verdict, "{end}");
        }
    }
}

/// A segment as an IP packet.
fn segment(
    (from, to): (SocketAddr, SocketAddr),
    flags: u8,
    (seq, ack): (u32, u32),
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut header = TcpHeader::new(from.port(), to.port(), seq, 64_000);
    header.acknowledgment_number = ack;
    header.set_options_raw(options).unwrap();
    (header.syn, header.ack) = (flags & SYN != 0, flags & ACK != 0);
    let mut bytes = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 64)
            .tcp_header(header)
            .write(&mut bytes, payload),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 64)
            .tcp_header(header)
            .write(&mut bytes, payload),
        _ => panic!("one family"),
    }
    .unwrap();
    bytes
}

fn framed(packet: &[u8]) -> MemFrame {
    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    MemFrame::new(&[&[4u8; 6][..], &[6; 6], &ethertype, packet].concat())
}

/// Header and data of a TCP segment that left in pieces.
fn read(packets: &[Vec<u8>]) -> (TcpHeader, Vec<u8>) {
    let (ends, payload) = whole(packets, 63);
    let (header, data) = TcpHeader::from_slice(&payload).unwrap();
    let sum = match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.calc_checksum_ipv4_raw(from.octets(), to.octets(), data)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.calc_checksum_ipv6_raw(from.octets(), to.octets(), data)
        }
        _ => panic!("one family"),
    };
    assert_eq!(header.checksum, sum.unwrap(), "TCP checksum");
    (header.clone(), data.to_vec())
}

/// A connection whose handshake is done, but for what the last segment of it carried.
struct Talk {
    field: Field,
    there: (SocketAddr, SocketAddr),
    back: (SocketAddr, SocketAddr),
    /// The last identification.
    id: u32,
}

const ISN: u32 = 1000;
const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

impl Talk {
    fn new(near: &Ends, far: &Ends, how: ClientAddress) -> Self {
        let mut field = Field::new(&told(near, far, how, Protocol::Tcp));
        let there = (at(near.client), at(near.vip));
        let back = (at(far.real), SocketAddr::new(ip(far.local), 1024));
        let syn = segment(there, SYN, (ISN, 0), &[], b"");
        assert_eq!(field.one(FRONT, &framed(&syn)), Verdict::Tx(BACK));
        let answer = segment(back, SYN | ACK, (900, ISN + 1), &[], b"");
        assert_eq!(field.one(BACK, &framed(&answer)), Verdict::Tx(FRONT));
        Self { field, there, back, id: 0 }
    }

    /// The client's data in fragments, in this order.
    fn asks(&mut self, from: u32, options: &[u8], order: &[usize; 3]) -> Vec<(Verdict, MemFrame)> {
        let packet = segment(self.there, ACK, (from, 901), options, &data(1000));
        self.id += 1;
        self.field.outcomes(FRONT, &cut(&packet, &[64, 512], self.id), order)
    }
}

/// The first data in fragments carries what tells of the client, and what follows is renumbered.
#[test]
fn streams_begin_in_fragments() {
    for (near, far) in WAYS {
        let (client, vip) = (at(near.client), at(near.vip));
        for order in ORDERS {
            let mut talk = Talk::new(near, far, ClientAddress::ProxyV2);
            let expected = header(client, vip, false, false);
            for options in [&[][..], &STAMPS] {
                let done = talk.asks(ISN + 1, options, &order);
                let (head, payload) = read(&pieces(&done, BACK));
                assert_eq!(payload, [&expected[..], &data(1000)].concat(), "{order:?}");
                assert_eq!(head.sequence_number, ISN + 1);
                assert_eq!(head.options.as_slice(), [&[1; 4][..], options].concat());
            }
            let length = expected.len() as u32;
            let all = ISN + 1001 + length;
            let ack = segment(talk.back, ACK, (901, all), &[], &data(900));
            let done = talk.field.outcomes(BACK, &cut(&ack, &[64, 512], 9), &order);
            let (head, payload) = read(&pieces(&done, FRONT));
            assert_eq!((head.acknowledgment_number, payload), (ISN + 1001, data(900)));
            let done = talk.asks(ISN + 1001, &[], &order);
            let (head, payload) = read(&pieces(&done, BACK));
            assert_eq!((head.sequence_number, payload), (all, data(1000)));
        }
    }
}

/// The option goes with the first segments, padded where its length asks for it.
#[test]
fn the_option_in_fragments() {
    for (near, far) in WAYS {
        let client = at(near.client);
        let mut option = vec![254, 0];
        option.extend(client.port().to_be_bytes());
        match client.ip() {
            IpAddr::V4(v4) => option.extend(v4.octets()),
            IpAddr::V6(v6) => option.extend(v6.octets()),
        }
        option[1] = option.len() as u8;
        option.resize(option.len().next_multiple_of(8), 1);
        for order in ORDERS {
            let mut talk = Talk::new(near, far, ClientAddress::Toa);
            let done = talk.asks(ISN + 1, &STAMPS, &order);
            let (head, payload) = read(&pieces(&done, BACK));
            assert_eq!((head.sequence_number, payload), (ISN + 1, data(1000)));
            assert_eq!(head.options.as_slice(), [&option[..], &STAMPS].concat());
            // No room: it goes without, as whole segments do.
            let full = [1; 36];
            let (head, payload) = read(&pieces(&talk.asks(ISN + 1, &full, &order), BACK));
            assert_eq!((head.options.as_slice(), payload), (&full[..], data(1000)));
        }
    }
}

/// Version 1 is a line of any length: in fragments it goes only where a multiple of four makes it
/// one of eight, or else they are dropped until the real server has it.
#[test]
fn lines_that_cannot_be_padded_wait() {
    let ports = ["4000", "400", "40", "4"];
    let mut went = 0;
    for port in ports {
        let client = format!("198.51.100.48:{port}");
        let near = Ends { client: Box::leak(client.into_boxed_str()), ..V4 };
        let mut talk = Talk::new(&near, &V4, ClientAddress::ProxyV1);
        let line = format!("PROXY TCP4 198.51.100.48 198.51.100.200 {port} 53\r\n");
        let done = talk.asks(ISN + 1, &[], &[2, 0, 1]);
        if line.len().is_multiple_of(4) {
            let (head, payload) = read(&pieces(&done, BACK));
            assert_eq!(payload, [line.as_bytes(), &data(1000)].concat());
            assert_eq!(parse_v1(&payload).unwrap().1, line.len());
            assert_eq!(head.sequence_number, ISN + 1);
            went += 1;
            continue;
        }
        assert!(done.iter().all(|(verdict, _)| *verdict == Verdict::Drop(Reason::Fragment)));
        assert_eq!(talk.field.path.counters().of(Reason::Fragment), 3);
        let all = ISN + 1 + line.len() as u32;
        let ack = segment(talk.back, ACK, (901, all), &[], b"");
        assert_eq!(talk.field.one(BACK, &framed(&ack)), Verdict::Tx(FRONT));
        let (head, payload) = read(&pieces(&talk.asks(ISN + 1, &[], &[2, 0, 1]), BACK));
        assert_eq!((head.sequence_number, payload), (all, data(1000)));
    }
    assert_eq!(went, 1);
    // Nor without room for the padding.
    let mut talk = Talk::new(&V4, &V4, ClientAddress::ProxyV2);
    let done = talk.asks(ISN + 1, &[1; 40], &[0, 1, 2]);
    assert!(done.iter().all(|(verdict, _)| *verdict == Verdict::Drop(Reason::Fragment)));
}

/// What was put in cannot be written over: a later fragment begins behind the header of the first.
#[test]
fn nothing_lies_within_the_introduction() {
    let mut talk = Talk::new(&V4, &V4, ClientAddress::ProxyV2);
    let packet = segment(talk.there, ACK, (ISN + 1, 901), &STAMPS, &data(1000));
    let first = &cut(&packet, &[64], 5)[0];
    let within = &cut(&packet, &[24, 32], 5);
    assert_eq!(talk.field.one(FRONT, first), Verdict::Tx(BACK));
    assert_eq!(talk.field.one(FRONT, &within[1]), Verdict::Drop(Reason::TinyFragment));
    assert_eq!(talk.field.one(FRONT, &within[2]), Verdict::Tx(BACK));
}
