//! A director's configuration with something of every class, the same for both families, and
//! packets around it by `etherparse`.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::{IpNumber, PacketBuilder};
use sluice_steer::{EndpointMatch, LocalMatch, Matches, Network, SnatMatch};

use super::{Bench, Fate};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;
pub const ESP: u8 = 50;

pub const CLIENT: &str = "198.51.100.48";
/// With services of one port, a range of ports, and all ports of SCTP.
pub const VIP: &str = "198.51.100.200";
/// With a service of all UDP ports.
pub const ALL_UDP: &str = "198.51.100.201";
/// With a service of every protocol.
pub const ANY: &str = "198.51.100.202";
/// The director's own addresses.
pub const OWN: [&str; 2] = ["198.51.100.1", "192.0.2.1"];
/// Of a pool for source NAT.
pub const LADDR: &str = "192.0.2.10";
/// Of a pool for full NAT.
pub const PLAIN_LADDR: &str = "192.0.2.9";
/// Real servers of NAT mode: of one TCP port, of a range of UDP ports, of every protocol.
pub const REAL: &str = "192.0.2.11";
pub const RANGE_REAL: &str = "192.0.2.12";
pub const ANY_REAL: &str = "192.0.2.13";
/// In the network that is translated wherever it goes.
pub const INSIDE: &str = "192.0.2.130";
/// In one whose TCP is translated to `OUTSIDE`'s network only.
pub const HALF_INSIDE: &str = "192.0.2.100";
pub const OUTSIDE: &str = "203.0.113.5";
/// The first of the outer sources of tunnels.
pub const TUNNEL: &str = "192.0.2.64";

/// An address of a family, from its IPv4 text.
pub fn at(v6: bool, text: &str) -> IpAddr {
    let v4: Ipv4Addr = text.parse().unwrap();
    if !v6 {
        return v4.into();
    }
    let prefix: u128 = 0x2001_0db8 << 96;
    IpAddr::from((prefix | u128::from(v4.to_bits())).to_be_bytes())
}

pub fn net(v6: bool, text: &str, prefix: u8) -> Network {
    Network { address: at(v6, text), prefix: if v6 { 96 + prefix } else { prefix } }
}

pub fn matches(v6: bool) -> Matches {
    let at = |text| at(v6, text);
    let ports = |protocol, text, ports| EndpointMatch { protocol, address: at(text), ports };
    let inside = net(v6, "192.0.2.128", 25);
    Matches {
        services: vec![
            ports(TCP, VIP, 80..=80),
            ports(TCP, VIP, 8000..=8099),
            ports(SCTP, VIP, 0..=u16::MAX),
            ports(UDP, ALL_UDP, 0..=u16::MAX),
            ports(0, ANY, 0..=u16::MAX),
        ],
        locals: vec![
            LocalMatch { address: at(LADDR), ports: 1024..=2047, echo: true },
            LocalMatch { address: at(PLAIN_LADDR), ports: 1024..=2047, echo: false },
        ],
        reals: vec![
            ports(TCP, REAL, 8080..=8080),
            ports(UDP, RANGE_REAL, 5000..=5003),
            ports(0, ANY_REAL, 0..=u16::MAX),
        ],
        snat: vec![
            SnatMatch {
                sources: vec![inside],
                except: vec![inside],
                tcp: true,
                udp: true,
                icmp: true,
                ..SnatMatch::default()
            },
            SnatMatch {
                sources: vec![net(v6, "192.0.2.96", 27)],
                destinations: vec![net(v6, "203.0.113.0", 24)],
                tcp: true,
                ..SnatMatch::default()
            },
        ],
        tunnels: vec![net(v6, TUNNEL, 28)],
        tunnel_ports: vec![6080],
        own: [&OWN[..], &[VIP, LADDR]].concat().into_iter().map(at).collect(),
        ..Matches::default()
    }
}

/// What a packet carries.
#[derive(Clone)]
pub enum Carried {
    /// A protocol with ports.
    Ports(u8, u16, u16),
    /// Echo request.
    Ping(u16),
    /// Echo reply.
    Pong(u16),
    /// An ICMP message of this type for IPv4 and that for IPv6, about a packet.
    Icmp(u8, u8, Vec<u8>),
    /// Another protocol.
    Other(u8),
}
pub use Carried::{Icmp, Other, Ping, Pong, Ports};

/// An IP packet by `etherparse`.
pub fn packet(v6: bool, from: &str, to: &str, carried: &Carried) -> Vec<u8> {
    ethernet(v6, from, to, carried)[14..].to_vec()
}

pub fn ethernet(v6: bool, from: &str, to: &str, carried: &Carried) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match (at(v6, from), at(v6, to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("one family"),
    };
    let mut frame = Vec::new();
    let out = &mut frame;
    match (carried, v6) {
        (Ports(TCP, from, to), _) => ip.tcp(*from, *to, 1, 1000).write(out, b"data"),
        (Ports(UDP, from, to), _) => ip.udp(*from, *to).write(out, b"data"),
        (Ports(protocol, from, to), _) => {
            let mut header = vec![0; 12];
            header[..2].copy_from_slice(&from.to_be_bytes());
            header[2..4].copy_from_slice(&to.to_be_bytes());
            ip.write(out, IpNumber(*protocol), &header)
        }
        (Ping(id), false) => ip.icmpv4_echo_request(*id, 1).write(out, b"ping"),
        (Ping(id), true) => ip.icmpv6_echo_request(*id, 1).write(out, b"ping"),
        (Pong(id), false) => ip.icmpv4_echo_reply(*id, 1).write(out, b"ping"),
        (Pong(id), true) => ip.icmpv6_echo_reply(*id, 1).write(out, b"ping"),
        (Icmp(kind, _, about), false) => ip.icmpv4_raw(*kind, 1, [0; 4]).write(out, about),
        (Icmp(_, kind, about), true) => ip.icmpv6_raw(*kind, 1, [0; 4]).write(out, about),
        (Other(protocol), _) => ip.write(out, IpNumber(*protocol), &[0; 16]),
    }
    .unwrap();
    frame
}

pub type Row = (&'static str, &'static str, &'static str, Carried, Fate);

/// Runs rows of (what, from, to, carried, fate) for both families.
pub fn run(rows: impl Fn(bool) -> Vec<Row>) {
    for v6 in [false, true] {
        let mut bench = Bench::configured(&matches(v6));
        for (what, from, to, carried, fate) in rows(v6) {
            let family = if v6 { "IPv6" } else { "IPv4" };
            let frame = ethernet(v6, from, to, &carried);
            assert_eq!(bench.fate(&frame), fate, "{family}: {what}");
        }
    }
}
