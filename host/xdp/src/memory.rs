//! Memory that is shared with the kernel: packet memory and rings.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// A mapping, removed when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address and a length; whoever accesses it answers for how.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, all of them present at once.
    pub fn of(file: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast())
            .map(|start| Self { start, len })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and whoever had pointers into it has gone: they hold it.
        unsafe { libc::munmap(self.start().cast(), self.len) };
    }
}

/// Packet memory: a file in memory, so that another process can have it too.
#[derive(Debug)]
pub struct Memory {
    pub map: Mapping,
    pub huge: bool,
    pub file: OwnedFd,
}

impl Memory {
    /// Takes `len` bytes, in huge pages if wanted and if there are enough.
    pub fn new(len: usize, huge: bool) -> io::Result<Self> {
        if huge && let Ok((map, file)) = file(len.next_multiple_of(HUGE), libc::MFD_HUGETLB) {
            return Ok(Self { map, huge: true, file });
        }
        file(len, 0).map(|(map, file)| Self { map, huge: false, file })
    }
}

fn file(len: usize, flags: libc::c_uint) -> io::Result<(Mapping, OwnedFd)> {
    // SAFETY: the name is a C string, and the descriptor is owned at once.
    let file = unsafe {
        let fd = libc::memfd_create(c"sluice_xdp".as_ptr(), libc::MFD_CLOEXEC | flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: it changes the size of our own file.
    if unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let borrowed = std::os::fd::AsFd::as_fd(&file);
    Ok((Mapping::of(borrowed, len, 0)?, file))
}
