//! Round robin: one after the other, whatever their weights (as IPVS's `rr`).

use crate::plan::RealId;

/// The next of `eligible`; `cursor` is the position to begin at.
pub(super) fn pick(eligible: &[RealId], cursor: &mut u32) -> Option<RealId> {
    let at = if (*cursor as usize) < eligible.len() { *cursor } else { 0 };
    let real = eligible.get(at as usize)?;
    *cursor = at + 1;
    Some(*real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other() {
        let reals = [RealId(5), RealId(6), RealId(7)];
        let mut cursor = 0;
        let mut pick = |reals: &[RealId]| pick(reals, &mut cursor).map(|r| r.0);
        let picked: Vec<_> = (0..5).map(|_| pick(&reals)).collect();
        assert_eq!(picked, [Some(5), Some(6), Some(7), Some(5), Some(6)]);
        assert_eq!(pick(&reals[..1]), Some(5), "a shorter list does not confuse it");
        assert_eq!(pick(&[]), None);
    }
}
