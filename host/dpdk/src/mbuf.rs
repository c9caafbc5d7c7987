//! One packet buffer, owned.
//!
//! Invariant: an [`Mbuf`] is the only owner of one DPDK buffer that is not chained to another
//! (`nb_segs == 1`, `next` null, `refcnt == 1`), and its data lies inside the buffer:
//! `data_off + data_len <= buf_len`. Buffers enter through [`Mbuf::from_raw`] alone, whose callers
//! establish that, and every method keeps it. Buffers live in pools that are never freed.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use sluice_director::frame::{Checked, Frame, RxChecksum};
use sluice_dpdk_sys as sys;
use sluice_lanes::prefetch;
use sluice_wire::offload::{self, Place};

/// Where the bytes between an outer IP header and the packet inside are counted in the word
/// `TX_OFFLOAD`: behind the segments' size, where nothing else of ours is.
const SHIM_SHIFT: u32 = 49;

/// An owned packet buffer: one contiguous frame with headroom before it and tailroom behind it.
/// Dropping it gives the buffer back to its pool.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<sys::Mbuf>);

/// What is left to be done to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Its checksum field holds the sum over the pseudo header only, if anything of use.
    pub partial: bool,
    /// It is to become segments with so many bytes of data; 0 for a frame that is one.
    pub segment_size: u16,
}

// SAFETY: the buffer has one owner (the type's invariant), and a DPDK pool takes buffers back from
// any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes ownership of a buffer.
    ///
    /// # Safety
    /// `raw` is owned by the caller alone, is not chained, and its data lies inside the buffer.
    pub(crate) unsafe fn from_raw(raw: NonNull<sys::Mbuf>) -> Self {
        Self(raw)
    }

    /// Gives ownership away.
    pub(crate) fn into_raw(self) -> NonNull<sys::Mbuf> {
        ManuallyDrop::new(self).0
    }

    /// Bytes of headroom before the frame.
    pub fn headroom(&self) -> usize {
        usize::from(self.header().data_off)
    }

    /// Bytes of tailroom behind the frame.
    pub fn tailroom(&self) -> usize {
        let header = self.header();
        usize::from(header.buf_len - header.data_off - header.data_len)
    }

    /// Buffers in the chain; an `Mbuf` at rest has one.
    pub(crate) fn segments(&self) -> u16 {
        self.header().nb_segs
    }

    /// What is left to be done to the frame.
    #[inline]
    pub(crate) fn marks(&self) -> Marks {
        let flags = self.header().ol_flags;
        Marks {
            partial: flags & sys::RX_L4_MASK == sys::RX_L4_NONE,
            segment_size: self.segment_size(),
        }
    }

    /// Says what is left to be done to the frame. A super-packet's checksum always is.
    pub(crate) fn mark(&mut self, marks: Marks) {
        let header = self.header_mut();
        header.ol_flags &= !(sys::RX_L4_MASK | sys::RX_LRO);
        header.rest[sys::TX_OFFLOAD] = u64::from(marks.segment_size) << sys::SEGMENT_SIZE_SHIFT;
        if marks.partial || marks.segment_size > 0 {
            header.ol_flags |= sys::RX_L4_NONE;
        }
        if marks.segment_size > 0 {
            header.ol_flags |= sys::RX_LRO;
        }
    }

    /// Where the headers of a frame are that has to be finished.
    pub(crate) fn transport(&self) -> Option<Place> {
        let shim = self.header().rest[sys::TX_OFFLOAD] >> SHIM_SHIFT & 0x7f;
        Place::behind(self.bytes(), shim as usize)
    }

    /// Cuts a super-packet into its segments: see [`offload::cut`].
    pub(crate) fn cut(&self, piece: impl FnMut(&[u8], &[u8]) -> bool) -> Option<usize> {
        offload::cut_at(self.transport()?, self.bytes(), self.segment_size(), piece)
    }

    /// All room from where the frame begins, whatever length it has.
    #[inline]
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        let header = self.header_mut();
        // SAFETY: `data_off <= buf_len` (the type's invariant), `buf_addr` starts an initialised
        // allocation of `buf_len` bytes that only this owner touches, and the borrow is exclusive.
        unsafe {
            let start = header.buf_addr.add(usize::from(header.data_off));
            std::slice::from_raw_parts_mut(start, usize::from(header.buf_len - header.data_off))
        }
    }

    /// Drops the first `count` frames of a vector in one go. Panics if there are fewer.
    #[inline]
    pub(crate) fn free_front<const N: usize>(frames: &mut ArrayVec<Self, N>, count: usize) {
        let rest = frames.len().checked_sub(count).expect("no more than there are");
        if count == 0 {
            return;
        }
        // SAFETY: an `Mbuf` is one pointer (`repr(transparent)`). The first `count` buffers are
        // freed and leave the vector without being dropped; the rest moves to the front.
        unsafe {
            frames.set_len(0);
            let start = frames.as_mut_ptr();
            sys::sluice_frames_free(start.cast(), count as u32);
            std::ptr::copy(start.add(count), start, rest);
            frames.set_len(rest);
        }
    }

    fn header(&self) -> &sys::Mbuf {
        // SAFETY: the pointer is valid and unshared (the type's invariant).
        unsafe { self.0.as_ref() }
    }

    fn header_mut(&mut self) -> &mut sys::Mbuf {
        // SAFETY: the pointer is valid and unshared (the type's invariant).
        unsafe { self.0.as_mut() }
    }

    fn place(&mut self, data_off: u16, data_len: u16) {
        let header = self.header_mut();
        debug_assert!(u32::from(data_off) + u32::from(data_len) <= u32::from(header.buf_len));
        header.data_off = data_off;
        header.data_len = data_len;
        header.pkt_len = u32::from(data_len);
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: the buffer is ours (the type's invariant) and is not used after this.
        unsafe { sys::sluice_frames_free(&mut raw, 1) };
    }
}

