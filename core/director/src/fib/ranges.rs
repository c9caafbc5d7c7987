//! Longest-prefix match as a search over ranges: nested prefixes are cut into ranges that do not
//! overlap, each with what the longest prefix around it leads to. A search takes the logarithm of
//! their number in steps, a few instructions each, and no pointers; the table is made afresh when
//! a route changes.

/// An address as a number.
pub(crate) trait Bits: Copy + Ord {
    const ZERO: Self;

    /// The last address of the prefix of `len` bits that begins here; and the first, whatever the
    /// bits behind it are.
    fn prefix(self, len: u8) -> (Self, Self);

    /// The next address, if there is one.
    fn next(self) -> Option<Self>;
}

macro_rules! bits {
    ($bits:ty) => {
        impl Bits for $bits {
            const ZERO: Self = 0;

            fn prefix(self, len: u8) -> (Self, Self) {
                let free = Self::BITS.saturating_sub(u32::from(len));
                let host = Self::MAX.checked_shr(Self::BITS - free).unwrap_or(0);
                (self & !host, self | host)
            }

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
        }
    };
}

bits!(u32);
bits!(u128);

/// What addresses lead to.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<A, T> {
    /// Where ranges begin; each goes on to the next, the last to the end.
    starts: Vec<A>,
    targets: Vec<Option<T>>,
}

impl<A: Bits, T: Copy + PartialEq> Default for Ranges<A, T> {
    fn default() -> Self {
        Self { starts: vec![A::ZERO], targets: vec![None] }
    }
}

impl<A: Bits, T: Copy + PartialEq> Ranges<A, T> {
    /// Of prefixes and what they lead to; of two for one prefix the first counts.
    pub fn of(routes: impl Iterator<Item = (A, u8, T)>) -> Self {
        let mut all: Vec<_> = routes
            .map(|(address, len, target)| {
                let (first, last) = address.prefix(len);
                (first, last, target)
            })
            .collect();
        // What is around others comes before them; the order of equals stays.
        all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        all.dedup_by(|later, first| (later.0, later.1) == (first.0, first.1));
        let mut ranges = Self::default();
        let mut around: Vec<(A, T)> = Vec::new();
        for (first, last, target) in all {
            ranges.leave(&mut around, |end| end < first);
            ranges.begin(first, Some(target));
            around.push((last, target));
        }
        ranges.leave(&mut around, |_| true);
        ranges
    }

    /// Ends the innermost prefixes as long as `ended` says so.
    fn leave(&mut self, around: &mut Vec<(A, T)>, ended: impl Fn(A) -> bool) {
        while let Some((last, _)) = around.pop_if(|(last, _)| ended(*last)) {
            if let Some(next) = last.next() {
                self.begin(next, around.last().map(|(_, target)| *target));
            }
        }
    }

    fn begin(&mut self, start: A, target: Option<T>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.targets.pop();
        }
        if self.targets.last() != Some(&target) {
            self.starts.push(start);
            self.targets.push(target);
        }
    }

    /// What the longest prefix around an address leads to.
    #[inline]
    pub fn get(&self, address: A) -> Option<&T> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.targets.get(behind.wrapping_sub(1))?.as_ref()
    }

    /// The same, sooner if it is the range that was found last: `near` says which, and need not be
    /// right.
    #[inline(always)]
    pub fn get_near(&self, address: A, near: &mut u32) -> Option<&T> {
        let at = *near as usize;
        let begins = self.starts.get(at).is_some_and(|start| *start <= address);
        if !begins || self.starts.get(at + 1).is_some_and(|next| *next <= address) {
            let behind = self.starts.partition_point(|start| *start <= address);
            *near = behind.wrapping_sub(1) as u32;
        }
        self.targets.get(*near as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn longest(routes: &[(u32, u8, u16)], address: u32) -> Option<u16> {
        let around = routes.iter().filter(|(prefix, len, _)| {
            let free = 32 - u32::from(*len);
            (u64::from(*prefix) >> free) == (u64::from(address) >> free)
        });
        // Of equals the first.
        around.rev().max_by_key(|(_, len, _)| *len).map(|(.., target)| *target)
    }

    proptest! {
        #[test]
        fn the_longest_prefix_counts(
            routes in prop::collection::vec((any::<u32>(), 0u8..=32, 0u16..5), 0..40),
            near in prop::collection::vec((any::<prop::sample::Index>(), -2i64..3), 1..40),
            far in prop::collection::vec(any::<u32>(), 1..10),
        ) {
            let (ranges, mut last) = (Ranges::of(routes.iter().copied()), 0);
            let edges = near.iter().filter(|_| !routes.is_empty()).flat_map(|(at, by)| {
                let (prefix, len, _) = routes[at.index(routes.len())];
                let (first, last) = prefix.prefix(len);
                [first, last].map(|edge| edge.wrapping_add(*by as u32))
            });
            for address in edges.chain(far.iter().copied()).chain([0, u32::MAX]) {
                let found = ranges.get(address).copied();
                prop_assert_eq!(found, longest(&routes, address), "{:#x}", address);
                for near in [last, 0, u32::MAX] {
                    last = near;
                    prop_assert_eq!(ranges.get_near(address, &mut last).copied(), found);
                }
            }
            prop_assert!(ranges.starts.is_sorted() && ranges.starts[0] == 0);
        }
    }

    #[test]
    fn all_of_an_address_is_looked_at() {
        let net = 0x2001_0db8_u128 << 96;
        let routes = [(net, 32, 'a'), (net | 7, 128, 'b'), (u128::MAX, 127, 'c')];
        let ranges = Ranges::of(routes.into_iter());
        let found = [6, 7, 8].map(|host| ranges.get(net | host).copied());
        assert_eq!(found, [Some('a'), Some('b'), Some('a')]);
        assert_eq!(ranges.get(net - 1), None);
        assert_eq!([u128::MAX, u128::MAX - 2].map(|at| ranges.get(at)), [Some(&'c'), None]);
        assert_eq!(Ranges::<u128, char>::default().get(0), None);
    }
}
