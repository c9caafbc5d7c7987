//! Outer headers of sent frames.

use super::*;
use crate::reason::Reason;
use crate::vxlan::Dscp;
use etherparse::LinkExtSlice;
use std::collections::HashSet;

/// What a test is about.
#[derive(Clone, Copy, Debug)]
struct Case {
    six: bool,
    inner_six: bool,
    class: u8,
    dscp: Option<u8>,
    sum: bool,
    vlan: u16,
}

fn case() -> impl Strategy<Value = Case> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let rest = (any::<u8>(), proptest::option::of(0u8..64), 0u16..4095);
    (flags, rest).prop_map(|((six, inner_six, sum), (class, dscp, vlan))| {
        let vlan = if vlan < 2000 { 0 } else { vlan };
        Case { six, inner_six, class, dscp, sum, vlan }
    })
}

fn near(case: Case) -> Tunnels {
    let mut tunnel = tunnel(case.six, true);
    (tunnel.udp_checksum, tunnel.udp6_zero, tunnel.ttl) = (case.sum, !case.sum, 33);
    tunnel.source_ports = (50_000, 50_009);
    tunnel.dscp = case.dscp.map_or(Dscp::Copy, Dscp::Set);
    let (_, remote) = &mut tunnel.remotes[0];
    (remote.udp_port, remote.vni) = (8472, 77);
    remote.hop = Some(hop([FAR_MAC, NEAR_MAC], case.vlan, MTU));
    compiled(&tunnel, NEAR_MAC)
}

proptest! {
    /// `etherparse` reads what was to be written, and calculates the same checksums.
    #[test]
    fn outer_headers_are_sound(case in case(), data: Vec<u8>) {
        let inner = datagram(case.inner_six, case.class, &data);
        let mut frame = Buffer::new(&inner);
        prop_assert_eq!(near(case).encapsulate(VIRTUAL, &mut frame), Ok(UNDERLAY));
        let (sum, inside) = verified(frame.bytes());
        prop_assert_eq!(sum != 0, case.sum);
        prop_assert_eq!(&inside[..8], [8, 0, 0, 0, 0, 0, 77, 0]);
        prop_assert_eq!(&inside[8..], &inner);
        let packet = SlicedPacket::from_ethernet(frame.bytes()).unwrap();
        let tag = packet.link_exts.iter().find_map(|ext| match ext {
            LinkExtSlice::Vlan(tag) => Some(tag.vlan_identifier().value()),
            _ => None,
        });
        prop_assert_eq!(tag.unwrap_or(0), case.vlan);
        prop_assert_eq!(&frame.bytes()[..12], [FAR_MAC, NEAR_MAC].as_flattened());
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("UDP") };
        prop_assert!((50_000..50_010).contains(&udp.source_port()));
        prop_assert_eq!(udp.destination_port(), 8472);
        let class = case.dscp.map_or(case.class & !3, |dscp| dscp << 2) | case.class & 3;
        let ends = [1, 2].map(|last| address(case.six, last));
        match packet.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let ip = ip.header();
                prop_assert_eq!([ip.source_addr(), ip.destination_addr()].map(IpAddr::V4), ends);
                prop_assert_eq!(ip.dcp().value() << 2 | ip.ecn().value(), class);
                prop_assert!(ip.dont_fragment() && ip.identification() == 0 && ip.ttl() == 33);
                prop_assert_eq!(usize::from(ip.total_len()), inner.len() + 36);
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header();
                prop_assert_eq!([ip.source_addr(), ip.destination_addr()].map(IpAddr::V6), ends);
                prop_assert_eq!(ip.traffic_class(), class);
                prop_assert_eq!((ip.hop_limit(), ip.flow_label().value()), (33, 0));
                prop_assert_eq!(usize::from(ip.payload_length()), inner.len() + 16);
            }
            NetSlice::Arp(_) => panic!("IP"),
        }
    }
}

