//! Packets that go eight at a time become what they become one at a time, whatever is the matter
//! with them.

use super::lab::cases;
use super::lab::{
    CLIENT, CLIENT_6, FRONT, LOCAL, LOCAL_6, Lab, MemFrame, Packet, REAL, REAL_6, VIP, VIP_6, tcp,
    udp, with_ipv6,
};
use crate::frame::Frame;
use crate::path::{BURST, Level, Verdict};
use crate::spec::{ClientAddress, Mode, Network, Ports, Protocol, Spec};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TransportSlice};
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, RST, SYN};
use std::net::{Ipv6Addr, SocketAddr};

/// The first port of the extended table's half of an IPv4 local address.
const WIDE_PORT: u16 = 33_280;

/// What is the matter with a packet.
#[derive(Clone, Debug)]
pub(super) enum Exception {
    None,
    /// One byte of its headers, the IPv4 checksum following or not.
    Byte {
        at: usize,
        value: u8,
        repaired: bool,
    },
    /// Of TCP: the highest byte of its sequence number, which a forger or an old packet has.
    Jump(u8),
    /// Its transport checksum.
    Sum(u16),
    /// Bytes of the frame that are there.
    Cut(usize),
    /// Bytes behind the packet.
    Padded(usize),
    /// Of IPv6: an extension header of eight bytes.
    Extended(u8),
    /// Of IPv6: a source that stands for IPv4.
    Mapped,
    /// Of IPv6: no length, as a jumbogram has.
    Jumbo,
}

#[derive(Clone, Debug)]
pub(super) struct Shot {
    pub six: bool,
    pub inbound: bool,
    pub tcp: bool,
    /// Of four sessions, or of none.
    pub client_port: u16,
    pub flags: u8,
    pub payload: usize,
    pub exception: Exception,
}

/// How a director forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub mode: Mode,
    /// Whether real servers of IPv6 services have IPv4 addresses.
    pub crosses: bool,
    pub tells_client: bool,
    pub workers: u16,
    /// Seconds between the sessions' first packets and the rest.
    pub idle_s: u64,
    /// Whether connections end as soon as one side has closed.
    pub hurries: bool,
}

