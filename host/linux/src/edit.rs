//! What an operator changes by hand: addresses, routes, neighbours, flags and VLANs of links;
//! tunnels are in `tunnel.rs`.
//!
//! Unlike the director's own commands (`commands.rs`) these are not idempotent: somebody who adds
//! what is there, or removes what is not, is told so by the kernel's errno, since a script may go
//! by it.

use std::net::IpAddr;

use crate::attributes::{NESTED, Request, attribute, ip_bytes};
use crate::commands::Commands;
use crate::error::Error;
use crate::event::{ADDRESS_HEADER_LEN, LINK_HEADER_LEN, NEIGHBOUR_HEADER_LEN};
use crate::event_route::ROUTE_HEADER_LEN;
use crate::uapi;

/// Whether something may be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// It must not: `EEXIST`.
    New,
    /// It is replaced.
    Put,
}

impl Make {
    pub(crate) const fn flags(self) -> i32 {
        let how = match self {
            Self::New => libc::NLM_F_EXCL,
            Self::Put => libc::NLM_F_REPLACE,
        };
        libc::NLM_F_ACK | libc::NLM_F_CREATE | how
    }
}

/// An address for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewAddress {
    /// The link.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the connected prefix.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`; the kernel's own choice without one.
    pub scope: Option<u8>,
    /// Broadcast address, IPv4.
    pub broadcast: Option<IpAddr>,
    /// Seconds that it is valid; for ever without.
    pub valid_s: Option<u32>,
}

/// A route, of the table `main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRoute {
    /// First address of the destinations.
    pub prefix: IpAddr,
    /// Length of their prefix.
    pub prefix_len: u8,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// The link.
    pub ifindex: Option<u32>,
    /// Source address of this machine's own packets.
    pub source: Option<IpAddr>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Of several routes to a prefix the one with the least counts.
    pub metric: Option<u32>,
    /// `RT_SCOPE_*`; by whether there is a next hop without one.
    pub scope: Option<u8>,
}

/// A flag of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFlag {
    /// It takes frames to whatever MAC address.
    Promiscuous,
    /// It takes frames to all multicast addresses.
    AllMulticast,
}

