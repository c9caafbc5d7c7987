//! Tunnels over IPv4, IP in IP and GRE: made and changed as `dpip` does it, and their description
//! as rtnetlink has it (linux/if_tunnel.h).
//!
//! All that a description may hold is always said: what a change leaves out the kernel takes for
//! zero, whatever it was.

use std::net::Ipv4Addr;

use crate::attributes::{
    Attributes, NESTED, Request, attribute, ip_bytes, u8_at, u16_be_at, u32_at, u32_be_at,
};
use crate::commands::Commands;
use crate::edit::{Make, terminated};
use crate::error::Error;
use crate::event::LINK_HEADER_LEN;

/// What packets are wrapped in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelMode {
    /// IPv4 in IPv4 (RFC 2003).
    #[default]
    Ipip,
    /// GRE in IPv4 (RFC 2784).
    Gre,
}

/// What GRE's header has beside, one way (RFC 2784, RFC 2890).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GreHeader {
    /// A checksum.
    pub checksum: bool,
    /// This key.
    pub key: Option<u32>,
    /// A sequence number.
    pub sequence: bool,
}

/// A tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// What packets are wrapped in.
    pub mode: TunnelMode,
    /// The outer source; any when there is none.
    pub local: Option<Ipv4Addr>,
    /// The outer destination; any when there is none.
    pub remote: Option<Ipv4Addr>,
    /// The outer time to live; the packet's own when there is none.
    pub ttl: Option<u8>,
    /// The outer type of service; 1: the packet's own.
    pub tos: u8,
    /// The link that wrapped packets leave by; by their route when there is none.
    pub ifindex: Option<u32>,
    /// What received packets must have.
    pub received: GreHeader,
    /// What sent packets get.
    pub sent: GreHeader,
}

/// Numbers of attributes: `IFLA_IPTUN_*` or `IFLA_GRE_*`.
struct Numbers {
    link: u16,
    local: u16,
    remote: u16,
    ttl: u16,
    tos: u16,
    path_mtu: u16,
}

/// `IFLA_GRE_*` of the two ways: flags, key.
const RECEIVED: (u16, u16) = (2, 4);
const SENT: (u16, u16) = (3, 5);

/// `GRE_*` of a way's flags.
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;

impl TunnelMode {
    const ALL: [Self; 2] = [Self::Ipip, Self::Gre];

    /// The kernel's name for it, and everybody's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipip => "ipip",
            Self::Gre => "gre",
        }
    }

    /// The mode of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    const fn numbers(self) -> Numbers {
        match self {
            Self::Ipip => Numbers { link: 1, local: 2, remote: 3, ttl: 4, tos: 5, path_mtu: 10 },
            Self::Gre => Numbers { link: 1, local: 6, remote: 7, ttl: 8, tos: 9, path_mtu: 10 },
        }
    }
}

impl GreHeader {
    fn write(self, (flags, key): (u16, u16)) -> Vec<u8> {
        let bit = |on: bool, bit: u16| if on { bit } else { 0 };
        let bits = bit(self.checksum, CHECKSUM)
            | bit(self.key.is_some(), KEY)
            | bit(self.sequence, SEQUENCE);
        let number = self.key.unwrap_or_default();
        [attribute(flags, &bits.to_be_bytes()), attribute(key, &number.to_be_bytes())].concat()
    }

    fn read(data: &[u8], (flags, key): (u16, u16)) -> Self {
        let find = |wanted| Attributes(data).find(|&(kind, _)| kind == wanted);
        let bits = find(flags).and_then(|(_, value)| u16_be_at(value, 0)).unwrap_or_default();
        let number = find(key).and_then(|(_, value)| u32_be_at(value, 0));
        Self {
            checksum: bits & CHECKSUM != 0,
            key: number.filter(|_| bits & KEY != 0),
            sequence: bits & SEQUENCE != 0,
        }
    }
}

