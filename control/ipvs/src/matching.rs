//! Services by match, of DPVS: which connections from inside get another source address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::Family;

/// The longest name of an interface, port or rule, in bytes.
const NAME_BYTES: usize = 64;

/// A protocol of which a director has source NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchProtocol {
    /// `tcp`.
    Tcp,
    /// `udp`.
    Udp,
    /// `icmp`: echo, of IPv4.
    Icmp,
    /// `icmpv6`: echo, of IPv6.
    Icmpv6,
}

impl MatchProtocol {
    /// As DPVS writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
        }
    }
}

/// A first and a last address of one family.
pub type Addresses = (IpAddr, IpAddr);

/// The name of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Name([u8; NAME_BYTES]);

impl Name {
    fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(plain);
        let mut bytes = [0; NAME_BYTES];
        bytes.get_mut(..text.len()).filter(|_| is_name)?.copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }

    fn text(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(out)
    }
}

/// Which connections: what DPVS's `--match` says, as far as a director can do it. Written as
/// there, `proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk0`, in this order; what is the same is
/// written alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Match {
    protocol: MatchProtocol,
    family: Family,
    sources: Option<Addresses>,
    destinations: Option<Addresses>,
    egress: Option<Name>,
}

impl Match {
    /// Their protocol.
    pub const fn protocol(&self) -> MatchProtocol {
        self.protocol
    }

    /// Their version of IP.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Where they come from; none for everywhere.
    pub const fn sources(&self) -> Option<Addresses> {
        self.sources
    }

    /// Where they go to; none for everywhere.
    pub const fn destinations(&self) -> Option<Addresses> {
        self.destinations
    }

    /// The interface that they leave by; none for any.
    pub fn egress(&self) -> Option<&str> {
        self.egress.as_ref().map(Name::text)
    }

    /// What a rule for it is called, the same always: `match-tcp-192.0.2.0-192.0.2.254-dpdk0`. One
    /// that would be too long ends in a number made of all of it.
    pub fn rule_name(&self) -> String {
        let mut name = format!("match-{}", self.protocol.name());
        for (to, range) in [("", self.sources), ("-to", self.destinations)] {
            if let Some((first, last)) = range {
                name += &format!("{to}-{first}-{last}").replace(':', "_");
            }
        }
        if self.sources.or(self.destinations).is_none() {
            name += if self.family == Family::Ipv6 { "-ipv6" } else { "-ipv4" };
        }
        if let Some(egress) = self.egress() {
            name += &format!("-{egress}");
        }
        if name.len() > NAME_BYTES {
            // FNV-1a.
            let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            name.truncate(NAME_BYTES - 17);
            name += &format!("-{sum:016x}");
        }
        name
    }
}

/// What is wrong with a match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found}: {right}")]
pub struct MatchError {
    /// What was found.
    pub found: String,
    /// What would be valid.
    pub right: String,
}

fn wrong(found: impl Into<String>, right: impl Into<String>) -> MatchError {
    MatchError { found: found.into(), right: right.into() }
}

/// How a range is written.
const RANGE: &str = "write a first and a last address, such as src-range=192.0.2.0-192.0.2.254";

impl FromStr for Match {
    type Err = MatchError;

    fn from_str(text: &str) -> Result<Self, MatchError> {
        let (mut protocol, mut family) = (None, None);
        let (mut sources, mut destinations, mut egress) = (None, None, None);
        for item in text.split(',') {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            let again = match key {
                "proto" => protocol.replace(protocol_of(value)?).is_some(),
                "af" => family.replace(family_of(value)?).is_some(),
                "src-range" => sources.replace(range(item, value)?).is_some(),
                "dst-range" => destinations.replace(range(item, value)?).is_some(),
                "oif" => egress.replace(interface(item, value)?).is_some(),
                "iif" => {
                    let right = "source NAT asks for where connections come from, by src-range, \
                                 and not for the interface";
                    return Err(wrong(format!("{item:?} cannot be matched"), right));
                }
                _ => {
                    let right = "a match has proto, af, src-range, dst-range and oif, parted by \
                                 commas";
                    return Err(wrong(format!("{item:?} is no part of a match"), right));
                }
            };
            if again {
                return Err(wrong(format!("{key} is there twice"), "say it once"));
            }
        }
        let right = "begin with proto=tcp, udp, icmp or icmpv6";
        let protocol = protocol.ok_or_else(|| wrong("no protocol is named", right))?;
        if sources.is_none() && destinations.is_none() && egress.is_none() {
            let right = "add src-range, dst-range or oif";
            return Err(wrong("all connections would match", right));
        }
        let family = agreed(protocol, [family, sources.map(of), destinations.map(of)])?;
        Ok(Self { protocol, family, sources, destinations, egress })
    }
}

