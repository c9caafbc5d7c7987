//! Records and messages as bytes.

use super::world::{real, session};
use crate::codec::{Body, Runs, read_items};
use crate::message::{Ack, Hello, Message, read};
use crate::record::{Change, Real, Service, Session};
use crate::status::Standing;
use proptest::prelude::*;
use std::net::IpAddr;

fn any_service() -> impl Strategy<Value = Service> {
    prop_oneof![
        ("[a-z]{0,255}", any::<(u8, IpAddr, u16, u16, bool)>()).prop_map(
            |(network, (protocol, vip, first_port, last_port, extended))| Service::Service {
                network,
                protocol,
                vip,
                first_port,
                last_port,
                extended
            }
        ),
        "[a-z]{0,255}".prop_map(Service::Rule),
    ]
}

fn any_real() -> impl Strategy<Value = Real> {
    (any_service(), any::<IpAddr>(), any::<u16>(), 1..=u8::MAX)
        .prop_map(|(service, address, port, mode)| Real { service, address, port, mode })
}

fn any_session() -> impl Strategy<Value = Session> {
    let local = prop_oneof![
        Just(None),
        any::<u16>().prop_map(|port| Some((IpAddr::from([10, 0, 0, 1]), port))),
        any::<(IpAddr, u16)>().prop_map(Some)
    ];
    let ends = (any::<IpAddr>(), any::<(u16, u16)>(), local, any::<Option<IpAddr>>());
    (any::<bool>(), any::<[u8; 3]>(), ends, any::<(u32, u16, [u16; 2], u32)>()).prop_map(
        |(ended, [protocol, state, closing], (client, ports, local, far), last)| Session {
            change: if ended { Change::Ended } else { Change::Live },
            protocol,
            state,
            closing,
            client,
            client_port: ports.0,
            virtual_port: ports.1,
            local,
            far,
            idle_ms: last.0,
            fin: last.1,
            seen: last.2,
            isn: last.3,
        },
    )
}

fn written(runs: &[(Real, Vec<Session>)], limit: usize) -> Option<Body> {
    let mut body = Body::default();
    let sessions = runs.iter().flat_map(|(real, all)| all.iter().map(move |it| (real, it)));
    for (real, session) in sessions {
        if !body.add(real, session, limit) {
            return None;
        }
    }
    Some(body)
}

fn any_runs() -> impl Strategy<Value = Runs> {
    prop::collection::vec((any_real(), prop::collection::vec(any_session(), 1..6)), 1..5)
}

