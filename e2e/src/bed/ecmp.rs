//! Directors that are active at the same time behind a router, which spreads flows over them.
//!
//! ```text
//!  client               router (FRR)             director 1..N       rs1 rs2
//!  203.0.113.9 ───── c  203.0.113.1
//!                    d1 198.51.100.5/30 ─── front 198.51.100.6
//!                    d2 198.51.100.9/30 ─── front 198.51.100.10
//!                    lan 192.0.2.1 ──────────────────────────── 192.0.2.11 .12
//! ```
//!
//! Each director announces the virtual addresses 198.51.100.200 and 2001:db8::200, its own local
//! addresses (198.51.100.10N, 2001:db8::10N), and with two hops more those of the others, by BIRD
//! or FRR: the connected routes of the interfaces that `[announce]` makes. The router is FRR's bgpd
//! with BFD, and hashes addresses and ports (`fib_multipath_hash_policy = 1`).

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

mod speakers;

use super::dual::enable;
use crate::director::Director;
use crate::entry::{Real, Service};
use crate::error::LabError;
use crate::family::{FAMILIES, Family, endpoint};
use crate::lab::{End, Lab, Netns};
use crate::page;
use crate::process::Running;
use crate::web;
use speakers::{bird_text, frr_text, start_bird, start_frr};

/// How many real servers there are.
pub const REALS: usize = 2;
/// Every director's interface.
const PORT: &str = "front";
const ROUTER_AS: u32 = 65_000;
const SYNC_PORT: u16 = 8848;
/// The switch, and the directors' interfaces to it, for multicast.
const SYNC_LINK: &str = "sync";
const KEY: &str = "6f1f6c4e5b7a8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70";

/// The routing table with the resilient groups.
const GROUP_TABLE: &str = "100";

/// How the directors tell each other of their sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// They do not.
    Off,
    /// Each sends a copy to each, through the router.
    Routed,
    /// By multicast of this family, over a switch of their own.
    Group(Family),
}

/// The routing daemon of the directors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// BIRD 2.
    Bird,
    /// FRR: zebra, bgpd and bfdd.
    Frr,
}

/// The network, and what runs in it.
#[derive(Debug)]
pub struct Ecmp {
    /// Programs of the router, the client and the real servers; ended before the namespaces go.
    pub peers: Vec<Running>,
    /// The directors.
    pub nodes: Vec<Node>,
    /// The client's place.
    pub client: Netns,
    /// The real servers' places.
    pub reals: Vec<Netns>,
    /// The router's place.
    pub router: Netns,
    /// The lab of the network.
    pub lab: Lab,
}

/// A machine with a director and a routing daemon.
#[derive(Debug)]
pub struct Node {
    /// The routing daemon's processes.
    pub daemons: Vec<Running>,
    /// Its director, after the first start.
    pub director: Option<Director>,
    /// Its place.
    pub space: Netns,
    /// Its lab: configuration, logs, sockets, state.
    pub lab: Lab,
    text: String,
}

