//! Datagrams in fragments, in every mode and order: cut, put together and judged by `etherparse`.

use super::lab::{BACK, FRONT, MemFrame};
use crate::blueprint::{
    Blueprint, ClientAddress, LocalPool, Mode, Network, Ports, Protocol, RealServer, SnatRule,
    TunnelSources, VirtualService,
};
use crate::fib::{Fib, FibBuilder, Link, PortId, Target};
use crate::frame::Frame;
use crate::path::{BURST, PagePolicy, Parked, Parking, Path, PathConfig, Verdict, View};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::time::Time;
use etherparse::defrag::IpDefragPool;
use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, NetSlice, PacketBuilder,
    SlicedPacket, UdpHeader,
};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

const MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The ends of one family.
struct Ends {
    client: &'static str,
    vip: &'static str,
    real: &'static str,
    local: &'static str,
    tunnel: &'static str,
}

const V4: Ends = Ends {
    client: "198.51.100.48:4000",
    vip: "198.51.100.200:53",
    real: "192.0.2.11:5353",
    local: "192.0.2.10",
    tunnel: "192.0.2.9",
};

const V6: Ends = Ends {
    client: "[2001:db8:1::48]:4000",
    vip: "[2001:db8:1::200]:53",
    real: "[2001:db8:2::11]:5353",
    local: "2001:db8:2::10",
    tunnel: "2001:db8:2::9",
};

fn blueprint(mode: Mode, vip: SocketAddr, real: SocketAddr) -> Blueprint {
    let host = |address: &str| Network {
        address: ip(address),
        prefix: if ip(address).is_ipv4() { 32 } else { 128 },
    };
    Blueprint {
        services: vec![VirtualService {
            name: "dns".into(),
            protocol: Protocol::Udp,
            vip: vip.ip(),
            ports: Ports::one(vip.port()),
            mode,
            pool: "lan".into(),
            reals: vec![RealServer {
                address: real.ip(),
                port: real.port(),
                ..RealServer::default()
            }],
            ..VirtualService::default()
        }],
        pools: vec![LocalPool {
            name: "lan".into(),
            addresses: vec![ip(V4.local), ip(V6.local)],
            ports: 1024..=65535,
        }],
        tunnel: TunnelSources { v4: Some(host(V4.tunnel)), v6: Some(host(V6.tunnel)) },
        ..Blueprint::default()
    }
}

/// A director, its surroundings, and what it has given back to wait.
struct Field {
    path: Path,
    plan: Plan,
    fib: Fib,
    now: Time,
    parking: Parking<(usize, MemFrame)>,
    /// What became of each frame, by the number it was sent in under.
    done: Vec<(usize, Verdict, MemFrame)>,
}

impl Field {
    fn new(blueprint: &Blueprint) -> Self {
        Self::with(blueprint, (0, 1), 64)
    }

    fn with(blueprint: &Blueprint, (worker, workers): (u16, u16), fragments: u32) -> Self {
        let plan = Plan::compile(blueprint, None, &Retired::default()).unwrap();
        let (seed, pages) = (7, PagePolicy::Ordinary);
        let config = PathConfig { worker, workers, sessions: 100, fragments, seed, pages };
        let mut path = Path::new(&config).unwrap();
        path.adopt(&plan);
        let (fib, now) = (fib(&plan), Time(5_000_000));
        Self { path, plan, fib, now, parking: Parking::new(), done: Vec::new() }
    }

    fn adopt(&mut self, blueprint: &Blueprint) {
        self.plan = Plan::compile(blueprint, Some(&self.plan), &Retired::default()).unwrap();
        self.fib = fib(&self.plan);
        self.path.adopt(&self.plan);
    }

