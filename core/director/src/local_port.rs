//! Choosing a local address and port for a new FNAT session, so that no 5-tuple is used twice.
//!
//! There is no table of free ports: the session index itself knows whether the tuple that the real
//! server would answer to is taken, so bookkeeping costs no memory, and the same local port serves
//! as many sessions as there are real servers. Each worker has its own share of every pool's
//! ports, and walks through it in order for each real server, so that a port rests for as long as
//! possible before it is used again (the real server may still hold the old connection in
//! TIME_WAIT).

use crate::plan::LocalId;

/// Combinations that are looked at before the pool counts as exhausted. With nine tenths of a
/// pool in use and no order in it, 256 looks fail once in 10¹¹ times.
const LOOKS: u32 = 256;

/// What a walk goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    /// Local addresses of the real server's family.
    pub locals: &'a [LocalId],
    /// The pool's first port.
    pub first_port: u16,
    /// Which of its ports: the offset of the first, and how many.
    pub share: (u32, u32),
}

impl Range<'_> {
    /// Finds a free combination. `cursor` is where the walk for this real server stopped; `active`
    /// is how many sessions the real server has at this worker; `is_free` says whether a
    /// combination is unused. `None` when the pool is exhausted.
    pub fn choose(
        &self,
        cursor: &mut u32,
        active: u64,
        mut is_free: impl FnMut(LocalId, u16) -> bool,
    ) -> Option<(LocalId, u16)> {
        let combinations = self.combinations();
        if combinations == 0 || active >= u64::from(combinations) {
            return None;
        }
        for _ in 0..LOOKS.min(combinations) {
            let (local, port) = self.next(*cursor)?;
            *cursor = if *cursor < combinations { *cursor + 1 } else { 1 };
            if is_free(local, port) {
                return Some((local, port));
            }
        }
        None
    }

    /// How many combinations of an address and a port there are.
    fn combinations(&self) -> u32 {
        self.share.1 * self.locals.len() as u32
    }

    /// The combination that [`Self::choose`] will look at first when it comes with this `cursor`;
    /// `None` when there are none.
    pub fn next(&self, cursor: u32) -> Option<(LocalId, u16)> {
        let addresses = self.locals.len() as u32;
        let at = if cursor < self.combinations() { cursor } else { 0 };
        let local = *self.locals.get(at.checked_rem(addresses)? as usize)?;
        Some((local, self.first_port + (self.share.0 + at / addresses) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LOCALS: [LocalId; 2] = [LocalId(3), LocalId(4)];

    const fn range(share: (u32, u32)) -> Range<'static> {
        Range { locals: &LOCALS, first_port: 65_533, share }
    }

    #[test]
    fn every_combination_once_and_then_none() {
        let (mut used, mut cursor) = (HashSet::new(), 0);
        let mut next = |used: &HashSet<_>| {
            let active = used.len() as u64;
            range((0, 3)).choose(&mut cursor, active, |l, p| !used.contains(&(l, p)))
        };
        while let Some(found) = next(&used) {
            assert!(used.insert(found), "{found:?} twice");
        }
        assert_eq!(used.len(), 6);
        used.remove(&(LocalId(3), 65_535));
        assert_eq!(next(&used), Some((LocalId(3), 65_535)), "a freed one is found again");
    }

    #[test]
    fn addresses_first_then_ports() {
        let mut cursor = 0;
        let mut next = || range((0, 3)).choose(&mut cursor, 0, |_, _| true).unwrap();
        assert_eq!(next(), (LocalId(3), 65_533));
        assert_eq!(next(), (LocalId(4), 65_533));
        assert_eq!(next(), (LocalId(3), 65_534));
    }

    #[test]
    fn no_addresses_no_ports() {
        let none = Range { locals: &[], ..range((0, 3)) };
        assert_eq!(none.choose(&mut 0, 0, |_, _| true), None);
        assert_eq!(none.next(0), None);
        assert_eq!(range((3, 0)).choose(&mut 0, 0, |_, _| true), None);
    }
}
