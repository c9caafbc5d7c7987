//! What the steering program does with frames of every kind: services, local addresses, fragments,
//! extension headers, tags, frames cut short.

mod bench;

use std::net::IpAddr;

use bench::Fate::{Director, Kernel};
use bench::{Bench, needs_root};
use etherparse::PacketBuilder;
use sluice_steer::{Changed, Counters, EndpointMatch, LocalMatch, Matches};
use sluice_testkit::world::{
    CLIENT as PEER, CLIENT_6 as PEER6, LOCAL as LADDR, LOCAL_6 as LADDR6, VIP, VIP_6 as VIP6,
};

const TCP: u8 = 6;
const UDP: u8 = 17;

fn services() -> Vec<EndpointMatch> {
    vec![
        EndpointMatch::port(TCP, VIP.into(), 80),
        EndpointMatch::port(UDP, VIP.into(), 53),
        EndpointMatch::port(TCP, ip(VIP6), 443),
    ]
}

fn locals() -> Vec<LocalMatch> {
    vec![
        LocalMatch { address: LADDR.into(), ports: 1024..=2047, echo: false },
        LocalMatch { address: ip(LADDR6), ports: 5000..=5000, echo: false },
    ]
}

/// The services and local addresses of these tests.
fn usual() -> Matches {
    Matches { services: services(), locals: locals(), ..Matches::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn octets(text: &str) -> [u8; 16] {
    match ip(text) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("{text} is not IPv6"),
    }
}

/// An IPv4 frame to an address and port.
fn v4(protocol: u8, to: [u8; 4], port: u16) -> Vec<u8> {
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(PEER, to, 64);
    let mut frame = Vec::new();
    match protocol {
        TCP => ip.tcp(40_000, port, 1, 1000).write(&mut frame, b"payload"),
        _ => ip.udp(40_000, port).write(&mut frame, b"payload"),
    }
    .unwrap();
    frame
}

/// An IPv6 frame to an address and port, with extension headers (number, bytes) in front.
fn v6(protocol: u8, to: &str, port: u16, extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let mut payload = vec![0; if protocol == TCP { 20 } else { 8 }];
    payload[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    payload[2..4].copy_from_slice(&port.to_be_bytes());
    let mut next = protocol;
    for (kind, body) in extensions.iter().rev() {
        let mut header = body.to_vec();
        header[0] = next;
        header.extend(payload);
        payload = header;
        next = *kind;
    }
    let mut frame = [[4; 6], [2; 6]].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    frame.extend(octets(PEER6));
    frame.extend(octets(to));
    frame.extend(payload);
    frame
}

/// Puts VLAN tags (type, identifier) behind the addresses.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for (kind, vlan) in tags {
        tagged.extend(kind.to_be_bytes());
        tagged.extend(vlan.to_be_bytes());
    }
    tagged.extend(&frame[12..]);
    tagged
}

/// Changes bytes of a frame.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// IPv4 flags and fragment offset, in units of 8 bytes.
fn fragment(frame: Vec<u8>, more: bool, offset: u16) -> Vec<u8> {
    with(frame, 20, &(offset | if more { 0x2000 } else { 0 }).to_be_bytes())
}

/// Four bytes of IPv4 options.
fn with_options(frame: &[u8]) -> Vec<u8> {
    let mut long = frame.to_vec();
    long[14] = 0x46;
    long.splice(34..34, [1, 1, 1, 0]);
    long
}

fn icmp(to: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(PEER, to, 64)
        .icmpv4_echo_request(1, 1)
        .write(&mut frame, &[0; 8])
        .unwrap();
    frame
}

