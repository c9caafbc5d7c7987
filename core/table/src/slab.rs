//! Slots of one size, named by 32-bit ids, with the free ones chained through themselves.
//!
//! A free slot holds the id of the next free one where a used slot holds its data, so that the
//! chain costs no memory. Slots that were never used lie behind `fresh` and are not touched: a
//! table takes memory as it fills. A freed slot is the first to be used again, since it is the
//! one most likely still in the cache.

use crate::region::{PagePolicy, Pages, Region, RegionError};
use bytemuck::Zeroable;

/// No id.
pub const NONE: u32 = u32::MAX;

/// What a slab needs of its slots. All-zero bytes must be a vacant slot.
pub trait Slot: Zeroable + Copy {
    /// Whether the slot is free.
    fn is_vacant(&self) -> bool;
    /// Makes the slot free and stores `next`.
    fn vacate(&mut self, next: u32);
    /// What [`Slot::vacate`] stored.
    fn next(&self) -> u32;
}

/// A table of slots.
pub struct Slab<T: Slot> {
    slots: Region<T>,
    free: u32,
    fresh: u32,
    live: u32,
}

impl<T: Slot> Slab<T> {
    /// A slab of `capacity` slots, all free.
    pub fn new(capacity: u32, policy: PagePolicy) -> Result<Self, RegionError> {
        Ok(Self::over(Region::new(capacity as usize, policy)?))
    }

    /// A slab whose slots, all free, lie in memory that is all zero.
    pub const fn over(slots: Region<T>) -> Self {
        Self { slots, free: NONE, fresh: 0, live: 0 }
    }

    /// Takes a free slot and stores `value`, which must not be vacant. `None` when all are used.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        debug_assert!(!value.is_vacant());
        let id = if self.free != NONE {
            let id = self.free;
            self.free = self.slots[id as usize].next();
            id
        } else if (self.fresh as usize) < self.slots.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.slots[id as usize] = value;
        self.live += 1;
        Some(id)
    }

    /// Frees a used slot and gives what it held. `None` when it is free already.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let slot = self.slots.get_mut(id as usize).filter(|slot| !slot.is_vacant())?;
        let value = *slot;
        slot.vacate(self.free);
        self.free = id;
        self.live -= 1;
        Some(value)
    }

    /// The slot that the next [`Slab::insert`] will use, to prefetch it.
    pub fn next_slot(&self) -> Option<&T> {
        let id = if self.free == NONE { self.fresh } else { self.free };
        self.slots.get(id as usize)
    }

    /// All slots, used or free.
    #[inline(always)]
    pub fn slots(&self) -> &[T] {
        &self.slots
    }

    /// The same, writable.
    #[inline(always)]
    pub fn slots_mut(&mut self) -> &mut [T] {
        &mut self.slots
    }

    /// A slot, used or free.
    ///
    /// # Panics
    /// When `id` is beyond the capacity.
    #[inline(always)]
    pub fn at(&self, id: u32) -> &T {
        &self.slots[id as usize]
    }

    /// A slot, used or free; `None` beyond the capacity.
    #[inline(always)]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)
    }

    /// A slot, used or free, writable.
    ///
    /// # Panics
    /// When `id` is beyond the capacity.
    #[inline(always)]
    pub fn at_mut(&mut self, id: u32) -> &mut T {
        &mut self.slots[id as usize]
    }

    /// Slots in use.
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Slots that have ever been used: ids are below this.
    pub const fn touched(&self) -> u32 {
        self.fresh
    }

    /// All slots.
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The pages that the slots lie in.
    pub const fn pages(&self) -> Pages {
        self.slots.pages()
    }

    /// Bytes of address space that the slots take.
    pub const fn mapped_bytes(&self) -> usize {
        self.slots.mapped_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Zeroable)]
    struct Item {
        used: u32,
        value: u32,
    }

    impl Slot for Item {
        fn is_vacant(&self) -> bool {
            self.used == 0
        }
        fn vacate(&mut self, next: u32) {
            *self = Self { used: 0, value: next };
        }
        fn next(&self) -> u32 {
            self.value
        }
    }

    proptest! {
        /// A slab is a map from ids that it hands out itself.
        #[test]
        fn behaves_like_a_map(ops in proptest::collection::vec((any::<bool>(), 0u32..12), 1..300)) {
            let mut slab = Slab::<Item>::new(8, PagePolicy::Ordinary).unwrap();
            let mut model = BTreeMap::new();
            for (step, (insert, id)) in ops.into_iter().enumerate() {
                if insert {
                    let item = Item { used: 1, value: step as u32 };
                    match slab.insert(item) {
                        Some(id) => prop_assert_eq!(model.insert(id, item), None),
                        None => prop_assert_eq!(model.len(), 8),
                    }
                } else {
                    prop_assert_eq!(slab.remove(id), model.remove(&id));
                }
                prop_assert_eq!(slab.live() as usize, model.len());
                for (id, item) in &model {
                    prop_assert_eq!(slab.at(*id), item);
                }
            }
        }
    }
}
