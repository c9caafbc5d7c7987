//! Structures byte by byte, offsets as the compiler gives them for `linux/ip_vs.h`.

use std::net::IpAddr;

use super::{BASE, get, input_bytes, is_ours, set};
use crate::abi::{Away, Number};
use crate::model::flags;
use crate::{
    Answer, Daemon, Destination, Errno, Family, Info, Method, Protocol, Reply, Request, Role,
    Service, ServiceKey, ServiceSpec, Stats, Timeouts, Tunnel,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn web(address: &str) -> ServiceKey {
    ServiceKey::Address { protocol: Protocol::Tcp, address: ip(address), port: 80 }
}

fn service(key: ServiceKey, destinations: Vec<Destination>) -> Service {
    let (scheduler, flags) = ("wrr".to_owned(), flags::PERSISTENT | flags::HASHED);
    let netmask = 0xffff_ff00;
    let spec = ServiceSpec {
        key,
        scheduler,
        flags,
        timeout_s: 300,
        netmask,
        persistence_engine: None,
        settings: None,
    };
    let stats = Stats {
        connections: 1,
        in_packets: 2,
        out_packets: 3,
        in_bytes: 1 << 40,
        out_bytes: 5,
        connections_per_s: 6,
        in_packets_per_s: 7,
        out_packets_per_s: 8,
        in_bytes_per_s: 9,
        out_bytes_per_s: 10,
    };
    Service { spec, owner: "ipvsadm".to_owned(), name: "web".to_owned(), stats, destinations }
}

fn destination(address: &str) -> Destination {
    Destination {
        address: ip(address),
        port: 8080,
        method: Method::Route,
        tunnel: Tunnel::IPIP,
        weight: 7,
        upper: 20,
        lower: 10,
        active: 4,
        inactive: 5,
        persistent: 6,
        stats: Stats { connections: 9, ..Stats::default() },
    }
}

/// What a director with one service of each family says.
fn director(request: &Request) -> Result<Answer, Away> {
    let four = || {
        let both = vec![destination("192.0.2.11"), destination("2001:db8::11")];
        service(web("198.51.100.200"), both)
    };
    Ok(Answer::Ok(match request {
        Request::Info => Reply::Info(Info { version: 0x01_02_01, table_size: 4096, services: 2 }),
        Request::Services => {
            // Neither of the last two can be told here.
            let matching = "proto=tcp,af=ipv4,oif=dpdk0".parse().unwrap();
            let more = [web("2001:db8::200"), ServiceKey::Match(matching)];
            let more = more.map(|key| service(key, Vec::new()));
            Reply::Services([vec![four()], more.to_vec()].concat())
        }
        Request::Service(key) if *key == web("198.51.100.200") => Reply::Services(vec![four()]),
        Request::Timeouts => Reply::Timeouts(Timeouts { tcp_s: 900, tcp_fin_s: 120, udp_s: 300 }),
        Request::Daemons => Reply::Daemons(vec![Daemon {
            role: Role::Backup,
            interface: "eth0".to_owned(),
            sync_id: 5,
            maximum_length: 0,
            group: None,
            port: 0,
            ttl: 0,
        }]),
        _ => return Ok(Answer::Refused { errno: Errno::Srch, detail: String::new() }),
    }))
}

/// What `setsockopt` asks for.
fn asked(option: i32, value: &[u8]) -> Result<Request, Number> {
    let mut seen = None;
    set(BASE + option, value, &mut |request| {
        seen = Some(request.clone());
        Ok(Answer::Ok(Reply::Done))
    })?;
    Ok(seen.unwrap())
}

/// `struct ip_vs_service_user` of 198.51.100.200:80, as C writes it.
fn service_user() -> Vec<u8> {
    let mut bytes = vec![0; 44];
    bytes[0..2].copy_from_slice(&6_u16.to_ne_bytes());
    bytes[4..8].copy_from_slice(&[198, 51, 100, 200]);
    bytes[8..10].copy_from_slice(&[0, 80]);
    bytes[16..19].copy_from_slice(b"wrr");
    bytes[32..36].copy_from_slice(&1_u32.to_ne_bytes());
    bytes[36..40].copy_from_slice(&300_u32.to_ne_bytes());
    bytes[40..44].copy_from_slice(&[255, 255, 255, 0]);
    bytes
}

fn dest_user() -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[0..4].copy_from_slice(&[192, 0, 2, 11]);
    bytes[4..6].copy_from_slice(&[0x1f, 0x90]);
    bytes[8..12].copy_from_slice(&3_u32.to_ne_bytes());
    bytes[12..16].copy_from_slice(&7_i32.to_ne_bytes());
    bytes[16..20].copy_from_slice(&20_u32.to_ne_bytes());
    bytes[20..24].copy_from_slice(&10_u32.to_ne_bytes());
    bytes
}

