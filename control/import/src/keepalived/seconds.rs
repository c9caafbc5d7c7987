//! Times as keepalived writes them: seconds, with a fraction.

/// Milliseconds of a time.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let plain = |it: char| it.is_ascii_digit() || it == '.';
    if text.is_empty() || !text.chars().all(plain) {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    // A day is more than any of them may be.
    (0.0..=86_400_000.0).contains(&seconds).then(|| (seconds * 1000.0).round() as u64)
}