fn end(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// The same as [`udp`] and [`tcp`] in IPv6.
fn six(from: SocketAddr, to: SocketAddr, flags: Option<u8>, payload: &[u8]) -> MemFrame {
    let (SocketAddr::V6(a), SocketAddr::V6(b)) = (from, to) else { panic!("not IPv6") };
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
    let builder = builder.ipv6(a.ip().octets(), b.ip().octets(), 64);
    let mut bytes = Vec::new();
    if let Some(flags) = flags {
        let mut header = TcpHeader::new(from.port(), to.port(), 100, 64_000);
        header.acknowledgment_number = 200;
        (header.fin, header.syn, header.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        (header.psh, header.ack) = (flags & 8 != 0, flags & 16 != 0);
        builder.tcp_header(header).write(&mut bytes, payload).unwrap();
    } else {
        builder.udp(from.port(), to.port()).write(&mut bytes, payload).unwrap();
    }
    MemFrame::new(&bytes)
}

impl Shot {
    const fn service(&self) -> u16 {
        if self.tcp { 80 } else { 53 }
    }

    fn plain(&self, setting: &Setting) -> MemFrame {
        let (service, fnat) = (self.service(), setting.mode == Mode::Fnat);
        let payload = vec![0x5a; self.payload];
        // Of the sessions that are not there one is another worker's.
        let local_port = self.client_port + if self.client_port == 4 { 60_000 } else { 1024 };
        if self.six && (self.inbound || !setting.crosses) {
            let client = end(CLIENT_6, 3000 + self.client_port);
            let local = if fnat { end(LOCAL_6, local_port) } else { client };
            let (from, to) = match self.inbound {
                true => (client, end(VIP_6, service)),
                false => (end(REAL_6, service), local),
            };
            return six(from, to, self.tcp.then_some(self.flags), &payload);
        }
        let client = (CLIENT, 3000 + self.client_port);
        let first = if self.six { WIDE_PORT - 1024 } else { 0 };
        let local = if fnat { (LOCAL, local_port.wrapping_add(first)) } else { client };
        let (from, to) =
            if self.inbound { (client, (VIP, service)) } else { ((REAL, service), local) };
        if self.tcp {
            tcp(from, to, self.flags, (100, 200), &payload)
        } else {
            udp(from, to, &payload)
        }
    }

    pub fn frame(&self, setting: &Setting) -> MemFrame {
        let mut frame = self.plain(setting);
        let bytes = &mut frame.bytes;
        let six = bytes[12] == 0x86;
        let sum_at = if self.tcp { 50 } else { 40 } + if six { 20 } else { 0 };
        match self.exception {
            Exception::Byte { at, value, repaired } => {
                let at = at % bytes.len();
                bytes[at] = value;
                if repaired && !six {
                    bytes[24..26].fill(0);
                    let sum = sluice_wire::checksum::full(&bytes[14..34]);
                    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                }
            }
            Exception::Jump(value) if self.tcp => bytes[sum_at - 12] = value,
            Exception::Sum(sum) => bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes()),
            Exception::Cut(length) => bytes.truncate(length),
            Exception::Padded(length) => bytes.extend(vec![0xee; length]),
            Exception::Extended(kind) if six => {
                let inner = std::mem::replace(&mut bytes[20], kind);
                bytes.splice(54..54, [inner, 0, 0, 0, 0, 0, 0, 0]);
                let length = (bytes.len() - 54) as u16;
                bytes[18..20].copy_from_slice(&length.to_be_bytes());
            }
            Exception::Mapped if six => {
                bytes[22..34].copy_from_slice(&[[0; 6], [0, 0, 0, 0, 255, 255]].concat())
            }
            Exception::Jumbo if six => bytes[18..20].fill(0),
            _ => {}
        }
        frame
    }
}

pub(super) fn any_shot(six: impl Strategy<Value = bool>) -> impl Strategy<Value = Shot> {
    let exception = prop_oneof![
        8 => Just(Exception::None),
        3 => (0usize..76, any::<u8>(), any::<bool>())
            .prop_map(|(at, value, repaired)| Exception::Byte { at, value, repaired }),
        1 => (prop_oneof![Just(21), Just(22)], 0u8..3)
            .prop_map(|(at, value)| Exception::Byte { at, value, repaired: true }),
        // Next headers, and a group as the source.
        1 => prop_oneof![Just((20, 0)), Just((20, 44)), Just((20, 58)), Just((22, 0xff))]
            .prop_map(|(at, value)| Exception::Byte { at, value, repaired: true }),
        2 => prop_oneof![Just(65), Just(1), any::<u8>()].prop_map(Exception::Jump),
        1 => prop_oneof![Just(0), Just(0xffff), any::<u16>()].prop_map(Exception::Sum),
        1 => (0usize..90).prop_map(Exception::Cut),
        1 => (0usize..30).prop_map(Exception::Padded),
        1 => prop_oneof![Just(0), Just(43), Just(44), Just(60), any::<u8>()]
            .prop_map(Exception::Extended),
        1 => prop_oneof![Just(Exception::Mapped), Just(Exception::Jumbo)],
    ];
    let flags =
        prop_oneof![12 => Just(ACK), 1 => Just(SYN), 1 => Just(RST | ACK), 1 => any::<u8>()];
    let payload = prop_oneof![8 => 0usize..40, 1 => 1320usize..1480];
    (six, any::<bool>(), any::<bool>(), 0u16..5, flags, payload, exception).prop_map(
        |(six, inbound, tcp, client_port, flags, payload, exception)| Shot {
            six,
            inbound,
            tcp,
            client_port,
            flags,
            payload,
            exception,
        },
    )
}

/// Packets of a burst, and how often each comes.
fn any_runs() -> impl Strategy<Value = Vec<(Shot, usize)>> {
    let mixes = [Just(0).boxed(), Just(1).boxed(), (0..2).boxed(), (0..8).boxed()];
    proptest::sample::select(mixes.to_vec()).prop_flat_map(|mix| {
        let times = prop_oneof![2 => Just(1), 1 => 1usize..30];
        proptest::collection::vec((any_shot(mix.prop_map(|mix| mix != 0)), times), 4..64)
    })
}

pub(super) fn any_setting() -> impl Strategy<Value = Setting> {
    let mode = prop_oneof![
        3 => Just(Mode::Fnat), 2 => Just(Mode::Nat), 1 => Just(Mode::Dr), 1 => Just(Mode::Ipip),
    ];
    let seldom = || proptest::bool::weighted(0.15);
    let idle_s = prop_oneof![4 => Just(0), 1 => 25u64..35];
    let all = (mode, seldom(), seldom(), seldom(), idle_s, seldom());
    all.prop_map(|(mode, a, b, c, idle_s, hurries)| {
        let fnat = mode == Mode::Fnat;
        let (crosses, tells_client) = (a && fnat, b && fnat);
        let workers = 1 + u16::from(c && fnat);
        Setting { mode, crosses, tells_client, workers, idle_s, hurries }
    })
}

fn configure(spec: &mut Spec, setting: &Setting) {
    with_ipv6(spec);
    let dns = spec.services.last().unwrap().clone();
    let mut web = dns;
    (web.name, web.protocol, web.ports) = ("web6".into(), Protocol::Tcp, Ports::one(80));
    web.reals[0].port = 80;
    if setting.tells_client {
        web.client_address = ClientAddress::Toa;
    }
    spec.services.push(web);
    if setting.hurries {
        spec.timeouts.tcp_fin_wait_s = 0;
    }
    let source = |address: &str, prefix| Network { address: address.parse().unwrap(), prefix };
    spec.tunnel.v4 = Some(source("192.0.2.9", 32));
    spec.tunnel.v6 = Some(source("2001:db8:2::9", 128));
    for service in &mut spec.services {
        service.mode = setting.mode;
        // One real server, so that its answers can be foretold.
        service.reals.truncate(1);
        if setting.crosses {
            service.reals[0].address = REAL.into();
        }
    }
}

/// A director with a session for each of four client ports and protocols, in either version.
pub(super) fn lab(setting: &Setting, level: Level) -> Lab {
    let set = |b: &mut Spec| configure(b, setting);
    opened(setting, Lab::with(set, 1000, (0, setting.workers)).at_level(level))
}

/// The same without a vector path.
pub(super) fn general(setting: &Setting) -> Lab {
    let set = |b: &mut Spec| configure(b, setting);
    opened(setting, Lab::with(set, 1000, (0, setting.workers)).general())
}

fn opened(setting: &Setting, mut lab: Lab) -> Lab {
    for client_port in 0..4 {
        for (six, tcp, flags) in [false, true]
            .into_iter()
            .flat_map(|six| [(six, false, 0), (six, true, SYN), (six, true, ACK)])
        {
            let (inbound, payload, exception) = (true, 0, Exception::None);
            let shot = Shot { six, inbound, tcp, client_port, flags, payload, exception };
            let mut frame = shot.frame(setting);
            assert!(matches!(lab.one(FRONT, &mut frame), Verdict::Tx(_)), "{setting:?} {shot:?}");
        }
    }
    lab.after_s(setting.idle_s);
    lab
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn together_as_alone(runs in any_runs(), setting in any_setting()) {
        let shots = runs.iter().flat_map(|(shot, times)| std::iter::repeat_n(shot, *times));
        let shots: Vec<&Shot> = shots.take(BURST).collect();
        let mut single = general(&setting);
        let mut staged = lab(&setting, Level::detect());
        let mut alone: Vec<MemFrame> = shots.iter().map(|shot| shot.frame(&setting)).collect();
        let mut together = alone.clone();
        let verdicts: Vec<Verdict> = alone.iter_mut().map(|f| single.one(FRONT, f)).collect();
        let before = together.clone();
        let (mut other, mut frames) = (lab(&setting, Level::detect()), before.clone());
        for (at, frame) in frames.iter_mut().enumerate() {
            prop_assert_eq!(other.one(FRONT, frame), verdicts[at], "a group of one, {}", at);
        }
        prop_assert_eq!(&frames, &alone);
        let (mut other, mut frames) = (general(&setting), before.clone());
        prop_assert_eq!(&other.burst(FRONT, &mut frames), &verdicts);
        let both = staged.burst(FRONT, &mut together);
        // What other processors have, the scalar twin too.
        for level in Level::available() {
            let (mut other, mut frames) = (lab(&setting, level), before.clone());
            prop_assert_eq!(&other.burst(FRONT, &mut frames), &both);
            prop_assert_eq!(&frames, &together);
            prop_assert_eq!(other.path.counters(), staged.path.counters());
        }
        for (at, shot) in shots.iter().enumerate() {
            prop_assert_eq!(both[at], verdicts[at], "{}: {:?}", at, shot);
            prop_assert_eq!(&together[at], &alone[at], "{}: {:?}", at, shot);
        }
        prop_assert_eq!(single.path.counters(), staged.path.counters());
        prop_assert_eq!(single.path.live_sessions(), staged.path.live_sessions());
    }
}

const FNAT: Setting = Setting {
    mode: Mode::Fnat,
    crosses: false,
    tells_client: false,
    workers: 1,
    idle_s: 0,
    hurries: false,
};

/// A number far away moves a session there, and the next packet moves it back: a reset behind both
/// counts in a group as it does alone.
#[test]
fn numbers_that_jump_are_followed_within_a_group() {
    let shot = |six, flags, exception| Shot {
        six,
        inbound: true,
        tcp: true,
        client_port: 1,
        flags,
        payload: 0,
        exception,
    };
    for (level, six) in Level::available().flat_map(|level| [(level, false), (level, true)]) {
        let mut frames: Vec<MemFrame> = [
            shot(six, ACK, Exception::None),
            shot(six, ACK, Exception::Jump(65)),
            shot(six, ACK, Exception::None),
            shot(six, RST, Exception::None),
        ]
        .iter()
        .map(|shot| shot.frame(&FNAT))
        .collect();
        let mut lab = lab(&FNAT, level);
        lab.burst(FRONT, &mut frames);
        assert_eq!(lab.path.counters().ignored_ends, 0, "six: {six}");
        assert_eq!(lab.path.counters().closed, 1, "six: {six}");
    }
}

/// Eight that nothing is the matter with, as another's parser reads them.
#[test]
fn eight_plain_ones() {
    for level in Level::available() {
        eight(lab(&FNAT, level));
    }
}

fn eight(mut lab: Lab) {
    let mut frames: Vec<MemFrame> = (0..8)
        .map(|at: u16| {
            let port = at % 4;
            match at / 2 % 4 {
                0 => udp((CLIENT, 3000 + port), (VIP, 53), b"a question of mine"),
                1 => udp((REAL, 53), (LOCAL, 1024 + port), b"the answer to that"),
                2 => tcp((CLIENT, 3000 + port), (VIP, 80), ACK, (100, 200), b"GET"),
                _ => tcp((REAL, 80), (LOCAL, 1024 + port), ACK, (200, 103), b"200"),
            }
        })
        .collect();
    let before: Vec<Packet> = frames.iter().map(Packet::read).collect();
    let verdicts = lab.burst(FRONT, &mut frames);
    for (at, (frame, old)) in frames.iter().zip(&before).enumerate() {
        let new = Packet::read(frame);
        let inbound = old.src == CLIENT;
        let port = at as u16 % 4;
        let ends = if inbound {
            (LOCAL, 1024 + port, REAL, old.dport)
        } else {
            (VIP, old.sport, CLIENT, 3000 + port)
        };
        assert_eq!((new.src, new.sport, new.dst, new.dport), ends, "{at}");
        assert_eq!((new.ttl, &new.payload), (63, &old.payload));
        let out = if inbound { super::lab::BACK } else { FRONT };
        assert_eq!(verdicts[at], Verdict::Tx(out));
        assert_eq!(
            frame.bytes().len(),
            old.payload.len() + if old.tcp.is_some() { 54 } else { 42 }
        );
    }
}

/// A frame of IPv6 as another's parser reads it, its checksum verified: both ends, hop limit and
/// payload.
fn read_six(frame: &MemFrame) -> (SocketAddr, SocketAddr, u8, Vec<u8>) {
    let sliced = SlicedPacket::from_ethernet(&frame.bytes).unwrap();
    let Some(NetSlice::Ipv6(net)) = sliced.net else { panic!("no IPv6") };
    let ip = net.header().to_header();
    let (sport, dport, payload) = match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let (header, payload) = (tcp.to_header(), tcp.payload());
            assert_eq!(header.checksum, header.calc_checksum_ipv6(&ip, payload).unwrap());
            (tcp.source_port(), tcp.destination_port(), payload.to_vec())
        }
        Some(TransportSlice::Udp(udp)) => {
            let (header, payload) = (udp.to_header(), udp.payload());
            assert_eq!(header.checksum, header.calc_checksum_ipv6(&ip, payload).unwrap());
            (udp.source_port(), udp.destination_port(), payload.to_vec())
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    };
    let end = |address: [u8; 16], port| SocketAddr::new(Ipv6Addr::from(address).into(), port);
    (end(ip.source, sport), end(ip.destination, dport), ip.hop_limit, payload)
}

