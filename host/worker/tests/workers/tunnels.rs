//! A network over VXLAN: what leaves in a tunnel and what comes out of one, who is believed, and
//! what the kernel gets.

use crate::memory::{
    BLUE_TUNNEL, CLIENT, FRONT, Kit, LOCAL, MemFrame, REAL, VIP, VNI, VTEP, addresses, udp,
};
use etherparse::PacketBuilder;
use sluice_director::fib::PortId;
use sluice_director::spec::NetworkId;
use sluice_director::{Frame, Reason};
use sluice_worker::Event;

const BLUE_FRONT: PortId = PortId(2);
const RED_FRONT: PortId = PortId(4);
const BLUE: NetworkId = NetworkId(1);

/// A frame in a tunnel, by another's packet builder (RFC 7348 5).
fn tunnelled(from: [u8; 4], vni: u32, inner: &[u8]) -> MemFrame {
    let mut data = vec![8, 0, 0, 0];
    data.extend((vni << 8).to_be_bytes());
    data.extend(inner);
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(from, VTEP, 64);
    builder.udp(50_000, 4789).write(&mut bytes, &data).unwrap();
    MemFrame::new(&bytes)
}

/// What is in a frame that left in a tunnel: its identifier, and the frame inside.
fn inside(frame: &MemFrame) -> (u32, MemFrame) {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame.bytes()).unwrap();
    let Some(etherparse::TransportSlice::Udp(datagram)) = sliced.transport else {
        panic!("no UDP")
    };
    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("no IPv4") };
    let ip = ip.header().to_header();
    assert_eq!((ip.source, ip.destination), (VTEP, CLIENT));
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert!(ip.dont_fragment && datagram.source_port() >= 49_152);
    assert_eq!((datagram.destination_port(), datagram.checksum()), (4789, 0));
    let data = datagram.payload();
    assert_eq!((data[0], &data[1..4], data[7]), (8, &[0; 3][..], 0));
    let vni = u32::from_be_bytes([0, data[4], data[5], data[6]]);
    (vni, MemFrame::new(&data[8..]))
}

/// A session of blue to a real server behind the tunnel; its local port.
fn open(kit: &mut Kit) -> u16 {
    kit.put(0, BLUE_FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.settle();
    let sent = kit.sent(0, FRONT);
    assert_eq!(sent.len(), 1, "by the underlay");
    assert_eq!(sent[0].bytes()[..6], [2, 0, 0, 0, 1, 48], "to the remote's MAC address");
    let (vni, inner) = inside(&sent[0]);
    assert_eq!(vni, VNI);
    let (from, to) = addresses(&inner);
    assert_eq!((from.0, to), (LOCAL, (REAL, 53)));
    assert_eq!(inner.bytes()[..6], [2, 0, 0, 0, 1, 11], "to the real server's MAC address");
    from.1
}

fn answer(local: u16) -> Vec<u8> {
    udp((REAL, 53), (LOCAL, local)).bytes().to_vec()
}

fn nothing_left(kit: &mut Kit) {
    for port in [0, 1, 2, 4, 5].map(PortId) {
        assert!(kit.sent(0, port).is_empty(), "{port:?}");
    }
}

#[test]
fn there_and_back_over_a_tunnel() {
    let mut kit = Kit::with_tunnel(1);
    let local = open(&mut kit);
    // Beside frames of other kinds in one burst.
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 22)));
    kit.put(0, FRONT, tunnelled(CLIENT, VNI, &answer(local)));
    kit.put(0, FRONT, udp((CLIENT, 4001), (VIP, 53)));
    kit.settle();
    let answers = kit.sent(0, BLUE_FRONT);
    assert_eq!(answers.len(), 1);
    assert_eq!(addresses(&answers[0]), ((VIP, 53), (CLIENT, 4000)));
    assert_eq!(kit.sent(0, PortId(1)).len(), 1, "the default network's service goes on");
}

#[test]
fn two_workers_find_a_session_behind_a_tunnel() {
    let mut kit = Kit::with_tunnel(2);
    let local = open(&mut kit);
    for worker in 0..2 {
        kit.put(worker, FRONT, tunnelled(CLIENT, VNI, &answer(local)));
        kit.settle();
        let answers: Vec<_> = (0..2).flat_map(|worker| kit.sent(worker, BLUE_FRONT)).collect();
        assert_eq!(answers.len(), 1, "received by worker {worker}");
    }
}

