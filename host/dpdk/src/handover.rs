//! Ports that another process goes on with: what it is given, and how it takes them up.
//!
//! A kernel's interface is received from by sockets, and what comes waits in them while nobody
//! reads. So a port of AF_XDP sockets of our own, of packet sockets, or a TAP interface goes to
//! another process by its descriptors, and no frame is lost on the way. A device of DPDK's is one
//! process's, and a memif's other side has its memory from it: those are closed here and opened
//! there.
//!
//! Invariant: a port is offered as it stands and goes on. It is taken up ([`Adopted::complete`])
//! after the other process has dropped its queues and said what they left ([`Port::left`]).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::{io, ptr};

use serde::{Deserialize, Serialize};
use sluice_steer::Steer;
use sluice_xdp::Opened;

use crate::ends::{RxEnd, TxEnd};
use crate::packet::Packet;
use crate::port::OpenDevice;
use crate::tap::Tap;
use crate::xdp;
use crate::{Eal, Error, Port, PortConfig, QueuePair, Result, close_on_exec};

/// `BPF_LINK_UPDATE` of bpf(2), and the part of its attributes that it reads.
const BPF_LINK_UPDATE: libc::c_long = 29;

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// What another process is told of a port; the descriptors come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortOffer {
    /// Its device, as the configuration names it.
    pub device: String,
    /// Its queues.
    pub queues: u16,
    /// How many descriptors it has.
    pub descriptors: usize,
    pub(crate) kind: Kind,
}

/// What differs by the kind of device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The program's link; then of each queue the socket and its memory.
    Xdp(Vec<Opened>),
    /// Each queue's socket; whether received segments were joined before all this.
    Packet { gro: Option<bool> },
    /// Each queue's descriptor; whether frames are unfinished.
    Tap { unfinished: bool },
}

/// For each queue the frames that it left: see [`sluice_xdp::Queue::left`].
pub type Left = Vec<Vec<u32>>;

/// A port of another process that this one is about to take up.
#[derive(Debug)]
pub struct Adopted {
    eal: Eal,
    config: PortConfig,
    device: Device,
}

#[derive(Debug)]
enum Device {
    Xdp(Box<xdp::Following>),
    Packet(Packet),
    Tap(Tap),
}

impl PortOffer {
    /// Whether it is the port of a configuration, with as many queues.
    pub fn is_for(&self, config: &PortConfig) -> bool {
        let same_kind = match (&self.kind, &config.device) {
            (Kind::Tap { unfinished }, crate::Device::Tap { .. }) => {
                *unfinished == config.unfinished
            }
            (Kind::Tap { .. }, _) => false,
            _ => true,
        };
        same_kind && (&*self.device, self.queues) == (&*config.device.to_string(), config.queues)
    }
}

impl Port {
    /// What another process needs to go on with it. `None` of a device that is one process's.
    pub fn offer(&self, config: &PortConfig) -> Option<(PortOffer, Vec<OwnedFd>)> {
        let (kind, fds) = match self.device() {
            OpenDevice::Ethdev(_) | OpenDevice::Memif(_) => return None,
            OpenDevice::Xdp(xdp) => {
                let (opened, fds) = xdp.offer()?;
                (Kind::Xdp(opened), fds)
            }
            OpenDevice::Packet(packet) => {
                (Kind::Packet { gro: packet.gro() }, copies(&packet.fds())?)
            }
            OpenDevice::Tap(tap) => {
                (Kind::Tap { unfinished: tap.unfinished() }, copies(&tap.fds())?)
            }
        };
        let device = config.device.to_string();
        let offer = PortOffer { device, queues: self.queues(), descriptors: fds.len(), kind };
        Some((offer, fds))
    }

    /// What its queues left, which have been dropped all. `None` while one is in use.
    pub fn left(&self) -> Option<Left> {
        match self.device() {
            OpenDevice::Xdp(xdp) => xdp.left(),
            _ => Some(Left::new()),
        }
    }

