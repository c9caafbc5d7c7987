//! A small two-arm network around a path, and packets for it.

use super::icmp;
use crate::counters::RealCounters;
use crate::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use crate::frame::Frame;
use crate::path::{BURST, Level, Path, PathConfig, Verdict, View};
use crate::plan::{Plan, Retired};
use crate::spec::{
    LocalPool, Mode, Ports, Protocol, RealServer, Scheduling, Spec, Timeouts, VirtualService,
};
use crate::time::Time;
use etherparse::{PacketBuilder, SlicedPacket, TcpHeader, TransportSlice};
use proptest::prelude::*;
use sluice_table::PagePolicy;
use sluice_testkit::world::{Arm, World};
pub use sluice_testkit::world::{
    BACK_MAC, CLIENT, CLIENT_6, CLIENT_MAC, FRONT_MAC, LOCAL, LOCAL_6, REAL, REAL_2, REAL_6,
    REAL_MAC, VIP, VIP_6,
};
use std::net::SocketAddr;

/// So many random cases, or as many as `PROPTEST_CASES` says where that is fewer: in `make test`.
pub fn cases(most: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.map_or(most, |wanted| most.min(wanted)))
}

pub const FRONT: PortId = PortId(0);
pub const BACK: PortId = PortId(1);

/// A frame in memory with headroom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemFrame {
    pub bytes: Vec<u8>,
    room: usize,
    /// Of a super-packet.
    segment: u16,
}

impl MemFrame {
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), room: 128, segment: 0 }
    }

    pub fn joined(self, segment: u16) -> Self {
        Self { segment, ..self }
    }

    /// With so much headroom.
    pub fn cramped(self, room: usize) -> Self {
        Self { room, ..self }
    }
}

impl Frame for MemFrame {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
    fn push_front(&mut self, count: usize) -> bool {
        let fits = count <= self.room;
        if fits {
            self.room -= count;
            self.bytes.splice(0..0, std::iter::repeat_n(0, count));
        }
        fits
    }
    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= self.bytes.len();
        if fits {
            self.room += count;
            self.bytes.drain(..count);
        }
        fits
    }
    fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.bytes.len().max(2048);
        if fits {
            self.bytes.resize(len, 0);
        }
        fits
    }
    fn segment_size(&self) -> u16 {
        self.segment
    }
    fn set_segment_size(&mut self, size: u16) {
        self.segment = size;
    }
    fn set_finished(&mut self) {
        self.segment = 0;
    }
}

/// A path and what it runs against.
pub struct Lab {
    pub path: Path,
    pub plan: Plan,
    pub fib: Fib,
    pub now: Time,
    pub config: PathConfig,
}

impl Lab {
    pub fn new() -> Self {
        Self::with(|_| {}, 1000, (0, 1))
    }

    /// A lab whose spec was changed, with a session limit, as one of several workers.
    pub fn with(change: impl FnOnce(&mut Spec), sessions: u32, share: (u16, u16)) -> Self {
        let mut spec = spec();
        change(&mut spec);
        let plan = Plan::compile(&spec, None, &Retired::default()).unwrap();
        let fib = fib(&plan);
        let config = PathConfig {
            worker: share.0,
            workers: share.1,
            sessions,
            fragments: 64,
            seed: 7,
            pages: PagePolicy::Ordinary,
        };
        let mut path = Path::new(&config).unwrap();
        path.adopt(&plan);
        Self { path, plan, fib, now: Time(1_000_000), config }
    }

    /// The same with other instructions.
    pub fn at_level(self, level: Level) -> Self {
        Self { path: self.path.at_level(level), ..self }
    }

    /// The same with all packets on the general path.
    pub fn general(self) -> Self {
        Self { path: self.path.without_vector_path(), ..self }
    }

    pub fn one(&mut self, port: PortId, frame: &mut MemFrame) -> Verdict {
        self.burst(port, std::slice::from_mut(frame))[0]
    }

    pub fn burst(&mut self, port: PortId, frames: &mut [MemFrame]) -> Vec<Verdict> {
        let view = View { plan: &self.plan, fib: &self.fib };
        let mut verdicts = vec![Verdict::Tx(PortId(99)); frames.len()];
        for (frames, verdicts) in frames.chunks_mut(BURST).zip(verdicts.chunks_mut(BURST)) {
            self.path.turn(view, self.now, port, frames, verdicts);
            if let Some(port) = self.path.all_leave_by() {
                assert!(verdicts.iter().all(|v| *v == Verdict::Tx(port)), "{port:?}: {verdicts:?}");
            }
        }
        self.check_gauges();
        verdicts
    }

    /// Gauges are what a walk through the sessions finds.
    pub fn check_gauges(&self) {
        let of = |r: &RealCounters| (r.active, r.established, r.closing, r.bound);
        let gauges: Vec<_> = self.path.counters().reals.iter().map(of).collect();
        let found: Vec<_> = self.path.recount().iter().map(of).collect();
        assert_eq!(gauges, found, "(active, established, closing, bound)");
    }

    pub fn after_s(&mut self, seconds: u64) -> &mut Self {
        self.now.0 += seconds * 1000;
        self
    }
}

