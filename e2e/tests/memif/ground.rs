//! A director with two memif ports in a namespace of its own, and what it counts.
//!
//! ```text
//!   peer ─memif▶ front │ sluiced │ back ─memif▶ peer
//!   client ─veth▶ aside │
//! ```
//!
//! Neighbours are told to the kernel before any address, so that the director never asks anybody
//! for one: every frame that a peer receives is the answer to one that it sent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluice_e2e::capture::judge_and;
use sluice_e2e::error::expect;
use sluice_e2e::lab::End;
use sluice_e2e::{Director, Lab, LabError, Netns, Real, Service, wait_until};

use crate::fixture::{PREFIX, SOON, turn};

pub const VIP: &str = "198.51.100.200";
pub const PORT: u16 = 9;
/// What stands for the clients' router; real servers have 02:00:00:00:01:NN.
pub const ROUTER_MAC: &str = "02:00:00:00:00:48";
const ROUTER: &str = "198.51.100.254";
const CLIENTS: &str = "203.0.113.0/24";
/// What both ends of a link must know, where one is asked for.
pub const SECRET: &str = "not-told-to-anybody";

/// Which end of its links the director is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer listens, on an abstract socket: a file would outlive a peer that is killed.
    Client,
    /// The director listens, on a file.
    Server,
}

/// What links a ground has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub director: Role,
    /// Whether the director asks for [`SECRET`], or shows it.
    pub secret: bool,
    /// Whether each link has a socket of its own, for two peers that listen.
    pub sockets: bool,
    /// Whether there is a third port, with a client behind it that the kernel plays.
    pub aside: bool,
    /// Whether the links carry IP packets.
    pub ip: bool,
    /// Workers, if there are as many cores: queues of each port.
    pub workers: usize,
}

impl Shape {
    /// Both links on one socket, with a secret.
    pub const fn of(director: Role) -> Self {
        Self { director, secret: true, sockets: false, aside: false, ip: false, workers: 1 }
    }
}

/// A running director and its place.
pub struct Ground {
    pub director: Director,
    pub space: Netns,
    pub client: Netns,
    pub shape: Shape,
    pub lab: Lab,
}

/// Runs a test on a ground; `name` is the test's path.
pub fn on(name: &str, shape: Shape, test: impl FnOnce(&mut Ground) -> Result<(), LabError>) {
    let Some(_turn) = turn(name) else { return };
    let mut ground = Ground::new(shape).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = test(&mut ground) {
        let ask = |what| ground.director.sluice(&[what]).unwrap_or_default();
        let (drops, ports) = (ask("drops"), ask("ports"));
        let said = ground.director.said(30);
        panic!("{name}: {error}\n--- sluiced:\n{said}\n--- drops:\n{drops}\n--- ports:\n{ports}");
    }
}

impl Ground {
    fn new(shape: Shape) -> Result<Self, LabError> {
        let mut lab = Lab::new(PREFIX)?;
        let (space, client) = (lab.space("director")?, lab.space("client")?);
        if shape.aside {
            let end = |space, device| End { space, device, mac: None };
            lab.veth(end(&client, "eth0"), end(&space, "aside"), 1)?;
            client.address("eth0", "203.0.113.2/24")?;
            client.route(&format!("{VIP}/32"), "203.0.113.1")?;
        }
        let secret = lab.dir().join("secret");
        std::fs::write(&secret, SECRET).map_err(LabError::file("writing a secret"))?;
        let config = config(&lab, shape);
        let director = Director::launch_in(&space, &config, &[])?;
        let mut ground = Self { director, space, client, shape, lab };
        ground.director.wait_ready()?;
        ground.settle()?;
        Ok(ground)
    }

    /// The control socket of a link, as the director's configuration names it.
    pub fn socket(&self, link: usize) -> String {
        socket(&self.lab, self.shape, link)
    }

    /// The core that the director's worker leaves to a peer.
    pub fn other_core(&self) -> usize {
        (core(&self.lab) + 1) % cores()
    }

