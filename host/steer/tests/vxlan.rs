//! VXLAN: which packets of a virtual port the director gets and which the kernel's own device. Each
//! row is run over both outer families, and with packets of both inside.

mod bench;

use bench::Fate::{Director, Kernel};
use bench::scene::{
    ANY, ANY_REAL, CLIENT, Carried, ESP, INSIDE, LADDR, OUTSIDE, OWN, PLAIN_LADDR, REAL, Row, SCTP,
    TCP, TUNNEL, UDP, VIP, at, ethernet, matches, net, packet,
};
use bench::scene::{Icmp, Other, Ping, Pong, Ports};
use bench::{Bench, Fate, needs_root};
use sluice_steer::{EndpointMatch, Error, InnerMatch, LocalMatch, Matches, VxlanMatch};

const LOCAL: &str = "198.51.100.1";
const REMOTE: &str = "198.51.100.2";
const PORT: u16 = 4789;
/// Network 7, with something of everything.
const VNI: u32 = 0x12_3456;
/// Network 300, which has nothing.
const EMPTY_VNI: u32 = 200;
const NEIGHBOURS: [u8; 5] = [133, 134, 135, 136, 137];

fn vxlans(v6: bool) -> Vec<VxlanMatch> {
    let of = |vni, network| VxlanMatch { local: at(v6, LOCAL), port: PORT, vni, network };
    vec![of(VNI, 7), of(EMPTY_VNI, 300), of(VNI, 300)]
}

/// A network with other services than the default one has at the same addresses.
fn network() -> InnerMatch {
    let both = [false, true];
    let service = |protocol, text, ports: std::ops::RangeInclusive<u16>| {
        both.map(|v6| EndpointMatch { protocol, address: at(v6, text), ports: ports.clone() })
    };
    let local =
        |text, echo| both.map(|v6| LocalMatch { address: at(v6, text), ports: 1024..=2047, echo });
    let services = [
        service(TCP, VIP, 8443..=8443),
        service(UDP, VIP, 5000..=5009),
        service(0, ANY_REAL, 0..=u16::MAX),
        service(TCP, CLIENT, 80..=80),
    ];
    let own =
        [OWN[1], VIP, LADDR, ANY_REAL, TUNNEL].iter().flat_map(|text| both.map(|v6| at(v6, text)));
    InnerMatch {
        network: 7,
        services: services.concat(),
        locals: [local(LADDR, true), local(PLAIN_LADDR, false)].concat(),
        own: own.collect(),
        tunnels: both.map(|v6| net(v6, VIP, if v6 { 128 } else { 32 })).to_vec(),
    }
}

/// Over this family; the default network has what the other tests have.
fn configured(v6: bool) -> Matches {
    let empty = InnerMatch { network: 300, ..InnerMatch::default() };
    Matches { vxlan: vxlans(v6), inner: vec![network(), empty], ..matches(v6) }
}

/// A VXLAN header and a frame.
fn vxlan(flags: u8, vni: u32, frame: &[u8]) -> Vec<u8> {
    let mut data = vec![flags, 0, 0, 0];
    data.extend((vni << 8).to_be_bytes());
    data.extend(frame);
    data
}

/// UDP from a remote, with this data.
fn datagram(v6: bool, to: &str, port: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(v6, REMOTE, to, &Ports(UDP, 50_000, port));
    let l3 = 14;
    frame.truncate(l3 + if v6 { 40 } else { 20 } + 8);
    let udp = (8 + data.len()) as u16;
    let (length, at) = if v6 { (udp, l3 + 4) } else { (udp + 20, l3 + 2) };
    frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
    let at = frame.len() - 4;
    frame[at..at + 2].copy_from_slice(&udp.to_be_bytes());
    frame.extend(data);
    frame
}

/// A frame in a VXLAN.
fn wrapped(v6: bool, vni: u32, frame: &[u8]) -> Vec<u8> {
    datagram(v6, LOCAL, PORT, &vxlan(8, vni, frame))
}

/// Each of both outer families with each of both inner ones.
fn families() -> [(bool, bool); 4] {
    [(false, false), (false, true), (true, false), (true, true)]
}

