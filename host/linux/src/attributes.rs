//! Netlink's framing: messages in a datagram, attributes in a message, and requests.
//!
//! Reading never panics and never reads past its input: an iterator ends at the first header that
//! is cut short or whose length makes no sense. Numbers are in the machine's byte order, as
//! netlink has them, except where a function's name says otherwise.

use std::net::IpAddr;

/// Bytes of a `nlmsghdr`.
const MESSAGE_HEADER_LEN: usize = 16;
/// Bytes of a `nlattr`.
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// Upper bits of an attribute's type: nested, byte order.
const TYPE_MASK: u16 = 0x3fff;
/// Marks an attribute that holds attributes.
pub(crate) const NESTED: u16 = 0x8000;

const fn aligned(len: usize) -> usize {
    (len + 3) & !3
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// Everything behind the header.
    pub body: &'a [u8],
}

/// The messages of a datagram.
pub(crate) struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.get(..MESSAGE_HEADER_LEN)?;
        let len = usize::try_from(u32_at(header, 0)?).ok()?;
        let body = self.0.get(MESSAGE_HEADER_LEN..len)?;
        let message = Message {
            kind: u16_at(header, 4)?,
            flags: u16_at(header, 6)?,
            sequence: u32_at(header, 8)?,
            body,
        };
        self.0 = self.0.get(aligned(len)..).unwrap_or_default();
        Some(message)
    }
}

/// The attributes of a message or of a nesting attribute: type without flag bits, and value.
pub(crate) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER_LEN..len)?;
        self.0 = self.0.get(aligned(len)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The attributes behind a fixed header of `header_len` bytes; none when the body is shorter.
pub(crate) fn attributes_after(body: &[u8], header_len: usize) -> Attributes<'_> {
    Attributes(body.get(aligned(header_len)..).unwrap_or_default())
}

/// The byte at an offset.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// The 16-bit number at an offset.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 16-bit number at an offset, in network byte order.
pub(crate) fn u16_be_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 32-bit number at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 32-bit number at an offset, in network byte order.
pub(crate) fn u32_be_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The signed 32-bit number at an offset.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An address of exactly 4 or 16 bytes.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(*value.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*value.first_chunk::<16>()?)),
        _ => None,
    }
}

/// An Ethernet address of exactly 6 bytes.
pub(crate) fn mac(value: &[u8]) -> Option<[u8; 6]> {
    value.try_into().ok()
}

/// A string up to its terminating zero byte, if it is UTF-8.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    Some(std::str::from_utf8(value.get(..end)?).ok()?.to_owned())
}

/// The bytes of an address, for an attribute.
pub(crate) fn ip_bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// An attribute, padded as the next one wants it.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// A request being written.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A request of a type, with flags beside `NLM_F_REQUEST`, and its fixed header.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let flags = u16::try_from(flags | libc::NLM_F_REQUEST).unwrap_or_default();
        let mut bytes = vec![0; MESSAGE_HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        bytes.resize(aligned(bytes.len()), 0);
        Self { bytes }
    }

    /// Appends an attribute. Values are short here: at most a link's description.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend(attribute(kind, value));
        self
    }

    /// Appends an attribute that holds one attribute.
    #[must_use]
    pub fn with_nested(self, kind: u16, inner_kind: u16, value: &[u8]) -> Self {
        self.with(kind | NESTED, &attribute(inner_kind, value))
    }

    /// The finished message with its length and number.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}
