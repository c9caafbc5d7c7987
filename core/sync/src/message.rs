//! Payloads: Hello, data and acknowledgement. Each begins with its kind.

use crate::codec::{Reader, put_text, put_varint};
use crate::seal::{Challenge, StartId};
use crate::settings::{MOST_KEYS, is_name};
use crate::status::Standing;

const HELLO: u8 = 1;
/// Kind of data, which [`crate::codec`] writes the rest of.
pub(crate) const DATA: u8 = 2;
const ACK: u8 = 3;

/// Most ranges in an acknowledgement.
pub(crate) const MOST_RANGES: usize = 64;

/// Above every sequence number that a stream comes to.
const LAST: u64 = 1 << 62;

const KNOWS: u8 = 0x01;
const UP: u8 = 0x02;
const SYNCHRONISED: u8 = 0x04;
/// How the sender stands comes behind its name.
const STANDING: u8 = 0x08;
const DRAINING: u8 = 0x10;

/// Who a director is and how it stands towards the peer that it is sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The start that it is for; zeros when none is known.
    pub(crate) to: StartId,
    pub(crate) challenge: Challenge,
    /// The challenge of that start; zeros when none is known.
    pub(crate) echo: Challenge,
    /// Whether the sender accepts that start.
    pub(crate) knows: bool,
    /// Whether that start is up for the sender.
    pub(crate) up: bool,
    pub(crate) synchronised: bool,
    pub(crate) fingerprint: u64,
    /// What the time is: see [`crate::clock`].
    pub(crate) clock: u64,
    /// The first sequence number that the sender still holds.
    pub(crate) first: u64,
    /// Where the receiver is in the stream as far as the sender knows, which is where it takes part
    /// from if it does not yet.
    pub(crate) from: u64,
    /// The next sequence number that the sender wants; 0 before it takes part in the stream.
    pub(crate) expected: u64,
    /// The pull that the sender wants; 0 for none.
    pub(crate) pull: u64,
    pub(crate) keys: Vec<u32>,
    pub(crate) name: String,
    pub(crate) standing: Option<Standing>,
}

/// What came of the stream of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The start whose stream it is.
    pub(crate) to: StartId,
    pub(crate) expected: u64,
    /// First missing sequence number and how many there are in a row, ascending.
    pub(crate) missing: Vec<(u64, u64)>,
}

/// A payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Hello(Hello),
    /// When it was sealed, and the items of it.
    Data(&'a [u8]),
    Ack(Ack),
}

impl Hello {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(HELLO);
        bytes.extend_from_slice(&self.to);
        bytes.extend_from_slice(&self.challenge);
        bytes.extend_from_slice(&self.echo);
        let flags = [
            (self.knows, KNOWS),
            (self.up, UP),
            (self.synchronised, SYNCHRONISED),
            (self.standing.is_some(), STANDING),
            (self.standing.is_some_and(|standing| standing.draining), DRAINING),
        ];
        bytes.push(flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit));
        let stream = [self.first, self.from, self.expected, self.pull];
        for number in [self.fingerprint, self.clock].into_iter().chain(stream) {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.push(self.keys.len().min(MOST_KEYS) as u8);
        for key in self.keys.iter().take(MOST_KEYS) {
            bytes.extend_from_slice(&key.to_be_bytes());
        }
        put_text(bytes, &self.name);
        if let Some(Standing { held, addresses, sessions, .. }) = self.standing {
            bytes.extend_from_slice(&held.to_be_bytes());
            bytes.extend_from_slice(&addresses.to_be_bytes());
            bytes.extend_from_slice(&sessions.to_be_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [to, challenge, echo] = [reader.array()?, reader.array()?, reader.array()?];
        // Later versions may have more of them.
        let flags = reader.u8()?;
        if flags & (STANDING | DRAINING) == DRAINING {
            return None;
        }
        let [fingerprint, clock] = [reader.u64()?, reader.u64()?];
        let [first, from] = [reader.u64()?, reader.u64()?];
        let [expected, pull] = [reader.u64()?, reader.u64()?];
        let keys = usize::from(reader.u8()?);
        if keys > MOST_KEYS || first > from || from > LAST {
            return None;
        }
        let keys = (0..keys).map(|_| reader.u32()).collect::<Option<_>>()?;
        let name = reader.text().filter(|name| is_name(name))?.to_owned();
        let standing = match flags & STANDING != 0 {
            true => Some(Standing {
                held: reader.u32()?,
                addresses: reader.u32()?,
                draining: flags & DRAINING != 0,
                sessions: reader.u64()?,
            }),
            false => None,
        };
        Some(Self {
            to,
            challenge,
            echo,
            knows: flags & KNOWS != 0,
            up: flags & UP != 0,
            synchronised: flags & SYNCHRONISED != 0,
            fingerprint,
            clock,
            first,
            from,
            expected,
            pull,
            keys,
            name,
            standing,
        })
    }
}

impl Ack {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(ACK);
        bytes.extend_from_slice(&self.to);
        put_varint(bytes, self.expected);
        let mut from = self.expected;
        for (first, count) in self.missing.iter().take(MOST_RANGES) {
            put_varint(bytes, first.saturating_sub(from));
            put_varint(bytes, *count);
            from = first.saturating_add(*count);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let to = reader.array()?;
        let expected = reader.varint()?;
        let mut missing = Vec::new();
        let mut from = expected;
        while !reader.is_empty() {
            let first = from.checked_add(reader.varint()?)?;
            let count = reader.varint().filter(|count| *count > 0)?;
            from = first.checked_add(count)?;
            missing.push((first, count));
            if missing.len() > MOST_RANGES {
                return None;
            }
        }
        Some(Self { to, expected, missing })
    }
}

/// Reads a payload. The items of data are not looked at.
pub(crate) fn read(payload: &[u8]) -> Option<Message<'_>> {
    let (kind, rest) = payload.split_first()?;
    let mut reader = Reader::new(rest);
    let message = match *kind {
        // What comes behind what is known is of a later version: both ends may differ in it while
        // one of them is brought up to date.
        HELLO => return Hello::read(&mut reader).map(Message::Hello),
        ACK => Message::Ack(Ack::read(&mut reader)?),
        DATA => return Some(Message::Data(rest)),
        _ => return None,
    };
    reader.is_empty().then_some(message)
}
