//! What a port sits on, and how that is said to DPDK.

use std::fmt;
use std::path::PathBuf;

use crate::interface::Interface;

/// Large buffers of a queue of an AF_PACKET port.
const LARGE_FRAMES: u32 = 160;

/// What a port sits on. Written in a configuration as `kind:rest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A kernel interface by AF_XDP. The kernel keeps the frames that are not steered here.
    AfXdp {
        /// The interface's name.
        interface: String,
        /// Whose sockets.
        driver: XdpDriver,
    },
    /// A kernel interface by AF_PACKET. All frames come here; the kernel sees them too, so the
    /// interface should carry no addresses of its own.
    AfPacket {
        /// The interface's name.
        interface: String,
    },
    /// A PCI device bound to a driver that DPDK can use.
    Pci {
        /// Its address, `0000:3b:00.0`.
        address: String,
    },
    /// Shared memory with another process.
    Memif(Memif),
    /// A TAP interface, made by the port and gone with it.
    Tap {
        /// The interface's name.
        name: String,
    },
    /// Capture files.
    Pcap {
        /// Frames are read from here, once.
        rx: PathBuf,
        /// Frames are written here.
        tx: PathBuf,
    },
    /// Any other device by its DPDK device arguments, `net_ring0` or `net_null0,size=64`.
    Dpdk {
        /// The device arguments.
        devargs: String,
    },
}

/// Whose AF_XDP sockets a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpDriver {
    /// Our own: see the crate `sluice-xdp`.
    Own {
        /// Packets of a round of preferred busy polling; `None`: interrupts deliver.
        busy_poll: Option<u16>,
    },
    /// DPDK's net_af_xdp.
    Dpdk,
}

impl XdpDriver {
    /// Our own, as it is unless somebody asks for more.
    pub const OWN: Self = Self::Own { busy_poll: None };
}

/// A memif interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memif {
    /// The control socket: a path, or `@` and the name of an abstract socket.
    pub socket: String,
    /// The interface's number on that socket.
    pub id: u32,
    /// Which end this is.
    pub role: MemifRole,
    /// Whether it carries IP packets without Ethernet headers.
    pub ip: bool,
    /// A file with the secret, at most 24 bytes without the white space at its end; `None`: no
    /// secret.
    pub secret_file: Option<PathBuf>,
    /// Descriptors of a ring at most, a power of two from 256 to 16,384.
    pub ring: u16,
    /// Bytes of each buffer that a client lends; `None`: what a frame of the port's MTU needs, and
    /// 2,048 at least.
    pub buffer: Option<u16>,
    /// Who copies frames, if not the processor.
    pub copies: Option<DmaCopies>,
}

/// Copies by an engine of DPDK's `rte_dmadev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaCopies {
    /// The engine by its device arguments: `0000:6a:01.0`, `wq0.0`, `dma_skeleton`. Queues and
    /// ports that name the same one share it.
    pub device: String,
    /// Bytes from which on it copies; shorter frames the processor copies.
    pub from: u32,
}

impl Memif {
    /// An interface of a socket with rings of 2,048 descriptors and no secret.
    pub fn new(socket: impl Into<String>, id: u32, role: MemifRole) -> Self {
        let (socket, ip, secret_file) = (socket.into(), false, None);
        Self { socket, id, role, ip, secret_file, ring: 2048, buffer: None, copies: None }
    }
}

/// The end of a memif link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemifRole {
    /// Connects to the socket and brings the memory.
    #[default]
    Client,
    /// Listens on the socket.
    Server,
}

impl Device {
    /// The kernel interface that must exist before the port is opened.
    pub fn kernel_interface(&self) -> Option<&str> {
        match self {
            Self::AfXdp { interface, .. } | Self::AfPacket { interface } => Some(interface),
            _ => None,
        }
    }

    /// Whether it is an AF_XDP port by DPDK's driver.
    pub(crate) fn is_dpdk_xdp(&self) -> bool {
        matches!(self, Self::AfXdp { driver: XdpDriver::Dpdk, .. })
    }

    /// How many queues the kernel interface receives on; `None` when there is no interface, now or
    /// with such a device. An AF_XDP port must have exactly as many.
    pub fn rx_queues(&self) -> Option<u32> {
        let interface = Interface::find("", self.kernel_interface()?).ok()?;
        Some(interface.rx_queues())
    }

