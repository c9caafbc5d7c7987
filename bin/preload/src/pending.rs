//! Generic netlink sockets of the program, and answers that it has not read yet.
//!
//! The sockets are real ones, so that all but our family's messages go to and fro as ever; answers
//! of ours wait here until the program reads. A descriptor is known by its number and its inode:
//! when the program closes it and another takes its number, it is no longer the same.
//!
//! Unsafe: a descriptor of the program's is looked at while it calls; hooks around `fork`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;

/// Descriptors whose being known is looked up without the lock.
const QUICK: usize = 1024;
const WORD_BITS: usize = 64;

/// A bit for each descriptor below [`QUICK`] that has been a generic netlink socket.
static SEEN: [AtomicU64; QUICK / WORD_BITS] = [const { AtomicU64::new(0) }; QUICK / WORD_BITS];
/// Sockets from [`QUICK`] on.
static HIGH: AtomicUsize = AtomicUsize::new(0);
static SOCKETS: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

struct Socket {
    fd: c_int,
    inode: u64,
    answers: VecDeque<Vec<u8>>,
}

fn lock() -> MutexGuard<'static, Vec<Socket>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inode of a descriptor that is open.
fn inode(fd: c_int) -> Option<u64> {
    // SAFETY: the program has just named it as open; where it is not, `fstat` says so, and nothing
    // is closed by this.
    let fd = unsafe { (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))? };
    rustix::fs::fstat(fd).ok().map(|stat| stat.st_ino)
}

/// The program has opened a generic netlink socket.
pub fn opened(fd: c_int) {
    let Some(inode) = inode(fd) else { return };
    let mut sockets = lock();
    sockets.retain(|socket| socket.fd != fd);
    sockets.push(Socket { fd, inode, answers: VecDeque::new() });
    drop(sockets);
    match bit(fd) {
        Some((word, bit)) => drop(word.fetch_or(bit, Ordering::Release)),
        None => drop(HIGH.fetch_add(1, Ordering::Release)),
    }
}

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    SEEN.get(fd / WORD_BITS).map(|word| (word, 1 << (fd % WORD_BITS)))
}

/// Whether a descriptor may be one of them. Takes no lock.
pub fn may_be(fd: c_int) -> bool {
    fd >= 0
        && bit(fd).map_or_else(
            || HIGH.load(Ordering::Acquire) > 0,
            |(word, bit)| word.load(Ordering::Acquire) & bit != 0,
        )
}

/// Does something with the answers that wait for a socket, if it is one of them.
pub fn with<T>(fd: c_int, what: impl FnOnce(&mut VecDeque<Vec<u8>>) -> T) -> Option<T> {
    let inode = inode(fd)?;
    let mut sockets = lock();
    let socket = sockets.iter_mut().find(|socket| (socket.fd, socket.inode) == (fd, inode))?;
    Some(what(&mut socket.answers))
}

thread_local! {
    /// The lock while a fork goes on.
    static HELD: Cell<Option<MutexGuard<'static, Vec<Socket>>>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    HELD.set(Some(lock()));
}

extern "C" fn after_fork() {
    drop(HELD.take());
}

/// Sees to it that no thread holds the lock when the program forks: the child would find it taken
/// for ever.
pub fn over_forks() {
    // SAFETY: the functions are of the type that is wanted, and this library is never unloaded
    // (nobody has opened it).
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}
