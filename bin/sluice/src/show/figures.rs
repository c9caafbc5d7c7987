//! Numbers as people read them.

/// With a comma between thousands: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes of traffic, in powers of 1000 as links are measured: `12.3 MB`.
pub fn traffic(bytes: u64) -> String {
    scaled(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A rate of bytes as one of bits, in powers of 1000: `720.0 Mbit/s`.
pub fn bits(bytes_per_s: u64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s", "Ebit/s"];
    scaled(bytes_per_s.saturating_mul(8), 1000.0, &units)
}

/// Bytes of memory, in powers of 1024: `61.0 MiB`.
pub fn memory(bytes: u64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

fn scaled(bytes: u64, step: f64, units: &[&str]) -> String {
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    let mut value = bytes as f64;
    let mut unit = 0;
    // What would be rounded to a whole step is one of the next unit.
    while value >= step - 0.05 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} {}", units[0]),
        _ => format!("{value:.1} {}", units[unit]),
    }
}

/// A span of time by its two largest units: `3d 4h`, `2m 5s`, `12.3 s`.
pub fn span(seconds: f64) -> String {
    if seconds < 60.0 {
        // 59.96 would be shown as a minute of 60.0 s.
        return format!("{:.1} s", seconds.clamp(0.0, 59.9));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m {}s", whole % 60),
        (0, _) => format!("{hours}h {minutes}m"),
        _ => format!("{}d {hours}h", count(days)),
    }
}

/// Milliseconds as [`span`].
pub fn span_ms(milliseconds: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // tenths of seconds are shown
    let seconds = milliseconds as f64 / 1000.0;
    span(seconds)
}

/// A share of 0 to 1: `12.5 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What a part is of a whole, as [`percent`]; of nothing it is nothing.
pub fn percent_of(part: u64, whole: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    let share = part as f64 / whole.max(1) as f64;
    percent(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_parted() {
        let all = [0, 7, 999, 1000, 12_345, 123_456, 1_234_567].map(count);
        assert_eq!(all, ["0", "7", "999", "1,000", "12,345", "123,456", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        let all = [0, 999, 1000, 1_234, 999_949, 999_950, 12_345_678].map(traffic);
        assert_eq!(all, ["0 B", "999 B", "1.0 kB", "1.2 kB", "999.9 kB", "1.0 MB", "12.3 MB"]);
        assert_eq!(traffic(u64::MAX), "18.4 EB");
        assert_eq!([0, 90_000_000].map(bits), ["0 bit/s", "720.0 Mbit/s"]);
        assert_eq!([1023, 1024, 64 << 20].map(memory), ["1023 B", "1.0 KiB", "64.0 MiB"]);
        assert_eq!(memory(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn spans_have_two_units() {
        let all = [-1.0, 0.0, 12.34, 59.99, 60.0, 125.0, 3600.0, 7_500.0].map(span);
        assert_eq!(all, ["0.0 s", "0.0 s", "12.3 s", "59.9 s", "1m 0s", "2m 5s", "1h 0m", "2h 5m"]);
        assert_eq!(span(273_600.0), "3d 4h");
        assert_eq!(span_ms(899_990), "14m 59s");
        assert!(span(f64::MAX).ends_with('h'));
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!([percent(0.0), percent(0.1234), percent(1.0)], ["0.0 %", "12.3 %", "100.0 %"]);
        assert_eq!(percent_of(1, 8), "12.5 %");
        assert_eq!(percent_of(0, 0), "0.0 %");
    }
}