impl Frame for Mbuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: `data_off + data_len <= buf_len` (the type's invariant), and `buf_addr` starts
        // an initialised allocation of `buf_len` bytes that only this owner touches.
        unsafe {
            let start = header.buf_addr.add(usize::from(header.data_off));
            std::slice::from_raw_parts(start, usize::from(header.data_len))
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let header = self.header_mut();
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe {
            let start = header.buf_addr.add(usize::from(header.data_off));
            std::slice::from_raw_parts_mut(start, usize::from(header.data_len))
        }
    }

    #[inline]
    fn push_front(&mut self, count: usize) -> bool {
        let header = self.header();
        let Ok(count) = u16::try_from(count) else { return false };
        match (header.data_off.checked_sub(count), header.data_len.checked_add(count)) {
            (Some(data_off), Some(data_len)) => {
                self.place(data_off, data_len);
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn pull_front(&mut self, count: usize) -> bool {
        let header = self.header();
        let Ok(count) = u16::try_from(count) else { return false };
        match header.data_len.checked_sub(count) {
            Some(data_len) => {
                self.place(header.data_off + count, data_len);
                true
            }
            None => false,
        }
    }

    #[inline]
    fn set_len(&mut self, len: usize) -> bool {
        let header = self.header();
        if len > usize::from(header.buf_len - header.data_off) {
            return false;
        }
        // The cast holds: `len` is not above a `u16`.
        self.place(header.data_off, len as u16);
        true
    }

    #[inline]
    fn rx_checksum(&self) -> RxChecksum {
        let flags = self.header().ol_flags;
        let verdict = |mask: u64, good: u64, bad: u64| match flags & mask {
            value if value == good => Checked::Good,
            value if value == bad => Checked::Bad,
            _ => Checked::Unknown,
        };
        RxChecksum {
            ip: verdict(sys::RX_IP_MASK, sys::RX_IP_GOOD, sys::RX_IP_BAD),
            l4: verdict(sys::RX_L4_MASK, sys::RX_L4_GOOD, sys::RX_L4_BAD),
        }
    }

    fn forget_checksums(&mut self) {
        let header = self.header_mut();
        header.ol_flags &= !sys::RX_IP_MASK;
        self.mark(Marks::default());
    }

    #[inline]
    fn segment_size(&self) -> u16 {
        match self.header().ol_flags & sys::RX_LRO {
            0 => 0,
            _ => (self.header().rest[sys::TX_OFFLOAD] >> sys::SEGMENT_SIZE_SHIFT) as u16,
        }
    }

    fn set_segment_size(&mut self, size: u16) {
        let partial = self.is_unfinished();
        self.mark(Marks { partial, segment_size: size });
    }

    fn set_shim(&mut self, bytes: u8) {
        // Of a finished frame nobody asks.
        if self.is_unfinished() {
            let word = &mut self.header_mut().rest[sys::TX_OFFLOAD];
            *word = *word & !(0x7f << SHIM_SHIFT) | u64::from(bytes) << SHIM_SHIFT;
        }
    }

    fn set_finished(&mut self) {
        self.mark(Marks::default());
    }

    #[inline]
    fn is_unfinished(&self) -> bool {
        self.header().ol_flags & sys::RX_L4_MASK == sys::RX_L4_NONE
    }

    fn complete_checksum(&mut self) {
        if self.is_unfinished() && self.segment_size() == 0 {
            // What has no place any more became something else, and that is complete.
            if let Some(place) = self.transport() {
                place.complete_checksum(self.bytes_mut());
            }
            self.mark(Marks::default());
        }
    }

    #[inline]
    fn prefetch(&self) {
        let header = self.header();
        let data = header.buf_addr.wrapping_add(usize::from(header.data_off));
        prefetch::at(data);
    }

    #[inline]
    fn prefetch_far(&self) {
        prefetch::at(self.0.as_ptr().cast());
    }
}
