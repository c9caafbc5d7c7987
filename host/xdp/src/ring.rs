//! The rings between a socket and the kernel, each with one producer and one consumer.
//!
//! Invariant: a ring's pointers lie in its mapping, which lives as long as the ring (checked by
//! [`Ring::new`]). Our own index is private; the kernel's is read with acquire, and what it can say
//! is bounded by the ring: one that is further away counts as nothing there. Entries are written
//! before our index is stored with release.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::Mapping;

/// A place in a ring of packets: `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset in packet memory.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// [`CONTINUES`].
    pub options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == 16);

/// The packet goes on in the next descriptor.
pub const CONTINUES: u32 = libc::XDP_PKT_CONTD;

/// A mapped ring of entries that are plain numbers.
#[derive(Debug)]
struct Ring<T> {
    map: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(map: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let at = |offset: u64| offset as usize;
        let entries = at(offsets.desc);
        let fits = |from: usize, bytes: usize, align: usize| {
            from.is_multiple_of(align)
                && from.checked_add(bytes).is_some_and(|end| end <= map.len())
        };
        let counters = [at(offsets.producer), at(offsets.consumer), at(offsets.flags)];
        let whole = counters.iter().all(|offset| fits(*offset, 4, 4))
            && fits(entries, size as usize * size_of::<T>(), align_of::<T>());
        if !whole || !size.is_power_of_two() {
            return Err(io::Error::other("the kernel's ring does not fit its mapping"));
        }
        let [producer, consumer, flags] = counters;
        Ok(Self { map, producer, consumer, flags, entries, size, kind: PhantomData })
    }

    #[inline]
    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned and inside the mapping (`new`), only ever changed atomically.
        unsafe { &*self.map.start().add(offset).cast::<AtomicU32>() }
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: all entries are inside the mapping (`new`), and the slot is below the size.
        unsafe { self.map.start().add(self.entries).cast::<T>().add(slot) }
    }

    #[inline]
    fn wants_wakeup(&self) -> bool {
        self.counter(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we write: the fill or the transmit ring.
#[derive(Debug)]
pub struct Producer<T> {
    ring: Ring<T>,
    next: u32,
    /// The kernel's index when it was last looked at.
    seen: u32,
}

impl<T: Copy> Producer<T> {
    pub fn new(map: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(map, offsets, size)?;
        let next = ring.counter(ring.producer).load(Ordering::Acquire);
        let seen = ring.counter(ring.consumer).load(Ordering::Acquire);
        Ok(Self { ring, next, seen })
    }

    /// Entries that the kernel has not taken yet, looked at anew.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        self.seen = self.ring.counter(self.ring.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.seen)
    }

    /// How many entries there is room for, at least `wanted` if that many are free.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let known = self.ring.size.saturating_sub(self.next.wrapping_sub(self.seen));
        if known >= wanted {
            return known;
        }
        self.ring.size.saturating_sub(self.waiting())
    }

    /// Writes the entry `ahead` places behind those that were submitted; below [`Self::room`].
    #[inline]
    pub fn put(&mut self, ahead: u32, value: T) {
        // SAFETY: a slot inside the mapping; the kernel does not read it before it is submitted.
        unsafe { self.ring.entry(self.next.wrapping_add(ahead)).write(value) };
    }

    /// Hands over so many entries.
    #[inline]
    pub fn submit(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.ring.counter(self.ring.producer).store(self.next, Ordering::Release);
    }

    /// Whether the kernel looks at the ring only when it is told to.
    #[inline]
    pub fn wants_wakeup(&self) -> bool {
        self.ring.wants_wakeup()
    }
}

/// A ring that the kernel writes: the receive or the completion ring.
#[derive(Debug)]
pub struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
    seen: u32,
}

impl<T: Copy> Consumer<T> {
    pub fn new(map: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(map, offsets, size)?;
        let next = ring.counter(ring.consumer).load(Ordering::Acquire);
        Ok(Self { ring, next, seen: next })
    }

    /// Entries of the ring.
    pub fn size(&self) -> u32 {
        self.ring.size
    }

    /// How many entries wait, `most` at most.
    #[inline]
    pub fn available(&mut self, most: u32) -> u32 {
        let known = self.seen.wrapping_sub(self.next);
        if known >= most {
            return most;
        }
        let seen = self.ring.counter(self.ring.producer).load(Ordering::Acquire);
        if seen.wrapping_sub(self.next) > self.ring.size {
            return known;
        }
        self.seen = seen;
        self.seen.wrapping_sub(self.next).min(most)
    }

    /// Reads the entry `ahead` places behind those that were released; below
    /// [`Self::available`].
    #[inline]
    pub fn get(&self, ahead: u32) -> T {
        // SAFETY: a slot inside the mapping, which the kernel has written and does not write again
        // before it is released. Entries are plain numbers: any bits are valid.
        unsafe { self.ring.entry(self.next.wrapping_add(ahead)).read() }
    }

    /// Gives so many entries back.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.ring.counter(self.ring.consumer).store(self.next, Ordering::Release);
    }
}
