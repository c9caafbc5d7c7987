//! `HOST[:PORT]`, as the stock program reads it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::number::{blank, number};
use crate::world::{Transport, World};

/// An address, and a port if one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: IpAddr,
    pub(crate) port: Option<u16>,
}

/// Reads one. A plain IPv6 address has no port; one in brackets must have one. A name is one of an
/// IPv4 host; a number alone is no address. Without a `transport` ports have no names.
pub(crate) fn place(
    text: &str,
    transport: Option<Transport>,
    world: &mut impl World,
) -> Option<Place> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(Place { address: address.into(), port: None });
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let port_text = after.strip_prefix(':')?;
        if let Ok(address) = inside.parse::<Ipv6Addr>() {
            let port = Some(port(port_text, transport, world)?);
            return Some(Place { address: address.into(), port });
        }
        // The port of any other address in brackets gets lost, as it does in the stock program.
        return host_and_port(inside, transport, world);
    }
    host_and_port(text, transport, world)
}

fn host_and_port(
    text: &str,
    transport: Option<Transport>,
    world: &mut impl World,
) -> Option<Place> {
    let (host, port_text) = match text.rsplit_once(':') {
        Some((host, port_text)) => (host, Some(port_text)),
        None => (text, None),
    };
    if port_text.is_none() && number(host, i64::MIN, i64::MAX).is_some() {
        return None;
    }
    let address = ipv4(host).or_else(|| world.host_address(host).filter(|_| !host.is_empty()))?;
    let port = match port_text {
        Some(text) => Some(port(text, transport, world)?),
        None => None,
    };
    Some(Place { address: address.into(), port })
}

fn port(text: &str, transport: Option<Transport>, world: &mut impl World) -> Option<u16> {
    let by_number = number(text, 0, 65535).and_then(|port| u16::try_from(port).ok());
    by_number.or_else(|| transport.and_then(|transport| world.service_port(text, transport)))
}

/// An IPv4 address by the rules of `inet_aton`: one to four parts, each decimal, octal (`0…`) or
/// hexadecimal (`0x…`), the last for all bytes that are left; what is behind a blank is not read.
pub(crate) fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let text = text.split(blank).next()?;
    let parts: Vec<u64> = text.split('.').map(part).collect::<Option<_>>()?;
    let (last, firsts) = parts.split_last()?;
    if firsts.len() > 3 || firsts.iter().any(|part| *part > 255) {
        return None;
    }
    let bits = 32 - 8 * firsts.len();
    if *last >> bits != 0 {
        return None;
    }
    let high = firsts.iter().fold(0, |sum, part| sum << 8 | part) << bits;
    u32::try_from(high | last).ok().map(Ipv4Addr::from_bits)
}

fn part(text: &str) -> Option<u64> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, base) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, base).ok().filter(|part| plain && *part <= u64::from(u32::MAX))
}
