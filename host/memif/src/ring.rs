//! A ring in shared memory: its header, its descriptors.
//!
//! Invariant: header and descriptors lie in a region that lives as long as the ring, at an address
//! that is a multiple of 8. Its size is kept here; the shared words are told and asked for nothing
//! but the peer's index, its flags, and what a descriptor says, each read once.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use crate::message::AddRing;
use crate::negotiation::{MAX_LOG2, Refused, refuse};
use crate::region::Region;

/// First word of a ring.
const COOKIE: u32 = 0x03e3_1f20;
/// Bytes before the descriptors.
const HEADER_BYTES: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: usize = 16;
/// Where the header has the flags, the head and the tail.
const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;
/// The consumer looks by itself and wants no interrupts.
const NO_INTERRUPT: u16 = 1;
/// The frame goes on in the next descriptor's buffer.
pub const NEXT: u16 = 1;

/// Bytes that a ring takes.
pub const fn ring_bytes(log2: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << log2)
}

/// One buffer, as a descriptor says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// [`NEXT`] or nothing.
    pub flags: u16,
    /// The region that it lies in.
    pub region: u16,
    /// Bytes of data, or of room.
    pub length: u32,
    /// Where it begins in the region.
    pub offset: u32,
}

/// A ring. Copies are of the same one.
#[derive(Clone, Debug)]
pub struct Ring {
    base: NonNull<u8>,
    mask: u16,
    /// Keeps the memory mapped.
    regions: Arc<[Region]>,
}