impl Tunnel {
    /// What `IFLA_INFO_DATA` holds of it.
    fn write(&self) -> Vec<u8> {
        let numbers = self.mode.numbers();
        let ip = |ip: Option<Ipv4Addr>| ip_bytes(ip.unwrap_or(Ipv4Addr::UNSPECIFIED).into());
        let mut data = [
            attribute(numbers.link, &self.ifindex.unwrap_or_default().to_ne_bytes()),
            attribute(numbers.local, &ip(self.local)),
            attribute(numbers.remote, &ip(self.remote)),
            attribute(numbers.ttl, &[self.ttl.unwrap_or_default()]),
            attribute(numbers.tos, &[self.tos]),
            // Found out by the kernel; with a time to live of its own it must be.
            attribute(numbers.path_mtu, &[1]),
        ]
        .concat();
        if self.mode == TunnelMode::Gre {
            data.extend(self.received.write(RECEIVED));
            data.extend(self.sent.write(SENT));
        }
        data
    }

    /// Reads it from a link's kind and `IFLA_INFO_DATA`; nothing for other kinds.
    pub(crate) fn read(kind: &str, data: &[u8]) -> Option<Self> {
        let mode = TunnelMode::of(kind)?;
        let numbers = mode.numbers();
        let mut tunnel = Self { mode, ..Self::default() };
        for (number, value) in Attributes(data) {
            let ip = || Some(Ipv4Addr::from(*value.first_chunk::<4>()?));
            match number {
                _ if number == numbers.link => tunnel.ifindex = u32_at(value, 0),
                _ if number == numbers.local => tunnel.local = ip(),
                _ if number == numbers.remote => tunnel.remote = ip(),
                _ if number == numbers.ttl => tunnel.ttl = u8_at(value, 0),
                _ if number == numbers.tos => tunnel.tos = u8_at(value, 0)?,
                _ => {}
            }
        }
        tunnel.ifindex = tunnel.ifindex.filter(|&ifindex| ifindex != 0);
        tunnel.ttl = tunnel.ttl.filter(|&ttl| ttl != 0);
        for end in [&mut tunnel.local, &mut tunnel.remote] {
            *end = end.filter(|ip| !ip.is_unspecified());
        }
        if mode == TunnelMode::Gre {
            tunnel.received = GreHeader::read(data, RECEIVED);
            tunnel.sent = GreHeader::read(data, SENT);
        }
        Some(tunnel)
    }
}

impl Commands {
    /// Makes a tunnel, which is up at once. The kernel names it when nobody does.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn add_tunnel(&mut self, name: Option<&str>, tunnel: &Tunnel) -> Result<(), Error> {
        let of_any = "of the kernel's naming";
        let action = format!("make {} tunnel {}", tunnel.mode.name(), name.unwrap_or(of_any));
        self.requester.ask(new_request(name, tunnel), &action, |_| {})
    }

    /// Makes a tunnel another one of its mode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's reason.
    pub fn change_tunnel(&mut self, ifindex: u32, tunnel: &Tunnel) -> Result<(), Error> {
        let mut header = [0; LINK_HEADER_LEN];
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &header);
        let request = described(request, tunnel);
        self.requester.ask(request, &format!("change tunnel {ifindex}"), |_| {})
    }
}

fn new_request(name: Option<&str>, tunnel: &Tunnel) -> Request {
    let up = libc::IFF_UP.cast_unsigned().to_ne_bytes();
    let mut header = [0; LINK_HEADER_LEN];
    header[8..12].copy_from_slice(&up);
    header[12..16].copy_from_slice(&up);
    let mut request = Request::new(libc::RTM_NEWLINK, Make::New.flags(), &header);
    if let Some(name) = name {
        request = request.with(libc::IFLA_IFNAME, &terminated(name));
    }
    described(request, tunnel)
}

fn described(request: Request, tunnel: &Tunnel) -> Request {
    let kind = attribute(libc::IFLA_INFO_KIND, tunnel.mode.name().as_bytes());
    let data = attribute(libc::IFLA_INFO_DATA | NESTED, &tunnel.write());
    request.with(libc::IFLA_LINKINFO | NESTED, &[kind, data].concat())
}