    fn settle(&self) -> Result<(), LabError> {
        let ip = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            self.space.ip(&words).map(drop)
        };
        for twin in ["tfront", "tback"] {
            wait_until("a twin", SOON, || Ok(self.space.has_device(twin).then_some(())))?;
            ip(&format!("link set {twin} up"))?;
        }
        let neighbour = |address: &str, mac: &str, twin: &str| {
            ip(&format!("neighbour replace {address} lladdr {mac} dev {twin} nud permanent"))
        };
        neighbour(ROUTER, ROUTER_MAC, "tfront")?;
        for last in 11..14 {
            neighbour(&format!("192.0.2.{last}"), &format!("02:00:00:00:01:{last}"), "tback")?;
        }
        self.space.address("tfront", "198.51.100.1/24")?;
        self.space.address("tfront", &format!("{VIP}/32"))?;
        self.space.address("tback", "192.0.2.1/24")?;
        for last in 64..80 {
            self.space.address("tback", &format!("192.0.2.{last}/32"))?;
        }
        if self.shape.aside {
            ip("link set taside up")?;
            return self.space.address("taside", "203.0.113.1/24");
        }
        self.space.route(CLIENTS, ROUTER)
    }

    /// Writes a capture of so many datagrams to the service, one a flow.
    pub fn flows(&self, count: u32) -> Result<PathBuf, LabError> {
        let file = self.lab.dir().join("flows.pcap");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/testpmd-flows.py");
        let (path, count, port) = (file.display().to_string(), count.to_string(), PORT.to_string());
        let mac = self.space.mac("tfront")?;
        let args = [script, &*path, &count, ROUTER_MAC, &mac, VIP, &port];
        self.space.run("python3", &args)?.ok()?;
        Ok(file)
    }

    fn port(&self, name: &str) -> Result<Value, LabError> {
        let said = self.director.ask("ports")?;
        let ports = said["ports"].as_array().into_iter().flatten();
        let found = ports.clone().find(|port| port["name"] == name).cloned();
        found.ok_or_else(|| LabError::Wrong(format!("there is no port {name}: {said}")))
    }

    /// Packets of a port, `rx` or `tx`.
    pub fn count(&self, port: &str, way: &str) -> Result<u64, LabError> {
        Ok(self.port(port)?[way]["packets"].as_u64().unwrap_or(0))
    }

    /// Whether a port is up.
    pub fn is_up(&self, port: &str) -> Result<bool, LabError> {
        Ok(self.port(port)?["state"] == "up")
    }

    /// Waits until the ports are all up, or all down.
    pub fn wait_links(&self, ports: &[&str], up: bool) -> Result<(), LabError> {
        self.wait_links_for(ports, up, SOON)
    }

    /// As [`Self::wait_links`], no longer than this.
    pub fn wait_links_for(
        &self,
        ports: &[&str],
        up: bool,
        limit: Duration,
    ) -> Result<(), LabError> {
        let state = if up { "up" } else { "down" };
        wait_until(&format!("{ports:?} to be {state}"), limit, || {
            let states = ports.iter().map(|port| self.is_up(port));
            let all = states.collect::<Result<Vec<_>, _>>()?;
            Ok(all.into_iter().all(|one| one == up).then_some(()))
        })
    }

    /// Packets with a fate: `dropped`, or given to the `kernel`.
    pub fn fate(&self, fate: &str) -> Result<u64, LabError> {
        let said = self.director.ask("drops")?;
        let all = said["drops"].as_array().into_iter().flatten();
        let of = all.filter(|one| one["fate"] == fate);
        Ok(of.filter_map(|one| one["packets"].as_u64()).sum())
    }

    /// Turns of the worker's loop.
    pub fn turns(&self) -> Result<u64, LabError> {
        Ok(self.director.ask("status")?["workers"][0]["turns"].as_u64().unwrap_or(0))
    }

    /// All that came to `front` left by `back` or was dropped, in the director's own counters.
    pub fn accounted(&self) -> Result<(), LabError> {
        let (came, left) = (self.count("front", "rx")?, self.count("back", "tx")?);
        let (dropped, kernel) = (self.fate("dropped")?, self.fate("kernel")?);
        expect(came == left + dropped && kernel == 0, || {
            format!("{came} came, {left} left, {dropped} were dropped, {kernel} not the service's")
        })
    }

    /// Open descriptors of the director, by what they are.
    pub fn descriptors(&self) -> Result<BTreeMap<String, usize>, LabError> {
        let folder = format!("/proc/{}/fd", self.director.pid());
        let all = std::fs::read_dir(&folder).map_err(LabError::file(folder.clone()))?;
        let mut kinds = BTreeMap::new();
        for entry in all.flatten() {
            // One that is closed meanwhile counts for nothing.
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let target = target.display().to_string();
            let kind = target.split_once(":[").filter(|(kind, _)| *kind != "anon_inode");
            let kind = kind.map_or(&*target, |(kind, _)| kind).to_owned();
            *kinds.entry(kind).or_default() += 1;
        }
        Ok(kinds)
    }

    /// Mappings of memory that a memif shares, of either end's making.
    pub fn mappings(&self) -> Result<usize, LabError> {
        let file = format!("/proc/{}/maps", self.director.pid());
        let text = std::fs::read_to_string(&file).map_err(LabError::file(file.clone()))?;
        let shared = |line: &&str| line.contains("/memfd:") && line.contains("memif");
        Ok(text.lines().filter(shared).count())
    }
}

