//! The PROXY protocol (haproxy's `proxy-protocol.txt`, versions 1 and 2): what a proxy says about a
//! connection before the connection's own bytes.
//!
//! Only the forms that a director sends: one line of text, or one binary header, whose only TLV is
//! padding. The length is known before the header is written, because sequence numbers move by it.
//! The readers are as strict as the specification lets a receiver be; they exist for tests.
//!
//! Not by the crate `ppp`: it builds version 2 in a `Vec`, and the packet path does not allocate.
//! The writers here are about 100 lines.

use core::fmt::{self, Write};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of the longest header of either version: 107 of text, and the zero that the
/// specification counts with it.
pub const MOST: usize = 108;

/// What version 2 begins with.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2's header before the addresses.
const FIXED: usize = 16;
/// Bytes of type and length of a TLV.
const TLV: usize = 3;
/// Type of a TLV without meaning (PP2_TYPE_NOOP).
const NOOP: u8 = 4;

/// The two ends of a connection as its client sees them. In one family, as a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Over IPv4.
    V4 {
        /// The client's address.
        source: u32,
        /// The address that the client connected to.
        destination: u32,
        /// The client's port.
        source_port: u16,
        /// The port that the client connected to.
        destination_port: u16,
    },
    /// Over IPv6.
    V6 {
        /// The client's address.
        source: u128,
        /// The address that the client connected to.
        destination: u128,
        /// The client's port.
        source_port: u16,
        /// The port that the client connected to.
        destination_port: u16,
    },
}

/// What version 2 says is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection.
    Stream,
    /// A UDP datagram, in front of whose payload the header stands.
    Datagram,
}

impl Ends {
    /// The ends given as IPv6 addresses, of which IPv4's are written `::ffff:a.b.c.d`. When only
    /// one is, both are written as IPv6.
    pub fn new(source: (u128, u16), destination: (u128, u16)) -> Self {
        let ((source, source_port), (destination, destination_port)) = (source, destination);
        let v4 = |address: u128| (address >> 32 == 0xffff).then_some(address as u32);
        match (v4(source), v4(destination)) {
            (Some(source), Some(destination)) => {
                Self::V4 { source, destination, source_port, destination_port }
            }
            _ => Self::V6 { source, destination, source_port, destination_port },
        }
    }

    /// The line of version 1, with its end.
    fn line(&self, to: &mut impl Write) -> fmt::Result {
        match *self {
            Self::V4 { source, destination, source_port, destination_port } => {
                let (from, at) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
                write!(to, "PROXY TCP4 {from} {at} {source_port} {destination_port}\r\n")
            }
            Self::V6 { source, destination, source_port, destination_port } => {
                let (from, at) = (Ipv6Addr::from_bits(source), Ipv6Addr::from_bits(destination));
                write!(to, "PROXY TCP6 {from} {at} {source_port} {destination_port}\r\n")
            }
        }
    }
}

/// Text put at the start of a buffer, as far as there is room, and its length as if there were.
struct Line<'a> {
    to: &'a mut [u8],
    length: usize,
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.to.get_mut(self.length..).unwrap_or_default();
        if let Some(place) = rest.get_mut(..text.len()) {
            place.copy_from_slice(text.as_bytes());
        }
        self.length += text.len();
        Ok(())
    }
}

/// Writes version 1 (TCP only) at the start of `out`. Its length in bytes, at most 107.
pub fn v1(out: &mut [u8; MOST], ends: &Ends) -> usize {
    let mut line = Line { to: out, length: 0 };
    // Neither the line nor the addresses' own formatting fails.
    let _ = ends.line(&mut line);
    line.length
}

/// The length in bytes of what [`v1`] writes.
pub fn v1_len(ends: &Ends) -> usize {
    let mut line = Line { to: &mut [], length: 0 };
    let _ = ends.line(&mut line);
    line.length
}

/// Writes version 2 at the start of `out`. Its length in bytes.
pub fn v2(out: &mut [u8; MOST], transport: Transport, ends: &Ends) -> usize {
    let length = v2_len(ends);
    let transport = match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    out[..12].copy_from_slice(&SIGNATURE);
    out[12] = 0x21; // version 2, PROXY
    out[14..FIXED].copy_from_slice(&((length - FIXED) as u16).to_be_bytes());
    let ports = match *ends {
        Ends::V4 { source, destination, source_port, destination_port } => {
            out[13] = 0x10 | transport;
            out[16..20].copy_from_slice(&source.to_be_bytes());
            out[20..24].copy_from_slice(&destination.to_be_bytes());
            (source_port, destination_port)
        }
        Ends::V6 { source, destination, source_port, destination_port } => {
            out[13] = 0x20 | transport;
            out[16..32].copy_from_slice(&source.to_be_bytes());
            out[32..48].copy_from_slice(&destination.to_be_bytes());
            (source_port, destination_port)
        }
    };
    out[length - 4..length - 2].copy_from_slice(&ports.0.to_be_bytes());
    out[length - 2..length].copy_from_slice(&ports.1.to_be_bytes());
    length
}

