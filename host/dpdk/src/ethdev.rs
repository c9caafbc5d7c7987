//! A DPDK device behind a port: opening it, and closing it without leaving anything behind.
//!
//! Invariant: a [`Part`] is a device that was added to DPDK. It is stopped, closed and removed from
//! its bus exactly once, when its [`Ethdev`] is dropped; so an XDP program never outlives its port,
//! also when a panic unwinds or opening fails half-way.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use sluice_dpdk_sys as sys;
use sluice_steer::Held;
use tracing::{debug, warn};

use crate::device::{Device, PortConfig};
use crate::eal::Eal;
use crate::error::check;
use crate::flow::Flows;
use crate::interface::{self, Interface, PortState};
use crate::pool::FramePool;
use crate::wake::WakeKind;
use crate::xsk;
use crate::{Error, Result};

/// Bytes of an Ethernet header with two VLAN tags.
pub(crate) const ETHERNET_OVERHEAD: u32 = 14 + 2 * 4;
/// What fits a page behind the headers that AF_XDP and DPDK keep in front of a frame.
const AF_XDP_MAX_FRAME: u16 = 4096 - 64 - 128 - 128 - 256;

/// The DPDK device behind a port; for AF_XDP, one device for each queue.
#[derive(Debug)]
pub(crate) struct Ethdev {
    eal: Eal,
    parts: Vec<Part>,
    /// As it is configured.
    text: String,
    pub driver: String,
    pub interface: Option<Interface>,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub wake_fds: Vec<RawFd>,
    pub flows: Flows,
    xdp: Option<XdpPart>,
}

/// One device of DPDK's, stopped and removed when dropped.
#[derive(Debug)]
struct Part {
    /// DPDK's number for it.
    id: u16,
    bus: CString,
    name: CString,
    queues: u16,
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the device was added, no queue handle is left, and it is not used again.
        let status = unsafe {
            sys::sluice_port_stop(self.id);
            sys::sluice_device_remove(self.bus.as_ptr(), self.name.as_ptr())
        };
        if status < 0 {
            warn!(device = ?self.name, status, "DPDK could not remove a device");
        }
    }
}

/// What an AF_XDP port leaves behind when its driver has closed it.
#[derive(Debug)]
struct XdpPart {
    pool: FramePool,
    /// Descriptors of the XDP program and its maps, which the driver never closes.
    descriptors: Vec<Held>,
}

/// What the driver is about to forget.
struct Leavings {
    sockets: Vec<xsk::Socket>,
    addresses: BTreeSet<u64>,
}

impl Ethdev {
    pub fn state(&self) -> PortState {
        if let Some(interface) = &self.interface {
            return interface.state();
        }
        // SAFETY: the devices are open.
        let up = |part: &Part| unsafe { sys::sluice_port_link(part.id) } == 1;
        if self.parts.iter().all(up) { PortState::Up } else { PortState::Down }
    }

    /// The sum over the parts.
    pub fn stats(&self) -> sys::PortStats {
        let mut sum = sys::PortStats::default();
        for part in &self.parts {
            let mut stats = sys::PortStats::default();
            // SAFETY: the device is open.
            let status = unsafe { sys::sluice_port_stats(part.id, &mut stats) };
            if status < 0 {
                debug!(device = self.text, status, "no statistics");
            }
            sum.rx_frames += stats.rx_frames;
            sum.tx_frames += stats.tx_frames;
            sum.rx_bytes += stats.rx_bytes;
            sum.tx_bytes += stats.tx_bytes;
            sum.rx_missed += stats.rx_missed;
            sum.rx_errors += stats.rx_errors;
            sum.tx_errors += stats.tx_errors;
            sum.rx_no_buffer += stats.rx_no_buffer;
        }
        sum
    }

    /// DPDK's number of the device whose rules are the port's: not of AF_XDP, which has none.
    pub fn flow_device(&self) -> Option<u16> {
        match (&*self.parts, &self.xdp) {
            ([part], None) => Some(part.id),
            _ => None,
        }
    }

    /// DPDK's numbers, of the device and in it, for a queue of the port.
    pub fn queue(&self, queue: u16) -> (u16, u16) {
        let mut left = queue;
        for part in &self.parts {
            if left < part.queues {
                return (part.id, left);
            }
            left -= part.queues;
        }
        unreachable!("a port hands out its own queues only")
    }
}

