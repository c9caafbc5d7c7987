//! What must hold for each frame and for all counters, seen with `etherparse`'s eyes.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use sluice_director::fib::PortId;
use sluice_director::path::{Path, SessionInfo, Verdict};
use sluice_director::reason::{Fate, Reason};
use sluice_director::session::State;
use sluice_testkit::{describe, verify};

use super::world::{LADDR, MACS, VIP, World};

/// The parts of a frame that rules are about.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    protocol: u8,
    macs: ([u8; 6], [u8; 6]),
    source: ([u8; 4], u16),
    destination: ([u8; 4], u16),
    total_len: u16,
    ttl: u8,
    id: u16,
    payload: Vec<u8>,
    reset: bool,
}

fn see(frame: &[u8]) -> Option<Seen> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(NetSlice::Ipv4(ip)) = &packet.net else { return None };
    let header = ip.header();
    let (ports, payload, reset) = match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            ((tcp.source_port(), tcp.destination_port()), tcp.payload(), tcp.rst())
        }
        Some(TransportSlice::Udp(udp)) => {
            ((udp.source_port(), udp.destination_port()), udp.payload(), false)
        }
        _ => return None,
    };
    let (to, from) = (frame.first_chunk()?, frame.get(6..)?.first_chunk()?);
    Some(Seen {
        protocol: header.protocol().0,
        macs: (*from, *to),
        source: (header.source(), ports.0),
        destination: (header.destination(), ports.1),
        total_len: header.total_len(),
        ttl: header.ttl(),
        id: header.identification(),
        payload: payload.to_vec(),
        reset,
    })
}

/// Judges one frame: as it came in by `port`, the verdict, as it is now.
pub fn frame(world: &World, port: PortId, before: &[u8], verdict: Verdict, after: &[u8]) {
    match verdict {
        Verdict::Kernel(reason) => {
            assert_eq!(reason.fate(), Fate::Kernel, "{}", reason.name());
            assert_eq!(before, after, "what is the kernel's is left as it was");
        }
        Verdict::Drop(reason) => assert_eq!(reason.fate(), Fate::Dropped, "{}", reason.name()),
        Verdict::Tx(to) => forwarded(world, before, to, after),
        Verdict::Answer(to, reason) => {
            assert_eq!(to, port, "an answer goes back the way the packet came");
            match reason {
                Reason::TtlExpired | Reason::TooBig => told(before, after),
                _ => answered(before, after),
            }
        }
        Verdict::Park(_) => assert_eq!(before, after, "what is parked is left as it was"),
        Verdict::Wait | Verdict::Fragment(..) => {}
        Verdict::HandOff(_) => panic!("somebody owns it"),
    }
}

fn forwarded(world: &World, before: &[u8], to: PortId, after: &[u8]) {
    let story = || format!("\n{}\n{}", describe(before), describe(after));
    // What `etherparse` cannot read (a third tag, say) it cannot judge.
    let Some(was) = see(before) else { return };
    let is = see(after).unwrap_or_else(|| panic!("sent, but not readable:{}", story()));
    if verify(before).is_ok() {
        assert_eq!(verify(after), Ok(()), "{}", story());
    }
    assert_eq!((is.ttl, is.id), (was.ttl - 1, was.id), "{}", story());
    assert_eq!((is.total_len, &is.payload), (was.total_len, &was.payload), "{}", story());
    assert_eq!(is.macs.0, MACS[usize::from(to.0)], "the port's own MAC:{}", story());
    if to.0 == 1 {
        assert_eq!((was.destination.0, is.source.0), (VIP.octets(), LADDR.octets()), "{}", story());
        assert_eq!((&is.destination.0[..3], is.destination.1), (&[192, 0, 2][..], 8080));
        assert!(is.source.1 >= 1024 && is.total_len <= world.back_mtu(), "{}", story());
    } else if was.destination.0 == LADDR.octets() {
        assert_eq!(is.source.0, VIP.octets(), "{}", story());
    }
}

