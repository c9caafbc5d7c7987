//! The kernel's interfaces to IPVS, as bytes: what stock programs send and what they are answered.
//!
//! Three interfaces, each a pure function of what came in and of what the director says: socket
//! options ([`sockopt`], IPv4 only, for old programs), generic netlink ([`genl`], everything), and
//! the files below `/proc/net` ([`proc`]). Facts are from `linux/ip_vs.h`, `linux/netlink.h` and
//! `linux/genetlink.h`. Numbers are in the machine's byte order, as netlink and structures have
//! them, unless said otherwise. No input makes any of this panic: it runs inside other programs.
//!
//! Where a structure has no room for what the director says (an IPv6 address in a socket option),
//! the object is left out, as the kernel leaves it out.

mod bytes;
pub mod genl;
mod netlink;
pub mod proc;
pub mod sockopt;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Answer, Errno, Family, Method, Reply, Request, Role, Stats};

/// `AF_INET` and `AF_INET6`.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Bytes of a name (`IP_VS_SCHEDNAME_MAXLEN`, `…PENAME…`, `…IFNAME…`) with the zero at its end.
const NAME_BYTES: usize = 16;
/// `IP_VS_CONN_F_FWD_MASK`.
const FWD_MASK: u32 = 7;

/// A number of `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(pub i32);

impl Number {
    /// What the kernel says when a program may not.
    pub const PERM: Self = Self(1);
    /// There is no such family.
    pub const NOENT: Self = Self(2);
    /// There is no such service.
    pub const SRCH: Self = Self(3);
    /// It could not be asked.
    pub const IO: Self = Self(5);
    /// It cannot be.
    pub const INVAL: Self = Self(22);
    /// A number is out of range.
    pub const RANGE: Self = Self(34);
    /// There is no such command.
    pub const OPNOTSUPP: Self = Self(95);
    /// There is no such socket option: IPVS is not there.
    pub const NOPROTOOPT: Self = Self(92);
    /// IP has no such version.
    pub const AFNOSUPPORT: Self = Self(97);
}

impl From<Errno> for Number {
    fn from(errno: Errno) -> Self {
        Self(errno.number())
    }
}

/// Why the director says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// It is not there: the kernel without its module.
    Absent,
    /// The program may not ask it.
    Denied,
    /// It is there, and something went wrong.
    Broken,
}

/// How an interface asks the director.
pub type Ask<'a> = dyn FnMut(&Request) -> Result<Answer, Away> + 'a;

/// Asks, and gives what was replied; `absent` is what the interface says where IPVS is not there.
fn replied(ask: &mut Ask, request: &Request, absent: Number) -> Result<Reply, Number> {
    match ask(request) {
        Ok(Answer::Ok(reply)) => Ok(reply),
        Ok(Answer::Refused { errno, .. }) => Err(errno.into()),
        Err(Away::Absent) => Err(absent),
        Err(Away::Denied) => Err(Number::PERM),
        Err(Away::Broken) => Err(Number::IO),
    }
}

/// `union nf_inet_addr`: 16 bytes in network order, of which IPv4 takes the first four.
fn union(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [bytes[0], bytes[1], bytes[2], bytes[3]] = [a, b, c, d];
        }
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes
}

/// The address that a union has for a family.
fn of_union(family: Family, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        Family::Ipv4 => {
            let octets: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        Family::Ipv6 => {
            let octets: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
    }
}

/// A family's number.
const fn af(family: Family) -> u16 {
    match family {
        Family::Ipv4 => AF_INET,
        Family::Ipv6 => AF_INET6,
    }
}

/// A netmask as it is on the wire: of IPv4 in network order, of IPv6 a plain number of bits.
const fn netmask_bytes(family: Family, netmask: u32) -> [u8; 4] {
    match family {
        Family::Ipv4 => netmask.to_be_bytes(),
        Family::Ipv6 => netmask.to_ne_bytes(),
    }
}

/// The other way.
const fn of_netmask(family: Family, bytes: [u8; 4]) -> u32 {
    match family {
        Family::Ipv4 => u32::from_be_bytes(bytes),
        Family::Ipv6 => u32::from_ne_bytes(bytes),
    }
}

/// A name of up to 15 bytes that ends with a zero or with `bytes`.
fn name(bytes: &[u8]) -> Result<String, Number> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    match bytes.get(..end) {
        Some(text) if end < NAME_BYTES => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(Number::INVAL),
    }
}

/// As much of a number as fits, as the kernel cuts it.
#[expect(clippy::cast_possible_truncation, reason = "the structures have no room for more")]
const fn cut(number: u64) -> u32 {
    number as u32
}

/// What a program says of a method, among other bits.
fn method(flags: u32) -> Result<Method, Number> {
    let number = flags & FWD_MASK;
    Method::ALL.into_iter().find(|method| method.number() == number).ok_or(Number::INVAL)
}

/// What a program is told of a method.
const fn fwd(method: Method) -> u32 {
    method.number() & FWD_MASK
}

/// Which end a daemon's state (`IP_VS_STATE_*`) means.
const fn role(state: i32) -> Result<Role, Number> {
    match state {
        1 => Ok(Role::Master),
        2 => Ok(Role::Backup),
        _ => Err(Number::INVAL),
    }
}

/// The other way.
const fn state(role: Role) -> u32 {
    match role {
        Role::Master => 1,
        Role::Backup => 2,
    }
}

/// Rates, in the order of structures, attributes and texts.
const fn rates(stats: &Stats) -> [u64; 5] {
    [
        stats.connections_per_s,
        stats.in_packets_per_s,
        stats.out_packets_per_s,
        stats.in_bytes_per_s,
        stats.out_bytes_per_s,
    ]
}
