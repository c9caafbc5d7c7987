//! Fragments from one IP version to the other (RFC 7915 4.1, 5.1.1).

use super::ORDERS;
use super::bed::{Ends, together};
use super::bed::{Field, V4, V6, at, cut, data, datagram, ip, packets, pieces, spec};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::path::tests::lab::{BACK, FRONT, MemFrame};
use crate::reason::Reason;
use crate::spec::Mode;
use etherparse::{Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, SlicedPacket, UdpHeader};
use std::net::SocketAddr;

const ACROSS: [(&Ends, &Ends); 2] = [(&V4, &V6), (&V6, &V4)];

/// Identification, offset, whether more follow, protocol.
fn places(packets: &[Vec<u8>]) -> Vec<(u32, u16, bool, u8)> {
    let place = |packet: &Vec<u8>| {
        if packet[0] >> 4 == 4 {
            let ip = Ipv4HeaderSlice::from_slice(packet).unwrap().to_header();
            assert!(!ip.dont_fragment && ip.options.is_empty());
            let offset = ip.fragment_offset.byte_offset();
            return (ip.identification.into(), offset, ip.more_fragments, ip.protocol.0);
        }
        assert_eq!(packet[6], 44, "the fragment header comes first");
        let header = Ipv6FragmentHeaderSlice::from_slice(&packet[40..]).unwrap();
        let offset = header.fragment_offset().byte_offset();
        (header.identification(), offset, header.more_fragments(), header.next_header().0)
    };
    packets.iter().map(place).collect()
}

/// Both ways, in all orders: each becomes a fragment of the other version in the same place, and
/// the far end puts together what was sent.
#[test]
fn there_and_back_in_every_order() {
    for (near, far) in ACROSS {
        let (client, vip, real) = (at(near.client), at(near.vip), at(far.real));
        let local = SocketAddr::new(ip(far.local), 1024);
        for order in ORDERS {
            let mut field = Field::new(&spec(Mode::Fnat, vip, real));
            let asked = cut(&datagram(client, vip, &data(3000)), &[1200, 2400], 0x5_0077);
            let sent = packets(&field.through(FRONT, &asked, &order));
            assert_eq!(together(&sent, 63), (local, real, data(3000)), "{order:?}");
            let mut there = places(&sent);
            there.sort_by_key(|place| place.1);
            let id = 0x77;
            let whole = [(id, 0, true, 17), (id, 1200, true, 17), (id, 2400, false, 17)];
            assert_eq!(there, whole, "{order:?}");
            let answer = cut(&datagram(real, local, &data(2000)), &[800, 1600], 9);
            let back = packets(&field.through(BACK, &answer, &order));
            assert_eq!(together(&back, 63), (vip, client, data(2000)), "{order:?}");
            assert_eq!(field.path.counters().reals[0].packets, [3, 3]);
            assert_eq!((field.path.live_sessions(), field.parking.len()), (1, 0));
        }
    }
}

/// A fragment that no longer fits is cut again: IPv4 without DF, and IPv6 always, since it becomes
/// IPv4 without. The first alone, a later one alone, both.
#[test]
fn too_large_ones_are_cut_again() {
    for (near, far) in ACROSS {
        let (client, vip, real) = (at(near.client), at(near.vip), at(far.real));
        let grows = near.client == V4.client;
        for place in [8, 1456, 1480, 1488, 1496] {
            let mut field = Field::new(&spec(Mode::Fnat, vip, real));
            let asked = cut(&datagram(client, vip, &data(1600)), &[place], 1);
            for order in [[0, 1], [1, 0]] {
                let done = field.outcomes(FRONT, &asked, &order);
                let left = pieces(&done, BACK);
                let local = SocketAddr::new(ip(far.local), 1024);
                assert_eq!(together(&left, 63), (local, real, data(1600)), "{place}");
                let most = if grows { 1452 } else { 1480 };
                let halves = [place, 1608 - place].map(|length| length.div_ceil(most / 8 * 8));
                assert_eq!(left.len(), halves.iter().sum::<usize>(), "{place}");
            }
            assert_eq!(field.path.counters().reals[0].packets, [4, 0]);
        }
    }
}

/// IPv4 with DF is answered, first or not: with what fits beside both headers of IPv6.
#[test]
fn with_df_the_sender_is_told() {
    let mut packet = datagram(at(V4.client), at(V4.vip), &data(2000));
    packet[6] = 0x40;
    let mut field = Field::new(&spec(Mode::Fnat, at(V4.vip), at(V6.real)));
    let with_df = |frame: &MemFrame| {
        let mut bytes = frame.bytes().to_vec();
        bytes[20] |= 0x40;
        bytes[24..26].fill(0);
        let sum = sluice_wire::checksum::full(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        MemFrame::new(&bytes)
    };
    let asked: Vec<_> = cut(&packet, &[1456], 1).iter().map(with_df).collect();
    let mut first = [asked[0].clone()];
    let verdict = field.turn(FRONT, &mut first)[0];
    assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig));
    let told = SlicedPacket::from_ethernet(first[0].bytes()).unwrap();
    let Some(etherparse::TransportSlice::Icmpv4(icmp)) = told.transport else { panic!("{told:?}") };
    assert_eq!(icmp.slice()[..8][..2], [3, 4]);
    assert_eq!(icmp.slice()[6..8], 1472u16.to_be_bytes());
    assert_eq!(icmp.slice()[8..28], asked[0].bytes()[14..34], "as it came");
    let smaller: Vec<_> = cut(&packet, &[1448], 2).iter().map(with_df).collect();
    let sent = packets(&field.through(FRONT, &smaller, &[1, 0]));
    assert_eq!((sent[0].len(), sent[1].len()), (1496, 48 + 2008 - 1448));
}

