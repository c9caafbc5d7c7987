//! Records as bytes.
//!
//! A data payload is a row of items. The first byte of an item has its highest bit clear when it is
//! a session, and is then its flags. Otherwise the item is a real server, which the sessions after
//! it belong to, or the marker that ends a pull. Numbers are big-endian.

use crate::record::{Change, LONGEST_NAME, Real, Service, Session};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ITEM_REAL: u8 = 0x80;
const ITEM_MARKER: u8 = 0x81;

const ENDED: u8 = 0x01;
const CLIENT_V6: u8 = 0x02;
const LOCAL: u8 = 0x04;
const LOCAL_V6: u8 = 0x08;
/// The local address is that of the session before, and only the port is written.
const LOCAL_SAME: u8 = 0x10;
const FAR: u8 = 0x20;
const FAR_V6: u8 = 0x40;

const KIND_RULE: u8 = 0x01;
const EXTENDED: u8 = 0x02;
const VIP_V6: u8 = 0x04;
const ADDRESS_V6: u8 = 0x08;
/// The name of a network comes first. Directors that know no networks refuse it.
const NETWORK: u8 = 0x10;

/// Reads fields off the front of bytes. Every read is `None` when the bytes are short or invalid.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number in groups of seven bits, the lowest first, in the shortest form only.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// UTF-8 after a byte that is its length.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).ok()
    }

    fn ip(&mut self, v6: bool) -> Option<IpAddr> {
        if v6 {
            return self.array::<16>().map(|it| Ipv6Addr::from(it).into());
        }
        self.array::<4>().map(|it| Ipv4Addr::from(it).into())
    }
}

pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// At most 255 bytes of text, after their length.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(usize::from(u8::MAX));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(&text.as_bytes()[..length]);
}

fn put_ip(bytes: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
}

const fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn put_real(bytes: &mut Vec<u8>, real: &Real) {
    bytes.push(ITEM_REAL);
    let address = flag(real.address.is_ipv6(), ADDRESS_V6);
    match &real.service {
        Service::Service { network, protocol, vip, first_port, last_port, extended } => {
            let isolated = flag(!network.is_empty(), NETWORK);
            let vip_v6 = flag(vip.is_ipv6(), VIP_V6);
            bytes.push(address | isolated | flag(*extended, EXTENDED) | vip_v6);
            if !network.is_empty() {
                put_text(bytes, network);
            }
            bytes.push(*protocol);
            put_ip(bytes, *vip);
            bytes.extend_from_slice(&first_port.to_be_bytes());
            bytes.extend_from_slice(&last_port.to_be_bytes());
        }
        Service::Rule(name) => {
            bytes.push(address | KIND_RULE);
            put_text(bytes, name);
        }
    }
    put_ip(bytes, real.address);
    bytes.extend_from_slice(&real.port.to_be_bytes());
    bytes.push(real.mode);
}

fn read_real(reader: &mut Reader<'_>) -> Option<Real> {
    let flags = reader.u8()?;
    let rule = flags & KIND_RULE != 0;
    let allowed = if rule { 0 } else { EXTENDED | VIP_V6 | NETWORK };
    if flags & !(KIND_RULE | ADDRESS_V6 | allowed) != 0 {
        return None;
    }
    let service = if rule {
        Service::Rule(reader.text()?.to_owned())
    } else {
        let network = match flags & NETWORK != 0 {
            true => reader.text().filter(|name| !name.is_empty())?,
            false => "",
        };
        Service::Service {
            network: network.to_owned(),
            protocol: reader.u8()?,
            vip: reader.ip(flags & VIP_V6 != 0)?,
            first_port: reader.u16()?,
            last_port: reader.u16()?,
            extended: flags & EXTENDED != 0,
        }
    };
    let address = reader.ip(flags & ADDRESS_V6 != 0)?;
    let port = reader.u16()?;
    let mode = reader.u8().filter(|mode| *mode != 0)?;
    Some(Real { service, address, port, mode })
}

fn put_session(bytes: &mut Vec<u8>, session: &Session, previous: Option<IpAddr>) {
    let local = session.local.map(|(address, _)| address);
    let same = local.is_some() && local == previous;
    bytes.extend_from_slice(&[
        flag(session.change == Change::Ended, ENDED)
            | flag(session.client.is_ipv6(), CLIENT_V6)
            | flag(local.is_some(), LOCAL)
            | flag(same, LOCAL_SAME)
            | flag(!same && local.is_some_and(|it| it.is_ipv6()), LOCAL_V6)
            | flag(session.far.is_some(), FAR)
            | flag(session.far.is_some_and(|it| it.is_ipv6()), FAR_V6),
        session.protocol,
        session.state,
        session.closing,
    ]);
    put_ip(bytes, session.client);
    bytes.extend_from_slice(&session.client_port.to_be_bytes());
    bytes.extend_from_slice(&session.virtual_port.to_be_bytes());
    if let Some((address, port)) = session.local {
        if !same {
            put_ip(bytes, address);
        }
        bytes.extend_from_slice(&port.to_be_bytes());
    }
    if let Some(far) = session.far {
        put_ip(bytes, far);
    }
    put_varint(bytes, u64::from(session.idle_ms));
    bytes.extend_from_slice(&session.fin.to_be_bytes());
    bytes.extend_from_slice(&session.seen[0].to_be_bytes());
    bytes.extend_from_slice(&session.seen[1].to_be_bytes());
    bytes.extend_from_slice(&session.isn.to_be_bytes());
}

