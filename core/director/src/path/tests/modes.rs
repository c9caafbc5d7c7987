//! Every way to forward, both families: what arrives, byte by byte as another's parser reads it.

use super::lab::{self, BACK, FRONT, MemFrame};
use crate::fib::Fib;
use crate::frame::Frame;
use crate::path::{PagePolicy, Path, PathConfig, Verdict, View};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{
    LocalPool, Mapping, Mode, Network, Ports, Protocol, RealServer, SnatRule, Spec, TunnelSources,
    VirtualService,
};
use crate::time::Time;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use sluice_testkit::World;
use std::net::{IpAddr, SocketAddr};

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A director with one service and its surroundings: clients in front, real servers behind.
pub struct Field {
    pub path: Path,
    pub plan: Plan,
    pub fib: Fib,
    pub now: Time,
}

impl Field {
    pub fn new(spec: &Spec) -> Self {
        let plan = Plan::compile(spec, None, &Retired::default()).unwrap();
        let fib = lab::fib_of(&plan, &World::default().without(12));
        let mut path = Path::new(&PathConfig {
            worker: 0,
            workers: 1,
            sessions: 100,
            fragments: 64,
            seed: 7,
            pages: PagePolicy::Ordinary,
        })
        .unwrap();
        path.adopt(&plan);
        Self { path, plan, fib, now: Time(5_000_000) }
    }

    pub fn one(&mut self, port: crate::fib::PortId, frame: &mut MemFrame) -> Verdict {
        let mut verdicts = [Verdict::Wait];
        let view = View { plan: &self.plan, fib: &self.fib };
        let frames = std::slice::from_mut(frame);
        self.path.turn(view, self.now, port, frames, &mut verdicts);
        verdicts[0]
    }

    /// Sends a datagram in and gives who it is from and to when it leaves by the other port.
    fn through(
        &mut self,
        port: crate::fib::PortId,
        from: &str,
        to: &str,
    ) -> (SocketAddr, SocketAddr) {
        let mut frame = datagram(at(from), at(to));
        let out = if port == FRONT { BACK } else { FRONT };
        assert_eq!(self.one(port, &mut frame), Verdict::Tx(out), "{from} to {to}");
        ends(&frame.bytes()[14..])
    }
}

pub fn datagram(from: SocketAddr, to: SocketAddr) -> MemFrame {
    datagram_with(from, to, b"what is it?")
}

pub fn datagram_with(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> MemFrame {
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("one family"),
    };
    let mut bytes = Vec::new();
    builder.udp(from.port(), to.port()).write(&mut bytes, payload).unwrap();
    MemFrame::new(&bytes)
}

/// Who an IP packet with a datagram is from and to; asserts every checksum, and one hop taken.
pub fn ends(packet: &[u8]) -> (SocketAddr, SocketAddr) {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("{sliced:?}") };
    assert_eq!(udp.payload(), b"what is it?");
    let header = udp.to_header();
    let (from, to, sum): (IpAddr, IpAddr, u16) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(net) => {
            let ip = net.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(ip.time_to_live, 63);
            let sum = header.calc_checksum_ipv4(&ip, udp.payload()).unwrap();
            (ip.source.into(), ip.destination.into(), sum)
        }
        NetSlice::Ipv6(net) => {
            let ip = net.header().to_header();
            assert_eq!(ip.hop_limit, 63);
            let sum = header.calc_checksum_ipv6(&ip, udp.payload()).unwrap();
            (ip.source.into(), ip.destination.into(), sum)
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    assert_eq!(udp.checksum(), sum, "UDP checksum");
    (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()))
}

pub fn spec(mode: Mode, vip: &str, real: &str, port: u16) -> Spec {
    Spec {
        services: vec![VirtualService {
            name: "dns".into(),
            protocol: Protocol::Udp,
            vip: ip(vip),
            ports: Ports::one(53),
            mode,
            pool: "lan".into(),
            reals: vec![RealServer { address: ip(real), port, ..RealServer::default() }],
            ..VirtualService::default()
        }],
        pools: vec![LocalPool {
            network: String::new(),
            name: "lan".into(),
            addresses: vec![ip("192.0.2.10"), ip("2001:db8:2::10")],
            ports: 1024..=65535,
            peer_addresses: Vec::new(),
        }],
        tunnel: TunnelSources {
            v4: Some(Network { address: ip("192.0.2.9"), prefix: 32 }),
            v6: Some(Network { address: ip("2001:db8:2::9"), prefix: 128 }),
        },
        ..Spec::default()
    }
}

