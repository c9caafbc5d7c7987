//! The packet buffers that lie in an AF_XDP socket's rings when its port is closed, and the sockets
//! that the driver forgets to close.
//!
//! net_af_xdp loses both: each closing would cost a pool some two thousand buffers, so that a
//! director whose interface comes and goes runs dry; and the sockets stay bound to the interface's
//! queues, so that it cannot be opened again. Therefore the rings are read,
//! through the driver's own mappings, just before it closes them, and what it left is closed after.
//!
//! The reading is exact when nobody writes the rings: no queue handle is left, and the XDP program
//! is off the interface. What the kernel itself holds then (a frame on its way out) is lost; that
//! is a handful.
//!
//! Invariant: an address from a ring becomes a buffer only if it is the start of one of the pool's
//! buffers, and each buffer is given back once.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use sluice_dpdk_sys as sys;

use crate::pool::FramePool;

const SOL_XDP: libc::c_int = 283;
const XDP_MMAP_OFFSETS: libc::c_int = 1;
const XDP_PGOFF_RX_RING: u64 = 0;
const XDP_PGOFF_TX_RING: u64 = 0x8000_0000;
const XDP_UMEM_PGOFF_FILL_RING: u64 = 0x1_0000_0000;
const XDP_UMEM_PGOFF_COMPLETION_RING: u64 = 0x1_8000_0000;
/// Bits of an address that name the buffer; the others are an offset in it.
const ADDRESS_BITS: u64 = (1 << 48) - 1;
/// How often the rings are read until they stand still.
const READINGS: usize = 50;

/// `struct xdp_ring_offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RingOffset {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MmapOffsets {
    rx: RingOffset,
    tx: RingOffset,
    fill: RingOffset,
    completion: RingOffset,
}

/// One ring, in the driver's mapping.
#[derive(Debug)]
struct Ring {
    start: usize,
    len: usize,
    offset: RingOffset,
    /// Bytes of an entry; each starts with an address.
    entry: usize,
}

impl Ring {
    /// The most entries, a power of two, that fit the mapping: it is rounded up to whole pages,
    /// which is less than twice.
    fn entries(&self) -> usize {
        let fit = self.len.saturating_sub(self.offset.entries as usize) / self.entry;
        if fit == 0 { 0 } else { 1 << fit.ilog2() }
    }

    /// The addresses between the consumer and the producer.
    ///
    /// # Safety
    /// The mapping is still there.
    unsafe fn addresses(&self) -> Vec<u64> {
        let entries = self.entries();
        let counter = |offset: u64| {
            // SAFETY: the kernel gave the offset of an aligned 32-bit counter in this mapping,
            // which is only ever changed atomically.
            unsafe {
                let counter = (self.start + offset as usize) as *const AtomicU32;
                (*counter).load(Ordering::Acquire)
            }
        };
        let consumer = counter(self.offset.consumer);
        let waiting = counter(self.offset.producer).wrapping_sub(consumer) as usize;
        (0..waiting.min(entries))
            .map(|at| {
                let slot = (consumer as usize).wrapping_add(at) % entries;
                let place = self.start + self.offset.entries as usize + slot * self.entry;
                // SAFETY: the slot is inside the mapping (`entries`).
                unsafe { (place as *const u64).read_unaligned() }
            })
            .collect()
    }
}

/// A socket of an open port, with its rings.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: RawFd,
    inode: u64,
    rings: Vec<Ring>,
}

impl Socket {
    /// Finds the driver's mappings of a socket.
    pub fn of(fd: RawFd) -> Option<Self> {
        let inode = inode_of(fd)?;
        let offsets = mmap_offsets(fd)?;
        let rings = mappings(inode).into_iter().filter_map(|found| found.ring(&offsets)).collect();
        Some(Self { fd, inode, rings })
    }