impl Drop for Ethdev {
    fn drop(&mut self) {
        let eal = self.eal.clone();
        let _exclusive = eal.exclusive();
        // Rules need a started device, and some drivers lose track of them when it stops.
        self.flows.flush();
        let leavings = self.xdp.as_ref().map(|xdp| xdp.before_close(self));
        self.parts.clear();
        if let (Some(xdp), Some(leavings)) = (&self.xdp, leavings) {
            xdp.after_close(leavings);
        }
        debug!(device = self.text, "port is closed");
    }
}

impl XdpPart {
    /// Takes the program off the interface, and notes what is in the rings.
    fn before_close(&self, device: &Ethdev) -> Leavings {
        if let Some(interface) = &device.interface
            && interface.state() != PortState::Gone
            && let Err(error) = sluice_steer::detach(interface.index)
        {
            warn!(device = device.text, %error, "the steering program stays on the interface");
        }
        let sockets: Vec<_> = device.wake_fds.iter().copied().filter_map(xsk::Socket::of).collect();
        // SAFETY: the port is still open.
        let addresses = unsafe { xsk::addresses(&sockets) };
        Leavings { sockets, addresses }
    }

    /// Gives back what the driver forgot.
    fn after_close(&self, leavings: Leavings) {
        // SAFETY: the driver has closed the port.
        let close = |socket: &&xsk::Socket| unsafe { socket.close_if_left() };
        let sockets = leavings.sockets.iter().filter(close).count();
        // SAFETY: the driver has closed the port, whose pool this is.
        let buffers = unsafe { xsk::give_back(&leavings.addresses, self.pool) };
        for held in self.descriptors.iter().filter(|held| held.is_still()) {
            // SAFETY: the driver opened it and lost the only reference to it with the device.
            unsafe { libc::close(held.fd) };
        }
        debug!(buffers, sockets, "gave back what the driver forgot");
    }
}

/// Opens a device. The caller holds [`Eal::exclusive`].
pub(crate) fn open(eal: &Eal, config: &PortConfig) -> Result<Ethdev, Failed> {
    Opening { eal, config }.run()
}

/// Why a device was not opened, with what must be closed once the caller has let go of
/// [`Eal::exclusive`].
pub(crate) struct Failed(pub Error, pub Option<Box<Ethdev>>);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error, None)
    }
}

/// A device on its way to being open.
struct Opening<'a> {
    eal: &'a Eal,
    config: &'a PortConfig,
}

