//! A port: what an open device is to the rest of the program.
//!
//! Invariant: the device is closed when the last of the port and its queues is dropped; so no queue
//! handle ever names a closed device.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

use crate::device::{Device, PortConfig, XdpDriver};
use crate::eal::Eal;
use crate::ends::{RxEnd, TxEnd};
use crate::ethdev::{self, Ethdev, Failed};
use crate::flow::FlowTable;
use crate::interface::{self, PortState};
use crate::memif::Memif;
use crate::packet::Packet;
use crate::queue::{self, QueuePair};
use crate::tap::Tap;
use crate::xdp::Xdp;
use crate::{Error, Result, close_on_exec, privilege};

/// A device's counters since it was opened.
pub use sluice_dpdk_sys::PortStats;

/// Copies of a port that has a copy engine, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Left to the engine.
    pub offloaded: u64,
    /// Long enough for it, but its queue was full: done by the processor.
    pub full: u64,
    /// Failed by it, and done again by the processor.
    pub failed: u64,
}

/// An open port. The queues are handed out when it is opened.
#[derive(Debug)]
pub struct Port {
    name: String,
    queues: u16,
    mac: [u8; 6],
    mtu: u16,
    wake_fds: Vec<RawFd>,
    device: Arc<OpenDevice>,
    /// Segments of super-packets that were lost on their way out.
    lost: Arc<AtomicU64>,
}

/// An open device, closed when dropped.
#[derive(Debug)]
pub(crate) enum OpenDevice {
    Ethdev(Ethdev),
    Memif(Memif),
    Packet(Packet),
    Tap(Tap),
    Xdp(Xdp),
}

impl Port {
    /// Opens a port and starts it. The queue pairs are in the order of their index.
    ///
    /// Fails, with what would help, when the process lacks a capability, the interface does not
    /// exist or has more queues or a larger MTU than configured, or another program holds it.
    pub fn open(eal: &Eal, config: &PortConfig) -> Result<(Self, Vec<QueuePair>)> {
        privilege::check(config)?;
        if config.queues == 0 {
            let problem = "a port needs at least one queue".to_owned();
            return Err(Error::Config { port: config.name.clone(), problem });
        }
        let mut ends: Vec<(RxEnd, TxEnd)> = Vec::new();
        let port = match &config.device {
            Device::Memif(wanted) => {
                let (memif, of_it) = Memif::open(config, wanted)?;
                ends.extend(of_it);
                Self::of_memif(config, memif)
            }
            Device::AfXdp { interface, driver: XdpDriver::Own { busy_poll } } => {
                let (xdp, of_it) = Xdp::open(eal, config, interface, *busy_poll)?;
                ends.extend(
                    of_it
                        .into_iter()
                        .map(|(rx, tx, joiner)| (RxEnd::Xdp(rx), TxEnd::Xdp(tx, joiner))),
                );
                Self::of_xdp(config, xdp)?
            }
            Device::Tap { name } => Self::of_tap(config, Tap::open(config, name)?)?,
            Device::AfPacket { interface } => {
                Self::of_packet(config, Packet::open(config, interface)?)?
            }
            _ => Self::of_ethdev(config, open_ethdev(eal, config)?),
        };
        close_on_exec();
        Ok(port.with_queues(eal, config, ends))
    }

    /// The port with the handles of its queues, in the order of their index.
    pub(crate) fn with_queues(
        self,
        eal: &Eal,
        config: &PortConfig,
        ends: Vec<(RxEnd, TxEnd)>,
    ) -> (Self, Vec<QueuePair>) {
        info!(port = config.name, device = %config.device, driver = self.driver(),
            queues = self.queues, mtu = self.mtu, "port is open");
        let queues = self.pairs(eal, ends);
        (self, queues)
    }

    fn pairs(&self, eal: &Eal, ends: Vec<(RxEnd, TxEnd)>) -> Vec<QueuePair> {
        let made = queue::Made { device: &self.device, eal, mtu: self.mtu, lost: &self.lost };
        let mut ends = ends.into_iter();
        (0..self.queues)
            .map(|index| {
                let wake = self.wake_fds.get(usize::from(index)).copied();
                made.pair(index, wake, ends.next())
            })
            .collect()
    }

    /// The handles of its queues once more, after those that there were have been dropped: the
    /// device has received meanwhile. `None` while one is in use, and of a device whose rings are
    /// as whoever used them last has left them.
    pub fn queues_again(&self, eal: &Eal) -> Option<Vec<QueuePair>> {
        match &*self.device {
            _ if Arc::strong_count(&self.device) > 1 => return None,
            OpenDevice::Packet(packet) => packet.join_received(),
            OpenDevice::Tap(_) => {}
            OpenDevice::Ethdev(_) | OpenDevice::Memif(_) | OpenDevice::Xdp(_) => return None,
        }
        Some(self.pairs(eal, Vec::new()))
    }

    pub(crate) fn device(&self) -> &OpenDevice {
        &self.device
    }

    pub(crate) fn of_tap(config: &PortConfig, tap: Tap) -> Result<Self> {
        Ok(Self {
            name: config.name.clone(),
            queues: config.queues,
            mac: tap.interface.mac()?,
            mtu: tap.interface.mtu()?,
            wake_fds: tap.fds(),
            device: Arc::new(OpenDevice::Tap(tap)),
            lost: Arc::default(),
        })
    }