#[test]
fn services_and_destinations_are_set() {
    let mut spec = service(web("198.51.100.200"), Vec::new()).spec;
    spec.flags = flags::PERSISTENT;
    let key = spec.key;
    assert_eq!(asked(2, &service_user()), Ok(Request::AddService(spec.clone())));
    assert_eq!(asked(3, &service_user()), Ok(Request::EditService(spec)));
    assert_eq!(asked(4, &service_user()), Ok(Request::DeleteService(key)));
    let both = [service_user(), dest_user()].concat();
    let dest = Destination {
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
        ..destination("192.0.2.11")
    };
    assert_eq!(asked(7, &both), Ok(Request::AddDestination(key, dest.clone())));
    assert_eq!(asked(9, &both), Ok(Request::EditDestination(key, dest)));
    assert_eq!(asked(8, &both), Ok(Request::DeleteDestination(key, (ip("192.0.2.11"), 8080))));
    let mut marked = service_user();
    marked[12..16].copy_from_slice(&7_u32.to_ne_bytes());
    let mark = ServiceKey::Mark { mark: 7, family: Family::Ipv4 };
    assert_eq!(asked(4, &marked), Ok(Request::DeleteService(mark)));
}

#[test]
fn the_rest_is_set() {
    assert_eq!(asked(5, &[]), Ok(Request::Flush));
    assert_eq!(asked(15, &[0; 44]), Ok(Request::Zero(None)));
    assert_eq!(asked(15, &service_user()), Ok(Request::Zero(Some(web("198.51.100.200")))));
    let times: Vec<u8> = [1_i32, 0, 3].iter().flat_map(|n| n.to_ne_bytes()).collect();
    let timeouts = Timeouts { tcp_s: 1, tcp_fin_s: 0, udp_s: 3 };
    assert_eq!(asked(10, &times), Ok(Request::SetTimeouts(timeouts)));
    let mut daemon = vec![0; 24];
    daemon[0] = 1;
    daemon[4..8].copy_from_slice(b"eth0");
    daemon[20] = 5;
    let Ok(Request::StartDaemon(started)) = asked(11, &daemon) else { panic!() };
    assert_eq!((started.role, &*started.interface, started.sync_id), (Role::Master, "eth0", 5));
    assert_eq!(asked(12, &daemon), Ok(Request::StopDaemon(Role::Master)));
}

