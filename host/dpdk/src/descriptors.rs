//! Descriptors that programs started by this process must not have.
//!
//! DPDK and its drivers open most of theirs without `O_CLOEXEC`: memory in which packets lie,
//! AF_XDP sockets, VFIO's devices. Whoever has one may read and write packets. They are marked
//! right after they were opened, and all of them once more before a program is started: the mark
//! alone keeps `posix_spawn` usable, where closing in the child would fork, and have the workers
//! take a page fault for each page that they write next.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::{fs, io};

/// The first descriptor behind standard input, output and error.
const FIRST: libc::c_int = 3;

/// Marks every descriptor behind 2 so that programs which this process starts do not get it.
pub fn close_on_exec() {
    // SAFETY: it changes a flag of descriptors, which has no effect but on programs that follow.
    let done = unsafe {
        libc::close_range(FIRST as libc::c_uint, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as _)
    };
    if done != 0 {
        one_by_one();
    }
}

/// Takes what standard input is, which programs that follow do not get: they have nothing to read.
///
/// # Errors
/// When there can be no further descriptor.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = fs::File::open("/dev/null")?;
    // SAFETY: standard input becomes another file; whoever reads it finds its end.
    match unsafe { libc::dup2(nothing.as_raw_fd(), libc::STDIN_FILENO) } {
        0.. => Ok(taken),
        _ => Err(io::Error::last_os_error()),
    }
}

/// [`close_on_exec`] on Linux before 5.11.
fn one_by_one() {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::c_int>().ok());
    for number in numbers.filter(|number| *number >= FIRST) {
        // SAFETY: as above; one that was closed meanwhile is refused.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A descriptor as DPDK opens them.
    fn inherited() -> libc::c_int {
        // SAFETY: the name is a C string, and the descriptor is left open.
        let number = unsafe { libc::memfd_create(c"packets".as_ptr(), 0) };
        assert!(number >= FIRST);
        number
    }

    fn is_passed_on(number: libc::c_int) -> bool {
        let mut list = Command::new("ls");
        let listed = list.args(["-l", "/proc/self/fd"]).output().expect("ls");
        String::from_utf8_lossy(&listed.stdout).contains(&format!(" {number} -> /memfd:packets"))
    }

    #[test]
    fn programs_get_no_descriptor_that_was_open() {
        for mark in [close_on_exec, one_by_one] {
            let number = inherited();
            assert!(is_passed_on(number), "the test has no effect");
            mark();
            assert!(!is_passed_on(number));
        }
    }
}
