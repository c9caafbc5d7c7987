//! What holds for every command line and every service: no line makes the program fall over, and
//! what is saved makes the same service again.

use std::net::IpAddr;

use crate::stage::Stage;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sluice_ipvs::{
    Destination, Family, List, LocalAddress, LocalAddresses, Method, Protocol, Request, Service,
    ServiceKey, ServiceSpec, Settings, Stats, Tunnel, TunnelKind, flags,
};
use sluice_ipvsadm::{Beside, Command, parse, save};

/// Words of source NAT.
const MATCHES: [&str; 4] =
    ["-H", "-J", "proto=tcp,src-range=192.0.2.1-192.0.2.9:0", "proto=tcp,src-range=[2001:db8::1]-"];

/// Words that lines are made of: options, values that are nearly right, and anything.
fn word() -> impl Strategy<Value = String> {
    const WORDS: [&str; 60] = [
        "-A",
        "-E",
        "-D",
        "-C",
        "-L",
        "-l",
        "-Z",
        "-a",
        "-e",
        "-d",
        "-R",
        "-S",
        "-P",
        "-Q",
        "-G",
        "-U",
        "-V",
        "-B",
        "-O",
        "-Y",
        "-W",
        "--set",
        "--start-daemon",
        "--stop-daemon",
        "-t",
        "-u",
        "-f",
        "-6",
        "-s",
        "-p",
        "-M",
        "-o",
        "-b",
        "-r",
        "-g",
        "-i",
        "-m",
        "-w",
        "-x",
        "-y",
        "-n",
        "-c",
        "--stats",
        "--rate",
        "--tun-type",
        "--tun-port",
        "--sockpair",
        "--proxy-protocol",
        "--",
        "-",
        "",
        "master",
        "192.0.2.1:80",
        "[2001:db8::1]:80",
        "[",
        "]:",
        ":",
        "gue",
        "-1",
        "99999999999999999999",
    ];
    prop_oneof![
        1 => select(MATCHES.to_vec()).prop_map(str::to_owned),
        4 => select(WORDS.to_vec()).prop_map(str::to_owned),
        1 => "-{0,2}[a-zA-Z0-9=:\\[\\]/.,%é-]{0,12}",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn no_line_makes_it_fall_over(words in vec(word(), 0..9), input in vec(any::<String>(), 0..3)) {
        let mut stage = Stage::new(0, Some("st1"), true);
        stage.lenient = true;
        stage.stdin = input;
        let code = sluice_ipvsadm::run("ipvsadm", &words, &mut stage);
        // Whoever fails says so, but for lists of timeouts and daemons.
        prop_assert!(code == 0 || !stage.err.is_empty());
    }

    #[test]
    fn what_is_saved_makes_it_again((service, beside) in service()) {
        let mut stage = Stage::new(0, None, false);
        let text = save(&service, &beside, true, &mut stage);
        let mut requests = Vec::new();
        for line in text.lines() {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            match parse("ipvsadm", &words, &mut stage) {
                Ok(Command::Change(_, request)) => requests.push(plain(request)),
                other => prop_assert!(false, "{line}: {other:?}"),
            }
        }
        prop_assert_eq!(requests, wanted(&service, &beside));
    }
}

/// Settings that say nothing are none.
fn plain(request: Request) -> Request {
    match request {
        Request::AddService(mut spec) => {
            spec.settings = spec.settings.filter(|settings| *settings != Settings::default());
            Request::AddService(spec)
        }
        other => other,
    }
}

fn wanted(service: &Service, beside: &Beside) -> Vec<Request> {
    let key = service.spec.key;
    let mut requests = vec![plain(Request::AddService(service.spec.clone()))];
    let locals = beside.locals.iter().flat_map(|locals| &locals.addresses);
    requests.extend(locals.map(|local| Request::AddLocal(key, local.address)));
    for (list, kept) in [(List::Deny, &beside.denied), (List::Allow, &beside.allowed)] {
        let all = kept.iter().flat_map(|(_, all)| all);
        requests.extend(all.map(|one| Request::AddListed(key, list, one.clone())));
    }
    requests.extend(service.destinations.iter().map(|it| Request::AddDestination(key, it.clone())));
    requests
}

fn address(family: Family) -> BoxedStrategy<IpAddr> {
    match family {
        Family::Ipv4 => any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())).boxed(),
        Family::Ipv6 => any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())).boxed(),
    }
}

fn family() -> impl Strategy<Value = Family> {
    select(vec![Family::Ipv4, Family::Ipv6])
}

fn key() -> impl Strategy<Value = ServiceKey> {
    let protocol = select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    // Marks from 2^31 on are saved as negative numbers, as the stock program does it, and it does
    // not read them either.
    let mark = (1..=0x7fff_ffffu32, family());
    let address = (protocol, family().prop_flat_map(address), any::<u16>());
    prop_oneof![
        1 => mark.prop_map(|(mark, family)| ServiceKey::Mark { mark, family }),
        4 => address.prop_map(|(protocol, address, port)| {
            ServiceKey::Address { protocol, address, port }
        }),
        2 => matching(),
    ]
}

