//! Several workers and a reload: whoever owned a session when it was opened, and whoever would own
//! it now, its packets find it; and what finds none comes to an end.

use super::lab::{self, BACK, MemFrame};
use super::modes::{Field, datagram, ip, spec};
use super::owners::{settle, walk, workers};
use crate::path::{Path, Verdict};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{Mode, Orphans, Persistence, Ports, Protocol, RealServer, Spec, VirtualService};
use sluice_wire::tcp::{ACK, SYN};
use std::collections::HashSet;
use std::net::SocketAddr;

const VIP: &str = "198.51.100.200";
const REAL: &str = "192.0.2.11";

/// A service at some ports, whose clients are remembered by so many bits, if at all.
fn service(mode: Mode, ports: Ports, prefix: Option<u8>) -> VirtualService {
    let mut service = spec(mode, VIP, REAL, 0).services.remove(0);
    service.ports = ports;
    service.persistence = prefix.map(|prefix| Persistence { timeout_s: 300, prefix });
    service
}

fn over(mode: Mode, prefix: Option<u8>) -> VirtualService {
    service(mode, Ports::one(80), prefix)
}

fn under(mode: Mode) -> VirtualService {
    service(mode, Ports::ALL, None)
}

fn of(services: &[VirtualService]) -> Spec {
    Spec { services: services.to_vec(), ..spec(Mode::Dr, VIP, REAL, 0) }
}

/// A reload that reaches every worker.
fn reload(field: &mut Field, paths: &mut [Path], services: &[VirtualService]) {
    field.plan = next(field, services, &Retired::default());
    paths.iter_mut().for_each(|path| path.adopt(&field.plan));
}

fn next(field: &Field, services: &[VirtualService], retired: &Retired) -> Plan {
    Plan::compile(&of(services), Some(&field.plan), retired).unwrap()
}

/// The endpoints of clients in different networks.
fn clients() -> impl Iterator<Item = SocketAddr> {
    (0..40u8).map(|n| SocketAddr::new([198, 51, 100, n * 5].into(), 4000 + u16::from(n)))
}

fn request(client: SocketAddr) -> MemFrame {
    datagram(client, SocketAddr::new(ip(VIP), 80))
}

/// Sends a request of each client, which the NIC always brings to the same worker; gives how many
/// sessions each worker has then.
fn ask(field: &Field, paths: &mut [Path]) -> Vec<u32> {
    for (n, client) in (0..).zip(clients()) {
        let first = n % paths.len() as u16;
        let (_, verdict) = settle(field, paths, first, &mut request(client));
        assert_eq!(verdict, Verdict::Tx(BACK), "{client} by {first}");
    }
    paths.iter().map(Path::live_sessions).collect()
}

#[test]
fn sessions_are_found_after_a_reload() {
    use Mode::{Dr, Nat};
    // It needs the other table.
    let mut across = over(Nat, None);
    let address = ip("2001:db8:2::11");
    across.reals.push(RealServer { address, weight: 0, mode: Some(Mode::Fnat), ..across.reals[0] });
    for (before, after) in [
        (vec![under(Dr), over(Nat, None)], vec![under(Dr)]),
        (vec![under(Nat), over(Dr, Some(27))], vec![under(Nat)]),
        (vec![under(Nat)], vec![under(Nat), over(Dr, Some(28))]),
        (vec![under(Nat)], vec![under(Nat), over(Dr, None)]),
        (vec![under(Dr)], vec![under(Dr), over(Nat, Some(28))]),
        (vec![over(Dr, Some(28))], vec![over(Dr, Some(30))]),
        (vec![over(Nat, None)], vec![over(Dr, None)]),
        (vec![over(Nat, Some(28))], vec![under(Nat), across]),
    ] {
        let mut field = Field::new(&of(&before));
        let mut paths = workers(&field, 5);
        let there = ask(&field, &mut paths);
        assert_eq!(there.iter().sum::<u32>(), 40);
        assert!(there.iter().filter(|count| **count > 0).count() > 2, "{there:?}");
        reload(&mut field, &mut paths, &after);
        assert_eq!(ask(&field, &mut paths), there, "{before:?} became {after:?}");
    }
}

/// What is opened after a reload is where a fresh director would have it, so that nothing is lost
/// when what is gone is forgotten.
#[test]
fn new_sessions_do_not_depend_on_the_past() {
    for (before, after) in [
        (vec![under(Mode::Dr), over(Mode::Nat, None)], vec![under(Mode::Dr)]),
        (vec![over(Mode::Nat, Some(27)), under(Mode::Nat)], vec![under(Mode::Nat)]),
    ] {
        let fresh = Field::new(&of(&after));
        let expected = ask(&fresh, &mut workers(&fresh, 4));
        let mut field = Field::new(&of(&before));
        let mut paths = workers(&field, 4);
        reload(&mut field, &mut paths, &after);
        assert_eq!(ask(&field, &mut paths), expected);
        let gone = field.plan.services.iter().position(|service| !service.live).unwrap();
        let services = HashSet::from([crate::plan::ServiceId(gone as u16)]);
        field.plan = next(&field, &after, &Retired { services, ..Retired::default() });
        paths.iter_mut().for_each(|path| path.adopt(&field.plan));
        assert_eq!(ask(&field, &mut paths), expected);
        // Nobody is asked any more.
        let longest = (0..).zip(clients()).map(|(n, client)| {
            let fields = [&field; 4];
            walk(&fields, &mut paths, n % 4, &mut request(client)).len()
        });
        assert!(longest.max() <= Some(2));
    }
}

