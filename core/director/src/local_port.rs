//! Choosing a local address and port for a new session of FNAT or SNAT, so that no 5-tuple is used
//! twice.
//!
//! There is no table of free ports: the session index itself knows whether the tuple that the real
//! server would answer to is taken, so bookkeeping costs no memory, and the same local port serves
//! as many sessions as there are real servers. Each worker has its own share of every pool's
//! ports, and walks through it in order for each real server, so that a port rests for as long as
//! possible before it is used again (the real server may still hold the old connection in
//! TIME_WAIT).

use crate::plan::LocalId;

/// Combinations that are looked at before the pool counts as exhausted. With nine tenths of a
/// pool in use, 248 looks all over it fail once in 10¹¹ times.
const LOOKS: u32 = 256;
/// Of them, those in a row: behind them lie ports that were given out one after the other, and may
/// be held as long. The others are all over the pool.
const NEAR: u32 = 8;
/// Looks while the pool seems to be exhausted: enough for the walk to come around in time, few
/// enough that refusing costs little.
const DRY_LOOKS: u32 = 16;

/// Where the walk for a real server stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    at: u32,
    /// Whether the last looks were all in vain.
    dry: bool,
}

impl Walk {
    /// One that begins somewhere; beyond the last combination it goes on from the first.
    pub const fn beginning(at: u32) -> Self {
        Self { at, dry: false }
    }

    /// The same so many combinations further on.
    pub const fn ahead(self, by: u32) -> Self {
        Self { at: self.at.wrapping_add(by), ..self }
    }
}

/// What a walk goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    /// Local addresses of the real server's family.
    pub locals: &'a [LocalId],
    /// The pool's first port.
    pub first_port: u16,
    /// Which of its ports: the offset of the first, and how many.
    pub share: (u32, u32),
    /// [`inverse`] of the number of addresses.
    pub each: u64,
}

/// 2⁴⁸ divided by a number of addresses or ports, rounded up: a division for each packet, or each
/// session, takes its time.
pub(crate) const fn inverse(count: usize) -> u64 {
    match count as u64 {
        0 => 0,
        count => (1 << 48) / count + 1,
    }
}