/// What has no like over there is dropped with all that belongs to it.
#[test]
fn some_have_no_like() {
    let six = spec(Mode::Fnat, at(V6.vip), at(V4.real));
    let four = spec(Mode::Fnat, at(V4.vip), at(V6.real));
    let none = Verdict::Drop(Reason::Untranslatable);
    // No checksum (RFC 7915 4.5).
    let mut bare = datagram(at(V4.client), at(V4.vip), &data(1000));
    bare[26..28].fill(0);
    let mut field = Field::new(&four);
    for (verdict, _) in field.outcomes(FRONT, &cut(&bare, &[400, 800], 1), &[2, 0, 1]) {
        assert_eq!(verdict, none);
    }
    // In IPv6 there is no datagram without (RFC 8200 8.1), and IPv4 would take it for a whole one.
    let mut bare = datagram(at(V6.client), at(V6.vip), &data(1000));
    bare[46..48].fill(0);
    let mut field = Field::new(&six);
    for (verdict, _) in field.outcomes(FRONT, &cut(&bare, &[400, 800], 1), &[2, 0, 1]) {
        assert_eq!(verdict, Verdict::Drop(Reason::NoUdpChecksum));
    }
    // Longer than any IPv4 datagram: its header says so, or where a fragment lies.
    let mut long = datagram(at(V6.client), at(V6.vip), &data(1000));
    long[44..46].copy_from_slice(&65_516u16.to_be_bytes());
    for piece in cut(&long, &[800], 2) {
        assert_eq!(field.one(FRONT, &piece), none);
    }
    let short = cut(&datagram(at(V6.client), at(V6.vip), &data(1000)), &[800], 3);
    assert_eq!(field.one(FRONT, &short[0]), Verdict::Tx(BACK));
    let moved = |offset: u16| {
        let mut bytes = short[1].bytes().to_vec();
        bytes[56..58].copy_from_slice(&offset.to_be_bytes());
        field_of(&bytes)
    };
    assert_eq!(field.one(FRONT, &moved(65_512 - 208)), Verdict::Tx(BACK));
    assert_eq!(field.one(FRONT, &moved(65_520 - 208)), none);
    assert_eq!(field.path.counters().reals[0].packets, [2, 0], "what is dropped is not counted");
}

/// A datagram without a checksum gets one over IPv6 (RFC 8200 8.1): over itself alone, and not over
/// what lies behind it in the packet (RFC 9868 4).
#[test]
fn options_behind_a_datagram_are_not_summed() {
    for (length, options) in [(1000, &[][..]), (1000, &[1, 2, 3, 4]), (999, &[1, 2, 3])] {
        let asked = datagram(at(V4.client), at(V4.vip), &data(length));
        let mut bare = [&asked[..], options].concat();
        let total = bare.len() as u16;
        bare[2..4].copy_from_slice(&total.to_be_bytes());
        bare[10..12].fill(0);
        let sum = sluice_wire::checksum::full(&bare[..20]);
        bare[10..12].copy_from_slice(&sum.to_be_bytes());
        bare[26..28].fill(0);
        let mut field = Field::new(&spec(Mode::Fnat, at(V4.vip), at(V6.real)));
        let frame = field_of(&[&[4u8; 6][..], &[6; 6], &[8, 0], &bare].concat());
        let sent = packets(&field.through(FRONT, &[frame], &[0]));
        let (segment, behind) = sent[0][40..].split_at(sent[0].len() - 40 - options.len());
        assert_eq!(behind, options, "they go with it");
        let (header, payload) = UdpHeader::from_slice(segment).unwrap();
        let end = |at: usize| sent[0][at..at + 16].try_into().unwrap();
        let sum = header.calc_checksum_ipv6_raw(end(8), end(24), payload).unwrap();
        assert_eq!((header.checksum, payload), (sum, &data(length)[..]));
    }
}

fn field_of(bytes: &[u8]) -> MemFrame {
    MemFrame::new(bytes)
}

/// Later fragments are of what the first says (RFC 8200 4.5): IPv4 tells datagrams apart by it.
#[test]
fn the_first_names_the_protocol() {
    let mut field = Field::new(&spec(Mode::Fnat, at(V6.vip), at(V4.real)));
    let mut asked = cut(&datagram(at(V6.client), at(V6.vip), &data(1000)), &[800], 3);
    asked[1].bytes_mut()[54] = 60;
    let sent = packets(&field.through(FRONT, &asked, &[0, 1]));
    assert_eq!(together(&sent, 63).2, data(1000));
}