/// Two services share a real server's endpoint, and have different clients meet.
#[test]
fn answers_by_nat_are_found_whatever_service_they_are_of() {
    let mut other = over(Mode::Nat, Some(28));
    other.vip = ip("198.51.100.201");
    other.reals[0].port = 53;
    let mut one = over(Mode::Nat, None);
    one.reals[0].port = 53;
    let field = Field::new(&of(&[one, other]));
    let mut paths = workers(&field, 5);
    for (n, client) in (0..).zip(clients()) {
        let vip = if n % 2 == 0 { VIP } else { "198.51.100.201" };
        let mut frame = datagram(client, SocketAddr::new(ip(vip), 80));
        let (owner, verdict) = settle(&field, &mut paths, n % 5, &mut frame);
        assert_eq!(verdict, Verdict::Tx(BACK));
        for first in 0..5 {
            let mut answer = datagram(SocketAddr::new(ip(REAL), 53), client);
            let (at, verdict) = settle(&field, &mut paths, first, &mut answer);
            assert!(matches!(verdict, Verdict::Tx(_) | Verdict::Wait), "{client}: {verdict:?}");
            assert_eq!(at, owner);
        }
        // Of no session.
        let mut stray = datagram(SocketAddr::new(ip(REAL), 53), "198.51.100.7:9".parse().unwrap());
        let (_, verdict) = settle(&field, &mut paths, n % 5, &mut stray);
        assert_eq!(verdict, Verdict::Kernel(Reason::NotOurs));
    }
}

/// A session that is to go elsewhere from the middle of its stream goes to whoever owns it there.
#[test]
fn a_rescheduled_session_goes_on_at_its_new_owner() {
    let tcp = |mut service: VirtualService| {
        service.protocol = Protocol::Tcp;
        service.on_removed = Orphans::Reschedule;
        service
    };
    let mut field = Field::new(&of(&[tcp(under(Mode::Dr)), tcp(over(Mode::Dr, Some(27)))]));
    let mut paths = workers(&field, 4);
    let packet = |client: u8, flags| {
        lab::tcp(([198, 51, 100, client * 9], 4000), ([198, 51, 100, 200], 80), flags, (9, 7), b"")
    };
    let mut went = Vec::new();
    for client in 0..20 {
        let first = u16::from(client) % 4;
        let (at, verdict) = settle(&field, &mut paths, first, &mut packet(client, SYN));
        assert_eq!(verdict, Verdict::Tx(BACK));
        went.push(at);
    }
    reload(&mut field, &mut paths, &[tcp(under(Mode::Dr))]);
    for client in 0..20 {
        let first = u16::from(client) % 4;
        let (at, verdict) = settle(&field, &mut paths, first, &mut packet(client, ACK));
        assert_eq!((at, verdict), (first, Verdict::Tx(BACK)), "from {}", went[usize::from(client)]);
    }
    assert_eq!(paths.iter().map(Path::live_sessions).sum::<u32>(), 20);
    assert!((0..20u16).any(|client| went[usize::from(client)] != client % 4));
}

/// Workers whose plans differ each take the other for the owner, but not for ever.
#[test]
fn a_round_ends_while_a_reload_is_in_progress() {
    let before = Field::new(&of(&[under(Mode::Nat)]));
    let mut after = Field::new(&of(&[under(Mode::Nat)]));
    after.plan = next(&before, &[under(Mode::Nat), over(Mode::Dr, Some(27))], &Retired::default());
    let (mut ended, mut all) = (0, 0);
    for late in 0..16u16 {
        let fields: Vec<_> =
            (0..4).map(|n| if late >> n & 1 == 1 { &before } else { &after }).collect();
        let mut paths = workers(&before, 4);
        for (path, field) in paths.iter_mut().zip(&fields) {
            path.adopt(&field.plan);
        }
        for (n, client) in (0..).zip(clients()) {
            let way = walk(&fields, &mut paths, n % 4, &mut request(client));
            assert!(way.len() <= 4 + 5, "{way:?}");
            let (_, verdict) = *way.last().unwrap();
            let lost = verdict == Verdict::Drop(Reason::HandOffLoop);
            assert!(lost || verdict == Verdict::Tx(BACK), "{way:?}");
            // Those that agree lose nothing.
            assert!(!lost || !matches!(late, 0 | 15), "{way:?}");
            ended += u64::from(lost);
        }
        let counted: u64 = paths.iter().map(|path| path.counters().of(Reason::HandOffLoop)).sum();
        assert_eq!(counted, std::mem::take(&mut ended));
        all += counted;
    }
    assert!(all > 0, "nobody disagreed");
}