#[test]
fn only_a_remote_is_believed() {
    let mut kit = Kit::with_tunnel(1);
    let local = open(&mut kit);
    kit.put(0, FRONT, tunnelled([198, 51, 100, 99], VNI, &answer(local)));
    kit.settle();
    nothing_left(&mut kit);
    assert_eq!(kit.counted(0, Reason::VxlanPeer), 1);
}

/// Whoever is in red, or is a client of blue, cannot put frames into blue: only what comes by the
/// underlay is taken for a tunnel's.
#[test]
fn no_network_speaks_for_the_underlay() {
    let mut kit = Kit::with_tunnel(1);
    let local = open(&mut kit);
    for port in [RED_FRONT, BLUE_FRONT, PortId(1)] {
        kit.put(0, port, tunnelled(CLIENT, VNI, &answer(local)));
        kit.settle();
        nothing_left(&mut kit);
    }
    let blue = kit.workers[0].path_of(BLUE).unwrap().counters();
    assert_eq!(blue.reals.iter().map(|real| real.packets[1]).sum::<u64>(), 0);
}

/// The kernel's devices answer ARP, and have networks of their own: they get what was received,
/// byte for byte.
#[test]
fn the_kernel_gets_what_is_its_with_the_outer_headers() {
    let mut kit = Kit::with_tunnel(1);
    let mut arp = [[2; 6], [0x0a; 6]].concat();
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(42, 0);
    let other_vni = tunnelled(CLIENT, VNI + 1, &answer(1024));
    let arp = tunnelled(CLIENT, VNI, &arp);
    let gateway = tunnelled(CLIENT, VNI, udp((REAL, 1), ([192, 0, 2, 1], 22)).bytes());
    for frame in [&arp, &other_vni, &gateway] {
        kit.put(0, FRONT, frame.clone());
    }
    kit.settle();
    let twin = kit.sent_by_twin(0, FRONT);
    for frame in [arp, other_vni, gateway] {
        assert!(twin.contains(&frame));
    }
    assert_eq!((twin.len(), kit.counted(0, Reason::VxlanVni)), (3, 1));
    nothing_left(&mut kit);
}

#[test]
fn a_network_without_its_tunnel_drops() {
    let mut kit = Kit::with_networks(1);
    kit.put(0, FRONT, tunnelled(CLIENT, VNI, &answer(1024)));
    kit.settle();
    nothing_left(&mut kit);
    assert!(kit.workers[0].path_of(BLUE).unwrap().counters().reasons.iter().all(|n| *n == 0));
    assert_eq!(BLUE_TUNNEL, PortId(3));
}

/// An error of a router about a packet that this end has sent.
fn too_large(mtu: u16, quote: &[u8]) -> MemFrame {
    let kind = etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
    let kind = etherparse::Icmpv4Type::DestinationUnreachable(kind);
    let link = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4([203, 0, 113, 9], VTEP, 60);
    let mut bytes = Vec::new();
    link.icmpv4(kind).write(&mut bytes, quote).unwrap();
    MemFrame::new(&bytes)
}

/// The control side is told of a path's MTU, once for many errors, and only if the network would
/// send a frame as the one that is quoted. The kernel gets the errors, too: it has packets of its
/// own in the tunnel.
#[test]
fn a_path_mtu_is_told_if_the_network_sends_such_frames() {
    let mut kit = Kit::with_tunnel(1);
    let mut large = Vec::new();
    let client = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(CLIENT, VIP, 64);
    client.udp(4000, 53).write(&mut large, &[7; 1000]).unwrap();
    kit.put(0, BLUE_FRONT, MemFrame::new(&large));
    kit.settle();
    let sent = kit.sent(0, FRONT);
    let quote = sent[0].bytes()[14..].to_vec();
    while kit.events.try_recv().is_ok() {}
    // The inner frame begins behind 36 bytes: its receiver, its sender, and the IP header.
    for (what, at) in [("receiver", 36), ("sender", 42), ("address", 36 + 14 + 16)] {
        let mut forged = quote.clone();
        forged[at] ^= 2;
        kit.put(0, FRONT, too_large(900, &forged));
        kit.settle();
        assert!(kit.events.try_recv().is_err(), "another {what}");
    }
    kit.sent_by_twin(0, FRONT);
    for _ in 0..3 {
        kit.put(0, FRONT, too_large(900, &quote));
    }
    kit.settle();
    assert_eq!(kit.events.try_recv(), Ok(Event::PathMtu(CLIENT.into(), 900)));
    assert!(kit.events.try_recv().is_err(), "once for all");
    assert_eq!(kit.sent_by_twin(0, FRONT).len(), 3);
    nothing_left(&mut kit);
}
