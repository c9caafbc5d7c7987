//! Two nodes with a director each, and pods in two isolated networks that use the same addresses.
//!
//! ```text
//!   blue pod   red pod                                   blue pod   red pod
//!   10.0.1.2   10.0.1.2                                  10.0.2.2   10.0.2.2
//!      │eth0      │eth0                                     │eth0      │eth0
//!      │blue      │red                                      │blue      │red
//!   ┌──┴──────────┴──┐        VXLAN 100 (blue), 200 (red)┌──┴──────────┴──┐
//!   │    node 1      ├under ─────────────────────── under┤    node 2      │
//!   └────────────────┘192.0.2.1                 192.0.2.2└────────────────┘
//! ```
//!
//! In each network the pods' gateway is 10.0.N.1 on node N, the tunnel's ends are 10.0.0.1 and
//! 10.0.0.2, and every director balances 10.9.9.9:80 over the pods of both nodes, by Full NAT from
//! 10.0.0.100 plus its number. Each pod is a client, and a web server that answers with its number.
//!
//! Linux has a routing table for each network, and rules that send what comes in by a network's
//! interfaces there: what a VRF device would do, where a kernel has that. Where the other node's
//! tunnel end is, blue learns from what is flooded, and red is told.

mod pods;

use self::pods::{Carrier, memif, pods};
use super::Driver;
use super::dual::enable;
use super::ways::unpack_at;
use crate::director::Director;
use crate::entry::{Real, Service};
use crate::error::LabError;
use crate::family::Family;
use crate::lab::{End, Lab, Netns};
use crate::process::{Running, wait_until};
use crate::web;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// How many nodes there are.
pub const NODES: usize = 2;
/// The service's address in every network.
pub const VIP: &str = "10.9.9.9";
/// The networks: name, VXLAN's identifier and routing table.
pub const NETWORKS: [(&str, u32); 2] = [("blue", 100), ("red", 200)];

/// What a router on a narrow way takes, in bytes.
pub const NARROW: u16 = 1400;

const SOON: Duration = Duration::from_secs(20);

/// The address of a node's service by IPIP, if there is one. Pods of the other node hold it.
pub fn far_vip(node: usize) -> String {
    format!("10.9.9.{}", 9 + node)
}

/// How nodes are made.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How their ports are driven.
    pub driver: Driver,
    /// Workers of each director, and queues of each port.
    pub workers: usize,
    /// What the tunnels go over.
    pub underlay: Family,
    /// Whether the directors synchronise their sessions, over the underlay. Each then stands in for
    /// the other's local addresses, so that answers to these do not cross it: the pods of node 1
    /// alone are real servers, for its own clients.
    pub synchronised: bool,
    /// Whether there is a router between the nodes that takes packets of [`NARROW`] bytes only,
    /// either way, as their first links do not say. Each network then has a sink, whose real server
    /// is the pod of the other node.
    pub narrow: bool,
    /// Whether real servers are checked through the data path.
    pub checked: bool,
    /// Whether each network's addresses are held for a routing daemon, on interfaces whose names
    /// begin with `up`.
    pub announced: bool,
    /// Whether there is a second service in each network, whose real server is the pod of the other
    /// node, by IPIP within the network.
    pub tunnelled: bool,
    /// Whether the pods of node 1 have no veth: blue's has a memif, and red's the TAP of a virtual
    /// machine.
    pub memif_and_tap: bool,
}

impl Kind {
    /// One worker, and tunnels over IPv4; each director by itself.
    pub const fn of(driver: Driver) -> Self {
        Self {
            driver,
            workers: 1,
            underlay: Family::V4,
            synchronised: false,
            narrow: false,
            checked: false,
            announced: false,
            tunnelled: false,
            memif_and_tap: false,
        }
    }

    /// A node's address in the underlay, and the bits of the network around it.
    fn end(self, node: usize) -> (String, u8) {
        match self.underlay {
            Family::V4 => (format!("192.0.2.{node}"), 24),
            Family::V6 => (format!("2001:db8::{node}"), 64),
        }
    }

    /// The largest packet that the other node gets in one piece, in bytes.
    const fn mtu(self) -> &'static str {
        match self.underlay {
            Family::V4 => "1450",
            Family::V6 => "1430",
        }
    }
}

/// A pod: a client and a web server in one network of one node.
#[derive(Debug)]
pub struct Pod {
    /// Its place.
    pub space: Netns,
    /// What its web server answers with: `Real Server NN`.
    pub number: usize,
}

/// A machine with a director.
#[derive(Debug)]
pub struct Node {
    /// Its director.
    pub director: Director,
    /// Its pods, one of each network.
    pub pods: Vec<Pod>,
    /// Its place.
    pub space: Netns,
    /// Its lab: configuration, logs, sockets, state.
    pub lab: Lab,
}

