//! Netlink messages and attributes: `linux/netlink.h`, `linux/genetlink.h`.

use super::bytes::{Fields, Writer};

/// `NLMSG_ERROR`, `NLMSG_DONE`.
pub const ERROR: u16 = 2;
pub const DONE: u16 = 3;
/// `NLM_F_REQUEST`, `NLM_F_MULTI`, `NLM_F_ACK`, `NLM_F_DUMP`.
pub const REQUEST: u16 = 0x1;
pub const MULTI: u16 = 0x2;
pub const ACK: u16 = 0x4;
pub const DUMP: u16 = 0x300;
/// Bytes of `struct nlmsghdr`, of `struct genlmsghdr`, of `struct nlattr`.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
/// `NLA_TYPE_MASK`: without the bits that say "nested" and "network order".
const TYPE_MASK: u16 = 0x3fff;

/// Both netlink and its attributes go in steps of four.
const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// All of it, header included.
    pub whole: &'a [u8],
    /// What it is about: a family's number, for generic netlink.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Whose answer is whose.
    pub sequence: u32,
    /// The socket it comes from, as it says itself.
    pub port: u32,
    /// `cmd` of the generic header, 0 without one.
    pub command: u8,
    /// Its attributes.
    pub attributes: Attributes<'a>,
}

/// The messages of a datagram; ends where one is not whole.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut left = datagram;
    std::iter::from_fn(move || {
        let mut fields = Fields(left);
        let length = usize::try_from(fields.u32()?).ok()?;
        let whole = left.get(..length).filter(|whole| whole.len() >= HEADER)?;
        let message = Message {
            whole,
            kind: fields.u16()?,
            flags: fields.u16()?,
            sequence: fields.u32()?,
            port: fields.u32()?,
            command: whole.get(HEADER).copied().unwrap_or(0),
            attributes: Attributes(whole.get(HEADER + GENERIC..).unwrap_or_default()),
        };
        left = left.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Attributes behind each other.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the last one of a type, as the kernel takes it.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.filter(|&(found, _)| found == kind).last().map(|(_, value)| value)
    }

    /// The attributes within one.
    pub fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    /// A number; `None` also where it has not its size.
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// A number.
    pub fn u16(self, kind: u16) -> Option<u16> {
        self.get(kind)?.try_into().ok().map(u16::from_ne_bytes)
    }

    /// A number in network order.
    pub fn be16(self, kind: u16) -> Option<u16> {
        self.get(kind)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A number.
    pub fn u8(self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut fields = Fields(self.0);
        let length = usize::from(fields.u16()?);
        let kind = fields.u16()? & TYPE_MASK;
        let value = self.0.get(ATTRIBUTE..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// An answer in the making: its attributes.
#[derive(Default)]
pub struct Body(Writer);

impl Body {
    /// An attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
        let value = value.get(..usize::from(length) - ATTRIBUTE).unwrap_or_default();
        self.0.u16(length).u16(kind).bytes(value);
        self.0.hole(aligned(value.len()) - value.len());
        self
    }

    /// A number.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.put(kind, &[value])
    }

    /// A number.
    pub fn u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// A number in network order.
    pub fn be16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// A number.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// A number.
    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// A text, with the zero at its end.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Another's attributes behind its own.
    #[cfg(test)]
    pub fn append(&mut self, other: &Self) {
        self.0.bytes(&other.0.0);
    }

    /// Attributes within an attribute.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.put(kind, &inner.0.0)
    }
}

impl Message<'_> {
    /// Whether it asks for all there are.
    pub fn is_dump(&self) -> bool {
        self.flags & DUMP == DUMP
    }

    /// An answer to it.
    pub fn answer(&self, command: u8, version: u8, flags: u16, body: &Body) -> Vec<u8> {
        let generic = [command, version, 0, 0];
        self.framed(self.kind, flags, &[&generic, &body.0.0[..]].concat())
    }

    /// The end of a dump.
    pub fn done(&self) -> Vec<u8> {
        self.framed(DONE, MULTI, &0_i32.to_ne_bytes())
    }

    /// That it went wrong, or, with 0, that it did not.
    pub fn error(&self, number: i32) -> Vec<u8> {
        // A success repeats the header only.
        let repeated = if number == 0 { self.whole.get(..HEADER) } else { Some(self.whole) };
        let code = number.saturating_neg().to_ne_bytes();
        self.framed(ERROR, 0, &[&code, repeated.unwrap_or_default()].concat())
    }

    fn framed(&self, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = HEADER + payload.len();
        let mut writer = Writer::default();
        writer.u32(u32::try_from(length).unwrap_or(u32::MAX)).u16(kind).u16(flags);
        writer.u32(self.sequence).u32(self.port).bytes(payload);
        writer.hole(aligned(length) - length);
        writer.0
    }
}