fn of((first, _): Addresses) -> Family {
    Family::of(first)
}

/// The family that all who name one agree on.
fn agreed(protocol: MatchProtocol, named: [Option<Family>; 3]) -> Result<Family, MatchError> {
    let mut named = named.into_iter().flatten();
    let right = "add af=ipv4 or af=ipv6, since no range tells it";
    let family = named.next().ok_or_else(|| wrong("the version of IP is not known", right))?;
    let own = match protocol {
        MatchProtocol::Icmp => Some(Family::Ipv4),
        MatchProtocol::Icmpv6 => Some(Family::Ipv6),
        _ => None,
    };
    if named.chain(own).any(|other| other != family) {
        let right = "use one of them throughout: icmp with IPv4, icmpv6 with IPv6";
        return Err(wrong("both versions of IP are named", right));
    }
    Ok(family)
}

fn protocol_of(text: &str) -> Result<MatchProtocol, MatchError> {
    use MatchProtocol as P;
    let found = [P::Tcp, P::Udp, P::Icmp, P::Icmpv6].into_iter().find(|it| it.name() == text);
    let right = "source NAT is for tcp, udp, icmp and icmpv6; what else goes out is left to Linux";
    found.ok_or_else(|| wrong(format!("the protocol {text:?}"), right))
}

fn family_of(text: &str) -> Result<Family, MatchError> {
    match text {
        "ipv4" => Ok(Family::Ipv4),
        "ipv6" => Ok(Family::Ipv6),
        _ => Err(wrong(format!("af={text}"), "it is ipv4 or ipv6")),
    }
}

fn interface(item: &str, text: &str) -> Result<Name, MatchError> {
    let right = "name a port of the director, or the interface behind it";
    Name::new(text).ok_or_else(|| wrong(format!("{item:?} names no interface"), right))
}

/// `IP1[-IP2][:P1[-P2]]`, IPv6 in brackets where ports stand behind it.
fn range(item: &str, text: &str) -> Result<Addresses, MatchError> {
    let malformed = || wrong(format!("{item:?} is no range of addresses"), RANGE);
    let (first, rest) = address(text).ok_or_else(malformed)?;
    let (last, rest) = match rest.strip_prefix('-') {
        Some(rest) => address(rest).ok_or_else(malformed)?,
        None => (first, rest),
    };
    if first.is_ipv4() != last.is_ipv4() || first > last {
        return Err(wrong(format!("{item:?} is no range of addresses, or reversed"), RANGE));
    }
    if let Some(ports) = rest.strip_prefix(':') {
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        let parsed = low.parse::<u16>().ok().zip(high.parse::<u16>().ok());
        return match parsed.ok_or_else(malformed)? {
            (0, 0) | (0 | 1, u16::MAX) => Ok((first, last)),
            _ => {
                let right = "leave the ports out: source NAT is for all ports of an address";
                Err(wrong(format!("{item:?} has ports"), right))
            }
        };
    }
    if rest.is_empty() { Ok((first, last)) } else { Err(malformed()) }
}

/// An address at the beginning, and what is behind it.
fn address(text: &str) -> Option<(IpAddr, &str)> {
    if let Some(text) = text.strip_prefix('[') {
        let (inside, rest) = text.split_once(']')?;
        return Some((inside.parse::<Ipv6Addr>().ok()?.into(), rest));
    }
    let end = text.find('-').unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    if let Ok(address) = whole.parse() {
        return Some((address, rest));
    }
    let (plain, rest) = text.split_at(text.find(':')?);
    Some((plain.parse::<Ipv4Addr>().ok()?.into(), rest))
}

