//! The file descriptors by which a sleeping worker learns that frames wait.
//!
//! The drivers keep their sockets to themselves, so they are found by what appeared in the
//! process's descriptor table while a queue was set up, and told from others by their kind. Ports
//! are opened one at a time (`Eal::exclusive`), and nothing else in the process opens AF_XDP
//! sockets. The drivers open them in the order of the queues.

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
            device if device.is_dpdk_xdp() => Some(Self::Socket(libc::AF_XDP)),
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

/// Keeps what the kernel itself sends through the interface from an AF_PACKET socket. By a filter:
/// the socket option for it has no effect on the sockets of a group.
pub(crate) fn ignore_outgoing(fd: RawFd) -> io::Result<()> {
    /// Where a filter finds the kind of a packet: SKF_AD_OFF + SKF_AD_PKTTYPE.
    const PACKET_KIND: u32 = (-0x1000_i32 + 4).cast_unsigned();
    const PACKET_OUTGOING: u32 = 4;
    let step = |code: u32, jt: u8, jf: u8, k: u32| {
        let code = code as u16;
        libc::sock_filter { code, jt, jf, k }
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, PACKET_KIND),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, PACKET_OUTGOING),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter has the length given, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
