//! Health checks through the data path: each probe goes to the real server that it is for, as a
//! client's packets do in its mode, whatever is known of that one; and back.

use super::lab::{BACK, FRONT};
use super::modes::{Field, at, datagram, ends, ip, spec};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::plan::probe_port;
use crate::spec::{Mode, Orphans, RealServer};
use std::net::SocketAddr;

const VIP: [&str; 2] = ["198.51.100.200:53", "[2001:db8:1::200]:53"];
const PROBER: [&str; 2] = ["198.51.100.48", "2001:db8:1::48"];
const REALS: [[&str; 2]; 2] = [["192.0.2.11", "192.0.2.12"], ["2001:db8:2::11", "2001:db8:2::12"]];

/// Two real servers, of which the second is down, and its sessions are reset.
fn field(mode: Mode, six: usize) -> Field {
    let mut spec = spec(mode, &at(VIP[six]).ip().to_string(), REALS[six][0], 5353);
    let service = &mut spec.services[0];
    let second = RealServer { address: ip(REALS[six][1]), ..service.reals[0].clone() };
    service.reals.push(second);
    service.probed = true;
    service.on_down = Orphans::Reset;
    service.max_new_per_s = 1;
    spec.probes_from[six] = Some(ip(PROBER[six]));
    let mut field = Field::new(&spec);
    field.plan = field.plan.with_health(&[(field.plan.services[0].reals[1], true)]);
    field.path.adopt(&field.plan);
    field
}

fn from(six: usize, position: usize, number: u64) -> SocketAddr {
    SocketAddr::new(ip(PROBER[six]), probe_port(position, number).expect("a port"))
}

/// The answer of a real server, by the port behind.
fn back(field: &mut Field, from: SocketAddr, to: SocketAddr) -> (SocketAddr, SocketAddr) {
    let mut frame = datagram(from, to);
    assert_eq!(field.one(BACK, &mut frame), Verdict::Tx(FRONT), "{from} to {to}");
    ends(&frame.bytes()[14..])
}

#[test]
fn probes_are_translated_as_clients_packets_are() {
    for (mode, six) in [(Mode::Nat, 0), (Mode::Nat, 1), (Mode::Fnat, 0), (Mode::Fnat, 1)] {
        let mut field = field(mode, six);
        let vip = at(VIP[six]);
        for number in 0..20 {
            for (position, real) in REALS[six].iter().enumerate() {
                let from = from(six, position, number);
                let mut frame = datagram(from, vip);
                // The neighbour of the second is not known: it waits, which is as far as it gets.
                let verdict = field.one(FRONT, &mut frame);
                if position == 1 {
                    assert_eq!(verdict, Verdict::Wait, "{mode:?} {from}");
                    continue;
                }
                assert_eq!(verdict, Verdict::Tx(BACK), "{mode:?} {from}");
                let (source, to) = ends(&frame.bytes()[14..]);
                assert_eq!(to, SocketAddr::new(ip(real), 5353));
                assert_eq!(back(&mut field, to, source), (vip, from));
            }
        }
        let counted = field.path.counters();
        let (service, of) = (&field.plan.services[0], |id: crate::plan::RealId| id.0 as usize);
        assert!(service.reals.iter().all(|real| counted.reals[of(*real)].sessions == 0));
        assert_eq!(counted.reals[of(service.probes[0])].sessions, 8, "a source port is a session");
    }
}

#[test]
fn answers_that_pass_the_director_by_are_the_probers() {
    for (mode, six) in [(Mode::Dr, 0), (Mode::Dr, 1), (Mode::Ipip, 0), (Mode::Ipip, 1)] {
        let mut field = field(mode, six);
        let (vip, from) = (at(VIP[six]), from(six, 0, 3));
        assert_eq!(field.one(FRONT, &mut datagram(from, vip)), Verdict::Tx(BACK), "{mode:?}");
        assert_eq!(back(&mut field, vip, from), (vip, from));
    }
}