    fn turn(&mut self, port: PortId, frames: &mut [MemFrame]) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Wait; frames.len()];
        let view = View { plan: &self.plan, fib: &self.fib };
        self.path.turn(view, self.now, port, frames, &mut verdicts);
        verdicts
    }

    fn one(&mut self, port: PortId, frame: &MemFrame) -> Verdict {
        self.turn(port, &mut [frame.clone()])[0]
    }

    /// Turns frames that arrive together, and all that waited for one of them, as a worker does.
    fn drive(&mut self, port: PortId, numbered: Vec<(usize, MemFrame)>) {
        let since = self.now;
        self.settle(port, numbered.into_iter().map(|frame| (frame, since)).collect());
        let joined = self.path.joined().to_vec();
        let mut again = Vec::new();
        while let Some(parked) = self.parking.take(&joined, Some(port)) {
            again.push((parked.frame, parked.since));
        }
        self.settle(port, again);
    }

    fn settle(&mut self, port: PortId, frames: Vec<((usize, MemFrame), Time)>) {
        let mut burst: Vec<_> = frames.iter().map(|((_, frame), _)| frame.clone()).collect();
        let verdicts = self.turn(port, &mut burst);
        for ((((number, was), since), is), verdict) in frames.into_iter().zip(burst).zip(verdicts) {
            match verdict {
                Verdict::Park(datagram) => {
                    assert_eq!(was, is, "what waits is left as it was");
                    let parked = Parked { frame: (number, is), port, datagram, since };
                    if let Err(reason) = self.parking.park(parked) {
                        self.path.count(reason);
                        self.done.push((number, Verdict::Drop(reason), was));
                    }
                }
                verdict => self.done.push((number, verdict, is)),
            }
        }
    }

    /// Sends pieces in, one after the other, in this order; gives all that left, in their order.
    fn through(&mut self, port: PortId, pieces: &[MemFrame], order: &[usize]) -> Vec<MemFrame> {
        for number in order {
            self.drive(port, vec![(*number, pieces[*number].clone())]);
        }
        let to = if port == FRONT { BACK } else { FRONT };
        let done = self.done.drain(..);
        let sent = done.map(|(_, verdict, frame)| {
            assert_eq!(verdict, Verdict::Tx(to));
            frame
        });
        sent.collect()
    }
}

fn fib(plan: &Plan) -> Fib {
    let mut builder = FibBuilder::default();
    let link = |port, mtu| Link { port, mac: MAC, mtu, ..Link::default() };
    let (front, back) = (builder.link(link(FRONT, 1500)), builder.link(link(BACK, 1500)));
    for (ends, net, bits) in
        [(&V4, ["198.51.100.0", "192.0.2.0"], 24), (&V6, ["2001:db8:1::", "2001:db8:2::"], 64)]
    {
        builder.route(ip(net[0]), bits, Target::OnLink(front));
        builder.route(ip(net[1]), bits, Target::OnLink(back));
        builder.neighbour(front, at(ends.client).ip(), [2, 0, 0, 0, 1, 48]);
        builder.neighbour(back, at(ends.real).ip(), [2, 0, 0, 0, 1, 11]);
    }
    builder.build(plan, None)
}

/// A whole IP packet with a UDP datagram.
fn datagram(from: SocketAddr, to: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 64)
            .udp(from.port(), to.port())
            .write(&mut bytes, data),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 64)
            .udp(from.port(), to.port())
            .write(&mut bytes, data),
        _ => panic!("one family"),
    }
    .unwrap();
    bytes
}

/// A packet in fragments, cut behind these octets of its payload, each in a frame.
fn cut(packet: &[u8], places: &[usize], id: u32) -> Vec<MemFrame> {
    let head = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let payload = &packet[head..];
    let starts = std::iter::once(0).chain(places.iter().copied());
    let ends = places.iter().copied().chain([payload.len()]);
    let pieces = starts.zip(ends).map(|(start, end)| {
        let (offset, more) =
            (IpFragOffset::try_new((start / 8) as u16).unwrap(), end < payload.len());
        let mut frame = [[4u8; 6], [6; 6]].concat();
        if head == 20 {
            let mut header = Ipv4Header::from_slice(packet).unwrap().0;
            header.set_payload_len(end - start).unwrap();
            (header.identification, header.dont_fragment) = (id as u16, false);
            (header.fragment_offset, header.more_fragments) = (offset, more);
            header.header_checksum = header.calc_header_checksum();
            frame.extend([8, 0]);
            header.write(&mut frame).unwrap();
        } else {
            let mut header = Ipv6Header::from_slice(packet).unwrap().0;
            let next =
                std::mem::replace(&mut header.next_header, IpNumber::IPV6_FRAGMENTATION_HEADER);
            header.set_payload_length(8 + end - start).unwrap();
            frame.extend([0x86, 0xdd]);
            header.write(&mut frame).unwrap();
            Ipv6FragmentHeader::new(next, offset, more, id).write(&mut frame).unwrap();
        }
        frame.extend(&payload[start..end]);
        MemFrame::new(&frame)
    });
    pieces.collect()
}

