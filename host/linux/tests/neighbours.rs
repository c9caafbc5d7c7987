//! Neighbours: the kernel resolves them when asked, and what it learns comes through.

mod bed;

use std::net::IpAddr;
use std::time::Duration;

use bed::{Host, LATER, SOON, addr, in_namespace, index, ip, pair, sysctl, until};
use sluice_linux::{Error, Kernel, Mirror, NeighbourState};

const PEERS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const FIRST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

fn mac_of(kernel: &Kernel, ifindex: u32, ip: IpAddr) -> Option<[u8; 6]> {
    kernel.neighbour(ifindex, ip)?.usable_mac()
}

fn state_of(kernel: &Kernel, ifindex: u32, ip: IpAddr) -> Option<NeighbourState> {
    Some(kernel.neighbour(ifindex, ip)?.state)
}

/// A pair whose far end has the first MAC, and a mirror on the near end.
fn bed() -> (Host, Mirror, u32) {
    let there = Host::new();
    ip("link add slx0 type veth peer name slx1");
    ip("link del slx0"); // The module is loaded now; what follows measures no loading.
    // IPv6 asks for neighbours from its link-local address, which must have passed duplicate
    // address detection: a second that the tests need not wait.
    sysctl("net/ipv6/conf/default/accept_dad", "0");
    there.sysctl("net/ipv6/conf/default/accept_dad", "0");
    pair(&there);
    there.ip("link set slx1 address 02:00:00:00:00:11");
    there.run(|| {
        ready("slx1");
        listens("slx1", "ff02::1:ff00:2");
    });
    let (mirror, ifindex) = ready("slx0");
    (there, mirror, ifindex)
}

/// Opens a mirror and waits until a link is up and its addresses are in use.
fn ready(name: &str) -> (Mirror, u32) {
    let mut mirror = Mirror::open().expect("the mirror opens");
    let ifindex = index(&mirror, name);
    until(&mut mirror, LATER, "the link is up and has its addresses", |kernel| {
        let own = kernel.addresses().filter(|address| address.ifindex == ifindex);
        kernel.link(ifindex).is_some_and(sluice_linux::Link::is_up)
            && own.filter(|address| !address.tentative).count() == 3 // IPv4, IPv6, link-local
    });
    (mirror, ifindex)
}

/// Waits until an IPv6 host listens for questions about its address: an address that skips
/// duplicate address detection is in use a moment before its multicast group is joined.
fn listens(name: &str, group: &str) {
    let deadline = std::time::Instant::now() + LATER;
    let joined = || {
        let output = std::process::Command::new("ip").args(["maddr", "show", name]).output();
        String::from_utf8_lossy(&output.expect("ip runs").stdout).contains(group)
    };
    while !joined() {
        assert!(std::time::Instant::now() < deadline, "{name} joins {group}");
    }
}

/// Makes the kernel ask quickly: failing takes three unanswered questions.
fn ask_every_100_ms() {
    for family in ["ipv4", "ipv6"] {
        sysctl(&format!("net/{family}/neigh/slx0/retrans_time_ms"), "100");
    }
}

#[test]
fn a_neighbour_is_resolved_on_request_without_a_packet_of_ours() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        for peer in PEERS.map(addr) {
            assert_eq!(mirror.state().neighbour(ifindex, peer), None);
            let start = std::time::Instant::now();
            mirror.resolve(ifindex, peer).expect("the kernel takes the request");
            let (_, changed) = until(&mut mirror, SOON, "the peer is reachable", |kernel| {
                state_of(kernel, ifindex, peer) == Some(NeighbourState::Reachable)
            });
            println!("{peer} resolved {:?} after the request", start.elapsed());
            assert!(changed.neighbours);
            assert_eq!(mac_of(mirror.state(), ifindex, peer), Some(FIRST_MAC));
        }
        // The peer learnt our address from the question it was asked: so a question went out.
        let learnt = there.run(|| bed::ip_json("-j neigh show dev slx1"));
        assert!(learnt.iter().any(|n| n["dst"] == "192.0.2.1"), "{learnt:?}");
        let from_link_local =
            |n: &serde_json::Value| n["dst"].as_str().is_some_and(|text| text.starts_with("fe80:"));
        assert!(learnt.iter().any(from_link_local), "{learnt:?}");
        // Asking for a usable neighbour does nothing.
        mirror.resolve(ifindex, addr(PEERS[0])).expect("the kernel takes the request");
        assert!(!mirror.process().expect("the mirror follows").any());
        // What is forgotten is asked for anew, and forgetting twice is no error.
        for _ in 0..2 {
            mirror.commands().forget_neighbour(ifindex, addr(PEERS[0])).expect("forgotten");
        }
        until(&mut mirror, SOON, "the peer is forgotten", |kernel| {
            kernel.neighbour(ifindex, addr(PEERS[0])).is_none_or(|it| !it.state.is_usable())
        });
    });
}