/// Judged by another implementation of the protocol, since not every kernel has tunnels.
#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{
        GreIOFlags, InfoData, InfoGre, InfoIpTunnel, InfoKind, LinkAttribute, LinkFlags, LinkInfo,
        LinkMessage,
    };

    use super::*;
    use crate::attributes::Messages;
    use crate::listing;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

    fn plain() -> Tunnel {
        Tunnel { local: Some(LOCAL), remote: Some(REMOTE), ..Tunnel::default() }
    }

    fn keyed() -> Tunnel {
        Tunnel {
            mode: TunnelMode::Gre,
            ttl: Some(64),
            tos: 1,
            ifindex: Some(3),
            received: GreHeader { checksum: true, key: None, sequence: false },
            sent: GreHeader { checksum: false, key: Some(0x0102_0304), sequence: true },
            ..plain()
        }
    }

    /// The same tunnels in the other's words; of a link by which nothing goes some say 0.
    fn in_other_words() -> [(Tunnel, InfoKind, InfoData); 2] {
        let plain_words = vec![
            InfoIpTunnel::Link(0),
            InfoIpTunnel::Local(LOCAL.into()),
            InfoIpTunnel::Remote(REMOTE.into()),
            InfoIpTunnel::Ttl(0),
            InfoIpTunnel::Tos(0),
            InfoIpTunnel::PMtuDisc(true),
        ];
        let keyed_words = vec![
            InfoGre::Link(3),
            InfoGre::Local(LOCAL),
            InfoGre::Remote(REMOTE),
            InfoGre::Ttl(64),
            InfoGre::Tos(1),
            InfoGre::PathMTUDiscovery(true),
            InfoGre::IFlags(GreIOFlags::Checksum),
            InfoGre::IKey(0),
            InfoGre::OFlags(GreIOFlags::Key | GreIOFlags::Seq),
            InfoGre::OKey(0x0102_0304),
        ];
        [
            (plain(), InfoKind::IpIp, InfoData::IpTunnel(plain_words)),
            (keyed(), InfoKind::GreTun, InfoData::GreTun(keyed_words)),
        ]
    }

    #[test]
    fn tunnels_are_asked_for_as_the_protocol_has_it() {
        for (tunnel, kind, data) in in_other_words() {
            let bytes = new_request(Some("slt0"), &tunnel).finish(1);
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).expect("whole");
            let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message.payload
            else {
                panic!("{message:?}");
            };
            assert_eq!(link.header.flags, LinkFlags::Up);
            assert_eq!(link.header.change_mask, LinkFlags::Up);
            let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
            let wanted = [LinkAttribute::IfName("slt0".to_owned()), LinkAttribute::LinkInfo(info)];
            assert_eq!(link.attributes, wanted);
        }
    }

    #[test]
    fn tunnels_are_listed_as_the_kernel_tells_them() {
        for (tunnel, kind, data) in in_other_words() {
            let mut link = LinkMessage::default();
            link.header.index = 9;
            link.attributes = vec![
                LinkAttribute::IfName("slt0".to_owned()),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]),
            ];
            let told = NetlinkPayload::from(RouteNetlinkMessage::NewLink(link));
            let mut message = NetlinkMessage::new(NetlinkHeader::default(), told);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            let listed = listing::link(Messages(&bytes).next().expect("whole")).expect("a link");
            assert_eq!((listed.index, listed.tunnel), (9, Some(tunnel)));
        }
    }

    #[test]
    fn a_description_that_is_cut_short_is_none_or_less_of_one() {
        let data = keyed().write();
        for len in 0..data.len() {
            let read = Tunnel::read("gre", &data[..len]);
            assert!(read.is_none_or(|tunnel| tunnel != keyed()), "{len} bytes");
        }
        assert_eq!(Tunnel::read("gre", &data), Some(keyed()));
        assert_eq!(Tunnel::read("gretap", &data), None);
    }
}
