//! Addresses in the forms a configuration file writes them: a range, a prefix, a MAC address.
//!
//! Each parses from text with a message that says what would be right, and displays as text that
//! parses to the same value.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::Fault;
use crate::errors::quoted;

/// One or more consecutive addresses of one family, first and last included: `192.0.2.10`,
/// `192.0.2.32-192.0.2.39` or `192.0.2.64/29`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// The range from `first` to `last`, both included. `None` when it is reversed or of mixed
    /// families.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let alike = first.is_ipv4() == last.is_ipv4();
        (alike && number(first) <= number(last)).then_some(Self { first, last })
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// How many addresses it has; `u128::MAX` also for all of IPv6.
    pub fn count(&self) -> u128 {
        (number(self.last) - number(self.first)).saturating_add(1)
    }

    /// Whether `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4()
            && (number(self.first)..=number(self.last)).contains(&number(address))
    }

    /// The range of all addresses of both; `None` if there are others between them.
    pub(crate) fn join(&self, other: Self) -> Option<Self> {
        let (low, high) =
            if number(self.first) <= number(other.first) { (*self, other) } else { (other, *self) };
        let alike = low.first.is_ipv4() == high.first.is_ipv4();
        let touch = number(high.first) <= number(low.last).saturating_add(1);
        let last = if number(low.last) < number(high.last) { high.last } else { low.last };
        (alike && touch).then_some(Self { first: low.first, last })
    }

    /// The address after the highest, if the family has one.
    pub(crate) fn next(&self) -> Option<IpAddr> {
        let v4 = self.last.is_ipv4();
        let next = number(self.last).checked_add(1)?;
        (!v4 || u32::try_from(next).is_ok()).then(|| from_number(next, v4))
    }

    /// The fewest prefixes that together have its addresses and no others, lowest first.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let bits = address_bits(self.first);
        let (mut next, last) = (Some(number(self.first)), number(self.last));
        let mut all = Vec::new();
        while let Some(first) = next.filter(|first| *first <= last) {
            // As many host bits as the address is even by, and the rest has room for.
            let room = match (last - first).checked_add(1) {
                Some(count) => count.ilog2(),
                None => 128,
            };
            let host_bits = first.trailing_zeros().min(bits).min(room);
            let address = from_number(first, self.first.is_ipv4());
            all.push(Prefix { address, length: (bits - host_bits) as u8 });
            next = 1_u128.checked_shl(host_bits).and_then(|count| first.checked_add(count));
        }
        all
    }

    /// Its addresses, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.first.is_ipv4();
        (number(self.first)..=number(self.last)).map(move |bits| from_number(bits, v4))
    }
}

impl From<IpAddr> for AddressRange {
    /// The range of this one address.
    fn from(address: IpAddr) -> Self {
        Self { first: address, last: address }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(out, "{}", self.first)
        } else {
            write!(out, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for AddressRange {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        if text.contains('/') {
            return text.parse::<Prefix>().map(|prefix| prefix.range());
        }
        let Some((first, last)) = text.split_once('-') else {
            return parse_address(text).map(Self::from);
        };
        let (first, last) = (parse_address(first.trim())?, parse_address(last.trim())?);
        if first.is_ipv4() != last.is_ipv4() {
            return Err(Fault::new(
                format!("{} begins with one family and ends with the other", quoted(text)),
                "use a range of one family, such as 192.0.2.32-192.0.2.39",
            ));
        }
        Self::new(first, last).ok_or_else(|| {
            Fault::new(
                format!("the range {} is reversed", quoted(text)),
                format!("begin with the lower address: \"{last}-{first}\""),
            )
        })
    }
}

/// A network prefix without host bits, such as `198.51.100.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The prefix of `length` bits that `address` begins with; host bits are cleared. `None` when
    /// the length exceeds the family's 32 or 128 bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let host_bits = address_bits(address).checked_sub(u32::from(length))?;
        let kept = if host_bits == 128 { 0 } else { u128::MAX << host_bits };
        Some(Self { address: from_number(number(address) & kept, address.is_ipv4()), length })
    }

    /// Its lowest address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its length in bits, at most 32 or 128 by family.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// All its addresses, the lowest and the highest included.
    pub fn range(&self) -> AddressRange {
        let host_bits = address_bits(self.address) - u32::from(self.length);
        let hosts = if host_bits == 128 { u128::MAX } else { (1 << host_bits) - 1 };
        let last = from_number(number(self.address) | hosts, self.address.is_ipv4());
        AddressRange { first: self.address, last }
    }
}

