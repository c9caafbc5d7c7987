//! Numbers as the C library reads them (`strtol`, base ten).

/// A whole number from `least` to `most`: blanks before it and a sign are let through, blanks
/// behind it and anything else are not.
pub(crate) fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    let text = text.trim_start_matches(blank);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // What does not fit into 64 bits is out of any range that is asked for here.
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

/// What a text begins with, as `atoi` has it: 0 when that is no number.
pub(crate) fn leading_number(text: &str) -> i64 {
    let text = text.trim_start_matches(blank);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let number: i64 = digits[..end].parse().unwrap_or(0);
    if negative { -number } else { number }
}

/// `isspace` of the C locale.
pub(crate) const fn blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::{leading_number, number};

    #[test]
    fn numbers_are_those_of_strtol() {
        let port = |text| number(text, 0, 65535);
        assert_eq!(port("80"), Some(80));
        assert_eq!(port(" +080"), Some(80));
        for wrong in ["", "+", "80 ", "80x", "0x50", "-1", "65536", "99999999999999999999"] {
            assert_eq!(port(wrong), None, "{wrong:?}");
        }
        assert_eq!(number("-0", 0, 1), Some(0));
    }

    #[test]
    fn leading_numbers_are_those_of_atoi() {
        assert_eq!([leading_number("64x"), leading_number(" 7"), leading_number("x")], [64, 7, 0]);
        assert_eq!([leading_number("-3"), leading_number("255.255.0.0")], [-3, 255]);
    }
}