    pub(crate) fn of_packet(config: &PortConfig, packet: Packet) -> Result<Self> {
        let mac = packet.interface.mac()?;
        if config.mac.is_some_and(|wanted| wanted != mac) {
            interface::warn_of_mac(&config.name, &packet.interface.name);
        }
        Ok(Self {
            name: config.name.clone(),
            queues: config.queues,
            mac,
            mtu: packet.interface.mtu()?,
            wake_fds: packet.fds(),
            device: Arc::new(OpenDevice::Packet(packet)),
            lost: Arc::default(),
        })
    }

    fn of_memif(config: &PortConfig, memif: Memif) -> Self {
        Self {
            name: config.name.clone(),
            queues: config.queues,
            mac: memif.mac,
            mtu: memif.mtu,
            // Each queue has its own.
            wake_fds: Vec::new(),
            device: Arc::new(OpenDevice::Memif(memif)),
            lost: Arc::default(),
        }
    }

    pub(crate) fn of_xdp(config: &PortConfig, xdp: Xdp) -> Result<Self> {
        Ok(Self {
            name: config.name.clone(),
            queues: config.queues,
            mac: xdp.interface.mac()?,
            mtu: xdp.interface.mtu()?,
            wake_fds: xdp.fds(),
            device: Arc::new(OpenDevice::Xdp(xdp)),
            lost: Arc::default(),
        })
    }

    fn of_ethdev(config: &PortConfig, ethdev: Ethdev) -> Self {
        Self {
            name: config.name.clone(),
            queues: config.queues,
            mac: ethdev.mac,
            mtu: ethdev.mtu,
            wake_fds: ethdev.wake_fds.clone(),
            device: Arc::new(OpenDevice::Ethdev(ethdev)),
            lost: Arc::default(),
        }
    }

    /// The operator's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver behind it, by DPDK's name, or `memif`, `packet`, `tap` or `xdp` for our own.
    pub fn driver(&self) -> &str {
        match &*self.device {
            OpenDevice::Ethdev(ethdev) => &ethdev.driver,
            OpenDevice::Memif(_) => "memif",
            OpenDevice::Packet(_) => "packet",
            OpenDevice::Tap(_) => "tap",
            OpenDevice::Xdp(_) => "xdp",
        }
    }

    /// Its queue pairs.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Its MAC address when it was opened.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Its MTU when it was opened: the largest IP packet in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The name and index of the kernel interface it sits on or made (AF_XDP, AF_PACKET, TAP).
    pub fn interface(&self) -> Option<(&str, u32)> {
        let interface = match &*self.device {
            OpenDevice::Ethdev(ethdev) => ethdev.interface.as_ref()?,
            OpenDevice::Memif(_) => return None,
            OpenDevice::Packet(packet) => &packet.interface,
            OpenDevice::Tap(tap) => &tap.interface,
            OpenDevice::Xdp(xdp) => &xdp.interface,
        };
        Some((&interface.name, interface.index))
    }

    /// Whether it can carry frames now. A few system calls: not for the packet path.
    pub fn state(&self) -> PortState {
        match &*self.device {
            OpenDevice::Ethdev(ethdev) => ethdev.state(),
            OpenDevice::Memif(memif) => memif.state(),
            OpenDevice::Packet(packet) => packet.state(),
            OpenDevice::Tap(tap) => tap.interface.state(),
            OpenDevice::Xdp(xdp) => xdp.interface.state(),
        }
    }

    /// What its copy engine has done; `None` of a port without one.
    pub fn copies(&self) -> Option<CopyStats> {
        match &*self.device {
            OpenDevice::Memif(memif) if memif.offloads => Some(memif.copies()),
            _ => None,
        }
    }

    /// Why [`Self::state`] is not `Up`, where the device says: a memif without a peer.
    pub fn trouble(&self) -> Option<String> {
        match &*self.device {
            OpenDevice::Memif(memif) => memif.trouble(),
            _ => None,
        }
    }

    /// Whether [`Self::state`] is `Up`.
    pub fn link_up(&self) -> bool {
        self.state() == PortState::Up
    }

    /// The device's counters; all zero when it will not tell.
    pub fn stats(&self) -> PortStats {
        let mut stats = match &*self.device {
            OpenDevice::Ethdev(ethdev) => ethdev.stats(),
            OpenDevice::Memif(memif) => memif.stats(),
            OpenDevice::Packet(packet) => packet.stats(),
            OpenDevice::Tap(tap) => tap.stats(),
            OpenDevice::Xdp(xdp) => xdp.stats(),
        };
        stats.tx_errors += self.lost.load(Ordering::Relaxed);
        stats
    }

    /// Its table of flow rules; `None` of a device that is not DPDK's own, or is AF_XDP's.
    pub fn flows(&self) -> Option<FlowTable<'_>> {
        match &*self.device {
            OpenDevice::Ethdev(ethdev) => FlowTable::of(ethdev),
            _ => None,
        }
    }

    /// The descriptors of all queues that poll(2) finds readable while frames wait; see
    /// [`crate::RxQueue::wake_fd`]. Empty when the device has none. Valid while the port is open.
    pub fn wake_fds(&self) -> &[RawFd] {
        &self.wake_fds
    }

    /// Closes the port if no queue handle is left, otherwise gives it back.
    pub fn close(self) -> std::result::Result<(), Self> {
        if Arc::strong_count(&self.device) > 1 {
            return Err(self);
        }
        // Nobody else has a handle, and handles come from handles only: this was the last.
        drop(self);
        Ok(())
    }
}

/// Opens a DPDK device, one at a time; what failed half-way is closed after the turn is over.
fn open_ethdev(eal: &Eal, config: &PortConfig) -> Result<Ethdev> {
    let exclusive = eal.exclusive();
    let result = ethdev::open(eal, config);
    drop(exclusive);
    result.map_err(|Failed(error, half_open)| {
        drop(half_open);
        error
    })
}
