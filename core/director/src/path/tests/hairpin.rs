//! Hairpinning with several workers: whoever receives a packet, it gets where it is to go.

use super::modes::{Field, at, datagram, ip, spec};
use super::owners::{settle, workers};
use crate::frame::Frame;
use crate::path::{Path, Verdict};
use crate::reason::Reason;
use crate::spec::{LocalPool, Mode, Network, SnatRule, Spec};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::net::{IpAddr, SocketAddr};

const COUNT: u16 = 4;

/// A rule for a network inside that may reach itself, too.
fn rule() -> Spec {
    let mut all = spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 53);
    let networks = [("192.0.2.0", 24), ("2001:db8:2::", 64)];
    all.snat = vec![SnatRule {
        network: String::new(),
        name: "out".into(),
        sources: networks.map(|(net, prefix)| Network { address: ip(net), prefix }).to_vec(),
        destinations: [("0.0.0.0", 0), ("::", 0)]
            .map(|(net, prefix)| Network { address: ip(net), prefix })
            .to_vec(),
        pool: "wan".into(),
        hairpinning: true,
        ..SnatRule::default()
    }];
    all.pools.push(LocalPool {
        network: String::new(),
        name: "wan".into(),
        addresses: vec![ip("198.51.100.9"), ip("2001:db8:1::9")],
        ports: 2000..=2999,
        peer_addresses: Vec::new(),
    });
    all
}

/// Who a datagram is from and to.
fn ends(frame: &[u8]) -> (SocketAddr, SocketAddr) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("{sliced:?}") };
    let (from, to): (IpAddr, IpAddr) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(net) => {
            (net.header().source_addr().into(), net.header().destination_addr().into())
        }
        NetSlice::Ipv6(net) => {
            (net.header().source_addr().into(), net.header().destination_addr().into())
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()))
}

/// Field, workers.
struct Lan(Field, Vec<Path>);

impl Lan {
    fn new() -> Self {
        let field = Field::new(&rule());
        let paths = workers(&field, COUNT);
        Self(field, paths)
    }

    /// Sends a datagram in by each worker: it has the same ends wherever it came.
    fn through(&mut self, from: SocketAddr, to: SocketAddr) -> (SocketAddr, SocketAddr) {
        let mut all = (0..COUNT).map(|first| {
            let mut frame = datagram(from, to);
            let (_, verdict) = settle(&self.0, &mut self.1, first, &mut frame);
            let goes = matches!(verdict, Verdict::Tx(_) | Verdict::Wait);
            assert!(goes, "{from} to {to} by {first}: {verdict:?}");
            ends(frame.bytes())
        });
        let ends = all.next().unwrap();
        assert!(all.all(|other| other == ends), "{from} to {to}");
        ends
    }
}

#[test]
fn hosts_inside_reach_each_other_whichever_worker_has_what() {
    for (real, beside, outside) in [
        ("192.0.2.11", "192.0.2.12:700", "198.51.100.48:5000"),
        ("2001:db8:2::11", "[2001:db8:2::12]:700", "[2001:db8:1::48]:5000"),
    ] {
        let (mut lan, beside, outside) = (Lan::new(), at(beside), at(outside));
        for number in 0..12 {
            let inside = |port: u16| SocketAddr::new(ip(real), port + number);
            let (one, two) = (inside(700), inside(900));
            let (outer_two, _) = lan.through(two, outside);
            let (outer_one, reached) = lan.through(one, outer_two);
            assert_eq!(reached, two);
            assert_eq!(lan.through(two, outer_one), (outer_two, one));
            assert_eq!(lan.through(outside, outer_two), (outside, two));
            // Who answers to a pool address may well be inside by the rule.
            let (outer_three, there) = lan.through(inside(800), beside);
            assert_eq!(there, beside);
            assert_eq!(lan.through(beside, outer_three), (beside, inside(800)));
            for first in 0..COUNT {
                for (from, to) in [(outer_one, outer_two), (outer_two, outer_one)] {
                    let mut forged = datagram(from, to);
                    let (_, verdict) = settle(&lan.0, &mut lan.1, first, &mut forged);
                    assert_eq!(verdict, Verdict::Drop(Reason::Martian), "{from} to {to}");
                }
            }
        }
        let live: u32 = lan.1.iter().map(Path::live_sessions).sum();
        assert_eq!(live, 12 * 4);
    }
}
