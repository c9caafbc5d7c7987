//! Files: those of `/proc/net` that are IPVS's.
//!
//! Each is made anew when it is opened, in memory that goes with the last descriptor. `fopen` is
//! replaced too, for inside the C library it does not call `open` by name.
//!
//! Unsafe: paths, modes and streams are pointers of the program's, as the C library gets them.

use std::ffi::{CStr, c_int};
use std::fs::File as Memory;
use std::io::{BufWriter, Seek, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use libc::{FILE, c_char, mode_t};
use rustix::fs::{MemfdFlags, memfd_create};
use sluice_ipvs::abi::proc::{self, File};
use sluice_ipvs::abi::{Away, Number};
use sluice_ipvs::{Answer, Reply, Request};

use crate::{director, errno, next};

/// Why a file cannot be opened.
fn number(away: Away) -> Number {
    match away {
        Away::Absent => Number::NOENT,
        Away::Denied => Number::PERM,
        Away::Broken => Number::IO,
    }
}

fn reply(request: &Request) -> Result<Reply, Number> {
    match director::ask(request).map_err(number)? {
        Answer::Ok(reply) => Ok(reply),
        Answer::Refused { errno, .. } => Err(errno.into()),
    }
}

/// What a file holds now, at its beginning.
fn made(file: File, close_on_exec: bool) -> Result<OwnedFd, Number> {
    let flags = if close_on_exec { MemfdFlags::CLOEXEC } else { MemfdFlags::empty() };
    let memory =
        memfd_create("sluice-ipvs", flags).map_err(|error| Number(error.raw_os_error()))?;
    let mut memory = BufWriter::new(Memory::from(memory));
    write(file, &mut memory)?;
    let mut memory = memory.into_inner().map_err(|_| Number::IO)?;
    memory.rewind().map_err(|_| Number::IO)?;
    Ok(memory.into())
}

fn write(file: File, memory: &mut BufWriter<Memory>) -> Result<(), Number> {
    let mut put = |text: &str| memory.write_all(text.as_bytes()).map_err(|_| Number::IO);
    if file == File::Connections {
        put(proc::CONNECTIONS_HEADER)?;
        let mut wrote = Ok(());
        let asked = director::connections(|connection| {
            if wrote.is_ok() {
                wrote = put(&proc::connection(&connection));
            }
        });
        return asked.map_err(number).and(wrote);
    }
    let Reply::Services(services) = reply(&Request::Services)? else { return Err(Number::IO) };
    if file == File::Stats {
        return put(&proc::stats(&services));
    }
    match reply(&Request::Info)? {
        Reply::Info(info) => put(&proc::services(info, &services)),
        _ => Err(Number::IO),
    }
}

/// The file of IPVS that a path names.
///
/// # Safety
/// `path` is null or a text that ends with a zero.
unsafe fn named(path: *const c_char) -> Option<File> {
    // SAFETY: the caller's.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }).and_then(|p| File::of(p.to_bytes()))
}

/// A stream of a file, or null with `errno` set.
///
/// # Safety
/// `mode` is a text that ends with a zero.
unsafe fn stream(file: File, mode: *const c_char) -> *mut FILE {
    let opened = errno::told(|| {
        // SAFETY: the caller's.
        let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
        if !mode.starts_with(b"r") || mode.contains(&b'+') {
            return Err(Number(libc::EACCES));
        }
        let memory = made(file, mode.contains(&b'e'))?;
        // SAFETY: the descriptor is open; from here on it is the stream's.
        let stream = unsafe { libc::fdopen(memory.as_raw_fd(), c"r".as_ptr()) };
        if stream.is_null() {
            return Err(Number(libc::ENOMEM));
        }
        let _ = memory.into_raw_fd();
        Ok(stream)
    });
    opened.unwrap_or(std::ptr::null_mut())
}

/// A descriptor of a file, or -1 with `errno` set.
fn descriptor(file: File, flags: c_int) -> c_int {
    let opened = errno::told(|| match flags & libc::O_ACCMODE {
        libc::O_RDONLY => made(file, flags & libc::O_CLOEXEC != 0),
        _ => Err(Number(libc::EACCES)),
    });
    opened.map_or(-1, IntoRawFd::into_raw_fd)
}

/// Stands before functions that open streams.
macro_rules! streams {
    ($($name:ident)*) => {$(
        /// Stands before the C library's function of this name.
        ///
        /// # Safety
        /// What it wants.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the caller's.
            unsafe {
                match named(path).filter(|_| !mode.is_null()) {
                    Some(file) => stream(file, mode),
                    None => next::$name(path, mode),
                }
            }
        }
    )*};
}

/// Stands before functions that open descriptors. `mode` is variadic in C and is there only with
/// `O_CREAT`; on the machines that Sluice is built for it is passed in the same register anyway, so
/// that what is passed on is what came.
macro_rules! descriptors {
    ($($name:ident($($folder:ident)?))*) => {$(
        /// Stands before the C library's function of this name.
        ///
        /// # Safety
        /// What it wants.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($folder: c_int,)?
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            // SAFETY: the caller's.
            unsafe {
                match named(path) {
                    Some(file) => descriptor(file, flags),
                    None => next::$name($($folder,)? path, flags, mode),
                }
            }
        }
    )*};
}

streams! { fopen fopen64 }
descriptors! { open() open64() openat(folder) openat64(folder) }
