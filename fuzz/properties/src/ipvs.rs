//! What a stock program may send through the kernel's interfaces to IPVS: anything. Nothing panics,
//! every answer is one that the program can read, whatever the director says, and what is asked of
//! the director is what IPVS can be asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_ipvs::abi::genl::{self, FAMILY, Outcome};
use sluice_ipvs::abi::proc::{self, File};
use sluice_ipvs::abi::{Away, sockopt};
use sluice_ipvs::{
    Answer, Connection, Daemon, Destination, Errno, Family, Info, Match, Method, Protocol, Reply,
    Request, Role, Service, ServiceKey, ServiceSpec, Stats, Timeouts, Tunnel, TunnelKind,
};

use crate::bytes::Bytes;

/// Datagrams of more than one message are no longer than this.
const DATAGRAM: usize = 8 << 10;
/// Room that a program makes for a socket option.
const ROOMS: [usize; 8] = [0, 12, 48, 64, 104, 8 + 104, 24 + 96, 4096];

/// Reads the bytes as a call of one kind, by the first of them; the next eight are the director.
///
/// # Panics
/// When an answer cannot be read, or is longer than there is room for.
pub fn ipvs(data: &[u8]) {
    let mut bytes = Bytes(data);
    let kind = bytes.u8();
    let mut says = Bytes(bytes.take(8));
    let mut ask = |request: &Request| answer(request, &mut says);
    match kind % 4 {
        0 => messages(bytes.0, kind & 4 != 0, &mut ask),
        1 => {
            // The same with headers that are right, so that more of it means something.
            let command = bytes.u8();
            let flags = u16::from(bytes.u8()) << 2 | 1;
            messages(&framed(FAMILY, command, flags, bytes.0), false, &mut ask);
        }
        2 => options(&mut bytes, &mut ask),
        _ => files(&mut bytes, &mut ask),
    }
}

/// A message of generic netlink.
fn framed(family: u16, command: u8, flags: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + attributes.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([1, 0, 0, 0, 2, 0, 0, 0, command, 1, 0, 0]);
    message.extend(attributes);
    message
}

fn messages(datagram: &[u8], hidden: bool, ask: &mut sluice_ipvs::abi::Ask) {
    let told = match genl::answer(datagram, hidden, ask) {
        Outcome::Kernel => return,
        Outcome::Before(told) | Outcome::Answered(told) => told,
    };
    for datagram in told {
        let count = read_messages(&datagram);
        assert!(count > 0 && (count == 1 || datagram.len() <= DATAGRAM), "{datagram:02x?}");
    }
}

/// Counts the messages of a datagram, each whole and in its place.
fn read_messages(mut left: &[u8]) -> usize {
    let mut count = 0;
    while !left.is_empty() {
        let length = u32::from_ne_bytes(left[..4].try_into().expect("four"));
        let length = usize::try_from(length).expect("it fits");
        assert!(length >= 20, "a header and something: {left:02x?}");
        let kind = u16::from_ne_bytes(left[4..6].try_into().expect("two"));
        let message = &left[..length];
        if kind == FAMILY || kind == 0x10 {
            read_attributes(&message[20..], 0);
        }
        left = &left[(length + 3) & !3..];
        count += 1;
    }
    count
}

/// Attributes fill their place without a rest; the first level of ours is always nested or plain
/// numbers, of which no four bytes look like a nest.
fn read_attributes(mut left: &[u8], depth: usize) {
    while !left.is_empty() {
        let length = usize::from(u16::from_ne_bytes(left[..2].try_into().expect("two")));
        let kind = u16::from_ne_bytes(left[2..4].try_into().expect("two"));
        assert!(length >= 4 && length <= left.len(), "{left:02x?}");
        if depth == 0 && length > 12 && kind <= 3 {
            read_attributes(&left[4..length], depth + 1);
        }
        left = &left[((length + 3) & !3).min(left.len())..];
    }
}

fn options(bytes: &mut Bytes, ask: &mut sluice_ipvs::abi::Ask) {
    let option = sockopt::BASE - 1 + i32::from(bytes.u8() % 18);
    let how = bytes.u8();
    let room = ROOMS[usize::from(how) % ROOMS.len()];
    if !sockopt::is_ours(option) {
        return;
    }
    if how & 8 != 0 {
        // What is left is the value, and again what the program asks for below.
        let _ = sockopt::set(option, bytes.0, ask);
    }
    let input = bytes.take(sockopt::input_bytes(option).min(room));
    if let Ok((answer, says)) = sockopt::get(option, input, room, ask) {
        assert!(answer.len() <= room && says <= room, "{option}: {} in {room}", answer.len());
    }
}