    /// Closes the socket and removes its mappings if the driver has not.
    ///
    /// # Safety
    /// The driver has closed the port: it uses neither the socket nor the mappings any more.
    pub unsafe fn close_if_left(&self) -> bool {
        if inode_of(self.fd) != Some(self.inode) {
            return false;
        }
        for found in mappings(self.inode) {
            // SAFETY: this is a mapping of the forgotten socket, and nobody uses it (above).
            unsafe { libc::munmap(found.start as *mut libc::c_void, found.len) };
        }
        // SAFETY: nobody else knows this descriptor any more (above).
        unsafe { libc::close(self.fd) };
        true
    }
}

/// The addresses in all rings of a port's sockets, as soon as they stand still.
///
/// # Safety
/// The port is open: the driver's mappings are there.
pub(crate) unsafe fn addresses(sockets: &[Socket]) -> BTreeSet<u64> {
    let read = || -> BTreeSet<u64> {
        let rings = sockets.iter().flat_map(|socket| &socket.rings);
        // SAFETY: the mappings are there (the caller's promise).
        let all = rings.flat_map(|ring| unsafe { ring.addresses() });
        all.map(|address| address & ADDRESS_BITS).collect()
    };
    let mut last = read();
    for _ in 0..READINGS {
        thread::sleep(Duration::from_millis(1));
        let next = read();
        if next == last {
            break;
        }
        last = next;
    }
    last
}

/// Gives the buffers at these addresses back to their pool, and says how many.
///
/// # Safety
/// The addresses are from the rings of a port that has been closed since, and `pool` is the one
/// that it was opened with.
pub(crate) unsafe fn give_back(addresses: &BTreeSet<u64>, pool: FramePool) -> usize {
    let mut buffers: Vec<*mut sys::Mbuf> =
        addresses.iter().filter_map(|address| pool.buffer_at(*address)).collect();
    // SAFETY: these are buffers of the pool (`buffer_at`), each once, that the driver put into the
    // rings and, having closed the port, will not touch again.
    unsafe { sys::sluice_frames_free(buffers.as_mut_ptr(), buffers.len() as u32) };
    buffers.len()
}

fn inode_of(fd: RawFd) -> Option<u64> {
    fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|found| found.ino())
}

fn mmap_offsets(fd: RawFd) -> Option<MmapOffsets> {
    let mut offsets = MmapOffsets::default();
    let mut length = size_of::<MmapOffsets>() as libc::socklen_t;
    // SAFETY: the buffer has the length given.
    let status = unsafe {
        libc::getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, (&raw mut offsets).cast(), &mut length)
    };
    (status == 0 && length as usize == size_of::<MmapOffsets>()).then_some(offsets)
}

/// A run of memory that a socket is mapped to.
struct Mapping {
    start: usize,
    len: usize,
    offset: u64,
}

impl Mapping {
    /// Reads a line of `/proc/self/maps`: `start-end flags offset device inode path`, of which
    /// the numbers are in hexadecimal.
    fn read(line: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (number(start)? as usize, number(end)? as usize);
        Some(Self { start, len: end - start, offset: number(fields.nth(1)?)? })
    }

    fn ring(&self, offsets: &MmapOffsets) -> Option<Ring> {
        // A receive or transmit descriptor has an address, a length and options: 16 bytes.
        let (offset, entry) = match self.offset {
            XDP_PGOFF_RX_RING => (offsets.rx, 16),
            XDP_PGOFF_TX_RING => (offsets.tx, 16),
            XDP_UMEM_PGOFF_FILL_RING => (offsets.fill, 8),
            XDP_UMEM_PGOFF_COMPLETION_RING => (offsets.completion, 8),
            _ => return None,
        };
        Some(Ring { start: self.start, len: self.len, offset, entry })
    }
}

/// This process's mappings of a socket.
fn mappings(inode: u64) -> Vec<Mapping> {
    let owner = format!("socket:[{inode}]");
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.ends_with(&owner)).filter_map(Mapping::read).collect()
}
