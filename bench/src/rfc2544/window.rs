//! Which frames of a trial have come, so that none counts twice.
//!
//! Numbers rise, but workers overtake each other, so a window of the latest is kept. One that is
//! older than all of it is not counted: whether it came before nobody knows any more.

/// Numbers that the window spans: a tenth of a second at 10 million packets a second.
const SPAN: u32 = 1 << 20;
const WORDS: usize = SPAN as usize / 64;

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first time.
    New,
    /// It came before.
    Again,
    /// Too old to know.
    Forgotten,
}

/// The window.
#[derive(Clone, Debug)]
pub struct Window {
    bits: Vec<u64>,
    /// Beyond the highest number that came; the window ends here.
    end: u32,
}

impl Window {
    /// Before the first number.
    pub fn new() -> Self {
        Self { bits: vec![0; WORDS], end: 0 }
    }

    /// A number has come.
    #[inline(always)]
    pub fn arrived(&mut self, number: u32) -> Arrival {
        if number >= self.end {
            self.advance(number);
        } else if ((self.end - 1) / 64 - number / 64) as usize >= WORDS {
            // Its word is one of newer numbers now.
            return Arrival::Forgotten;
        }
        let (word, bit) = (number as usize / 64 % WORDS, 1 << (number % 64));
        if self.bits[word] & bit != 0 {
            return Arrival::Again;
        }
        self.bits[word] |= bit;
        Arrival::New
    }

    /// Makes `number` the highest one: words that come into the window are of older numbers yet.
    #[inline(always)]
    fn advance(&mut self, number: u32) {
        let (from, to) = (self.end.div_ceil(64), number / 64);
        if from <= to {
            for word in from..=to.min(from.saturating_add(WORDS as u32 - 1)) {
                self.bits[word as usize % WORDS] = 0;
            }
        }
        self.end = number.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// The same as a set, but for what is too old.
        #[test]
        fn it_is_a_set(
            steps in prop::collection::vec(
                prop_oneof![9 => -200i64..300, 1 => -2_500_000i64..2_500_000], 1..400),
        ) {
            let (mut window, mut seen) = (Window::new(), HashSet::new());
            let (mut at, mut highest) = (0i64, -1i64);
            for step in steps {
                at = (at + step).max(0);
                let arrival = window.arrived(at as u32);
                highest = highest.max(at);
                let expected = match highest / 64 - at / 64 < WORDS as i64 {
                    true if seen.insert(at) => Arrival::New,
                    true => Arrival::Again,
                    false => Arrival::Forgotten,
                };
                prop_assert_eq!(arrival, expected, "{} of {}", at, highest);
            }
        }
    }

    #[test]
    fn a_number_counts_once() {
        let mut window = Window::new();
        let all: Vec<_> =
            [0, 5, 3, 5, 0, 7_000_000, 6_999_999, 3].map(|number| window.arrived(number)).to_vec();
        use Arrival::{Again, Forgotten, New};
        assert_eq!(all, [New, New, New, Again, Again, New, New, Forgotten]);
    }
}
