//! Packets that go eight at a time become what they become one at a time, whatever is the matter
//! with them.

use super::lab::{CLIENT, FRONT, LOCAL, Lab, MemFrame, Packet, REAL, VIP, tcp, udp};
use crate::blueprint::Mode;
use crate::frame::Frame;
use crate::path::{Level, Verdict};
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, SYN};

/// What is the matter with a packet.
#[derive(Clone, Debug)]
enum Oddity {
    None,
    /// One byte of its headers, the IPv4 checksum following or not.
    Byte {
        at: usize,
        value: u8,
        repaired: bool,
    },
    /// Its transport checksum.
    Sum(u16),
    /// Bytes of the frame that are there.
    Cut(usize),
    /// Bytes behind the packet.
    Padded(usize),
}

#[derive(Clone, Debug)]
struct Shot {
    inbound: bool,
    tcp: bool,
    /// Of four sessions, or of none.
    client_port: u16,
    flags: u8,
    payload: usize,
    oddity: Oddity,
}

impl Shot {
    fn frame(&self, mode: Mode) -> MemFrame {
        let service = if self.tcp { 80 } else { 53 };
        let client = (CLIENT, 3000 + self.client_port);
        let local = if mode == Mode::Fnat { (LOCAL, 1024 + self.client_port) } else { client };
        let (from, to) =
            if self.inbound { (client, (VIP, service)) } else { ((REAL, service), local) };
        let payload = vec![0x5a; self.payload];
        let mut frame = if self.tcp {
            tcp(from, to, self.flags, (100, 200), &payload)
        } else {
            udp(from, to, &payload)
        };
        let sum_at = if self.tcp { 50 } else { 40 };
        let bytes = &mut frame.bytes;
        match self.oddity {
            Oddity::None => {}
            Oddity::Byte { at, value, repaired } => {
                let at = at % bytes.len();
                bytes[at] = value;
                if repaired {
                    bytes[24..26].fill(0);
                    let sum = sluice_wire::checksum::full(&bytes[14..34]);
                    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                }
            }
            Oddity::Sum(sum) => bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes()),
            Oddity::Cut(length) => bytes.truncate(length),
            Oddity::Padded(length) => bytes.extend(vec![0xee; length]),
        }
        frame
    }
}

fn any_shot() -> impl Strategy<Value = Shot> {
    let oddity = prop_oneof![
        6 => Just(Oddity::None),
        3 => (0usize..56, any::<u8>(), any::<bool>())
            .prop_map(|(at, value, repaired)| Oddity::Byte { at, value, repaired }),
        1 => (0u8..3).prop_map(|value| Oddity::Byte { at: 22, value, repaired: true }),
        1 => prop_oneof![Just(0), Just(0xffff), any::<u16>()].prop_map(Oddity::Sum),
        1 => (0usize..70).prop_map(Oddity::Cut),
        1 => (0usize..30).prop_map(Oddity::Padded),
    ];
    let flags = prop_oneof![12 => Just(ACK), 1 => Just(SYN), 1 => any::<u8>()];
    let payload = prop_oneof![8 => 0usize..40, 1 => 1340usize..1480];
    (any::<bool>(), any::<bool>(), 0u16..5, flags, payload, oddity).prop_map(
        |(inbound, tcp, client_port, flags, payload, oddity)| Shot {
            inbound,
            tcp,
            client_port,
            flags,
            payload,
            oddity,
        },
    )
}

/// A director that forwards by `mode`, with a session for each of four client ports and protocols.
fn lab(mode: Mode, level: Level) -> Lab {
    let set = |b: &mut crate::blueprint::Blueprint| {
        b.services.iter_mut().for_each(|service| service.mode = mode);
        let source = crate::blueprint::Network { address: [192, 0, 2, 9].into(), prefix: 32 };
        b.tunnel.v4 = Some(source);
        // One real server, so that its answers can be foretold.
        b.services.iter_mut().for_each(|service| service.reals.truncate(1));
    };
    let mut lab = Lab::with(set, 1000, (0, 1)).at_level(level);
    for port in 3000..3004 {
        for mut frame in [udp((CLIENT, port), (VIP, 53), b"1"), {
            tcp((CLIENT, port), (VIP, 80), SYN, (99, 0), b"")
        }] {
            assert!(matches!(lab.one(FRONT, &mut frame), Verdict::Tx(_)), "{mode:?}");
        }
        let mut ack = tcp((CLIENT, port), (VIP, 80), ACK, (100, 200), b"");
        assert!(matches!(lab.one(FRONT, &mut ack), Verdict::Tx(_)), "{mode:?}");
    }
    lab
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn together_as_alone(
        runs in proptest::collection::vec(
            (any_shot(), prop_oneof![2 => Just(1), 1 => 1usize..30]), 4..64,
        ),
        mode in prop_oneof![
            3 => Just(Mode::Fnat), 2 => Just(Mode::Nat), 1 => Just(Mode::Dr), 1 => Just(Mode::Ipip),
        ],
    ) {
        let shots = runs.iter().flat_map(|(shot, times)| std::iter::repeat_n(shot, *times));
        let shots: Vec<&Shot> = shots.take(64).collect();
        let (mut single, mut staged) = (lab(mode, Level::BASELINE), lab(mode, Level::detect()));
        let mut alone: Vec<MemFrame> = shots.iter().map(|shot| shot.frame(mode)).collect();
        let mut together = alone.clone();
        let verdicts: Vec<Verdict> = alone.iter_mut().map(|f| single.one(FRONT, f)).collect();
        let before = together.clone();
        let both = staged.burst(FRONT, &mut together);
        // What other processors have, the scalar twin too.
        for level in Level::available() {
            let (mut other, mut frames) = (lab(mode, level), before.clone());
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

/// Eight that nothing is the matter with, as another's parser reads them.
#[test]
fn eight_plain_ones() {
    for level in Level::available() {
        eight(lab(Mode::Fnat, level));
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
