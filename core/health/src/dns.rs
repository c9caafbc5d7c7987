//! A question to a name server, and the judgement of its answer (RFC 1035 4).
//!
//! Only what a check needs: one question, the answer's header, and addresses among its records.
//! Names are skipped and never put together, so pointers cannot make a loop.
//!
//! Not by `hickory-proto`: its `Message` decodes every record and refuses an answer for one that it
//! cannot read, while a check needs the header, and addresses only when one is expected. It would
//! also bring some 30 crates that nothing else here uses (names in Unicode, URLs) and a random
//! number generator into ring 0. What it would replace are about 80 lines.

use crate::finding::Finding;
use std::net::IpAddr;

/// The longest answer over UDP that is read, in bytes (RFC 6891 6.2.5 recommends no more).
pub const ANSWER_BYTES: usize = 4096;
/// Length of the header.
const HEADER: usize = 12;
/// The most records that are looked at.
const RECORDS: usize = 64;
const CLASS_IN: u16 = 1;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Type {
    /// An IPv4 address.
    #[default]
    A = 1,
    /// Name servers.
    Ns = 2,
    /// The start of a zone.
    Soa = 6,
    /// A name for an address.
    Ptr = 12,
    /// Mail exchangers.
    Mx = 15,
    /// Text.
    Txt = 16,
    /// An IPv6 address.
    Aaaa = 28,
    /// Services.
    Srv = 33,
}

/// The answer's code, by its name where it has one.
fn code_name(code: u8) -> String {
    const NAMES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
    NAMES.get(usize::from(code)).map_or_else(|| format!("code {code}"), |name| (*name).to_owned())
}

/// What an answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The code; 0 for NOERROR, with at least one record.
    pub code: u8,
    /// An address that must be among the records.
    pub address: Option<IpAddr>,
}

/// A name cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    bytes: Vec<u8>,
    wanted: Wanted,
}

impl Question {
    /// A question for a name, with recursion desired.
    ///
    /// # Errors
    /// When the name has an empty label, one of over 63 bytes, or is over 253 bytes long.
    pub fn new(id: u16, name: &str, of: Type, wanted: Wanted) -> Result<Self, BadName> {
        let mut bytes = Vec::with_capacity(HEADER + name.len() + 6);
        bytes.extend(id.to_be_bytes());
        // Recursion desired; one question.
        bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.len() > 253 {
            return Err(BadName);
        }
        for label in name.split('.').filter(|_| !name.is_empty()) {
            if label.is_empty() || label.len() > 63 || !label.is_ascii() {
                return Err(BadName);
            }
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend((of as u16).to_be_bytes());
        bytes.extend(CLASS_IN.to_be_bytes());
        Ok(Self { bytes, wanted })
    }

    /// What is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What a datagram means; `None` when it is no answer to this question, and another one may be.
    pub fn judge(&self, answer: &[u8]) -> Option<Finding> {
        let header = answer.first_chunk::<HEADER>()?;
        let same = answer.get(HEADER..self.bytes.len())?;
        // Names may come back in other case.
        let asked = same.eq_ignore_ascii_case(&self.bytes[HEADER..]);
        let is_answer = header[2] & 0x80 != 0 && header[2] & 0x78 == 0;
        if header[..2] != self.bytes[..2] || !is_answer || header[4..6] != [0, 1] || !asked {
            return None;
        }
        let code = header[3] & 0x0f;
        let Wanted { code: wanted, address } = self.wanted;
        if code != wanted {
            let expected = code_name(wanted);
            return Some(Finding::fail(format!("DNS {}, expected {expected}", code_name(code))));
        }
        let records = u16::from_be_bytes([header[6], header[7]]);
        if code == 0 && records == 0 {
            return Some(Finding::fail("DNS NOERROR without any record"));
        }
        let Some(address) = address else {
            return Some(Finding::pass(format!("DNS {}, {records} records", code_name(code))));
        };
        let found = addresses(answer, self.bytes.len(), records);
        if found.contains(&address) {
            return Some(Finding::pass(format!("DNS {}, {address}", code_name(code))));
        }
        let shown: Vec<_> = found.iter().take(4).map(IpAddr::to_string).collect();
        let shown = if shown.is_empty() { "no address".to_owned() } else { shown.join(", ") };
        Some(Finding::fail(format!("DNS {shown}, expected {address}")))
    }
}

/// The addresses among the first records of an answer.
fn addresses(answer: &[u8], mut at: usize, records: u16) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for _ in 0..usize::from(records).min(RECORDS) {
        let Some((of, data, next)) = record(answer, at) else { break };
        match of {
            1 => found.extend(<[u8; 4]>::try_from(data).map(IpAddr::from)),
            28 => found.extend(<[u8; 16]>::try_from(data).map(IpAddr::from)),
            _ => {}
        }
        at = next;
    }
    found
}