fn read_session(
    reader: &mut Reader<'_>,
    flags: u8,
    previous: &mut Option<IpAddr>,
) -> Option<Session> {
    let set = |bit| flags & bit != 0;
    let local_details = set(LOCAL_SAME) || set(LOCAL_V6);
    if local_details && !set(LOCAL) || set(LOCAL_SAME) && set(LOCAL_V6) || set(FAR_V6) && !set(FAR)
    {
        return None;
    }
    let [protocol, state, closing] = reader.array()?;
    let client = reader.ip(set(CLIENT_V6))?;
    let client_port = reader.u16()?;
    let virtual_port = reader.u16()?;
    let local = if set(LOCAL) {
        let address = if set(LOCAL_SAME) { (*previous)? } else { reader.ip(set(LOCAL_V6))? };
        *previous = Some(address);
        Some((address, reader.u16()?))
    } else {
        None
    };
    let far = if set(FAR) { Some(reader.ip(set(FAR_V6))?) } else { None };
    Some(Session {
        change: if set(ENDED) { Change::Ended } else { Change::Live },
        protocol,
        state,
        closing,
        client,
        client_port,
        virtual_port,
        local,
        far,
        idle_ms: u32::try_from(reader.varint()?).ok()?,
        fin: reader.u16()?,
        seen: [reader.u16()?, reader.u16()?],
        isn: reader.u32()?,
    })
}

/// Whether a real server can be written.
pub(crate) fn is_sendable(real: &Real) -> bool {
    let fits = match &real.service {
        Service::Service { network: name, .. } | Service::Rule(name) => name.len() <= LONGEST_NAME,
    };
    fits && real.mode != 0
}

/// Items as they are written into a datagram.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// What has been written, after what the caller began with.
    pub(crate) bytes: Vec<u8>,
    real: Option<Real>,
    local: Option<IpAddr>,
}

impl Body {
    /// Items after these bytes.
    pub(crate) const fn after(bytes: Vec<u8>) -> Self {
        Self { bytes, real: None, local: None }
    }

    /// Adds a session unless there would be more bytes than `limit`; gives whether it was added.
    pub(crate) fn add(&mut self, real: &Real, session: &Session, limit: usize) -> bool {
        let before = self.bytes.len();
        let same = self.real.as_ref() == Some(real);
        if !same {
            put_real(&mut self.bytes, real);
        }
        let previous = self.local.filter(|_| same);
        put_session(&mut self.bytes, session, previous);
        if self.bytes.len() > limit {
            self.bytes.truncate(before);
            return false;
        }
        self.local = session.local.map(|(address, _)| address).or(previous);
        if !same {
            self.real = Some(real.clone());
        }
        true
    }

    /// Adds the marker that ends a pull, if it fits.
    pub(crate) fn add_marker(&mut self, pull: u64, limit: usize) -> bool {
        if self.bytes.len() + 9 > limit {
            return false;
        }
        self.bytes.push(ITEM_MARKER);
        self.bytes.extend_from_slice(&pull.to_be_bytes());
        true
    }
}

/// The sessions of a payload, each run of them with its real server.
pub(crate) type Runs = Vec<(Real, Vec<Session>)>;

/// What a data payload holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    pub(crate) runs: Runs,
    pub(crate) markers: Vec<u64>,
}

/// Reads a data payload after its kind.
pub(crate) fn read_items(bytes: &[u8]) -> Option<Items> {
    let mut reader = Reader::new(bytes);
    let mut items = Items::default();
    let mut local = None;
    if reader.is_empty() {
        return None;
    }
    while !reader.is_empty() {
        match reader.u8()? {
            ITEM_REAL => {
                // A real server without sessions is nothing that a sender writes.
                if items.runs.last().is_some_and(|(_, sessions)| sessions.is_empty()) {
                    return None;
                }
                items.runs.push((read_real(&mut reader)?, Vec::new()));
                local = None;
            }
            ITEM_MARKER => items.markers.push(reader.u64()?),
            flags if flags & 0x80 == 0 => {
                let session = read_session(&mut reader, flags, &mut local)?;
                items.runs.last_mut()?.1.push(session);
            }
            _ => return None,
        }
    }
    let complete = items.runs.last().is_none_or(|(_, sessions)| !sessions.is_empty());
    complete.then_some(items)
}