#[test]
fn full_nat_of_ipv6() {
    let mut field = Field::new(&spec(Mode::Fnat, "2001:db8:1::200", "2001:db8:2::11", 5353));
    let there = field.through(FRONT, "[2001:db8:1::48]:4000", "[2001:db8:1::200]:53");
    assert_eq!(there, (at("[2001:db8:2::10]:1024"), at("[2001:db8:2::11]:5353")));
    let back = field.through(BACK, "[2001:db8:2::11]:5353", "[2001:db8:2::10]:1024");
    assert_eq!(back, (at("[2001:db8:1::200]:53"), at("[2001:db8:1::48]:4000")));
    assert_eq!(field.path.live_sessions(), 1);
}

/// Full NAT across families, both ways, with the header that RFC 7915 says.
#[test]
fn full_nat_across_families() {
    for (client, vip, real, local) in [
        ("198.51.100.48:4000", "198.51.100.200:53", "[2001:db8:2::11]:53", "2001:db8:2::10"),
        ("[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "192.0.2.11:53", "192.0.2.10"),
    ] {
        let (vip_ip, real_ip) = (at(vip).ip().to_string(), at(real).ip().to_string());
        let mut field = Field::new(&spec(Mode::Fnat, &vip_ip, &real_ip, 53));
        let local = SocketAddr::new(ip(local), 1024);
        assert_eq!(field.through(FRONT, client, vip), (local, at(real)));
        assert_eq!(field.through(BACK, real, &local.to_string()), (at(vip), at(client)));
        assert_eq!(field.path.live_sessions(), 1);
    }
}

#[test]
fn nat_of_both() {
    for (client, vip, real) in [
        ("198.51.100.48:4000", "198.51.100.200:53", "192.0.2.11:5353"),
        ("[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "[2001:db8:2::11]:5353"),
    ] {
        let (vip_ip, real_ip) = (at(vip).ip().to_string(), at(real).ip().to_string());
        let mut field = Field::new(&spec(Mode::Nat, &vip_ip, &real_ip, 5353));
        assert_eq!(field.through(FRONT, client, vip), (at(client), at(real)));
        assert_eq!(field.through(BACK, real, client), (at(vip), at(client)));
        let other = SocketAddr::new(at(client).ip(), 9);
        let mut stranger = datagram(at(real), other);
        assert_eq!(field.one(BACK, &mut stranger), Verdict::Kernel(Reason::NotOurs));
        // Where the kernel is out of reach, the director is the real server's gateway.
        let view = View { plan: &field.plan, fib: &field.fib };
        assert_eq!(field.path.as_gateway(view, &mut stranger), Verdict::Tx(FRONT));
        assert_eq!(ends(&stranger.bytes()[14..]), (at(real), other));
        let mut inwards = datagram(other, at(real));
        let lost = Verdict::Drop(Reason::NoKernelPath);
        assert_eq!(field.path.as_gateway(view, &mut inwards), lost, "to whoever asks");
    }
}

#[test]
fn direct_routing_changes_no_address() {
    for (client, vip, real) in [
        ("198.51.100.48:4000", "198.51.100.200:53", "192.0.2.11"),
        ("[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "2001:db8:2::11"),
    ] {
        let mut field = Field::new(&spec(Mode::Dr, &at(vip).ip().to_string(), real, 53));
        assert_eq!(field.through(FRONT, client, vip), (at(client), at(vip)));
        assert_eq!(field.path.live_sessions(), 1);
        assert_eq!(field.through(FRONT, client, vip), (at(client), at(vip)));
        assert_eq!(field.path.counters().reals[0].packets, [2, 0]);
    }
}

#[test]
fn tunnels_of_any_family_in_any() {
    for (client, vip) in [
        ("198.51.100.48:4000", "198.51.100.200:53"),
        ("[2001:db8:1::48]:4000", "[2001:db8:1::200]:53"),
    ] {
        for (real, source) in [("192.0.2.11", "192.0.2.9"), ("2001:db8:2::11", "2001:db8:2::9")] {
            let mode = spec(Mode::Ipip, &at(vip).ip().to_string(), real, 53);
            let mut field = Field::new(&mode);
            let mut frame = datagram(at(client), at(vip));
            assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK), "{vip} over {real}");
            let packet = &frame.bytes()[14..];
            let (outer, inner): ((IpAddr, IpAddr, u8, usize), _) = if packet[0] >> 4 == 4 {
                assert_eq!(frame.bytes()[12..14], [8, 0]);
                let ip = etherparse::Ipv4Header::from_slice(packet).unwrap().0;
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                let ends = (ip.source.into(), ip.destination.into());
                ((ends.0, ends.1, ip.protocol.0, usize::from(ip.total_len)), &packet[20..])
            } else {
                assert_eq!(frame.bytes()[12..14], [0x86, 0xdd]);
                let ip = etherparse::Ipv6Header::from_slice(packet).unwrap().0;
                let ends = (ip.source.into(), ip.destination.into());
                let length = 40 + usize::from(ip.payload_length);
                ((ends.0, ends.1, ip.next_header.0, length), &packet[40..])
            };
            let protocol = if at(vip).is_ipv6() { 41 } else { 4 };
            assert_eq!(outer, (ip(source), ip(real), protocol, packet.len()));
            assert_eq!(ends(inner), (at(client), at(vip)));
        }
    }
}

pub fn snat(mapping: Mapping) -> Spec {
    let net = |address, prefix| Network { address: ip(address), prefix };
    Spec {
        snat: vec![SnatRule {
            network: String::new(),
            name: "out".into(),
            sources: vec![net("192.0.2.0", 24), net("2001:db8:2::", 64)],
            pool: "wan".into(),
            mapping,
            ..SnatRule::default()
        }],
        pools: vec![LocalPool {
            network: String::new(),
            name: "wan".into(),
            addresses: vec![ip("198.51.100.9"), ip("2001:db8:1::9")],
            ports: 2000..=2999,
            peer_addresses: Vec::new(),
        }],
        ..Spec::default()
    }
}

#[test]
fn source_nat_maps_by_endpoint_or_by_session() {
    for (inside, pool, one, two) in [
        ("192.0.2.11:700", "198.51.100.9", "198.51.100.48:53", "198.51.100.48:54"),
        ("[2001:db8:2::11]:700", "2001:db8:1::9", "[2001:db8:1::48]:53", "[2001:db8:1::48]:54"),
    ] {
        let pooled = |port| SocketAddr::new(ip(pool), port);
        let mut field = Field::new(&snat(Mapping::EndpointIndependent));
        assert_eq!(field.through(BACK, inside, one), (pooled(2000), at(one)));
        assert_eq!(field.through(BACK, inside, two), (pooled(2000), at(two)));
        let answer = field.through(FRONT, two, &pooled(2000).to_string());
        assert_eq!(answer, (at(two), at(inside)));
        assert_eq!((field.path.live_sessions(), field.path.templates()), (2, 1));
        let other = SocketAddr::new(at(inside).ip(), 701).to_string();
        assert_eq!(field.through(BACK, &other, one), (pooled(2001), at(one)));
        let mut stranger = datagram(SocketAddr::new(at(one).ip(), 99), pooled(2000));
        assert_eq!(field.one(FRONT, &mut stranger), Verdict::Drop(Reason::NoSession));
        field.now.0 += 400_000;
        let Field { path, plan, now, .. } = &mut field;
        path.sweep_all(plan, *now);
        assert_eq!((path.live_sessions(), path.templates()), (0, 0), "it goes with the last");

        let mut field = Field::new(&snat(Mapping::PerSession));
        assert_eq!(field.through(BACK, inside, one), (pooled(2000), at(one)));
        assert_eq!(field.through(BACK, inside, two), (pooled(2001), at(two)));
        assert_eq!(field.path.live_sessions(), 2);
    }
}
