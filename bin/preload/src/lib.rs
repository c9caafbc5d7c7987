//! A library to preload into `ipvsadm` and keepalived: to them it is the kernel's IPVS, and it asks
//! the director (docs/stock-tools.md).
//!
//! It stands before those functions of the C library by which programs reach IPVS: generic netlink
//! sockets ([`sockets`]), socket options, the files of `/proc/net` ([`files`]), and `modprobe`
//! ([`programs`]). What a call means, and every byte of an answer, is decided by
//! [`sluice_ipvs::abi`], which knows no program; here is only what stands in the way of calls.
//!
//! What holds, since the process is somebody else's:
//! - What is not about IPVS goes to the next function of its name, with nothing allocated and no
//!   lock taken, so that it may be in a signal's handler.
//! - No lock is held while the director is asked, nor over a fork.
//! - It has a heap of its own. `ipvsadm` reads memory that it has not written (the persistence
//!   engine's name, with socket options) and is lucky, in a young process, to find zeros there; on
//!   a heap where answers were parsed it would find pieces of them.
//! - `errno` is what the kernel would have left: as it was after a success.
//! - A panic does not leave this library: the call fails with `EIO`.
//!
//! **Unsafe code**: everything here is called from C with pointers of C; it is confined to reading
//! and writing what they point to, as the kernel would, and to finding the next functions.

mod director;
mod errno;
mod files;
mod next;
mod pending;
mod programs;
mod sockets;

#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Runs before the program's own code: the environment is read and the next functions are found
/// while there is one thread and no signal's handler.
extern "C" fn begin() {
    errno::kept(|| {
        // Its lock, too, is held over forks: taken after `pending`'s, that is told of them later.
        // SAFETY: nothing has been allocated yet: what passes calls through allocates nothing.
        unsafe { dlmalloc::enable_alloc_after_fork() };
        director::settle();
        next::find();
        pending::over_forks();
    });
}

#[used]
// SAFETY: the loader calls what stands in this section once, when the library is loaded, with
// arguments that `begin` may ignore by the C calling convention.
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