    /// The device's arguments in DPDK's syntax and its name among DPDK's devices. `serial` makes
    /// the names of virtual devices unique in the process; `first` and `queues` are the port's
    /// queues that the device serves; `program` is the path of the XDP program's object file.
    pub(crate) fn devargs(
        &self,
        serial: u32,
        first: u16,
        queues: u16,
        program: &str,
    ) -> (String, String) {
        let named = |driver: &str, rest: String| {
            let name = format!("{driver}{serial}");
            (format!("{name},{rest}"), name)
        };
        match self {
            Self::AfXdp { interface, .. } => named(
                "net_af_xdp",
                format!(
                    "iface={interface},start_queue={first},queue_count={queues},busy_budget=0,\
                     xdp_prog={program}"
                ),
            ),
            Self::Pcap { rx, tx } => {
                named("net_pcap", format!("rx_pcap={},tx_pcap={}", rx.display(), tx.display()))
            }
            Self::Pci { address } => (address.clone(), address.clone()),
            // Not DPDK's: see the modules `memif`, `packet` and `tap`.
            Self::Memif(memif) => (String::new(), memif.socket.clone()),
            Self::AfPacket { interface: name } | Self::Tap { name } => {
                (String::new(), name.clone())
            }
            Self::Dpdk { devargs } => {
                let name = devargs.split(',').next().unwrap_or_default().to_owned();
                (devargs.clone(), name)
            }
        }
    }
}

impl MemifRole {
    /// The other end.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for MemifRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// As it is written in a configuration.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfXdp { interface, driver } => match driver {
                XdpDriver::Own { busy_poll: None } => write!(f, "af_xdp:{interface},driver=own"),
                XdpDriver::Own { busy_poll: Some(count) } => {
                    write!(f, "af_xdp:{interface},driver=own,busy_poll={count}")
                }
                XdpDriver::Dpdk => write!(f, "af_xdp:{interface},driver=dpdk"),
            },
            Self::AfPacket { interface } => write!(f, "af_packet:{interface}"),
            Self::Pci { address } => write!(f, "pci:{address}"),
            Self::Memif(Memif { socket, id, role, .. }) => {
                write!(f, "memif:{socket},id={id},role={role}")
            }
            Self::Tap { name } => write!(f, "tap:{name}"),
            Self::Pcap { rx, tx } => write!(f, "pcap:rx={},tx={}", rx.display(), tx.display()),
            Self::Dpdk { devargs } => write!(f, "dpdk:{devargs}"),
        }
    }
}

/// How a port is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The operator's name for it, used in messages.
    pub name: String,
    /// What it sits on.
    pub device: Device,
    /// Receive and transmit queues, as many of each; at least 1. For AF_XDP, exactly as many as
    /// the interface receives on ([`Device::rx_queues`]): frames of the others would be lost to the
    /// director.
    pub queues: u16,
    /// Largest IP packet in bytes; `None` keeps the device's own.
    pub mtu: Option<u16>,
    /// The port's MAC address; `None` keeps the device's own. Not for AF_XDP and AF_PACKET, whose
    /// address is the kernel interface's (`ip link set … address`).
    pub mac: Option<[u8; 6]>,
    /// Whether frames go and come unfinished (super-packets, partial checksums): for the twin of
    /// an AF_PACKET port, which always does so.
    pub unfinished: bool,
}

impl PortConfig {
    /// A port with one queue pair and everything else as the device has it.
    pub fn new(name: impl Into<String>, device: Device) -> Self {
        Self { name: name.into(), device, queues: 1, mtu: None, mac: None, unfinished: false }
    }

    /// The packet buffers this port may hold at one time, in its descriptors and rings.
    pub fn frames(&self) -> u32 {
        let each = match self.device {
            // Fill, receive, transmit and completion rings of 2048, of which fill and receive
            // together never hold more than 2048.
            Device::AfXdp { driver: XdpDriver::Dpdk, .. } => 3 * 2048,
            // What is to be received into next; the rings have memory of their own.
            Device::AfXdp { .. } => 64,
            // A burst each way, and the segments of a super-packet that has to be cut.
            Device::AfPacket { .. } => 256,
            Device::Pcap { .. } => 128,
            // What is to be received into next.
            Device::Memif(Memif { copies: None, .. }) => 64,
            // And what is being copied, each way.
            Device::Memif(Memif { copies: Some(_), .. }) => 64 + 2 * sluice_memif::IN_FLIGHT as u32,
            Device::Tap { .. } => 64,
            Device::Pci { .. } | Device::Dpdk { .. } => 2 * 2048,
        };
        each * u32::from(self.queues)
    }

    /// The large buffers this port may hold at one time, 64 KiB each: 32 to receive a burst into,
    /// the rest for super-packets on their way, those that wait for neighbours included. When all
    /// are in use, what is received is cut into small ones.
    pub fn large_frames(&self) -> u32 {
        match self.device {
            Device::AfPacket { .. } => LARGE_FRAMES * u32::from(self.queues),
            _ => 0,
        }
    }
}
