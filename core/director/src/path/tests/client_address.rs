//! Real servers learn who their client is, and neither side notices that the stream was moved.

use super::lab::{BACK, FRONT, MemFrame};
use super::modes::{Field, at, ip, spec};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::spec::{ClientAddress, Mode, Protocol};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TransportSlice};
use sluice_wire::proxy_protocol::{self, Ends};
use sluice_wire::tcp::{ACK, FIN, RST, SYN};
use std::net::{IpAddr, SocketAddr};

const PSH: u8 = 8;
const ISN: u32 = 0xffff_fff0;

/// A segment with these raw options.
pub fn segment(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    (seq, ack): (u32, u32),
    options: &[u8],
    payload: &[u8],
) -> MemFrame {
    let mut header = TcpHeader::new(from.port(), to.port(), seq, 64_000);
    header.acknowledgment_number = ack;
    header.set_options_raw(options).unwrap();
    (header.fin, header.syn, header.rst) = (flags & FIN != 0, flags & SYN != 0, flags & RST != 0);
    (header.psh, header.ack) = (flags & PSH != 0, flags & ACK != 0);
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("one family"),
    };
    let mut bytes = Vec::new();
    builder.tcp_header(header).write(&mut bytes, payload).unwrap();
    MemFrame::new(&bytes)
}

/// The TCP header and payload of a frame; asserts every length and checksum.
pub fn read(frame: &MemFrame) -> (TcpHeader, Vec<u8>, usize) {
    let packet = &frame.bytes()[14..];
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("{sliced:?}") };
    let sum = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(net) => {
            let ip = net.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(usize::from(ip.total_len), packet.len());
            tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap()
        }
        NetSlice::Ipv6(net) => {
            let ip = net.header().to_header();
            assert_eq!(usize::from(ip.payload_length) + 40, packet.len());
            tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload()).unwrap()
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    assert_eq!(tcp.checksum(), sum, "TCP checksum");
    (tcp.to_header(), tcp.payload().to_vec(), packet.len())
}

struct Talk {
    field: Field,
    client: SocketAddr,
    vip: SocketAddr,
    real: SocketAddr,
    local: SocketAddr,
}

impl Talk {
    fn new(how: ClientAddress, client: &str, vip: &str, real: &str, local: &str) -> Self {
        let (client, vip, real) = (at(client), at(vip), at(real));
        let mut made = spec(Mode::Fnat, &vip.ip().to_string(), &real.ip().to_string(), real.port());
        made.services[0].protocol = Protocol::Tcp;
        made.services[0].client_address = how;
        let local = SocketAddr::new(ip(local), 1024);
        Self { field: Field::new(&made), client, vip, real, local }
    }

    fn inbound(&mut self, flags: u8, numbers: (u32, u32), options: &[u8], payload: &[u8]) -> Read {
        let mut frame = segment(self.client, self.vip, flags, numbers, options, payload);
        assert_eq!(self.field.one(FRONT, &mut frame), Verdict::Tx(BACK));
        read(&frame)
    }

    fn outbound(&mut self, flags: u8, numbers: (u32, u32), options: &[u8], payload: &[u8]) -> Read {
        let mut frame = segment(self.real, self.local, flags, numbers, options, payload);
        assert_eq!(self.field.one(BACK, &mut frame), Verdict::Tx(FRONT));
        read(&frame)
    }
}

type Read = (TcpHeader, Vec<u8>, usize);

