//! What an answer must hold: bytes at its start, bytes anywhere, or a regular expression.
//!
//! Regular expressions are of the `regex` family, whose time is bounded by pattern × answer, and
//! both are bounded here.

use std::borrow::Cow;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES: usize = 512;

/// What an answer must hold.
#[derive(Clone, Debug)]
pub enum Expect {
    /// Anything, also nothing.
    Anything,
    /// These bytes somewhere.
    Holds(Vec<u8>),
    /// A match of this expression somewhere; what is no UTF-8 is matched as U+FFFD.
    Matches(regex_lite::Regex),
}

impl PartialEq for Expect {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Anything, Self::Anything) => true,
            (Self::Holds(one), Self::Holds(other)) => one == other,
            (Self::Matches(one), Self::Matches(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

/// Why a pattern is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern(pub String);

impl Expect {
    /// A regular expression; `^` and `$` are the start and the end of a line.
    ///
    /// # Errors
    /// When it is longer than [`PATTERN_BYTES`], too large when compiled, or none at all.
    pub fn matches(pattern: &str) -> Result<Self, BadPattern> {
        if pattern.len() > PATTERN_BYTES {
            return Err(BadPattern(format!("is longer than {PATTERN_BYTES} bytes")));
        }
        let mut builder = regex_lite::RegexBuilder::new(pattern);
        // As `grep` has it: a page mostly ends in a line's end, which no one thinks of.
        builder.multi_line(true).crlf(true).size_limit(64 << 10).nest_limit(32);
        let built = builder.build();
        built.map(Self::Matches).map_err(|error| BadPattern(error.to_string()))
    }

    /// Whether an answer holds it.
    pub fn is_in(&self, answer: &[u8]) -> bool {
        match self {
            Self::Anything => true,
            Self::Holds(bytes) => {
                bytes.is_empty() || answer.windows(bytes.len()).any(|part| part == bytes)
            }
            Self::Matches(regex) => {
                let text: Cow<'_, str> = String::from_utf8_lossy(answer);
                regex.is_match(&text)
            }
        }
    }

    /// Whether anything will do.
    pub const fn is_anything(&self) -> bool {
        matches!(self, Self::Anything)
    }
}

impl std::fmt::Display for Expect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anything => f.write_str("anything"),
            Self::Holds(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Matches(regex) => write!(f, "a match of {:?}", regex.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_an_answer() {
        assert!(Expect::Anything.is_in(b""));
        assert!(Expect::Holds(b"ok".to_vec()).is_in(b"it is ok."));
        assert!(!Expect::Holds(b"ok".to_vec()).is_in(b"o"));
        let regex = Expect::matches("^status: (ok|fine)$").unwrap();
        assert!(regex.is_in(b"status: fine") && !regex.is_in(b"status: bad"));
        assert!(regex.is_in(b"up\r\nstatus: ok\r\n"), "lines of their own");
        assert!(Expect::matches("a.c").unwrap().is_in(b"a\xffc"));
    }

    #[test]
    fn patterns_are_bounded() {
        assert!(Expect::matches("(").is_err());
        assert!(Expect::matches(&"a".repeat(PATTERN_BYTES + 1)).is_err());
        assert!(Expect::matches("((((a{100}){100}){100}){100})").is_err());
    }
}