/// Writes version 2 at the start of `out`, with a TLV behind it that says nothing (2.2.5), so that
/// its length is a multiple of eight: what is in front of the data of a fragment moves that of the
/// others by as much, which they tell in units of eight bytes. Its length in bytes.
pub fn v2_padded(out: &mut [u8; MOST], transport: Transport, ends: &Ends) -> usize {
    let length = v2(out, transport, ends);
    let padded = v2_padded_len(ends);
    out[14..FIXED].copy_from_slice(&((padded - FIXED) as u16).to_be_bytes());
    out[length..padded].fill(0);
    out[length] = NOOP;
    out[length + 2] = (padded - length - TLV) as u8;
    padded
}

/// The length in bytes of what [`v2_padded`] writes: 32 or 56.
pub const fn v2_padded_len(ends: &Ends) -> usize {
    (v2_len(ends) + TLV).next_multiple_of(8)
}

/// The length in bytes of what [`v2`] writes: 28 or 52.
pub const fn v2_len(ends: &Ends) -> usize {
    match ends {
        Ends::V4 { .. } => FIXED + 12,
        Ends::V6 { .. } => FIXED + 36,
    }
}

/// Reads version 1 at the start of `bytes`: the ends, and how long the line is. `None` for
/// whatever is not written as the specification has it, and for UNKNOWN.
pub fn parse_v1(bytes: &[u8]) -> Option<(Ends, usize)> {
    let line = &bytes[..bytes.len().min(MOST - 1)];
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let text = core::str::from_utf8(&line[..end]).ok()?;
    let mut words = text.split(' ');
    let mut next = || words.next();
    if next()? != "PROXY" {
        return None;
    }
    let (family, source, destination) = (next()?, next()?, next()?);
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    let ends = match family {
        "TCP4" => Ends::V4 {
            source: source.parse::<Ipv4Addr>().ok()?.to_bits(),
            destination: destination.parse::<Ipv4Addr>().ok()?.to_bits(),
            source_port,
            destination_port,
        },
        "TCP6" => Ends::V6 {
            source: source.parse::<Ipv6Addr>().ok()?.to_bits(),
            destination: destination.parse::<Ipv6Addr>().ok()?.to_bits(),
            source_port,
            destination_port,
        },
        _ => return None,
    };
    next().is_none().then_some((ends, end + 2))
}

/// A decimal number of 0 to 65535, without a sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    if plain { word.parse().ok() } else { None }
}