// SAFETY: the memory is shared with another process anyhow; all accesses are volatile or atomic.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Finds a ring in a peer's memory.
    pub fn find(regions: &Arc<[Region]>, at: AddRing) -> Result<Self, Refused> {
        let ring = Self::at(regions, at)?;
        // SAFETY: in the ring (the type's invariant) and aligned.
        let cookie = unsafe { ring.base.cast::<u32>().read_volatile() };
        if cookie != COOKIE {
            return refuse(format_args!("a ring begins with {cookie:#010x}"));
        }
        Ok(ring)
    }

    /// Makes a ring in our own memory, empty.
    pub fn make(regions: &Arc<[Region]>, at: AddRing) -> Result<Self, Refused> {
        let ring = Self::at(regions, at)?;
        // SAFETY: in the ring (the type's invariant) and aligned.
        unsafe { ring.base.cast::<u32>().write_volatile(COOKIE) };
        Ok(ring)
    }

    fn at(regions: &Arc<[Region]>, at: AddRing) -> Result<Self, Refused> {
        let Some(region) = regions.get(usize::from(at.region)) else {
            return refuse(format_args!("a ring in region {}, which there is not", at.region));
        };
        if at.log2 > MAX_LOG2 || !at.offset.is_multiple_of(8) {
            return refuse("a ring is too large or not aligned");
        }
        let Some(base) = region.at(at.offset, ring_bytes(at.log2) as u32).and_then(NonNull::new)
        else {
            return refuse("a ring is not in its region");
        };
        Ok(Self { base, mask: (1 << at.log2) - 1, regions: Arc::clone(regions) })
    }

    /// Descriptors.
    pub fn size(&self) -> u16 {
        self.mask + 1
    }

    /// The memory that descriptors name.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Which descriptor an index is.
    #[inline]
    pub fn slot(&self, index: u16) -> u16 {
        index & self.mask
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU16 {
        // SAFETY: in the ring's header (the type's invariant), even, and only ever accessed as an
        // atomic by this process.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The client's index, with what it did before it moved it.
    #[inline]
    pub fn head(&self) -> u16 {
        self.word(HEAD_AT).load(Ordering::Acquire)
    }

    /// The server's index, with what it did before it moved it.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.word(TAIL_AT).load(Ordering::Acquire)
    }

    /// Moves the client's index, after all that was done before.
    #[inline]
    pub fn set_head(&self, index: u16) {
        self.word(HEAD_AT).store(index, Ordering::Release);
    }

    /// Moves the server's index, after all that was done before.
    #[inline]
    pub fn set_tail(&self, index: u16) {
        self.word(TAIL_AT).store(index, Ordering::Release);
    }

    /// Says whether the consumer, which calls this, wants to be interrupted. What the producer
    /// moved until now is seen by who looks after it.
    pub fn want_interrupts(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        self.word(FLAGS_AT).store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the consumer wants to be interrupted. Called by the producer after it moved its
    /// index.
    #[inline]
    pub fn wants_interrupt(&self) -> bool {
        // Against [`Self::want_interrupts`]: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        self.word(FLAGS_AT).load(Ordering::Relaxed) & NO_INTERRUPT == 0
    }

    #[inline]
    fn words(&self, index: u16) -> *mut u64 {
        let at = HEADER_BYTES + usize::from(self.slot(index)) * DESCRIPTOR_BYTES;
        // SAFETY: a descriptor of the ring (the type's invariant).
        unsafe { self.base.as_ptr().add(at).cast() }
    }

    /// Where a descriptor lies, to be prefetched.
    #[inline]
    pub fn place(&self, index: u16) -> *const u8 {
        self.words(index).cast()
    }

    /// A copy of a descriptor.
    #[inline]
    pub fn descriptor(&self, index: u16) -> Descriptor {
        let words = self.words(index);
        // SAFETY: both words are of a descriptor of the ring, and aligned.
        let (first, second) = unsafe { (words.read_volatile(), words.add(1).read_volatile()) };
        if cfg!(target_endian = "little") {
            Descriptor {
                flags: first as u16,
                region: (first >> 16) as u16,
                length: (first >> 32) as u32,
                offset: second as u32,
            }
        } else {
            Descriptor {
                flags: (first >> 48) as u16,
                region: (first >> 32) as u16,
                length: first as u32,
                offset: (second >> 32) as u32,
            }
        }
    }

    /// Writes a descriptor.
    pub fn set_descriptor(&self, index: u16, to: Descriptor) {
        let offset = u64::from(to.offset);
        let second = if cfg!(target_endian = "little") { offset } else { offset << 32 };
        self.set_length(index, to);
        // SAFETY: the word is of a descriptor of the ring, and aligned.
        unsafe { self.words(index).add(1).write_volatile(second) };
    }

    /// Writes a descriptor but for its offset, which stays.
    #[inline]
    pub fn set_length(&self, index: u16, to: Descriptor) {
        let (flags, region) = (u64::from(to.flags), u64::from(to.region));
        let length = u64::from(to.length);
        let first = if cfg!(target_endian = "little") {
            flags | region << 16 | length << 32
        } else {
            flags << 48 | region << 32 | length
        };
        // SAFETY: the word is of a descriptor of the ring, and aligned.
        unsafe { self.words(index).write_volatile(first) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring_at(offset: u32, log2: u8, region: u16) -> AddRing {
        AddRing { to_server: true, index: 0, region, offset, log2, private_header: 0 }
    }

    #[test]
    fn a_ring_lies_in_its_region_or_is_refused() {
        let (region, _file) = Region::create(8192).unwrap();
        let regions: Arc<[Region]> = Arc::new([region]);
        assert!(Ring::make(&regions, ring_at(0, 8, 0)).is_ok());
        assert!(Ring::find(&regions, ring_at(0, 8, 0)).is_ok());
        for (at, why) in [
            (ring_at(0, 8, 1), "region 1"),
            (ring_at(0, 9, 0), "not in its region"),
            (ring_at(u32::MAX - 7, 8, 0), "not in its region"),
            (ring_at(4, 8, 0), "aligned"),
            (ring_at(0, 15, 0), "too large"),
            (ring_at(0, 255, 0), "too large"),
            (ring_at(64, 8, 0), "0x00000000"),
        ] {
            let refused = Ring::find(&regions, at).unwrap_err();
            assert!(refused.0.contains(why), "{refused}");
        }
    }

    #[test]
    fn words_lie_where_the_protocol_has_them() {
        let (region, _file) = Region::create(8192).unwrap();
        let base = region.at(0, 8192).unwrap();
        let regions: Arc<[Region]> = Arc::new([region]);
        let ring = Ring::make(&regions, ring_at(0, 8, 0)).unwrap();
        ring.set_head(0x0102);
        ring.set_tail(0x0304);
        ring.want_interrupts(false);
        assert!(!ring.wants_interrupt());
        let written =
            Descriptor { flags: NEXT, region: 0x0203, length: 0x0405_0607, offset: 0x0809_0a0b };
        ring.set_descriptor(257, written);
        assert_eq!(ring.descriptor(1), written, "indexes go round");
        // SAFETY: of the mapping, which nobody else writes now.
        let bytes = unsafe { std::slice::from_raw_parts(base, 160) };
        assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 2, 1]);
        assert_eq!(bytes[64..66], [4, 3]);
        assert_eq!(bytes[144..156], [1, 0, 3, 2, 7, 6, 5, 4, 0x0b, 0x0a, 9, 8]);
    }
}