/// Lets tshark look at translated datagrams that a peer received at `back`: each is whole, goes to
/// a real server from an address of the pool, and no two look the same. Returns how many there are.
pub fn judge_translated(ground: &Ground, file: &Path) -> Result<u64, LabError> {
    let mac = ground.space.mac("tback")?;
    let link = format!("eth.src == {mac} && eth.dst[0:5] == 02:00:00:00:01");
    let link = if ground.shape.ip { "eth" } else { &*link };
    let right = format!(
        "{link} && ip.src == 192.0.2.64/28 && \
         ip.dst >= 192.0.2.11 && ip.dst <= 192.0.2.13 && udp.dstport == {PORT} && ip.ttl == 63 && \
         udp.length == 26"
    );
    let (verdict, [all, right]) = judge_and(file, ["frame", &right])?;
    expect(verdict.bad == 0 && verdict.good_udp == all && right == all, || {
        format!("of {all} frames {right} have the right addresses: {verdict:?}")
    })?;
    let path = file.display().to_string();
    let script =
        "tshark -n -r \"$1\" -T fields -e ip.src -e udp.srcport -e ip.dst | sort -u | wc -l";
    let ran = ground.space.run("sh", &["-c", script, "sh", &path])?.ok()?;
    let different: u64 = ran.stdout.trim().parse().unwrap_or(0);
    expect(different == all, || format!("{different} of {all} flows differ"))?;
    Ok(all)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The worker's core.
fn core(lab: &Lab) -> usize {
    (2 * cores() - 1 - lab.seat() % cores()) % cores()
}

fn socket(lab: &Lab, shape: Shape, link: usize) -> String {
    let which = if shape.sockets { link } else { 0 };
    match shape.director {
        Role::Server => lab.dir().join(format!("memif{which}.sock")).display().to_string(),
        Role::Client => format!("@{}-{which}", lab.name()),
    }
}

fn config(lab: &Lab, shape: Shape) -> String {
    let socket_file = Director::socket_in(lab.dir());
    let state = socket_file.with_file_name("state");
    let role = if shape.director == Role::Server { "server" } else { "client" };
    let secret = if shape.secret {
        format!(",secret_file={}", lab.dir().join("secret").display())
    } else {
        String::new()
    };
    let mode = if shape.ip { ",mode=ip" } else { "" };
    let port = |(link, name): (usize, &str)| {
        let socket = socket(lab, shape, link);
        format!(
            "[[port]]\nname = \"{name}\"\ntwin = \"t{name}\"\n\
             device = \"memif:{socket},id={link},role={role}{mode}{secret}\"\n\n"
        )
    };
    let mut ports: String = ["front", "back"].into_iter().enumerate().map(port).collect();
    if shape.aside {
        ports += "[[port]]\nname = \"aside\"\ntwin = \"taside\"\ndevice = \"af_packet:aside\"\n\n";
    }
    let mut cores: Vec<usize> =
        (0..shape.workers.min(cores())).map(|worker| (core(lab) + worker) % cores()).collect();
    cores.sort_unstable();
    let service = Service::new("udp", "udp", VIP).set("port", PORT).set("pool", "lan");
    let reals = ["192.0.2.11", "192.0.2.12", "192.0.2.13"];
    let service = reals.into_iter().fold(service, |service, at| service.real(Real::at(at)));
    format!(
        "[director]\ncores = {cores:?}\nhuge_pages = \"off\"\ncontrol_socket = {socket_file:?}\n\
         state_dir = {state:?}\n\n[limits]\nsessions = 400000\n\n{ports}\
         [[pool]]\nname = \"lan\"\naddresses = [\"192.0.2.64/28\"]\n\n{service}"
    )
}
