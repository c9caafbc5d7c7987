//! A DPDK device behind a port: opening it, and closing it without leaving anything behind.
//!
//! Invariant: an [`Ethdev`] is a device that was added to DPDK. It is stopped, closed and removed
//! from its bus exactly once, when it is dropped; so an XDP program never outlives its port, also
//! when a panic unwinds or opening fails half-way.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use sluice_dpdk_sys as sys;
use sluice_steer::Seal;
use tracing::{debug, warn};

use crate::device::{Detail, Device, PortConfig};
use crate::eal::Eal;
use crate::error::check;
use crate::interface::{Interface, PortState};
use crate::pool::FramePool;
use crate::wake::{self, WakeKind};
use crate::xsk;
use crate::{Error, Result};

/// Bytes of an Ethernet header with two VLAN tags.
const ETHERNET_OVERHEAD: u32 = 14 + 2 * 4;
/// What fits behind the kernel's header in a slot of an AF_PACKET ring.
const AF_PACKET_MAX_FRAME: u16 = 1982;

/// A DPDK device.
#[derive(Debug)]
pub(crate) struct Ethdev {
    eal: Eal,
    /// DPDK's number for it.
    pub id: u16,
    /// As it is configured.
    text: String,
    pub driver: String,
    bus: CString,
    bus_name: CString,
    pub interface: Option<Interface>,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub wake_fds: Vec<RawFd>,
    xdp: Option<XdpPart>,
    packet: Option<PacketPart>,
}

/// What an AF_XDP port leaves behind when its driver has closed it.
#[derive(Debug)]
struct XdpPart {
    pool: FramePool,
    /// Descriptors of the XDP program and its maps, which the driver never closes.
    descriptors: Vec<RawFd>,
}

/// What is done to the interface of an AF_PACKET port as long as it is open.
#[derive(Debug)]
struct PacketPart {
    /// Keeps the kernel's stack from the frames that come here.
    #[allow(dead_code, reason = "held until the port is closed")]
    seal: Seal,
    /// Whether received segments were joined before.
    gro: bool,
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
        // SAFETY: the device is open.
        match unsafe { sys::sluice_port_link(self.id) } {
            1 => PortState::Up,
            _ => PortState::Down,
        }
    }

    pub fn stats(&self) -> sys::PortStats {
        let mut stats = sys::PortStats::default();
        // SAFETY: the device is open.
        let status = unsafe { sys::sluice_port_stats(self.id, &mut stats) };
        if status < 0 {
            debug!(device = self.text, status, "no statistics");
        }
        stats
    }
}

