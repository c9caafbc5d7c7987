//! Numbers as lists show them.

/// A large number in nine columns: whole below 10^8, then divided and with a letter.
pub(crate) fn short(number: u64) -> String {
    const MILLION: u64 = 1_000_000;
    let (shown, letter) = match number {
        0..=99_999_999 => return format!("{number:9}"),
        100_000_000..=999_999_999 => (number / 1000, 'K'),
        1_000_000_000..=99_999_999_999 => (number / MILLION, 'M'),
        100_000_000_000..=99_999_999_999_999 => (number / (1000 * MILLION), 'G'),
        _ => (number / (MILLION * MILLION), 'T'),
    };
    format!("{shown:8}{letter}")
}

/// The same with all its digits and a blank before them, in nine columns or as many as it takes.
pub(crate) fn exact(number: u64) -> String {
    format!(" {number:8}")
}

#[cfg(test)]
mod tests {
    use super::{exact, short};

    #[test]
    fn letters_come_where_the_stock_program_has_them() {
        let rows = [
            (0, "        0"),
            (99_999_999, " 99999999"),
            (100_000_000, "  100000K"),
            (999_999_999, "  999999K"),
            (1_000_000_000, "    1000M"),
            (99_999_999_999, "   99999M"),
            (100_000_000_000, "     100G"),
            (99_999_999_999_999, "   99999G"),
            (100_000_000_000_000, "     100T"),
            (u64::MAX, "18446744T"),
        ];
        for (number, shown) in rows {
            assert_eq!(short(number), shown);
        }
        assert_eq!(exact(7), "        7");
        assert_eq!(exact(100_000_000), " 100000000");
    }
}