#[test]
fn what_makes_no_sense_is_refused_as_the_kernel_does() {
    let both = [service_user(), dest_user()].concat();
    for (option, value) in [(2, &both), (7, &service_user()), (5, &vec![0]), (14, &vec![])] {
        assert_eq!(asked(option, value), Err(Number::INVAL), "{option}");
    }
    let spoilt = |at: usize, byte: u8| {
        let mut bytes = both.clone();
        bytes[at] = byte;
        asked(7, &bytes)
    };
    assert_eq!(spoilt(0, 1), Err(Number::INVAL), "ICMP");
    assert_eq!(spoilt(44 + 8, 7), Err(Number::INVAL), "no method");
    assert_eq!(spoilt(44 + 15, 0x80), Err(Number::RANGE), "a negative weight");
    let mut endless = service_user();
    endless[16..32].fill(b'x');
    assert_eq!(asked(2, &endless), Err(Number::INVAL), "a name without end");
    assert!(is_ours(BASE) && is_ours(BASE + 15) && !is_ours(BASE + 16) && !is_ours(BASE - 1));
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn services_are_listed() {
    let mut ask = director;
    let (info, length) = get(BASE + 1, &[], 12, &mut ask).unwrap();
    assert_eq!((info.len(), length), (12, 12));
    assert_eq!([0, 4, 8].map(|at| number(&info, at)), [0x01_02_01, 4096, 1]);
    let room = 8 + 104;
    let (table, _) = get(BASE + 2, &1_u32.to_ne_bytes(), room, &mut ask).unwrap();
    assert_eq!((table.len(), number(&table, 0)), (room, 1));
    let entry = &table[8..];
    assert_eq!(entry[..12], service_user()[..12]);
    assert_eq!(entry[16..32], service_user()[16..32]);
    assert_eq!([32, 36, 44].map(|at| number(entry, at)), [3, 300, 1]);
    assert_eq!(entry[40..44], [255, 255, 255, 0]);
    assert_eq!([48, 52, 56].map(|at| number(entry, at)), [1, 2, 3]);
    assert_eq!(entry[64..72], (1_u64 << 40).to_ne_bytes());
    assert_eq!([72, 80, 84, 88, 92, 96].map(|at| number(entry, at)), [5, 6, 7, 8, 9, 10]);
    // The room is not what the number says.
    assert_eq!(get(BASE + 2, &2_u32.to_ne_bytes(), room, &mut ask), Err(Number::INVAL));
    // One more was made since the program asked how many there are.
    let (table, length) = get(BASE + 2, &0_u32.to_ne_bytes(), 8, &mut ask).unwrap();
    assert_eq!((table.len(), length), (8, 8));
    let (one, _) = get(BASE + 3, &service_user()[..16], 104, &mut ask).unwrap();
    assert_eq!(one, entry);
}

#[test]
fn destinations_are_listed() {
    let mut ask = director;
    let asked = [&service_user()[..16], &1_u32.to_ne_bytes()].concat();
    assert_eq!(input_bytes(BASE + 4), asked.len());
    let room = 24 + 96;
    let (table, _) = get(BASE + 4, &asked, room, &mut ask).unwrap();
    assert_eq!((table.len(), number(&table, 16)), (room, 1));
    let entry = &table[24..];
    assert_eq!(entry[..6], dest_user()[..6]);
    assert_eq!([8, 12, 16, 20].map(|at| number(entry, at)), [3, 7, 20, 10]);
    assert_eq!([24, 28, 32, 40].map(|at| number(entry, at)), [4, 5, 6, 9]);
    let mut other = asked.clone();
    other[7] = 9;
    assert_eq!(get(BASE + 4, &other, room, &mut ask), Err(Number::SRCH));
}

#[test]
fn the_rest_is_read() {
    let mut ask = director;
    let (times, _) = get(BASE + 6, &[], 12, &mut ask).unwrap();
    assert_eq!([0, 4, 8].map(|at| number(&times, at)), [900, 120, 300]);
    let (daemons, _) = get(BASE + 7, &[], 48, &mut ask).unwrap();
    assert_eq!(daemons[..24], [0; 24]);
    assert_eq!(
        (number(&daemons, 24), &daemons[28..33], number(&daemons, 44)),
        (2, &b"eth0\0"[..], 5)
    );
    let (text, length) = get(BASE, &[], 64, &mut ask).unwrap();
    assert_eq!((&text[..], length), (&b"IP Virtual Server version 1.2.1 (size=4096)\0"[..], 44));
    assert_eq!(get(BASE + 6, &[], 11, &mut ask), Err(Number::INVAL));
    let mut gone = |_: &Request| Err(Away::Absent);
    for option in [0, 1, 6, 7] {
        assert_eq!(get(BASE + option, &[], 64, &mut gone), Err(Number::NOPROTOOPT));
    }
    assert_eq!(set(BASE + 5, &[], &mut gone), Err(Number::NOPROTOOPT));
    assert_eq!(set(BASE + 5, &[], &mut |_| Err(Away::Denied)), Err(Number::PERM));
}