impl Drop for Ethdev {
    fn drop(&mut self) {
        let eal = self.eal.clone();
        let _exclusive = eal.exclusive();
        if let (Some(packet), Some(interface)) = (&self.packet, &self.interface)
            && packet.gro
        {
            // Nothing is to be done about an interface that is gone.
            let _ = interface.set_gro(true);
        }
        let leavings = self.xdp.as_ref().map(|xdp| xdp.before_close(self));
        // SAFETY: the device is open, no queue handle is left, and it is not used again.
        unsafe {
            sys::sluice_port_stop(self.id);
            let status = sys::sluice_device_remove(self.bus.as_ptr(), self.bus_name.as_ptr());
            if status < 0 {
                warn!(device = self.text, status, "DPDK could not remove a device");
            }
        }
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
        for descriptor in &self.descriptors {
            // SAFETY: the driver opened it and lost the only reference to it with the device.
            unsafe { libc::close(*descriptor) };
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
        let kind = WakeKind::of(device);
        let before = kind.map(WakeKind::open_now).unwrap_or_default();
        let program = self.program(interface.as_ref())?;
        let (mut open, info) = self.add(program.as_ref())?;
        open.interface = interface;
        // From here on dropping `open` undoes everything.
        let mut result = self.set_up(&open, &info);
        if let Some(kind) = kind {
            open.wake_fds = kind.open_now().difference(&before).copied().collect();
        }
        result = result.and(self.finish(&mut open));
        match result {
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

    /// Refuses an interface whose frames would not fit, or whose other queues nobody would serve.
    fn check_interface(&self, interface: Option<&Interface>) -> Result<()> {
        let Some(interface) = interface else { return Ok(()) };
        let most = match self.config.device {
            Device::AfPacket { .. } => self.eal.max_frame().min(AF_PACKET_MAX_FRAME),
            _ => self.eal.max_frame(),
        };
        let mtu = self.config.mtu.map_or_else(|| interface.mtu(), Ok)?;
        if u32::from(mtu) + ETHERNET_OVERHEAD > u32::from(most) {
            let largest = u32::from(most) - ETHERNET_OVERHEAD;
            return Err(self.config_error(format!(
                "the MTU of {} is {mtu}, packet buffers hold {most} bytes: `ip link set {} mtu \
                 {largest}`",
                interface.name, interface.name
            )));
        }
        let (served, present) = (u32::from(self.config.queues), interface.rx_queues());
        if matches!(self.config.device, Device::AfXdp { .. }) && present > served {
            let name = &interface.name;
            return Err(self.config_error(format!(
                "{name} receives on {present} queues, {served} would be served: set queues = \
                 {present}, or `ethtool -L {name} combined {served}` (where there are no combined \
                 channels: `rx {served}`)"
            )));
        }
        Ok(())
    }

    /// The XDP program as a file in memory, for the driver to load, after a stale one is gone.
    fn program(&self, interface: Option<&Interface>) -> Result<Option<File>> {
        let (Device::AfXdp { .. }, Some(interface)) = (&self.config.device, interface) else {
            return Ok(None);
        };
        sluice_steer::release_stale(interface.index).map_err(|source| self.steer_error(source))?;
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

    fn steer_error(&self, source: sluice_steer::Error) -> Error {
        Error::Steer { port: self.config.name.clone(), source: Box::new(source) }
    }

    fn add(&self, program: Option<&File>) -> Result<(Ethdev, sys::DeviceInfo)> {
        let PortConfig { device, queues, .. } = self.config;
        let xdp_program = program.map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let detail = Detail { xdp_program: xdp_program.unwrap_or_default() };
        let (arguments, name) = device.devargs(self.eal.next_serial(), *queues, &detail);
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
        let open = Ethdev {
            eal: self.eal.clone(),
            id,
            text: device.to_string(),
            driver: text_of(&info.driver),
            bus: CString::new(text_of(&info.bus))?,
            bus_name: CString::new(text_of(&info.device))?,
            interface: None,
            mac: [0; 6],
            mtu: 0,
            wake_fds: Vec::new(),
            xdp: None,
            packet: None,
        };
        Ok((open, info))
    }

    fn set_up(&self, open: &Ethdev, info: &sys::DeviceInfo) -> Result<()> {
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
        let pool = self.pool()?;
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
            if let (Some(mac), None) = (self.config.mac, &open.interface) {
                let status = sys::sluice_port_set_mac(id, mac.as_ptr());
                check(status, || self.context("set the address of"))?;
            }
            check(sys::sluice_port_start(id), || self.context("start"))?;
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
            // SAFETY: the device is open and the answers have the right size.
            unsafe {
                let status = sys::sluice_port_mac(open.id, open.mac.as_mut_ptr());
                check(status, || self.context("read the address of"))?;
                let status = sys::sluice_port_mtu(open.id, &mut open.mtu);
                check(status, || self.context("read the MTU of"))?;
            }
            return Ok(());
        };
        match self.config.device {
            Device::AfXdp { .. } => {
                let descriptors = sluice_steer::descriptors_held(interface.index);
                let descriptors = descriptors.unwrap_or_default();
                open.xdp = Some(XdpPart { pool: self.pool()?, descriptors });
            }
            Device::AfPacket { .. } => {
                let seal =
                    Seal::attach(&interface.name).map_err(|source| self.steer_error(source))?;
                // Old drivers cannot say; then frames that are too long show as truncated.
                let gro = interface.set_gro(false).unwrap_or(false);
                open.packet = Some(PacketPart { seal, gro });
                for fd in &open.wake_fds {
                    let ignored = wake::ignore_outgoing(*fd);
                    ignored.map_err(|source| {
                        let context = self.context("keep what the kernel sends from");
                        Error::System { context, source }
                    })?;
                }
            }
            _ => {}
        }
        open.mac = interface.mac()?;
        open.mtu = interface.mtu()?;
        Ok(())
    }
}

fn text_of(field: &[c_char]) -> String {
    // SAFETY: the shim ends each text with a NUL byte inside the field.
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
}
