//! Waking a peer by its eventfd, which is hostile as well.
//!
//! The descriptor's flags belong to both processes: a peer can make it block and fill its counter,
//! and a plain write would then never return. So the kernel is asked to signal it at the end of an
//! asynchronous write to `/dev/null` (`IOCB_FLAG_RESFD`, io_submit(2)), which never blocks and adds
//! to a full counter nothing. Where a kernel has no such writes, it is done by a plain write after
//! the descriptor was made non-blocking again: what a peer could gain there is a race.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::OFlags;

use crate::negotiation::{Refused, refuse};

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
struct Iocb {
    data: u64,
    /// `aio_key` and `aio_rw_flags`, in an order that depends on the processor.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct IoEvent([u64; 4]);

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);

const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_FLAG_RESFD: u32 = 1;

/// Refuses what is no eventfd: anything else could block or report as it likes.
pub fn check(event: &OwnedFd) -> Result<(), Refused> {
    let path = format!("/proc/self/fd/{}", event.as_raw_fd());
    match fs::read_link(path) {
        Ok(target) if target.as_os_str() == "anon_inode:[eventfd]" => Ok(()),
        Ok(target) => refuse(format_args!("{} instead of an eventfd", target.display())),
        Err(error) => refuse(format_args!("a ring's descriptor: {error}")),
    }
}

/// Signals eventfds.
#[derive(Debug)]
pub struct Signal {
    /// What the kernel calls the queue of asynchronous writes; `None` where it has none.
    context: Option<libc::c_ulong>,
    null: OwnedFd,
}

impl Signal {
    /// A means to signal.
    pub fn new() -> io::Result<Self> {
        let null: OwnedFd = fs::OpenOptions::new().write(true).open("/dev/null")?.into();
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the one word that is given.
        let status = unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) };
        Ok(Self { context: (status == 0).then_some(context), null })
    }

    /// Adds one to the counter of an eventfd. Never blocks, but see the module's notes.
    pub fn raise(&self, event: &OwnedFd) {
        let (null, event) = (self.null.as_raw_fd(), event.as_raw_fd());
        let done = self.context.is_some_and(|context| by_completion(context, null, event));
        if !done {
            by_write(event);
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if let Some(context) = self.context {
            // SAFETY: the queue is ours, and nothing is under way in it.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }
}

fn by_completion(context: libc::c_ulong, null: RawFd, event: RawFd) -> bool {
    let byte = 0_u8;
    let mut block = Iocb {
        data: 0,
        key_and_flags: [0; 2],
        opcode: IOCB_CMD_PWRITE,
        priority: 0,
        file: null as u32,
        buffer: (&raw const byte) as u64,
        bytes: 1,
        offset: 0,
        reserved: 0,
        flags: IOCB_FLAG_RESFD,
        event: event as u32,
    };
    let mut blocks = [&raw mut block];
    let mut done = [IoEvent([0; 4]); 1];
    // SAFETY: one block is submitted, and its memory lives until the call returns; `/dev/null`
    // completes at once, and the event is taken so that the queue is empty again.
    unsafe {
        let submitted = libc::syscall(libc::SYS_io_submit, context, 1, blocks.as_mut_ptr());
        if submitted != 1 {
            return false;
        }
        let null = std::ptr::null_mut::<libc::timespec>();
        libc::syscall(libc::SYS_io_getevents, context, 1, 1, done.as_mut_ptr(), null);
    }
    true
}

#[cold]
fn by_write(event: RawFd) {
    // SAFETY: the descriptor is open, its owner lives in the caller.
    let event = unsafe { std::os::fd::BorrowedFd::borrow_raw(event) };
    let _ = rustix::fs::fcntl_setfl(event, OFlags::RDWR | OFlags::NONBLOCK);
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_full_counter_that_blocks_does_not_stop_us() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        check(&event).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let signal = Signal::new().unwrap();
        assert!(signal.context.is_some(), "this kernel has asynchronous writes");
        // More often than the queue has places.
        (0..100).for_each(|_| signal.raise(&event));
    }

    #[test]
    fn what_is_raised_can_be_read() {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let signal = Signal::new().unwrap();
        signal.raise(&event);
        signal.raise(&event);
        by_write(event.as_raw_fd());
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 3);
    }

    #[test]
    fn only_an_eventfd_is_taken() {
        let null: OwnedFd = fs::File::open("/dev/null").unwrap().into();
        assert!(check(&null).unwrap_err().0.contains("/dev/null instead of an eventfd"));
    }
}
