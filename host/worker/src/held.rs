//! Frames that wait for a neighbour to be resolved: a bounded queue, first in, first out.

use sluice_director::fib::LinkId;
use sluice_director::path::Waiting;
use std::collections::VecDeque;
use std::net::IpAddr;

/// How long a frame may wait. The kernel gives up on a neighbour after three probes, a second
/// apart.
const PATIENCE_MS: u64 = 3000;
/// How often the kernel is asked again for the same neighbour.
const ASK_AGAIN_MS: u64 = 500;
/// The most frames that wait for one neighbour, so that a dead one cannot take all places.
const PER_NEIGHBOUR: usize = 64;

/// A neighbour that is wanted.
pub(crate) type Wanted = (LinkId, IpAddr);

/// A frame that is complete but for its link-layer header.
pub(crate) struct Held<F> {
    pub frame: F,
    pub waiting: Waiting,
    since_ms: u64,
}

impl<F> Held<F> {
    const fn wanted(&self) -> Wanted {
        wanted(&self.waiting)
    }
}

/// The neighbour that a frame waits for.
pub(crate) const fn wanted(waiting: &Waiting) -> Wanted {
    (waiting.link, waiting.next)
}

/// The frames that wait, and when each neighbour was last asked for.
pub(crate) struct HeldFrames<F> {
    frames: VecDeque<Held<F>>,
    asked: Vec<(Wanted, u64)>,
    limit: usize,
}

impl<F> HeldFrames<F> {
    pub fn new(limit: usize) -> Self {
        Self { frames: VecDeque::with_capacity(limit), asked: Vec::new(), limit }
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Holds a frame. Gives it back when there is no place.
    pub fn hold(&mut self, frame: F, waiting: Waiting, now_ms: u64) -> Result<(), F> {
        let wanted = wanted(&waiting);
        let same = self.frames.iter().filter(|held| held.wanted() == wanted).count();
        if self.frames.len() >= self.limit || same >= PER_NEIGHBOUR {
            return Err(frame);
        }
        self.frames.push_back(Held { frame, waiting, since_ms: now_ms });
        Ok(())
    }

    /// Whether the kernel shall be asked for a neighbour now: not when it just was.
    pub fn ask(&mut self, wanted: Wanted, now_ms: u64) -> bool {
        self.asked.retain(|(_, at)| now_ms.saturating_sub(*at) < ASK_AGAIN_MS);
        if self.asked.iter().any(|(asked, _)| *asked == wanted) || self.asked.len() >= self.limit {
            return false;
        }
        self.asked.push((wanted, now_ms));
        true
    }

    /// Neighbours that frames wait for and that shall be asked for again.
    pub fn overdue(&mut self, now_ms: u64) -> Vec<Wanted> {
        let mut wanted: Vec<_> = self.frames.iter().map(Held::wanted).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|wanted| self.ask(*wanted, now_ms));
        wanted
    }

    /// Takes all frames out, to try them again; [`HeldFrames::put_back`] returns those that must
    /// go on waiting.
    pub fn take(&mut self) -> VecDeque<Held<F>> {
        std::mem::take(&mut self.frames)
    }

    /// See [`HeldFrames::take`].
    pub fn put_back(&mut self, frames: VecDeque<Held<F>>) {
        self.frames = frames;
    }

    /// Takes out a frame that has waited too long.
    pub fn give_up(&mut self, now_ms: u64) -> Option<F> {
        let first = self.frames.front()?;
        if now_ms.saturating_sub(first.since_ms) < PATIENCE_MS {
            return None;
        }
        self.frames.pop_front().map(|held| held.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(last: u8) -> Wanted {
        (LinkId(0), [192, 0, 2, last].into())
    }

    fn waiting(last: u8) -> Waiting {
        let (link, next) = wanted(last);
        Waiting { lane: 0, link, next, cut: None }
    }

    #[test]
    fn places_are_bounded_for_all_and_for_each() {
        let mut held = HeldFrames::new(100);
        let of = |held: &mut HeldFrames<u32>, last, count| {
            (0..count).filter(|n| held.hold(*n, waiting(last), 0).is_ok()).count()
        };
        assert_eq!(of(&mut held, 1, 80), PER_NEIGHBOUR);
        assert_eq!(of(&mut held, 2, 80), 100 - PER_NEIGHBOUR);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut held = HeldFrames::new(10);
        held.hold('a', waiting(1), 0).unwrap();
        held.hold('b', waiting(1), 1000).unwrap();
        assert_eq!(held.give_up(2999), None);
        assert_eq!(held.give_up(3000), Some('a'));
        assert_eq!(held.give_up(3000), None);
    }

    #[test]
    fn the_kernel_is_not_asked_too_often() {
        let mut held = HeldFrames::<()>::new(10);
        assert!(held.ask(wanted(1), 0));
        assert!(!held.ask(wanted(1), 499));
        assert!(held.ask(wanted(2), 499));
        held.hold((), waiting(1), 0).unwrap();
        assert_eq!(held.overdue(500), [wanted(1)]);
        assert!(held.overdue(600).is_empty());
    }
}
