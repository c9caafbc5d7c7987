//! `errno`, and calls that end well whatever happens in them.
//!
//! Unsafe: the C library's place for `errno`, which is this thread's own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_int;
use sluice_ipvs::abi::Number;

fn get() -> c_int {
    // SAFETY: the C library gives a pointer that is valid for this thread as long as it lives.
    unsafe { *libc::__errno_location() }
}

fn set(number: c_int) {
    // SAFETY: as above; nobody else writes it meanwhile, for it is the thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Does something and leaves `errno` as it was.
pub fn kept<T>(what: impl FnOnce() -> T) -> T {
    let before = get();
    let done = what();
    set(before);
    done
}

/// Does something that must not panic, and says so by `errno` when it fails.
///
/// # Errors
/// After `errno` has been set.
pub fn told<T>(what: impl FnOnce() -> Result<T, Number>) -> Result<T, ()> {
    let before = get();
    let done = catch_unwind(AssertUnwindSafe(what)).unwrap_or(Err(Number::IO));
    set(done.as_ref().map_or_else(|number| number.0, |_| before));
    done.map_err(drop)
}
