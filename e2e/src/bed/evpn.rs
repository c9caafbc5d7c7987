//! A director whose VXLAN tunnel is programmed by FRR, and a second machine with FRR beyond it.
//!
//! ```text
//!   client                                                      server
//!   10.0.1.2                                                    10.0.0.20
//!      │eth0                                                       │eth0
//!      │blue                                                       │pod
//!   ┌──┴─────────────┐             VXLAN 100                  ┌────┴───────────┐
//!   │ blue   brblue  │                                        │    brblue      │
//!   │ director vxblue├under ──────────────────────────── under┤    vxblue      │
//!   └────────────────┘192.0.2.1      iBGP, EVPN      192.0.2.2└────────────────┘
//! ```
//!
//! Both machines have their VXLAN device in a bridge, as FRR wants it (`advertise-all-vni`),
//! without learning and without a remote: all that is known of the other end comes by BGP. The
//! director balances 10.9.9.9:80 of the network blue over the one server, by Full NAT from
//! 10.0.0.101.

use super::{Driver, frr};
use crate::director::Director;
use crate::entry::{Real, Service};
use crate::error::LabError;
use crate::lab::{End, Lab, Netns};
use crate::process::{Running, wait_until};
use crate::web;
use std::time::Duration;

/// The service's address.
pub const VIP: &str = "10.9.9.9";
/// The server's address.
pub const SERVER: &str = "10.0.0.20";
/// The server's Ethernet address.
pub const SERVER_MAC: &str = "02:00:00:00:64:20";

const TABLE: &str = "100";
const SOON: Duration = Duration::from_secs(20);

/// All of it.
#[derive(Debug)]
pub struct Evpn {
    /// The server's programs; ended before the namespaces go.
    pub peers: Vec<Running>,
    /// zebra and bgpd of each machine.
    pub daemons: [Vec<Running>; 2],
    /// The director.
    pub director: Director,
    /// The director's machine, and the other one.
    pub machines: [Netns; 2],
    /// The client.
    pub client: Netns,
    /// The server.
    pub server: Netns,
    /// The lab of it.
    pub lab: Lab,
}

impl Evpn {
    /// Makes the namespaces and wires, and starts everything; waits for the director alone.
    ///
    /// # Errors
    /// When the machine refuses, or something does not come up.
    pub fn start(prefix: &str, driver: Driver) -> Result<Self, LabError> {
        let mut lab = Lab::new(prefix)?;
        let machines = [lab.space("node1")?, lab.space("node2")?];
        let (client, server) = (lab.space("client")?, lab.space("server")?);
        for machine in &machines {
            let settings = ["all.rp_filter=0", "default.rp_filter=0", "all.forwarding=1"];
            machine.sysctls(&settings.map(|it| format!("net.ipv4.conf.{it}")))?;
        }
        lay_wires(&lab, &machines, [&client, &server])?;
        if driver == Driver::AfXdp {
            give_addresses(&machines[0], "")?;
        }
        let mut director = Director::launch_in(&machines[0], &config(&lab, driver), &[])?;
        director.wait_ready()?;
        if driver == Driver::AfPacket {
            give_addresses(&machines[0], "t")?;
        }
        for (machine, number) in machines.iter().zip(1..) {
            bridged(machine, number)?;
        }
        settle(&machines, [&client, &server])?;
        let peers = vec![web::start_nginx(&server, 20)?];
        let daemons = [start_frr(&machines[0], 1)?, start_frr(&machines[1], 2)?];
        Ok(Self { peers, daemons, director, machines, client, server, lab })
    }

    /// The kernel's forwarding entries of the director's VXLAN device.
    ///
    /// # Errors
    /// When `bridge` refuses.
    pub fn entries(&self) -> Result<String, LabError> {
        Ok(self.machines[0].run("bridge", &["fdb", "show", "dev", "vxblue"])?.ok()?.stdout)
    }

    /// Takes the server from its network, or brings it back.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn plug_server(&self, plugged: bool) -> Result<(), LabError> {
        let how = if plugged { "up" } else { "down" };
        self.machines[1].ip(&["link", "set", "pod", how]).map(drop)
    }

    /// Kills the other machine's bgpd, or starts it again.
    ///
    /// # Errors
    /// When it does not end, or does not come up.
    pub fn speak(&mut self, speaks: bool) -> Result<(), LabError> {
        let [_, daemons] = &mut self.daemons;
        if let Some(mut bgpd) = daemons.pop_if(|_| !speaks) {
            return bgpd.kill().map(drop);
        }
        daemons.push(bgpd(&self.machines[1], 2)?);
        Ok(())
    }
}

fn lay_wires(lab: &Lab, machines: &[Netns; 2], ends: [&Netns; 2]) -> Result<(), LabError> {
    let [one, other] = machines;
    let end = |space, device| End { space, device, mac: None };
    lab.veth(end(one, "under"), end(other, "under"), 1)?;
    lab.veth(end(ends[0], "eth0"), end(one, "blue"), 1)?;
    let server = End { space: ends[1], device: "eth0", mac: Some(SERVER_MAC) };
    lab.veth(server, end(other, "pod"), 1)
}