/// All of it.
#[derive(Debug)]
pub struct Nodes {
    /// The pods' programs; ended before the namespaces go.
    pub peers: Vec<Running>,
    /// The nodes.
    pub nodes: Vec<Node>,
    _carriers: Vec<Carrier>,
    kind: Kind,
}

impl Nodes {
    /// Makes the namespaces and wires, starts pods and directors, and waits until they are ready.
    ///
    /// # Errors
    /// When the machine refuses, or something does not come up.
    pub fn start(prefix: &str, kind: Kind) -> Result<Self, LabError> {
        let Kind { driver, workers, .. } = kind;
        let mut made = Vec::new();
        for node in 1..=NODES {
            let mut lab = Lab::new(prefix)?;
            let space = lab.space(&format!("node{node}"))?;
            for key in ["all", "default"] {
                space.sysctl(&format!("net.ipv4.conf.{key}.rp_filter"), "0")?;
            }
            space.sysctl("net.ipv4.ip_forward", "1")?;
            made.push((lab, space));
        }
        if kind.narrow {
            narrow_way(&mut made, workers as u32)?;
        } else {
            let end = |at: usize| End { space: &made[at].1, device: "under", mac: None };
            made[0].0.veth(end(0), end(1), workers as u32)?;
        }
        let (mut nodes, mut peers, mut carriers) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (mut lab, space)) in made.into_iter().enumerate() {
            let (pods, of_pods) = pods(&mut lab, &space, at + 1, kind)?;
            carriers.extend(of_pods);
            for pod in &pods {
                peers.push(web::start_nginx(&pod.space, pod.number)?);
                if kind.narrow {
                    peers.push(web::start_sink(&pod.space, &format!("sink{}", pod.number))?);
                }
                if kind.tunnelled {
                    pod.space.address("lo", &format!("{}/32", far_vip(NODES - at)))?;
                    peers.push(unpack_at(&pod.space, &format!("unpack{}", pod.number))?);
                }
            }
            if driver == Driver::AfXdp {
                settle_ports(&space, (at + 1, kind), "")?;
            }
            let config = config(&lab, kind, at + 1)?;
            let mut director = Director::launch_in(&space, &config, &[])?;
            director.wait_ready()?;
            let node = Node { director, pods, space, lab };
            if driver == Driver::AfPacket {
                settle_ports(&node.space, (at + 1, kind), "t")?;
            }
            nodes.push(node);
        }
        let nodes = Self { peers, nodes, _carriers: carriers, kind };
        nodes.join()?;
        Ok(nodes)
    }

    /// Makes the tunnels' ends, and says where the others are.
    fn join(&self) -> Result<(), LabError> {
        for (at, node) in self.nodes.iter().enumerate() {
            let (number, other) = (at + 1, NODES - at);
            for (name, vni) in NETWORKS {
                tunnel(&node.space, (name, vni), (number, self.kind))?;
                let device = &*format!("vx{name}");
                let (far, table) = (self.kind.end(other).0, vni.to_string());
                if name == "red" {
                    let mac = mac(vni, other);
                    bridge(&node.space, &["add", &mac, "dev", device, "dst", &far])?;
                    for last in [other, 100 + other] {
                        let end = format!("10.0.0.{last}");
                        let to = ["neighbour", "add", &end, "lladdr", &mac, "dev", device];
                        node.space.ip(&to)?;
                    }
                } else {
                    let flood = "00:00:00:00:00:00";
                    bridge(&node.space, &["append", flood, "dev", device, "dst", &far])?;
                }
                let (pods, end) = (format!("10.0.{other}.0/24"), format!("10.0.0.{other}"));
                let route = ["route", "add", &pods, "via", &end, "dev", device, "table", &table];
                node.space.ip(&route)?;
            }
        }
        Ok(())
    }

    /// Kills a node's director, and starts it again.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn kill_and_start(&mut self, node: usize) -> Result<(), LabError> {
        let kind = self.kind;
        let Node { director, space, lab, .. } = &mut self.nodes[node - 1];
        director.kill()?;
        *director = Director::launch_in(space, &config(lab, kind, node)?, &[])?;
        director.wait_ready()
    }

    /// Says no more, or again, where red's end of the tunnel on the other node is.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tell_red(&self, node: usize, told: bool) -> Result<(), LabError> {
        let (other, what) = (NODES + 1 - node, if told { "add" } else { "del" });
        let (mac, far) = (mac(NETWORKS[1].1, other), self.kind.end(other).0);
        let space = &self.nodes[node - 1].space;
        bridge(space, &[what, &mac, "dev", "vxred", "dst", &far])
    }

    /// Ends a pod's web server.
    ///
    /// # Errors
    /// When it has none.
    pub fn end_nginx(&self, node: usize, network: &str) -> Result<(), LabError> {
        let Pod { space, number } = self.pod(node, network);
        let end = format!("kill $(cat {}/nginx{number}.pid)", space.dir().display());
        space.run("sh", &["-c", &end])?.ok().map(drop)
    }

    /// A pod by its node, from 1, and network.
    ///
    /// # Panics
    /// When there is none.
    pub fn pod(&self, node: usize, network: &str) -> &Pod {
        let at = NETWORKS.iter().position(|(name, _)| *name == network).expect("a network");
        &self.nodes[node - 1].pods[at]
    }
}

