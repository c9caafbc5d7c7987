//! Programs that a program starts: `modprobe` for IPVS's modules is not run.
//!
//! Stock programs load the kernel's IPVS when they find none. Here the kernel's own is not wanted,
//! whether the director is there or not: two of them on one machine would fight over packets.
//!
//! Unsafe: paths and arguments are pointers of the program's, as the C library gets them.

use std::ffi::{CStr, c_int};

use libc::c_char;

use crate::next;

/// Arguments that are looked at.
const ARGUMENTS: usize = 16;

/// Whether a program is `modprobe` for a module of IPVS.
///
/// # Safety
/// As for `execv`.
unsafe fn loads_ipvs(path: *const c_char, arguments: *const *const c_char) -> bool {
    if path.is_null() || arguments.is_null() {
        return false;
    }
    // SAFETY: a text that ends with a zero, says the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.rsplit(|&byte| byte == b'/').next() != Some(b"modprobe") {
        return false;
    }
    for index in 0..ARGUMENTS {
        // SAFETY: a list of texts that ends with a null, which has not been met yet.
        let argument = unsafe { *arguments.add(index) };
        if argument.is_null() {
            return false;
        }
        // SAFETY: a text of that list.
        let argument = unsafe { CStr::from_ptr(argument) }.to_bytes();
        if argument.starts_with(b"ip_vs") || argument == b"xt_ipvs" {
            return true;
        }
    }
    false
}

/// Refuses as though there were no `modprobe`.
fn refused() -> c_int {
    // SAFETY: the C library gives a pointer that is valid for this thread.
    unsafe { *libc::__errno_location() = libc::ENOENT };
    -1
}

/// Stands before `execv(3)`.
///
/// # Safety
/// What `execv` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        match loads_ipvs(path, arguments) {
            true => refused(),
            false => next::execv(path, arguments),
        }
    }
}

/// Stands before `execve(2)`.
///
/// # Safety
/// What `execve` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        match loads_ipvs(path, arguments) {
            true => refused(),
            false => next::execve(path, arguments, environment),
        }
    }
}