/// Gives the interfaces of the director's ports their addresses: those themselves, or their twins.
fn give_addresses(machine: &Netns, prefix: &str) -> Result<(), LabError> {
    let [under, blue] = ["under", "blue"].map(|name| format!("{prefix}{name}"));
    for device in [&under, &blue] {
        wait_until("an interface", SOON, || Ok(machine.has_device(device).then_some(())))?;
        machine.ip(&["link", "set", device, "up"])?;
    }
    machine.address(&under, "192.0.2.1/24")?;
    machine.ip(&["address", "add", "10.0.1.1/24", "dev", &blue, "noprefixroute"])?;
    into_table(machine, &blue, "10.0.1.0/24")
}

fn into_table(machine: &Netns, device: &str, net: &str) -> Result<(), LabError> {
    machine.ip(&["route", "add", net, "dev", device, "table", TABLE])?;
    for way in ["iif", "oif"] {
        machine.ip(&["rule", "add", way, device, "lookup", TABLE])?;
    }
    Ok(())
}

/// A VXLAN device in a bridge, as FRR's documentation has it.
fn bridged(machine: &Netns, number: usize) -> Result<(), LabError> {
    let mac = format!("02:00:00:00:64:{number:02x}");
    let local = format!("192.0.2.{number}");
    machine.ip(&["link", "add", "brblue", "address", &mac, "type", "bridge", "stp_state", "0"])?;
    let made = ["link", "add", "vxblue", "type", "vxlan", "id", "100", "dstport", "4789"];
    machine.ip(&[&made[..], &["local", &local, "nolearning"]].concat())?;
    machine.ip(&["link", "set", "vxblue", "mtu", "1450", "master", "brblue"])?;
    machine.run("bridge", &["link", "set", "dev", "vxblue", "learning", "off"])?.ok()?;
    for device in ["vxblue", "brblue"] {
        machine.ip(&["link", "set", device, "up"])?;
    }
    Ok(())
}

fn settle(machines: &[Netns; 2], [client, server]: [&Netns; 2]) -> Result<(), LabError> {
    let [one, other] = machines;
    for address in ["10.0.0.1/24", "10.0.0.101/32"] {
        one.ip(&["address", "add", address, "dev", "brblue", "noprefixroute"])?;
    }
    into_table(one, "brblue", "10.0.0.0/24")?;
    other.address("under", "192.0.2.2/24")?;
    other.ip(&["link", "set", "pod", "master", "brblue"])?;
    other.address("brblue", "10.0.0.2/24")?;
    client.address("eth0", "10.0.1.2/24")?;
    client.ip(&["route", "add", "default", "via", "10.0.1.1", "mtu", "1450"])?;
    server.address("eth0", &format!("{SERVER}/24"))?;
    server.ip(&["link", "set", "eth0", "mtu", "1450"]).map(drop)
}

/// zebra and bgpd of a machine.
fn start_frr(machine: &Netns, number: usize) -> Result<Vec<Running>, LabError> {
    let zebra = frr::start(machine, &files(number), ("zebra", "", vec![]))?;
    Ok(vec![zebra, bgpd(machine, number)?])
}

fn bgpd(machine: &Netns, number: usize) -> Result<Running, LabError> {
    let other = 3 - number;
    let text = format!(
        "router bgp 65000\n bgp router-id 192.0.2.{number}\n no bgp default ipv4-unicast\n \
         timers bgp 1 3\n neighbor 192.0.2.{other} remote-as 65000\n \
         neighbor 192.0.2.{other} timers connect 1\n \
         neighbor 192.0.2.{other} advertisement-interval 0\n address-family l2vpn evpn\n  \
         neighbor 192.0.2.{other} activate\n  advertise-all-vni\n  advertise-svi-ip\n \
         exit-address-family\nexit\n"
    );
    frr::start(machine, &files(number), ("bgpd", &text, vec![]))
}

/// The name of a machine's FRR: all namespaces of a lab have one folder.
fn files(number: usize) -> String {
    format!("frr{number}")
}

fn config(lab: &Lab, driver: Driver) -> String {
    let socket = Director::socket_in(lab.dir());
    let state = socket.with_file_name("state");
    let core = lab.seat() % std::thread::available_parallelism().map_or(1, usize::from);
    let port = |name: &str, network: &str| {
        let device = match driver {
            Driver::AfXdp => format!("device = \"af_xdp:{name}\""),
            Driver::AfPacket => format!("device = \"af_packet:{name}\"\ntwin = \"t{name}\""),
        };
        format!("[[port]]\nname = \"{name}\"\n{device}\n{network}\n")
    };
    let within = "network = \"blue\"\n";
    let web = Service::new("blue-web", "tcp", VIP).set("port", 80).set("pool", "blue");
    let web = web.set("network", "blue").reals([Real::at(SERVER)]);
    format!(
        "[director]\ncores = [{core}]\nhuge_pages = \"off\"\ncontrol_socket = {socket:?}\n\
         state_dir = {state:?}\n\n[limits]\nsessions = 10000\n\n{}\
         [[network]]\nname = \"blue\"\ntable = {TABLE}\ncidr = [\"10.0.0.0/8\"]\n\n{}\
         [[port]]\nname = \"blue-vxlan\"\ndevice = \"vxlan:vxblue\"\n{within}\n\
         [[pool]]\nname = \"blue\"\n{within}addresses = [\"10.0.0.101\"]\n\n{web}",
        port("under", ""),
        port("blue", within),
    )
}
