//! A kernel interface by packet sockets of our own: the port behind `af_packet:IF`.
//!
//! DPDK has a driver for it (net_af_packet, still to be had as `dpdk:net_af_packet0,iface=IF`).
//! This one is ours because that one knows no `PACKET_VNET_HDR`, without which the kernel neither
//! gives nor takes super-packets ([`crate::vnet`]) and sends us what it has left unfinished as if
//! it were complete; nor tags that it has taken off. Frames are read and written with one system
//! call a burst; a frame of 64 KB costs hardly more than one of 1500 bytes.
//!
//! Invariant: one socket a queue, open as long as the value lives. While it is, the interface is
//! sealed (`sluice_steer::Seal`) and joins what it receives; then that is as it was before.

mod intake;
mod outgo;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_steer::Seal;
use tracing::warn;

use crate::handover::expect_count;
use crate::interface::{Interface, PortState};
use crate::port::PortStats;
use crate::{Error, PortConfig, Result, wake};

pub(crate) use intake::Intake;

/// Bytes that a socket may hold in each direction, as the kernel counts.
const SOCKET_ROOM: libc::c_int = 32 << 20;

// From linux/if_packet.h; not in the libc crate for every target.
const PACKET_FANOUT_FLAG_UNIQUEID: u32 = 0x2000;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// An open interface.
#[derive(Debug)]
pub(crate) struct Packet {
    pub interface: Interface,
    sockets: Vec<OwnedFd>,
    counts: Counts,
    /// Keeps the kernel's stack from the frames that come here.
    seal: Seal,
    /// Whether received segments were joined before; `None` if the interface does not say.
    gro: Option<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    rx_missed: AtomicU64,
    rx_errors: AtomicU64,
    rx_no_buffer: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_errors: AtomicU64,
}

impl Packet {
    /// Opens the interface.
    pub fn open(config: &PortConfig, name: &str) -> Result<Self> {
        let failed = |what: &str, source: io::Error| {
            let context = format!("{}: {what} {}", config.name, config.device);
            Error::System { context, source }
        };
        let interface = Interface::find(&config.name, name)?;
        let seal = Seal::attach(name)
            .map_err(|e| Error::Steer { port: config.name.clone(), source: Box::new(e) })?;
        if let Some(mtu) = config.mtu {
            interface.set_mtu(mtu).map_err(|source| failed("set the MTU of", source))?;
        }
        let sockets = (0..config.queues)
            .map(|_| open_socket(&interface))
            .collect::<io::Result<Vec<OwnedFd>>>()
            .map_err(|source| failed("open a packet socket on", source))?;
        share(&sockets).map_err(|source| failed("spread over the queues of", source))?;
        let gro = interface.set_gro(true).ok();
        let counts = Counts::default();
        Ok(Self { interface, sockets, counts, seal, gro })
    }

    /// Goes on with the sockets of another process, before which received segments were joined or
    /// not. What comes stays in them until the queues are read.
    pub fn adopt(
        config: &PortConfig,
        name: &str,
        sockets: Vec<OwnedFd>,
        gro: Option<bool>,
    ) -> Result<Self> {
        expect_count(config, sockets.len(), config.queues.into())?;
        let interface = Interface::find(&config.name, name)?;
        let seal = Seal::beside(name)
            .map_err(|e| Error::Steer { port: config.name.clone(), source: Box::new(e) })?;
        Ok(Self { interface, sockets, counts: Counts::default(), seal, gro })
    }

    /// The process before has ended, and its seal is this one's to remove.
    pub fn settle(&self) {
        self.seal.settle();
    }

    /// Has received segments joined, which another process may have ended that was about to go on
    /// with the port.
    pub fn join_received(&self) {
        if self.gro.is_some()
            && let Err(error) = self.interface.set_gro(true)
        {
            warn!(interface = self.interface.name, %error, "what it receives is not joined");
        }
    }

    /// Whether received segments were joined before the port was opened.
    pub fn gro(&self) -> Option<bool> {
        self.gro
    }

    /// The queues' descriptors.
    pub fn fds(&self) -> Vec<RawFd> {
        self.sockets.iter().map(AsRawFd::as_raw_fd).collect()
    }

    pub fn state(&self) -> PortState {
        self.interface.state()
    }

    fn fd(&self, queue: u16) -> RawFd {
        self.sockets[usize::from(queue)].as_raw_fd()
    }

    /// What was carried since the port was opened; each segment of a super-packet counts.
    pub fn stats(&self) -> PortStats {
        let missed = self.sockets.iter().map(|socket| missed(socket.as_raw_fd())).sum();
        self.counts.rx_missed.fetch_add(missed, Ordering::Relaxed);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortStats {
            rx_frames: read(&self.counts.rx_packets),
            tx_frames: read(&self.counts.tx_packets),
            rx_bytes: read(&self.counts.rx_bytes),
            tx_bytes: read(&self.counts.tx_bytes),
            rx_missed: read(&self.counts.rx_missed),
            rx_errors: read(&self.counts.rx_errors),
            tx_errors: read(&self.counts.tx_errors),
            rx_no_buffer: read(&self.counts.rx_no_buffer),
        }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        if self.gro == Some(false)
            && self.interface.state() != PortState::Gone
            && let Err(error) = self.interface.set_gro(false)
        {
            warn!(interface = self.interface.name, %error, "it goes on joining what it receives");
        }
    }
}

/// Opens a packet socket that gets all that an interface receives, with what is left to be done to
/// it, and nothing that the kernel sends.
fn open_socket(interface: &Interface) -> io::Result<OwnedFd> {
    // SAFETY: opens a socket, owned at once. Without a protocol it receives nothing yet.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_PACKET, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    set(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
    // Not past the queueing discipline (PACKET_QDISC_BYPASS): what is sent so is dropped where the
    // device itself does not cut super-packets (`__dev_direct_xmit`).
    // With less room it works too; the kernel drops more then, and counts.
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &SOCKET_ROOM);
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SOCKET_ROOM);
    // The option is cheaper, but has no effect on sockets of a group.
    let _ = set(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1);
    wake::ignore_outgoing(fd)?;
    let membership = libc::packet_mreq {
        mr_ifindex: interface.index as libc::c_int,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface.index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address has the length given.
    let status = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(fd, (&raw const address).cast(), length)
    };
    if status == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Spreads what comes over several sockets by flow, both directions of one to the same. Fragments
/// of a datagram stay together, since they are spread by their addresses.
fn share(sockets: &[OwnedFd]) -> io::Result<()> {
    let [first, others @ ..] = sockets else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let kind = libc::PACKET_FANOUT_HASH << 16;
    let unique = kind | PACKET_FANOUT_FLAG_UNIQUEID << 16;
    set(first.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &unique)?;
    let mut group: u32 = 0;
    get(first.as_raw_fd(), libc::PACKET_FANOUT, &mut group)?;
    let member = kind | group & 0xffff;
    others.iter().try_for_each(|other| {
        set(other.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &member)
    })
}

/// Frames that a socket had no room for since this was last asked.
fn missed(fd: RawFd) -> u64 {
    let mut stats = [0_u32; 2];
    match get(fd, libc::PACKET_STATISTICS, &mut stats) {
        Ok(()) => u64::from(stats[1]),
        Err(_) => 0,
    }
}

fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value has the length given, and the kernel copies it.
    let status = unsafe {
        let length = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), length)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for an option whose value is of plain integers.
fn get<T: Copy>(fd: RawFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as the value has, and any are valid.
    let status = unsafe {
        let value = std::ptr::from_mut(value).cast();
        libc::getsockopt(fd, libc::SOL_PACKET, option, value, &mut length)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