#[test]
fn eight_plain_ones_of_ipv6() {
    for level in Level::available() {
        // Alone, and with a frame of IPv4 in front of each.
        for mixed in [false, true] {
            let mut lab = lab(&FNAT, level);
            let mut frames = Vec::new();
            for at in 0..8_u16 {
                if mixed {
                    frames.push(udp((CLIENT, 3000), (VIP, 53), b"of the other version"));
                }
                let (port, tcp) = (at % 4, at % 4 > 1);
                let service = if tcp { 80 } else { 53 };
                let (from, to) = match at < 4 {
                    true => (end(CLIENT_6, 3000 + port), end(VIP_6, service)),
                    false => (end(REAL_6, service), end(LOCAL_6, 1024 + port)),
                };
                frames.push(six(from, to, tcp.then_some(ACK), b"eighteen bytes of it"));
            }
            let verdicts = lab.burst(FRONT, &mut frames);
            for (at, frame) in
                frames.iter().skip(usize::from(mixed)).step_by(1 + usize::from(mixed)).enumerate()
            {
                let port = at as u16 % 4;
                let service = if port > 1 { 80 } else { 53 };
                let ends = match at < 4 {
                    true => (end(LOCAL_6, 1024 + port), end(REAL_6, service)),
                    false => (end(VIP_6, service), end(CLIENT_6, 3000 + port)),
                };
                let (from, to, hops, payload) = read_six(frame);
                assert_eq!(((from, to), hops), (ends, 63), "{at}");
                assert_eq!(payload, b"eighteen bytes of it");
            }
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Tx(_))));
        }
    }
}