impl From<IpAddr> for Prefix {
    /// The prefix of this one address.
    fn from(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let Some((address, length)) = text.split_once('/') else {
            return Err(Fault::new(
                format!("{} has no prefix length", quoted(text)),
                "use a network and the number of its leading bits, such as 198.51.100.0/24",
            ));
        };
        let address = parse_address(address)?;
        let longest = address_bits(address);
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = length.parse::<u8>().ok().filter(|_| digits);
        let Some(prefix) = prefix.and_then(|length| Self::new(address, length)) else {
            return Err(Fault::new(
                format!("{} has no valid prefix length", quoted(text)),
                format!("use a length from 0 to {longest}, such as {address}/{longest}"),
            ));
        };
        if prefix.address != address {
            return Err(Fault::new(
                format!("{} has bits set beyond its prefix length", quoted(text)),
                format!("use \"{prefix}\" for the network, or {address}/{longest} for the address"),
            ));
        }
        Ok(prefix)
    }
}

/// A MAC address of one station: neither a group's nor all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Stands for one that could not be read.
    pub(crate) const UNKNOWN: Self = Self([2, 0, 0, 0, 0, 0]);

    /// The address with these bytes in the order of the wire. `None` for group addresses and
    /// all zeros, which no port and no neighbour has.
    pub fn new(bytes: [u8; 6]) -> Option<Self> {
        (bytes[0] & 1 == 0 && bytes != [0; 6]).then_some(Self(bytes))
    }

    /// Its bytes in the order of the wire.
    pub fn bytes(&self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for Mac {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let Some(bytes) = mac_bytes(text) else {
            return Err(Fault::new(
                format!("{} is not a MAC address", quoted(text)),
                "use six pairs of hexadecimal digits, such as 02:00:00:00:00:01",
            ));
        };
        Self::new(bytes).ok_or_else(|| {
            let kind = if bytes[0] & 1 == 1 { "a group address" } else { "all zeros" };
            Fault::new(
                format!("{} is {kind}", quoted(text)),
                "use the address of one station: the first byte even, not all zeros, such as \
                 02:00:00:00:00:01",
            )
        })
    }
}

fn mac_bytes(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut bytes {
        let pair = pairs.next()?;
        if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}

/// Parses one address.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, Fault> {
    text.parse().map_err(|_| {
        Fault::new(
            format!("{} is not an IP address", quoted(text)),
            "use an address such as 192.0.2.10 (not a host name)",
        )
    })
}

/// An address as a number, for arithmetic within its family.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn from_number(bits: u128, v4: bool) -> IpAddr {
    // A number of the IPv4 family always fits: it came from `number` or was masked to its width.
    match u32::try_from(bits) {
        Ok(bits) if v4 => IpAddr::V4(bits.into()),
        _ => IpAddr::V6(bits.into()),
    }
}

fn address_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_fewest_prefixes() {
        let rows = [
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.0-192.0.2.255", "192.0.2.0/24"),
            ("0.0.0.0-255.255.255.255", "0.0.0.0/0"),
            ("255.255.255.254-255.255.255.255", "255.255.255.254/31"),
            ("192.0.2.1-192.0.2.6", "192.0.2.1/32 192.0.2.2/31 192.0.2.4/31 192.0.2.6/32"),
            ("2001:db8::-2001:db8::1:ffff", "2001:db8::/111"),
            ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"),
        ];
        for (range, prefixes) in rows {
            let range: AddressRange = range.parse().unwrap();
            let shown: Vec<_> = range.prefixes().iter().map(Prefix::to_string).collect();
            assert_eq!(shown.join(" "), prefixes);
        }
        // The longest lists there are: all but the first and the last address.
        for (most, range) in
            [(62, "0.0.0.1-255.255.255.254"), (254, "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")]
        {
            let range: AddressRange = range.parse().unwrap();
            let all = range.prefixes();
            assert_eq!(all.len(), most);
            let ends: Vec<_> = all.iter().map(|prefix| prefix.range()).collect();
            assert!(ends.windows(2).all(|two| number(two[0].last()) + 1 == number(two[1].first())));
            assert_eq!((ends[0].first(), ends[most - 1].last()), (range.first(), range.last()));
        }
    }
}
