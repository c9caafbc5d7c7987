//! Opening, watching and closing a port.
//!
//! Invariant: an [`OpenDevice`] is a started DPDK device. It is stopped, closed and removed from
//! its bus exactly once, when the last of the port and its queues is dropped; so no queue handle
//! ever names a closed device, and an XDP program or TAP interface never outlives its port, also
//! when a panic unwinds.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

use sluice_dpdk_sys as sys;
use tracing::{debug, info, warn};

use crate::device::{Detail, Device, PortConfig};
use crate::eal::Eal;
use crate::error::check;
use crate::interface::{Interface, PortState};
use crate::queue::{self, QueuePair};
use crate::wake::WakeKind;
use crate::{Error, Result};

/// A device's counters since it was opened.
pub use sluice_dpdk_sys::PortStats;

/// Bytes of an Ethernet header with two VLAN tags.
const ETHERNET_OVERHEAD: u32 = 14 + 2 * 4;
/// What fits behind the kernel's header in a slot of an AF_PACKET ring.
const AF_PACKET_MAX_FRAME: u16 = 1982;

/// An open port. The queues are handed out when it is opened.
#[derive(Debug)]
pub struct Port {
    name: String,
    device: Arc<OpenDevice>,
}

/// A started device, closed when dropped.
#[derive(Debug)]
pub(crate) struct OpenDevice {
    eal: Eal,
    id: u16,
    /// As it is configured.
    text: String,
    driver: String,
    bus: CString,
    bus_name: CString,
    interface: Option<Interface>,
    /// Whether received segments were joined before and are to be again.
    restore_gro: bool,
    mac: [u8; 6],
    mtu: u16,
    queues: u16,
    wake_fds: Vec<RawFd>,
}

impl Port {
    /// Opens a port and starts it. The queue pairs are in the order of their index.
    pub fn open(eal: &Eal, config: &PortConfig) -> Result<(Self, Vec<QueuePair>)> {
        let _exclusive = eal.exclusive();
        let opening = Opening { eal, config };
        let (device, wakes) = opening.run()?;
        info!(port = config.name, device = %config.device, driver = device.driver,
            queues = config.queues, mtu = device.mtu, "port is open");
        let device = Arc::new(device);
        let queues = (0..config.queues)
            .map(|index| {
                let wake = wakes.get(usize::from(index)).copied();
                queue::pair(&device, device.id, index, wake)
            })
            .collect();
        Ok((Self { name: config.name.clone(), device }, queues))
    }

    /// The operator's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The DPDK driver behind it.
    pub fn driver(&self) -> &str {
        &self.device.driver
    }

    /// Its queue pairs.
    pub fn queues(&self) -> u16 {
        self.device.queues
    }

    /// Its MAC address when it was opened.
    pub fn mac(&self) -> [u8; 6] {
        self.device.mac
    }

    /// Its MTU when it was opened: the largest IP packet in bytes.
    pub fn mtu(&self) -> u16 {
        self.device.mtu
    }

    /// The name and index of the kernel interface it sits on or made (AF_XDP, AF_PACKET, TAP).
    pub fn interface(&self) -> Option<(&str, u32)> {
        self.device.interface.as_ref().map(|found| (found.name.as_str(), found.index))
    }

    /// Whether it can carry frames now. A few system calls: not for the packet path.
    pub fn state(&self) -> PortState {
        if let Some(interface) = &self.device.interface {
            return interface.state();
        }
        // SAFETY: the device is open.
        match unsafe { sys::sluice_port_link(self.device.id) } {
            1 => PortState::Up,
            _ => PortState::Down,
        }
    }

    /// Whether [`Self::state`] is `Up`.
    pub fn link_up(&self) -> bool {
        self.state() == PortState::Up
    }

