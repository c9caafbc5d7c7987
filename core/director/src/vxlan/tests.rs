//! Both ends of tunnels, over IPv4 and over IPv6; `etherparse` builds and reads the packets.

mod marks;
mod narrow;
mod outcomes;
mod sent;
mod unfinished;

use super::{Outcome, Remote, Tunnel, Tunnels};
use crate::fib::{Hop, PortId};
use crate::frame::{Frame, RxChecksum};
use bytemuck::Zeroable;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sluice_wire::offload::Place;
use sluice_wire::vxlan;
use std::net::IpAddr;

/// The underlay port and the virtual one, at both ends.
const UNDERLAY: PortId = PortId(1);
const VIRTUAL: PortId = PortId(3);
const VNI: u32 = 0x12_3456;
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Of the inner frames' receiver, and of their sender.
const TO: [u8; 6] = [6, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [6, 0, 0, 0, 0, 1];
const MTU: u16 = 1600;
const HEADROOM: usize = 128;

/// A frame in memory that keeps what was removed at the front, as packet buffers do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    received: RxChecksum,
    unfinished: bool,
    segment: u16,
    shim: u8,
}

impl Buffer {
    fn new(bytes: &[u8]) -> Self {
        let memory = [&[0xee; HEADROOM], bytes].concat();
        let received = RxChecksum::default();
        Self { memory, start: HEADROOM, received, unfinished: false, segment: 0, shim: 0 }
    }
}

impl Frame for Buffer {
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
    fn push_front(&mut self, count: usize) -> bool {
        let fits = count <= self.start;
        self.start -= if fits { count } else { 0 };
        fits
    }
    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= self.bytes().len();
        self.start += if fits { count } else { 0 };
        fits
    }
    fn set_len(&mut self, len: usize) -> bool {
        self.memory.resize(self.start + len, 0xdd);
        true
    }
    fn rx_checksum(&self) -> RxChecksum {
        self.received
    }
    fn forget_checksums(&mut self) {
        (self.received, self.unfinished) = (RxChecksum::default(), false);
    }
    fn segment_size(&self) -> u16 {
        self.segment
    }
    fn set_shim(&mut self, bytes: u8) {
        self.shim = bytes;
    }
    fn is_unfinished(&self) -> bool {
        self.unfinished
    }
    fn complete_checksum(&mut self) {
        if std::mem::take(&mut self.unfinished) {
            Place::of(self.bytes()).unwrap().complete_checksum(self.bytes_mut()).unwrap();
        }
    }
}

fn address(six: bool, last: u8) -> IpAddr {
    let text = if six { format!("2001:db8::{last}") } else { format!("192.0.2.{last}") };
    text.parse().unwrap()
}

fn hop(macs: [[u8; 6]; 2], vlan: u16, mtu: u16) -> Hop {
    let mut hop = Hop::zeroed();
    (hop.macs, hop.port, hop.vlan, hop.mtu) = (macs, UNDERLAY, vlan, mtu);
    hop
}

/// The tunnel at one end: that of the sender of inner frames, or that of their receiver.
fn tunnel(six: bool, sends: bool) -> Tunnel {
    let (near, far) = if sends { (1, 2) } else { (2, 1) };
    let macs = if sends { [FAR_MAC, NEAR_MAC] } else { [NEAR_MAC, FAR_MAC] };
    let hop = Some(hop(macs, 0, MTU));
    let remote = Remote { address: address(six, far), udp_port: vxlan::PORT, vni: VNI, hop };
    let mut tunnel = Tunnel::new(VIRTUAL, VNI, address(six, near));
    tunnel.remotes.push((if sends { TO } else { FROM }, remote));
    tunnel
}

fn compiled(tunnel: &Tunnel, mac: [u8; 6]) -> Tunnels {
    Tunnels::new(std::slice::from_ref(tunnel), &[(UNDERLAY, vec![mac])])
}

/// Both ends, with these changes to each tunnel.
fn ends(six: bool, change: impl Fn(&mut Tunnel)) -> [Tunnels; 2] {
    [(true, NEAR_MAC), (false, FAR_MAC)].map(|(sends, mac)| {
        let mut tunnel = tunnel(six, sends);
        change(&mut tunnel);
        compiled(&tunnel, mac)
    })
}

/// An inner frame with a UDP datagram, and a traffic class.
fn datagram(six: bool, class: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let link = PacketBuilder::ethernet2(FROM, TO);
    if six {
        link.ipv6([1; 16], [2; 16], 9).udp(4000, 53).write(&mut bytes, data).unwrap();
        bytes[14] |= class >> 4;
        bytes[15] |= class << 4;
    } else {
        let mut ip = etherparse::Ipv4Header::new(0, 9, 17.into(), [10; 4], [11; 4]).unwrap();
        ip.dscp = (class >> 2).try_into().unwrap();
        ip.ecn = (class & 3).try_into().unwrap();
        link.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .udp(4000, 53)
            .write(&mut bytes, data)
            .unwrap();
    }
    bytes
}

/// A received frame with an inner one, as `etherparse` makes it; over either with a checksum.
fn received(six: bool, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let link = PacketBuilder::ethernet2(NEAR_MAC, FAR_MAC);
    let datagram = match [address(six, 1), address(six, 2)] {
        [IpAddr::V4(from), IpAddr::V4(to)] => link.ipv4(from.octets(), to.octets(), 64),
        [IpAddr::V6(from), IpAddr::V6(to)] => link.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!(),
    };
    datagram.udp(50_000, vxlan::PORT).write(&mut bytes, data).unwrap();
    bytes
}

