//! Memory that two processes share.
//!
//! Invariant: a [`Region`] is `size` bytes of a memory file that nobody can shrink, mapped for as
//! long as the value lives; so every access inside of it is valid, whatever the peer does to the
//! file. What the bytes are is another matter: the peer writes them at any time. There are no
//! references to them, only raw pointers, volatile reads and atomics.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::negotiation::{Refused, refuse};

/// `f_type` of a memory file with ordinary pages (`TMPFS_MAGIC`).
const TMPFS: u64 = 0x0102_1994;

/// Shared memory, mapped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the process, and all accesses are raw or atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes memory to share, all zero, and the descriptor to give away.
    pub fn create(size: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("sluice-memif", flags)?;
        rustix::fs::ftruncate(&file, size as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let region = Self::map(&file, size)?;
        // SAFETY: the range is the mapping; the advice changes no byte. Without such pages it has
        // no effect.
        unsafe { libc::madvise(region.base.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        Ok((region, file))
    }

    /// Maps memory that a peer made. Refuses what could shrink, what is smaller than claimed and
    /// what is no memory.
    pub fn accept(file: &OwnedFd, size: u64) -> Result<Self, Refused> {
        let system = |what: &str, error: io::Error| Refused(format!("{what}: {error}"));
        let kind = rustix::fs::fstatfs(file).map_err(|e| system("fstatfs", e.into()))?.f_type;
        // The type's width differs between systems.
        if kind as u64 != TMPFS {
            return refuse("a region is not a memory file with ordinary pages");
        }
        let Ok(seals) = rustix::fs::fcntl_get_seals(file) else {
            return refuse("a region has no seals");
        };
        if !seals.contains(SealFlags::SHRINK) {
            return refuse(
                "a region is not sealed against shrinking (F_SEAL_SHRINK); zero-copy clients of \
                 VPP and DPDK do not seal theirs: switch zero-copy off there",
            );
        }
        // After the seals: before, it could still have been cut.
        let has = rustix::fs::fstat(file).map_err(|e| system("fstat", e.into()))?.st_size;
        if u64::try_from(has).unwrap_or(0) < size {
            return refuse(format_args!("a region of {size} bytes has {has}"));
        }
        let Ok(size) = usize::try_from(size) else { return refuse("a region is too large") };
        Self::map(file, size).map_err(|error| system("map a region", error))
    }

    fn map(file: &impl AsFd, size: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice; nothing else is there.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Self { base, size }),
            None => Err(io::Error::other("mapped at address 0")),
        }
    }

    /// Where `length` bytes from `offset` on lie; `None` if they are not all in the region.
    #[inline]
    pub fn at(&self, offset: u32, length: u32) -> Option<*mut u8> {
        let end = u64::from(offset) + u64::from(length);
        // SAFETY: the range lies in the mapping.
        (end <= self.size as u64).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever has pointers into it keeps the region.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(flags: MemfdFlags, seals: SealFlags, size: u64) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", flags | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, size).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn only_memory_that_cannot_shrink_is_mapped() {
        let sealed = file(MemfdFlags::CLOEXEC, SealFlags::SHRINK, 8192);
        let region = Region::accept(&sealed, 8192).unwrap();
        assert!(rustix::fs::ftruncate(&sealed, 0).is_err(), "the seal holds");
        assert!(region.at(8191, 1).is_some() && region.at(8192, 0).is_some());
        assert!(region.at(8192, 1).is_none() && region.at(u32::MAX, u32::MAX).is_none());

        let why = |file: &OwnedFd, size| Region::accept(file, size).unwrap_err().0;
        assert!(why(&sealed, 8193).contains("has 8192"));
        let open = file(MemfdFlags::CLOEXEC, SealFlags::GROW, 4096);
        assert!(why(&open, 4096).contains("F_SEAL_SHRINK"));
        let disk: OwnedFd = std::fs::File::open("/proc/self/status").unwrap().into();
        assert!(why(&disk, 1).contains("not a memory file"));
        let readable = file(MemfdFlags::CLOEXEC, SealFlags::SHRINK | SealFlags::WRITE, 4096);
        assert!(why(&readable, 4096).contains("map a region"), "not to be written");
    }

    #[test]
    fn our_memory_cannot_be_changed_in_size_by_the_peer() {
        let (region, file) = Region::create(4096).unwrap();
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 8192).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        assert!(region.at(0, 4096).is_some());
        assert!(Region::accept(&file, 4096).is_ok(), "a peer like us takes it");
    }
}
