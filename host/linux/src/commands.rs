//! What is changed in the kernel: links (TAP twins), addresses, and what it knows of neighbours.
//!
//! Each command is acknowledged by the kernel before it returns, and is idempotent: what is so
//! already is no error.

use std::net::IpAddr;
use std::os::fd::RawFd;

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::net::if_::if_nametoindex;

use crate::attributes::{NESTED, Request, attribute, ip_bytes};
use crate::error::Error;
use crate::event::{ADDRESS_HEADER_LEN, LINK_HEADER_LEN, NEIGHBOUR_HEADER_LEN};
use crate::event_route::ROUTE_HEADER_LEN;
use crate::request::Requester;
use crate::uapi::RTNH_F_ONLINK;

/// Attribute of a pair's data: the other end (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;

/// Changes links, addresses and neighbours. Needs `CAP_NET_ADMIN`; belongs to the network namespace
/// of the thread that opened it.
#[derive(Debug)]
pub struct Commands {
    pub(crate) requester: Requester,
}

impl Commands {
    /// Opens a socket for commands.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { requester: Requester::open(NETLINK_ROUTE)? })
    }

    /// Sets a link up or down.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn set_up(&mut self, ifindex: u32, up: bool) -> Result<(), Error> {
        let flag = libc::IFF_UP.cast_unsigned();
        let mut header = link_header(ifindex);
        header[8..12].copy_from_slice(&(if up { flag } else { 0 }).to_ne_bytes());
        header[12..16].copy_from_slice(&flag.to_ne_bytes());
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &header);
        let direction = if up { "up" } else { "down" };
        self.requester.ask(request, &format!("set link {ifindex} {direction}"), |_| {})
    }

    /// Sets a link's Ethernet address.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn set_mac(&mut self, ifindex: u32, mac: [u8; 6]) -> Result<(), Error> {
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &link_header(ifindex))
            .with(libc::IFLA_ADDRESS, &mac);
        self.requester.ask(request, &format!("set the MAC of link {ifindex}"), |_| {})
    }

    /// Sets a link's MTU in bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn set_mtu(&mut self, ifindex: u32, mtu: u32) -> Result<(), Error> {
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &link_header(ifindex))
            .with(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.requester.ask(request, &format!("set the MTU of link {ifindex} to {mtu}"), |_| {})
    }

    /// Puts a link into the bridge or VRF device of this name.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason, or there is no such device.
    pub fn set_master(&mut self, ifindex: u32, master: &str) -> Result<(), Error> {
        let index = if_nametoindex(master)
            .map_err(|errno| Error::Socket { action: "find the device", source: errno.into() })?;
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &link_header(ifindex))
            .with(libc::IFLA_MASTER, &index.to_ne_bytes());
        self.requester.ask(request, &format!("put link {ifindex} into {master}"), |_| {})
    }

    /// Adds an address to a link, with its connected prefix.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn add_address(&mut self, ifindex: u32, ip: IpAddr, prefix_len: u8) -> Result<(), Error> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = address_request(libc::RTM_NEWADDR, flags, ifindex, ip, prefix_len)?;
        self.requester.ask(request, &format!("add {ip}/{prefix_len} to link {ifindex}"), |_| {})
    }

    /// Removes an address from a link.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn remove_address(
        &mut self,
        ifindex: u32,
        ip: IpAddr,
        prefix_len: u8,
    ) -> Result<(), Error> {
        let flags = libc::NLM_F_ACK;
        let request = address_request(libc::RTM_DELADDR, flags, ifindex, ip, prefix_len)?;
        let action = format!("remove {ip}/{prefix_len} from link {ifindex}");
        match self.requester.ask(request, &action, |_| {}) {
            Err(error) if error.errno() == Some(libc::EADDRNOTAVAIL) => Ok(()),
            answer => answer,
        }
    }
}

impl Commands {
    /// Has the kernel forget a neighbour, whatever it knows of it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn forget_neighbour(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), Error> {
        let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut header = [0; NEIGHBOUR_HEADER_LEN];
        header[0] = u8::try_from(family).unwrap_or_default();
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let request = Request::new(libc::RTM_DELNEIGH, libc::NLM_F_ACK, &header)
            .with(libc::NDA_DST, &ip_bytes(ip));
        match self.requester.ask(request, &format!("forget {ip} on link {ifindex}"), |_| {}) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
            answer => answer,
        }
    }
}