pub fn real(address: [u8; 4], port: u16) -> RealServer {
    RealServer { address: address.into(), port, ..RealServer::default() }
}

pub fn spec() -> Spec {
    let service = |name: &str, protocol, port, reals: &[[u8; 4]]| VirtualService {
        name: name.into(),
        protocol,
        vip: VIP.into(),
        ports: Ports::one(port),
        mode: Mode::Fnat,
        scheduler: Scheduling::Rr,
        pool: "lan".into(),
        reals: reals.iter().map(|r| real(*r, port)).collect(),
        ..VirtualService::default()
    };
    Spec {
        services: vec![
            service("dns", Protocol::Udp, 53, &[REAL]),
            service("web", Protocol::Tcp, 80, &[REAL, REAL_2]),
        ],
        pools: vec![LocalPool {
            network: String::new(),
            name: "lan".into(),
            addresses: vec![LOCAL.into()],
            ports: 1024..=65535,
            peer_addresses: Vec::new(),
        }],
        timeouts: Timeouts { udp_s: 30, ..Timeouts::default() },
        ..Spec::default()
    }
}

/// The world's two networks, all neighbours known, with a narrower one behind.
pub fn fib(plan: &Plan) -> Fib {
    fib_of(plan, &narrow())
}

/// The world with a narrower network behind.
pub fn narrow() -> World {
    World::default().with_mtus([1500, 1400])
}

/// Routes and neighbours of a world.
pub fn fib_of(plan: &Plan, world: &World) -> Fib {
    let mut builder = FibBuilder::default();
    tell(world, &mut builder);
    builder.build(plan, None)
}

/// The same with a way to everybody in front.
pub fn fib_to_anywhere(plan: &Plan) -> Fib {
    let mut builder = FibBuilder::default();
    let mut world = narrow();
    world.front.networks.clear();
    let [front, _] = tell(&world, &mut builder);
    builder.route([0, 0, 0, 0].into(), 0, Target::Via(front, CLIENT.into()));
    builder.build(plan, None)
}

/// Tells a builder of a world's links, routes and neighbours.
pub fn tell(world: &World, builder: &mut FibBuilder) -> [LinkId; 2] {
    tell_with(world, builder, |link| link)
}

/// The same with more said of each link.
pub fn tell_with(
    world: &World,
    builder: &mut FibBuilder,
    more: impl Fn(Link) -> Link,
) -> [LinkId; 2] {
    let link = |builder: &mut FibBuilder, arm: &Arm| {
        let Arm { port, mac, vlan, mtu, .. } = *arm;
        builder.link(more(Link { port: PortId(port), mac, vlan, mtu, ..Link::default() }))
    };
    let route = |builder: &mut FibBuilder, link, net, bits| {
        builder.route(net, bits, Target::OnLink(link));
    };
    let neighbour = |builder: &mut FibBuilder, link, host, mac| builder.neighbour(link, host, mac);
    world.tell(builder, link, route, neighbour)
}

/// A UDP datagram in a frame; its link-layer addresses are arbitrary unicast.
pub fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> MemFrame {
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(from.0, to.0, 64);
    let mut bytes = Vec::new();
    builder.udp(from.1, to.1).write(&mut bytes, payload).unwrap();
    MemFrame::new(&bytes)
}

/// A TCP segment in a frame, with the flags byte and the two numbers given.
pub fn tcp(
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    flags: u8,
    (sequence, acknowledgement): (u32, u32),
    payload: &[u8],
) -> MemFrame {
    let mut header = TcpHeader::new(from.1, to.1, sequence, 64_000);
    header.acknowledgment_number = acknowledgement;
    (header.fin, header.syn, header.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    (header.psh, header.ack) = (flags & 8 != 0, flags & 16 != 0);
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(from.0, to.0, 64);
    let mut bytes = Vec::new();
    builder.tcp_header(header).write(&mut bytes, payload).unwrap();
    MemFrame::new(&bytes)
}

/// A frame as another parser reads it; reading asserts that every checksum is right.
#[derive(Debug)]
pub struct Packet {
    pub from: [u8; 6],
    pub to: [u8; 6],
    pub src: [u8; 4],
    pub dst: [u8; 4],
    pub sport: u16,
    pub dport: u16,
    pub ttl: u8,
    pub tcp: Option<TcpHeader>,
    pub payload: Vec<u8>,
}

impl Packet {
    pub fn read(frame: &MemFrame) -> Self {
        let sliced = SlicedPacket::from_ethernet(&frame.bytes).unwrap();
        let Some(etherparse::LinkSlice::Ethernet2(link)) = sliced.link else { panic!("no link") };
        let Some(etherparse::NetSlice::Ipv4(net)) = sliced.net else { panic!("no IPv4") };
        let ip = net.header().to_header();
        assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IPv4 header checksum");
        let (sport, dport, tcp, payload) = match sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                let sum = tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap();
                assert_eq!(tcp.checksum(), sum, "TCP checksum");
                let header = tcp.to_header();
                (tcp.source_port(), tcp.destination_port(), Some(header), tcp.payload().to_vec())
            }
            Some(TransportSlice::Udp(udp)) => {
                let header = udp.to_header();
                let sum = header.calc_checksum_ipv4(&ip, udp.payload()).unwrap();
                assert!([sum, 0].contains(&udp.checksum()), "UDP checksum");
                (udp.source_port(), udp.destination_port(), None, udp.payload().to_vec())
            }
            other => panic!("neither TCP nor UDP: {other:?}"),
        };
        Self {
            from: link.source(),
            to: link.destination(),
            src: ip.source,
            dst: ip.destination,
            sport,
            dport,
            ttl: ip.time_to_live,
            tcp,
            payload,
        }
    }
}

