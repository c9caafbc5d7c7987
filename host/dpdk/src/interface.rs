//! The kernel interface behind a port: whether it is there and up, its MTU and address, and its
//! receive offloads. By ioctl, which follows the process's network namespace.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tracing::warn;

use crate::{Error, Result};

/// What has become of the interface or device behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It can carry frames.
    Up,
    /// It is there, but down or without a carrier.
    Down,
    /// The kernel interface was deleted. Close the port; open it again when there is one.
    Gone,
}

/// An interface as it was found when a port was opened.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub name: String,
    pub index: u32,
}

const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

impl Interface {
    /// Finds an interface by its name.
    pub fn find(port: &str, name: &str) -> Result<Self> {
        match index_of(name)? {
            Some(index) => Ok(Self { name: name.to_owned(), index }),
            None => Err(Error::NoInterface { port: port.to_owned(), interface: name.to_owned() }),
        }
    }

    /// Whether it is still the interface that was found, and up.
    pub fn state(&self) -> PortState {
        match index_of(&self.name) {
            Ok(Some(index)) if index == self.index => {}
            _ => return PortState::Gone,
        }
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        match self.ask(libc::SIOCGIFFLAGS) {
            // SAFETY: the kernel filled in the flags.
            Ok(answer) => match i32::from(unsafe { answer.ifr_ifru.ifru_flags }) & wanted {
                flags if flags == wanted => PortState::Up,
                _ => PortState::Down,
            },
            Err(_) => PortState::Gone,
        }
    }

    /// Its MTU in bytes.
    pub fn mtu(&self) -> Result<u16> {
        let answer = self.ask(libc::SIOCGIFMTU);
        let answer = answer.map_err(|source| self.error("MTU", source))?;
        // SAFETY: the kernel filled in the MTU.
        let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    /// Its MAC address.
    pub fn mac(&self) -> Result<[u8; 6]> {
        let answer = self.ask(libc::SIOCGIFHWADDR);
        let answer = answer.map_err(|source| self.error("address", source))?;
        // SAFETY: the kernel filled in the address.
        let data = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|at| data[at] as u8))
    }

    /// Switches the joining of received segments on or off; says what it was before.
    pub fn set_gro(&self, on: bool) -> io::Result<bool> {
        let mut value = EthtoolValue { command: ETHTOOL_GGRO, data: 0 };
        self.ethtool((&raw mut value).cast())?;
        let before = value.data != 0;
        if before != on {
            let mut value = EthtoolValue { command: ETHTOOL_SGRO, data: u32::from(on) };
            self.ethtool((&raw mut value).cast())?;
        }
        Ok(before)
    }

    /// How many queues it receives on; 1 when it does not say.
    pub fn rx_queues(&self) -> u32 {
        let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..Default::default() };
        match self.ethtool((&raw mut channels).cast()) {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// Sets its MAC address.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut query = request_for(&self.name)?;
        let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
        for (slot, byte) in address.sa_data.iter_mut().zip(mac) {
            *slot = byte as libc::c_char;
        }
        query.ifr_ifru.ifru_hwaddr = address;
        call(libc::SIOCSIFHWADDR, &mut query)
    }

    /// Sets its MTU in bytes.
    pub fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        let mut query = request_for(&self.name)?;
        query.ifr_ifru.ifru_mtu = i32::from(mtu);
        call(libc::SIOCSIFMTU, &mut query)
    }

    /// Brings it up.
    pub fn set_up(&self) -> io::Result<()> {
        let mut query = self.ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel filled in the flags.
        let flags = unsafe { query.ifr_ifru.ifru_flags };
        query.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        call(libc::SIOCSIFFLAGS, &mut query)
    }

    fn error(&self, what: &str, source: io::Error) -> Error {
        Error::System { context: format!("read the {what} of {}", self.name), source }
    }

    fn ask(&self, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        let mut query = request_for(&self.name)?;
        call(request, &mut query)?;
        Ok(query)
    }

    /// `command` points to one of ethtool's structures, whose first field says which.
    fn ethtool(&self, command: *mut libc::c_char) -> io::Result<()> {
        let mut query = request_for(&self.name)?;
        query.ifr_ifru.ifru_data = command;
        call(libc::SIOCETHTOOL as libc::Ioctl, &mut query)
    }
}

/// Says that a configured MAC address is not the interface's, which is the one that is used.
pub(crate) fn warn_of_mac(port: &str, interface: &str) {
    warn!(
        port,
        "the configured MAC address is not the interface's, which is used: change it with \
         `ip link set {interface} address`"
    );
}

/// The index of the interface of that name, or `None` without one.
fn index_of(name: &str) -> Result<Option<u32>> {
    let text = CString::new(name)?;
    // SAFETY: a C string.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Ok(None),
        index => Ok(Some(index)),
    }
}

/// A request about an interface.
pub(crate) fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zero bytes are a valid request.
    let mut query: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= query.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in query.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(query)
}

fn call(request: libc::Ioctl, query: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: opens a socket, owned at once; the request is valid for the ioctl, which writes
    // nowhere else (for SIOCETHTOOL, to the
    // structure that `ethtool`'s caller keeps alive).
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(fd);
        if libc::ioctl(socket.as_raw_fd(), request, query) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
