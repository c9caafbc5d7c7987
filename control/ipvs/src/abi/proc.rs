//! The files below `/proc/net`.
//!
//! Connections may be many, so they are written one at a time into whatever takes text.

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::rates;
use crate::model::flags;
use crate::{Connection, Destination, Info, Method, Protocol, Service, ServiceKey, Stats};

/// A file of IPVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `/proc/net/ip_vs`.
    Services,
    /// `/proc/net/ip_vs_conn`.
    Connections,
    /// `/proc/net/ip_vs_stats`.
    Stats,
}

impl File {
    /// The one that a path names.
    pub fn of(path: &[u8]) -> Option<Self> {
        let net = path.strip_prefix(b"/proc/")?;
        let net = net.strip_prefix(b"self/").or_else(|| net.strip_prefix(b"thread-self/"));
        let name = net.unwrap_or(path.get(6..)?).strip_prefix(b"net/")?;
        match name {
            b"ip_vs" => Some(Self::Services),
            b"ip_vs_conn" => Some(Self::Connections),
            b"ip_vs_stats" => Some(Self::Stats),
            _ => None,
        }
    }
}

/// The first line of `ip_vs_conn`.
pub const CONNECTIONS_HEADER: &str =
    "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n";

/// All of `ip_vs`.
pub fn services(info: Info, services: &[Service]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_services(&mut text, info, services);
    text
}

fn write_services(text: &mut String, info: Info, services: &[Service]) -> fmt::Result {
    let [_, major, minor, patch] = info.version.to_be_bytes();
    let size = info.table_size;
    writeln!(text, "IP Virtual Server version {major}.{minor}.{patch} (size={size})")?;
    text.push_str("Prot LocalAddress:Port Scheduler Flags\n");
    text.push_str("  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n");
    for service in services {
        let spec = &service.spec;
        let scheduler = &spec.scheduler;
        match spec.key {
            // The kernel has none.
            ServiceKey::Match(_) => continue,
            ServiceKey::Mark { mark, .. } => write!(text, "FWM  {mark:08X} {scheduler} ")?,
            ServiceKey::Address { protocol, address, port } => {
                let name = protocol_name(protocol.number());
                write!(text, "{name}  {}:{port:04X} {scheduler} ", Hex(address, true))?;
            }
        }
        if spec.flags & flags::ONE_PACKET != 0 {
            text.push_str("ops ");
        }
        if spec.flags & flags::PERSISTENT != 0 {
            // The kernel takes it from network order, also where it is a number of bits.
            let family = spec.key.family();
            let mask = u32::from_be_bytes(super::netmask_bytes(family, spec.netmask));
            write!(text, "persistent {} {mask:08X}", spec.timeout_s)?;
        }
        text.push('\n');
        for dest in &service.destinations {
            destination(text, dest)?;
        }
    }
    Ok(())
}

fn destination(text: &mut String, dest: &Destination) -> fmt::Result {
    let method = match dest.method {
        Method::Masq => "Masq",
        Method::Local => "Local",
        Method::Tunnel => "Tunnel",
        Method::Route => "Route",
        Method::Bypass => "Bypass",
        Method::FullNat => "FullNat",
        Method::Snat => "SNAT",
    };
    let at = Hex(dest.address, true);
    write!(text, "  -> {at}:{:04X}      {method:<7} ", dest.port)?;
    writeln!(text, "{:<6} {:<10} {:<10}", dest.weight, dest.active, dest.inactive)
}

/// A line of `ip_vs_conn`.
pub fn connection(of: &Connection) -> String {
    let (client, virtual_, dest) = (of.client, of.virtual_, of.destination);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:<3} {} {:04X} {} {:04X} {} {:04X} {:<11} {:>7}",
        protocol_name(of.protocol),
        Hex(client.0, false),
        client.1,
        Hex(virtual_.0, false),
        virtual_.1,
        Hex(dest.0, false),
        dest.1,
        of.state,
        of.expires_s
    );
    text
}

/// All of `ip_vs_stats`: sums over services.
pub fn stats(services: &[Service]) -> String {
    let sum = |of: &dyn Fn(&Stats) -> u64| {
        services.iter().fold(0, |sum: u64, service| sum.saturating_add(of(&service.stats)))
    };
    let line = |numbers: [u64; 5]| {
        let [a, b, c, d, e] = numbers;
        format!("{a:8X} {b:8X} {c:8X} {d:16X} {e:16X}\n")
    };
    let counts = [
        sum(&|s| s.connections),
        sum(&|s| s.in_packets),
        sum(&|s| s.out_packets),
        sum(&|s| s.in_bytes),
        sum(&|s| s.out_bytes),
    ];
    let rates = [0, 1, 2, 3, 4].map(|at| sum(&|s| rates(s).get(at).copied().unwrap_or(0)));
    [
        "   Total Incoming Outgoing         Incoming         Outgoing\n",
        "   Conns  Packets  Packets            Bytes            Bytes\n",
        &line(counts),
        "\n",
        " Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n",
        &line(rates),
    ]
    .concat()
}

/// A protocol's name, as the kernel's IPVS writes it.
fn protocol_name(number: u8) -> &'static str {
    match Protocol::of(number) {
        Some(Protocol::Tcp) => "TCP",
        Some(Protocol::Udp) => "UDP",
        Some(Protocol::Sctp) => "SCTP",
        None => match number {
            0 => "IP",
            1 => "ICMP",
            58 => "ICMPv6",
            50 => "ESP",
            51 => "AH",
            _ => "IP_?",
        },
    }
}

/// An address: of IPv4 eight digits, of IPv6 all 32 in groups, in brackets where a port follows.
struct Hex(IpAddr, bool);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(address, brackets) = self;
        match address {
            IpAddr::V4(v4) => write!(f, "{:08X}", v4.to_bits()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, g, h, i] = v6.segments();
                let (open, close) = if *brackets { ("[", "]") } else { ("", "") };
                write!(f, "{open}{a:04x}:{b:04x}:{c:04x}:{d:04x}:")?;
                write!(f, "{e:04x}:{g:04x}:{h:04x}:{i:04x}{close}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