/// Runs rows of (what, from, to, carried, fate) inside a network.
fn run(vni: u32, rows: impl Fn(bool) -> Vec<Row>) {
    for (outer, inner) in families() {
        let mut bench = Bench::configured(&configured(outer));
        for (what, from, to, carried, fate) in rows(inner) {
            let frame = wrapped(outer, vni, &ethernet(inner, from, to, &carried));
            assert_eq!(bench.fate(&frame), fate, "IPv6 {outer}, in it {inner}: {what}");
        }
    }
}

#[test]
fn what_is_to_the_machine_itself_is_the_kernels() {
    needs_root!();
    run(VNI, |_| {
        let tcp = |port| Ports(TCP, 40_000, port);
        let mut rows = vec![
            ("to the gateway", CLIENT, OWN[1], tcp(22), Kernel),
            ("ping to the gateway", CLIENT, OWN[1], Ping(1), Kernel),
            ("an answer to its ping", CLIENT, OWN[1], Pong(1), Kernel),
            ("BGP", CLIENT, OWN[1], tcp(179), Kernel),
            ("an answer to its own connection", CLIENT, OWN[1], Ports(TCP, 179, 40_000), Kernel),
            ("a service on an own address", CLIENT, VIP, tcp(8443), Director),
            ("a range on an own address", CLIENT, VIP, Ports(UDP, 40_000, 5004), Director),
            ("behind the range", CLIENT, VIP, Ports(UDP, 40_000, 5010), Kernel),
            ("the default network's service there", CLIENT, VIP, tcp(80), Kernel),
            ("ssh to the service's address", CLIENT, VIP, tcp(22), Kernel),
            ("ping to the service's address", CLIENT, VIP, Ping(1), Kernel),
            ("every protocol on an own address", CLIENT, ANY_REAL, Other(ESP), Director),
            ("but ping", CLIENT, ANY_REAL, Ping(1), Kernel),
            ("to the pool", REAL, LADDR, Ports(TCP, 80, 1024), Director),
            ("an answer to a translated ping", OUTSIDE, LADDR, Pong(1500), Director),
            ("beside the pool", REAL, LADDR, Ports(TCP, 80, 2048), Kernel),
            ("an answer to the machine's ping", OUTSIDE, LADDR, Pong(3000), Kernel),
            ("ping to the pool's address", OUTSIDE, LADDR, Ping(1500), Kernel),
        ];
        for never in [2, 89, 112] {
            rows.push(("what the kernel lives by", CLIENT, ANY_REAL, Other(never), Kernel));
        }
        rows
    });
}

#[test]
fn everything_else_is_the_directors() {
    needs_root!();
    run(VNI, |_| {
        let tcp = Ports(TCP, 40_000, 22);
        vec![
            ("a service on no own address", OUTSIDE, CLIENT, Ports(TCP, 40_000, 80), Director),
            ("another port there", OUTSIDE, CLIENT, tcp.clone(), Director),
            ("to nobody", CLIENT, OUTSIDE, tcp.clone(), Director),
            ("to an own address of the default network", CLIENT, OWN[0], tcp.clone(), Director),
            ("to a service of the default network", CLIENT, ANY, tcp, Director),
            ("a real server's answer", REAL, OUTSIDE, Ports(TCP, 8080, 40_000), Director),
            ("SCTP", INSIDE, OUTSIDE, Ports(SCTP, 40_000, 443), Director),
            ("ping", INSIDE, OUTSIDE, Ping(7), Director),
            ("another protocol", INSIDE, OUTSIDE, Other(ESP), Director),
            ("to a pool on no own address", REAL, PLAIN_LADDR, Ports(TCP, 80, 1024), Director),
            ("beside that pool", REAL, PLAIN_LADDR, Ports(TCP, 80, 22), Director),
        ]
    });
    run(EMPTY_VNI, |_| {
        let of_other = |to| ("own and served in the other network", CLIENT, to, Ping(1), Director);
        [OWN[1], VIP, LADDR, CLIENT].map(of_other).to_vec()
    });
}

