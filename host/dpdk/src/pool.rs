//! A pool of packet buffers.
//!
//! Invariant: the pool behind a [`FramePool`] is never freed, so handles and buffers are valid for
//! ever. Most directors have one pool for everything, so that a frame received by one AF_XDP port
//! is sent by another without a copy.

use std::ffi::CString;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;
use sluice_dpdk_sys as sys;

use crate::mbuf::Mbuf;
use crate::{Error, Result};

/// Bytes that DPDK keeps free in front of a frame.
pub(crate) const HEADROOM: u16 = 128;
/// Bytes that the kernel keeps free in front of a frame in AF_XDP's memory.
const XDP_HEADROOM: u16 = 256;
/// Bytes of DPDK's headers for each buffer: the pool's own and the buffer's.
const OVERHEAD: u32 = 64 + 128;
/// Buffers each worker keeps at hand.
const CACHE: u32 = 256;
/// Large buffers each worker keeps at hand.
const LARGE_CACHE: u32 = 16;

/// A handle on a pool of packet buffers; copies name the same pool.
#[derive(Clone, Copy, Debug)]
pub struct FramePool(NonNull<sys::Mempool>);

// SAFETY: a DPDK pool may be used from any thread at the same time, and it is never freed.
unsafe impl Send for FramePool {}
// SAFETY: as above.
unsafe impl Sync for FramePool {}

/// How a pool's buffers are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Back to back, which net_af_xdp needs; for devices that see virtual addresses.
    Tight,
    /// No buffer across a page boundary; for devices that see physical addresses.
    WithinPages,
}

/// Bytes that a buffer must have behind its header for frames of up to `max_frame` bytes.
pub(crate) fn room(max_frame: u16) -> u16 {
    // 2048 data bytes at least: drivers refuse less, or split ordinary frames.
    let room = u32::from(HEADROOM + XDP_HEADROOM) + u32::from(max_frame);
    let room = room.max(2048 + u32::from(HEADROOM)).next_multiple_of(64);
    u16::try_from(room).unwrap_or(u16::MAX - 63)
}

/// Bytes that a large buffer has behind its header: as many as its length can say.
const LARGE_ROOM: u16 = u16::MAX - 63;

/// MB that a pool of large buffers takes.
pub(crate) fn large_megabytes(count: u32) -> u64 {
    let stride = u64::from(OVERHEAD + u32::from(LARGE_ROOM));
    // Where no buffer may lie across the boundary of a page, a 2 MB page has room for 31.
    (u64::from(count) * stride).div_ceil(1 << 20) * 32 / 31 + 2
}

/// MB that a pool takes.
pub(crate) fn megabytes(count: u32, max_frame: u16) -> u64 {
    let stride = u64::from(OVERHEAD + u32::from(room(max_frame)));
    // 16 bytes a buffer for the ring of free ones, 4 MB for the workers' caches.
    (u64::from(count) * (stride + 16)).div_ceil(1 << 20) + 4
}

impl FramePool {
    pub(crate) fn create(name: &str, count: u32, max_frame: u16, layout: Layout) -> Result<Self> {
        let megabytes = megabytes(count, max_frame);
        Self::with_room(name, (count, CACHE), (room(max_frame), megabytes), layout)
    }

    /// A pool of buffers for super-packets.
    pub(crate) fn create_large(name: &str, count: u32) -> Result<Self> {
        let room = (LARGE_ROOM, large_megabytes(count));
        Self::with_room(name, (count, LARGE_CACHE), room, Layout::WithinPages)
    }

    fn with_room(
        name: &str,
        (count, cache): (u32, u32),
        (room, megabytes): (u16, u64),
        layout: Layout,
    ) -> Result<Self> {
        let text = CString::new(name)?;
        let mut error = 0;
        // SAFETY: the environment layer runs (only `Eal` calls this) and the name is a C string.
        let pool = unsafe {
            sys::sluice_pool_create(
                text.as_ptr(),
                count,
                cache,
                room,
                i32::from(layout == Layout::Tight),
                &mut error,
            )
        };
        NonNull::new(pool).map(Self).ok_or_else(|| {
            Error::dpdk(format!("packet memory for {count} frames ({megabytes} MB)"), -error)
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::Mempool {
        self.0.as_ptr()
    }

    /// Whether the pool's memory is one run, as net_af_xdp needs.
    pub(crate) fn is_one_run(&self) -> bool {
        // SAFETY: pools are never freed (the type's invariant).
        unsafe { sys::sluice_pool_chunks(self.raw()) == 1 }
    }

    /// Gives the free buffers that the calling thread keeps at hand back to everybody.
    pub(crate) fn flush(&self) {
        // SAFETY: pools are never freed (the type's invariant), and the cache that is flushed is
        // the calling thread's own.
        unsafe { sys::sluice_pool_flush(self.raw()) };
    }

    /// The buffer whose place in AF_XDP's memory is `address`: an offset from the start of the page
    /// where the pool begins. `None` for what is not the start of a buffer.
    pub(crate) fn buffer_at(&self, address: u64) -> Option<*mut sys::Mbuf> {
        // SAFETY: pools are never freed (the type's invariant).
        let (base, stride, header, count) = unsafe {
            (
                sys::sluice_pool_base(self.raw()),
                u64::from(sys::sluice_pool_stride(self.raw())),
                sys::sluice_pool_header(self.raw()) as usize,
                u64::from(sys::sluice_pool_size(self.raw())),
            )
        };
        // SAFETY: asks for a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let offset = address.checked_sub((base % page) as u64)?;
        (offset % stride == 0 && offset / stride < count)
            .then(|| (base + offset as usize + header) as *mut sys::Mbuf)
    }

    /// An empty frame, or `None` when the pool is exhausted.
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pool is valid, and room for one pointer is given.
        let status = unsafe { sys::sluice_frames_alloc(self.raw(), &mut raw, 1) };
        if status != 0 {
            return None;
        }
        // SAFETY: a fresh buffer has one owner, no chain and no data.
        NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })
    }

    /// Appends empty frames to a burst until it has `count` more or is full. All or nothing: 0
    /// when the pool cannot give them all.
    pub fn alloc_burst<const N: usize>(
        &self,
        frames: &mut ArrayVec<Mbuf, N>,
        count: usize,
    ) -> usize {
        let count = count.min(frames.remaining_capacity());
        let len = frames.len();
        // SAFETY: an `Mbuf` is one pointer (`repr(transparent)`), the slots from `len` on are
        // within the capacity, and they are taken into the vector only after being filled with
        // fresh buffers, which have one owner, no chain and no data.
        unsafe {
            let slots = frames.as_mut_ptr().add(len).cast::<*mut sys::Mbuf>();
            if sys::sluice_frames_alloc(self.raw(), slots, count as u32) != 0 {
                return 0;
            }
            frames.set_len(len + count);
        }
        count
    }

    /// A frame with these bytes, or `None` when the pool is exhausted or they do not fit.
    pub fn copy_of(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut frame = self.alloc()?;
        if !frame.set_len(bytes.len()) {
            return None;
        }
        frame.bytes_mut().copy_from_slice(bytes);
        Some(frame)
    }

    /// Buffers in the pool, used or not.
    pub fn capacity(&self) -> u32 {
        // SAFETY: pools are never freed (the type's invariant).
        unsafe { sys::sluice_pool_size(self.raw()) }
    }

    /// Buffers nobody uses now. Approximate while workers run, and slow: not for the packet path.
    pub fn available(&self) -> u32 {
        // SAFETY: pools are never freed (the type's invariant).
        unsafe { sys::sluice_pool_available(self.raw()) }
    }
}