#[test]
fn ipv4_frames_go_where_they_belong() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    let other_first = fragment(v4(UDP, VIP, 54), true, 0);
    let rows = [
        ("a service", v4(TCP, VIP, 80), Director),
        ("the other protocol", v4(UDP, VIP, 80), Kernel),
        ("another port of the VIP", v4(TCP, VIP, 22), Kernel),
        ("a UDP service", v4(UDP, VIP, 53), Director),
        ("another address", v4(TCP, PEER, 80), Kernel),
        ("port 0", v4(TCP, VIP, 0), Kernel),
        ("ping to the VIP", icmp(VIP), Kernel),
        ("ping to a local address", icmp(LADDR), Kernel),
        ("a reply of a real server", v4(TCP, LADDR, 1024), Director),
        ("the last port of the pool", v4(UDP, LADDR, 2047), Director),
        ("below the pool", v4(TCP, LADDR, 1023), Kernel),
        ("above the pool", v4(TCP, LADDR, 2048), Kernel),
        ("ssh to a local address", v4(TCP, LADDR, 22), Kernel),
        ("options", with_options(&v4(TCP, VIP, 80)), Director),
        ("options, another port", with_options(&v4(TCP, VIP, 81)), Kernel),
        ("header length below 20", with(v4(TCP, VIP, 80), 14, &[0x44]), Kernel),
        ("version 6 in an IPv4 frame", with(v4(TCP, VIP, 80), 14, &[0x65]), Kernel),
        ("SCTP", with(v4(TCP, VIP, 80), 23, &[132]), Kernel),
        ("first fragment", fragment(v4(UDP, VIP, 53), true, 0), Director),
        ("first fragment, another port", with(other_first, 18, &[0, 9]), Kernel),
        ("later fragment", fragment(v4(UDP, VIP, 9999), true, 185), Director),
        ("last fragment to a local address", fragment(v4(TCP, LADDR, 1), false, 3), Director),
        ("fragment to another address", fragment(v4(UDP, PEER, 53), false, 185), Kernel),
        ("ARP", with(v4(TCP, VIP, 80), 12, &[8, 6]), Kernel),
    ];
    for (what, frame, expected) in rows {
        assert_eq!(bench.fate(&frame), expected, "{what}");
    }
}

#[test]
fn ipv6_frames_go_where_they_belong() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    let hop: (u8, &[u8]) = (0, &[0; 8]);
    let routing: (u8, &[u8]) =
        (43, &[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let options: (u8, &[u8]) = (60, &[0; 8]);
    let authentication: (u8, &[u8]) =
        (51, &[0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let first: (u8, &[u8]) = (44, &[0, 0, 0, 1, 0, 0, 0, 9]);
    let later: (u8, &[u8]) = (44, &[0, 0, 0x05, 0xa8, 0, 0, 0, 9]);
    let udp_fragment = v6(UDP, VIP6, 1, &[later]);
    let rows = [
        ("a service", v6(TCP, VIP6, 443, &[]), Director),
        ("the other protocol", v6(UDP, VIP6, 443, &[]), Kernel),
        ("another port", v6(TCP, VIP6, 80, &[]), Kernel),
        ("a local address", v6(UDP, LADDR6, 5000, &[]), Director),
        ("another port of it", v6(UDP, LADDR6, 5001, &[]), Kernel),
        ("hop-by-hop", v6(TCP, VIP6, 443, &[hop]), Director),
        ("all kinds", v6(TCP, VIP6, 443, &[hop, routing, authentication, options]), Director),
        ("all kinds, another port", v6(TCP, VIP6, 9, &[hop, routing, options]), Kernel),
        ("seven headers", v6(TCP, VIP6, 443, &[options; 7]), Director),
        ("nine headers", v6(TCP, VIP6, 443, &[options; 9]), Kernel),
        ("first fragment", v6(TCP, VIP6, 443, &[first]), Director),
        ("later fragment", v6(TCP, VIP6, 1, &[later]), Director),
        ("later fragment behind options", v6(TCP, VIP6, 1, &[hop, later]), Director),
        ("later fragment of a protocol that is not balanced there", udp_fragment, Kernel),
        ("later fragment to another address", v6(TCP, PEER6, 1, &[later]), Kernel),
        ("neighbour solicitation", with(v6(TCP, VIP6, 443, &[]), 20, &[58]), Kernel),
        ("an unknown header", with(v6(TCP, VIP6, 443, &[]), 20, &[139]), Kernel),
        ("version 4 in an IPv6 frame", with(v6(TCP, VIP6, 443, &[]), 14, &[0x45]), Kernel),
    ];
    for (what, frame, expected) in rows {
        assert_eq!(bench.fate(&frame), expected, "{what}");
    }
}

#[test]
fn two_vlan_tags_are_looked_through() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    let frames = [(v4(TCP, VIP, 80), Director), (v4(TCP, VIP, 81), Kernel)];
    let v6_frames = [(v6(TCP, VIP6, 443, &[]), Director), (v6(TCP, VIP6, 444, &[]), Kernel)];
    for (frame, expected) in frames.into_iter().chain(v6_frames) {
        assert_eq!(bench.fate(&tagged(&frame, &[(0x8100, 10)])), expected);
        assert_eq!(bench.fate(&tagged(&frame, &[(0x88a8, 10), (0x8100, 20)])), expected);
        let three = [(0x88a8, 10), (0x8100, 20), (0x8100, 30)];
        assert_eq!(bench.fate(&tagged(&frame, &three)), Kernel, "three tags");
    }
}

/// A frame cut anywhere before the end of its ports is the kernel's; from there on it is the
/// director's, whose parser judges the rest.
#[test]
fn frames_cut_short_pass_to_the_kernel() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    let options: (u8, &[u8]) = (60, &[0; 8]);
    let fragment_header: (u8, &[u8]) = (44, &[0, 0, 0x05, 0xa8, 0, 0, 0, 9]);
    let rows = [
        (v4(TCP, VIP, 80), 14 + 20 + 4),
        (with_options(&v4(TCP, VIP, 80)), 14 + 24 + 4),
        (tagged(&v4(UDP, VIP, 53), &[(0x88a8, 1), (0x8100, 2)]), 22 + 20 + 4),
        (fragment(v4(UDP, VIP, 53), true, 185), 14 + 20),
        (v6(TCP, VIP6, 443, &[]), 14 + 40 + 4),
        (v6(TCP, VIP6, 443, &[options]), 14 + 40 + 8 + 4),
        (v6(TCP, VIP6, 443, &[fragment_header]), 14 + 40 + 8),
    ];
    for (row, (frame, enough)) in rows.into_iter().enumerate() {
        // The kernel runs programs on no less than an Ethernet header.
        for len in 14..=frame.len() {
            let expected = if len >= enough { Director } else { Kernel };
            assert_eq!(bench.fate(&frame[..len]), expected, "row {row} cut to {len} bytes");
        }
    }
}

/// Lengths in headers that point behind the frame.
#[test]
fn lengths_that_lie_pass_to_the_kernel() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    let rows = [
        ("IPv4 header longer than the frame", with(v4(UDP, VIP, 53), 14, &[0x4f])),
        (
            "IPv6 options longer than the frame",
            v6(TCP, VIP6, 443, &[(60, &[0, 255, 0, 0, 0, 0, 0, 0])]),
        ),
        (
            "authentication header longer than the frame",
            v6(TCP, VIP6, 443, &[(51, &[0, 255, 0, 0, 0, 0, 0, 0])]),
        ),
    ];
    for (what, frame) in rows {
        assert_eq!(bench.fate(&frame), Kernel, "{what}");
    }
}

