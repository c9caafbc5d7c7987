//! When an X.509 certificate ends (RFC 5280 4.1.2.5): the one thing that a check tells of it beyond
//! what the handshake has verified.
//!
//! A walk over the outermost elements of its DER, each bounded by the one around it.

/// Days of a year that is no leap year before each month.
const BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// When a certificate ends, in seconds since 1970. `None` when it is none.
pub fn ends_at(der: &[u8]) -> Option<i64> {
    let (certificate, _) = element(der, 0x30)?;
    let (mut rest, _) = element(certificate, 0x30)?;
    if rest.first() == Some(&0xa0) {
        rest = element(rest, 0xa0)?.1;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [0x02, 0x30, 0x30] {
        rest = element(rest, tag)?.1;
    }
    let (validity, _) = element(rest, 0x30)?;
    let (_, after) = tagged(validity)?.1;
    let (tag, (text, _)) = tagged(after)?;
    time(tag, text)
}

/// Content of an element, and what follows it.
type Parts<'a> = (&'a [u8], &'a [u8]);

/// Content and rest of an element with this tag.
fn element(bytes: &[u8], tag: u8) -> Option<Parts<'_>> {
    tagged(bytes).filter(|(found, _)| *found == tag).map(|(_, parts)| parts)
}

/// Tag, content and rest of an element.
fn tagged(bytes: &[u8]) -> Option<(u8, Parts<'_>)> {
    let [tag, first, rest @ ..] = bytes else { return None };
    let (length, rest) = match *first {
        length @ 0..=0x7f => (usize::from(length), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
        _ => return None,
    };
    Some((*tag, rest.split_at_checked(length)?))
}

/// `UTCTime` (`YYMMDDhhmmssZ`) or `GeneralizedTime` (`YYYYMMDDhhmmssZ`).
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |part: &[u8]| part.iter().fold(0i64, |sum, d| sum * 10 + i64::from(d - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        // Two digits are of 1950 to 2049.
        (0x17, 12) => ((number(&digits[..2]) + 50) % 100 + 1950, &digits[2..]),
        (0x18, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    let before = *BEFORE_MONTH.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let is_leap = leaps(year) != leaps(year - 1);
    let leap_day = i64::from(is_leap && month > 2);
    let days = (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before + leap_day + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A certificate's outermost elements around this validity.
    fn certificate(not_after: &[u8], tag: u8) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| {
            let mut bytes = vec![tag, 0x82];
            bytes.extend((content.len() as u16).to_be_bytes());
            bytes.extend(content);
            bytes
        };
        let before = wrap(0x17, b"200101000000Z");
        let validity = wrap(0x30, &[before, wrap(tag, not_after)].concat());
        let version = wrap(0xa0, &[2, 1, 2]);
        let parts = [version, vec![2, 1, 5], wrap(0x30, &[]), wrap(0x30, &[0; 200]), validity];
        wrap(0x30, &wrap(0x30, &parts.concat()))
    }

    #[test]
    fn ends_are_read() {
        // As `date -u -d ... +%s` has them.
        for (text, tag, seconds) in [
            (&b"700101000000Z"[..], 0x17, 0),
            (b"240229123456Z", 0x17, 1_709_210_096),
            (b"491231235959Z", 0x17, 2_524_607_999),
            (b"20500101000000Z", 0x18, 2_524_608_000),
            (b"21000301000000Z", 0x18, 4_107_542_400),
        ] {
            assert_eq!(ends_at(&certificate(text, tag)), Some(seconds), "{text:?}");
        }
        for text in [&b"241329123456Z"[..], b"240229123456", b"24022912345xZ", b""] {
            assert_eq!(ends_at(&certificate(text, 0x17)), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_survived(at in 0usize..250, byte in any::<u8>(), cut in 0usize..260) {
            let mut der = certificate(b"240229123456Z", 0x17);
            if let Some(place) = der.get_mut(at) {
                *place = byte;
            }
            der.truncate(cut);
            let _ = ends_at(&der);
        }
    }
}
