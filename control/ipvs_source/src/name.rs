//! What services that come by this source are called: the same name for the same key, always.

use std::net::IpAddr;

use sluice_ipvs::{Family, Protocol, ServiceKey};

/// The name of a service: `tcp-198.51.100.1-80`, `udp-2001_db8__1-all`, `fwm-7`, `fwm-7-ipv6`,
/// `match-tcp-192.0.2.0-192.0.2.254-dpdk0`.
pub fn service_name(key: &ServiceKey) -> String {
    match *key {
        ServiceKey::Mark { mark, family: Family::Ipv4 } => format!("fwm-{mark}"),
        ServiceKey::Mark { mark, family: Family::Ipv6 } => format!("fwm-{mark}-ipv6"),
        ServiceKey::Address { protocol, address, port } => {
            let (protocol, address) = (protocol_name(protocol), address_name(address));
            match port {
                0 => format!("{protocol}-{address}-all"),
                port => format!("{protocol}-{address}-{port}"),
            }
        }
        ServiceKey::Match(it) => it.rule_name(),
    }
}

/// A service as IPVS's users write it, for messages: `TCP 198.51.100.1:80`, `FWM 7`.
pub(crate) fn shown(key: &ServiceKey) -> String {
    match *key {
        ServiceKey::Mark { mark, family: Family::Ipv4 } => format!("FWM {mark}"),
        ServiceKey::Mark { mark, family: Family::Ipv6 } => format!("FWM {mark} IPv6"),
        ServiceKey::Address { protocol, address, port } => {
            let at = std::net::SocketAddr::new(address, port);
            format!("{} {at}", protocol_name(protocol).to_uppercase())
        }
        ServiceKey::Match(it) => format!("MATCH {it}"),
    }
}

pub(crate) const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// An address in letters that names may have.
pub(crate) fn address_name(address: IpAddr) -> String {
    address.to_string().replace(':', "_")
}
