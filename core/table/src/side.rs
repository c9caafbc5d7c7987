//! An array beside a slab: what an entry of a slab has that its slot has no room for.
//!
//! Slots are read for each packet and have a fixed size; what a feature needs once in a session's
//! life lies here, under the same id, and costs the slots nothing. An array may be absent: then it
//! takes no memory, entries read as zero, and what is written is lost. Entries outlive their slot:
//! whoever fills one resets it.

use crate::region::{PagePolicy, Region, RegionError};
use bytemuck::Zeroable;

/// An entry for each id of a slab, or none.
pub struct SideArray<T: Zeroable + Copy>(Option<Region<T>>);

impl<T: Zeroable + Copy> SideArray<T> {
    /// No array.
    pub const fn absent() -> Self {
        Self(None)
    }

    /// With zeroed entries for a slab of `capacity` slots. Memory is taken as entries are written.
    pub fn new(capacity: u32, policy: PagePolicy) -> Result<Self, RegionError> {
        Ok(Self(Some(Region::new(capacity as usize, policy)?)))
    }

    /// The entry of an id; zero where there is no array.
    #[inline(always)]
    pub fn get(&self, id: u32) -> T {
        let entry = self.0.as_ref().and_then(|entries| entries.get(id as usize));
        entry.copied().unwrap_or_else(T::zeroed)
    }

    /// The entry of an id, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.0.as_mut()?.get_mut(id as usize)
    }

    /// Writes the entry of an id.
    #[inline(always)]
    pub fn set(&mut self, id: u32, value: T) {
        if let Some(entry) = self.get_mut(id) {
            *entry = value;
        }
    }

    /// Bytes of address space that the array takes.
    pub fn mapped_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Region::mapped_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_zero_until_they_are_written() {
        let mut side = SideArray::<u64>::new(100, PagePolicy::Ordinary).unwrap();
        assert_eq!((side.get(0), side.get(99)), (0, 0));
        side.set(99, 7);
        *side.get_mut(0).unwrap() += 1;
        assert_eq!((side.get(0), side.get(98), side.get(99)), (1, 0, 7));
        assert!(side.mapped_bytes() >= 800);
    }

    #[test]
    fn an_absent_one_takes_nothing_and_keeps_nothing() {
        let mut side = SideArray::<u64>::absent();
        side.set(3, 7);
        assert!(side.get_mut(3).is_none());
        assert_eq!((side.get(3), side.mapped_bytes()), (0, 0));
    }
}
