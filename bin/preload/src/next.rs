//! The functions that would have been called if this library were not there.
//!
//! They are looked up by name behind this library (`RTLD_NEXT`), so that what else is preloaded, or
//! stands in for the C library (valgrind, sanitizers), still has its turn.
//!
//! Unsafe: what is found by name is called as the C library declares it.

use std::ffi::CStr;
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, c_char, c_int, c_void, mode_t, msghdr, size_t, sockaddr, socklen_t, ssize_t};

/// A function that is found by its name when it is first needed.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function as an `F`, where there is one.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the C function of this name.
    unsafe fn get<F>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name ends with a zero.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: it is a pointer to a function of type `F`, as the caller says, and of its size.
        (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
    }
}

/// Declares the functions that come next, each with what is returned where there is none.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $none:expr;)*) => {
        /// Finds all of them.
        pub fn find() {
            $(
                static_for::$name();
            )*
        }

        mod static_for {
            $(
                pub fn $name() {
                    // SAFETY: it is not called by this, only looked up.
                    let _ = unsafe { super::pointers::$name.get::<*const libc::c_void>() };
                }
            )*
        }

        #[allow(non_upper_case_globals, reason = "named as what they point to")]
        mod pointers {
            use super::Next;
            $(
                pub static $name: Next = Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()
                    ) {
                        Ok(name) => name,
                        Err(_) => c"",
                    }
                );
            )*
        }

        $(
            /// The next function of this name.
            ///
            /// # Safety
            /// What the C function wants of its arguments.
            pub unsafe fn $name($($argument: $type),*) -> $result {
                type F = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: the type is the C library's declaration, `mode` of the `open` family
                // aside, which is passed in the same register whether it is declared or variadic.
                match unsafe { pointers::$name.get::<F>() } {
                    // SAFETY: the caller holds to what it wants.
                    Some(next) => unsafe { next($($argument),*) },
                    None => $none,
                }
            }
        )*
    };
}

next! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, else -1;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, else -1;
    sendto(fd: c_int, bytes: *const c_void, length: size_t, flags: c_int, to: *const sockaddr,
        to_length: socklen_t) -> ssize_t, else -1;
    send(fd: c_int, bytes: *const c_void, length: size_t, flags: c_int) -> ssize_t, else -1;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, else -1;
    recvfrom(fd: c_int, bytes: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr,
        from_length: *mut socklen_t) -> ssize_t, else -1;
    recv(fd: c_int, bytes: *mut c_void, length: size_t, flags: c_int) -> ssize_t, else -1;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int, else -1;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t)
        -> c_int, else -1;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else std::ptr::null_mut();
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, else std::ptr::null_mut();
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int, else -1;
    execve(path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char) -> c_int, else -1;
}