impl Commands {
    /// Gives a link an address.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn put_address(&mut self, make: Make, new: &NewAddress) -> Result<(), Error> {
        let mut request = address_request(libc::RTM_NEWADDR, make.flags(), new)?;
        if let Some(broadcast) = new.broadcast {
            request = request.with(libc::IFA_BROADCAST, &ip_bytes(broadcast));
        }
        if let Some(valid_s) = new.valid_s {
            // ifa_cacheinfo: preferred and valid for so long; when it was made says the kernel.
            let mut life = [0; 16];
            life[0..4].copy_from_slice(&valid_s.to_ne_bytes());
            life[4..8].copy_from_slice(&valid_s.to_ne_bytes());
            request = request.with(libc::IFA_CACHEINFO, &life);
        }
        let action = format!("add {}/{} to link {}", new.ip, new.prefix_len, new.ifindex);
        self.requester.ask(request, &action, |_| {})
    }

    /// Takes an address from a link; one that is not there is `EADDRNOTAVAIL`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn take_address(&mut self, old: &NewAddress) -> Result<(), Error> {
        let request = address_request(libc::RTM_DELADDR, libc::NLM_F_ACK, old)?;
        let action = format!("remove {}/{} from link {}", old.ip, old.prefix_len, old.ifindex);
        self.requester.ask(request, &action, |_| {})
    }

    /// Makes a route.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn put_route(&mut self, make: Make, new: &NewRoute) -> Result<(), Error> {
        let request = route_request(libc::RTM_NEWROUTE, make.flags(), new)?;
        let action = format!("add the route to {}/{}", new.prefix, new.prefix_len);
        self.requester.ask(request, &action, |_| {})
    }

    /// Takes the first route away that is like this one as far as it says; none is `ESRCH`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn take_route(&mut self, old: &NewRoute) -> Result<(), Error> {
        let request = route_request(libc::RTM_DELROUTE, libc::NLM_F_ACK, old)?;
        let action = format!("remove the route to {}/{}", old.prefix, old.prefix_len);
        self.requester.ask(request, &action, |_| {})
    }

    /// Tells the kernel a neighbour's MAC address for good.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn put_neighbour(
        &mut self,
        make: Make,
        ifindex: u32,
        ip: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let header = neighbour_header(ifindex, ip, libc::NUD_PERMANENT);
        let request = Request::new(libc::RTM_NEWNEIGH, make.flags(), &header)
            .with(libc::NDA_DST, &ip_bytes(ip))
            .with(libc::NDA_LLADDR, &mac);
        self.requester.ask(request, &format!("add neighbour {ip} on link {ifindex}"), |_| {})
    }

    /// Takes a neighbour away; one that is not there is `ENOENT`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn take_neighbour(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), Error> {
        let header = neighbour_header(ifindex, ip, 0);
        let request = Request::new(libc::RTM_DELNEIGH, libc::NLM_F_ACK, &header)
            .with(libc::NDA_DST, &ip_bytes(ip));
        self.requester.ask(request, &format!("remove neighbour {ip} on link {ifindex}"), |_| {})
    }

    /// Sets or clears a flag of a link.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn set_flag(&mut self, ifindex: u32, flag: LinkFlag, on: bool) -> Result<(), Error> {
        let bit = match flag {
            LinkFlag::Promiscuous => libc::IFF_PROMISC,
            LinkFlag::AllMulticast => libc::IFF_ALLMULTI,
        };
        let bit = bit.cast_unsigned();
        let mut header = [0; LINK_HEADER_LEN];
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        header[8..12].copy_from_slice(&(if on { bit } else { 0 }).to_ne_bytes());
        header[12..16].copy_from_slice(&bit.to_ne_bytes());
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &header);
        self.requester.ask(request, &format!("set {flag:?} of link {ifindex}"), |_| {})
    }

    /// Makes a VLAN sub-interface, which is down. `ethertype` is 0x8100 (802.1Q) or 0x88a8
    /// (802.1ad).
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn add_vlan(
        &mut self,
        name: &str,
        parent: u32,
        ethertype: u16,
        id: u16,
    ) -> Result<(), Error> {
        let request = vlan_request(name, parent, ethertype, id);
        self.requester.ask(request, &format!("make VLAN interface {name}"), |_| {})
    }

    /// Removes a virtual link.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn remove_link(&mut self, ifindex: u32) -> Result<(), Error> {
        let mut header = [0; LINK_HEADER_LEN];
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let request = Request::new(libc::RTM_DELLINK, libc::NLM_F_ACK, &header);
        self.requester.ask(request, &format!("remove link {ifindex}"), |_| {})
    }
}

fn vlan_request(name: &str, parent: u32, ethertype: u16, id: u16) -> Request {
    let data = [
        attribute(uapi::IFLA_VLAN_ID, &id.to_ne_bytes()),
        attribute(uapi::IFLA_VLAN_PROTOCOL, &ethertype.to_be_bytes()),
    ]
    .concat();
    let info =
        [attribute(libc::IFLA_INFO_KIND, b"vlan"), attribute(libc::IFLA_INFO_DATA | NESTED, &data)]
            .concat();
    Request::new(libc::RTM_NEWLINK, Make::New.flags(), &[0; LINK_HEADER_LEN])
        .with(libc::IFLA_IFNAME, &terminated(name))
        .with(libc::IFLA_LINK, &parent.to_ne_bytes())
        .with(libc::IFLA_LINKINFO | NESTED, &info)
}

/// A name as the kernel wants it.
pub(crate) fn terminated(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    u8::try_from(family).unwrap_or_default()
}

