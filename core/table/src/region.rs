//! A run of memory for a table: anonymous, zeroed, in the largest pages to be had.
//!
//! With 4 KiB pages a random access to a large table costs a page walk on top of the cache miss,
//! so 1 GiB and 2 MiB pages are tried first, then ordinary pages that the kernel may merge
//! (`MADV_HUGEPAGE`). Memory is only resident once it is touched, except in reserved huge pages.

use bytemuck::Zeroable;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const GIGABYTE: usize = 1 << 30;
const TWO_MEGABYTES: usize = 2 << 20;

/// Which pages a table may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePolicy {
    /// Reserved huge pages where there are enough, else ordinary ones.
    #[default]
    Auto,
    /// Reserved huge pages or an error.
    HugeOnly,
    /// Ordinary pages, merged by the kernel where it can.
    Ordinary,
}

/// Which pages a table got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 1 GiB pages.
    Gigabyte,
    /// Reserved 2 MiB pages.
    TwoMegabytes,
    /// Ordinary pages with `MADV_HUGEPAGE`.
    Ordinary,
}

impl Pages {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gigabyte => "1 GiB",
            Self::TwoMegabytes => "2 MiB",
            Self::Ordinary => "ordinary",
        }
    }
}

/// Why there is no memory for a table.
#[derive(Debug)]
pub enum RegionError {
    /// Huge pages were demanded and there are not enough.
    NoHugePages {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The kernel refused ordinary memory.
    NoMemory {
        /// Bytes that were asked for.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
}

impl std::fmt::Display for RegionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHugePages { bytes } => write!(
                f,
                "{bytes} bytes of huge pages are not free; reserve {} more pages of 2 MiB: \
                 sysctl vm.nr_hugepages, or set huge_pages = \"auto\"",
                bytes.div_ceil(TWO_MEGABYTES)
            ),
            Self::NoMemory { bytes, source } => {
                write!(f, "no memory for a table of {bytes} bytes: {source}; lower limits.sessions")
            }
        }
    }
}

impl std::error::Error for RegionError {}

/// `len` values of `T` in memory of its own, zeroed at first. `Copy`, so that nothing needs
/// dropping.
pub struct Region<T: Zeroable + Copy> {
    start: NonNull<T>,
    len: usize,
    mapped: usize,
    pages: Pages,
    values: PhantomData<T>,
}

// SAFETY: a region owns its memory as a `Box<[T]>` would.
unsafe impl<T: Zeroable + Copy + Send> Send for Region<T> {}
// SAFETY: shared access gives only `&[T]`, as a `Box<[T]>` would.
unsafe impl<T: Zeroable + Copy + Sync> Sync for Region<T> {}

impl<T: Zeroable + Copy> Region<T> {
    /// Maps memory for `len` values, at least one.
    pub fn new(len: usize, policy: PagePolicy) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) }
        let bytes = len.max(1).saturating_mul(size_of::<T>().max(1));
        if policy != PagePolicy::Ordinary {
            // A table that fills less than half of a huge page would waste the rest of it.
            for (size, flag, pages) in [
                (GIGABYTE, libc::MAP_HUGE_1GB, Pages::Gigabyte),
                (TWO_MEGABYTES, libc::MAP_HUGE_2MB, Pages::TwoMegabytes),
            ] {
                let worth_it = bytes >= size / 2 || policy == PagePolicy::HugeOnly;
                let mapped = bytes.checked_next_multiple_of(size).unwrap_or(usize::MAX);
                let tight = size == TWO_MEGABYTES || mapped - bytes <= bytes / 64;
                if worth_it && tight {
                    let flags = libc::MAP_HUGETLB | flag;
                    if let Ok(start) = map(mapped, flags) {
                        return Ok(Self::over(start, len, mapped, pages));
                    }
                }
            }
            if policy == PagePolicy::HugeOnly {
                return Err(RegionError::NoHugePages { bytes });
            }
        }
        let start = map(bytes, 0).map_err(|source| RegionError::NoMemory { bytes, source })?;
        // SAFETY: the range was just mapped; the advice does not change its content. Its failure
        // only means smaller pages.
        unsafe { libc::madvise(start.as_ptr(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self::over(start, len, bytes, Pages::Ordinary))
    }

    fn over(start: NonNull<libc::c_void>, len: usize, mapped: usize, pages: Pages) -> Self {
        Self { start: start.cast(), len, mapped, pages, values: PhantomData }
    }

    /// The pages that the region lies in.
    pub const fn pages(&self) -> Pages {
        self.pages
    }

    /// Bytes of address space that the region takes.
    pub const fn mapped_bytes(&self) -> usize {
        self.mapped
    }
}

/// Maps zeroed private memory, at least page aligned.
fn map(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<libc::c_void>> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start).ok_or_else(io::Error::last_os_error)
}

impl<T: Zeroable + Copy> Deref for Region<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` mapped at least `len` values of `T`, page aligned, and zero is a valid
        // `T` (Zeroable); the region owns the mapping until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable + Copy> DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable + Copy> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_writable() {
        let mut region = Region::<u64>::new(10_000, PagePolicy::Ordinary).unwrap();
        assert!(region.iter().all(|v| *v == 0));
        region[9_999] = 7;
        assert_eq!((region.len(), region[9_999], region.pages()), (10_000, 7, Pages::Ordinary));
    }

    #[test]
    fn an_empty_region_is_a_region() {
        assert_eq!(Region::<u32>::new(0, PagePolicy::Auto).unwrap().len(), 0);
    }

    #[test]
    fn too_much_is_an_error() {
        let error = Region::<u64>::new(usize::MAX / 8, PagePolicy::Auto).err().unwrap();
        assert!(error.to_string().contains("lower limits.sessions"), "{error}");
        let error = Region::<u64>::new(1 << 45, PagePolicy::HugeOnly).err().unwrap();
        assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
    }
}