/// What `etherparse` puts together from IP packets: where it came from and went to, and its data.
/// Asserts the header checksums, the hops and the checksum of the whole.
fn together(packets: &[Vec<u8>], hops: u8) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut whole = None;
    let mut ends = None;
    for packet in packets {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let (from, to, ttl): (IpAddr, IpAddr, u8) = match sliced.net.as_ref().unwrap() {
            NetSlice::Ipv4(net) => {
                let ip = net.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                (ip.source.into(), ip.destination.into(), ip.time_to_live)
            }
            NetSlice::Ipv6(net) => {
                let ip = net.header().to_header();
                (ip.source.into(), ip.destination.into(), ip.hop_limit)
            }
            NetSlice::Arp(_) => panic!("ARP"),
        };
        assert_eq!(ttl, hops);
        assert_eq!(*ends.get_or_insert((from, to)), (from, to));
        whole = whole.or(pool.process_sliced_packet(&sliced, (), ()).unwrap());
    }
    let payload = whole.expect("not whole").payload;
    let (udp, data) = UdpHeader::from_slice(&payload).unwrap();
    let sum = match ends.unwrap() {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            udp.calc_checksum_ipv4_raw(from.octets(), to.octets(), data)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            udp.calc_checksum_ipv6_raw(from.octets(), to.octets(), data)
        }
        _ => panic!("one family"),
    };
    assert_eq!(udp.checksum, sum.unwrap(), "UDP checksum");
    let (from, to) = ends.unwrap();
    (
        SocketAddr::new(from, udp.source_port),
        SocketAddr::new(to, udp.destination_port),
        data.to_vec(),
    )
}

fn packets(frames: &[MemFrame]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.bytes()[14..].to_vec()).collect()
}

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Three fragments in all orders, both families, every mode of a service; the real server's side
/// puts together what was sent.
#[test]
fn three_fragments_in_every_order_and_mode() {
    for ends in [V4, V6] {
        let (client, vip, real) = (at(ends.client), at(ends.vip), at(ends.real));
        for mode in [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip] {
            for order in ORDERS {
                let mut field = Field::new(&blueprint(mode, vip, real));
                let pieces = cut(&datagram(client, vip, &data(3000)), &[1200, 2400], 77);
                let sent = field.through(FRONT, &pieces, &order);
                assert_eq!(sent.len(), 3, "{mode:?} {order:?}");
                for frame in &sent {
                    assert_eq!(frame.bytes()[..12], [[2, 0, 0, 0, 1, 11], MAC].concat());
                }
                let mut packets = packets(&sent);
                if mode == Mode::Ipip {
                    for packet in &mut packets {
                        let outer = if packet[0] >> 4 == 4 { 20 } else { 40 };
                        packet.drain(..outer);
                    }
                }
                let source =
                    if mode == Mode::Fnat { (ip(ends.local), 1024).into() } else { client };
                let to = if matches!(mode, Mode::Dr | Mode::Ipip) { vip } else { real };
                assert_eq!(together(&packets, 63), (source, to, data(3000)), "{mode:?} {order:?}");
                assert_eq!(field.path.live_sessions(), 1);
                let counted = field.path.counters().reals[0].packets;
                assert_eq!((counted, field.parking.len()), ([3, 0], 0));
            }
        }
    }
}

/// Answers in fragments find their session, in all orders.
#[test]
fn answers_in_fragments() {
    for ends in [V4, V6] {
        let (client, vip, real) = (at(ends.client), at(ends.vip), at(ends.real));
        for mode in [Mode::Fnat, Mode::Nat] {
            for order in ORDERS {
                let mut field = Field::new(&blueprint(mode, vip, real));
                let asked = cut(&datagram(client, vip, b"question of two"), &[16], 5);
                field.through(FRONT, &asked, &[0, 1]);
                let to = if mode == Mode::Fnat { (ip(ends.local), 1024).into() } else { client };
                let pieces = cut(&datagram(real, to, &data(2000)), &[800, 1600], 5);
                let sent = field.through(BACK, &pieces, &order);
                assert_eq!(together(&packets(&sent), 63), (vip, client, data(2000)));
                assert_eq!(field.path.counters().reals[0].packets, [2, 3]);
            }
        }
    }
}