impl Ecmp {
    /// Makes the namespaces and wires, starts everything, and waits for nothing.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn start(
        prefix: &str,
        count: usize,
        speaker: Speaker,
        sync: Sync,
    ) -> Result<Self, LabError> {
        let mut lab = Lab::new(prefix)?;
        let (client, router) = (lab.space("client")?, lab.space("router")?);
        let reals = ["rs1", "rs2"].map(|name| lab.space(name));
        let reals = reals.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (peers, nodes) = (Vec::new(), Vec::new());
        let mut all = Self { peers, nodes, client, reals, router, lab };
        all.lay_wires()?;
        if matches!(sync, Sync::Group(_)) {
            all.router.ip(&["link", "add", SYNC_LINK, "type", "bridge", "stp_state", "0"])?;
            all.router.ip(&["link", "set", SYNC_LINK, "up"])?;
        }
        for index in 0..count {
            let node = all.add_node(prefix, index, count, sync)?;
            all.nodes.push(node);
        }
        all.start_router(count)?;
        for (index, real) in all.reals.iter().enumerate() {
            all.peers.push(web::start_nginx(real, index + 1)?);
            let name = format!("lines{}", index + 1);
            all.peers.push(web::start_lines(real, &name, web::LINES_PORT)?);
        }
        for (index, node) in all.nodes.iter_mut().enumerate() {
            node.start_director()?;
            node.start_speaker(speaker, index)?;
        }
        Ok(all)
    }

    /// The virtual address.
    pub fn vip(family: Family) -> &'static str {
        match family {
            Family::V4 => "198.51.100.200",
            Family::V6 => "2001:db8::200",
        }
    }

    /// A director's local address.
    pub fn local(family: Family, index: usize) -> String {
        match family {
            Family::V4 => format!("198.51.100.10{}", 1 + index),
            Family::V6 => format!("2001:db8::10{}", 1 + index),
        }
    }

    /// The next hops that the router has for an address, by the directors' numbers from 0.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn next_hops(&self, address: &str) -> Result<Vec<usize>, LabError> {
        let flag = Family::of(address).flag();
        let shown = self.router.ip(&[flag, "route", "show", address])?.stdout;
        let is_hop = |index: &usize| shown.contains(&format!(" dev d{} ", 1 + index));
        Ok((0..self.nodes.len()).filter(is_hop).collect())
    }

    /// Has the router send what comes from the client over resilient groups of next hops, one for
    /// each family, instead of the routes of BGP. Their members are these directors; buckets with
    /// traffic stay where they are as long as their member is there.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn use_resilient_groups(&self, members: &[usize]) -> Result<(), LabError> {
        let router = &self.router;
        for family in FAMILIES {
            let (flag, group) = (family.flag(), group_id(family));
            for index in 0..self.nodes.len() {
                let (id, [_, to]) = (member_id(family, index), Self::link(family, index));
                let device = format!("d{}", 1 + index);
                router.ip(&[flag, "nexthop", "add", "id", &id, "via", &to, "dev", &device])?;
            }
            self.set_members(family, members)?;
            let route = ["route", "add", Self::vip(family), "nhid", &group, "table", GROUP_TABLE];
            router.ip(&[&[flag][..], &route].concat())?;
            router.ip(&[flag, "rule", "add", "pref", "100", "iif", "c", "table", GROUP_TABLE])?;
        }
        Ok(())
    }

    /// Replaces the members of a resilient group.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_members(&self, family: Family, members: &[usize]) -> Result<(), LabError> {
        let ids: Vec<_> = members.iter().map(|index| member_id(family, *index)).collect();
        let (group, ids) = (group_id(family), ids.join("/"));
        let kind = ["type", "resilient", "buckets", "64", "idle_timer", "60"];
        let command = ["nexthop", "replace", "id", &group, "group", &ids];
        self.router.ip(&[&command[..], &kind].concat()).map(drop)
    }

    /// The ends of the wire between the router and a director.
    fn link(family: Family, index: usize) -> [String; 2] {
        match family {
            Family::V4 => [1, 2].map(|end| format!("198.51.100.{}", 4 * (1 + index) + end)),
            Family::V6 => [1, 2].map(|end| format!("2001:db8:1:{}::{end}", 1 + index)),
        }
    }

    fn lay_wires(&self) -> Result<(), LabError> {
        let router = &self.router;
        router.sysctls(
            &[
                "net.ipv4.ip_forward=1",
                "net.ipv4.conf.all.rp_filter=0",
                "net.ipv4.conf.default.rp_filter=0",
                "net.ipv4.fib_multipath_hash_policy=1",
                "net.ipv6.conf.all.disable_ipv6=0",
                "net.ipv6.conf.default.disable_ipv6=0",
                "net.ipv6.conf.all.forwarding=1",
                "net.ipv6.fib_multipath_hash_policy=1",
            ]
            .map(str::to_owned),
        )?;
        router.ip(&["link", "add", "lan", "type", "bridge", "stp_state", "0"])?;
        router.ip(&["link", "set", "lan", "up"])?;
        router.address("lan", "192.0.2.1/24")?;
        router.address("lan", "2001:db8:2::1/64")?;
        let mut hosts = vec![(&self.client, "c".to_owned(), 9)];
        hosts.extend(
            (1..).zip(&self.reals).map(|(number, real)| (real, format!("r{number}"), 10 + number)),
        );
        for (space, socket, number) in hosts {
            let one = End { space, device: "eth0", mac: None };
            self.lab.veth(one, End { space: router, device: &socket, mac: None }, 1)?;
            enable(space, &["eth0"])?;
            let (v4, v6) = if socket == "c" {
                router.address("c", "203.0.113.1/24")?;
                router.address("c", "2001:db8:9::1/64")?;
                ("203.0.113", "2001:db8:9")
            } else {
                router.ip(&["link", "set", "dev", &socket, "master", "lan"])?;
                ("192.0.2", "2001:db8:2")
            };
            space.address("eth0", &format!("{v4}.{number}/24"))?;
            space.address("eth0", &format!("{v6}::{number}/64"))?;
            space.route("default", &format!("{v4}.1"))?;
            space.route("default", &format!("{v6}::1"))?;
        }
        Ok(())
    }

    fn add_node(
        &self,
        prefix: &str,
        index: usize,
        count: usize,
        sync: Sync,
    ) -> Result<Node, LabError> {
        let mut lab = Lab::new(prefix)?;
        let space = lab.space(&format!("lb{}", 1 + index))?;
        let socket = format!("d{}", 1 + index);
        let one = End { space: &space, device: PORT, mac: None };
        self.lab.veth(one, End { space: &self.router, device: &socket, mac: None }, 1)?;
        enable(&space, &[PORT])?;
        for family in FAMILIES {
            let [router, own] = Self::link(family, index);
            let length = if family == Family::V4 { 30 } else { 64 };
            self.router.address(&socket, &format!("{router}/{length}"))?;
            space.address(PORT, &format!("{own}/{length}"))?;
            space.route("default", &router)?;
        }
        if let Sync::Group(family) = sync {
            let socket = format!("s{}", 1 + index);
            let one = End { space: &space, device: SYNC_LINK, mac: None };
            self.lab.veth(one, End { space: &self.router, device: &socket, mac: None }, 1)?;
            let length = if family == Family::V4 { 28 } else { 64 };
            enable(&space, &[SYNC_LINK])?;
            space.address(SYNC_LINK, &format!("{}/{length}", switched(family, index)))?;
            self.router.ip(&["link", "set", "dev", &socket, "master", SYNC_LINK])?;
        }
        let text = director_text(&lab, index, count, sync)?;
        Ok(Node { daemons: Vec::new(), director: None, space, lab, text })
    }

    fn start_router(&mut self, count: usize) -> Result<(), LabError> {
        let mut text = format!(
            "router bgp {ROUTER_AS}\n bgp router-id 203.0.113.1\n no bgp ebgp-requires-policy\n \
             bgp bestpath as-path multipath-relax\n timers bgp 1 3\n"
        );
        let mut families = [String::new(), String::new()];
        for index in 0..count {
            for family in FAMILIES {
                let [_, peer] = Self::link(family, index);
                // Writing to a string does not fail.
                let _ = write!(
                    text,
                    " neighbor {peer} remote-as external\n neighbor {peer} bfd profile lb\n \
                     neighbor {peer} timers connect 1\n neighbor {peer} advertisement-interval 0\n"
                );
                let six = usize::from(family == Family::V6);
                let _ = writeln!(families[six], "  neighbor {peer} activate");
            }
        }
        let [v4, v6] = families;
        let _ = write!(
            text,
            " no bgp default ipv4-unicast\n address-family ipv4 unicast\n{v4}  maximum-paths 64\n \
             exit-address-family\n address-family ipv6 unicast\n{v6}  maximum-paths 64\n \
             exit-address-family\n"
        );
        let started = start_frr(&self.router, "router", &text)?;
        self.peers.extend(started);
        Ok(())
    }
}

