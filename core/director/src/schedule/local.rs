//! `lblc` and `lblcr`: sessions to one destination go to the real server, or to few of them, that
//! had those before, as long as that is not overloaded: for caches, which hold each thing once.
//!
//! IPVS keeps a table of destinations, since its services of a firewall mark may have many. A
//! service here has one, its virtual address, so that each service has one entry: `lblc` is a
//! real server that is stayed with, `lblcr` a set of them that grows under load and shrinks again.
//! Overloaded is who has more open sessions than its weight while another has less than half of
//! its own; since the one with the least for its weight is always known, that takes no search.

use super::Share;
use super::lc::Least;
use super::positions::Positions;
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::{FULL_STEP, Seat};

/// Milliseconds after which an entry that nobody used is forgotten, and after which a set that
/// did not change loses its most loaded member (IPVS: `lblc_expiration`, `lblcr_expiration`).
pub(super) const EXPIRES_MS: u64 = 24 * 3600 * 1000;

/// Real servers of a service, and those that its sessions go to: one, or, where it replicates,
/// several.
#[derive(Clone, Debug)]
pub(super) struct Local<const REPLICATES: bool> {
    /// Everybody.
    all: Least,
    /// The same structure, in which those who are no members have no weight.
    set: Least,
    members: Positions,
    count: u32,
    /// When members changed, and when the last session came, in milliseconds.
    changed: u64,
    used: u64,
    share: Share,
}

/// Locality-based least sessions.
pub(super) type Lblc = Local<false>;
/// The same with replication.
pub(super) type Lblcr = Local<true>;

impl<const REPLICATES: bool> Scheduler for Local<REPLICATES> {
    const COUNTS: bool = true;

    fn adopt(known: Option<Self>, to: &Change<'_>) -> Self {
        match known {
            Some(known) if to.same => known,
            Some(known) => Self::new(to).after(&known, to.origins),
            None => Self::new(to),
        }
    }

    #[inline]
    fn set(&mut self, position: u32, seat: &Seat) {
        let weight = seat.weight_now();
        self.all.set(position, seat.active, weight);
        if self.members.contains(position) {
            self.set.set(position, seat.active, weight);
        }
    }

    #[inline]
    fn pick(&mut self, ask: Ask<'_>) -> Option<u32> {
        let now = ask.now;
        if now.saturating_sub(self.used) > EXPIRES_MS {
            self.clear();
        }
        self.used = now;
        let best = self.set.least();
        if self.count > 1 && now.saturating_sub(self.changed) > EXPIRES_MS {
            self.shrink(best);
            self.changed = now;
        }
        if best.is_some_and(|best| !self.is_overloaded(best)) {
            return self.set.pick();
        }
        let best = self.all.pick()?;
        if !self.members.contains(best) {
            if !REPLICATES {
                self.clear();
            }
            self.insert(best);
            self.changed = now;
        }
        Some(best)
    }

    fn left(&mut self, position: u32) -> Option<u64> {
        self.all.left(position)
    }
}

impl<const REPLICATES: bool> Local<REPLICATES> {
    /// With nobody chosen yet.
    fn new(to: &Change<'_>) -> Self {
        let count = to.seats.len();
        Self {
            all: Least::adopt(to, true),
            set: Least::new(&vec![(0, 0, None); count], to.share),
            members: Positions::new(count as u32),
            count: 0,
            changed: 0,
            used: 0,
            share: to.share,
        }
    }

    /// The same with those of the members of an earlier one that are still there, by where each
    /// real server was.
    #[must_use]
    fn after(mut self, before: &Self, origins: &[Option<u32>]) -> Self {
        (self.changed, self.used) = (before.changed, before.used);
        for (position, origin) in (0u32..).zip(origins) {
            if origin.is_some_and(|origin| before.members.contains(origin)) {
                self.insert(position);
            }
        }
        self
    }

    /// Whether a real server has more sessions than its weight, and another one less than half of
    /// its own. A worker knows its own sessions, of which all have about as many.
    #[inline]
    fn is_overloaded(&mut self, position: u32) -> bool {
        // Weights are in sixteenths.
        let factor = u64::from(self.share.workers) * u64::from(FULL_STEP);
        let least = self.all.least();
        let load = |at: u32| {
            let (active, weight) = self.all.load(at).unwrap_or_default();
            (u64::from(active) * factor, u64::from(weight))
        };
        let (active, weight) = load(position);
        let (least_active, least_weight) = least.map_or((0, 0), load);
        active > weight && 2 * least_active < least_weight
    }

    fn insert(&mut self, position: u32) {
        let (active, weight) = self.all.load(position).unwrap_or_default();
        self.members.set(position, true);
        self.set.set(position, active, weight);
        self.count += 1;
    }

    fn remove(&mut self, position: u32) {
        self.members.set(position, false);
        self.set.set(position, 0, 0);
        self.count -= 1;
    }

    fn clear(&mut self) {
        while let Some(position) = self.members.next(0) {
            self.remove(position);
        }
    }

    /// Takes the member with the most sessions for its weight out, but not this one. Goes through
    /// all members, once in [`EXPIRES_MS`].
    #[cold]
    fn shrink(&mut self, but: Option<u32>) {
        let (mut most, mut from) = (None::<(u32, u64, u64)>, 0);
        while let Some(position) = self.members.next(from) {
            from = position + 1;
            let (active, weight) = self.all.load(position).unwrap_or_default();
            let (active, weight) = (u64::from(active), u64::from(weight));
            let more = most.is_none_or(|(_, a, w)| active * w > a * weight);
            if more && weight > 0 && Some(position) != but {
                most = Some((position, active, weight));
            }
        }
        if let Some((position, ..)) = most {
            self.remove(position);
        }
    }
}
