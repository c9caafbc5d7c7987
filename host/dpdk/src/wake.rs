//! The file descriptors by which a sleeping worker learns that frames wait.
//!
//! The drivers keep their sockets to themselves, so they are found by what appeared in the
//! process's descriptor table while a queue was set up, and told from others by their kind. Ports
//! are opened one at a time (`Eal::exclusive`), and nothing else in the process opens AF_XDP or
//! AF_PACKET sockets. The drivers open them in the order of the queues.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::{fs, io};

use crate::device::Device;

/// A kind of descriptor that becomes readable when frames wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeKind {
    /// A socket of this address family.
    Socket(libc::c_int),
}

impl WakeKind {
    /// What a device's queues have, if anything.
    pub fn of(device: &Device) -> Option<Self> {
        match device {
            Device::AfXdp { .. } => Some(Self::Socket(libc::AF_XDP)),
            Device::AfPacket { .. } => Some(Self::Socket(libc::AF_PACKET)),
            _ => None,
        }
    }

    fn matches(self, fd: RawFd) -> bool {
        let Self::Socket(family) = self;
        socket_family(fd) == Some(family)
    }

    /// The process's descriptors of this kind, in ascending order.
    pub fn open_now(self) -> BTreeSet<RawFd> {
        let Ok(folder) = fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
        folder
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|fd| self.matches(*fd))
            .collect()
    }
}

fn socket_family(fd: RawFd) -> Option<libc::c_int> {
    let mut family: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the buffer has the length given; any descriptor may be asked.
    let status = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut family).cast(),
            &mut length,
        )
    };
    (status == 0).then_some(family)
}

/// Keeps what the kernel itself sends through the interface from an AF_PACKET socket.
pub(crate) fn ignore_outgoing(fd: RawFd) -> io::Result<()> {
    const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
    let on: libc::c_int = 1;
    // SAFETY: the option's value has the length given.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_PACKET,
            PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