/// What is particular about a packet of a random exchange.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    /// Of IPv6.
    Six,
    /// Its time to live is over.
    Old {
        six: bool,
    },
    /// Too big, and maybe not to be cut.
    Big {
        six: bool,
        df: bool,
    },
    /// An ICMP error about a packet like those that go the other way.
    Error {
        six: bool,
        size: usize,
    },
}

/// One packet of a random exchange: few endpoints, so that flows meet.
#[derive(Clone, Debug)]
pub struct Step {
    pub port: PortId,
    client_port: u16,
    flags: u8,
    tcp: bool,
    cut: Option<usize>,
    kind: Kind,
}

impl Step {
    pub fn frame(&self) -> MemFrame {
        let service = if self.tcp { 80 } else { 53 };
        let (from, to) = if self.port == FRONT {
            ((CLIENT, 3000 + self.client_port), (VIP, service))
        } else {
            ((REAL, service), (LOCAL, 1024 + self.client_port))
        };
        let mut frame = match self.kind {
            Kind::Plain if self.tcp => tcp(from, to, self.flags, (100, 200), b"data"),
            Kind::Plain => udp(from, to, b"data"),
            Kind::Six => self.datagram(true, (64, true), 4),
            Kind::Old { six } => self.datagram(six, (1, true), 4),
            Kind::Big { six, df } => self.datagram(six, (64, df), 1460),
            Kind::Error { six, size } => {
                let (from, to) = self.ends(six);
                let header = if six { 40 } else { 20 };
                let quote = &icmp::packet(to, from, (60, true), 80)[..header + size];
                let message = if six { (2, 0, 1300) } else { (3, 4, 1300) };
                icmp::error(from.ip(), to.ip(), message, quote)
            }
        };
        if let Some(cut) = self.cut {
            frame.bytes.truncate(cut);
        }
        frame
    }

    fn ends(&self, six: bool) -> (SocketAddr, SocketAddr) {
        let end = |v4: [u8; 4], v6: &str, port: u16| {
            let address = if six { v6.parse().unwrap() } else { v4.into() };
            SocketAddr::new(address, port)
        };
        if self.port == FRONT {
            let client = end(CLIENT, "2001:db8:1::48", 3000 + self.client_port);
            (client, end(VIP, "2001:db8:1::200", 53))
        } else {
            // The upper half of the ports is the extended table's.
            let local = if six { 33_280 } else { 1024 } + self.client_port;
            (end(REAL, "2001:db8:2::11", 53), end(LOCAL, "2001:db8:2::10", local))
        }
    }

    fn datagram(&self, six: bool, how: (u8, bool), length: usize) -> MemFrame {
        let (from, to) = self.ends(six);
        icmp::framed(&icmp::packet(from, to, how, length))
    }
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let flags =
        prop_oneof![3 => Just(2u8), 4 => Just(16), 1 => Just(17), 1 => Just(4), 1 => any::<u8>()];
    let cut = prop_oneof![9 => Just(None), 1 => (0usize..60).prop_map(Some)];
    let kind = prop_oneof![
        8 => Just(Kind::Plain),
        3 => Just(Kind::Six),
        1 => any::<bool>().prop_map(|six| Kind::Old { six }),
        1 => any::<(bool, bool)>().prop_map(|(six, df)| Kind::Big { six, df }),
        2 => (any::<bool>(), 0usize..80).prop_map(|(six, size)| Kind::Error { six, size }),
    ];
    (any::<bool>(), 0u16..6, flags, any::<bool>(), cut, kind).prop_map(
        |(front, client_port, flags, tcp, cut, kind)| Step {
            port: if front { FRONT } else { BACK },
            client_port,
            flags,
            tcp,
            cut,
            kind,
        },
    )
}

/// Adds the same service of IPv6.
pub fn with_ipv6(spec: &mut Spec) {
    let real = RealServer {
        address: "2001:db8:2::11".parse().unwrap(),
        port: 53,
        ..RealServer::default()
    };
    spec.services.push(VirtualService {
        name: "dns6".into(),
        protocol: Protocol::Udp,
        vip: "2001:db8:1::200".parse().unwrap(),
        ports: Ports::one(53),
        mode: Mode::Fnat,
        pool: "lan".into(),
        reals: vec![real],
        ..VirtualService::default()
    });
    spec.pools[0].addresses.push("2001:db8:2::10".parse().unwrap());
}
