//! Messages byte by byte where a program would send them, and what is written is what is read.

use std::net::IpAddr;

use super::{FAMILY, Outcome, answer, command, read, write};
use crate::abi::netlink::{ACK, Body, DUMP, Message, REQUEST, messages};
use crate::abi::{Away, Number};
use crate::model::flags;
use crate::{
    Answer, Daemon, Destination, Errno, Family, Info, Method, Protocol, Reply, Request, Role,
    Service, ServiceKey, ServiceSpec, Stats, Timeouts, Tunnel, TunnelKind,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A message as a program sends it.
fn sent(kind: u16, command: u8, flags: u16, body: &Body) -> Vec<u8> {
    let header = Message {
        whole: &[],
        kind,
        flags: 0,
        sequence: 77,
        port: 4242,
        command: 0,
        attributes: crate::abi::netlink::Attributes(&[]),
    };
    header.answer(command, 1, flags, body)
}

fn info() -> Reply {
    Reply::Info(Info { version: 0x01_02_01, table_size: 4096, services: 1 })
}

fn service(key: ServiceKey, count: u8) -> Service {
    let destinations = (0..count).map(|index| Destination {
        address: format!("2001:db8::{index:x}").parse().unwrap(),
        port: 8080,
        method: Method::Tunnel,
        tunnel: Tunnel { kind: TunnelKind::Gue, port: 6080, flags: 1 },
        weight: 7,
        upper: 20,
        lower: 10,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    });
    let spec = ServiceSpec {
        key,
        scheduler: "mh".to_owned(),
        flags: flags::PERSISTENT | flags::HASHED | flags::SCHEDULER_2,
        timeout_s: 360,
        netmask: if key.family() == Family::Ipv4 { 0xffff_ff00 } else { 64 },
        persistence_engine: Some("sip".to_owned()),
        settings: None,
    };
    let (owner, name, stats) = ("ipvsadm".to_owned(), "x".to_owned(), Stats::default());
    Service { spec, owner, name, stats, destinations: destinations.collect() }
}

fn keys() -> [ServiceKey; 3] {
    [
        ServiceKey::Address { protocol: Protocol::Udp, address: ip("198.51.100.200"), port: 5060 },
        ServiceKey::Address { protocol: Protocol::Tcp, address: ip("2001:db8::200"), port: 80 },
        ServiceKey::Mark { mark: 7, family: Family::Ipv6 },
    ]
}

/// A question for the family's number, as `libnl` asks it.
const QUESTION: [u8; 32] = [
    32, 0, 0, 0, 0x10, 0, 5, 0, 77, 0, 0, 0, 0, 0, 0, 0, // nlmsghdr
    3, 1, 0, 0, // CTRL_CMD_GETFAMILY
    9, 0, 2, 0, b'I', b'P', b'V', b'S', 0, 0, 0, 0, // CTRL_ATTR_FAMILY_NAME
];

#[cfg(target_endian = "little")]
#[test]
fn the_family_is_found_when_the_director_is_there() {
    let mut there = |_: &Request| Ok(Answer::Ok(info()));
    let Outcome::Answered(told) = answer(&QUESTION, false, &mut there) else { panic!() };
    assert_eq!(told.len(), 2);
    // CTRL_CMD_NEWFAMILY, the name, the number.
    let expected = [1, 2, 0, 0, 9, 0, 2, 0, b'I', b'P', b'V', b'S', 0, 0, 0, 0, 6, 0, 1, 0];
    assert_eq!(told[0][16..36], expected);
    assert_eq!(told[0][36..38], FAMILY.to_ne_bytes());
    assert_eq!(told[0][4..12], [0x10, 0, 0, 0, 77, 0, 0, 0]);
    // The success that was asked for: a header, 0, the question's header.
    assert_eq!(told[1][..8], [36, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(told[1][16..20], [0; 4]);
    assert_eq!(told[1][20..36], QUESTION[..16]);
}

#[test]
fn the_family_is_unknown_when_the_director_is_not_there() {
    let mut there = |_: &Request| Ok(Answer::Ok(info()));
    let mut gone = |_: &Request| Err(Away::Absent);
    let hidden = answer(&QUESTION, true, &mut there);
    for outcome in [hidden, answer(&QUESTION, false, &mut gone)] {
        let Outcome::Answered(told) = outcome else { panic!() };
        assert_eq!(told.len(), 1);
        assert_eq!(told[0][16..20], (-2_i32).to_ne_bytes());
        assert_eq!(told[0][20..], QUESTION);
    }
}

#[test]
fn what_is_about_other_families_is_the_kernels() {
    let mut ask = |_: &Request| panic!("the director was asked");
    let mut other = QUESTION;
    other[24..28].copy_from_slice(b"TASK");
    assert_eq!(answer(&other, false, &mut ask), Outcome::Kernel);
    let longer = [&QUESTION[..28], b"X\0\0\0"].concat();
    assert_eq!(answer(&longer, false, &mut ask), Outcome::Kernel);
    assert_eq!(answer(&sent(0x13, 1, REQUEST, &Body::default()), false, &mut ask), Outcome::Kernel);
    assert_eq!(answer(&QUESTION[..31], false, &mut ask), Outcome::Kernel);
    // All families: ours is told before the kernel tells its own.
    let mut there = |_: &Request| Ok(Answer::Ok(info()));
    let all = sent(0x10, 3, REQUEST | DUMP, &Body::default());
    assert!(matches!(answer(&all, false, &mut there), Outcome::Before(told) if told.len() == 1));
    assert_eq!(answer(&all, true, &mut there), Outcome::Kernel);
}

/// What a message asks for.
fn asked(command: u8, body: &Body) -> Result<Request, Number> {
    let bytes = sent(FAMILY, command, REQUEST, body);
    read::request(&messages(&bytes).next().unwrap())
}

fn both(service: &Service, dest: &Destination) -> Body {
    let mut body = write::service(service);
    body.append(&write::destination(dest));
    body
}

#[test]
fn what_is_listed_can_be_asked_for_again() {
    for key in keys() {
        let of = service(key, 1);
        let spec = of.spec.clone();
        let body = write::service(&of);
        assert_eq!(asked(command::NEW_SERVICE, &body), Ok(Request::AddService(spec.clone())));
        assert_eq!(asked(command::SET_SERVICE, &body), Ok(Request::EditService(spec)));
        assert_eq!(asked(command::DEL_SERVICE, &body), Ok(Request::DeleteService(key)));
        assert_eq!(asked(command::ZERO, &body), Ok(Request::Zero(Some(key))));
        let dest = of.destinations[0].clone();
        let body = both(&of, &dest);
        let at = (dest.address, dest.port);
        let add = Request::AddDestination(key, dest.clone());
        assert_eq!(asked(command::NEW_DEST, &body), Ok(add));
        assert_eq!(asked(command::SET_DEST, &body), Ok(Request::EditDestination(key, dest)));
        assert_eq!(asked(command::DEL_DEST, &body), Ok(Request::DeleteDestination(key, at)));
    }
    let daemon = Daemon {
        role: Role::Master,
        interface: "eth0".to_owned(),
        sync_id: 5,
        maximum_length: 1400,
        group: Some(ip("ff05::1")),
        port: 8848,
        ttl: 3,
    };
    let body = write::daemon(&daemon);
    assert_eq!(asked(command::NEW_DAEMON, &body), Ok(Request::StartDaemon(daemon)));
    assert_eq!(asked(command::DEL_DAEMON, &body), Ok(Request::StopDaemon(Role::Master)));
    let timeouts = Timeouts { tcp_s: 1, tcp_fin_s: 0, udp_s: 3 };
    let body = write::timeouts(timeouts);
    assert_eq!(asked(command::SET_CONFIG, &body), Ok(Request::SetTimeouts(timeouts)));
    assert_eq!(asked(command::FLUSH, &Body::default()), Ok(Request::Flush));
    assert_eq!(asked(command::ZERO, &Body::default()), Ok(Request::Zero(None)));
}

#[test]
fn what_is_missing_is_refused() {
    for number in [command::NEW_SERVICE, command::DEL_DEST, command::NEW_DAEMON] {
        assert_eq!(asked(number, &Body::default()), Err(Number::INVAL));
    }
    assert_eq!(asked(99, &Body::default()), Err(Number::OPNOTSUPP));
    let mut body = Body::default();
    body.nest(super::attribute::SERVICE, |body| {
        body.u16(super::svc::AF, 3);
    });
    assert_eq!(asked(command::DEL_SERVICE, &body), Err(Number::AFNOSUPPORT));
}

#[test]
fn a_list_comes_in_datagrams_that_a_program_can_read() {
    let key = keys()[0];
    let mut ask = |request: &Request| {
        assert_eq!(*request, Request::Service(key));
        Ok(Answer::Ok(Reply::Services(vec![service(key, 200)])))
    };
    let bytes =
        sent(FAMILY, command::GET_DEST, REQUEST | ACK | DUMP, &write::service(&service(key, 0)));
    let Outcome::Answered(told) = answer(&bytes, false, &mut ask) else { panic!() };
    assert!(told.len() > 3 && told.iter().all(|datagram| datagram.len() <= 8 << 10));
    let all: Vec<_> = told.iter().flat_map(|datagram| messages(datagram)).collect();
    assert_eq!(all.len(), 201);
    assert!(all.iter().all(|message| message.flags & 2 != 0 && message.sequence == 77));
    assert!(all[..200].iter().all(|message| message.command == command::NEW_DEST));
    assert_eq!(all[200].kind, 3, "the end");
    let mut nothing =
        |_: &Request| Ok(Answer::Refused { errno: Errno::Srch, detail: String::new() });
    let Outcome::Answered(told) = answer(&bytes, false, &mut nothing) else { panic!() };
    assert_eq!(messages(&told[0]).next().unwrap().kind, 3, "none, as the kernel says");
}

#[test]
fn services_by_match_are_not_listed() {
    let matching = ServiceKey::Match("proto=tcp,af=ipv6,oif=dpdk0".parse().unwrap());
    let mut ask = |_: &Request| {
        let all = [keys()[0], matching, keys()[2]].map(|key| service(key, 1));
        Ok(Answer::Ok(Reply::Services(all.to_vec())))
    };
    let bytes = sent(FAMILY, command::GET_SERVICE, REQUEST | DUMP, &Body::default());
    let Outcome::Answered(told) = answer(&bytes, false, &mut ask) else { panic!() };
    let all: Vec<_> = told.iter().flat_map(|datagram| messages(datagram)).collect();
    let count = all.iter().filter(|message| message.command == command::NEW_SERVICE).count();
    assert_eq!((count, all.len()), (2, 3));
}

#[test]
fn a_refusal_is_an_error_with_the_kernels_number() {
    let mut ask = |_: &Request| Ok(Answer::Refused { errno: Errno::Exist, detail: String::new() });
    let body = write::service(&service(keys()[1], 0));
    let bytes = sent(FAMILY, command::NEW_SERVICE, REQUEST | ACK, &body);
    let Outcome::Answered(told) = answer(&bytes, false, &mut ask) else { panic!() };
    assert_eq!((told.len(), &told[0][16..20]), (1, &(-17_i32).to_ne_bytes()[..]));
    let mut done = |_: &Request| Ok(Answer::Ok(Reply::Done));
    let Outcome::Answered(told) = answer(&bytes, false, &mut done) else { panic!() };
    assert_eq!((told.len(), &told[0][16..20]), (1, &[0; 4][..]));
    // Not ENOENT: keepalived would take that for done.
    let mut gone = |_: &Request| Err(Away::Absent);
    let Outcome::Answered(told) = answer(&bytes, false, &mut gone) else { panic!() };
    assert_eq!(told[0][16..20], (-5_i32).to_ne_bytes());
    // Without ACK nothing is said of a success.
    let quiet = sent(FAMILY, command::NEW_SERVICE, REQUEST, &body);
    assert_eq!(answer(&quiet, false, &mut done), Outcome::Answered(Vec::new()));
}