/// A service by match: of all addresses there are, some are in one or two ranges.
fn matching() -> impl Strategy<Value = ServiceKey> {
    let range = |family| option::of((address(family), address(family)));
    let ranges = family().prop_flat_map(move |family| (Just(family), range(family), range(family)));
    let oif = option::of("[a-z0-9][a-zA-Z0-9._-]{0,63}");
    (0..3usize, ranges, oif).prop_map(|(protocol, (family, sources, destinations), oif)| {
        let six = family == Family::Ipv6;
        let protocol = ["tcp", "udp", if six { "icmpv6" } else { "icmp" }][protocol];
        let mut text = format!("proto={protocol},af={}", if six { "ipv6" } else { "ipv4" });
        for (word, range) in [("src-range", sources), ("dst-range", destinations)] {
            if let Some((a, b)) = range {
                text += &format!(",{word}={}-{}", a.min(b), a.max(b));
            }
        }
        let named = if text.contains("range") { oif } else { oif.or(Some("dpdk0".to_owned())) };
        text += &named.map_or_else(String::new, |name| format!(",oif={name}"));
        ServiceKey::Match(text.parse().expect("a match"))
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let client = option::of(select(vec!["proxy_v1".to_owned(), "proxy_v2".to_owned()]));
    (client, option::of(1..=2_678_400u32), any::<bool>()).prop_map(
        |(client_address, connection_timeout_s, expire_quiescent)| Settings {
            client_address,
            connection_timeout_s,
            expire_quiescent,
        },
    )
}

/// A service that commands can make.
fn spec() -> impl Strategy<Value = ServiceSpec> {
    let scheduler = select(vec!["rr", "wrr", "lc", "wlc", "sh", "mh", "nq", "ovf"]);
    let persistence = option::of((1..=2_678_400u32, any::<u32>()));
    let engine = option::of(Just("sip".to_owned()));
    let more = (engine, option::of(settings()), any::<bool>(), 0..8u32);
    (key(), scheduler, persistence, more).prop_map(|(mut key, scheduler, persistence, more)| {
        let (persistence_engine, settings, one_packet, bits) = more;
        let all = if key.family() == Family::Ipv4 { u32::MAX } else { 128 };
        // The third flag has no name with these two.
        let bits = if matches!(scheduler, "sh" | "mh") { bits & 3 } else { bits };
        let mut set = bits << 3;
        let (mut timeout_s, mut netmask) = (0, all);
        if let Some((seconds, mask)) = persistence {
            set |= flags::PERSISTENT;
            timeout_s = seconds;
            netmask = if all == 128 { mask % 128 + 1 } else { mask };
        } else if let ServiceKey::Address { port, .. } = &mut key {
            *port = (*port).max(1);
        }
        let datagrams = match key {
            ServiceKey::Mark { .. } | ServiceKey::Match(_) => true,
            ServiceKey::Address { protocol, .. } => protocol == Protocol::Udp,
        };
        if one_packet && datagrams {
            set |= flags::ONE_PACKET;
        }
        let scheduler = scheduler.to_owned();
        ServiceSpec { key, scheduler, flags: set, timeout_s, netmask, persistence_engine, settings }
    })
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    let gue = (1..=u16::MAX, 0..3u16).prop_map(|(port, flags)| Tunnel {
        kind: TunnelKind::Gue,
        port,
        flags,
    });
    let gre = (0..2u16).prop_map(|flags| Tunnel { kind: TunnelKind::Gre, port: 0, flags });
    prop_oneof![Just(Tunnel::IPIP), gue, gre]
}

fn destination(key: ServiceKey) -> impl Strategy<Value = Destination> {
    let method =
        select(vec![Method::Masq, Method::Tunnel, Method::Route, Method::FullNat, Method::Snat]);
    let limits = (0..=0x7fff_ffffu32, 0..=0x7fff_ffffu32, 0..=0x7fff_ffffu32);
    (method, family(), any::<u16>(), limits, tunnel()).prop_flat_map(
        move |(method, other, port, (weight, upper, lower), tunnel)| {
            let crosses = matches!(method, Method::Tunnel | Method::FullNat);
            let family = if crosses { other } else { key.family() };
            let keeps = matches!(method, Method::Tunnel | Method::Route);
            let port = match key {
                ServiceKey::Address { port, .. } if keeps => port,
                _ => port,
            };
            let tunnel = if method == Method::Tunnel { tunnel } else { Tunnel::IPIP };
            address(family).prop_map(move |address| Destination {
                address,
                port,
                method,
                tunnel,
                weight,
                upper,
                lower,
                active: 0,
                inactive: 0,
                persistent: 0,
                stats: Stats::default(),
            })
        },
    )
}

fn service() -> impl Strategy<Value = (Service, Beside)> {
    spec().prop_flat_map(|spec| {
        let key = spec.key;
        let listed = || {
            let one = family().prop_flat_map(address);
            vec(one.prop_map(|address| format!("{address}/24")), 0..3)
        };
        let locals = vec(family().prop_flat_map(address), 0..3);
        let reals = vec(destination(key), 0..4);
        (Just(spec), reals, locals, listed(), listed()).prop_map(
            move |(spec, destinations, locals, denied, allowed)| {
                let local = |address| LocalAddress { address, conflicts: 0, connections: 0 };
                let addresses = locals.into_iter().map(local).collect();
                let beside = Beside {
                    locals: vec![LocalAddresses { key, addresses }],
                    denied: vec![(key, denied)],
                    allowed: vec![(key, allowed)],
                };
                let (owner, name, stats) = (String::new(), String::new(), Stats::default());
                (Service { spec, owner, name, stats, destinations }, beside)
            },
        )
    })
}