/// Puts a router between the nodes, which answers each for the other.
fn narrow_way(made: &mut [(Lab, Netns)], queues: u32) -> Result<(), LabError> {
    let way = made[0].0.space("way")?;
    way.sysctl("net.ipv4.ip_forward", "1")?;
    for (node, (_, space)) in (1..).zip(made.iter()) {
        let device = format!("to{node}");
        let under = End { space, device: "under", mac: None };
        made[0].0.veth(under, End { space: &way, device: &device, mac: None }, queues)?;
        way.sysctl(&format!("net.ipv4.conf.{device}.proxy_arp"), "1")?;
        way.sysctl(&format!("net.ipv4.neigh.{device}.proxy_delay"), "0")?;
        way.address(&device, &format!("192.0.2.{}/32", 100 + node))?;
        let (to, mtu) = (format!("192.0.2.{node}"), NARROW.to_string());
        way.ip(&["route", "add", &to, "dev", &device, "mtu", "lock", &mtu])?;
    }
    Ok(())
}

/// The MAC address of a tunnel's end.
fn mac(vni: u32, node: usize) -> String {
    format!("02:00:00:00:{:02x}:{node:02x}", vni & 0xff)
}

fn bridge(space: &Netns, args: &[&str]) -> Result<(), LabError> {
    let all: Vec<&str> = ["fdb"].iter().chain(args).copied().collect();
    space.run("bridge", &all)?.ok().map(drop)
}

/// Gives the interfaces that carry a node's addresses what they need: the ports' own, or the twins
/// that begin so.
fn settle_ports(
    space: &Netns,
    (number, kind): (usize, Kind),
    prefix: &str,
) -> Result<(), LabError> {
    let under = format!("{prefix}under");
    let all = NETWORKS.map(|(name, _)| format!("{prefix}{name}"));
    for device in all.iter().chain([&under]) {
        wait_until("an interface", SOON, || Ok(space.has_device(device).then_some(())))?;
        space.ip(&["link", "set", device, "up"])?;
    }
    let (end, bits) = kind.end(number);
    if kind.underlay == Family::V6 {
        enable(space, &[&under])?;
    }
    space.address(&under, &format!("{end}/{bits}"))?;
    for ((_, table), device) in NETWORKS.iter().zip(&all) {
        let (table, gateway) = (table.to_string(), format!("10.0.{number}.1"));
        space.ip(&["address", "add", &format!("{gateway}/24"), "dev", device, "noprefixroute"])?;
        into_table(space, device, &table, &format!("10.0.{number}.0/24"))?;
    }
    Ok(())
}

/// Makes a tunnel's end.
fn tunnel(
    space: &Netns,
    (name, vni): (&str, u32),
    (number, kind): (usize, Kind),
) -> Result<(), LabError> {
    let (device, id) = (&*format!("vx{name}"), vni.to_string());
    let (local, mac) = (kind.end(number).0, mac(vni, number));
    let mut made = vec!["link", "add", device, "address", &mac, "type", "vxlan", "id", &id];
    made.extend(["dstport", "4789", "local", &local]);
    if name == "red" {
        made.push("nolearning");
    }
    space.ip(&made)?;
    // What Linux itself puts into the tunnel must fit; the director would know by itself.
    space.ip(&["link", "set", device, "mtu", kind.mtu(), "up"])?;
    for address in [format!("10.0.0.{number}/24"), format!("10.0.0.{}/32", 100 + number)] {
        space.ip(&["address", "add", &address, "dev", device, "noprefixroute"])?;
    }
    into_table(space, device, &id, "10.0.0.0/24")
}

/// Puts an interface's network into a table, by which all goes that comes in or leaves by it.
fn into_table(space: &Netns, device: &str, table: &str, net: &str) -> Result<(), LabError> {
    space.ip(&["route", "add", net, "dev", device, "table", table])?;
    for way in ["iif", "oif"] {
        space.ip(&["rule", "add", way, device, "lookup", table])?;
    }
    Ok(())
}