/// Source NAT: both directions, both families, and what is not for the rule stays the kernel's.
#[test]
fn the_outside_in_fragments() {
    for (ends, pool) in [(V4, "198.51.100.9"), (V6, "2001:db8:1::9")] {
        let sources = [("192.0.2.0", 24), ("2001:db8:2::", 64)];
        let rule = SnatRule {
            name: "out".into(),
            sources: sources.map(|(net, prefix)| Network { address: ip(net), prefix }).into(),
            pool: "wan".into(),
            ..SnatRule::default()
        };
        let addresses = vec![ip("198.51.100.9"), ip("2001:db8:1::9")];
        let pools = vec![LocalPool { name: "wan".into(), addresses, ports: 2000..=2999 }];
        let mut field = Field::new(&Blueprint { snat: vec![rule], pools, ..Blueprint::default() });
        let (inside, outside) = (at(ends.real), at(ends.client));
        let pooled = SocketAddr::new(ip(pool), 2000);
        let pieces = cut(&datagram(inside, outside, &data(1500)), &[800], 9);
        let sent = field.through(BACK, &pieces, &[1, 0]);
        assert_eq!(together(&packets(&sent), 63), (pooled, outside, data(1500)));
        let pieces = cut(&datagram(outside, pooled, &data(1500)), &[800], 9);
        let sent = field.through(FRONT, &pieces, &[1, 0]);
        assert_eq!(together(&packets(&sent), 63), (outside, inside, data(1500)));
        for stranger in cut(&datagram(outside, inside, &data(1500)), &[800], 10) {
            assert_eq!(field.one(FRONT, &stranger), Verdict::Kernel(Reason::NotOurs));
        }
    }
}

/// A record lasts half a minute for IPv4 and a whole one for IPv6; then its fragments wait in vain.
#[test]
fn records_have_their_time() {
    for (ends, seconds) in [(V4, 30), (V6, 60)] {
        let (client, vip) = (at(ends.client), at(ends.vip));
        let mut field = Field::new(&blueprint(Mode::Fnat, vip, at(ends.real)));
        let pieces = cut(&datagram(client, vip, &data(2000)), &[800, 1600], 1);
        assert_eq!(field.one(FRONT, &pieces[0]), Verdict::Tx(BACK));
        assert_eq!(field.path.joined().len(), 1);
        field.now.0 += seconds * 1000 - 1;
        assert_eq!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
        assert!(field.path.joined().is_empty());
        field.now.0 += 1;
        assert!(matches!(field.one(FRONT, &pieces[2]), Verdict::Park(_)));
    }
}