proptest! {
    #[test]
    fn what_is_written_is_read(runs in any_runs(), pull: u64) {
        let mut body = written(&runs, usize::MAX).unwrap();
        prop_assert!(body.add_marker(pull, usize::MAX));
        let items = read_items(&body.bytes).unwrap();
        let flat = |runs: &Runs| -> Vec<(Real, Session)> {
            let each = |(real, all): &(Real, Vec<Session>)| {
                all.iter().map(|it| (real.clone(), it.clone())).collect::<Vec<_>>()
            };
            runs.iter().flat_map(each).collect()
        };
        prop_assert_eq!(flat(&items.runs), flat(&runs));
        prop_assert_eq!(items.markers, vec![pull]);
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_not_read(runs in any_runs(), cut: prop::sample::Index) {
        let body = written(&runs[..1], usize::MAX).unwrap();
        let last = &runs[0].1[runs[0].1.len() - 1];
        let mut before = Body::default();
        for session in &runs[0].1[..runs[0].1.len() - 1] {
            before.add(&runs[0].0, session, usize::MAX);
        }
        // Cut anywhere in the last session.
        let from = before.bytes.len();
        let at = from + 1 + cut.index(body.bytes.len() - from - 1);
        prop_assert_eq!(read_items(&body.bytes[..at]), None, "{:?}", last);
        prop_assert_eq!(read_items(&[&body.bytes[..], &[0xff]].concat()), None);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..4u8) {
        let _ = read_items(&bytes);
        let _ = read(&bytes);
        let _ = read(&[&[kind], &bytes[..]].concat());
    }

    #[test]
    fn what_can_be_read_is_written_the_same(
        runs in any_runs(), at: prop::sample::Index, byte: u8,
    ) {
        let mut bytes = written(&runs, usize::MAX).unwrap().bytes;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(items) = read_items(&bytes) && items.markers.is_empty() {
            let again = written(&items.runs, usize::MAX).unwrap().bytes;
            // Only a repeated real server or address may be written shorter.
            prop_assert!(again.len() <= bytes.len());
            prop_assert_eq!(read_items(&again).map(|it| it.markers), Some(Vec::new()));
        }
    }

    #[test]
    fn messages_are_read_as_written(
        ids in any::<[[u8; 16]; 3]>(), flags in any::<[bool; 3]>(), first in 1..1000u64,
        more in 0..1000u64, rest in any::<[u64; 3]>(), keys in prop::collection::vec(any::<u32>(),
        0..=4), name in "[a-zäß ]{0,20}",
        standing: Option<(u32, u32, bool, u64)>,
        missing in prop::collection::vec((0..99u64, 1..99u64), 0..64),
    ) {
        let hello = Hello {
            to: ids[0], challenge: ids[1], echo: ids[2],
            knows: flags[0], up: flags[1], synchronised: flags[2],
            fingerprint: rest[0], clock: rest[1] ^ rest[2],
            first, from: first + more, expected: rest[1], pull: rest[2],
            keys, name,
            standing: standing.map(|(held, addresses, draining, sessions)| {
                Standing { held, addresses, draining, sessions }
            }),
        };
        let mut bytes = Vec::new();
        hello.write(&mut bytes);
        prop_assert_eq!(read(&bytes), Some(Message::Hello(hello.clone())));
        bytes.push(0);
        prop_assert_eq!(read(&bytes), Some(Message::Hello(hello)), "of a later version");

        let mut from = first;
        let missing = missing.into_iter().map(|(skip, count)| {
            let start = from + skip;
            from = start + count;
            (start, count)
        });
        let ack = Ack { to: ids[0], expected: first, missing: missing.collect() };
        let mut bytes = Vec::new();
        ack.write(&mut bytes);
        prop_assert_eq!(read(&bytes), Some(Message::Ack(ack)));
    }
}

#[test]
fn a_session_takes_few_bytes() {
    let mut body = Body::default();
    body.add(&real(1), &session(0), usize::MAX);
    let first = body.bytes.len();
    for number in 1..=100 {
        body.add(&real(1), &session(number), usize::MAX);
    }
    let each = (body.bytes.len() - first) / 100;
    println!("{each} bytes for a session of FNAT over IPv4, {first} for a first one");
    assert_eq!(each, 26);
    assert!(first <= 50, "{first}");
}

#[test]
fn a_record_that_does_not_fit_leaves_nothing_behind() {
    let mut body = Body::default();
    assert!(body.add(&real(1), &session(1), 100));
    let before = body.bytes.clone();
    assert!(!body.add(&real(2), &session(2), before.len() + 10));
    assert_eq!(body.bytes, before);
    assert!(body.add(&real(1), &session(3), 200));
    let items = read_items(&body.bytes).unwrap();
    assert_eq!(items.runs, [(real(1), vec![session(1), session(3)])]);
}

#[test]
fn varints_have_one_form_only() {
    for (bytes, value) in [
        (&[0x00][..], Some(0)),
        (&[0x80, 0x01], Some(128)),
        (&[0x80, 0x00], None),
        (&[0xff; 9], None),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Some(u64::MAX)),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03], None),
    ] {
        assert_eq!(crate::codec::Reader::new(bytes).varint(), value, "{bytes:?}");
    }
}