fn address_request(kind: u16, flags: i32, of: &NewAddress) -> Result<Request, Error> {
    check_length(of.ip, of.prefix_len)?;
    let mut header = [0; ADDRESS_HEADER_LEN];
    header[0] = family(of.ip);
    header[1] = of.prefix_len;
    header[3] = of.scope.unwrap_or(match of.ip.is_loopback() {
        true => libc::RT_SCOPE_HOST,
        false => libc::RT_SCOPE_UNIVERSE,
    });
    header[4..8].copy_from_slice(&of.ifindex.to_ne_bytes());
    let bytes = ip_bytes(of.ip);
    Ok(Request::new(kind, flags, &header)
        .with(libc::IFA_LOCAL, &bytes)
        .with(libc::IFA_ADDRESS, &bytes))
}

fn route_request(kind: u16, flags: i32, of: &NewRoute) -> Result<Request, Error> {
    check_length(of.prefix, of.prefix_len)?;
    let removes = kind == libc::RTM_DELROUTE;
    let mut header = [0; ROUTE_HEADER_LEN];
    header[0] = family(of.prefix);
    header[1] = of.prefix_len;
    header[4] = libc::RT_TABLE_MAIN;
    // Of a removal 0 and RT_SCOPE_NOWHERE are "whatever they are".
    header[5] = if removes { libc::RTPROT_UNSPEC } else { libc::RTPROT_STATIC };
    header[6] = of.scope.unwrap_or(match (removes, of.via) {
        (true, _) => libc::RT_SCOPE_NOWHERE,
        (false, Some(_)) => libc::RT_SCOPE_UNIVERSE,
        (false, None) if of.prefix.is_ipv6() => libc::RT_SCOPE_UNIVERSE,
        (false, None) => libc::RT_SCOPE_LINK,
    });
    header[7] = if removes { libc::RTN_UNSPEC } else { libc::RTN_UNICAST };
    let mut request = Request::new(kind, flags, &header).with(libc::RTA_DST, &ip_bytes(of.prefix));
    for (kind, ip) in [(libc::RTA_GATEWAY, of.via), (libc::RTA_PREFSRC, of.source)] {
        if let Some(ip) = ip {
            request = request.with(kind, &ip_bytes(ip));
        }
    }
    for (kind, number) in [(libc::RTA_OIF, of.ifindex), (libc::RTA_PRIORITY, of.metric)] {
        if let Some(number) = number {
            request = request.with(kind, &number.to_ne_bytes());
        }
    }
    if let Some(mtu) = of.mtu {
        request = request.with_nested(libc::RTA_METRICS, uapi::RTAX_MTU, &mtu.to_ne_bytes());
    }
    Ok(request)
}

fn neighbour_header(ifindex: u32, ip: IpAddr, state: u16) -> [u8; NEIGHBOUR_HEADER_LEN] {
    let mut header = [0; NEIGHBOUR_HEADER_LEN];
    header[0] = family(ip);
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header
}

fn check_length(ip: IpAddr, prefix_len: u8) -> Result<(), Error> {
    let width = if ip.is_ipv4() { 32 } else { 128 };
    match prefix_len <= width {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{ip}/{prefix_len} is no prefix: the length must be 0 to {width}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo};

    /// Judged by another decoder, since not every kernel has VLANs.
    #[test]
    fn a_vlan_is_asked_for_as_the_protocol_has_it() {
        let bytes = vlan_request("slx.7", 3, 0x88a8, 7).finish(1);
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).expect("whole");
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message.payload
        else {
            panic!("{message:?}");
        };
        let has = |attribute: LinkAttribute| {
            assert!(link.attributes.contains(&attribute), "{attribute:?}: {link:?}");
        };
        has(LinkAttribute::IfName("slx.7".to_owned()));
        has(LinkAttribute::Link(3));
        has(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![
                InfoVlan::Id(7),
                InfoVlan::Protocol(netlink_packet_route::link::VlanProtocol::Ieee8021Ad),
            ])),
        ]));
    }
}
