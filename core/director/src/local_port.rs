//! Choosing a local address and port for a new FNAT session, so that no 5-tuple is used twice.
//!
//! There is no table of free ports: the session index itself knows whether the tuple that the real
//! server would answer to is taken, so bookkeeping costs no memory, and the same local port serves
//! as many sessions as there are real servers. Each worker has its own share of every pool's
//! ports, and walks through it in order for each real server, so that a port rests for as long as
//! possible before it is used again (the real server may still hold the old connection in
//! TIME_WAIT).

use crate::plan::{LocalId, Pool};

/// Combinations that are looked at before the pool counts as exhausted. With nine tenths of a
/// pool in use and no order in it, 256 looks fail once in 10¹¹ times.
const LOOKS: u32 = 256;

/// Finds a free combination. `cursor` is where the walk for this real server stopped; `active` is
/// how many sessions the real server has at this worker; `is_free` says whether a combination is
/// unused. `None` when the pool is exhausted.
pub(crate) fn choose(
    pool: &Pool,
    (worker, workers): (u16, u16),
    cursor: &mut u32,
    active: u64,
    mut is_free: impl FnMut(LocalId, u16) -> bool,
) -> Option<(LocalId, u16)> {
    let combinations = combinations(pool, (worker, workers));
    if combinations == 0 || active >= u64::from(combinations) {
        return None;
    }
    for _ in 0..LOOKS.min(combinations) {
        let (local, port) = next(pool, (worker, workers), *cursor)?;
        *cursor = if *cursor < combinations { *cursor + 1 } else { 1 };
        if is_free(local, port) {
            return Some((local, port));
        }
    }
    None
}

/// How many combinations of an address and a port belong to a worker.
fn combinations(pool: &Pool, (worker, workers): (u16, u16)) -> u32 {
    pool.share(worker, workers).1 * pool.locals.len() as u32
}

/// The combination that [`choose`] will look at first when it comes with this `cursor`; `None`
/// when there are none.
pub(crate) fn next(
    pool: &Pool,
    (worker, workers): (u16, u16),
    cursor: u32,
) -> Option<(LocalId, u16)> {
    let (start, _) = pool.share(worker, workers);
    let addresses = pool.locals.len() as u32;
    let at = if cursor < combinations(pool, (worker, workers)) { cursor } else { 0 };
    let local = *pool.locals.get(at.checked_rem(addresses)? as usize)?;
    Some((local, pool.first_port + (start + at / addresses) as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn pool() -> Pool {
        let locals = vec![LocalId(3), LocalId(4)];
        Pool { name: String::new(), locals, first_port: 65_533, ports: 3 }
    }

    #[test]
    fn every_combination_once_and_then_none() {
        let (mut used, mut cursor) = (HashSet::new(), 0);
        let mut next = |used: &HashSet<_>| {
            choose(&pool(), (0, 1), &mut cursor, used.len() as u64, |l, p| !used.contains(&(l, p)))
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
        let mut next = || choose(&pool(), (0, 1), &mut cursor, 0, |_, _| true).unwrap();
        assert_eq!(next(), (LocalId(3), 65_533));
        assert_eq!(next(), (LocalId(4), 65_533));
        assert_eq!(next(), (LocalId(3), 65_534));
    }

    #[test]
    fn workers_do_not_meet() {
        let of = |worker| {
            let mut cursor = 0;
            let mut taken = HashSet::new();
            while let Some(found) =
                choose(&pool(), (worker, 2), &mut cursor, taken.len() as u64, |_, _| true)
            {
                taken.insert(found);
            }
            taken
        };
        assert!(of(0).is_disjoint(&of(1)));
        assert_eq!(of(0).len() + of(1).len(), 6);
    }
}
