//! Flows of which more is changed than addresses and ports, spread: client address insertion,
//! source NAT, the other IP version. Packet for packet they become what they become on their
//! owner's path.

use super::client_address::{read, segment};
use super::lab::{BACK, FRONT, MemFrame, cases};
use super::modes::{Field, at, datagram, datagram_with, ip, snat, spec};
use super::spread::{Outcome, deal_out};
use crate::counters::Direction;
use crate::fib::PortId;
use crate::path::{Dealt, FlowName, FlowRewrite, NotSpreadable, Verdict, View};
use crate::reason::Reason;
use crate::spec::{ClientAddress, Mapping, Mode, Protocol};
use arrayvec::ArrayVec;
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, FIN, RST, SYN, URG};
use std::net::SocketAddr;

const ISN: u32 = 0xffff_ff00;
const FIRST: u32 = ISN.wrapping_add(1);

/// What is done to a flow.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Full NAT, with client address insertion, between these ends.
    Told(ClientAddress, usize),
    /// Source NAT, of IPv6 or IPv4.
    Snat(bool),
}

const ENDS: [[&str; 4]; 4] = [
    ["198.51.100.48:4000", "198.51.100.200:53", "192.0.2.11:53", "192.0.2.10:1024"],
    [
        "[2001:db8:1::48]:4000",
        "[2001:db8:1::200]:53",
        "[2001:db8:2::11]:53",
        "[2001:db8:2::10]:1024",
    ],
    ["[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "192.0.2.11:53", "192.0.2.10:1024"],
    ["198.51.100.48:4000", "198.51.100.200:53", "[2001:db8:2::11]:53", "[2001:db8:2::10]:1024"],
];
const OUTSIDE: [[&str; 4]; 2] = [
    ["192.0.2.11:700", "198.51.100.48:53", "198.51.100.48:53", "198.51.100.9:2000"],
    ["[2001:db8:2::11]:700", "[2001:db8:1::48]:53", "[2001:db8:1::48]:53", "[2001:db8:1::9]:2000"],
];

impl Kind {
    /// Client and service, who answers and where to.
    fn ends(self) -> [SocketAddr; 4] {
        match self {
            Self::Told(_, ends) => ENDS[ends].map(at),
            Self::Snat(six) => OUTSIDE[usize::from(six)].map(at),
        }
    }

    /// The port that a direction's packets come by.
    fn port(self, inbound: bool) -> PortId {
        if inbound != matches!(self, Self::Snat(_)) { FRONT } else { BACK }
    }

    fn field(self, tcp: bool) -> Field {
        let [_, vip, real, _] = self.ends();
        match self {
            Self::Told(how, _) => {
                let mut made =
                    spec(Mode::Fnat, &vip.ip().to_string(), &real.ip().to_string(), real.port());
                made.services[0].protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
                made.services[0].client_address = how;
                Field::new(&made)
            }
            Self::Snat(_) => Field::new(&snat(Mapping::EndpointIndependent)),
        }
    }
}

/// A flow and its director.
struct Bed {
    field: Field,
    kind: Kind,
    tcp: bool,
    /// Where answers go to.
    local: SocketAddr,
}

impl Bed {
    fn new((kind, tcp): (Kind, bool)) -> Self {
        Self { field: kind.field(tcp), kind, tcp, local: kind.ends()[3] }
    }

    /// With an open session.
    fn open((kind, tcp): (Kind, bool)) -> Self {
        let mut bed = Self::new((kind, tcp));
        if !tcp {
            for inbound in [true, false, true] {
                bed.through(inbound, (0, 0, 0), &[]);
            }
            return bed;
        }
        let header = bed.shake_hands();
        bed.through(false, (ACK, 901, FIRST.wrapping_add(header)), &[]);
        bed
    }

    /// A handshake; gives the length of the header that the stream begins with.
    fn shake_hands(&mut self) -> u32 {
        let opening = self.through(true, (SYN, ISN, 0), &[]);
        self.local.set_port(read(&opening).0.source_port);
        self.through(false, (SYN | ACK, 900, FIRST), &[]);
        read(&self.through(true, (ACK, FIRST, 901), &[])).1.len() as u32
    }

    fn through(&mut self, inbound: bool, tcp: (u8, u32, u32), payload: &[u8]) -> MemFrame {
        let [client, vip, real, _] = self.kind.ends();
        let (from, to) = if inbound { (client, vip) } else { (real, self.local) };
        let (flags, seq, ack) = tcp;
        let mut frame = match self.tcp {
            true => segment(from, to, flags, (seq, ack), &[], payload),
            false => datagram(from, to),
        };
        let verdict = self.field.one(self.kind.port(inbound), &mut frame);
        assert!(matches!(verdict, Verdict::Tx(_)), "{:?} {verdict:?}", self.kind);
        frame
    }

    fn name(&self, inbound: bool) -> FlowName {
        let [client, virtual_, ..] = self.kind.ends().map(|end| (end.ip(), end.port()));
        let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        FlowName { protocol: if self.tcp { 6 } else { 17 }, client, virtual_, direction }
    }

    fn view(&self) -> View<'_> {
        View { plan: &self.field.plan, fib: &self.field.fib }
    }

    fn freeze(&self, inbound: bool) -> Result<FlowRewrite, NotSpreadable> {
        self.field.path.freeze(self.view(), self.field.now, &self.name(inbound))
    }

    fn spread(&mut self, frozen: &FlowRewrite, inbound: bool, before: &[MemFrame]) -> Outcome {
        let port = self.kind.port(inbound);
        let Field { path, plan, fib, now } = &mut self.field;
        deal_out((path, View { plan, fib }), (*now, port), frozen, before)
    }
}