impl Node {
    /// Starts the director, anew if there was one, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_director(&mut self) -> Result<(), LabError> {
        let mut director = Director::launch_in(&self.space, &self.text, &[])?;
        director.wait_ready()?;
        self.director = Some(director);
        Ok(())
    }

    /// Its director.
    ///
    /// # Errors
    /// When it was never started.
    pub fn director(&mut self) -> Result<&mut Director, LabError> {
        self.director.as_mut().ok_or_else(|| LabError::Wrong("no director was started".to_owned()))
    }

    /// SIGKILL for the director, and no sessions that outlive it.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(&mut self) -> Result<(), LabError> {
        self.director()?.kill()?;
        let kept = Director::kept_in(self.lab.dir());
        std::fs::remove_dir_all(&kept).map_err(LabError::file("removing kept sessions"))
    }

    /// What its director and its routing daemon said last.
    pub fn said(&self) -> String {
        let director = self.director.as_ref().map(|it| it.said(15)).unwrap_or_default();
        let daemons: String = self.daemons.iter().map(|it| it.log_tail(10)).collect();
        format!("--- {}:\n{director}\n--- routing:\n{daemons}\n", self.space.name())
    }

    fn start_speaker(&mut self, speaker: Speaker, index: usize) -> Result<(), LabError> {
        self.daemons = match speaker {
            Speaker::Bird => vec![start_bird(&self.space, &bird_text(index)?)?],
            Speaker::Frr => start_frr(&self.space, "frr", &frr_text(index)?)?,
        };
        Ok(())
    }
}

