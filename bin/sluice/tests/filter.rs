//! What the director's interpreter makes of a filter is what libpcap makes of it.

use etherparse::PacketBuilder;
use pcap::{BpfInstruction, BpfProgram, Capture, Linktype};
use proptest::prelude::*;
use sluice::filter;
use sluice_director::filter::{Instruction, Program};

/// Expressions that use each kind of instruction that libpcap makes.
const EXPRESSIONS: [&str; 30] = [
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp port 53",
    "port 80",
    "tcp src port 80",
    "not port 80",
    "host 198.51.100.48",
    "src host 198.51.100.48 and dst host 198.51.100.200",
    "net 198.51.100.0/24",
    "ip6 host 2001:db8::48",
    "net 2001:db8::/32",
    "portrange 50-100",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] == tcp-syn",
    "ip[8] < 10",
    "ip[2:2] > 100 and ip[2:2] <= 200",
    "ip[6:2] & 0x1fff = 0",
    "udp[4:2] % 3 = 1",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "len > 60",
    "less 64 or greater 100",
    "ether dst 06:06:06:06:06:06",
    "vlan 7 and ip",
    "vlan and tcp port 80",
    "ip proto 132 or icmp",
    "ether[0] & 1 = 0 and ip[16] >= 224",
    "(tcp[2:2] * 2 + 7) / 3 > 100 or -ip[1] = 0 or (ip[4:2] ^ 0x55) << 2 > 9",
];

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let address =
        prop::sample::select(vec![[198, 51, 100, 48], [198, 51, 100, 200], [224, 0, 0, 1]]);
    let port = prop::sample::select(vec![53u16, 80, 81, 4000]);
    let ends = (address.clone(), address, port.clone(), port);
    let body = prop::collection::vec(any::<u8>(), 0..120);
    let kind = (0u8..5, any::<u8>(), prop::option::of(prop::sample::select(vec![7u16, 8])));
    (ends, body, kind, any::<bool>()).prop_map(|(ends, body, (kind, flags, vlan), get)| {
        let (src, dst, sport, dport) = ends;
        let mut out = Vec::new();
        let body = if get { [&b"GET "[..], &body].concat() } else { body };
        let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
        let (six, ttl) =
            (|low: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low], flags);
        match (kind, vlan) {
            (0, Some(vlan)) => {
                let id = vlan.try_into().expect("a VLAN");
                let builder = builder.single_vlan(id).ipv4(src, dst, ttl);
                builder.tcp(sport, dport, 1, 1).write(&mut out, &body).expect("a frame");
            }
            (0 | 1, _) => {
                let mut tcp = builder.ipv4(src, dst, ttl).tcp(sport, dport, 1, 100);
                tcp = if flags & 1 == 1 { tcp.syn() } else { tcp.ack(5) };
                tcp.write(&mut out, &body).expect("a frame");
            }
            (2, _) => {
                let udp = builder.ipv4(src, dst, ttl).udp(sport, dport);
                udp.write(&mut out, &body).expect("a frame");
            }
            (3, _) => {
                let udp = builder.ipv6(six(0x48), six(src[3]), ttl).udp(sport, dport);
                udp.write(&mut out, &body).expect("a frame");
            }
            _ => out.extend(body),
        }
        out
    })
}

/// The interpreter with the very program that libpcap runs. Programs that were not optimised may
/// read other parts of a frame that breaks off, so each is compared with itself.
fn ours(theirs: &BpfProgram) -> Program {
    let read = |instruction: &BpfInstruction| {
        let numbers = instruction.to_string();
        let numbers: Vec<u32> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [code, jt, jf, k] = numbers[..] else { panic!("{numbers:?}") };
        Instruction { code: code as u16, jt: jt as u8, jf: jf as u8, k }
    };
    let instructions: Vec<_> = theirs.get_instructions().iter().map(read).collect();
    Program::new(&instructions).expect("what libpcap makes is accepted")
}

#[test]
fn what_is_sent_to_the_director_is_libpcaps_program() {
    let dead = Capture::dead(Linktype::ETHERNET).expect("libpcap");
    for expression in EXPRESSIONS {
        let theirs = dead.compile(expression, true).expect(expression);
        let sent = filter::compile(expression).expect(expression);
        let sent = sent.iter().map(|[code, jt, jf, k]| format!("{code} {jt} {jf} {k}"));
        let theirs = theirs.get_instructions().iter().map(ToString::to_string);
        assert!(sent.eq(theirs), "{expression}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_interpreter_agrees_with_libpcap(
        frame in frame(),
        change in prop::option::weighted(0.4, (0usize..60, any::<u8>())),
        cut in prop::option::weighted(0.3, 0usize..120),
    ) {
        let mut frame = frame;
        if let Some((at, value)) = change && at < frame.len() {
            frame[at] = value;
        }
        frame.truncate(cut.unwrap_or(usize::MAX));
        let dead = Capture::dead(Linktype::ETHERNET).expect("libpcap");
        for optimise in [true, false] {
            for expression in EXPRESSIONS {
                let theirs = dead.compile(expression, optimise).expect(expression);
                prop_assert_eq!(
                    ours(&theirs).takes(&frame),
                    theirs.filter(&frame),
                    "{:?} of {:02x?}", expression, frame
                );
            }
        }
    }
}