#[test]
fn nothing_is_taken_before_it_is_configured_and_after_it_is_removed() {
    needs_root!();
    let mut bench = Bench::new();
    let frame = v4(TCP, VIP, 80);
    let fragment = fragment(v4(TCP, VIP, 80), false, 185);
    assert_eq!(bench.fate(&frame), Kernel);

    // Three services; two VIPs and two local addresses.
    let added = Changed { added: 3 + 4, removed: 0 };
    assert_eq!(bench.steer.set(&usual()).unwrap(), added);
    assert_eq!(bench.fate(&frame), Director);
    assert_eq!(bench.fate(&fragment), Director);

    let again = bench.steer.set(&usual()).unwrap();
    assert_eq!(again, Changed::default(), "the same again changes nothing");

    // Without the TCP service of IPv4 its fragments go too, those of UDP stay.
    let fewer = Matches { services: services()[1..].to_vec(), ..usual() };
    let changed = bench.steer.set(&fewer).unwrap();
    assert_eq!(changed, Changed { added: 1, removed: 1 }, "the VIP takes less; the service went");
    assert_eq!(bench.fate(&frame), Kernel);
    assert_eq!(bench.fate(&fragment), Kernel);
    assert_eq!(bench.fate(&v4(UDP, VIP, 53)), Director);

    let mut moved = fewer;
    moved.locals[0].ports = 1500..=3000;
    let changed = bench.steer.set(&moved).unwrap();
    assert_eq!(changed, Changed { added: 1, removed: 0 });
    assert_eq!(bench.fate(&v4(TCP, LADDR, 1024)), Kernel);
    assert_eq!(bench.fate(&v4(TCP, LADDR, 3000)), Director);

    bench.steer.set(&Matches::default()).unwrap();
    assert_eq!(bench.fate(&v4(UDP, VIP, 53)), Kernel);
    assert_eq!(bench.fate(&v4(TCP, LADDR, 2000)), Kernel);
}

#[test]
fn counters_count_each_frame_once() {
    needs_root!();
    let mut bench = Bench::configured(&usual());
    for _ in 0..5 {
        bench.fate(&v4(TCP, VIP, 80));
    }
    bench.fate(&v4(TCP, VIP, 81));
    let expected = Counters { taken: 0, passed: 1, unowned: 5 };
    assert_eq!(bench.steer.counters().unwrap(), expected);
}
