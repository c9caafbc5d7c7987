//! What a probe found, in words that may be shown to an operator.

/// The longest text of a finding, in characters.
pub const TEXT_CHARS: usize = 200;

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the real server answered as it should.
    pub passed: bool,
    /// Whether nothing was found: the director itself could not look, which says nothing of the
    /// real server.
    pub blind: bool,
    /// The evidence: what came and, if that was wrong, what was expected.
    pub text: String,
}

impl Finding {
    /// The real server answered as it should.
    pub fn pass(text: impl AsRef<str>) -> Self {
        Self { passed: true, blind: false, text: printable(text.as_ref()) }
    }

    /// It did not.
    pub fn fail(text: impl AsRef<str>) -> Self {
        Self { passed: false, blind: false, text: printable(text.as_ref()) }
    }

    /// The director could not look.
    pub fn blind(text: impl AsRef<str>) -> Self {
        Self { passed: false, blind: true, text: printable(text.as_ref()) }
    }
}

/// Text that a terminal shows and does not obey, and that is not too long: some of it was written
/// by the peer.
pub fn printable(text: &str) -> String {
    let harmless = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        '"' | '\'' | '\\' => c,
        other if other.escape_debug().len() > 1 => '\u{fffd}',
        other => other,
    };
    let mut chars = text.trim().chars();
    let mut shown: String = chars.by_ref().take(TEXT_CHARS).map(harmless).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_wrote_is_harmless() {
        let finding = Finding::fail("a\x1b[31mred\u{202e}\nline ");
        assert_eq!(finding.text, "a\u{fffd}[31mred\u{fffd} line");
        assert_eq!(Finding::pass("x".repeat(1 << 20)).text.chars().count(), TEXT_CHARS + 1);
    }
}