/// The table is full: the datagram that came first gives way; the latest never does.
#[test]
fn a_full_table_forgets_the_oldest() {
    let mut field = Field::with(&blueprint(Mode::Fnat, at(V4.vip), at(V4.real)), (0, 1), 4);
    let of = |id| cut(&datagram(at(V4.client), at(V4.vip), &data(1000)), &[800], id);
    for id in 0..5 {
        field.now.0 += 1;
        assert_eq!(field.one(FRONT, &of(id)[0]), Verdict::Tx(BACK));
    }
    assert!(matches!(field.one(FRONT, &of(0)[1]), Verdict::Park(_)));
    for id in 1..5 {
        assert_eq!(field.one(FRONT, &of(id)[1]), Verdict::Tx(BACK), "{id}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_reason() {
    let (client, vip, real) = (at(V4.client), at(V4.vip), at(V4.real));
    let pieces = cut(&datagram(client, vip, &data(1000)), &[800], 1);
    // Every piece gets what the first got.
    let both = |blueprint: &Blueprint, pieces: &[MemFrame], reason| {
        let mut field = Field::new(blueprint);
        for piece in pieces {
            assert_eq!(field.one(FRONT, piece), Verdict::Drop(reason), "{reason:?}");
        }
        assert_eq!(field.path.counters().of(reason), pieces.len() as u64);
    };
    let across = blueprint(Mode::Fnat, vip, at(V6.real));
    both(&across, &pieces, Reason::Untranslatable);
    let mut told = blueprint(Mode::Fnat, vip, real);
    told.services[0].client_address = ClientAddress::ProxyV2;
    both(&told, &pieces, Reason::Fragment);
    let mut nobody = blueprint(Mode::Fnat, vip, real);
    nobody.services[0].reals.clear();
    both(&nobody, &pieces, Reason::NoReal);
    let mut sctp = blueprint(Mode::Fnat, vip, real);
    sctp.services[0].protocol = Protocol::Sctp;
    let patched = |protocol: u8, length: usize| {
        let mut packet = datagram(client, vip, &data(1000));
        packet[9] = protocol;
        cut(&packet, &[length], 1)
    };
    both(&sctp, &patched(132, 800), Reason::Fragment);
    let mut tcp = blueprint(Mode::Fnat, vip, real);
    tcp.services[0].protocol = Protocol::Tcp;
    both(&tcp, &patched(6, 16), Reason::TinyFragment);
}

/// To nobody here: the kernel's, first or later; ICMP to the VIP and what no service takes too.
#[test]
fn strangers_fragments_are_the_kernels() {
    let mut field = Field::new(&blueprint(Mode::Nat, at(V4.vip), at(V4.real)));
    let kernel = Verdict::Kernel(Reason::NotOurs);
    for to in ["198.51.100.77:53", "192.0.2.99:53"] {
        for piece in cut(&datagram(at(V4.client), at(to), &data(1000)), &[800], 1) {
            assert_eq!(field.one(FRONT, &piece), kernel);
        }
    }
    let mut ping = datagram(at(V4.client), at(V4.vip), &data(1000));
    ping[9] = 1;
    for piece in cut(&ping, &[400, 800], 2).iter().rev() {
        assert_eq!(field.one(FRONT, piece), kernel, "the kernel puts it together itself");
    }
    let other_port = SocketAddr::new(at(V4.vip).ip(), 54);
    let pieces = cut(&datagram(at(V4.client), other_port, &data(1000)), &[800], 3);
    assert!(matches!(field.one(FRONT, &pieces[1]), Verdict::Park(_)), "not known yet");
    assert_eq!((field.one(FRONT, &pieces[0]), field.one(FRONT, &pieces[1])), (kernel, kernel));
    // What comes from a real server that NAT reaches may be an answer.
    let answer = cut(&datagram(at(V4.real), at(V4.client), &data(1000)), &[800], 4);
    assert!(matches!(field.one(BACK, &answer[1]), Verdict::Park(_)));
}

/// The records of a plan hold in the next one, unless the real server is gone.
#[test]
fn records_outlive_a_reload_and_not_their_real_server() {
    let plan = blueprint(Mode::Fnat, at(V4.vip), at(V4.real));
    let mut field = Field::new(&plan);
    let pieces = cut(&datagram(at(V4.client), at(V4.vip), &data(3000)), &[800, 1600], 1);
    assert_eq!(field.one(FRONT, &pieces[0]), Verdict::Tx(BACK));
    field.adopt(&plan);
    assert_eq!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
    let mut other = plan.clone();
    other.services[0].reals[0].address = ip("192.0.2.12");
    other.services[0].on_removed = crate::blueprint::Orphans::Reset;
    field.adopt(&other);
    assert_eq!(field.one(FRONT, &pieces[2]), Verdict::Drop(Reason::RealGone));
    // Another real server gets the id.
    let first = Retired { reals: [crate::plan::RealId(0)].into(), ..Retired::default() };
    let known = other.services[0].reals[0].clone();
    other.services[0].reals.push(RealServer { address: ip("192.0.2.13"), ..known });
    field.plan = Plan::compile(&other, Some(&field.plan), &first).unwrap();
    assert_eq!(field.plan.reals[0].address, ip("192.0.2.13"), "the id was given anew");
    field.path.adopt(&field.plan);
    assert!(matches!(field.one(FRONT, &pieces[2]), Verdict::Park(_)));
}

/// The answer to another worker's local port goes there with all its fragments.
#[test]
fn fragments_go_where_the_first_was_handed() {
    let mut plan = blueprint(Mode::Fnat, at(V4.vip), at(V4.real));
    plan.pools[0].ports = 1000..=1999;
    let mut field = Field::with(&plan, (0, 2), 64);
    let answer = |port, id| {
        let local = SocketAddr::new(ip(V4.local), port);
        cut(&datagram(at(V4.real), local, &data(2000)), &[800, 1600], id)
    };
    let theirs = answer(1700, 1);
    assert!(matches!(field.one(BACK, &theirs[2]), Verdict::Park(_)));
    for piece in &theirs {
        assert_eq!(field.one(BACK, piece), Verdict::HandOff(1));
    }
    assert_eq!(field.path.counters().handed_off, 3);
    let ours = answer(1200, 2);
    assert_eq!(field.one(BACK, &ours[0]), Verdict::Drop(Reason::NoSession));
    assert_eq!(field.one(BACK, &ours[1]), Verdict::Drop(Reason::NoSession));
    field.adopt(&plan);
    let later = field.one(BACK, &theirs[1]);
    assert!(matches!(later, Verdict::Park(_)), "who owns it may have changed: {later:?}");
}

/// A later fragment with its time to live used up or too large is refused as any packet.
#[test]
fn limits_hold_for_each_fragment() {
    let mut field = Field::new(&blueprint(Mode::Ipip, at(V4.vip), at(V4.real)));
    let pieces = cut(&datagram(at(V4.client), at(V4.vip), &data(2992)), &[1480], 1);
    let first = field.one(FRONT, &pieces[0]);
    assert_ne!(first, Verdict::Tx(BACK), "20 bytes longer than the way allows");
    assert_ne!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
    assert_eq!(field.path.live_sessions(), 1);
    let mut old = datagram(at(V4.client), at(V4.vip), &data(1000));
    let fresh = cut(&old, &[800], 2);
    old[8] = 1;
    assert_eq!(field.one(FRONT, &fresh[0]), Verdict::Tx(BACK));
    assert_ne!(field.one(FRONT, &cut(&old, &[800], 2)[1]), Verdict::Tx(BACK));
    assert_eq!(field.path.counters().of(Reason::TtlExpired), 1);
}

/// A piece of one of few datagrams, whose identification says which flow it is of.
fn any_piece() -> impl Strategy<Value = (bool, u32, usize)> {
    (any::<bool>(), 0u32..6, 0usize..3)
}

fn piece_of((v6, id, number): (bool, u32, usize)) -> MemFrame {
    let ends = if v6 { &V6 } else { &V4 };
    let client = SocketAddr::new(at(ends.client).ip(), 4000 + id as u16 % 4);
    cut(&datagram(client, at(ends.vip), &data(1000)), &[400, 800], id)[number].clone()
}

fn both_families(mode: Mode) -> Blueprint {
    let mut both = blueprint(mode, at(V4.vip), at(V4.real));
    let mut other = blueprint(mode, at(V6.vip), at(V6.real)).services.remove(0);
    other.name = "dns6".into();
    both.services.push(other);
    both
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The path alone: a burst gives, fragment by fragment, what they one at a time give, those
    /// that are given back to be parked included.
    #[test]
    fn a_burst_of_fragments_equals_one_at_a_time(
        picks in proptest::collection::vec(any_piece(), 1..120),
    ) {
        let plan = both_families(Mode::Fnat);
        let (mut single, mut staged) = (Field::new(&plan), Field::new(&plan));
        for burst in picks.chunks(47) {
            let frames: Vec<_> = burst.iter().map(|pick| piece_of(*pick)).collect();
            let mut alone = frames.clone();
            let verdicts: Vec<_> =
                alone.iter_mut().map(|f| single.turn(FRONT, std::slice::from_mut(f))[0]).collect();
            let mut together = frames;
            prop_assert_eq!(staged.turn(FRONT, &mut together), verdicts);
            prop_assert_eq!(together, alone);
            single.now.0 += 9000;
            staged.now.0 += 9000;
        }
        prop_assert_eq!(single.path.counters(), staged.path.counters());
    }

    /// The path and who parks for it: each frame ends once, in the same way, with the same bytes,
    /// whether its burst was turned as one or frame by frame. This is true since the first
    /// fragments of one datagram all decide alike here; how early one is turned again within a
    /// burst, which differs, is then no difference for what becomes of it.
    #[test]
    fn parked_fragments_end_once_and_alike(
        picks in proptest::collection::vec(any_piece(), 1..120),
        mode in prop_oneof![Just(Mode::Fnat), Just(Mode::Nat), Just(Mode::Dr)],
    ) {
        let plan = both_families(mode);
        let (mut single, mut staged) = (Field::new(&plan), Field::new(&plan));
        let numbered: Vec<_> =
            picks.iter().enumerate().map(|(number, pick)| (number, piece_of(*pick))).collect();
        for burst in numbered.chunks(BURST - 17) {
            staged.drive(FRONT, burst.to_vec());
            burst.iter().for_each(|frame| single.drive(FRONT, vec![frame.clone()]));
            for field in [&mut single, &mut staged] {
                field.now.0 += 300;
                while let Some(parked) = field.parking.give_up(field.now) {
                    let (number, frame) = parked.frame;
                    field.done.push((number, Verdict::Drop(Reason::FragmentOrphan), frame));
                }
            }
        }
        for field in [&mut single, &mut staged] {
            field.done.sort_by_key(|(number, ..)| *number);
            let mut ended: Vec<_> = field.done.iter().map(|(number, ..)| *number).collect();
            ended.dedup();
            prop_assert_eq!(ended.len(), field.done.len(), "one ended twice");
            prop_assert_eq!(ended.len() + field.parking.len(), picks.len(), "one was lost");
        }
        prop_assert_eq!(&single.done, &staged.done);
        prop_assert_eq!(single.path.counters(), staged.path.counters());
    }
}