/// The same with a VXLAN header.
fn tunnelled(six: bool, inner: &[u8]) -> Vec<u8> {
    received(six, &[&vxlan::header(VNI), inner].concat())
}

/// Verifies all checksums of a packet but that of UDP where there is none. Gives the transport's
/// and what is behind it.
fn verified(frame: &[u8]) -> (u16, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("UDP") };
    let header = udp.to_header();
    let expected = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            header.calc_checksum_ipv4(&ip, udp.payload()).unwrap()
        }
        NetSlice::Ipv6(ip) => {
            header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap()
        }
        NetSlice::Arp(_) => panic!("IP"),
    };
    assert!(header.checksum == 0 || header.checksum == expected, "{header:?}");
    (header.checksum, udp.payload().to_vec())
}

/// An inner frame: a datagram, or anything.
fn inner() -> impl Strategy<Value = Vec<u8>> {
    let data = || proptest::collection::vec(any::<u8>(), 0..200);
    let any_frame = (any::<u16>(), data()).prop_map(|(ethertype, data)| {
        let ethertype = if matches!(ethertype, 0x8100 | 0x88a8) { 0x806 } else { ethertype };
        [&TO[..], &FROM, &ethertype.to_be_bytes(), &data].concat()
    });
    // A datagram whose sender does not understand marks keeps its own.
    let datagrams = (any::<bool>(), any::<u8>(), data());
    prop_oneof![
        any_frame,
        datagrams.prop_map(|(six, class, data)| datagram(six, class, &data)),
        Just([&TO[..], &FROM, &[8, 0]].concat()),
    ]
}

proptest! {
    /// What goes in at one end comes out at the other, whatever the inner frame, and outer headers
    /// can be had back.
    #[test]
    fn frames_come_out_as_they_went_in(
        inner in inner(), six: bool, sum: bool, padding in 0usize..9,
    ) {
        let [near, far] = ends(six, |tunnel| {
            (tunnel.udp_checksum, tunnel.udp6_zero, tunnel.accepts_zero_v6) = (sum, !sum, !sum);
        });
        let mut frame = Buffer::new(&inner);
        prop_assert_eq!(near.encapsulate(VIRTUAL, &mut frame), Ok(UNDERLAY));
        let outer = frame.bytes().to_vec();
        prop_assert_eq!(outer.len(), inner.len() + near.overhead(VIRTUAL).unwrap());
        prop_assert_eq!(far.find(UNDERLAY, &outer), Outcome::Inner(VIRTUAL));
        let padded = [&outer, &vec![0; padding][..]].concat();
        let mut frame = Buffer::new(&padded);
        prop_assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
        prop_assert_eq!(frame.bytes(), &inner);
        prop_assert!(far.restore(VIRTUAL, &mut frame));
        prop_assert_eq!(frame.bytes(), &outer);
    }

    /// The same for what somebody else sent.
    #[test]
    fn packets_of_others_come_out_and_can_be_had_back(inner in inner(), six: bool) {
        let [_, far] = ends(six, |_| {});
        // Not-ECT outside: no mark changes.
        let outer = tunnelled(six, &inner);
        let mut frame = Buffer::new(&outer);
        prop_assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
        prop_assert_eq!(frame.bytes(), &inner);
        prop_assert!(far.restore(VIRTUAL, &mut frame));
        prop_assert_eq!(frame.bytes(), &outer);
    }

    /// Nothing makes it fail, and what is not a tunnel's is left as it was.
    #[test]
    fn damage_is_survived(
        inner in inner(), six: bool, cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        (front, sum) in any::<(bool, bool)>(),
    ) {
        let [near, far] = ends(six, |tunnel| tunnel.udp_checksum = true);
        let mut outer = tunnelled(six, &inner);
        if !six && !sum {
            outer[40..42].fill(0);
        }
        for (at, value) in changes {
            let at = at.index(if front { 80.min(outer.len()) } else { outer.len() });
            outer[at] = value;
        }
        outer.truncate(cut.index(2 * outer.len()));
        let mut frame = Buffer::new(&outer);
        let before = frame.clone();
        let found = far.find(UNDERLAY, &outer);
        // The usual case is told in its own way, which must be the general one's.
        let mut general = frame.clone();
        let by_general = far.decapsulate_any(UNDERLAY, &mut general);
        let mut usual = frame.clone();
        prop_assert_eq!(far.decapsulate(UNDERLAY, &mut usual), by_general);
        prop_assert_eq!(&usual, &general);
        match far.decapsulate(UNDERLAY, &mut frame) {
            Outcome::Inner(port) => {
                prop_assert_eq!((port, found), (VIRTUAL, Outcome::Inner(VIRTUAL)));
                prop_assert!(far.restore(VIRTUAL, &mut frame));
            }
            outcome => {
                prop_assert_eq!(&frame, &before);
                let judged = [Outcome::Drop(crate::Reason::VxlanChecksum),
                              Outcome::Drop(crate::Reason::VxlanEcn)];
                prop_assert!(outcome == found || judged.contains(&outcome));
            }
        }
        let mut frame = Buffer::new(&outer);
        let _ = near.restore(VIRTUAL, &mut frame);
        let _ = near.encapsulate(VIRTUAL, &mut frame);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        for six in [false, true] {
            let [near, far] = ends(six, |_| {});
            let mut frame = Buffer::new(&bytes);
            prop_assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::NotTunnelled);
            prop_assert!(!far.restore(VIRTUAL, &mut frame));
            prop_assert_eq!(&frame, &Buffer::new(&bytes));
            prop_assert!(near.encapsulate(VIRTUAL, &mut frame).is_err());
            prop_assert_eq!(&frame, &Buffer::new(&bytes));
        }
    }
}
