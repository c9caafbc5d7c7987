//! The world that tests of packets stand in: a director with two arms, clients in front of it and
//! real servers behind, in both IP versions.
//!
//! It is data: addresses, MACs, links, routes, neighbours. Whoever tests builds of it what is
//! tested. The golden cases have the same addresses, from `golden/scene.py`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A client.
pub const CLIENT: [u8; 4] = [198, 51, 100, 48];
/// The virtual address.
pub const VIP: [u8; 4] = [198, 51, 100, 200];
/// The local address of full NAT.
pub const LOCAL: [u8; 4] = [192, 0, 2, 10];
/// A real server.
pub const REAL: [u8; 4] = [192, 0, 2, 11];
/// Another one.
pub const REAL_2: [u8; 4] = [192, 0, 2, 12];
/// [`CLIENT`] in IPv6.
pub const CLIENT_6: &str = "2001:db8:1::48";
/// [`VIP`] in IPv6.
pub const VIP_6: &str = "2001:db8:1::200";
/// [`LOCAL`] in IPv6.
pub const LOCAL_6: &str = "2001:db8:2::10";
/// [`REAL`] in IPv6.
pub const REAL_6: &str = "2001:db8:2::11";
/// MAC of the director's port towards clients.
pub const FRONT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC of its port towards real servers.
pub const BACK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC of [`CLIENT`].
pub const CLIENT_MAC: [u8; 6] = host_mac(48);
/// MAC of [`REAL`].
pub const REAL_MAC: [u8; 6] = host_mac(11);
/// MAC of [`REAL_2`].
pub const REAL_2_MAC: [u8; 6] = host_mac(12);

/// The MAC of the host whose address ends so.
pub const fn host_mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, last]
}

/// An address in front of the director, in IPv6 if `six`: the last byte as it is written, in
/// decimal and in hexadecimal.
pub fn front(six: bool, last: u8) -> IpAddr {
    address(six, (Ipv4Addr::new(198, 51, 100, 0), 1), last)
}

/// An address behind it.
pub fn back(six: bool, last: u8) -> IpAddr {
    address(six, (Ipv4Addr::new(192, 0, 2, 0), 2), last)
}

fn address(six: bool, (v4, net): (Ipv4Addr, u16), last: u8) -> IpAddr {
    if six {
        let digits = u16::from(last / 100) << 8 | u16::from(last / 10 % 10) << 4;
        let last = digits | u16::from(last % 10);
        return Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, last).into();
    }
    Ipv4Addr::from_bits(v4.to_bits() | u32::from(last)).into()
}

/// A port of the director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its number.
    pub port: u16,
    /// Its MAC.
    pub mac: [u8; 6],
    /// The VLAN of what leaves by it; 0 for none.
    pub vlan: u16,
    /// In bytes of IP packet.
    pub mtu: u16,
    /// The networks on it.
    pub networks: Vec<(IpAddr, u8)>,
    /// Hosts on it whose MACs are known.
    pub hosts: Vec<(IpAddr, [u8; 6])>,
}

/// The director's two ports and what is on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Towards the clients.
    pub front: Arm,
    /// Towards the real servers.
    pub back: Arm,
}

impl Default for World {
    fn default() -> Self {
        Self {
            front: Arm::new(0, FRONT_MAC, front, &[48]),
            back: Arm::new(1, BACK_MAC, back, &[11, 12]),
        }
    }
}

impl Arm {
    fn new(port: u16, mac: [u8; 6], at: fn(bool, u8) -> IpAddr, hosts: &[u8]) -> Self {
        let both = |last: u8| [false, true].map(|six| (at(six, last), host_mac(last)));
        Self {
            port,
            mac,
            vlan: 0,
            mtu: 1500,
            networks: vec![(at(false, 0), 24), (at(true, 0), 64)],
            hosts: hosts.iter().flat_map(|last| both(*last)).collect(),
        }
    }
}

impl World {
    /// With these MTUs in front and behind.
    pub fn with_mtus(mut self, [front, back]: [u16; 2]) -> Self {
        (self.front.mtu, self.back.mtu) = (front, back);
        self
    }

    /// With nobody's MAC known of those whose address ends so.
    pub fn without(mut self, last: u8) -> Self {
        self.front.hosts.retain(|(_, mac)| *mac != host_mac(last));
        self.back.hosts.retain(|(_, mac)| *mac != host_mac(last));
        self
    }

    /// With nobody's MAC known.
    pub fn with_nobody(mut self) -> Self {
        self.front.hosts.clear();
        self.back.hosts.clear();
        self
    }

    /// Tells whoever builds routes of it: first a link, then what is on it.
    pub fn tell<B, L: Copy>(
        &self,
        builder: &mut B,
        link: impl Fn(&mut B, &Arm) -> L,
        route: impl Fn(&mut B, L, IpAddr, u8),
        neighbour: impl Fn(&mut B, L, IpAddr, [u8; 6]),
    ) -> [L; 2] {
        [&self.front, &self.back].map(|arm| {
            let at = link(builder, arm);
            arm.networks.iter().for_each(|(net, bits)| route(builder, at, *net, *bits));
            arm.hosts.iter().for_each(|(host, mac)| neighbour(builder, at, *host, *mac));
            at
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_they_are_written() {
        assert_eq!([front(false, 48), front(false, 200)], [CLIENT, VIP].map(IpAddr::from));
        assert_eq!([back(false, 10), back(false, 12)], [LOCAL, REAL_2].map(IpAddr::from));
        for (address, text) in [
            (front(true, 48), CLIENT_6),
            (front(true, 200), VIP_6),
            (back(true, 10), LOCAL_6),
            (back(true, 11), REAL_6),
        ] {
            assert_eq!(address, text.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn hosts_are_within_the_networks_of_their_arm() {
        let World { front, back } = World::default();
        for arm in [front, back] {
            for (host, _) in arm.hosts {
                let within = |(net, bits): &(IpAddr, u8)| match (host, net) {
                    (IpAddr::V4(host), IpAddr::V4(net)) => {
                        (host.to_bits() ^ net.to_bits()) >> (32 - bits) == 0
                    }
                    (IpAddr::V6(host), IpAddr::V6(net)) => {
                        (host.to_bits() ^ net.to_bits()) >> (128 - bits) == 0
                    }
                    _ => false,
                };
                assert_eq!(arm.networks.iter().filter(|net| within(net)).count(), 1, "{host}");
            }
        }
    }
}