#[test]
fn what_cannot_be_sent_has_a_reason_and_stays_as_it_was() {
    let plain = datagram(false, 0, b"data");
    let to = |mac: [u8; 6]| [&mac[..], &plain[6..]].concat();
    let long = |more: usize| datagram(false, 0, &vec![0; usize::from(MTU) - 36 - 42 + more]);
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    let [near, _] = ends(false, |_| {});
    for (bytes, expected) in [
        (plain.clone(), Ok(UNDERLAY)),
        (to([6, 0, 0, 0, 0, 9]), Err(Reason::VxlanNoRemote)),
        (to([0xff; 6]), Err(Reason::VxlanNoRemote)),
        (to([1, 0, 0x5e, 0, 0, 1]), Err(Reason::VxlanNoRemote)),
        (plain[..13].to_vec(), Err(Reason::Truncated)),
        (tagged, Err(Reason::VxlanTagged)),
        (long(0), Ok(UNDERLAY)),
        (long(1), Err(Reason::VxlanTooLarge)),
    ] {
        let mut frame = Buffer::new(&bytes);
        assert_eq!(near.encapsulate(VIRTUAL, &mut frame), expected);
        assert_eq!(frame.bytes() == bytes, expected.is_err());
    }
    let mut frame = Buffer::new(&plain);
    assert_eq!(near.encapsulate(UNDERLAY, &mut frame), Err(Reason::PortGone));
    frame.start = 49;
    frame.memory.drain(..HEADROOM - 49);
    assert_eq!(near.encapsulate(VIRTUAL, &mut frame), Err(Reason::Headroom));
    let [unresolved, _] = ends(false, |tunnel| tunnel.remotes[0].1.hop = None);
    assert_eq!(unresolved.encapsulate(VIRTUAL, &mut frame), Err(Reason::VxlanUnresolved));
    assert_eq!(frame.bytes(), plain);
}

/// The most that the underlay carries is what its MTU says, in both families.
#[test]
fn the_overhead_is_what_a_frame_grows_by() {
    for (six, expected) in [(false, 50), (true, 70)] {
        let [near, _] = ends(six, |_| {});
        assert_eq!(near.overhead(VIRTUAL), Some(expected));
        assert_eq!(near.overhead(UNDERLAY), None);
        let most = usize::from(MTU) - expected;
        for (length, fits) in [(most, true), (most + 1, false)] {
            let frame = datagram(true, 0, &vec![0; length - 48]);
            let sent = near.encapsulate(VIRTUAL, &mut Buffer::new(&frame));
            assert_eq!(sent.is_ok(), fits, "an IP packet of {length} bytes");
        }
    }
}

/// The UDP source port that a frame is sent with.
fn source_port(tunnels: &Tunnels, inner: &[u8]) -> u16 {
    let mut frame = Buffer::new(inner);
    tunnels.encapsulate(VIRTUAL, &mut frame).unwrap();
    u16::from_be_bytes([frame.bytes()[34], frame.bytes()[35]])
}

#[test]
fn flows_have_ports_of_their_own_and_keep_them() {
    let [near, _] = ends(false, |_| {});
    for six in [false, true] {
        let at = if six { 54 } else { 34 };
        let of = |port: u16, last: u8| {
            let mut frame = datagram(six, 0, b"data");
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            // What changes from packet to packet of a flow makes no difference.
            *frame.last_mut().unwrap() = last;
            frame
        };
        let port = |number: u16| source_port(&near, &of(number, 0));
        let ports: HashSet<_> = (0..2000).map(port).collect();
        assert!(ports.len() > 1800, "{}", ports.len());
        assert!(ports.iter().all(|port| *port >= 49_152));
        assert!((0..9).all(|last| source_port(&near, &of(7, last)) == port(7)));
        let [one, _] = ends(false, |tunnel| tunnel.source_ports = (7, 7));
        assert!((0..99).all(|number| source_port(&one, &of(number, 0)) == 7));
    }
    // The ports of a fragment may be another's data.
    let fragment = |first: u8, port: u8| {
        let mut frame = datagram(false, 0, b"data");
        (frame[20], frame[34]) = (first, port);
        source_port(&near, &frame)
    };
    assert_eq!(fragment(0x20, 1), fragment(0x20, 2));
    assert_ne!(fragment(0, 1), fragment(0, 2));
    // Without an IP packet, the MAC addresses tell flows apart.
    let other = |last| [&TO[..], &[6, 0, 0, 0, 0, last], &[8, 6], &[1; 28]].concat();
    let ports: HashSet<_> = (0..100).map(|last| source_port(&near, &other(last))).collect();
    assert!(ports.len() > 90, "{}", ports.len());
}