/// What only a namespace of the process's own needs: see [`crate::Nest`].
impl Commands {
    /// Makes a pair of virtual Ethernet links, the other end in another namespace (a descriptor)
    /// with a number that is free there. Gives the number of this end.
    pub(crate) fn make_pair(
        &mut self,
        (name, mac): (&str, [u8; 6]),
        (namespace, other, other_mac): (RawFd, u32, [u8; 6]),
    ) -> Result<u32, Error> {
        let named = |name: &str| attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        let peer = [
            link_header(other).to_vec(),
            named("eth0"),
            attribute(libc::IFLA_ADDRESS, &other_mac),
            attribute(libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes()),
        ];
        let data = attribute(VETH_INFO_PEER | NESTED, &peer.concat());
        let info = [
            attribute(libc::IFLA_INFO_KIND, b"veth"),
            attribute(libc::IFLA_INFO_DATA | NESTED, &data),
        ];
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let request = Request::new(libc::RTM_NEWLINK, flags, &link_header(0))
            .with(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
            .with(libc::IFLA_ADDRESS, &mac)
            .with(libc::IFLA_LINKINFO | NESTED, &info.concat());
        self.requester.ask(request, &format!("make the pair of links {name}"), |_| {})?;
        if_nametoindex(name).map_err(|errno| Error::Socket {
            action: "find a link that was just made",
            source: errno.into(),
        })
    }

    /// Adds an address that nobody else can have, for use at once: nobody is asked (RFC 4862 5.4).
    pub(crate) fn add_only_address(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), Error> {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = address_request(libc::RTM_NEWADDR, flags, ifindex, ip, bits)?
            .with(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
        self.requester.ask(request, &format!("add {ip} to link {ifindex}"), |_| {})
    }

    /// Tells the kernel a neighbour's Ethernet address for good.
    pub(crate) fn fix_neighbour(
        &mut self,
        ifindex: u32,
        ip: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let mut header = [0; NEIGHBOUR_HEADER_LEN];
        header[0] = family(ip);
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Request::new(libc::RTM_NEWNEIGH, flags, &header)
            .with(libc::NDA_DST, &ip_bytes(ip))
            .with(libc::NDA_LLADDR, &mac);
        self.requester.ask(request, &format!("fix the neighbour {ip}"), |_| {})
    }

    /// Routes everything by a gateway on a link, whatever the addresses there are.
    pub(crate) fn route_all(&mut self, ifindex: u32, gateway: IpAddr) -> Result<(), Error> {
        let mut header = [0; ROUTE_HEADER_LEN];
        header[0] = family(gateway);
        header[4] = libc::RT_TABLE_MAIN;
        header[5] = libc::RTPROT_STATIC;
        header[6] = libc::RT_SCOPE_UNIVERSE;
        header[7] = libc::RTN_UNICAST;
        header[8..12].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Request::new(libc::RTM_NEWROUTE, flags, &header)
            .with(libc::RTA_GATEWAY, &ip_bytes(gateway))
            .with(libc::RTA_OIF, &ifindex.to_ne_bytes());
        self.requester.ask(request, &format!("route all by {gateway}"), |_| {})
    }
}

fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    u8::try_from(family).unwrap_or_default()
}

fn link_header(ifindex: u32) -> [u8; LINK_HEADER_LEN] {
    let mut header = [0; LINK_HEADER_LEN];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header
}

fn address_request(
    kind: u16,
    flags: i32,
    ifindex: u32,
    ip: IpAddr,
    prefix_len: u8,
) -> Result<Request, Error> {
    let (family, width) = if ip.is_ipv4() { (libc::AF_INET, 32) } else { (libc::AF_INET6, 128) };
    if prefix_len > width {
        return Err(Error::Invalid(format!(
            "{ip}/{prefix_len} is no prefix: the length must be 0 to {width}"
        )));
    }
    let mut header = [0; ADDRESS_HEADER_LEN];
    header[0] = u8::try_from(family).unwrap_or_default();
    header[1] = prefix_len;
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let bytes = ip_bytes(ip);
    Ok(Request::new(kind, flags, &header)
        .with(libc::IFA_LOCAL, &bytes)
        .with(libc::IFA_ADDRESS, &bytes))
}
