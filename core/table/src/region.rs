//! A run of memory for a table: zeroed, in the largest pages to be had.
//!
//! With 4 KiB pages a random access to a large table costs a page walk on top of the cache miss,
//! so 1 GiB and 2 MiB pages are tried first, then ordinary pages that the kernel may merge
//! (`MADV_HUGEPAGE`). Ordinary memory is only resident once it is touched. Huge pages are made
//! resident at once: a limit on them (the hugetlb cgroup of a container) is not seen in how many
//! are free, nor by `mmap`, and the first touch of a page beyond it would end the process (SIGBUS).
//!
//! Memory that is to outlive the process lies in a file of tmpfs or hugetlbfs instead. All of it is
//! allocated at once: a file system that is full would otherwise end the process (SIGBUS) when a
//! page is touched for the first time.

use bytemuck::Zeroable;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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

/// An empty file of tmpfs or hugetlbfs, for a region that is to outlive the process. Nobody else
/// may write to it, or shorten it, as long as the region is there.
#[derive(Debug)]
pub struct MemoryFile(OwnedFd);

impl From<OwnedFd> for MemoryFile {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}

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
                    if let Ok(start) = map(mapped, flags).and_then(|it| resident(it, mapped)) {
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

    /// Maps an empty file, which becomes as large as `len` values are, at least one, in whole pages
    /// of its file system.
    pub fn in_file(file: &MemoryFile, len: usize) -> Result<Self, RegionError> {
        const { assert!(align_of::<T>() <= 4096) }
        let file = file.0.as_fd();
        let bytes = len.max(1).saturating_mul(size_of::<T>().max(1));
        let no_memory = |source| RegionError::NoMemory { bytes, source };
        let (page, pages) = pages_of(file).map_err(no_memory)?;
        let mapped = bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX);
        allocate(file, mapped).map_err(no_memory)?;
        let start = map_at(mapped, libc::MAP_SHARED, file.as_raw_fd()).map_err(no_memory)?;
        // SAFETY: as in `new`.
        unsafe { libc::madvise(start.as_ptr(), mapped, libc::MADV_HUGEPAGE) };
        Ok(Self::over(start, len, mapped, pages))
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

/// The size of a file's pages, and their kind.
fn pages_of(file: BorrowedFd<'_>) -> io::Result<(usize, Pages)> {
    // SAFETY: all zero is a valid `statfs`.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `about` is there to be written.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let page = usize::try_from(about.f_bsize).unwrap_or(4096).max(4096);
    Ok(match about.f_type == libc::HUGETLBFS_MAGIC {
        true if page >= GIGABYTE => (page, Pages::Gigabyte),
        true => (page, Pages::TwoMegabytes),
        false => (page, Pages::Ordinary),
    })
}

/// Makes a file so large, with all its pages.
fn allocate(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let size = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor is open; nothing is mapped yet.
    let failed = unsafe {
        libc::ftruncate(file.as_raw_fd(), size) != 0
            || libc::fallocate(file.as_raw_fd(), 0, 0, size) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Maps zeroed private memory, at least page aligned.
fn map(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<libc::c_void>> {
    map_at(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1)
}

/// Makes fresh memory resident, or unmaps it.
fn resident(start: NonNull<libc::c_void>, bytes: usize) -> io::Result<NonNull<libc::c_void>> {
    // SAFETY: the range was just mapped; the advice does not change its content.
    let failed = unsafe { libc::madvise(start.as_ptr(), bytes, libc::MADV_POPULATE_WRITE) } != 0;
    let error = io::Error::last_os_error();
    // Before Linux 5.14 there is no such advice.
    if !failed || error.raw_os_error() == Some(libc::EINVAL) {
        return Ok(start);
    }
    // SAFETY: exactly this range was mapped, and nothing knows of it.
    unsafe { libc::munmap(start.as_ptr(), bytes) };
    Err(error)
}

/// Maps memory, of a file or of none, at least page aligned.
fn map_at(
    bytes: usize,
    flags: libc::c_int,
    file: libc::c_int,
) -> io::Result<NonNull<libc::c_void>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing in this process.
    // A file is mapped once at a time (`MemoryFile` says so to its makers).
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) };
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

    /// What was written is in the file when the region is gone, as when its process is.
    #[test]
    fn memory_in_a_file_outlives_its_region() {
        use std::os::fd::FromRawFd;
        // SAFETY: the name is a string, and the descriptor is this test's.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"slots".as_ptr(), 0)) };
        let file = MemoryFile::from(file);
        let mut region = Region::<u64>::in_file(&file, 10_000).unwrap();
        assert!(region.iter().all(|v| *v == 0));
        region[9_999] = 7;
        assert_eq!((region.len(), region.pages()), (10_000, Pages::Ordinary));
        assert!(region.mapped_bytes() >= 80_000);
        drop(region);
        let mut last = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::from(file.0), &mut last, 79_992)
            .unwrap();
        assert_eq!(u64::from_ne_bytes(last), 7);
    }

    #[test]
    fn a_file_system_without_room_is_an_error() {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(Region::<u64>::in_file(&null.into(), 10).is_err());
    }

    /// A page beyond the end of a file cannot be had, as one beyond a cgroup's limit: a touch of it
    /// would end the process.
    #[test]
    fn memory_that_cannot_become_resident_is_an_error() {
        use std::os::fd::FromRawFd;
        assert!(resident(map(8192, 0).unwrap(), 8192).is_ok());
        // SAFETY: as above.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"short".as_ptr(), 0)) };
        allocate(file.as_fd(), 4096).unwrap();
        let start = map_at(8192, libc::MAP_SHARED, file.as_raw_fd()).unwrap();
        assert!(resident(start, 8192).is_err());
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