    /// The device's counters; all zero when it will not tell.
    pub fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        // SAFETY: the device is open.
        let status = unsafe { sys::sluice_port_stats(self.device.id, &mut stats) };
        if status < 0 {
            debug!(port = self.name, status, "no statistics");
        }
        stats
    }

    /// The descriptors of all queues that poll(2) finds readable while frames wait; see
    /// [`crate::RxQueue::wake_fd`]. Empty when the device has none. Valid while the port is open.
    pub fn wake_fds(&self) -> &[RawFd] {
        &self.device.wake_fds
    }

    /// Closes the port if no queue handle is left, otherwise gives it back.
    pub fn close(self) -> std::result::Result<(), Self> {
        let Self { name, device } = self;
        Arc::try_unwrap(device).map(drop).map_err(|device| Self { name, device })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let eal = self.eal.clone();
        let _exclusive = eal.exclusive();
        if self.restore_gro
            && let Some(interface) = &self.interface
        {
            // Nothing is to be done about an interface that is gone.
            let _ = interface.set_gro(true);
        }
        // SAFETY: the device is open, no queue handle is left, and it is not used again.
        unsafe {
            sys::sluice_port_stop(self.id);
            let status = sys::sluice_device_remove(self.bus.as_ptr(), self.bus_name.as_ptr());
            if status < 0 {
                warn!(device = self.text, status, "DPDK could not remove a device");
            }
        }
        debug!(device = self.text, "port is closed");
    }
}

/// A port on its way to being open.
struct Opening<'a> {
    eal: &'a Eal,
    config: &'a PortConfig,
}