/// The record at a place: type, data, and where the next one is.
fn record(answer: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let at = skip_name(answer, at)?;
    let fixed: &[u8; 10] = answer.get(at..)?.first_chunk()?;
    let of = u16::from_be_bytes([fixed[0], fixed[1]]);
    let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let data = answer.get(at + 10..at + 10 + length)?;
    Some((of, data, at + 10 + length))
}

/// Where a name ends: at its empty label, or behind its first pointer.
fn skip_name(answer: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *answer.get(at)? {
            0 => return Some(at + 1),
            length if length < 0x40 => at += 1 + usize::from(length),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn question(wanted: Wanted) -> Question {
        Question::new(0x1234, "www.example.com", Type::A, wanted).unwrap()
    }

    /// An answer with a CNAME and an A record, names by pointers.
    fn answer(code: u8) -> Vec<u8> {
        let mut bytes = question(Wanted::default()).bytes;
        bytes[2..8].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, if code == 0 { 2 } else { 0 }]);
        if code == 0 {
            bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 16]);
            bytes.extend([0xc0, 16, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        }
        bytes
    }

    #[test]
    fn the_question_is_as_others_write_it() {
        let expected = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\
                         \x00\x00\x01\x00\x01";
        assert_eq!(question(Wanted::default()).bytes(), expected);
        assert!(Question::new(1, "a..b", Type::A, Wanted::default()).is_err());
        assert!(Question::new(1, &"a".repeat(64), Type::A, Wanted::default()).is_err());
        assert_eq!(Question::new(1, ".", Type::Ns, Wanted::default()).unwrap().bytes()[12], 0);
    }

    #[test]
    fn answers_are_judged() {
        let judge = |wanted, answer: &[u8]| question(wanted).judge(answer);
        let plain = Wanted::default();
        assert!(judge(plain, &answer(0)).unwrap().passed);
        let failed = judge(plain, &answer(2)).unwrap();
        assert_eq!(failed.text, "DNS SERVFAIL, expected NOERROR");
        assert!(judge(Wanted { code: 3, address: None }, &answer(3)).unwrap().passed);
        let right = Wanted { code: 0, address: Some(ADDRESS) };
        assert!(judge(right, &answer(0)).unwrap().passed);
        let wrong = Wanted { code: 0, address: Some([192, 0, 2, 8].into()) };
        let text = "DNS 192.0.2.7, expected 192.0.2.8";
        assert_eq!(judge(wrong, &answer(0)).unwrap(), Finding::fail(text));
        let mut none = answer(3);
        none[3] = 0x80;
        assert_eq!(judge(plain, &none).unwrap().text, "DNS NOERROR without any record");
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_ignored() {
        let judge = |answer: &[u8]| question(Wanted::default()).judge(answer);
        for (at, byte) in [(0, 0x13), (2, 0x01), (2, 0x91), (5, 2), (14, b'x'), (30, 2)] {
            let mut other = answer(0);
            other[at] = byte;
            assert_eq!(judge(&other), None, "byte {at}");
        }
        let mut shouted = answer(0);
        shouted[13] = b'W';
        assert!(judge(&shouted).is_some(), "case is no difference");
        assert_eq!(judge(&answer(0)[..20]), None);
    }

    proptest! {
        #[test]
        fn damage_is_survived(
            flips in prop::collection::vec((12usize..60, any::<u8>()), 0..6), cut in 0usize..70,
        ) {
            let mut bytes = answer(0);
            for (at, byte) in flips {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            let wanted = Wanted { code: 0, address: Some(ADDRESS) };
            let _ = question(wanted).judge(&bytes);
        }
    }
}
