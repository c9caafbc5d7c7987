//! A director to send fragments through, what cuts datagrams, and what puts them together again.

use crate::fib::{Fib, PortId};
use crate::frame::Frame;
use crate::path::tests::lab::{BACK, FRONT, MemFrame, fib_of};
use crate::path::{PagePolicy, Parked, Parking, Path, PathConfig, Verdict, View};
use crate::plan::{Plan, Retired};
use crate::spec::{
    LocalPool, Mode, Network, Ports, Protocol, RealServer, Spec, TunnelSources, VirtualService,
};
use crate::time::Time;
use etherparse::defrag::IpDefragPool;
use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, NetSlice, PacketBuilder,
    SlicedPacket, UdpHeader,
};
use sluice_testkit::World;
use std::net::{IpAddr, SocketAddr};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The ends of one family.
pub struct Ends {
    pub client: &'static str,
    pub vip: &'static str,
    pub real: &'static str,
    pub local: &'static str,
    pub tunnel: &'static str,
}

pub const V4: Ends = Ends {
    client: "198.51.100.48:4000",
    vip: "198.51.100.200:53",
    real: "192.0.2.11:5353",
    local: "192.0.2.10",
    tunnel: "192.0.2.9",
};

pub const V6: Ends = Ends {
    client: "[2001:db8:1::48]:4000",
    vip: "[2001:db8:1::200]:53",
    real: "[2001:db8:2::11]:5353",
    local: "2001:db8:2::10",
    tunnel: "2001:db8:2::9",
};

pub fn spec(mode: Mode, vip: SocketAddr, real: SocketAddr) -> Spec {
    let host = |address: &str| Network {
        address: ip(address),
        prefix: if ip(address).is_ipv4() { 32 } else { 128 },
    };
    Spec {
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
            network: String::new(),
            name: "lan".into(),
            addresses: vec![ip(V4.local), ip(V6.local)],
            ports: 1024..=65535,
            peer_addresses: Vec::new(),
        }],
        tunnel: TunnelSources { v4: Some(host(V4.tunnel)), v6: Some(host(V6.tunnel)) },
        ..Spec::default()
    }
}

/// A director, its surroundings, and what it has given back to wait.
pub struct Field {
    pub path: Path,
    pub plan: Plan,
    pub fib: Fib,
    pub now: Time,
    pub parking: Parking<(usize, MemFrame)>,
    /// What became of each frame, by the number it was sent in under.
    pub done: Vec<(usize, Verdict, MemFrame)>,
}

impl Field {
    pub fn new(spec: &Spec) -> Self {
        Self::with(spec, (0, 1), 64)
    }

    pub fn with(spec: &Spec, (worker, workers): (u16, u16), fragments: u32) -> Self {
        let plan = Plan::compile(spec, None, &Retired::default()).unwrap();
        let (seed, pages) = (7, PagePolicy::Ordinary);
        let config = PathConfig { worker, workers, sessions: 100, fragments, seed, pages };
        let mut path = Path::new(&config).unwrap();
        path.adopt(&plan);
        let (fib, now) = (fib(&plan), Time(5_000_000));
        Self { path, plan, fib, now, parking: Parking::new(), done: Vec::new() }
    }

    pub fn adopt(&mut self, spec: &Spec) {
        self.plan = Plan::compile(spec, Some(&self.plan), &Retired::default()).unwrap();
        self.fib = fib(&self.plan);
        self.path.adopt(&self.plan);
    }