/// A packet of a flow, and what is the matter with it.
#[derive(Clone, Debug)]
struct Shot {
    flags: u8,
    numbers: (u32, u32),
    options: Vec<u8>,
    payload: usize,
    urgent: u16,
    /// Of IPv4.
    may_be_cut: bool,
    hops: u8,
    padding: usize,
    /// Instead of the right one.
    checksum: Option<u16>,
    super_packet: bool,
}

impl Shot {
    fn frame(&self, bed: &Bed, inbound: bool) -> MemFrame {
        let [client, vip, real, _] = bed.kind.ends();
        let (from, to) = if inbound { (client, vip) } else { (real, bed.local) };
        let payload: Vec<u8> = (0..self.payload).map(|at| (at * 7) as u8).collect();
        let mut frame = match bed.tcp {
            true => segment(from, to, self.flags, self.numbers, &self.options, &payload),
            false => datagram_with(from, to, &payload),
        };
        let bytes = &mut frame.bytes;
        let six = from.is_ipv6();
        let l4 = if six { 54 } else { 34 };
        if bed.tcp && self.flags & URG != 0 {
            bytes[l4 + 13] |= URG;
            bytes[l4 + 18..l4 + 20].copy_from_slice(&self.urgent.to_be_bytes());
        }
        match six {
            true => bytes[21] = self.hops,
            false => {
                bytes[20] = if self.may_be_cut { 0 } else { 0x40 };
                (bytes[22], bytes[24], bytes[25]) = (self.hops, 0, 0);
                let sum = sluice_wire::checksum::full(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
        if let Some(sum) = self.checksum {
            let at = l4 + if bed.tcp { 16 } else { 6 };
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend(vec![0xee; self.padding]);
        if self.super_packet && bed.tcp && self.payload > 1000 {
            return frame.joined(500);
        }
        frame
    }

    /// What a flow has but for a few packets. Larger ones may lack room for what is put in.
    fn is_usual(&self, tcp: bool) -> bool {
        let calm = !tcp || self.flags & (SYN | FIN | RST) == 0;
        calm && self.hops > 1
            && self.payload < 1380
            && !self.super_packet
            && self.checksum != Some(0)
    }
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let edges = |blocks: usize| proptest::collection::vec(any::<u8>(), blocks * 8);
    prop_oneof![
        2 => Just(vec![1]),
        2 => any::<[u8; 8]>().prop_map(|stamps| [&[8, 10], &stamps[..]].concat()),
        // Real servers' blocks are of what the client sent.
        3 => (1usize..4).prop_flat_map(edges).prop_map(|blocks| {
            [&[5, blocks.len() as u8 + 2], &blocks[..]].concat()
        }),
        1 => any::<[u8; 6]>().prop_map(|forged| [&[254, 8], &forged[..]].concat()),
        1 => any::<[u8; 18]>().prop_map(|forged| [&[254, 20], &forged[..]].concat()),
        1 => (any::<u8>(), 0u8..9).prop_map(|(kind, length)| vec![kind, length]),
    ]
}

fn any_shot() -> impl Strategy<Value = Shot> {
    let flags = prop_oneof![
        16 => Just(ACK), 4 => Just(ACK | 8), 2 => Just(ACK | URG), 1 => Just(0),
        1 => Just(RST | ACK), 1 => Just(FIN | ACK), 1 => Just(SYN), 1 => any::<u8>(),
    ];
    let number = || {
        prop_oneof![
            4 => (0u32..4000).prop_map(|more| FIRST.wrapping_add(more)),
            4 => 901u32..4000, 1 => Just(FIRST), 1 => any::<u32>(),
        ]
    };
    let options = proptest::collection::vec(any_option(), 0..4).prop_map(|all| {
        let mut all = all.concat();
        all.truncate(40);
        all
    });
    let payload = prop_oneof![4 => 0usize..80, 3 => 1180usize..1290, 2 => 1380usize..1500];
    let ip = (
        proptest::bool::weighted(0.2),
        prop_oneof![9 => Just(64u8), 1 => 0u8..3],
        prop_oneof![4 => Just(0usize), 1 => 1usize..20],
        prop_oneof![8 => Just(None), 1 => Just(Some(0)), 1 => any::<u16>().prop_map(Some)],
    );
    let tcp = (flags, (number(), number()), options, any::<u16>());
    (tcp, payload, ip, proptest::bool::weighted(0.05)).prop_map(|(tcp, payload, ip, joined)| {
        let (flags, numbers, options, urgent) = tcp;
        let (may_be_cut, hops, padding, checksum) = ip;
        Shot {
            flags,
            numbers,
            options,
            payload,
            urgent,
            may_be_cut,
            hops,
            padding,
            checksum,
            super_packet: joined,
        }
    })
}

fn any_kind() -> impl Strategy<Value = (Kind, bool)> {
    let how = prop_oneof![
        1 => Just(ClientAddress::Hidden), 2 => Just(ClientAddress::Toa),
        2 => Just(ClientAddress::ProxyV1), 2 => Just(ClientAddress::ProxyV2),
    ];
    let kind = prop_oneof![
        4 => (how, 0usize..4).prop_map(|(how, ends)| Kind::Told(how, ends)),
        1 => any::<bool>().prop_map(Kind::Snat),
    ];
    (kind, proptest::bool::weighted(0.7))
}

/// Whether a packet that becomes one of the other version is the same whoever translates it.
fn translates_plainly(kind: Kind, inbound: bool, shot: &Shot) -> bool {
    let Kind::Told(_, ends) = kind else { return true };
    match (ends, inbound) {
        (0 | 1, _) => true,
        (2, true) | (3, false) => shot.payload > 1260,
        _ => !shot.may_be_cut,
    }
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn each_kind_is_spread_as_alone(
        kind in any_kind(),
        inbound: bool,
        shots in proptest::collection::vec(any_shot(), 1..40),
    ) {
        let (mut spreading, mut reference) = (Bed::open(kind), Bed::open(kind));
        let frozen = spreading.freeze(inbound);
        prop_assert!(frozen.is_ok(), "{frozen:?}");
        let frozen = frozen.unwrap();
        let before: Vec<MemFrame> =
            shots.iter().map(|shot| shot.frame(&spreading, inbound)).collect();
        let out = spreading.spread(&frozen, inbound, &before);
        let port = kind.0.port(inbound);
        for at in &out.order {
            let mut alone = before[*at].clone();
            let verdict = reference.field.one(port, &mut alone);
            prop_assert_eq!(verdict, out.verdicts[*at], "{:?}", shots[*at]);
            prop_assert_eq!(&alone, &out.frames[*at], "{:?}", shots[*at]);
        }
        let [spread, alone] = [&spreading, &reference].map(|bed| &bed.field);
        prop_assert_eq!(alone.path.counters(), spread.path.counters());
        prop_assert_eq!(alone.path.live_sessions(), spread.path.live_sessions());
        prop_assert_eq!(sessions(&reference), sessions(&spreading));
        let calm = shots.iter().take_while(|shot| shot.is_usual(kind.1));
        let plain = calm.filter(|shot| translates_plainly(kind.0, inbound, shot)).count();
        prop_assert!(out.plain >= plain, "{} of {plain} are plain", out.plain);
    }
}

/// The sessions, with all that is remembered of each.
fn sessions(bed: &Bed) -> Vec<crate::path::SessionInfo> {
    let (mut found, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let Field { path, plan, now, .. } = &bed.field;
        cursor = path.list(plan, *now, &Default::default(), (from, 4096), &mut found);
    }
    found
}

/// A connection is spread as soon as its real server knows the client, and not before.
#[test]
fn a_connection_is_spread_once_its_client_is_known() {
    for how in [ClientAddress::Toa, ClientAddress::ProxyV1, ClientAddress::ProxyV2] {
        for ends in 0..ENDS.len() {
            let kind = Kind::Told(how, ends);
            let mut bed = Bed::new((kind, true));
            let header = bed.shake_hands();
            let why = [true, false].map(|inbound| bed.freeze(inbound).err());
            assert_eq!(why, [Some(NotSpreadable::ClientAddress); 2], "{kind:?}");
            if header > 0 {
                // A part of the header is not all of it.
                bed.through(false, (ACK, 901, FIRST.wrapping_add(header - 1)), &[]);
                assert_eq!(bed.freeze(true), Err(NotSpreadable::ClientAddress), "{kind:?}");
            }
            bed.through(false, (ACK, 901, FIRST.wrapping_add(header)), &[]);
            assert!([true, false].iter().all(|inbound| bed.freeze(*inbound).is_ok()), "{kind:?}");
        }
    }
}

/// The numbers of a spread stream, as another's parser reads them: what the client sends lies
/// behind the header, and what it is told to have been received does not count it.
#[test]
fn a_spread_stream_keeps_its_offset() {
    for ends in 0..ENDS.len() {
        let kind = Kind::Told(ClientAddress::ProxyV1, ends);
        let mut bed = Bed::new((kind, true));
        let header = bed.shake_hands();
        bed.through(false, (ACK, 901, FIRST.wrapping_add(header)), &[]);
        let [client, vip, real, local] = kind.ends();
        let numbers = (FIRST.wrapping_add(5), 901);
        let payload = [9; 1300];
        let data = segment(client, vip, ACK, numbers, &[], &payload);
        let frozen = bed.freeze(true).unwrap();
        let out = bed.spread(&frozen, true, &[data]);
        assert_eq!(out.plain, 1, "{kind:?}");
        let (tcp, bytes, _) = read(&out.frames[0]);
        assert_eq!(tcp.sequence_number, FIRST.wrapping_add(5 + header));
        assert_eq!((tcp.acknowledgment_number, &bytes[..]), (901, &payload[..]));
        // Two blocks, at an odd place.
        let edges = [FIRST.wrapping_add(header + 9), FIRST.wrapping_add(header + 20), 7, 11];
        let edges: Vec<u8> = edges.iter().flat_map(|edge| edge.to_be_bytes()).collect();
        let sack = [&[1, 5, 18], &edges[..], &[1]].concat();
        let numbers = (901, FIRST.wrapping_add(header + 3));
        let answer = segment(real, local, ACK, numbers, &sack, &payload);
        let frozen = bed.freeze(false).unwrap();
        let out = bed.spread(&frozen, false, &[answer]);
        assert_eq!(out.plain, 1, "{kind:?}");
        let (tcp, bytes, _) = read(&out.frames[0]);
        assert_eq!(tcp.sequence_number, 901);
        assert_eq!(tcp.acknowledgment_number, FIRST.wrapping_add(3));
        let read =
            |at: usize| u32::from_be_bytes(tcp.options.as_slice()[at..at + 4].try_into().unwrap());
        let expected = [FIRST.wrapping_add(9), FIRST.wrapping_add(20)];
        assert_eq!([read(3), read(7)], expected);
        assert_eq!([read(11), read(15)], [7, 11].map(|edge: u32| edge.wrapping_sub(header)));
        assert_eq!(bytes, payload);
    }
}

/// Datagrams without room for a PROXY header are dropped, and counted as that and nothing else,
/// whether or not their flow is spread; those with room go on.
#[test]
fn datagrams_without_room_for_a_header_are_not_counted_as_forwarded() {
    let kind = Kind::Told(ClientAddress::ProxyV2, 0);
    let [mut spread, mut plain] = [Bed::open((kind, false)), Bed::open((kind, false))];
    let frozen = spread.freeze(true).unwrap();
    let [client, vip, ..] = kind.ends();
    for rooms in [[128; 4], [128, 27, 128, 0], [28; 4], [27; 4]] {
        let before = rooms.map(|room| datagram_with(client, vip, b"question").cramped(room));
        let dealt = spread.spread(&frozen, true, &before);
        assert_eq!(dealt.plain, if rooms.iter().all(|room| *room >= 28) { 4 } else { 0 });
        for (at, frame) in dealt.frames.iter().enumerate() {
            let mut alone = before[at].clone();
            let verdict = plain.field.one(FRONT, &mut alone);
            assert_eq!((dealt.verdicts[at], frame), (verdict, &alone), "{rooms:?}");
        }
        let [counted, expected] = [&spread, &plain].map(|bed| bed.field.path.counters().clone());
        assert_eq!(counted.reals[0].packets, expected.reals[0].packets, "{rooms:?}");
        assert_eq!(counted.reals[0].bytes, expected.reals[0].bytes);
        assert_eq!(counted.of(Reason::Headroom), expected.of(Reason::Headroom));
    }
    assert_eq!(plain.field.path.counters().of(Reason::Headroom), 6);
}

/// What was frozen of a connection is not the next one's of the same ends, which begins anew.
#[test]
fn the_next_connection_of_the_same_ends_is_another() {
    let kind = Kind::Told(ClientAddress::ProxyV2, 0);
    let mut bed = Bed::open((kind, true));
    let frozen = bed.freeze(true).unwrap();
    bed.through(true, (RST | ACK, FIRST, 901), &[]);
    bed.shake_hands();
    let frame = segment(kind.ends()[0], kind.ends()[1], ACK, (FIRST, 901), &[], b"more");
    let mut burst: ArrayVec<MemFrame, { crate::path::BURST }> = ArrayVec::new();
    burst.push(frame);
    let Field { path, plan, fib, now } = &mut bed.field;
    let only_owners = |dealt, _, _: MemFrame| assert_eq!(dealt, Dealt::Owners);
    let view = View { plan, fib };
    assert!(path.deal(view, *now, FRONT, (&frozen, false), &mut burst, only_owners));
}

/// Hosts behind source NAT that reach each other outside: their packets go through the path twice.
#[test]
fn hairpins_are_not_spread() {
    let mut spec = snat(Mapping::EndpointIndependent);
    spec.snat[0].hairpinning = true;
    let mut field = Field::new(&spec);
    let (one, other) = (at("192.0.2.11:700"), at("192.0.2.11:701"));
    // The other host's mapping, and then a datagram to that.
    for (from, to) in [(other, at("198.51.100.48:53")), (one, at("198.51.100.9:2000"))] {
        assert!(matches!(field.one(BACK, &mut datagram(from, to)), Verdict::Tx(_)));
    }
    let back = datagram(other, at("198.51.100.9:2001"));
    assert!(matches!(field.one(BACK, &mut back.clone()), Verdict::Tx(_)));
    let name = FlowName {
        protocol: 17,
        client: (one.ip(), one.port()),
        virtual_: (ip("198.51.100.9"), 2000),
        direction: Direction::Inbound,
    };
    let view = View { plan: &field.plan, fib: &field.fib };
    assert_eq!(field.path.freeze(view, field.now, &name), Err(NotSpreadable::Hairpin));
}
