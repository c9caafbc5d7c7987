//! A TAP interface as a port: the twin through which a DPDK-owned port shares its wire with Linux.
//!
//! DPDK has a driver for it (net_tap, still to be had as `dpdk:net_tap0,iface=NAME`). This one is
//! ours because that one asks for a real-time signal for each frame, which interrupts every
//! blocking call of the process and ends it when the signal queue overflows, and holds a thousand
//! buffers a queue. A twin carries little, so plain reads and writes do.
//!
//! The twin of a port whose frames may be unfinished ([`crate::vnet`]) takes and gives such frames
//! too.
//!
//! Invariant: one descriptor a queue, non-blocking, open as long as the value lives. The interface
//! is not persistent: it goes when the last descriptor is closed, also when the process is killed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;

use crate::handover::expect_count;
use crate::interface::{self, Interface};

use crate::mbuf::Mbuf;
use crate::packet::Intake;
use crate::pool::FramePool;
use crate::port::PortStats;
use crate::vnet::{Came, VnetHeader, carried};
use crate::{Error, PortConfig, Result};

/// An empty queue is really asked only at every one of this many polls: asking is a system call.
const ASK_EVERY: u32 = 16;

// From linux/if_tun.h: what may be left to whoever reads.
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;

/// An open TAP interface.
#[derive(Debug)]
pub(crate) struct Tap {
    pub interface: Interface,
    queues: Vec<OwnedFd>,
    counts: Counts,
    unfinished: bool,
}

#[derive(Debug, Default)]
struct Counts {
    rx_frames: AtomicU64,
    rx_bytes: AtomicU64,
    rx_errors: AtomicU64,
    rx_no_buffer: AtomicU64,
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
    tx_errors: AtomicU64,
}

impl Tap {
    /// Makes the interface and sets it up.
    pub fn open(config: &PortConfig, name: &str) -> Result<Self> {
        let failed = |what: &str, source: io::Error| {
            let context = format!("{}: {what} tap:{name}", config.name);
            Error::System { context, source }
        };
        let queues = (0..config.queues)
            .map(|_| open_queue(name, config.queues > 1, config.unfinished))
            .collect::<io::Result<Vec<OwnedFd>>>()
            .map_err(|source| failed("make", source))?;
        let interface = Interface::find(&config.name, name)?;
        if let Some(mac) = config.mac {
            interface.set_mac(mac).map_err(|source| failed("set the address of", source))?;
        }
        if let Some(mtu) = config.mtu {
            interface.set_mtu(mtu).map_err(|source| failed("set the MTU of", source))?;
        }
        interface.set_up().map_err(|source| failed("bring up", source))?;
        Ok(Self { interface, queues, counts: Counts::default(), unfinished: config.unfinished })
    }

    /// Goes on with the interface of another process. What comes stays in it until the queues are
    /// read.
    pub fn adopt(
        config: &PortConfig,
        name: &str,
        queues: Vec<OwnedFd>,
        unfinished: bool,
    ) -> Result<Self> {
        expect_count(config, queues.len(), config.queues.into())?;
        let interface = Interface::find(&config.name, name)?;
        Ok(Self { interface, queues, counts: Counts::default(), unfinished })
    }

    /// The queues' descriptors.
    pub fn fds(&self) -> Vec<RawFd> {
        self.queues.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Whether frames go and come unfinished.
    pub fn unfinished(&self) -> bool {
        self.unfinished
    }

    /// What was carried since the port was opened.
    pub fn stats(&self) -> PortStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortStats {
            rx_frames: read(&self.counts.rx_frames),
            tx_frames: read(&self.counts.tx_frames),
            rx_bytes: read(&self.counts.rx_bytes),
            tx_bytes: read(&self.counts.tx_bytes),
            rx_missed: 0,
            rx_errors: read(&self.counts.rx_errors),
            tx_errors: read(&self.counts.tx_errors),
            rx_no_buffer: read(&self.counts.rx_no_buffer),
        }
    }