/// Errors to the machine's own addresses are judged by what they quote, others are routed.
#[test]
fn errors_inside() {
    needs_root!();
    run(VNI, |v6| {
        let about = |from, to, carried| Icmp(3, 1, packet(v6, from, to, &carried));
        let answer = |port| about(VIP, CLIENT, Ports(TCP, port, 40_000));
        let (pool, ssh) = (Ports(UDP, 1024, 53), Ports(TCP, 22, 40_000));
        let ping = about(OWN[1], CLIENT, Ping(1));
        let tunnel = about(TUNNEL, REAL, Other(4));
        let own = about(VIP, REAL, Other(4));
        vec![
            ("a service's answer", OUTSIDE, VIP, answer(8443), Director),
            ("an answer of the default network's", OUTSIDE, VIP, answer(80), Kernel),
            ("not sent to whom it quotes", OUTSIDE, OWN[1], answer(8443), Kernel),
            ("of the pool", REAL, LADDR, about(LADDR, REAL, pool.clone()), Director),
            ("of the pool's machine", REAL, LADDR, about(LADDR, REAL, ssh.clone()), Kernel),
            ("a pool on no own address", REAL, PLAIN_LADDR, about(LADDR, REAL, pool), Director),
            ("the machine's ping", REAL, OWN[1], ping, Kernel),
            ("between others", REAL, CLIENT, about(CLIENT, REAL, ssh), Director),
            ("of which nothing can be read", REAL, CLIENT, Icmp(3, 1, Vec::new()), Director),
            ("the same to an own address", REAL, LADDR, Icmp(3, 1, Vec::new()), Kernel),
            ("the default network's tunnels", REAL, TUNNEL, tunnel, Kernel),
            ("its own tunnels", REAL, VIP, own.clone(), Director),
            ("its own tunnels, not sent to their source", REAL, LADDR, own, Kernel),
        ]
    });
    run(VNI, |v6| {
        let quoted = packet(v6, VIP, CLIENT, &Ports(TCP, 8443, 40_000));
        let row = |kind: u8| {
            let ours = if v6 { (1..=4).contains(&kind) } else { [3, 4, 11, 12].contains(&kind) };
            let fate = if ours { Director } else { Kernel };
            ("by its type", OUTSIDE, VIP, Icmp(kind, kind, quoted.clone()), fate)
        };
        (0..=255).map(row).collect()
    });
}

/// Neighbour discovery is the kernel's, to whomever it is; so are groups and a link's addresses.
#[test]
fn what_no_router_forwards_is_the_kernels() {
    needs_root!();
    for outer in [false, true] {
        let mut bench = Bench::configured(&configured(outer));
        let mut inside = |frame: &[u8]| bench.fate(&wrapped(outer, VNI, frame));
        for kind in 128..=143 {
            let fate = if NEIGHBOURS.contains(&kind) { Kernel } else { Director };
            for to in [CLIENT, OUTSIDE] {
                let body = Icmp(0, kind, vec![0; 20]);
                assert_eq!(inside(&ethernet(true, REAL, to, &body)), fate, "{kind} to {to}");
            }
        }
        let ordinary = |v6| ethernet(v6, REAL, OUTSIDE, &Ports(UDP, 1, 2));
        for (v6, to) in [
            (false, "224.0.0.5"),
            (false, "255.255.255.255"),
            (false, "169.254.1.1"),
            (false, "127.0.0.1"),
            (true, "ff02::5"),
            (true, "fe80::1"),
            (true, "::1"),
        ] {
            let mut frame = ordinary(v6);
            let octets = match to.parse().unwrap() {
                std::net::IpAddr::V4(to) => to.octets().to_vec(),
                std::net::IpAddr::V6(to) => to.octets().to_vec(),
            };
            let from = if v6 { 38 } else { 30 };
            frame[from..from + octets.len()].copy_from_slice(&octets);
            assert_eq!(inside(&frame), Kernel, "to {to}");
        }
        for v6 in [false, true] {
            let changed = |at: usize, bytes: &[u8]| {
                let mut frame = ordinary(v6);
                frame[at..at + bytes.len()].copy_from_slice(bytes);
                frame
            };
            assert_eq!(inside(&ordinary(v6)), Director);
            assert_eq!(inside(&changed(0, &[0xff; 6])), Kernel, "broadcast");
            assert_eq!(inside(&changed(0, &[0x33, 0x33])), Kernel, "a group of stations");
            assert_eq!(inside(&changed(12, &[8, 6])), Kernel, "ARP");
            assert_eq!(inside(&changed(12, &[0x88, 0xcc])), Kernel, "another protocol");
            assert_eq!(inside(&changed(14, &[0x15])), Kernel, "no IP version");
            for tag in [[0x81, 0], [0x88, 0xa8]] {
                let mut tagged = ordinary(v6);
                tagged.splice(12..12, [tag[0], tag[1], 0, 5]);
                assert_eq!(inside(&tagged), Kernel, "a tag");
            }
        }
    }
}