impl Opening<'_> {
    fn run(&self) -> Result<Ethdev, Failed> {
        let PortConfig { name, device, .. } = self.config;
        let interface = match device.kernel_interface() {
            Some(wanted) => Some(Interface::find(name, wanted)?),
            None => None,
        };
        self.check_interface(interface.as_ref())?;
        if let (Device::AfXdp { .. }, Some(interface)) = (device, &interface) {
            sluice_steer::release_stale(interface.index)
                .map_err(|source| self.steer_error(source))?;
        }
        let mut open = Ethdev {
            eal: self.eal.clone(),
            parts: Vec::new(),
            text: device.to_string(),
            driver: String::new(),
            interface,
            mac: [0; 6],
            mtu: 0,
            wake_fds: Vec::new(),
            flows: Flows::default(),
            xdp: None,
        };
        // Dropping `open` undoes what was done, however far it went.
        match self.set_up(&mut open).and_then(|()| self.finish(&mut open)) {
            Ok(()) => Ok(open),
            Err(error) => Err(Failed(error, Some(Box::new(open)))),
        }
    }

    fn config_error(&self, problem: impl Into<String>) -> Error {
        Error::Config { port: self.config.name.clone(), problem: problem.into() }
    }

    fn context(&self, what: &str) -> String {
        format!("{}: {what} {}", self.config.name, self.config.device)
    }

    /// Refuses an interface that the driver cannot have.
    fn check_interface(&self, interface: Option<&Interface>) -> Result<()> {
        let Some(interface) = interface else { return Ok(()) };
        if matches!(self.config.device, Device::AfXdp { .. })
            && self.eal.max_frame() > AF_XDP_MAX_FRAME
        {
            let largest = u32::from(AF_XDP_MAX_FRAME) - ETHERNET_OVERHEAD;
            return Err(self.config_error(format!(
                "beside an AF_XDP port no port may have an MTU above {largest}"
            )));
        }
        check_interface(self.eal, self.config, interface)
    }

    fn steer_error(&self, source: sluice_steer::Error) -> Error {
        Error::Steer { port: self.config.name.clone(), source: Box::new(source) }
    }

    fn set_up(&self, open: &mut Ethdev) -> Result<()> {
        let PortConfig { device, queues, .. } = self.config;
        if !matches!(device, Device::AfXdp { .. }) {
            return self.add_part(open, 0, *queues, "");
        }
        let file = program_file()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if !self.pool()?.is_one_run() {
            return Err(self.config_error(
                "AF_XDP needs packet memory in one piece: fewer frames, or more huge pages",
            ));
        }
        open.xdp = Some(XdpPart { pool: self.pool()?, descriptors: Vec::new() });
        for queue in 0..*queues {
            self.add_xdp_queue(open, queue, &path)?;
        }
        self.bind_all(open)
    }

    /// Adds a device for one queue of an AF_XDP port. The driver can serve several queues itself,
    /// but only of interfaces with "combined" channels (veth has none), and then it closes only
    /// the first. Each device insists on attaching a program of its own, so the one before it is
    /// taken off; the last stays.
    fn add_xdp_queue(&self, open: &mut Ethdev, queue: u16, program: &str) -> Result<()> {
        let index = open.interface.as_ref().map_or(0, |interface| interface.index);
        if queue > 0 {
            sluice_steer::detach(index).map_err(|source| self.steer_error(source))?;
        }
        let added = self.add_part(open, queue, 1, program);
        let held = sluice_steer::descriptors_held(index).unwrap_or_default();
        if let Some(xdp) = &mut open.xdp {
            xdp.descriptors.extend(held);
        }
        added
    }

    /// Gives the program that stayed the sockets of all queues.
    fn bind_all(&self, open: &Ethdev) -> Result<()> {
        let index = open.interface.as_ref().map_or(0, |interface| interface.index);
        let queues = (0..).zip(open.wake_fds.iter().copied());
        sluice_steer::bind(index, queues).map_err(|source| self.steer_error(source))
    }

    /// Adds a device for a run of the port's queues, sets it up and starts it.
    fn add_part(&self, open: &mut Ethdev, first: u16, queues: u16, program: &str) -> Result<()> {
        let kind = WakeKind::of(&self.config.device);
        let before = kind.map(WakeKind::open_now).unwrap_or_default();
        let info = self.add(open, first, queues, program)?;
        let result = self.start(open, &info);
        if let Some(kind) = kind {
            open.wake_fds.extend(kind.open_now().difference(&before));
        }
        result
    }

    fn add(
        &self,
        open: &mut Ethdev,
        first: u16,
        queues: u16,
        program: &str,
    ) -> Result<sys::DeviceInfo> {
        let serial = self.eal.next_serial();
        let (mut arguments, name) = self.config.device.devargs(serial, first, queues, program);
        // Its driver cannot change it later.
        if let (Device::Memif { .. }, Some(mac)) = (&self.config.device, self.config.mac) {
            arguments += &format!(",mac={}", mac.map(|byte| format!("{byte:02x}")).join(":"));
        }
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
        open.driver = text_of(&info.driver);
        let (bus, name) = (text_of(&info.bus), text_of(&info.device));
        open.parts.push(Part { id, bus: CString::new(bus)?, name: CString::new(name)?, queues });
        Ok(info)
    }

    /// Sets up the part that was added last.
    fn start(&self, open: &Ethdev, info: &sys::DeviceInfo) -> Result<()> {
        let Some(Part { id, queues, .. }) = open.parts.last() else { return Ok(()) };
        let (id, queues) = (*id, *queues);
        let device = &self.config.device;
        if queues > info.max_rx_queues || queues > info.max_tx_queues {
            let most = info.max_rx_queues.min(info.max_tx_queues);
            return Err(self.config_error(format!(
                "{device} has {most} queues, {queues} are configured: set queues = {most} or less"
            )));
        }
        let offload = matches!(device, Device::Pci { .. } | Device::Dpdk { .. });
        let setup = sys::PortSetup {
            queues,
            rx_checksum: u8::from(offload && info.rx_checksum == 1),
            rss: u8::from(offload && info.rss == 1),
            ..sys::PortSetup::default()
        };
        let pool = self.pool()?;
        // SAFETY: the device exists and nobody else knows it yet; the pool is never freed.
        unsafe {
            check(sys::sluice_port_configure(id, &setup), || self.context("configure"))?;
            for queue in 0..queues {
                let status = sys::sluice_port_rx_queue(id, queue, 0, pool.raw());
                check(status, || self.context("set up a receive queue of"))?;
                let status = sys::sluice_port_tx_queue(id, queue, 0);
                check(status, || self.context("set up a transmit queue of"))?;
            }
            if let Some(mtu) = self.config.mtu {
                let status = sys::sluice_port_set_mtu(id, mtu);
                check(status, || self.context(&format!("set MTU {mtu} of")))?;
            }
            if let (Some(mac), None) = (self.config.mac, &open.interface)
                && !matches!(device, Device::Memif { .. })
            {
                let status = sys::sluice_port_set_mac(id, mac.as_ptr());
                check(status, || self.context("set the address of"))?;
            }
            // Whether an AF_XDP port's interface is up is its owner's affair.
            let keep_flags = i32::from(matches!(device, Device::AfXdp { .. }));
            check(sys::sluice_port_start(id, keep_flags), || self.context("start"))?;
            if matches!(device, Device::Pci { .. }) && sys::sluice_port_allmulticast(id, 1) < 0 {
                warn!(port = self.config.name, "multicast may not reach the TAP twin");
            }
        }
        Ok(())
    }

    fn pool(&self) -> Result<FramePool> {
        match self.config.device {
            Device::AfXdp { .. } => self.eal.xdp_frames(),
            _ => Ok(self.eal.frames()),
        }
    }

    /// Notes what is to be undone, does what a kernel interface needs, and learns the port's
    /// address and MTU.
    fn finish(&self, open: &mut Ethdev) -> Result<()> {
        let Some(interface) = &open.interface else {
            let (id, _) = open.queue(0);
            // SAFETY: the device is open and the answers have the right size.
            unsafe {
                let status = sys::sluice_port_mac(id, open.mac.as_mut_ptr());
                check(status, || self.context("read the address of"))?;
                let status = sys::sluice_port_mtu(id, &mut open.mtu);
                check(status, || self.context("read the MTU of"))?;
            }
            return Ok(());
        };
        open.mac = interface.mac()?;
        open.mtu = interface.mtu()?;
        if self.config.mac.is_some_and(|wanted| wanted != open.mac) {
            interface::warn_of_mac(&self.config.name, &interface.name);
        }
        Ok(())
    }
}

