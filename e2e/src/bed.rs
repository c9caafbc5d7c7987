//! The test bed: a client, a director and three real servers, each a network namespace.
//!
//! Two arms (the demo's layout):
//!
//! ```text
//!  client                     director                            rs1 rs2 rs3
//!  198.51.100.48 ──── front 198.51.100.1   back 192.0.2.1 ──┬──┬──┬── 192.0.2.11 .12 .13
//!                     VIP   198.51.100.200 laddr 192.0.2.10 lan (switch)
//! ```
//!
//! The director's `back` is one interface on a network with three hosts, as in a rack, so between
//! them stands a switch: a sixth namespace, `lan`, that holds nothing but a bridge. It has no
//! address and runs nothing. (The bridge may not be in the director's namespace, whose `back` must
//! be a veth end that XDP can be attached to, nor in a real server's, whose own traffic would then
//! not cross a wire.)
//!
//! One arm: all of them, the client too, on the one network 192.0.2.0/24 behind the switch.

mod dual;
pub mod ecmp;
pub mod evpn;
mod frr;
pub mod nodes;
pub mod pair;
mod ways;

use std::time::Duration;

use crate::error::LabError;
use crate::lab::{End, Lab, Netns};
use crate::process::{Running, wait_until};
use crate::web;

pub use ways::{Mode, TUNNEL};

/// How the director's ports are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// XDP steers services to AF_XDP sockets; the kernel keeps the interface.
    AfXdp,
    /// The director owns the interface by a packet socket; the kernel has a TAP twin of it.
    AfPacket,
}

/// Where the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Behind another interface than the real servers.
    TwoArm,
    /// On the same interface and network as the real servers.
    OneArm,
}

/// How many real servers a bed has.
pub const REALS: usize = 3;
/// The TCP port of the ssh-like service that the director's own machine offers.
pub const ADMIN_PORT: u16 = 22;

/// Namespaces, wires and peers around a director.
#[derive(Debug)]
pub struct Bed {
    /// Programs that run in it; ended before the namespaces go.
    pub peers: Vec<Running>,
    /// The client's place.
    pub client: Netns,
    /// The director's place.
    pub director: Netns,
    /// The switch.
    pub lan: Netns,
    /// The real servers' places.
    pub reals: Vec<Netns>,
    /// One or two arms.
    pub shape: Shape,
    /// How the director's ports are driven.
    pub driver: Driver,
    /// Whether `back` is driven by AF_XDP although `front` is not, see [`Self::mix`].
    pub mixed: bool,
    /// Whether it has IPv6 too, see [`Self::add_ipv6`].
    pub dual: bool,
    /// Queues of each veth, and workers of the director.
    pub workers: u32,
    /// The lab that holds it all.
    pub lab: Lab,
}