#[test]
fn growing_stale_is_no_change_and_keep_refreshes_without_one() {
    in_namespace(|| {
        let (_there, mut mirror, ifindex) = bed();
        for family in ["ipv4", "ipv6"] {
            sysctl(&format!("net/{family}/neigh/slx0/base_reachable_time_ms"), "200");
            // Otherwise a neighbour that was just asked for is asked once more before it is stale.
            sysctl(&format!("net/{family}/neigh/slx0/delay_first_probe_time"), "0");
        }
        for peer in PEERS.map(addr) {
            mirror.resolve(ifindex, peer).expect("the kernel takes the request");
            until(&mut mirror, SOON, "the peer is reachable", |kernel| {
                mac_of(kernel, ifindex, peer).is_some()
            });
            for _ in 0..3 {
                let (_, changed) = until(&mut mirror, LATER, "the peer is stale", |kernel| {
                    state_of(kernel, ifindex, peer) == Some(NeighbourState::Stale)
                });
                assert!(!changed.any(), "{changed:?}");
                mirror.keep(ifindex, peer).expect("the kernel takes the request");
                let (took, changed) = until(&mut mirror, LATER, "reachable again", |kernel| {
                    state_of(kernel, ifindex, peer) == Some(NeighbourState::Reachable)
                });
                println!("{peer} refreshed after {took:?}");
                assert!(!changed.any(), "{changed:?}");
            }
        }
    });
}

#[test]
fn a_silently_changed_mac_is_noticed_by_keeping() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        ask_every_100_ms();
        for (peer, mac) in PEERS.map(addr).into_iter().zip([FIRST_MAC, SECOND_MAC]) {
            mirror.resolve(ifindex, peer).expect("the kernel takes the request");
            until(&mut mirror, SOON, "the peer is resolved", |kernel| {
                mac_of(kernel, ifindex, peer) == Some(mac)
            });
            let new = if mac == FIRST_MAC { SECOND_MAC } else { FIRST_MAC };
            there.ip(&format!("link set slx1 address 02:00:00:00:00:{:02x}", new[5]));
            ip(&format!("neigh change {peer} dev slx0 nud stale"));
            // As the caller does: keep now and then, until the new address is there.
            let start = std::time::Instant::now();
            let mut lost = false;
            loop {
                mirror.process().expect("the mirror follows");
                let now = mac_of(mirror.state(), ifindex, peer);
                lost |= now.is_none();
                if now == Some(new) {
                    break;
                }
                assert!(start.elapsed() < LATER, "the change of {peer} is noticed");
                mirror.keep(ifindex, peer).expect("the kernel takes the request");
                bed::wait_readable(&mirror, Duration::from_millis(20));
            }
            println!("the new MAC of {peer} was noticed after {:?}", start.elapsed());
            assert!(lost, "in between the neighbour is not usable");
        }
    });
}

#[test]
fn a_gratuitous_announcement_changes_the_mac_at_once() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        there.sysctl("net/ipv4/conf/slx1/arp_notify", "1");
        there.sysctl("net/ipv6/conf/slx1/ndisc_notify", "1");
        for peer in PEERS.map(addr) {
            mirror.resolve(ifindex, peer).expect("the kernel takes the request");
            until(&mut mirror, SOON, "the peer is resolved", |kernel| {
                mac_of(kernel, ifindex, peer) == Some(FIRST_MAC)
            });
        }
        there.ip("link set slx1 address 02:00:00:00:00:22");
        for peer in PEERS.map(addr) {
            until(&mut mirror, SOON, "the new MAC is known", |kernel| {
                mac_of(kernel, ifindex, peer) == Some(SECOND_MAC)
            });
        }
    });
}

#[test]
fn a_neighbour_that_failed_is_asked_again() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        ask_every_100_ms();
        for (peer, width) in [(addr("192.0.2.3"), 24), (addr("2001:db8::3"), 64)] {
            mirror.resolve(ifindex, peer).expect("the kernel takes the request");
            until(&mut mirror, LATER, "the absent peer has failed", |kernel| {
                state_of(kernel, ifindex, peer) == Some(NeighbourState::Failed)
            });
            assert_eq!(mac_of(mirror.state(), ifindex, peer), None);
            there.ip(&format!("addr add {peer}/{width} dev slx1 noprefixroute nodad"));
            if peer.is_ipv6() {
                there.run(|| listens("slx1", "ff02::1:ff00:3"));
            }
            mirror.keep(ifindex, peer).expect("the kernel takes the request");
            let (_, changed) = until(&mut mirror, SOON, "the peer is resolved", |kernel| {
                mac_of(kernel, ifindex, peer) == Some(FIRST_MAC)
            });
            assert!(changed.neighbours);
        }
    });
}

#[test]
fn a_neighbour_set_by_the_administrator_is_left_alone() {
    in_namespace(|| {
        let (_there, mut mirror, ifindex) = bed();
        let peer = addr("192.0.2.9");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:99 dev slx0 nud permanent");
        assert!(mirror.process().expect("the mirror follows").neighbours);
        mirror.keep(ifindex, peer).expect("nothing to do");
        mirror.resolve(ifindex, peer).expect("nothing to do");
        assert!(!mirror.process().expect("the mirror follows").any());
        assert_eq!(state_of(mirror.state(), ifindex, peer), Some(NeighbourState::Permanent));
        assert_eq!(mac_of(mirror.state(), ifindex, peer), Some([2, 0, 0, 0, 0, 0x99]));
        ip("neigh del 192.0.2.9 dev slx0");
        assert!(mirror.process().expect("the mirror follows").neighbours);
        // It may linger as failed while the kernel still refers to it.
        assert_eq!(mac_of(mirror.state(), ifindex, peer), None);
    });
}

#[test]
fn what_cannot_be_resolved_is_refused_with_the_reason() {
    in_namespace(|| {
        let (_there, mut mirror, ifindex) = bed();
        let absent = mirror.resolve(9999, addr("192.0.2.2")).expect_err("no such link");
        assert_eq!(absent.errno(), Some(libc::ENODEV), "{absent}");
        for nonsense in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            let error = mirror.resolve(ifindex, addr(nonsense)).expect_err("no neighbour");
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
    });
}