/// Refuses an interface whose frames would not fit packet buffers, and an AF_XDP port that would
/// not serve all of its queues.
pub(crate) fn check_interface(eal: &Eal, config: &PortConfig, interface: &Interface) -> Result<()> {
    let refuse = |problem| Err(Error::Config { port: config.name.clone(), problem });
    let most = eal.max_frame();
    let mtu = config.mtu.map_or_else(|| interface.mtu(), Ok)?;
    if u32::from(mtu) + ETHERNET_OVERHEAD > u32::from(most) {
        let largest = u32::from(most) - ETHERNET_OVERHEAD;
        return refuse(format!(
            "the MTU of {} is {mtu}, packet buffers hold {most} bytes: set `mtu = {mtu}`, or \
             `ip link set {} mtu {largest}`",
            interface.name, interface.name
        ));
    }
    let (served, present) = (u32::from(config.queues), interface.rx_queues());
    if matches!(config.device, Device::AfXdp { .. }) && present != served {
        let name = &interface.name;
        return refuse(format!(
            "{name} receives on {present} queues, {served} are configured: set queues = {present}, \
             or `ethtool -L {name} combined {served}` (where there are no combined channels: `rx \
             {served}`)"
        ));
    }
    Ok(())
}

/// The XDP program as a file in memory, for the driver to load.
fn program_file() -> Result<File> {
    // SAFETY: the name is a C string; the descriptor is owned at once.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"sluice_steer".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(Error::last_os("create a file in memory"));
        }
        File::from_raw_fd(fd)
    };
    let context = "write the steering program".to_owned();
    let written = file.write_all(sluice_steer::OBJECT);
    written.map_err(|source| Error::System { context, source })?;
    Ok(file)
}

fn text_of(field: &[c_char]) -> String {
    // SAFETY: the shim ends each text with a NUL byte inside the field.
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
}