/// What is not plainly a VXLAN's is the kernel's, and what is to another address goes on as ever.
#[test]
fn only_what_is_plainly_a_vxlans_is_taken() {
    needs_root!();
    for (outer, inner) in families() {
        let mut bench = Bench::configured(&configured(outer));
        let frame = ethernet(inner, CLIENT, OUTSIDE, &Ports(TCP, 40_000, 80));
        let plain = wrapped(outer, VNI, &frame);
        let data = |flags, vni| datagram(outer, LOCAL, PORT, &vxlan(flags, vni, &frame));
        let to = |address, port| datagram(outer, address, port, &vxlan(8, VNI, &frame));
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = plain.clone();
            changed.splice(at..at, bytes.iter().copied());
            changed
        };
        let put = |at: usize, byte: u8| {
            let mut changed = plain.clone();
            changed[at] = byte;
            changed
        };
        let mut rows = vec![
            ("as it should be", plain.clone(), Director),
            ("reserved flags", data(0xff, VNI), Director),
            ("no network identifier", data(0xf7, VNI), Kernel),
            ("an unknown network", data(8, VNI + 1), Kernel),
            ("network 0", data(8, 0), Kernel),
            ("the largest network", data(8, 0xff_ffff), Kernel),
            ("another address", to(OWN[1], PORT), Kernel),
            ("another port", to(LOCAL, 8472), Kernel),
            ("a port that has the same bit", to(LOCAL, 63), Kernel),
            ("a service of UDP", to(VIP, PORT), Kernel),
            ("all UDP ports elsewhere", to("198.51.100.201", PORT), Director),
            ("a tag", with(12, &[0x81, 0, 0, 5]), Kernel),
            ("to a group of stations", put(0, 1), Kernel),
        ];
        if outer {
            let mut options = with(54, &[17, 0, 1, 4, 0, 0, 0, 0]);
            options[20] = 60;
            let mut atomic = with(54, &[17, 0, 0, 0, 0, 0, 0, 9]);
            atomic[20] = 44;
            let mut first = atomic.clone();
            first[57] = 1;
            let mut later = atomic.clone();
            later[57] = 8;
            rows.push(("an extension header", options, Kernel));
            rows.push(("a fragment header", atomic, Kernel));
            rows.push(("a first fragment", first, Kernel));
            rows.push(("a later fragment", later, Kernel));
            rows.push(("TCP", put(20, TCP), Kernel));
        } else {
            let mut options = with(34, &[1, 1, 1, 0]);
            options[14] = 0x46;
            rows.push(("options", options, Kernel));
            rows.push(("a first fragment", put(20, 0x20), Kernel));
            rows.push(("a later fragment", put(21, 1), Kernel));
            rows.push(("TCP", put(23, TCP), Kernel));
            rows.push(("that may not be cut", put(20, 0x40), Director));
        }
        for (what, frame, fate) in rows {
            assert_eq!(bench.fate(&frame), fate, "IPv6 {outer}, in it {inner}: {what}");
        }
    }
}

