//! The one way to name the device behind a port.
//!
//! `KIND:WHAT`, for instance `af_xdp:eth0` or `pci:0000:3b:00.0`. A [`Device`] displays as text
//! that parses to the same device. Commas part options, so no name may hold one: DPDK's own
//! device arguments have no way to escape it.

mod memif;
mod xdp;

use std::fmt;
use std::str::FromStr;

use crate::Fault;
use crate::errors::quoted;
use crate::suggest::did_you_mean;

pub use memif::{Dma, Memif, MemifMode, MemifRole};
pub use xdp::XdpDriver;

/// Longest name of a kernel interface in bytes (IFNAMSIZ less the terminating zero).
pub(crate) const INTERFACE_BYTES: usize = 15;
/// Longest path of a Unix socket in bytes (`sun_path` less the terminating zero).
pub(crate) const SOCKET_BYTES: usize = 107;
/// Longest devargs that are accepted, in bytes.
const DEVARGS_BYTES: usize = 1024;

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// `af_xdp:IF[,OPTION=VALUE]...`: a kernel interface that stays the kernel's; XDP hands over
    /// what is balanced.
    AfXdp {
        /// The interface's name, at most 15 bytes.
        interface: String,
        /// Whose sockets.
        driver: XdpDriver,
    },
    /// `af_packet:IF`: a kernel interface by packet sockets.
    AfPacket {
        /// The interface's name, at most 15 bytes.
        interface: String,
    },
    /// `vxlan:IF`: the kernel's VXLAN device, which says what the tunnel is: VNI, local address,
    /// UDP port and other ends. The director encapsulates and decapsulates itself.
    Vxlan {
        /// The interface's name, at most 15 bytes.
        interface: String,
    },
    /// `pci:ADDRESS`: a NIC owned by DPDK.
    Pci {
        /// Where it is.
        address: PciAddress,
    },
    /// `memif:SOCKET[,OPTION=VALUE]...`: shared memory with another process.
    Memif(Memif),
    /// `tap:NAME`: a TAP interface that the director makes.
    Tap {
        /// The interface's name, at most 15 bytes.
        name: String,
    },
    /// `pcap:rx=FILE,tx=FILE`: capture files; at least one of the two.
    Pcap {
        /// Received frames come from this file; `None`: nothing is received.
        rx: Option<String>,
        /// Sent frames go to this file; `None`: they are dropped.
        tx: Option<String>,
    },
    /// `dpdk:DEVARGS`: anything else that DPDK can drive.
    Dpdk {
        /// DPDK's device arguments, such as `net_ring0`.
        devargs: String,
    },
}

/// Where a PCI device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, at most 31.
    pub device: u8,
    /// The function, at most 7.
    pub function: u8,
}

/// Each kind and an example, for messages and the reference.
pub(crate) const KINDS: &[(&str, &str, &str)] = &[
    (
        "af_xdp",
        "af_xdp:eth0",
        "a kernel interface by AF_XDP; the kernel keeps all other traffic ([ports.md](ports.md)). \
         `driver` is `own` unless given, or `dpdk`; `busy_poll` is a number of packets",
    ),
    ("af_packet", "af_packet:eth0", "a kernel interface by packet sockets"),
    ("pci", "pci:0000:3b:00.0", "a NIC owned by DPDK"),
    (
        "memif",
        "memif:/run/vpp/memif.sock,id=0,role=client",
        "shared memory with another process ([memif.md](memif.md)); `id` is 0 and `role` is \
         `client` unless given",
    ),
    (
        "vxlan",
        "vxlan:vxlan100",
        "a VXLAN tunnel into a `[[network]]`: the kernel's device has VNI, local address, UDP port \
         and other ends (its FDB), the director encapsulates and decapsulates",
    ),
    ("tap", "tap:sluice9", "a TAP interface that the director makes"),
    ("pcap", "pcap:rx=in.pcap,tx=out.pcap", "capture files; one of the two may be left out"),
    ("dpdk", "dpdk:net_ring0", "any other device of DPDK, by its device arguments"),
];

