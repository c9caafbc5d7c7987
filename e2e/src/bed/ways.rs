//! What forwarding modes ask of real servers: the virtual address on a loopback that does not tell,
//! tunnels that are unpacked, and a way to the client that does not lead through the director.

use super::{Bed, Shape};
use crate::error::LabError;
use crate::family::{FAMILIES, Family};
use crate::lab::{End, Netns};
use crate::web;

/// How packets reach the real servers of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Full NAT.
    Fnat,
    /// Destination NAT; the director is the real servers' gateway.
    Nat,
    /// Direct routing.
    Dr,
    /// IP in IP.
    Ipip,
    /// Generic UDP Encapsulation, with the UDP checksum.
    Gue,
    /// GRE, with its checksum and a key.
    Gre,
}

impl Mode {
    /// As the configuration file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fnat => "fnat",
            Self::Nat => "nat",
            Self::Dr => "dr",
            Self::Ipip => "ipip",
            Self::Gue => "gue",
            Self::Gre => "gre",
        }
    }

    /// Whether packets go through a tunnel.
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::Ipip | Self::Gue | Self::Gre)
    }

    /// What a service says about its tunnels' headers: all that may be said.
    pub fn tunnel_keys(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Gue => &[("tunnel_port", "6081"), ("tunnel_checksum", "true")],
            Self::Gre => &[("tunnel_key", "7"), ("tunnel_checksum", "true")],
            Self::Fnat | Self::Nat | Self::Dr | Self::Ipip => &[],
        }
    }

    /// Whether real servers answer past the director, from the virtual address.
    pub const fn answers_past(self) -> bool {
        matches!(self, Self::Dr) || self.is_tunnel()
    }
}

/// The TUN device by which a real server's kernel gets what was unpacked.
pub const TUNNEL: &str = "unpacked";

impl Bed {
    /// Makes the real servers ready for a mode.
    ///
    /// # Errors
    /// When the kernel refuses, or a peer does not come up.
    pub fn prepare(&mut self, mode: Mode) -> Result<(), LabError> {
        if mode.answers_past() {
            self.hold_vip()?;
            self.back_door()?;
        }
        if mode.is_tunnel() {
            self.unpack()?;
        }
        Ok(())
    }

    /// The real servers hold the virtual addresses without answering ARP for them or using them in
    /// ARP themselves. (For addresses of the loopback IPv6's neighbour discovery is silent anyway.)
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold_vip(&self) -> Result<(), LabError> {
        for real in &self.reals {
            real.sysctls(&[
                "net.ipv4.conf.all.arp_ignore=1".to_owned(),
                "net.ipv4.conf.all.arp_announce=2".to_owned(),
            ])?;
            for family in self.families() {
                real.address("lo", &format!("{}/{}", self.vip_of(*family), family.bits()))?;
            }
        }
        Ok(())
    }

    /// Where the client is behind another interface of the director than the real servers, it gets
    /// a second wire into their network, and answers from the virtual address come by that. (The
    /// director's kernel would not route them: their source is an address of its own.)
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn back_door(&self) -> Result<(), LabError> {
        if self.shape == Shape::OneArm {
            return Ok(());
        }
        self.client.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
        self.client.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        let door = End { space: &self.client, device: "door", mac: Some("02:00:00:00:00:49") };
        self.lab.veth(door, End { space: &self.lan, device: "door", mac: None }, self.workers)?;
        self.plug_in("door")?;
        for family in self.families() {
            let (address, net) = match family {
                Family::V4 => ("192.0.2.48/32", "198.51.100.0/24"),
                Family::V6 => ("2001:db8:2::48/128", "2001:db8:1::/64"),
            };
            self.client.address("door", address)?;
            let via = address.split('/').next().unwrap_or_default();
            for (index, real) in self.reals.iter().enumerate() {
                let neighbour = format!("{}/{}", Self::real_of(*family, index), family.bits());
                let flag = family.flag();
                self.client.ip(&[flag, "route", "replace", &neighbour, "dev", "door"])?;
                real.route(net, via)?;
            }
        }
        Ok(())
    }

    /// The families that the bed has addresses of.
    pub fn families(&self) -> &'static [Family] {
        if self.dual { &FAMILIES } else { &FAMILIES[..1] }
    }

    fn unpack(&mut self) -> Result<(), LabError> {
        for (index, real) in self.reals.iter().enumerate() {
            self.peers.push(unpack_at(real, &format!("unpack{}", index + 1))?);
        }
        Ok(())
    }
}

/// Starts a program that gives a host what comes to it in tunnels.
pub(super) fn unpack_at(real: &Netns, name: &str) -> Result<crate::Running, LabError> {
    real.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    real.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
    let peer = web::start_script(real, name, "unpack.py", &[TUNNEL])?;
    real.ip(&["link", "set", "dev", TUNNEL, "up"])?;
    Ok(peer)
}