impl Bed {
    /// Makes the namespaces and wires; nothing runs yet.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn new(prefix: &str, shape: Shape, driver: Driver, queues: u32) -> Result<Self, LabError> {
        let mut lab = Lab::new(prefix)?;
        let client = lab.space("client")?;
        let director = lab.space("director")?;
        let lan = lab.space("lan")?;
        let names = ["rs1", "rs2", "rs3"];
        let reals = names.iter().map(|name| lab.space(name)).collect::<Result<Vec<_>, _>>()?;
        let peers = Vec::new();
        let (workers, dual) = (queues, false);
        let mixed = false;
        let bed =
            Self { peers, client, director, lan, reals, shape, driver, mixed, dual, workers, lab };
        bed.switch()?;
        for index in 0..REALS {
            bed.wire_real(index)?;
        }
        bed.wire_client()?;
        bed.wire_director()?;
        Ok(bed)
    }

    /// The client's address.
    pub fn client_address(&self) -> &'static str {
        match self.shape {
            Shape::TwoArm => "198.51.100.48",
            Shape::OneArm => "192.0.2.48",
        }
    }

    /// The virtual address.
    pub fn vip(&self) -> &'static str {
        match self.shape {
            Shape::TwoArm => "198.51.100.200",
            Shape::OneArm => "192.0.2.200",
        }
    }

    /// The director's own address on the client's side.
    pub fn front_address(&self) -> &'static str {
        match self.shape {
            Shape::TwoArm => "198.51.100.1",
            Shape::OneArm => "192.0.2.1",
        }
    }

    /// A real server's address; the first is number 0.
    pub fn real_address(index: usize) -> String {
        format!("192.0.2.{}", 11 + index)
    }

    /// The director's devices: `front`, and `back` when there are two arms.
    pub fn ports(&self) -> &'static [&'static str] {
        match self.shape {
            Shape::TwoArm => &["front", "back"],
            Shape::OneArm => &["front"],
        }
    }

    /// The addresses, with prefix lengths, that belong to a port.
    pub fn addresses_of(&self, port: &str) -> &'static [&'static str] {
        match (self.shape, port) {
            (Shape::TwoArm, "front") => &["198.51.100.1/24", "198.51.100.200/32"],
            (Shape::TwoArm, _) => &["192.0.2.1/24", "192.0.2.10/32"],
            (Shape::OneArm, _) => &["192.0.2.1/24", "192.0.2.10/32", "192.0.2.200/32"],
        }
    }

    /// The TAP twin's name of a port that the director owns.
    pub fn twin_of(port: &str) -> String {
        format!("t{port}")
    }

    /// The device that carries a port's addresses: itself, or its twin.
    pub fn kernel_device(&self, port: &str) -> String {
        match self.driver_of(port) {
            Driver::AfXdp => port.to_owned(),
            Driver::AfPacket => Self::twin_of(port),
        }
    }

    /// How one of the director's ports is driven.
    pub fn driver_of(&self, port: &str) -> Driver {
        if self.mixed && port == "back" { Driver::AfXdp } else { self.driver }
    }

    /// Has `back` driven by AF_XDP where `front` is not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mix(&mut self) -> Result<(), LabError> {
        self.mixed = true;
        self.settle_port("back")
    }

    fn switch(&self) -> Result<(), LabError> {
        self.lan.ip(&["link", "add", "sw", "type", "bridge", "stp_state", "0"])?;
        self.lan.ip(&["link", "set", "sw", "up"]).map(drop)
    }

    fn plug_in(&self, device: &str) -> Result<(), LabError> {
        self.lan.ip(&["link", "set", "dev", device, "master", "sw"]).map(drop)
    }

    fn wire_real(&self, index: usize) -> Result<(), LabError> {
        let real = &self.reals[index];
        let socket = format!("p{}", index + 1);
        let mac = format!("02:00:00:00:01:{}", 11 + index);
        let one = End { space: real, device: "eth0", mac: Some(&mac) };
        self.lab.veth(one, End { space: &self.lan, device: &socket, mac: None }, self.workers)?;
        self.plug_in(&socket)?;
        real.address("eth0", &format!("{}/24", Self::real_address(index)))?;
        real.route("default", "192.0.2.1")
    }

    fn wire_client(&self) -> Result<(), LabError> {
        if self.shape == Shape::OneArm {
            let one = End { space: &self.client, device: "eth0", mac: Some("02:00:00:00:00:48") };
            let other = End { space: &self.lan, device: "client", mac: None };
            self.lab.veth(one, other, self.workers)?;
            self.plug_in("client")?;
            return self.client.address("eth0", "192.0.2.48/24");
        }
        self.wire_front()?;
        self.client.address("eth0", "198.51.100.48/24")?;
        self.client.route("192.0.2.0/24", "198.51.100.1")
    }

    /// The wire between the client and the director in two arms; by itself, so that a test can cut
    /// it and lay it again.
    fn wire_front(&self) -> Result<(), LabError> {
        let client = End { space: &self.client, device: "eth0", mac: Some("02:00:00:00:00:48") };
        let front = End { space: &self.director, device: "front", mac: Some("02:00:00:00:00:01") };
        self.lab.veth(client, front, self.workers)
    }

    fn wire_director(&self) -> Result<(), LabError> {
        let (device, mac) = match self.shape {
            Shape::TwoArm => ("back", "02:00:00:00:00:02"),
            Shape::OneArm => ("front", "02:00:00:00:00:01"),
        };
        let port = End { space: &self.director, device, mac: Some(mac) };
        let socket = End { space: &self.lan, device: "director", mac: None };
        self.lab.veth(port, socket, self.workers)?;
        self.plug_in("director")?;
        for port in self.ports() {
            self.settle_port(port)?;
        }
        Ok(())
    }

    /// Gives an AF_XDP port its addresses. An AF_PACKET port gets none: they go to its twin, when
    /// the director has made it. (That the kernel, which sees a copy of every frame on such a port,
    /// does not answer there too is the director's care.)
    fn settle_port(&self, port: &str) -> Result<(), LabError> {
        if self.driver_of(port) == Driver::AfPacket {
            return Ok(());
        }
        self.addresses_of(port).iter().try_for_each(|address| self.director.address(port, address))
    }

    /// Waits for the TAP twins of a running director and gives them the ports' addresses, as an
    /// operator's network configuration would. Nothing to do for AF_XDP.
    ///
    /// # Errors
    /// When a twin does not appear within 10 s.
    pub fn settle_twins(&self) -> Result<(), LabError> {
        for port in self.ports() {
            if self.driver_of(port) == Driver::AfXdp {
                continue;
            }
            let twin = Self::twin_of(port);
            let what = format!("the TAP twin {twin}");
            wait_until(&what, Duration::from_secs(10), || {
                Ok(self.director.has_device(&twin).then_some(()))
            })?;
            for address in self.addresses_of(port) {
                self.director.address(&twin, address)?;
            }
            for address in self.addresses6_of(port).iter().filter(|_| self.dual) {
                self.director.address(&twin, address)?;
            }
            self.director.ip(&["link", "set", "dev", &twin, "up"])?;
        }
        Ok(())
    }

    /// Plain kernel routing between client and real servers, for the comparison: client → director
    /// → real server and back, without the director's program.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn route_directly(&self) -> Result<(), LabError> {
        self.director.sysctl("net.ipv4.ip_forward", "1")
    }

    /// Starts nginx, a UDP echo and an iperf3 server on every real server, and waits for them.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn start_reals(&mut self) -> Result<(), LabError> {
        for (index, real) in self.reals.iter().enumerate() {
            self.peers.push(web::start_nginx(real, index + 1)?);
            self.peers.push(web::start_echo(real, &format!("echo{}", index + 1))?);
            self.peers.push(web::start_iperf3(real, &format!("iperf{}", index + 1))?);
        }
        self.peers.push(web::start_lines(&self.reals[0], "lines", web::LINES_PORT)?);
        Ok(())
    }

    /// Starts the ssh-like service on the director's own machine: it greets and then echoes lines.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_admin(&mut self) -> Result<(), LabError> {
        self.peers.push(web::start_lines(&self.director, "admin", ADMIN_PORT)?);
        Ok(())
    }

    /// Takes the director's front interface away (and with it the client's end).
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn cut_front(&self) -> Result<(), LabError> {
        self.director.ip(&["link", "delete", "front"]).map(drop)
    }

    /// Lays the front wire again after [`Self::cut_front`], same names, MACs and addresses.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn restore_front(&self) -> Result<(), LabError> {
        self.wire_client()?;
        self.settle_port("front")
    }
}