impl Device {
    /// The kind as the configuration file writes it: `af_xdp`, `pci`…
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AfXdp { .. } => "af_xdp",
            Self::AfPacket { .. } => "af_packet",
            Self::Vxlan { .. } => "vxlan",
            Self::Pci { .. } => "pci",
            Self::Memif(_) => "memif",
            Self::Tap { .. } => "tap",
            Self::Pcap { .. } => "pcap",
            Self::Dpdk { .. } => "dpdk",
        }
    }

    /// The kernel interface that it uses or makes, if any.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::AfXdp { interface, .. }
            | Self::AfPacket { interface }
            | Self::Vxlan { interface } => Some(interface),
            Self::Tap { name } => Some(name),
            _ => None,
        }
    }

    /// Whether the kernel loses sight of its traffic, so that a TAP twin is of use.
    pub fn may_have_twin(&self) -> bool {
        match self {
            Self::AfPacket { .. } | Self::Pci { .. } | Self::Memif(_) | Self::Dpdk { .. } => true,
            Self::AfXdp { .. } | Self::Vxlan { .. } | Self::Tap { .. } | Self::Pcap { .. } => false,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.kind())?;
        match self {
            Self::AfXdp { interface, driver } => write!(out, "{interface}{driver}"),
            Self::AfPacket { interface } | Self::Vxlan { interface } => {
                write!(out, "{interface}")
            }
            Self::Pci { address } => write!(out, "{address}"),
            Self::Memif(memif) => write!(out, "{memif}"),
            Self::Tap { name } => write!(out, "{name}"),
            Self::Pcap { rx: Some(rx), tx: Some(tx) } => write!(out, "rx={rx},tx={tx}"),
            Self::Pcap { rx: Some(rx), tx: None } => write!(out, "rx={rx}"),
            Self::Pcap { rx: None, tx: Some(tx) } => write!(out, "tx={tx}"),
            Self::Pcap { rx: None, tx: None } => Ok(()),
            Self::Dpdk { devargs } => write!(out, "{devargs}"),
        }
    }
}

impl FromStr for Device {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let Some((kind, what)) = text.split_once(':') else {
            return Err(Fault::new(
                format!("{} does not say what kind of device it is", quoted(text)),
                format!("write KIND:WHAT, such as {}", examples()),
            ));
        };
        match kind {
            "af_xdp" => XdpDriver::parse(what),
            "af_packet" => Ok(Self::AfPacket { interface: parse_interface(what)? }),
            "vxlan" => Ok(Self::Vxlan { interface: parse_interface(what)? }),
            "pci" => Ok(Self::Pci { address: what.parse()? }),
            "memif" => Ok(Self::Memif(Memif::parse(what)?)),
            "tap" => Ok(Self::Tap { name: parse_interface(what)? }),
            "pcap" => parse_pcap(what),
            "dpdk" => parse_dpdk(what),
            _ => Err(Fault::new(
                format!("{} is not a kind of device", quoted(kind)),
                format!(
                    "use one of: {}{}",
                    KINDS.iter().map(|kind| kind.0).collect::<Vec<_>>().join(", "),
                    did_you_mean(kind, KINDS.iter().map(|kind| kind.0)),
                ),
            )),
        }
    }
}

fn examples() -> String {
    KINDS.iter().take(3).map(|kind| kind.1).collect::<Vec<_>>().join(", ")
}

/// Checks the name of a kernel interface: the kernel's own rules, and no character that would
/// mean something else to DPDK or in a name template.
pub(crate) fn parse_interface(name: &str) -> Result<String, Fault> {
    let hint = format!(
        "use 1 to {INTERFACE_BYTES} letters, digits, `.`, `_`, `-`, `@`, `+`, as in \
         `ip link show`"
    );
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
    let message = if name.is_empty() {
        "the interface's name is missing".to_owned()
    } else if name.len() > INTERFACE_BYTES {
        format!("the interface name {} has {} characters", quoted(name), name.chars().count())
    } else if matches!(name, "." | "..") || !name.bytes().all(allowed) {
        format!("{} cannot be the name of an interface", quoted(name))
    } else {
        return Ok(name.to_owned());
    };
    Err(Fault::new(message, hint))
}

