//! What a turn tells of itself, and whom it takes for an elephant.

use super::lab::{BACK, FRONT, Lab, MemFrame, with_ipv6};
use super::modes::datagram;
use crate::fib::PortId;
use crate::path::{BURST, Path, PathConfig, Probe, SessionFilter, Stage, Verdict, View};
use std::net::SocketAddr;

#[derive(Default)]
struct Notes {
    marks: [usize; Stage::COUNT],
    found: u32,
    packets: u32,
}

impl Probe for Notes {
    const ON: bool = true;

    fn mark(&mut self, stage: Stage) {
        self.marks[stage as usize] += 1;
    }

    fn looked_up(&mut self, found: u32, packets: u32) {
        (self.found, self.packets) = (self.found + found, self.packets + packets);
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sends datagrams from so many ports, and takes notes.
fn probed(lab: &mut Lab, client: &str, vip: &str, ports: &[u16]) -> Notes {
    let mut frames: Vec<_> = ports
        .iter()
        .map(|port| datagram(SocketAddr::new(client.parse().unwrap(), *port), at(vip)))
        .collect();
    turn(lab, FRONT, &mut frames)
}

/// Answers what open sessions have sent.
fn answered(lab: &mut Lab) -> Notes {
    let (mut sessions, everything) = (Vec::new(), SessionFilter::default());
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let part = (at, 10_000);
        cursor = lab.path.list(&lab.plan, lab.now, &everything, part, &mut sessions);
    }
    let answers = sessions.iter().take(BURST).map(|session| {
        let (real, local) = (session.real, session.local.unwrap());
        datagram(real.into(), local.into())
    });
    let mut frames: Vec<_> = answers.collect();
    turn(lab, BACK, &mut frames)
}

fn turn(lab: &mut Lab, port: PortId, frames: &mut [MemFrame]) -> Notes {
    let mut verdicts = vec![Verdict::Wait; frames.len()];
    let mut notes = Notes::default();
    let view = View { plan: &lab.plan, fib: &lab.fib };
    let told = (&mut verdicts[..], &mut notes);
    lab.path.turn_probed(view, lab.now, port, (frames, &[]), told);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Tx(_))), "{verdicts:?}");
    notes
}

#[test]
fn sessions_that_are_there_are_found_at_the_first_look() {
    let mut lab = Lab::with(with_ipv6, 1000, (0, 1));
    let ports: Vec<u16> = (0..40).map(|port| 4000 + port).collect();
    let one_flow = [4007; BURST];
    for (client, vip) in
        [("198.51.100.48", "198.51.100.200:53"), ("2001:db8:1::48", "[2001:db8:1::200]:53")]
    {
        let first = probed(&mut lab, client, vip, &ports);
        assert_eq!((first.found, first.packets), (0, 40), "{vip}");
        // One mark each, and none of what goes on in the worker.
        assert_eq!(first.marks[Stage::Open as usize], 40);
        for ports in [&ports[..], &one_flow, &ports[..3]] {
            let again = probed(&mut lab, client, vip, ports);
            let all = ports.len() as u32;
            assert_eq!((again.found, again.packets), (all, all), "{vip}");
            let own = [Stage::Parse, Stage::Find, Stage::Track];
            for stage in Stage::ALL {
                let told = again.marks[stage as usize] > 0;
                assert_eq!(told, own.contains(&stage), "{stage:?}");
            }
        }
        let back = answered(&mut lab);
        assert_eq!((back.found, back.packets), (back.packets, back.packets), "to {vip}");
        assert!(back.packets >= 40);
    }
}

#[test]
fn the_session_with_the_most_traffic_is_an_elephant() {
    let mut lab = Lab::with(with_ipv6, 1000, (0, 1));
    for _ in 0..400 {
        for (client, vip) in
            [("198.51.100.48", "198.51.100.200:53"), ("2001:db8:1::48", "[2001:db8:1::200]:53")]
        {
            // Three of four packets are of one session, the others of sixteen.
            let ports: Vec<u16> =
                (0..64).map(|at| if at % 4 > 0 { 5000 } else { 6000 + at / 4 }).collect();
            probed(&mut lab, client, vip, &ports);
        }
        lab.now.0 += 5;
    }
    let found = lab.path.elephants(&lab.plan, lab.now, 2);
    let mut clients: Vec<_> = found.iter().map(|one| one.session.client).collect();
    clients.sort_unstable();
    let expected = ["198.51.100.48", "2001:db8:1::48"].map(|ip| (ip.parse().unwrap(), 5000));
    assert_eq!(clients, expected);
    for one in found {
        // 48 packets in 5 ms; the IP packets of IPv4 have 39 bytes, those of IPv6 59.
        let [inbound, outbound] = one.packets_per_s;
        assert!((6_000..13_500).contains(&inbound) && outbound == 0, "{inbound} {outbound}");
        let bytes = if one.session.client.0.is_ipv4() { 39 } else { 59 };
        assert_eq!(one.bytes_per_s[0] / inbound, bytes);
    }
}

#[test]
fn ports_begin_where_they_are_told_to() {
    // The pool of the lab has one address of each family.
    for (begin, port) in [(0, 1024), (7, 1031)] {
        let mut lab = Lab::with(with_ipv6, 1000, (0, 1));
        let config = PathConfig { fragments: 0, ..lab.config };
        lab.path = Path::new(&config).unwrap();
        lab.path.begin_ports_at(begin);
        lab.path.adopt(&lab.plan);
        probed(&mut lab, "198.51.100.48", "198.51.100.200:53", &[4000]);
        let mut sessions = Vec::new();
        lab.path.list(&lab.plan, lab.now, &SessionFilter::default(), (0, 100), &mut sessions);
        assert_eq!(sessions[0].local.map(|(_, port)| port), Some(port));
    }
}
