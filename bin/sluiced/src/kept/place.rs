//! Directories for kept sessions: of a memory file system, and root's alone.

use super::names::Head;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Ordinary pages.
const SHARED_MEMORY: &str = "/dev/shm";
/// The directory of all directors in a file system.
const ALL: &str = "sluice";
const NAMES: &str = "names";
const PENDING: &str = "names.pending";

/// Which of the two places of a director: one that hands over and its successor have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    First,
    Second,
}

impl Which {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// The name of its directories, for a director with this `state_dir`.
    fn name(self, state_dir: &Path) -> String {
        match self {
            Self::First => flat(state_dir),
            Self::Second => flat(state_dir) + "+",
        }
    }
}

/// The directory of one director, and that of its slots: the same, unless these have huge pages.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    slots: PathBuf,
}

impl Place {
    /// Where a director with this `state_dir` keeps its names.
    pub fn of(state_dir: &Path, which: Which) -> Self {
        let dir = Path::new(SHARED_MEMORY).join(ALL).join(which.name(state_dir));
        Self { slots: dir.clone(), dir }
    }

    /// Makes the directories. With `huge`, so many bytes of huge pages are to hold the slots, if
    /// they are free.
    pub fn make(state_dir: &Path, which: Which, huge: Option<u64>) -> io::Result<Self> {
        let mut place = Self::of(state_dir, which);
        make_dir(&Path::new(SHARED_MEMORY).join(ALL))?;
        make_dir(&place.dir)?;
        if let Some(mount) = huge.and_then(hugetlbfs_with) {
            let all = mount.join(ALL);
            let slots = all.join(which.name(state_dir));
            // Of a director whose names are lost.
            remove(&slots);
            if make_dir(&all).and_then(|()| make_dir(&slots)).is_ok() {
                place.slots = slots;
            }
        }
        Ok(place)
    }

    /// Removes all that there is of it, wherever its slots lie.
    pub fn clear(state_dir: &Path, which: Which) {
        for mount in mounts() {
            remove(&mount.join(ALL).join(which.name(state_dir)));
        }
        remove(Self::of(state_dir, which).dir());
    }

    /// The director's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of its slots.
    pub fn slots(&self) -> &Path {
        &self.slots
    }

    /// The file of names that do not count yet.
    pub fn pending_file(&self) -> PathBuf {
        self.dir.join(PENDING)
    }

    /// The file of its names.
    pub fn names_file(&self) -> PathBuf {
        self.dir.join(NAMES)
    }
}

/// A path as the name of one directory.
fn flat(path: &Path) -> String {
    let name = path.to_string_lossy().replace('/', "-");
    name.trim_start_matches('-').to_owned()
}

/// Makes a directory that nobody else may enter, or takes it if it is such.
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = fs::symlink_metadata(path)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user's alone", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Creates an empty file that must not be there.
pub fn create(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Removes a directory of a director. What it cannot remove it leaves.
pub fn remove(dir: &Path) {
    let of_a_director = dir.parent().is_some_and(|all| all.ends_with(ALL));
    if of_a_director
        && dir.exists()
        && let Err(error) = fs::remove_dir_all(dir)
    {
        tracing::debug!(dir = %dir.display(), %error, "not removed");
    }
}

/// Removes what directors have left that cannot come back: their `state_dir` is gone.
pub fn purge() {
    let Ok(found) = fs::read_dir(Path::new(SHARED_MEMORY).join(ALL)) else { return };
    for dir in found.flatten().map(|entry| entry.path()) {
        let Ok(head) = Head::read(&dir.join(NAMES)) else { continue };
        if !head.state_dir.exists() {
            remove(&head.slots);
            remove(&dir);
        }
    }
}

/// A mounted hugetlbfs of 2 MiB pages with so many bytes free.
fn hugetlbfs_with(bytes: u64) -> Option<PathBuf> {
    const PAGE: u64 = 2 << 20;
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.ok()?.trim().parse().ok()?;
    if free * PAGE < bytes {
        return None;
    }
    mounts().into_iter().next()
}

/// Where hugetlbfs of 2 MiB pages are mounted.
fn mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        let two_megabytes = !options.contains("pagesize=1024M") && !options.contains("pagesize=1G");
        (kind == "hugetlbfs" && two_megabytes).then(|| PathBuf::from(at))
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Who may write to `/dev/shm` may have made a directory there first.
    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        make_dir(&own).unwrap();
        make_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(make_dir(&own).unwrap_err().to_string().contains("alone"));
        symlink(dir.path(), &link).unwrap();
        assert!(make_dir(&link).is_err());
    }

    #[test]
    fn files_are_new_and_only_directories_of_directors_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("worker-0.ipv4");
        create(&file).unwrap();
        assert_eq!(create(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        remove(dir.path());
        assert!(file.exists());
        assert_eq!(flat(Path::new("/var/lib/sluice")), "var-lib-sluice");
    }
}