/// Ids of next hops at the router.
fn member_id(family: Family, index: usize) -> String {
    format!("{}{}", family.bits(), 1 + index)
}

fn group_id(family: Family) -> String {
    format!("{}00", family.bits())
}

fn director_text(lab: &Lab, index: usize, count: usize, sync: Sync) -> Result<String, LabError> {
    let socket = Director::socket_in(lab.dir());
    let state = socket.with_file_name("state");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let services = FAMILIES.map(|family| {
        let host = |number: usize| match family {
            Family::V4 => format!("192.0.2.{number}"),
            Family::V6 => format!("2001:db8:2::{number}"),
        };
        [("web", 80), ("lines", web::LINES_PORT)]
            .map(|(what, port)| {
                Service::new(&format!("{what}{}", family.bits()), "tcp", Ecmp::vip(family))
                    .set("port", port)
                    .set("mode", "fnat")
                    .set("pool", "lan")
                    .set("scheduler", "mh")
                    .reals((0..REALS).map(|real| Real::at(host(11 + real))))
                    .to_string()
            })
            .concat()
    });
    let locals = |of: &dyn Fn(usize) -> bool| {
        let all = (0..count).filter(|it| of(*it));
        let all = all.flat_map(|it| FAMILIES.map(|family| Ecmp::local(family, it)));
        all.collect::<Vec<_>>()
    };
    let (own, peers) = (locals(&|it| it == index), locals(&|it| it != index));
    let (announce, told) = of_page(&own, &peers)?;
    let mut text = format!(
        "[director]\ncores = [{}]\ncontrol_socket = {socket:?}\nstate_dir = {state:?}\n\n\
         [limits]\nsessions = 100000\n\n\
         [[port]]\nname = \"{PORT}\"\ndevice = \"af_xdp:{PORT}\"\n\n{announce}\n{}\n",
        lab.seat() % cores,
        services.concat(),
    );
    if sync != Sync::Off {
        let key: PathBuf = lab.dir().join("sync.key");
        std::fs::write(&key, KEY).map_err(LabError::file("writing a key"))?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))
            .map_err(LabError::file("the mode of a key"))?;
        let address = |it| match sync {
            Sync::Group(family) => endpoint(&switched(family, it), SYNC_PORT),
            _ => endpoint(&Ecmp::link(Family::V4, it)[1], SYNC_PORT),
        };
        let peers: Vec<_> = (0..count).filter(|it| *it != index).map(address).collect();
        let of_this = [
            ("\"198.51.100.6:8848\"", format!("{:?}", address(index))),
            ("[\"198.51.100.10:8848\", \"198.51.100.14:8848\"]", format!("{peers:?}")),
            ("\"/etc/sluice/sync.key\"", format!("{key:?}")),
        ];
        text += &page::replaced(&told, of_this)?;
        if let Sync::Group(family) = sync {
            let group = if family == Family::V4 { "239.192.88.48" } else { "ff15::8848" };
            text += &format!("group = \"{}\"\n", endpoint(group, SYNC_PORT));
        }
    }
    Ok(text)
}

/// What docs/high-availability.md has of a director's file, with these addresses of its own and of
/// its peers: what is announced; and how sessions are told, with the page's addresses.
fn of_page(own: &[String], peers: &[String]) -> Result<(String, String), LabError> {
    let words = "## Several active directors behind a router";
    let block = page::block(page::HIGH_AVAILABILITY, words, "toml")?;
    let of_these = [
        ("addresses = [\"198.51.100.101\"]", format!("addresses = {own:?}")),
        ("[\"198.51.100.102\", \"198.51.100.103\"]", format!("{peers:?}")),
    ];
    let text = page::replaced(&block, of_these)?;
    let (announce, told) = text
        .split_once("[sync]")
        .ok_or_else(|| LabError::Wrong(format!("no `[sync]` in the page's\n{text}")))?;
    Ok((announce.to_owned(), format!("[sync]{told}")))
}

/// A director's address at the switch.
fn switched(family: Family, index: usize) -> String {
    match family {
        Family::V4 => format!("203.0.113.{}", 145 + index),
        Family::V6 => format!("2001:db8:7::{}", 1 + index),
    }
}