fn files(bytes: &mut Bytes, ask: &mut sluice_ipvs::abi::Ask) {
    if let Ok(Answer::Ok(Reply::Services(services))) = ask(&Request::Services) {
        let info = Info { version: 0x01_02_01, table_size: 4096, services: 0 };
        let kernels = services.iter().filter(|it| !matches!(it.spec.key, ServiceKey::Match(_)));
        let rows: usize = kernels.map(|service| 1 + service.destinations.len()).sum();
        let text = proc::services(info, &services);
        assert_eq!(text.lines().count(), 3 + rows, "{text}");
        assert_eq!(proc::stats(&services).lines().count(), 6);
    }
    let mut endpoint = || (address(bytes), bytes.u16());
    let row = proc::connection(&Connection {
        client: endpoint(),
        virtual_: endpoint(),
        local: None,
        destination: endpoint(),
        protocol: bytes.u8(),
        state: "ESTABLISHED".to_owned(),
        expires_s: bytes.u16().into(),
    });
    assert_eq!(row.split_whitespace().count(), 9, "{row}");
    let _ = File::of(bytes.0);
}

fn address(bytes: &mut Bytes) -> IpAddr {
    match bytes.u8() % 2 {
        0 => Ipv4Addr::from(u32::from(bytes.u16())).into(),
        _ => Ipv6Addr::from(u128::from(bytes.u16()) << 16).into(),
    }
}

/// What a director says, by its own bytes: also what was not asked for.
fn answer(request: &Request, says: &mut Bytes) -> Result<Answer, Away> {
    let how = says.u8();
    let asked = match request {
        Request::Info => 1,
        Request::Services | Request::Service(_) => 2,
        Request::Timeouts => 3,
        Request::Daemons => 4,
        _ => 0,
    };
    Ok(Answer::Ok(match if how & 0x80 == 0 { asked } else { how % 5 } {
        _ if how & 0x70 == 0x10 => return Err(Away::Absent),
        _ if how & 0x70 == 0x20 => return Err(Away::Denied),
        _ if how & 0x70 == 0x30 => {
            return Ok(Answer::Refused { errno: Errno::Srch, detail: "no".to_owned() });
        }
        1 => Reply::Info(Info { version: u32::MAX, table_size: 0, services: 9 }),
        2 => Reply::Services((0..how % 4).map(|number| service(number, says)).collect()),
        3 => Reply::Timeouts(Timeouts { tcp_s: 1, tcp_fin_s: u32::MAX, udp_s: 3 }),
        4 => Reply::Daemons(vec![Daemon {
            role: if how & 8 == 0 { Role::Master } else { Role::Backup },
            interface: "an-interface-with-a-long-name".to_owned(),
            sync_id: u32::MAX,
            maximum_length: 1,
            group: Some(address(says)),
            port: 2,
            ttl: 3,
        }]),
        _ => Reply::Done,
    }))
}

fn a_match() -> Match {
    "proto=udp,af=ipv4,oif=dpdk0".parse().expect("a match")
}

fn service(number: u8, says: &mut Bytes) -> Service {
    let key = match number % 3 {
        0 => ServiceKey::Mark { mark: 1, family: Family::Ipv6 },
        1 => ServiceKey::Match(a_match()),
        _ => ServiceKey::Address { protocol: Protocol::Sctp, address: address(says), port: 80 },
    };
    let stats = Stats { connections: u64::MAX, in_bytes: u64::MAX, ..Stats::default() };
    let count = u16::from(says.u8()) * u16::from(number);
    let destinations = (0..count).map(|port| Destination {
        address: if port % 3 == 0 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        },
        port,
        method: Method::ALL[usize::from(port) % Method::ALL.len()],
        tunnel: Tunnel { kind: TunnelKind::Gre, port: 1, flags: 2 },
        weight: u32::MAX,
        upper: 1,
        lower: 2,
        active: 3,
        inactive: 4,
        persistent: 5,
        stats,
    });
    let spec = ServiceSpec {
        key,
        scheduler: "a-scheduler-with-a-long-name".to_owned(),
        flags: u32::MAX,
        timeout_s: 1,
        netmask: u32::from(number),
        persistence_engine: Some(String::new()),
        settings: None,
    };
    let (owner, name) = ("file".to_owned(), "x".to_owned());
    Service { spec, owner, name, stats, destinations: destinations.collect() }
}