/// Where a director's `[sync]` listens.
fn sync_end(kind: Kind, node: usize) -> String {
    match kind.underlay {
        Family::V4 => format!("{}:8848", kind.end(node).0),
        Family::V6 => format!("[{}]:8848", kind.end(node).0),
    }
}

/// `[sync]` of a director, with its key in a file.
fn sync(lab: &Lab, kind: Kind, number: usize) -> Result<String, LabError> {
    if !kind.synchronised {
        return Ok(String::new());
    }
    let file = lab.dir().join("sync.key");
    std::fs::write(&file, "5a".repeat(32)).map_err(LabError::file("writing a key"))?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o600))
        .map_err(LabError::file("closing a key"))?;
    let [own, other] = [number, NODES + 1 - number].map(|node| sync_end(kind, node));
    Ok(format!("[sync]\nlisten = {own:?}\npeers = [{other:?}]\nkey_files = [{file:?}]\n\n"))
}

fn config(lab: &Lab, kind: Kind, number: usize) -> Result<String, LabError> {
    let Kind { driver, workers, .. } = kind;
    let socket = Director::socket_in(lab.dir());
    let state = socket.with_file_name("state");
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cores: Vec<usize> =
        (0..workers.min(all)).map(|worker| (lab.seat() + worker) % all).collect();
    cores.sort_unstable();
    let port = |name: &str, network: &str| {
        let device = match (driver, memif(lab, number, name, kind)) {
            (_, Some(device)) => format!("device = \"{device}\"\ntwin = \"t{name}\"\n"),
            (Driver::AfXdp, None) => format!("device = \"af_xdp:{name}\"\n"),
            (Driver::AfPacket, None) => {
                format!("device = \"af_packet:{name}\"\ntwin = \"t{name}\"\n")
            }
        };
        format!("[[port]]\nname = \"{name}\"\n{device}{network}\n")
    };
    let sync = sync(lab, kind, number)?;
    let mut text = format!(
        "[director]\ncores = {cores:?}\nhuge_pages = \"off\"\ncontrol_socket = {socket:?}\n\
         state_dir = {state:?}\n\n[limits]\nsessions = 10000\n\n{sync}{}",
        port("under", "")
    );
    for (name, table) in NETWORKS {
        let within = format!("network = \"{name}\"\n");
        let peer = format!("peer_addresses = [\"10.0.0.{}\"]\n", 101 + NODES - number);
        let peer = if kind.synchronised { peer } else { String::new() };
        let source = format!("source_v4 = \"10.0.0.{number}\"\n");
        let source = if kind.tunnelled { source } else { String::new() };
        let probes = if kind.checked { "probe_addresses = [\"10.0.0.200\"]\n" } else { "" };
        let held = format!("announce_interface = \"up{name}\"\n");
        let held = if kind.announced { held } else { String::new() };
        text += &format!(
            "[[network]]\nname = \"{name}\"\ntable = {table}\ncidr = [\"10.0.0.0/8\"]\n\
             {source}{probes}{held}\n{}\
             [[port]]\nname = \"{name}-vxlan\"\ndevice = \"vxlan:vx{name}\"\n{within}\n\
             [[pool]]\nname = \"{name}\"\n{within}addresses = [\"10.0.0.{}\"]\n{peer}\n",
            port(name, &within),
            100 + number,
        );
        let web = format!("{name}-web");
        let web = Service::new(&web, "tcp", VIP).set("port", 80).set("pool", name);
        let mut web = web.set("network", name);
        if kind.checked {
            web = web.set("check", "page");
        }
        let reals = (1..=if kind.synchronised { 1 } else { NODES })
            .map(|node| Real::at(format!("10.0.{node}.2")));
        text += &web.reals(reals).to_string();
        let other = Real::at(format!("10.0.{}.2", NODES + 1 - number));
        if kind.narrow {
            let sink = Service::new(&format!("{name}-sink"), "tcp", VIP).set("pool", name);
            let sink = sink.set("port", web::SINK_PORT).set("network", name).reals([other]);
            text += &sink.to_string();
        }
        if kind.tunnelled {
            let far = format!("{name}-far");
            let far =
                Service::new(&far, "tcp", &far_vip(number)).set("port", 80).set("mode", "ipip");
            let real = Real::at(format!("10.0.{}.2", NODES + 1 - number));
            text += &far.set("network", name).reals([real]).to_string();
        }
    }
    if kind.checked {
        text += "[[check]]\nname = \"page\"\nkind = \"http\"\nthrough = \"service\"\n\
                 fast_interval_ms = 200\n";
    }
    Ok(text)
}