    /// Prepares to go on with a port of another process. That one goes on meanwhile.
    ///
    /// # Errors
    /// When the descriptors are not what the offer says, or the steering program cannot be loaded.
    pub fn adopt(
        eal: &Eal,
        config: &PortConfig,
        offer: &PortOffer,
        fds: Vec<OwnedFd>,
    ) -> Result<Adopted> {
        let device = match (&offer.kind, &config.device) {
            (Kind::Xdp(opened), crate::Device::AfXdp { interface, .. }) => {
                Device::Xdp(Box::new(xdp::Following::new(config, interface, opened, fds)?))
            }
            (Kind::Packet { gro }, crate::Device::AfPacket { interface }) => {
                Device::Packet(Packet::adopt(config, interface, fds, *gro)?)
            }
            (Kind::Tap { unfinished }, crate::Device::Tap { name }) => {
                Device::Tap(Tap::adopt(config, name, fds, *unfinished)?)
            }
            _ => {
                let problem = format!("it is offered as {}", offer.device);
                return Err(Error::Config { port: config.name.clone(), problem });
            }
        };
        Ok(Adopted { eal: eal.clone(), config: config.clone(), device })
    }

    /// Puts this process's own steering program in the place of the former one, which has ended.
    /// Until then that one gives the sockets what it gave them before.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn settle(&self) -> Result<()> {
        match self.device() {
            OpenDevice::Xdp(xdp) => xdp.settle(self.name())?,
            OpenDevice::Packet(packet) => packet.settle(),
            _ => {}
        }
        Ok(())
    }
}

impl Adopted {
    /// The name and index of the kernel's interface.
    pub fn interface(&self) -> (&str, u32) {
        let interface = match &self.device {
            Device::Xdp(following) => &following.interface,
            Device::Packet(packet) => &packet.interface,
            Device::Tap(tap) => &tap.interface,
        };
        (&interface.name, interface.index)
    }

    /// The steering program that will be its port's.
    ///
    /// # Errors
    /// When its maps cannot be opened.
    pub fn steer(&self) -> Result<Option<Steer>> {
        match &self.device {
            Device::Xdp(following) => following.steer(&self.config).map(Some),
            _ => Ok(None),
        }
    }

    /// Goes on from where the other process stopped.
    ///
    /// # Errors
    /// When rings cannot be mapped.
    pub fn complete(self, left: &Left) -> Result<(Port, Vec<QueuePair>)> {
        let Self { eal, config, device } = self;
        let mut ends: Vec<(RxEnd, TxEnd)> = Vec::new();
        let port = match device {
            Device::Xdp(following) => {
                let (xdp, of_it) = following.complete(&config, left)?;
                let end = |(rx, tx, joiner)| (RxEnd::Xdp(rx), TxEnd::Xdp(tx, joiner));
                ends.extend(of_it.into_iter().map(end));
                Port::of_xdp(&config, xdp)?
            }
            Device::Packet(packet) => Port::of_packet(&config, packet)?,
            Device::Tap(tap) => Port::of_tap(&config, tap)?,
        };
        close_on_exec();
        Ok(port.with_queues(&eal, &config, ends))
    }
}

/// As many descriptors as there are queues, or an error.
pub(crate) fn expect_count(config: &PortConfig, found: usize, wanted: usize) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let problem = format!("{found} descriptors came of {wanted}");
    Err(Error::Config { port: config.name.clone(), problem })
}

/// Copies of descriptors.
pub(crate) fn copies(fds: &[libc::c_int]) -> Option<Vec<OwnedFd>> {
    let copy = |fd: &libc::c_int| {
        // SAFETY: it is open as long as the port, which whoever calls has.
        unsafe { BorrowedFd::borrow_raw(*fd) }.try_clone_to_owned().ok()
    };
    fds.iter().map(copy).collect()
}

/// Puts a program in the place of the one that a link has.
pub(crate) fn update_link(link: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    let number = |fd: libc::c_int| fd.cast_unsigned();
    let update = LinkUpdate {
        link: number(link.as_raw_fd()),
        program: number(program.as_raw_fd()),
        ..LinkUpdate::default()
    };
    // SAFETY: the attributes have the length given; the kernel reads them.
    let status = unsafe {
        let (from, length) = (ptr::from_ref(&update), size_of::<LinkUpdate>());
        libc::syscall(libc::SYS_bpf, BPF_LINK_UPDATE, from, length)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