/// A frame cut anywhere before what the decision needs is the kernel's, whose device drops it.
#[test]
fn frames_cut_short_are_the_kernels() {
    needs_root!();
    for (outer, inner) in families() {
        let mut bench = Bench::configured(&configured(outer));
        let header = if outer { 54 } else { 34 } + 8 + 8 + 14 + if inner { 40 } else { 20 };
        let quoted = packet(inner, VIP, CLIENT, &Ports(TCP, 8443, 1));
        let rows = [
            (Ports(TCP, 1, 80), OUTSIDE, header + 4),
            (Ports(UDP, 1, 80), OUTSIDE, header + 4),
            (Ping(7), OUTSIDE, header + 8),
            (Other(ESP), OUTSIDE, header),
            (Icmp(3, 1, quoted), VIP, header + 8 + if inner { 44 } else { 24 }),
        ];
        for (row, (carried, to, enough)) in rows.into_iter().enumerate() {
            let frame = wrapped(outer, VNI, &ethernet(inner, CLIENT, to, &carried));
            for len in 14..=frame.len() {
                let fate = if len >= enough { Director } else { Kernel };
                let got = bench.fate(&frame[..len]);
                assert_eq!(got, fate, "IPv6 {outer}, in it {inner}: row {row}, {len} bytes");
            }
        }
    }
}

/// Sets identification and offset of an inner fragment.
fn fragment(v6: bool, to: &str, carried: &Carried, id: u8, first: bool) -> Vec<u8> {
    let mut frame = ethernet(v6, CLIENT, to, carried);
    if v6 {
        let next = std::mem::replace(&mut frame[20], 44);
        let [high, low] = if first { [0, 1] } else { (185_u16 << 3).to_be_bytes() };
        frame.splice(54..54, [next, 0, high, low, 0, 0, 0, id]);
    } else {
        frame[19] = id;
        let field = if first { 0x2000 } else { 185_u16 };
        frame[20..22].copy_from_slice(&field.to_be_bytes());
    }
    frame
}

/// Inner fragments follow the first one, and those of one network none of another's.
#[test]
fn fragments_inside() {
    needs_root!();
    for (outer, inner) in families() {
        let mut bench = Bench::configured(&configured(outer));
        let rows = [
            ("to others", OUTSIDE, Ports(TCP, 1, 22), Director),
            ("a service", VIP, Ports(TCP, 1, 8443), Director),
            ("beside it", VIP, Ports(TCP, 1, 22), Kernel),
            ("the pool", LADDR, Ports(UDP, 1, 1500), Director),
            ("the machine's port", LADDR, Ports(UDP, 1, 22), Kernel),
            ("the gateway", OWN[1], Ports(UDP, 1, 22), Kernel),
        ];
        for (id, (what, to, carried, fate)) in (1..).zip(rows) {
            for first in [true, false] {
                let frame = wrapped(outer, VNI, &fragment(inner, to, &carried, id, first));
                assert_eq!(bench.fate(&frame), fate, "{what}, first: {first}");
            }
        }
        let mut in_network = |network: Option<u32>, first| {
            let frame = fragment(inner, VIP, &Ports(TCP, 1, 22), 99, first);
            bench.fate(&network.map_or(frame.clone(), |vni| wrapped(outer, vni, &frame)))
        };
        assert_eq!(in_network(Some(VNI), true), Kernel);
        assert_eq!(in_network(Some(VNI), false), Kernel);
        assert_eq!(in_network(Some(EMPTY_VNI), false), Director, "another network's");
        if outer == inner {
            assert_eq!(in_network(None, false), Director, "the default network's");
        }
    }
}