/// An ICMP error goes to whom it is about.
fn told(before: &[u8], after: &[u8]) {
    let story = || format!("\n{}\n{}", describe(before), describe(after));
    let ends = |frame: &[u8]| match SlicedPacket::from_ethernet(frame).ok()?.net? {
        NetSlice::Ipv4(ip) => Some((ip.header().source(), ip.header().destination())),
        _ => None,
    };
    assert_eq!(verify(after), Ok(()), "{}", story());
    let (_, to) = ends(after).unwrap_or_else(|| panic!("sent, but not readable:{}", story()));
    if let Some((from, _)) = ends(before) {
        assert_eq!(to, from, "{}", story());
    }
    let packet = SlicedPacket::from_ethernet(after).expect("it was read");
    assert!(matches!(packet.transport, Some(TransportSlice::Icmpv4(_))), "{}", story());
}

fn answered(before: &[u8], after: &[u8]) {
    let story = || format!("\n{}\n{}", describe(before), describe(after));
    let is = see(after).unwrap_or_else(|| panic!("sent, but not readable:{}", story()));
    assert_eq!(verify(after), Ok(()), "{}", story());
    assert!(is.reset && is.payload.is_empty(), "{}", story());
    if let Some(was) = see(before) {
        assert!(!was.reset, "a reset answered with a reset:{}", story());
        assert_eq!((is.source, is.destination), (was.destination, was.source), "{}", story());
        assert_eq!(is.macs, (was.macs.1, was.macs.0), "{}", story());
    }
}

/// Judges where the session of one frame comes from that `worker` received: it was `known` (to that
/// worker, or as an answer to any), or the frame `created` it.
pub fn session(
    known: &[Vec<SessionInfo>],
    worker: u16,
    before: &[u8],
    verdict: Verdict,
    created: u64,
) {
    let Some(seen) = see(before) else { return };
    let end = |(address, port): ([u8; 4], u16)| (Ipv4Addr::from(address).into(), port);
    let (source, destination) = (end(seen.source), end(seen.destination));
    let numbered = known.iter().enumerate();
    let mut all = numbered.flat_map(|(of, sessions)| sessions.iter().map(move |s| (of, s)));
    let session = all.find(|(of, s)| {
        let here = *of == usize::from(worker);
        let inbound = here && (s.client, s.virtual_) == (source, destination);
        let outbound = (s.real, s.local) == (source, Some(destination));
        s.protocol == seen.protocol && (inbound || outbound)
    });
    let story = || format!("{verdict:?} {created} {session:?}\n{}", describe(before));
    let over = |s: &SessionInfo| s.state.is_ending() || s.state == State::Close;
    match session.map(|(_, session)| session) {
        Some(session) if !over(session) => assert_eq!(created, 0, "known: {}", story()),
        Some(_) => assert!(created <= 1, "{}", story()),
        None if matches!(verdict, Verdict::Tx(_) | Verdict::Wait) => {
            assert_eq!(created, 1, "of no session: {}", story());
        }
        None => assert!(created <= 1, "{}", story()),
    }
}

/// One worker's counters fit together.
pub fn counters(path: &Path) {
    let counters = path.counters();
    let live = u64::from(path.live_sessions());
    assert_eq!(counters.created, counters.closed + counters.expired + live, "{counters:?}");
    assert!(live <= u64::from(path.session_capacity()));
    let active: u64 = counters.reals.iter().map(|real| real.active).sum();
    assert_eq!(active, live, "{counters:?}");
    assert_eq!(counters.of(Reason::HandOffLoop), 0);
}

/// No two sessions of a worker share a client's tuple, and none of all a real server's.
pub fn sessions(sessions: &[Vec<SessionInfo>]) {
    let mut outbound = HashSet::new();
    for of_worker in sessions {
        let mut inbound = HashSet::new();
        for s in of_worker {
            assert!(inbound.insert((s.protocol, s.client, s.virtual_)), "one client twice: {s:?}");
            assert!(outbound.insert((s.protocol, s.real, s.local)), "one port twice: {s:?}");
        }
    }
}