    pub fn turn(&mut self, port: PortId, frames: &mut [MemFrame]) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Wait; frames.len()];
        let view = View { plan: &self.plan, fib: &self.fib };
        self.path.turn(view, self.now, port, frames, &mut verdicts);
        verdicts
    }

    pub fn one(&mut self, port: PortId, frame: &MemFrame) -> Verdict {
        self.turn(port, &mut [frame.clone()])[0]
    }

    /// Turns frames that arrive together, and all that waited for one of them, as a worker does.
    pub fn drive(&mut self, port: PortId, numbered: Vec<(usize, MemFrame)>) {
        let since = self.now;
        self.settle(port, numbered.into_iter().map(|frame| (frame, since)).collect());
        let joined = self.path.joined().to_vec();
        let mut again = Vec::new();
        while let Some(parked) = self.parking.take(&joined, Some(port)) {
            again.push((parked.frame, parked.since));
        }
        self.settle(port, again);
    }

    pub fn settle(&mut self, port: PortId, frames: Vec<((usize, MemFrame), Time)>) {
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

    /// Sends pieces in, one after the other, in this order; gives what became of each.
    pub fn outcomes(
        &mut self,
        port: PortId,
        pieces: &[MemFrame],
        order: &[usize],
    ) -> Vec<(Verdict, MemFrame)> {
        for number in order {
            self.drive(port, vec![(*number, pieces[*number].clone())]);
        }
        self.done.drain(..).map(|(_, verdict, frame)| (verdict, frame)).collect()
    }

    /// Sends pieces in, one after the other, in this order; gives all that left, in their order.
    pub fn through(&mut self, port: PortId, pieces: &[MemFrame], order: &[usize]) -> Vec<MemFrame> {
        let to = if port == FRONT { BACK } else { FRONT };
        let sent = self.outcomes(port, pieces, order).into_iter().map(|(verdict, frame)| {
            assert_eq!(verdict, Verdict::Tx(to));
            frame
        });
        sent.collect()
    }
}

/// What leaves of frames and their verdicts: packets, and the pieces of those that are to be cut.
pub fn pieces(done: &[(Verdict, MemFrame)], to: PortId) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (verdict, frame) in done {
        let packet = &frame.bytes()[14..];
        match *verdict {
            Verdict::Tx(by) if by == to => all.push(packet.to_vec()),
            Verdict::Fragment(by, mtu) if by == to => {
                let cut = sluice_wire::fragment::cut(packet, mtu, |header, part| {
                    assert!(header.len() + part.len() <= usize::from(mtu));
                    all.push([header, part].concat());
                    true
                });
                assert!(cut.is_ok(), "{cut:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

pub fn fib(plan: &Plan) -> Fib {
    let mut world = World::default();
    (world.front.mac, world.back.mac) = (MAC, MAC);
    fib_of(plan, &world)
}

/// A whole IP packet with a UDP datagram.
pub fn datagram(from: SocketAddr, to: SocketAddr, data: &[u8]) -> Vec<u8> {
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
pub fn cut(packet: &[u8], places: &[usize], id: u32) -> Vec<MemFrame> {
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
pub fn together(packets: &[Vec<u8>], hops: u8) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let ((from, to), payload) = whole(packets, hops);
    let (udp, data) = UdpHeader::from_slice(&payload).unwrap();
    let sum = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            udp.calc_checksum_ipv4_raw(from.octets(), to.octets(), data)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            udp.calc_checksum_ipv6_raw(from.octets(), to.octets(), data)
        }
        _ => panic!("one family"),
    };
    assert_eq!(udp.checksum, sum.unwrap(), "UDP checksum");
    assert_eq!(usize::from(udp.length), payload.len(), "UDP length");
    (
        SocketAddr::new(from, udp.source_port),
        SocketAddr::new(to, udp.destination_port),
        data.to_vec(),
    )
}

/// The same of any protocol: where it came from and went to, and what it carries.
pub fn whole(packets: &[Vec<u8>], hops: u8) -> ((IpAddr, IpAddr), Vec<u8>) {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut whole = None;
    let mut ends = None;
    for packet in packets {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let (from, to, ttl, length): (IpAddr, IpAddr, u8, usize) =
            match sliced.net.as_ref().unwrap() {
                NetSlice::Ipv4(net) => {
                    let ip = net.header().to_header();
                    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    let length = usize::from(ip.total_len);
                    (ip.source.into(), ip.destination.into(), ip.time_to_live, length)
                }
                NetSlice::Ipv6(net) => {
                    let ip = net.header().to_header();
                    let length = 40 + usize::from(ip.payload_length);
                    (ip.source.into(), ip.destination.into(), ip.hop_limit, length)
                }
                NetSlice::Arp(_) => panic!("ARP"),
            };
        assert_eq!((ttl, length), (hops, packet.len()));
        assert_eq!(*ends.get_or_insert((from, to)), (from, to));
        whole = whole.or(pool.process_sliced_packet(&sliced, (), ()).unwrap());
    }
    (ends.unwrap(), whole.expect("not whole").payload)
}

pub fn packets(frames: &[MemFrame]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.bytes()[14..].to_vec()).collect()
}

pub fn data(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}
