//! ICMP errors: whose they are is decided by the packet that they quote.

mod bench;

use bench::Fate::{Director, Kernel};
use bench::scene::{
    ANY, CLIENT, ESP, INSIDE, LADDR, OUTSIDE, OWN, PLAIN_LADDR, REAL, TCP, TUNNEL, UDP, VIP,
    ethernet, matches, packet, run,
};
use bench::scene::{Icmp, Other, Ping, Ports};
use bench::{Bench, needs_root};

/// Errors about packets whose answers would be the director's; all the types that count.
#[test]
fn errors_about_the_directors_packets() {
    needs_root!();
    run(|v6| {
        let about = |from, to, carried| packet(v6, from, to, &carried);
        let error = |about: Vec<u8>| Icmp(3, 1, about);
        let router = "198.51.100.254";
        let to_client = || about(VIP, CLIENT, Ports(TCP, 80, 40_000));
        let mut rows = vec![
            ("about a service's answer", router, VIP, error(to_client()), Director),
            (
                "about an answer of the host's ssh",
                router,
                VIP,
                error(about(VIP, CLIENT, Ports(TCP, 22, 40_000))),
                Kernel,
            ),
            ("not sent to the quoted source", router, OWN[0], error(to_client()), Kernel),
            ("about any protocol", router, ANY, error(about(ANY, CLIENT, Other(ESP))), Director),
            (
                "about a packet to a full NAT real server",
                REAL,
                PLAIN_LADDR,
                error(about(PLAIN_LADDR, REAL, Ports(UDP, 1024, 53))),
                Director,
            ),
            (
                "about the host's own packet",
                REAL,
                PLAIN_LADDR,
                error(about(PLAIN_LADDR, REAL, Ports(UDP, 1023, 53))),
                Kernel,
            ),
            (
                "about a client's packet to a NAT real server",
                REAL,
                CLIENT,
                error(about(CLIENT, REAL, Ports(TCP, 40_000, 8080))),
                Director,
            ),
            (
                "about a client's other packet",
                REAL,
                CLIENT,
                error(about(CLIENT, REAL, Ports(TCP, 40_000, 22))),
                Kernel,
            ),
            (
                "about the machine's own packet to a NAT real server",
                REAL,
                OWN[1],
                error(about(OWN[1], REAL, Ports(TCP, 40_000, 8080))),
                Kernel,
            ),
            (
                "about a translated ping",
                router,
                LADDR,
                error(about(LADDR, OUTSIDE, Ping(1500))),
                Director,
            ),
            (
                "about the host's ping",
                router,
                LADDR,
                error(about(LADDR, OUTSIDE, Ping(3000))),
                Kernel,
            ),
            (
                "about an answer from outside",
                INSIDE,
                OUTSIDE,
                error(about(OUTSIDE, INSIDE, Ports(UDP, 53, 40_000))),
                Director,
            ),
            (
                "about a tunnel's packet",
                router,
                TUNNEL,
                error(about(TUNNEL, REAL, Other(4))),
                Director,
            ),
            (
                "about a tunnel's packet with IPv6 in it",
                router,
                "192.0.2.79",
                error(about("192.0.2.79", REAL, Other(41))),
                Director,
            ),
            (
                "about another's tunnel",
                router,
                OWN[0],
                error(about(OWN[0], REAL, Other(4))),
                Kernel,
            ),
            (
                "about something else of a tunnel's source",
                router,
                TUNNEL,
                error(about(TUNNEL, REAL, Ports(UDP, 1, 2))),
                Kernel,
            ),
        ];
        for kind in 0..=255 {
            let ours = if v6 { (1..=4).contains(&kind) } else { [3, 4, 11, 12].contains(&kind) };
            let fate = if ours { Director } else { Kernel };
            rows.push(("only errors", router, VIP, Icmp(kind, kind, to_client()), fate));
        }
        rows
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
