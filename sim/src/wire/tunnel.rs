//! What tunnels put between an outer IP header and a packet: nothing, GUE in UDP
//! (draft-ietf-intarea-gue-09) or GRE (RFC 2784, RFC 2890). Read with lengths and checksums.

use super::read::{Unreadable, be16, be32};
use super::{Addr, Tuple, UDP, pseudo, sum};
use sluice_director::spec::{Mode, TunnelOptions};

const GRE: u8 = 47;
/// The UDP port of GUE where none is chosen.
const GUE_PORT: u16 = 6080;

/// Networks that nothing comes from but tunnels, with their bits of the 128: without them a
/// client's datagram to GUE's port, or a service of GRE, would look like one.
const SOURCES: [(Addr, u32); 2] =
    [(super::v4([192, 0, 2, 96]), 126), (0x2001_0db8_0000_0002_0000_0000_0000_0600, 120)];

/// What is between an outer IP header and the packet in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shim {
    #[default]
    None,
    Gue {
        port: u16,
        checksum: bool,
    },
    Gre {
        checksum: bool,
        key: Option<u32>,
    },
}

impl Shim {
    /// That of a mode; `None` for one that is no tunnel.
    pub fn of(mode: Mode, options: TunnelOptions) -> Option<Self> {
        let checksum = options.checksum.unwrap_or(false);
        match mode {
            Mode::Ipip => Some(Self::None),
            Mode::Gue => Some(Self::Gue { port: options.port.unwrap_or(GUE_PORT), checksum }),
            Mode::Gre => Some(Self::Gre { checksum, key: options.key }),
            _ => None,
        }
    }

    /// Its length in bytes.
    pub const fn length(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Gue { .. } => 12,
            Self::Gre { checksum, key } => {
                4 + if checksum { 4 } else { 0 } + if key.is_some() { 4 } else { 0 }
            }
        }
    }

    /// Where it is behind an outer header, which has this tuple but for ports: it, and whether
    /// IPv6 is in it. `None` if this is no tunnel.
    pub fn read(tuple: &Tuple, body: &[u8]) -> Result<Option<(Self, bool)>, Unreadable> {
        let is_source = SOURCES.iter().any(|(net, bits)| (tuple.src ^ net) >> (128 - bits) == 0);
        match tuple.protocol {
            4 => Ok(Some((Self::None, false))),
            41 => Ok(Some((Self::None, true))),
            UDP if is_source => gue(tuple, body).map(Some),
            GRE if is_source => gre(body).map(Some),
            _ => Ok(None),
        }
    }
}

fn gue(tuple: &Tuple, body: &[u8]) -> Result<(Shim, bool), Unreadable> {
    if body.len() < 12 || usize::from(be16(body, 4)) != body.len() {
        return Err("the length of an outer UDP header is wrong");
    }
    let checksum = be16(body, 6) != 0;
    let start = pseudo(tuple.src, tuple.dst, UDP, body.len());
    if checksum && sum(start, body) != 0xffff {
        return Err("the checksum of an outer UDP header is wrong");
    }
    if be16(body, 0) < 0xc000 {
        return Err("the source port of an outer UDP header is none of the dynamic ones");
    }
    let six = match body[8..12] {
        [0, 4, 0, 0] => false,
        [0, 41, 0, 0] => true,
        _ => return Err("no plain GUE header"),
    };
    Ok((Shim::Gue { port: be16(body, 2), checksum }, six))
}

fn gre(body: &[u8]) -> Result<(Shim, bool), Unreadable> {
    let Some([flags, version, high, low]) = body.first_chunk::<4>() else {
        return Err("no GRE header");
    };
    let (checksum, has_key) = (flags & 0x80 != 0, flags & 0x20 != 0);
    let length = 4 + 4 * (usize::from(checksum) + usize::from(has_key));
    if flags & !0xa0 != 0 || *version != 0 || body.len() < length {
        return Err("no plain GRE header");
    }
    if checksum && (sum(0, body) != 0xffff || be16(body, 6) != 0) {
        return Err("the checksum of a GRE header is wrong");
    }
    let six = match (high, low) {
        (8, 0) => false,
        (0x86, 0xdd) => true,
        _ => return Err("GRE with neither IPv4 nor IPv6 in it"),
    };
    Ok((Shim::Gre { checksum, key: has_key.then(|| be32(body, length - 4)) }, six))
}