/// Reads version 2 at the start of `bytes`: what is carried, the ends, and how long the header is,
/// TLVs included. `None` for what is no such header, for LOCAL and for other address families.
pub fn parse_v2(bytes: &[u8]) -> Option<(Transport, Ends, usize)> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
    if fixed[..12] != SIGNATURE || fixed[12] != 0x21 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let rest = rest.get(..length)?;
    let transport = match fixed[13] & 0xf {
        1 => Transport::Stream,
        2 => Transport::Datagram,
        _ => return None,
    };
    let word = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let ends = match fixed[13] >> 4 {
        1 => Ends::V4 {
            source: u32::from_be_bytes(*rest.first_chunk()?),
            destination: u32::from_be_bytes(*rest.get(4..)?.first_chunk()?),
            source_port: word(8)?,
            destination_port: word(10)?,
        },
        2 => Ends::V6 {
            source: u128::from_be_bytes(*rest.first_chunk()?),
            destination: u128::from_be_bytes(*rest.get(16..)?.first_chunk()?),
            source_port: word(32)?,
            destination_port: word(34)?,
        },
        _ => return None,
    };
    Some((transport, ends, FIXED + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(ends: &Ends) -> String {
        let mut out = [0; MOST];
        let length = v1(&mut out, ends);
        String::from_utf8(out[..length].to_vec()).unwrap()
    }

    fn ends(from: &str, at: &str, ports: (u16, u16)) -> Ends {
        let bits = |text: &str| match text.parse::<core::net::IpAddr>().unwrap() {
            core::net::IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            core::net::IpAddr::V6(address) => address.to_bits(),
        };
        Ends::new((bits(from), ports.0), (bits(at), ports.1))
    }

    /// The specification's section 2.1, with its examples and its longest lines.
    #[test]
    fn lines_are_as_specified() {
        let short = ends("192.168.0.1", "192.168.0.11", (56324, 443));
        assert_eq!(text(&short), "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
        let widest = ends("255.255.255.255", "255.255.255.255", (65535, 65535));
        assert_eq!(text(&widest).len(), 56);
        let six = ends("2001:db8::1", "2001:db8:0:0:1::", (1, 65535));
        assert_eq!(text(&six), "PROXY TCP6 2001:db8::1 2001:db8:0:0:1:: 1 65535\r\n");
        let all = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(text(&ends(all, all, (65535, 65535))).len(), 104);
        let mixed = ends("192.0.2.1", "2001:db8::1", (1, 2));
        assert_eq!(text(&mixed), "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n");
    }

    /// Section 2.2: byte by byte.
    #[test]
    fn binary_headers_are_as_specified() {
        let mut out = [0xee; MOST];
        let short = ends("192.0.2.1", "198.51.100.2", (0x1234, 443));
        assert_eq!(v2(&mut out, Transport::Stream, &short), 28);
        let expected = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0,
            12, 192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 0x01, 0xbb,
        ];
        assert_eq!(out[..28], expected);
        let six = ends("2001:db8::1", "2001:db8::2", (1, 2));
        assert_eq!(v2(&mut out, Transport::Datagram, &six), 52);
        assert_eq!(out[12..16], [0x21, 0x22, 0, 36]);
        assert_eq!(out[16..22], [0x20, 1, 0xd, 0xb8, 0, 0]);
        assert_eq!(out[46..52], [0, 2, 0, 1, 0, 2]);
        // Section 2.2.5.
        assert_eq!(v2_padded(&mut out, Transport::Datagram, &six), 56);
        assert_eq!(out[12..16], [0x21, 0x22, 0, 40]);
        assert_eq!(out[46..56], [0, 2, 0, 1, 0, 2, 4, 0, 1, 0]);
        assert_eq!(v2_padded(&mut out, Transport::Datagram, &short), 32);
        assert_eq!(out[12..16], [0x21, 0x12, 0, 16]);
        assert_eq!(out[26..32], [0x01, 0xbb, 4, 0, 1, 0]);
    }

    #[test]
    fn what_is_not_as_specified_is_refused() {
        for bad in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWN\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        ] {
            assert_eq!(parse_v1(bad.as_bytes()), None, "{bad:?}");
        }
        let mut out = [0; MOST];
        let length = v2(&mut out, Transport::Stream, &ends("192.0.2.1", "192.0.2.2", (1, 2)));
        for cut in 0..length {
            assert_eq!(parse_v2(&out[..cut]), None, "{cut} bytes");
        }
        for (at, value) in [(0, 0), (12, 0x20), (12, 0x11), (13, 0x31), (13, 0x10), (15, 11)] {
            let mut bad = out;
            bad[at] = value;
            assert_eq!(parse_v2(&bad), None, "{value:#x} at {at}");
        }
    }

    proptest! {
        /// Read back as written, as long as foretold, and with nothing behind.
        #[test]
        fn both_versions_come_back(
            from: u128, at: u128, ports: (u16, u16), four: bool, datagram: bool,
        ) {
            let mapped = |address: u128| if four { 0xffff << 32 | address >> 96 } else { address };
            let ends = Ends::new((mapped(from), ports.0), (mapped(at), ports.1));
            prop_assert_eq!(matches!(ends, Ends::V4 { .. }), four);
            let mut out = [0xee; MOST];
            let length = v1(&mut out, &ends);
            prop_assert_eq!(length, v1_len(&ends));
            prop_assert!(out[length..].iter().all(|byte| *byte == 0xee));
            prop_assert_eq!(parse_v1(&out), Some((ends, length)));
            let transport = if datagram { Transport::Datagram } else { Transport::Stream };
            let mut out = [0xee; MOST];
            let length = v2(&mut out, transport, &ends);
            prop_assert_eq!(length, v2_len(&ends));
            prop_assert!(out[length..].iter().all(|byte| *byte == 0xee));
            prop_assert_eq!(parse_v2(&out), Some((transport, ends, length)));
            let length = v2_padded(&mut out, transport, &ends);
            prop_assert!(length == v2_padded_len(&ends) && length.is_multiple_of(8));
            prop_assert!(out[length..].iter().all(|byte| *byte == 0xee));
            prop_assert_eq!(parse_v2(&out), Some((transport, ends, length)));
        }

        /// Never a panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), words: String) {
            for bytes in [bytes, [b"PROXY ", words.as_bytes(), b"\r\n"].concat()] {
                let _ = (parse_v1(&bytes), parse_v2(&bytes));
                let _ = parse_v2(&[&SIGNATURE, &bytes[..]].concat());
            }
        }
    }
}
