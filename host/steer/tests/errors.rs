//! ICMP errors: whose they are is decided by the packet that they quote.

mod bench;

use bench::Fate::{Director, Kernel};
use bench::scene::{
    ANY, CLIENT, Carried, ESP, INSIDE, LADDR, OUTSIDE, OWN, PLAIN_LADDR, REAL, TCP, TUNNEL, UDP,
    VIP, ethernet, matches, packet, run,
};
use bench::scene::{Icmp, Other, Ping, Ports};
use bench::{Bench, needs_root};

const ROUTER: &str = "198.51.100.254";

/// An error about a packet.
fn about(v6: bool, from: &str, to: &str, carried: Carried) -> Carried {
    Icmp(3, 1, packet(v6, from, to, &carried))
}

/// The answer to the quoted packet would be the director's, or not.
#[test]
fn errors_about_what_services_and_pools_sent() {
    needs_root!();
    run(|v6| {
        let about = |from, to, carried| about(v6, from, to, carried);
        let to_client = || about(VIP, CLIENT, Ports(TCP, 80, 40_000));
        let of_ssh = about(VIP, CLIENT, Ports(TCP, 22, 40_000));
        let of_pool = about(PLAIN_LADDR, REAL, Ports(UDP, 1024, 53));
        let of_host = about(PLAIN_LADDR, REAL, Ports(UDP, 1023, 53));
        let ping = about(LADDR, OUTSIDE, Ping(1500));
        let ping_of_host = about(LADDR, OUTSIDE, Ping(3000));
        vec![
            ("a service's answer", ROUTER, VIP, to_client(), Director),
            ("an answer of the machine's ssh", ROUTER, VIP, of_ssh, Kernel),
            ("not sent to the quoted source", ROUTER, OWN[0], to_client(), Kernel),
            ("any protocol", ROUTER, ANY, about(ANY, CLIENT, Other(ESP)), Director),
            ("a packet to a full NAT real server", REAL, PLAIN_LADDR, of_pool, Director),
            ("the machine's own packet", REAL, PLAIN_LADDR, of_host, Kernel),
            ("a translated ping", ROUTER, LADDR, ping, Director),
            ("the machine's ping", ROUTER, LADDR, ping_of_host, Kernel),
        ]
    });
}

/// By NAT and source NAT the quoted packet's destination tells; by tunnels its protocol.
#[test]
fn errors_about_what_real_servers_get() {
    needs_root!();
    run(|v6| {
        let about = |from, to, carried| about(v6, from, to, carried);
        let from_client = about(CLIENT, REAL, Ports(TCP, 40_000, 8080));
        let to_its_ssh = about(CLIENT, REAL, Ports(TCP, 40_000, 22));
        let own = about(OWN[1], REAL, Ports(TCP, 40_000, 8080));
        let from_outside = about(OUTSIDE, INSIDE, Ports(UDP, 53, 40_000));
        let to_inside = about("192.0.2.131", INSIDE, Ports(UDP, 53, 40_000));
        let (last, other) = ("192.0.2.79", "192.0.2.80");
        let v6_in_it = about(last, REAL, Other(41));
        let gue = |from, port| about(from, REAL, Ports(UDP, 50_000, port));
        let gre = |from| about(from, REAL, Other(47));
        vec![
            ("a client's packet to a NAT real server", REAL, CLIENT, from_client, Director),
            ("a client's other packet to it", REAL, CLIENT, to_its_ssh, Kernel),
            ("the machine's own packet to it", REAL, OWN[1], own, Kernel),
            ("an answer from outside", INSIDE, OUTSIDE, from_outside, Director),
            ("a packet between insiders", INSIDE, "192.0.2.131", to_inside, Kernel),
            ("a tunnel's packet", ROUTER, TUNNEL, about(TUNNEL, REAL, Other(4)), Director),
            ("a tunnel's packet with IPv6 in it", ROUTER, last, v6_in_it, Director),
            ("another's tunnel", ROUTER, other, about(other, REAL, Other(4)), Kernel),
            ("a GRE tunnel's packet", ROUTER, TUNNEL, gre(TUNNEL), Director),
            ("another's GRE tunnel", ROUTER, other, gre(other), Kernel),
            ("a GUE tunnel's packet", ROUTER, TUNNEL, gue(TUNNEL, 6080), Director),
            ("another's GUE tunnel", ROUTER, other, gue(other, 6080), Kernel),
            ("other UDP of a tunnel's source", ROUTER, TUNNEL, gue(TUNNEL, 53), Kernel),
            ("TCP to that port", ROUTER, TUNNEL, about(TUNNEL, REAL, Ports(TCP, 1, 6080)), Kernel),
        ]
    });
}

#[test]
fn only_errors_count() {
    needs_root!();
    run(|v6| {
        let quoted = packet(v6, VIP, CLIENT, &Ports(TCP, 80, 40_000));
        let row = |kind: u8| {
            let ours = if v6 { (1..=4).contains(&kind) } else { [3, 4, 11, 12].contains(&kind) };
            let fate = if ours { Director } else { Kernel };
            ("by its type", ROUTER, VIP, Icmp(kind, kind, quoted.clone()), fate)
        };
        (0..=255).map(row).collect()
    });
}

/// An error whose quoted packet is cut short, or is an error itself, is the kernel's.
#[test]
fn errors_that_quote_too_little() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::configured(&matches(v6));
        let quoted = packet(v6, VIP, CLIENT, &Ports(TCP, 80, 40_000));
        let enough = if v6 { 40 } else { 20 } + 4;
        for len in 0..=quoted.len() {
            let frame = ethernet(v6, CLIENT, VIP, &Icmp(3, 1, quoted[..len].to_vec()));
            let fate = if len >= enough { Director } else { Kernel };
            assert_eq!(bench.fate(&frame), fate, "{len} bytes quoted");
        }
        let about_error = packet(v6, VIP, CLIENT, &Icmp(3, 1, quoted));
        let frame = ethernet(v6, CLIENT, VIP, &Icmp(3, 1, about_error));
        assert_eq!(bench.fate(&frame), Kernel, "an error about an error");
    }
}