impl Opening<'_> {
    fn run(&self) -> Result<(OpenDevice, Vec<RawFd>)> {
        let PortConfig { name, device, queues, .. } = self.config;
        if *queues == 0 {
            return Err(self.config_error("a port needs at least one queue"));
        }
        let mut interface = match device.kernel_interface() {
            Some(wanted) => Some(Interface::find(name, wanted)?),
            None => None,
        };
        let kind = WakeKind::of(device);
        let before = kind.map(WakeKind::open_now).unwrap_or_default();
        let program = self.program(interface.as_ref())?;
        let detail = Detail {
            xdp_program: program.as_ref().map(path_of).unwrap_or_default(),
            mac: self.config.mac,
        };
        let (id, info) = self.add(&detail)?;
        let mut open = OpenDevice {
            eal: self.eal.clone(),
            id,
            text: device.to_string(),
            driver: text_of(&info.driver),
            bus: CString::new(text_of(&info.bus))?,
            bus_name: CString::new(text_of(&info.device))?,
            interface: None,
            restore_gro: false,
            mac: [0; 6],
            mtu: 0,
            queues: *queues,
            wake_fds: Vec::new(),
        };
        // From here on dropping `open` undoes everything.
        self.set_up(&open, &info)?;
        if let Some(kind) = kind {
            open.wake_fds = kind.open_now().difference(&before).copied().collect();
        }
        if let Device::Tap { name: tap } = device {
            interface = Some(Interface::find(name, tap)?);
        }
        self.read_back(&mut open, interface)?;
        let wakes = open.wake_fds.clone();
        Ok((open, wakes))
    }

    fn config_error(&self, problem: impl Into<String>) -> Error {
        Error::Config { port: self.config.name.clone(), problem: problem.into() }
    }

    fn context(&self, what: &str) -> String {
        format!("{}: {what} {}", self.config.name, self.config.device)
    }

    /// The XDP program as a file in memory, for the driver to load, after a stale one is gone.
    fn program(&self, interface: Option<&Interface>) -> Result<Option<File>> {
        let (Device::AfXdp { .. }, Some(interface)) = (&self.config.device, interface) else {
            return Ok(None);
        };
        sluice_steer::release_stale(interface.index).map_err(|source| Error::Steer {
            port: self.config.name.clone(),
            source: Box::new(source),
        })?;
        // SAFETY: the name is a C string; the descriptor is owned at once.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"sluice_steer".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(Error::last_os("create a file in memory"));
            }
            File::from_raw_fd(fd)
        };
        let context = "write the steering program".to_owned();
        file.write_all(sluice_steer::OBJECT).map_err(|source| Error::System { context, source })?;
        Ok(Some(file))
    }

    fn add(&self, detail: &Detail) -> Result<(u16, sys::DeviceInfo)> {
        let PortConfig { device, queues, .. } = self.config;
        let (arguments, name) = device.devargs(self.eal.next_serial(), *queues, detail);
        let (arguments, name) = (CString::new(arguments)?, CString::new(name)?);
        let mut id = 0;
        // SAFETY: C strings, and room for the answer. All zero bytes are a valid answer.
        let info = unsafe {
            let status = sys::sluice_device_add(arguments.as_ptr(), name.as_ptr(), &mut id);
            check(status, || self.context("open"))?;
            let mut info: sys::DeviceInfo = std::mem::zeroed();
            check(sys::sluice_device_info(id, &mut info), || self.context("ask"))?;
            info
        };
        Ok((id, info))
    }

    fn set_up(&self, open: &OpenDevice, info: &sys::DeviceInfo) -> Result<()> {
        let PortConfig { device, queues, .. } = self.config;
        if *queues > info.max_rx_queues || *queues > info.max_tx_queues {
            let most = info.max_rx_queues.min(info.max_tx_queues);
            return Err(self.config_error(format!(
                "{device} has {most} queues, {queues} are configured: set queues = {most} or less"
            )));
        }
        let offload = matches!(device, Device::Pci { .. } | Device::Dpdk { .. });
        let setup = sys::PortSetup {
            queues: *queues,
            rx_checksum: u8::from(offload && info.rx_checksum == 1),
            rss: u8::from(offload && info.rss == 1),
            ..sys::PortSetup::default()
        };
        let pool = match device {
            Device::AfXdp { .. } => self.eal.xdp_frames()?,
            _ => self.eal.frames(),
        };
        if matches!(device, Device::AfXdp { .. }) && !pool.is_one_run() {
            return Err(self.config_error(
                "AF_XDP needs packet memory in one piece: fewer frames, or more huge pages",
            ));
        }
        let id = open.id;
        // SAFETY: the device exists and nobody else knows it yet; the pool is never freed.
        unsafe {
            check(sys::sluice_port_configure(id, &setup), || self.context("configure"))?;
            for queue in 0..*queues {
                let status = sys::sluice_port_rx_queue(id, queue, 0, pool.raw());
                check(status, || self.context("set up a receive queue of"))?;
                let status = sys::sluice_port_tx_queue(id, queue, 0);
                check(status, || self.context("set up a transmit queue of"))?;
            }
            if let Some(mtu) = self.config.mtu {
                let status = sys::sluice_port_set_mtu(id, mtu);
                check(status, || self.context(&format!("set MTU {mtu} of")))?;
            }
            check(sys::sluice_port_start(id), || self.context("start"))?;
        }
        Ok(())
    }

    /// Learns the address and MTU, and does what a kernel interface needs.
    fn read_back(&self, open: &mut OpenDevice, interface: Option<Interface>) -> Result<()> {
        open.interface = interface;
        let Some(interface) = &open.interface else {
            // SAFETY: the device is open and the answers have the right size.
            unsafe {
                let status = sys::sluice_port_mac(open.id, open.mac.as_mut_ptr());
                check(status, || self.context("read the address of"))?;
                check(sys::sluice_port_mtu(open.id, &mut open.mtu), || {
                    self.context("read the MTU of")
                })?;
            }
            return Ok(());
        };
        open.mac = interface.mac()?;
        open.mtu = interface.mtu()?;
        let most = match self.config.device {
            Device::AfPacket { .. } => self.eal.max_frame().min(AF_PACKET_MAX_FRAME),
            _ => self.eal.max_frame(),
        };
        if u32::from(open.mtu) + ETHERNET_OVERHEAD > u32::from(most) {
            return Err(self.config_error(format!(
                "the MTU of {} is {}, packet buffers hold {} bytes: lower the MTU to {}",
                interface.name,
                open.mtu,
                most,
                u32::from(most) - ETHERNET_OVERHEAD
            )));
        }
        Ok(())
    }
}

fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn text_of(field: &[c_char]) -> String {
    // SAFETY: the shim ends each text with a NUL byte inside the field.
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
}