impl fmt::Display for Match {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "proto={}", self.protocol.name())?;
        if self.sources.or(self.destinations).is_none() {
            let family = if self.family == Family::Ipv6 { "ipv6" } else { "ipv4" };
            write!(out, ",af={family}")?;
        }
        for (key, range) in [("src-range", self.sources), ("dst-range", self.destinations)] {
            if let Some((first, last)) = range {
                write!(out, ",{key}={first}-{last}")?;
            }
        }
        self.egress().map_or(Ok(()), |egress| write!(out, ",oif={egress}"))
    }
}

impl TryFrom<String> for Match {
    type Error = MatchError;

    fn try_from(text: String) -> Result<Self, MatchError> {
        text.parse()
    }
}

impl From<Match> for String {
    fn from(it: Match) -> Self {
        it.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Match;

    #[test]
    fn what_is_the_same_is_written_alike() {
        let whole = "proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk0";
        let rows = [
            (whole, whole),
            ("oif=dpdk0,proto=tcp,src-range=192.0.2.0-192.0.2.254,af=ipv4", whole),
            ("proto=tcp,src-range=192.0.2.0-192.0.2.254:0-0,oif=dpdk0", whole),
            ("proto=tcp,src-range=192.0.2.0-192.0.2.254:1-65535,oif=dpdk0", whole),
            ("proto=udp,dst-range=192.0.2.9", "proto=udp,dst-range=192.0.2.9-192.0.2.9"),
            ("proto=udp,dst-range=192.0.2.9:0", "proto=udp,dst-range=192.0.2.9-192.0.2.9"),
            ("proto=icmp,af=ipv4,oif=a.100", "proto=icmp,af=ipv4,oif=a.100"),
            (
                "proto=icmpv6,src-range=[2001:db8::1]-[2001:db8::9]:0-0",
                "proto=icmpv6,src-range=2001:db8::1-2001:db8::9",
            ),
            ("proto=tcp,src-range=2001:db8::1", "proto=tcp,src-range=2001:db8::1-2001:db8::1"),
        ];
        for (text, shown) in rows {
            let it: Match = text.parse().unwrap();
            assert_eq!(it.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<Match>().unwrap(), it);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let long = format!("proto=tcp,af=ipv4,oif={}", "x".repeat(65));
        let rows = [
            ("", "is no part of a match"),
            ("src-range=192.0.2.1", "no protocol is named"),
            ("proto=tcp", "all connections would match: add src-range"),
            ("proto=tcp,oif=dpdk0", "the version of IP is not known: add af=ipv4"),
            ("proto=sctp,src-range=192.0.2.1", "is left to Linux"),
            ("proto=tcp,proto=udp,src-range=192.0.2.1", "proto is there twice"),
            ("proto=tcp,src-range=192.0.2.1,iif=dpdk1", "by src-range"),
            ("proto=tcp,src-range=192.0.2.1:80-90", "leave the ports out"),
            ("proto=tcp,src-range=192.0.2.1:80", "leave the ports out"),
            ("proto=tcp,src-range=192.0.2.1:", "is no range"),
            ("proto=tcp,src-range=192.0.2.9-192.0.2.1", "reversed"),
            ("proto=tcp,src-range=192.0.2.9-2001:db8::1", "reversed"),
            ("proto=tcp,src-range=192.0.2.0/24", "is no range"),
            ("proto=tcp,src-range=[192.0.2.9]", "is no range"),
            ("proto=tcp,af=ipv6,src-range=192.0.2.1", "both versions"),
            ("proto=tcp,src-range=192.0.2.1,dst-range=2001:db8::1", "both versions"),
            ("proto=icmp,src-range=2001:db8::1", "both versions"),
            ("proto=tcp,af=inet,src-range=192.0.2.1", "ipv4 or ipv6"),
            ("proto=tcp,af=ipv4,oif=", "names no interface"),
            ("proto=tcp,af=ipv4,oif=a b", "names no interface"),
            (&long, "names no interface"),
        ];
        for (text, says) in rows {
            let error = text.parse::<Match>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
