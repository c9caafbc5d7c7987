//! IPv6 beside IPv4 on a bed: the same hosts at the same places, `2001:db8:1::/64` where IPv4 has
//! 198.51.100.0/24 and `2001:db8:2::/64` where it has 192.0.2.0/24.
//!
//! Duplicate address detection is off: it would hold each address back for a second, and nothing
//! in a lab is configured twice (real servers that hold the virtual address do so on purpose).

use super::{Bed, Driver, REALS, Shape};
use crate::error::LabError;
use crate::family::Family;
use crate::lab::Netns;

impl Bed {
    /// Switches IPv6 on everywhere and gives all hosts their addresses. Before the director starts.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_ipv6(&mut self) -> Result<(), LabError> {
        self.dual = true;
        enable(&self.client, &["eth0"])?;
        enable(&self.director, self.ports())?;
        for index in 0..REALS {
            let real = &self.reals[index];
            enable(real, &["eth0"])?;
            real.address("eth0", &format!("{}/64", Self::real_of(Family::V6, index)))?;
            real.route("default", "2001:db8:2::1")?;
        }
        self.client.address("eth0", &format!("{}/64", self.client_of(Family::V6)))?;
        if self.driver == Driver::AfXdp {
            for port in self.ports() {
                for address in self.addresses6_of(port) {
                    self.director.address(port, address)?;
                }
            }
        }
        match self.shape {
            Shape::TwoArm => self.client.route("2001:db8:2::/64", "2001:db8:1::1"),
            Shape::OneArm => Ok(()),
        }
    }

    /// The client's address of a family.
    pub fn client_of(&self, family: Family) -> &'static str {
        match (family, self.shape) {
            (Family::V4, _) => self.client_address(),
            (Family::V6, Shape::TwoArm) => "2001:db8:1::48",
            (Family::V6, Shape::OneArm) => "2001:db8:2::48",
        }
    }

    /// The virtual address of a family.
    pub fn vip_of(&self, family: Family) -> &'static str {
        match (family, self.shape) {
            (Family::V4, _) => self.vip(),
            (Family::V6, Shape::TwoArm) => "2001:db8:1::200",
            (Family::V6, Shape::OneArm) => "2001:db8:2::200",
        }
    }

    /// A real server's address of a family; the first is number 0.
    pub fn real_of(family: Family, index: usize) -> String {
        match family {
            Family::V4 => Self::real_address(index),
            Family::V6 => format!("2001:db8:2::{}", 11 + index),
        }
    }

    /// The IPv6 addresses, with prefix lengths, that belong to a port.
    pub fn addresses6_of(&self, port: &str) -> &'static [&'static str] {
        match (self.shape, port) {
            (Shape::TwoArm, "front") => &["2001:db8:1::1/64", "2001:db8:1::200/128"],
            (Shape::TwoArm, _) => &["2001:db8:2::1/64", "2001:db8:2::10/128"],
            (Shape::OneArm, _) => {
                &["2001:db8:2::1/64", "2001:db8:2::10/128", "2001:db8:2::200/128"]
            }
        }
    }
}

/// Switches IPv6 on in a namespace, on devices that are there and on those to come.
pub(super) fn enable(space: &Netns, devices: &[&str]) -> Result<(), LabError> {
    let mut settings = vec![
        "net.ipv6.conf.all.accept_dad=0".to_owned(),
        "net.ipv6.conf.default.accept_dad=0".to_owned(),
        "net.ipv6.conf.default.disable_ipv6=0".to_owned(),
    ];
    settings.extend(devices.iter().map(|device| format!("net.ipv6.conf.{device}.accept_dad=0")));
    // Last: this is what makes link-local addresses.
    settings.push("net.ipv6.conf.all.disable_ipv6=0".to_owned());
    space.sysctls(&settings)
}
