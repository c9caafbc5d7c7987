//! What a row leaves open: bytes of frames that are not prescribed, and what holds of them all the
//! same.
//!
//! A row prescribes every byte of what leaves. Where the description of a behaviour gives a choice
//! (the identification of a datagram, which of several outer addresses a flow gets), the row names
//! those bytes in `loose.json` with the rules that they obey. Anything else is compared exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Deserialize;

/// Bytes of a frame that are not prescribed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loose {
    /// The port that the frame leaves by.
    port: String,
    /// The frame's number there, from 1.
    packet: usize,
    /// The first byte.
    from: usize,
    /// The byte behind the last.
    to: usize,
    /// They are one of these, in hexadecimal.
    #[serde(default)]
    one_of: Vec<String>,
    /// They are the same in all that name this group.
    same: Option<String>,
    /// They are not the same in all that name this group.
    spread: Option<String>,
    /// They are different in any two that name this group.
    distinct: Option<String>,
    /// They are a checksum, and right: the frame's bytes from the first of these numbers up to the
    /// second add up to all ones (RFC 1071).
    sums: Option<(usize, usize)>,
    /// What is added to that: a pseudo header's protocol and length.
    #[serde(default)]
    pseudo: u32,
}

/// The rules of a case, and what they saw.
#[derive(Debug, Default)]
pub struct Rules {
    loose: Vec<Loose>,
    same: BTreeMap<String, String>,
    spread: BTreeMap<String, BTreeSet<String>>,
    distinct: BTreeSet<(String, String)>,
}

impl Rules {
    /// Those of a `loose.json`.
    ///
    /// # Errors
    /// When it is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let loose = serde_json::from_str(text).map_err(|e| format!("loose.json: {e}"))?;
        Ok(Self { loose, ..Self::default() })
    }

    /// The frame that is expected, with what is not prescribed as it was sent. What breaks a rule
    /// is told in `wrong`.
    pub fn open(
        &mut self,
        port: &str,
        packet: usize,
        (expected, sent): (&[u8], &[u8]),
        wrong: &mut String,
    ) -> Vec<u8> {
        let mut open = expected.to_vec();
        let here = self.loose.iter().filter(|l| l.port == port && l.packet == packet);
        for loose in here.cloned().collect::<Vec<_>>() {
            let Some(bytes) = sent.get(loose.from..loose.to) else { continue };
            let Some(place) = open.get_mut(loose.from..loose.to) else { continue };
            place.copy_from_slice(bytes);
            let value = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            if let Some(broken) = self.broken(&loose, &value, sent) {
                let (from, to) = (loose.from, loose.to);
                let _ = writeln!(wrong, "{port} packet {packet}, bytes {from}..{to}: {broken}");
            }
        }
        open
    }

    fn broken(&mut self, loose: &Loose, value: &str, sent: &[u8]) -> Option<String> {
        if let Some(group) = &loose.spread {
            self.spread.entry(group.clone()).or_default().insert(value.to_owned());
        }
        if !loose.one_of.is_empty() && !loose.one_of.iter().any(|one| one == value) {
            return Some(format!("{value} is none of {}", loose.one_of.join(" ")));
        }
        if let Some(group) = &loose.same {
            let first = self.same.entry(group.clone()).or_insert_with(|| value.to_owned());
            if first != value {
                return Some(format!("{value}, but {first} before (all of {group} are the same)"));
            }
        }
        if let Some(group) = &loose.distinct
            && !self.distinct.insert((group.clone(), value.to_owned()))
        {
            return Some(format!("{value} twice (no two of {group} are the same)"));
        }
        let (from, to) = loose.sums?;
        let right = sent.get(from..to).is_some_and(|bytes| sums_up(bytes, loose.pseudo));
        (!right).then(|| "the checksum is wrong".to_owned())
    }

    /// What only all frames together can break.
    pub fn close(&self, wrong: &mut String) {
        for (group, values) in &self.spread {
            if values.len() < 2 {
                let _ = writeln!(wrong, "{group} is {values:?} in all, and not spread");
            }
        }
    }
}

/// Whether bytes with their checksum add up to all ones (RFC 1071).
fn sums_up(bytes: &[u8], pseudo: u32) -> bool {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum::<u32>() + pseudo;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"[
        {"port": "a", "packet": 1, "from": 0, "to": 1, "one_of": ["01", "02"], "same": "x"},
        {"port": "a", "packet": 2, "from": 0, "to": 1, "same": "x", "spread": "y"},
        {"port": "a", "packet": 3, "from": 0, "to": 1, "spread": "y", "distinct": "z"},
        {"port": "a", "packet": 4, "from": 0, "to": 1, "distinct": "z"},
        {"port": "a", "packet": 5, "from": 10, "to": 12, "sums": [0, 20]}
    ]"#;

    fn told(frames: &[&[u8]]) -> Vec<String> {
        let mut rules = Rules::parse(RULES).expect("rules");
        let mut wrong = String::new();
        for (at, sent) in frames.iter().enumerate() {
            let expected = vec![0; sent.len()];
            let open = rules.open("a", at + 1, (&expected, sent), &mut wrong);
            assert_eq!(open.len(), sent.len());
        }
        rules.close(&mut wrong);
        wrong.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_loose_is_taken_as_sent_and_nothing_else() {
        let mut rules = Rules::parse(RULES).expect("rules");
        let mut wrong = String::new();
        assert_eq!(rules.open("a", 1, (&[9, 9], &[1, 2]), &mut wrong), [1, 9]);
        assert_eq!(rules.open("b", 1, (&[9, 9], &[1, 2]), &mut wrong), [9, 9]);
        assert_eq!(wrong, "");
    }

    #[test]
    fn each_rule_can_be_broken() {
        let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0xfb, 0xe3, 127, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(told(&[&[1], &[1], &[2], &[3], &header]), [] as [&str; 0]);
        assert_eq!(told(&[&[3], &[3], &[2]]).len(), 1);
        assert_eq!(told(&[&[1], &[2], &[3]]).len(), 1);
        assert_eq!(told(&[&[1], &[1], &[1]]).len(), 1);
        assert_eq!(told(&[&[1], &[1], &[2], &[2]]).len(), 1);
        header[11] = 0xe4;
        assert_eq!(told(&[&[1], &[1], &[2], &[3], &header]).len(), 1);
    }
}