const ENDS: [[&str; 4]; 4] = [
    ["198.51.100.48:4000", "198.51.100.200:53", "192.0.2.11:53", "192.0.2.10"],
    ["[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "[2001:db8:2::11]:53", "2001:db8:2::10"],
    ["[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "192.0.2.11:53", "192.0.2.10"],
    ["198.51.100.48:4000", "198.51.100.200:53", "[2001:db8:2::11]:53", "2001:db8:2::10"],
];

/// The whole of a connection: the real server sees the header and then the client's bytes, numbered
/// without a gap, and the client sees its own numbers acknowledged.
#[test]
fn a_proxy_header_goes_in_front_of_the_stream() {
    for [client, vip, real, local] in ENDS {
        for how in [ClientAddress::ProxyV1, ClientAddress::ProxyV2] {
            let mut talk = Talk::new(how, client, vip, real, local);
            let (syn, _, _) = talk.inbound(SYN, (ISN, 0), &[2, 4, 5, 0xb4], b"");
            assert_eq!(syn.sequence_number, ISN);
            let first = ISN.wrapping_add(1);
            let (answer, _, _) = talk.outbound(SYN | ACK, (900, first), &[2, 4, 5, 0xb4], b"");
            let mss = u16::from_be_bytes(answer.options.as_slice()[2..4].try_into().unwrap());
            assert_eq!(answer.acknowledgment_number, first);
            let (ack, header, _) = talk.inbound(ACK, (first, 901), &[], b"");
            assert_eq!(ack.sequence_number, first);
            let length = header.len() as u32;
            assert!(u32::from(mss) + length <= 1460, "{mss} and {length}");
            let ends = if how == ClientAddress::ProxyV1 {
                let (ends, read) = proxy_protocol::parse_v1(&header).unwrap();
                assert_eq!(read, header.len());
                ends
            } else {
                let (_, ends, read) = proxy_protocol::parse_v2(&header).unwrap();
                assert_eq!(read, header.len());
                ends
            };
            assert_eq!(ends, expected(talk.client, talk.vip));
            // Data before the header is acknowledged carries it again, whatever its length.
            let (data, payload, _) = talk.inbound(PSH | ACK, (first, 901), &[], b"hello");
            assert_eq!((data.sequence_number, &payload[header.len()..]), (first, &b"hello"[..]));
            assert_eq!(payload[..header.len()], header);
            // A SYN that somebody forged is the real server's to refuse, and changes nothing here.
            let (forged, payload, _) = talk.inbound(SYN, (77, 0), &[], b"");
            assert_eq!((forged.sequence_number, payload.len()), (77, 0));
            // The real server acknowledges a part, then all.
            let (part, _, _) = talk.outbound(ACK, (901, first.wrapping_add(3)), &[], b"");
            assert_eq!(part.acknowledgment_number, first);
            let all = first.wrapping_add(length + 5);
            let sack = [1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 0, 200];
            let (back, payload, _) = talk.outbound(ACK, (901, all), &sack, b"hi!");
            assert_eq!(back.acknowledgment_number, first.wrapping_add(5));
            assert_eq!(payload, b"hi!");
            let edge = 100u32.wrapping_sub(length);
            assert_eq!(back.options.as_slice()[4..8], edge.to_be_bytes());
            // From now on it only counts along.
            let after = first.wrapping_add(5);
            let (more, payload, _) = talk.inbound(PSH | ACK, (after, 904), &[], b"bye");
            assert_eq!(more.sequence_number, after.wrapping_add(length));
            assert_eq!(payload, b"bye");
            let again = talk.inbound(PSH | ACK, (first, 904), &[], b"hello");
            assert_eq!(again.0.sequence_number, first.wrapping_add(length));
            assert_eq!(again.1, b"hello");
            let (fin, _, _) = talk.inbound(FIN | ACK, (after, 904), &[], b"");
            assert_eq!(fin.sequence_number, after.wrapping_add(length));
            let end = after.wrapping_add(1 + length);
            let (closed, _, _) = talk.outbound(FIN | ACK, (904, end), &[], b"");
            assert_eq!(closed.acknowledgment_number, after.wrapping_add(1));
            let (last, _, _) = talk.inbound(ACK, (after.wrapping_add(1), 905), &[], b"");
            assert_eq!(last.sequence_number, end);
            assert_eq!(talk.field.path.live_sessions(), 0, "{how:?} {client}");
        }
    }
}

/// The numbers go round, and so do the halves of them that lie ahead and behind.
#[test]
fn a_stream_of_many_gigabytes_stays_in_step() {
    let [client, vip, real, local] = ENDS[0];
    let mut talk = Talk::new(ClientAddress::ProxyV2, client, vip, real, local);
    talk.inbound(SYN, (ISN, 0), &[], &[]);
    talk.outbound(SYN | ACK, (7, ISN.wrapping_add(1)), &[], &[]);
    let first = ISN.wrapping_add(1);
    let (_, header, _) = talk.inbound(ACK, (first, 8), &[], &[]);
    let length = header.len() as u32;
    assert!(length > 0);
    talk.outbound(ACK, (8, first.wrapping_add(length)), &[], &[]);
    for gigabytes in 0..10 {
        let at = first.wrapping_add(gigabytes << 30);
        let (tcp, data, _) = talk.inbound(ACK | PSH, (at, 8), &[], b"more");
        assert_eq!(tcp.sequence_number, at.wrapping_add(length), "{gigabytes} GiB");
        assert_eq!(data, b"more");
        let (tcp, ..) = talk.outbound(ACK, (8, at.wrapping_add(length + 4)), &[], &[]);
        assert_eq!(tcp.acknowledgment_number, at.wrapping_add(4), "{gigabytes} GiB");
    }
}

fn expected(client: SocketAddr, vip: SocketAddr) -> Ends {
    let (source_port, destination_port) = (client.port(), vip.port());
    match (client.ip(), vip.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ends::V4 {
            source: from.to_bits(),
            destination: to.to_bits(),
            source_port,
            destination_port,
        },
        (IpAddr::V6(from), IpAddr::V6(to)) => Ends::V6 {
            source: from.to_bits(),
            destination: to.to_bits(),
            source_port,
            destination_port,
        },
        _ => panic!("one family"),
    }
}

/// A full segment has no room for the header, which has gone with the handshake; a reset carries
/// none.
#[test]
fn a_full_segment_goes_without() {
    let [client, vip, real, local] = ENDS[0];
    let mut talk = Talk::new(ClientAddress::ProxyV2, client, vip, real, local);
    talk.inbound(SYN, (ISN, 0), &[], b"");
    let first = ISN.wrapping_add(1);
    talk.outbound(SYN | ACK, (900, first), &[], b"");
    let (full, payload, _) = talk.inbound(ACK, (first, 901), &[], &[7; 1460]);
    assert_eq!((full.sequence_number, payload.len()), (first.wrapping_add(28), 1460));
    let (reset, payload, _) = talk.inbound(RST | ACK, (first, 901), &[], b"");
    assert_eq!((reset.sequence_number, payload.len()), (first, 0));
    assert_eq!(talk.field.path.live_sessions(), 0);
}

#[test]
fn the_first_segments_carry_the_address_as_an_option() {
    for [client, vip, real, local] in ENDS {
        let mut talk = Talk::new(ClientAddress::Toa, client, vip, real, local);
        let (syn, _, _) = talk.inbound(SYN, (ISN, 0), &[2, 4, 5, 0xb4], b"");
        assert_eq!(syn.options.as_slice(), [2, 4, 5, 0xb4]);
        let first = ISN.wrapping_add(1);
        talk.outbound(SYN | ACK, (900, first), &[2, 4, 5, 0xb4], b"");
        let mut option = vec![254, 0];
        option.extend(talk.client.port().to_be_bytes());
        match talk.client.ip() {
            IpAddr::V4(v4) => option.extend(v4.octets()),
            IpAddr::V6(v6) => option.extend(v6.octets()),
        }
        option[1] = option.len() as u8;
        for payload in [&b""[..], b"hello"] {
            let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
            let (ack, data, _) = talk.inbound(ACK, (first, 901), &stamps, payload);
            assert_eq!((ack.sequence_number, data.as_slice()), (first, payload));
            assert_eq!(ack.options.as_slice(), [option.as_slice(), &stamps].concat());
        }
        talk.outbound(ACK, (901, first.wrapping_add(5)), &[], b"");
        let (later, data, _) = talk.inbound(ACK, (first.wrapping_add(5), 901), &[], b"more");
        assert_eq!((later.options.as_slice(), data.as_slice()), (&[][..], &b"more"[..]));
    }
}

/// Version 2 in front of each datagram.
#[test]
fn every_datagram_carries_the_header() {
    for [client, vip, real, _] in ENDS {
        let (client, vip, real) = (at(client), at(vip), at(real));
        let (vip_ip, real_ip) = (vip.ip().to_string(), real.ip().to_string());
        let mut made = spec(Mode::Fnat, &vip_ip, &real_ip, real.port());
        made.services[0].client_address = ClientAddress::ProxyV2;
        let mut field = Field::new(&made);
        for _ in 0..2 {
            let mut frame = super::modes::datagram(client, vip);
            assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
            let sliced = SlicedPacket::from_ip(&frame.bytes()[14..]).unwrap();
            let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("{sliced:?}") };
            let (_, ends, length) = proxy_protocol::parse_v2(udp.payload()).unwrap();
            assert_eq!(ends, expected(client, vip));
            assert_eq!(&udp.payload()[length..], b"what is it?");
            let header = udp.to_header();
            let sum = match sliced.net.as_ref().unwrap() {
                NetSlice::Ipv4(net) => {
                    let ip = net.header().to_header();
                    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    header.calc_checksum_ipv4(&ip, udp.payload())
                }
                NetSlice::Ipv6(net) => {
                    header.calc_checksum_ipv6(&net.header().to_header(), udp.payload())
                }
                NetSlice::Arp(_) => panic!("ARP"),
            };
            assert_eq!(udp.checksum(), sum.unwrap());
        }
    }
}