/// One `key=value` option of a device after another; what is wrong names the known options.
fn options<'a>(
    text: &'a str,
    known: &'static [&'static str],
) -> impl Iterator<Item = Result<(&'a str, &'a str), Fault>> {
    let mut seen = Vec::new();
    text.split(',').map(move |option| {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if !known.contains(&key) {
            return Err(Fault::new(
                format!("{} is not an option of this device", quoted(key)),
                format!(
                    "use {}{}",
                    known.iter().map(|key| format!("{key}=…")).collect::<Vec<_>>().join(" and "),
                    did_you_mean(key, known.iter().copied()),
                ),
            ));
        }
        if value.is_empty() {
            return Err(Fault::new(
                format!("option `{key}` has no value"),
                format!("write {key}=VALUE or leave it out"),
            ));
        }
        if seen.contains(&key) {
            return Err(Fault::new(format!("option `{key}` is given twice"), "give it once"));
        }
        seen.push(key);
        Ok((key, value))
    })
}

/// Checks the path of a Unix socket.
pub(crate) fn check_socket_path(path: &str) -> Result<(), Fault> {
    let hint = format!("use an absolute path of at most {SOCKET_BYTES} bytes");
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(Fault::new(format!("{} is not the path of a socket", quoted(path)), hint));
    }
    if path.len() > SOCKET_BYTES {
        return Err(Fault::new(format!("the path has {} bytes", path.len()), hint));
    }
    check_printable(path)
}

fn check_printable(text: &str) -> Result<(), Fault> {
    if text.chars().any(char::is_control) {
        return Err(Fault::new(
            format!("{} has a control character", quoted(text)),
            "use printable characters only",
        ));
    }
    Ok(())
}

fn parse_pcap(text: &str) -> Result<Device, Fault> {
    let (mut rx, mut tx) = (None, None);
    for option in options(text, &["rx", "tx"]) {
        let (key, file) = option?;
        check_printable(file)?;
        let slot = if key == "rx" { &mut rx } else { &mut tx };
        *slot = Some(file.to_owned());
    }
    if rx == tx {
        return Err(Fault::new(
            "the same file is read and written",
            "use two files, such as pcap:rx=in.pcap,tx=out.pcap",
        ));
    }
    Ok(Device::Pcap { rx, tx })
}

fn parse_dpdk(devargs: &str) -> Result<Device, Fault> {
    let hint = format!("use DPDK's device arguments, at most {DEVARGS_BYTES} bytes: net_ring0");
    if devargs.is_empty() {
        return Err(Fault::new("the device arguments are missing", hint));
    }
    if devargs.len() > DEVARGS_BYTES {
        return Err(Fault::new(format!("the arguments have {} bytes", devargs.len()), hint));
    }
    if devargs.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Fault::new(format!("{} has white space", quoted(devargs)), hint));
    }
    Ok(Device::Dpdk { devargs: devargs.to_owned() })
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(out, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = Fault;

    /// Takes `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal; the domain may be left out when it is 0.
    fn from_str(text: &str) -> Result<Self, Fault> {
        pci_address(text).ok_or_else(|| {
            Fault::new(
                format!("{} is not a PCI address", quoted(text)),
                "use DOMAIN:BUS:DEVICE.FUNCTION as in `lspci -D`, such as 0000:3b:00.0",
            )
        })
    }
}

fn pci_address(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    if !(4..=8).contains(&domain.len()) {
        return None;
    }
    let address = PciAddress {
        domain: hexadecimal(domain, domain.len())?,
        bus: u8::try_from(hexadecimal(bus, 2)?).ok()?,
        device: u8::try_from(hexadecimal(device, 2)?).ok()?,
        function: u8::try_from(hexadecimal(function, 1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let valid = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| valid)
}