impl Range<'_> {
    /// Finds a free combination; `is_free` says whether one is unused. `None` when there seems to
    /// be none.
    #[inline(always)]
    pub fn choose(
        &self,
        walk: &mut Walk,
        mut is_free: impl FnMut(LocalId, u16) -> bool,
    ) -> Option<(LocalId, u16)> {
        // Most often the first one is free.
        let (local, port) = self.next(*walk)?;
        if is_free(local, port) {
            *walk = Walk { at: self.within(walk.at) + 1, dry: false };
            return Some((local, port));
        }
        self.look_on(walk, &mut is_free)
    }

    /// The same after the first look.
    #[cold]
    fn look_on(
        &self,
        walk: &mut Walk,
        is_free: &mut dyn FnMut(LocalId, u16) -> bool,
    ) -> Option<(LocalId, u16)> {
        let combinations = self.combinations();
        let looks = if walk.dry { DRY_LOOKS } else { LOOKS };
        let near = if looks < combinations { NEAR } else { combinations };
        // By the golden ratio looks fall where there was none before.
        let far = ((u64::from(combinations) * 0x9e37_79b9) >> 32) as u32 | 1;
        let mut at = *walk;
        for look in 1..=looks.min(combinations) {
            let (local, port) = self.next(at)?;
            let passed = self.within(at.at);
            if look > 1 && is_free(local, port) {
                *walk = Walk { at: passed + 1, dry: false };
                return Some((local, port));
            }
            if look == near {
                *walk = Walk { at: passed + 1, dry: true };
            }
            let step = if look < near { 1 } else { far };
            let next = u64::from(passed) + u64::from(step);
            let all = u64::from(combinations);
            at.at = if next < all { next } else { next % all } as u32;
        }
        walk.dry = true;
        None
    }

    /// How many combinations of an address and a port there are.
    pub fn combinations(&self) -> u32 {
        self.share.1 * self.locals.len() as u32
    }

    /// The combination that [`Self::choose`] will look at first; `None` when there are none.
    pub fn next(&self, walk: Walk) -> Option<(LocalId, u16)> {
        let addresses = self.locals.len() as u32;
        if self.combinations() == 0 {
            return None;
        }
        let at = self.within(walk.at);
        // Exact: `at` is below 2¹⁶ times the addresses, and these are at most 2¹⁶.
        let port = ((u128::from(at) * u128::from(self.each)) >> 48) as u32;
        let local = *self.locals.get((at - port * addresses) as usize)?;
        Some((local, self.first_port + (self.share.0 + port) as u16))
    }

    /// A number modulo the combinations.
    #[inline(always)]
    fn within(&self, at: u32) -> u32 {
        let all = self.combinations();
        if at < all { at } else { at.checked_rem(all).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LOCALS: [LocalId; 2] = [LocalId(3), LocalId(4)];

    const fn range(share: (u32, u32)) -> Range<'static> {
        Range { first_port: 65_533, ..of(&LOCALS, share) }
    }

    const fn of(locals: &[LocalId], share: (u32, u32)) -> Range<'_> {
        Range { locals, first_port: 1024, share, each: inverse(locals.len()) }
    }

    #[test]
    fn every_combination_once_and_then_none() {
        let (mut used, mut walk) = (HashSet::new(), Walk::default());
        let mut next =
            |used: &HashSet<_>| range((0, 3)).choose(&mut walk, |l, p| !used.contains(&(l, p)));
        while let Some(found) = next(&used) {
            assert!(used.insert(found), "{found:?} twice");
        }
        assert_eq!(used.len(), 6);
        used.remove(&(LocalId(3), 65_535));
        assert_eq!(next(&used), Some((LocalId(3), 65_535)), "a freed one is found again");
    }

    #[test]
    fn addresses_first_then_ports() {
        let mut walk = Walk::default();
        let mut next = || range((0, 3)).choose(&mut walk, |_, _| true).unwrap();
        assert_eq!(next(), (LocalId(3), 65_533));
        assert_eq!(next(), (LocalId(4), 65_533));
        assert_eq!(next(), (LocalId(3), 65_534));
    }

    /// The product with the inverse is the quotient, up to the most addresses and the last port.
    #[test]
    fn every_combination_is_an_address_and_a_port() {
        for addresses in [1, 2, 3, 7, 10, 255, 4093, 65_535] {
            let locals: Vec<_> = (0..addresses).map(LocalId).collect();
            let range = Range { first_port: 0, ..of(&locals, (0, 65_535)) };
            let count = u32::from(addresses);
            let ports = [0, 1, 2, 32_767, 32_768, 65_533, 65_534];
            for (port, address) in ports.into_iter().flat_map(|port| {
                [0, 1, count / 2, count - 1].map(|address| (port, address.min(count - 1)))
            }) {
                let found = range.next(Walk::beginning(port * count + address));
                assert_eq!(found, Some((LocalId(address as u16), port as u16)), "{addresses}");
            }
        }
    }

    #[test]
    fn a_walk_may_begin_anywhere() {
        for begins in [0, 5, 6, 4_000_000_003] {
            let mut walk = Walk::beginning(begins);
            let first = range((0, 3)).choose(&mut walk, |_, _| true).unwrap();
            let expected = (LOCALS[begins as usize % 2], 65_533 + (begins % 6 / 2) as u16);
            assert_eq!(first, expected, "{begins}");
            let all: HashSet<_> =
                (0..6).filter_map(|_| range((0, 3)).choose(&mut walk, |_, _| true)).collect();
            assert_eq!(all.len(), 6);
        }
    }

    #[test]
    fn no_addresses_no_ports() {
        let none = Range { locals: &[], ..range((0, 3)) };
        assert_eq!(none.choose(&mut Walk::default(), |_, _| true), None);
        assert_eq!(none.next(Walk::default()), None);
        assert_eq!(range((3, 0)).choose(&mut Walk::default(), |_, _| true), None);
    }

    /// Ports that are held as long as they were given out in a row do not make the pool seem
    /// exhausted when the walk comes round.
    #[test]
    fn a_row_of_held_ports_is_passed_over() {
        let locals: Vec<_> = (0..10).map(LocalId).collect();
        let range = of(&locals, (0, 60_000));
        let held = |_: LocalId, port: u16| port < 1024 + 50_000;
        let mut walk = Walk::default();
        for _ in 0..1000 {
            let found = range.choose(&mut walk, |local, port| !held(local, port));
            assert!(found.is_some_and(|(local, port)| !held(local, port)));
            walk = Walk::default();
        }
    }

    /// An exhausted pool is refused cheaply, and a port that comes free anywhere is found soon.
    #[test]
    fn an_exhausted_pool_is_walked_in_small_steps() {
        let locals: Vec<_> = (0..10).map(LocalId).collect();
        let range = of(&locals, (0, 200));
        let mut walk = Walk::default();
        let mut looks = |free: Option<(LocalId, u16)>| {
            let mut count = 0;
            let found = range.choose(&mut walk, |local, port| {
                count += 1;
                free == Some((local, port))
            });
            (count, found)
        };
        assert_eq!(looks(None), (LOOKS, None));
        assert_eq!(looks(None), (DRY_LOOKS, None));
        let free = Some((LocalId(7), 1100));
        assert!((0..2000 / NEAR + 1).any(|_| looks(free).1 == free));
        assert_eq!(looks(None).0, LOOKS, "and then it looks around again");
    }
}