/// Everything else is as it was: frames in no VXLAN, and VXLAN that is not configured.
#[test]
fn nothing_is_left_behind() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::configured(&configured(v6));
        let frame = ethernet(v6, CLIENT, OUTSIDE, &Ports(TCP, 40_000, 80));
        let tunnelled = wrapped(v6, VNI, &frame);
        let gateway = wrapped(v6, VNI, &ethernet(v6, CLIENT, OWN[1], &Ports(TCP, 40_000, 22)));
        let fates = |bench: &mut Bench| [&tunnelled, &gateway].map(|it| bench.fate(it));
        assert_eq!(fates(&mut bench), [Director, Kernel]);
        assert_eq!(bench.fate(&frame), Kernel, "outside of the VXLAN");
        let mut moved = configured(v6);
        moved.inner[0].own.retain(|own| *own != at(v6, OWN[1]));
        bench.steer.set(&moved).unwrap();
        assert_eq!(fates(&mut bench), [Director, Director], "no own address any more");
        moved.vxlan.remove(0);
        bench.steer.set(&moved).unwrap();
        assert_eq!(fates(&mut bench), [Director; 2], "the second of that name counts now");
        let changed = bench.steer.set(&matches(v6)).unwrap();
        assert_eq!(changed.added, 0);
        assert_eq!(fates(&mut bench), [Kernel; 2]);
        let held = bench.steer.set(&configured(v6)).unwrap();
        assert_eq!(held.removed, 0, "nothing was left");
        assert_eq!(fates(&mut bench), [Director, Kernel]);
        let mut none = configured(v6);
        none.vxlan.iter_mut().for_each(|vxlan| vxlan.network = 0);
        bench.steer.set(&none).unwrap();
        assert_eq!(fates(&mut bench), [Kernel; 2], "the default network is in no VXLAN");
    }
}

#[test]
fn too_many_are_said_so() {
    needs_root!();
    let mut bench = Bench::configured(&configured(false));
    let mut many = configured(false);
    let more = |vni| VxlanMatch { local: at(false, LOCAL), port: PORT, vni, network: 7 };
    many.vxlan.extend((0..16_384).map(more));
    let error = bench.steer.set(&many).unwrap_err();
    assert!(matches!(error, Error::Full { map: "vxlans", limit: 16_384 }), "{error}");
    bench.steer.set(&configured(false)).unwrap();
    let frame = ethernet(false, CLIENT, OUTSIDE, &Ports(TCP, 40_000, 80));
    let fate: Fate = bench.fate(&wrapped(false, VNI, &frame));
    assert_eq!(fate, Director);
}

/// Errors about outer packets of the director's: those that tell of a path's MTU, and quote enough
/// to tell the network.
#[test]
fn path_mtu_errors_about_outer_packets() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::configured(&configured(v6));
        let sent = |from, port, vni| {
            let mut quote = packet(v6, from, REMOTE, &Ports(UDP, 50_000, port));
            quote.truncate(quote.len() - 4);
            quote.extend(vxlan(8, vni, &[7; 60]));
            quote
        };
        let ours = sent(LOCAL, PORT, VNI);
        let header = if v6 { 48 } else { 28 };
        let mut error = |(kind, code): (u8, u8), to, quote: Vec<u8>| {
            let mut frame = ethernet(v6, CLIENT, to, &Icmp(kind, kind, quote));
            frame[if v6 { 55 } else { 35 }] = code;
            bench.fate(&frame)
        };
        let too_large = if v6 { (2, 0) } else { (3, 4) };
        assert_eq!(error(too_large, LOCAL, ours.clone()), Director, "{v6}");
        assert_eq!(error(too_large, LOCAL, ours[..header + 8].to_vec()), Director, "{v6}");
        assert_eq!(error(too_large, LOCAL, ours[..header + 7].to_vec()), Kernel, "{v6}: short");
        assert_eq!(error(too_large, CLIENT, ours.clone()), Kernel, "{v6}: to another");
        let unreachable = if v6 { (1, 4) } else { (3, 3) };
        assert_eq!(error(unreachable, LOCAL, ours), Kernel, "{v6}: of another kind");
        for (what, quote) in [
            ("an unknown network", sent(LOCAL, PORT, 99)),
            ("another port", sent(LOCAL, PORT + 1, VNI)),
            ("another sender", sent(CLIENT, PORT, VNI)),
        ] {
            let to = if what == "another sender" { CLIENT } else { LOCAL };
            assert_eq!(error(too_large, to, quote), Kernel, "{v6}: {what}");
        }
    }
}