    /// Appends the frames that wait in a queue, `most` at most. `idle` counts the polls that found
    /// nothing; it belongs to the queue.
    pub fn rx<const N: usize>(
        &self,
        queue: u16,
        (pool, intake): (FramePool, Option<&mut Intake>),
        idle: &mut u32,
        frames: &mut ArrayVec<Mbuf, N>,
        most: usize,
    ) -> usize {
        *idle = idle.wrapping_add(1);
        if *idle > ASK_EVERY && !idle.is_multiple_of(ASK_EVERY) {
            return 0;
        }
        let fd = self.queues[usize::from(queue)].as_raw_fd();
        let (count, came) = match intake {
            Some(intake) => intake.rx(|intake| intake.read(fd), frames, most),
            None => self.rx_whole(fd, pool, frames, most),
        };
        if count > 0 {
            *idle = 0;
        }
        self.counts.rx_frames.fetch_add(came.packets, Ordering::Relaxed);
        self.counts.rx_bytes.fetch_add(came.bytes, Ordering::Relaxed);
        self.counts.rx_errors.fetch_add(came.errors, Ordering::Relaxed);
        self.counts.rx_no_buffer.fetch_add(came.no_buffer, Ordering::Relaxed);
        count
    }

    /// Reads frames that are complete.
    fn rx_whole<const N: usize>(
        &self,
        fd: RawFd,
        pool: FramePool,
        frames: &mut ArrayVec<Mbuf, N>,
        most: usize,
    ) -> (usize, Came) {
        let mut came = Came::default();
        while came.packets < most as u64 {
            let Some(mut frame) = pool.alloc() else {
                came.no_buffer += 1;
                break;
            };
            match read_into(fd, &mut frame) {
                Ok(0) | Err(_) => break,
                Ok(len) => came.bytes += len as u64,
            }
            frames.push(frame);
            came.packets += 1;
        }
        (came.packets as usize, came)
    }

    /// Writes frames, from the front; those that were written leave the vector.
    pub fn tx<const N: usize>(&self, queue: u16, frames: &mut ArrayVec<Mbuf, N>) -> usize {
        let fd = self.queues[usize::from(queue)].as_raw_fd();
        let (mut packets, mut bytes, mut written) = (0, 0, 0);
        for frame in frames.iter_mut() {
            let size = frame.segment_size();
            let done = match self.unfinished {
                true => write_unfinished(fd, frame),
                false => write(fd, &[frame.bytes()]),
            };
            if done.is_err() {
                self.counts.tx_errors.fetch_add(1, Ordering::Relaxed);
                break;
            }
            let carried = carried(frame.transport(), frame.bytes().len(), size);
            packets += carried.0;
            bytes += carried.1;
            written += 1;
        }
        frames.drain(..written);
        self.counts.tx_frames.fetch_add(packets, Ordering::Relaxed);
        self.counts.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
        written
    }
}

/// Reads one frame into an empty buffer.
fn read_into(fd: RawFd, frame: &mut Mbuf) -> io::Result<usize> {
    let room = frame.tailroom();
    let fits = frame.set_len(room);
    debug_assert!(fits, "an empty frame can grow by its tailroom");
    let bytes = frame.bytes_mut();
    // SAFETY: the buffer has the length given.
    let len = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    let fits = frame.set_len(len);
    debug_assert!(fits, "the kernel read no more than it was given room for");
    Ok(len)
}

/// Writes one frame, which is in parts.
fn write<const N: usize>(fd: RawFd, parts: &[&[u8]; N]) -> io::Result<()> {
    let vectors = parts
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the vectors are of memory that is only read.
    match unsafe { libc::writev(fd, vectors.as_ptr(), N as libc::c_int) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes one frame with what is left to be done to it.
fn write_unfinished(fd: RawFd, frame: &mut Mbuf) -> io::Result<()> {
    if let Some(header) = VnetHeader::of(frame) {
        return write(fd, &[header.bytes(), frame.bytes()]);
    }
    let (header, mut done) = (VnetHeader::default(), Ok(()));
    frame.cut(|headers, data| {
        done = write(fd, &[header.bytes(), headers, data]);
        done.is_ok()
    });
    done
}

/// Opens one queue of a TAP interface, making the interface with the first.
/// Makes an interface of this name and kind, or one more queue of it.
pub(crate) fn make(name: &str, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the path is a C string; the descriptor is owned at once.
    let queue = unsafe {
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let fd = libc::open(c"/dev/net/tun".as_ptr(), flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut query = interface::request_for(name)?;
    query.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is valid for the ioctl, which writes the name into it.
    if unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &mut query) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(queue)
}

fn open_queue(name: &str, several: bool, unfinished: bool) -> io::Result<OwnedFd> {
    let several = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    let header = if unfinished { libc::IFF_VNET_HDR } else { 0 };
    let queue = make(name, libc::IFF_TAP | several | header)?;
    if unfinished {
        let offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        // SAFETY: the ioctl takes a number.
        if unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETOFFLOAD, offloads) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(queue)
}
