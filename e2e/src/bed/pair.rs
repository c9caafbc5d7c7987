//! Two directors on one network, for what keepalived moves between them.
//!
//! ```text
//!  client            director a          director b          rs1 rs2
//!  192.0.2.48        192.0.2.1           192.0.2.2           192.0.2.11 .12
//!  2001:db8:2::48    2001:db8:2::1       2001:db8:2::2       2001:db8:2::11 ::12
//!     eth0              front               front             eth0
//!      └──────────────────┴──── lan (sw) ─────┴─────────────────┘
//! ```
//!
//! The directors have a wire between them too, `ha`, 203.0.113.1 and .2, for what they tell each
//! other.
//!
//! What moves: the virtual addresses 192.0.2.200 and 2001:db8:2::200, and the local ones,
//! 192.0.2.10 and 2001:db8:2::10. No director has them by itself: keepalived, from the file that
//! `sluice ha config keepalived` makes, gives them to one of them. Everybody is on the link, so
//! that the way there and the way back both follow the address by ARP and neighbour discovery.
//!
//! Each director has a lab of its own (directory, socket, log, state) beside that of the network.

use std::path::Path;
use std::time::Duration;

use super::dual::enable;
use super::{Bed, Driver};
use crate::director::Director;
use crate::entry::{Real, Service};
use crate::error::LabError;
use crate::family::{FAMILIES, Family};
use crate::lab::{End, Lab, Netns};
use crate::page;
use crate::process::{Running, wait_until};
use crate::web;

/// How many directors there are.
pub const DIRECTORS: usize = 2;
/// How many real servers there are.
pub const REALS: usize = 2;
/// Every director's interface.
pub const PORT: &str = "front";
/// The directors' roles, as `sluice ha config keepalived` has them.
pub const ROLES: [&str; DIRECTORS] = ["primary", "secondary"];

/// What the directors' ports are, and how many workers each director has.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How the port is driven.
    pub driver: Driver,
    /// Workers, and queues of the port.
    pub workers: u32,
    /// Whether both are active: the second VIPs are the secondary's, and each director has local
    /// addresses of its own.
    pub both_active: bool,
}

impl Default for Kind {
    fn default() -> Self {
        Self { driver: Driver::AfXdp, workers: 1, both_active: false }
    }
}

/// The network, and what runs in it.
#[derive(Debug)]
pub struct Pair {
    /// Programs of the client and the real servers; ended before the namespaces go.
    pub peers: Vec<Running>,
    /// The directors and their keepalived, primary first.
    pub nodes: Vec<Node>,
    /// The client's place.
    pub client: Netns,
    /// The real servers' places.
    pub reals: Vec<Netns>,
    /// The switch.
    pub lan: Netns,
    /// The lab of the network.
    pub lab: Lab,
}

/// A machine with a director and keepalived.
#[derive(Debug)]
pub struct Node {
    /// Its keepalived, if it runs.
    pub keepalived: Option<Running>,
    /// Its director, after the first start.
    pub director: Option<Director>,
    /// More of its configuration file, after all other sections.
    pub more: String,
    /// Its place.
    pub space: Netns,
    /// Its lab: configuration, logs, sockets, state.
    pub lab: Lab,
    /// What it was made with.
    pub kind: Kind,
    index: usize,
}

impl Pair {
    /// Makes the namespaces and wires, and starts the real servers' programs. No director runs.
    /// `more` goes to the end of each director's configuration file.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn new(prefix: &str, more: [&str; DIRECTORS]) -> Result<Self, LabError> {
        Self::of(Kind::default(), prefix, more)
    }

    /// The same with such ports and workers.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn of(kind: Kind, prefix: &str, more: [&str; DIRECTORS]) -> Result<Self, LabError> {
        let mut lab = Lab::new(prefix)?;
        let (client, lan) = (lab.space("client")?, lab.space("lan")?);
        let reals = ["rs1", "rs2"].map(|name| lab.space(name));
        let reals = reals.into_iter().collect::<Result<Vec<_>, _>>()?;
        lan.ip(&["link", "add", "sw", "type", "bridge", "stp_state", "0"])?;
        lan.ip(&["link", "set", "sw", "up"])?;
        let mut pair = Self { peers: Vec::new(), nodes: Vec::new(), client, reals, lan, lab };
        pair.plug_in(&pair.client, "eth0", 48, 1)?;
        for (index, real) in pair.reals.iter().enumerate() {
            pair.plug_in(real, "eth0", 11 + index, 1)?;
        }
        for (index, more) in more.into_iter().enumerate() {
            let mut lab = Lab::new(prefix)?;
            let space = lab.space(["a", "b"][index])?;
            pair.plug_in(&space, PORT, 1 + index, kind.workers)?;
            if kind.driver == Driver::AfPacket {
                // They are its twin's.
                space.ip(&["address", "flush", "dev", PORT])?;
            }
            let (keepalived, director) = (None, None);
            let more = more.to_owned();
            pair.nodes.push(Node { keepalived, director, more, space, lab, index, kind });
        }
        pair.link_nodes()?;
        for (index, real) in pair.reals.iter().enumerate() {
            pair.peers.push(web::start_nginx(real, index + 1)?);
            let name = format!("lines{}", index + 1);
            pair.peers.push(web::start_lines(real, &name, web::LINES_PORT)?);
        }
        Ok(pair)
    }

    /// As [`Self::new`] with such ports, then starts both directors and keepalived on both.
    ///
    /// # Errors
    /// When the machine refuses, or one of them does not come up.
    pub fn started(kind: Kind, prefix: &str, more: [&str; DIRECTORS]) -> Result<Self, LabError> {
        let mut pair = Self::of(kind, prefix, more)?;
        for node in &mut pair.nodes {
            node.start_director()?;
        }
        for node in &mut pair.nodes {
            node.start_keepalived(&[])?;
        }
        Ok(pair)
    }

    /// The virtual address.
    pub const fn vip(family: Family) -> &'static str {
        match family {
            Family::V4 => "192.0.2.200",
            Family::V6 => "2001:db8:2::200",
        }
    }

    /// That of the second services, which there are when both directors are active.
    pub const fn second_vip(family: Family) -> &'static str {
        match family {
            Family::V4 => "192.0.2.201",
            Family::V6 => "2001:db8:2::201",
        }
    }

    /// A director's local address when both are active; that of the first is [`Self::local`].
    pub fn local_of(family: Family, index: usize) -> String {
        Self::host(family, 10 * (1 + index))
    }

    /// The local address, from which real servers see clients come.
    pub fn local(family: Family) -> &'static str {
        match family {
            Family::V4 => "192.0.2.10",
            Family::V6 => "2001:db8:2::10",
        }
    }

    /// A director's address on the wire between the two, for session synchronisation.
    pub fn between(index: usize) -> String {
        format!("203.0.113.{}", 1 + index)
    }

    /// A host's own address: directors are 1 and 2, real servers 11 and 12, the client 48.
    pub fn host(family: Family, number: usize) -> String {
        match family {
            Family::V4 => format!("192.0.2.{number}"),
            Family::V6 => format!("2001:db8:2::{number}"),
        }
    }

    /// The web service's address.
    pub fn url(family: Family) -> String {
        match family {
            Family::V4 => format!("http://{}/", Self::vip(family)),
            Family::V6 => format!("http://[{}]/", Self::vip(family)),
        }
    }

    /// Takes a director's wire away, or lays it again: the machine is cut off, or comes back.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_wire(&self, index: usize, state: &str) -> Result<(), LabError> {
        let socket = format!("p{}", 1 + index);
        self.lan.ip(&["link", "set", "dev", &socket, state]).map(drop)
    }

    fn link_nodes(&self) -> Result<(), LabError> {
        let end = |index: usize| End { space: &self.nodes[index].space, device: "ha", mac: None };
        self.lab.veth(end(0), end(1), 1)?;
        for (index, node) in self.nodes.iter().enumerate() {
            enable(&node.space, &["ha"])?;
            node.space.address("ha", &format!("{}/24", Self::between(index)))?;
        }
        Ok(())
    }

    fn plug_in(
        &self,
        space: &Netns,
        device: &str,
        number: usize,
        queues: u32,
    ) -> Result<(), LabError> {
        let (mac, socket) = (format!("02:00:00:00:02:{number:02}"), format!("p{number}"));
        let one = End { space, device, mac: Some(&mac) };
        self.lab.veth(one, End { space: &self.lan, device: &socket, mac: None }, queues)?;
        self.lan.ip(&["link", "set", "dev", &socket, "master", "sw"])?;
        enable(space, &[device])?;
        space.address(device, &format!("{}/24", Self::host(Family::V4, number)))?;
        space.address(device, &format!("{}/64", Self::host(Family::V6, number)))
    }
}

impl Node {
    /// Starts the director, anew if there was one, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_director(&mut self) -> Result<(), LabError> {
        let mut director = Director::launch_in(&self.space, &self.text()?, &[])?;
        director.wait_ready()?;
        self.director = Some(director);
        if self.kind.driver == Driver::AfPacket {
            self.settle_twin()?;
        }
        Ok(())
    }

    /// The interface that has the addresses.
    pub fn device(&self) -> String {
        match self.kind.driver {
            Driver::AfXdp => PORT.to_owned(),
            Driver::AfPacket => Bed::twin_of(PORT),
        }
    }

    fn settle_twin(&self) -> Result<(), LabError> {
        let (twin, number) = (self.device(), 1 + self.index);
        wait_until("the twin", Duration::from_secs(10), || {
            Ok(self.space.has_device(&twin).then_some(()))
        })?;
        enable(&self.space, &[&twin])?;
        self.space.address(&twin, &format!("{}/24", Pair::host(Family::V4, number)))?;
        self.space.address(&twin, &format!("{}/64", Pair::host(Family::V6, number)))?;
        self.space.ip(&["link", "set", "dev", &twin, "up"]).map(drop)
    }

    /// Its director.
    ///
    /// # Errors
    /// When it was never started.
    pub fn director(&mut self) -> Result<&mut Director, LabError> {
        self.director.as_mut().ok_or_else(|| LabError::Wrong("no director was started".to_owned()))
    }

    /// Starts keepalived with the file that [`Self::keepalived_text`] gives.
    ///
    /// # Errors
    /// When the file cannot be made, or keepalived does not start or finds fault with it.
    pub fn start_keepalived(&mut self, options: &[&str]) -> Result<(), LabError> {
        let text = self.keepalived_text(options)?;
        self.start_keepalived_with(&text)
    }

    /// The file that `sluice ha config keepalived` makes for its role, with adverts every 100 ms
    /// and further options.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn keepalived_text(&mut self, options: &[&str]) -> Result<String, LabError> {
        let config = Director::config_in(self.lab.dir()).display().to_string();
        let device = self.device();
        let mut args = vec!["ha", "config", "keepalived", "--interface", &device];
        args.extend(["--role", ROLES[self.index], "--advert-ms", "100", "--config", &config]);
        if self.kind.both_active {
            args.push("--secondary-vip");
            args.extend(FAMILIES.map(Pair::second_vip));
        }
        args.extend(options);
        self.director()?.sluice(&args)
    }

    /// Starts keepalived with this file.
    ///
    /// # Errors
    /// When keepalived does not start or finds fault with the file.
    pub fn start_keepalived_with(&mut self, text: &str) -> Result<(), LabError> {
        let path = self.lab.dir().join("keepalived.conf");
        std::fs::write(&path, text).map_err(LabError::file("keepalived's configuration"))?;
        let file = path.display().to_string();
        let checked =
            self.space.run("keepalived", &["--config-test", "--use-file", &file])?.ok()?;
        // It ends with 0 also when it has ignored a line, and says so.
        let said = format!("{}{}", checked.stdout, checked.stderr);
        if !said.trim().is_empty() {
            return Err(LabError::Wrong(format!("keepalived on its configuration: {said}")));
        }
        let args = keepalived_options(&path);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.keepalived = Some(self.space.start("keepalived", "keepalived", &args)?);
        Ok(())
    }

    /// Kills keepalived's processes: it can tidy up nothing, and the addresses stay.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill_keepalived(&mut self) -> Result<(), LabError> {
        let Some(mut running) = self.keepalived.take() else { return Ok(()) };
        // Both at once: its child would otherwise find out, and tidy up. In a container nobody may
        // wait for the child, and the next keepalived would take it for one that runs.
        let file = self.lab.dir().join("keepalived-v.pid").display().to_string();
        let both = "kill -KILL \"$1\" $(cat \"$2\") && rm \"$2\"";
        let pid = running.pid().to_string();
        self.space.run("sh", &["-c", both, "sh", &pid, &file])?.ok()?;
        running.kill().map(drop)
    }

    /// SIGKILL for the director.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill_director(&mut self) -> Result<(), LabError> {
        self.director()?.kill().map(drop)
    }

    /// Whether its interface has this address.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn holds(&self, address: &str) -> Result<bool, LabError> {
        // A twin goes with its director.
        if !self.space.has_device(&self.device()) {
            return Ok(false);
        }
        let shown = self.space.ip(&["-o", "address", "show", "dev", &self.device()])?.stdout;
        Ok(shown.contains(&format!(" {address}/")))
    }

    /// Whether it has all addresses that move; `None` when it has some of them.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn holds_all(&self) -> Result<Option<bool>, LabError> {
        let mut all = Vec::new();
        for family in FAMILIES {
            all.extend([self.holds(Pair::vip(family))?, self.holds(Pair::local(family))?]);
        }
        Ok(all.iter().all(|it| *it == all[0]).then_some(all[0]))
    }

    /// Whether its keepalived has found its director ready since it started, and so has the
    /// priority that it keeps.
    pub fn is_found_ready(&self) -> bool {
        let log = std::fs::read_to_string(self.lab.dir().join("keepalived.log"));
        log.is_ok_and(|text| text.contains("VRRP_Script(sluice_ready) succeeded"))
    }

    /// What its director and its keepalived said last.
    pub fn said(&self) -> String {
        let director = self.director.as_ref().map(|it| it.said(15)).unwrap_or_default();
        let keepalived = std::fs::read_to_string(self.lab.dir().join("keepalived.log"));
        let lines: Vec<_> =
            keepalived.iter().flat_map(|text| text.lines().rev().take(25)).collect();
        let keepalived: Vec<_> = lines.into_iter().rev().collect();
        format!(
            "--- {}: director:\n{director}\n--- keepalived:\n{}\n",
            ROLES[self.index],
            keepalived.join("\n")
        )
    }

    /// The director's configuration.
    fn text(&self) -> Result<String, LabError> {
        let socket = Director::socket_in(self.lab.dir());
        let state = socket.with_file_name("state");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let first = self.lab.seat() % cores;
        let workers: Vec<_> =
            (0..self.kind.workers as usize).map(|worker| (first + worker) % cores).collect();
        let device = match self.kind.driver {
            Driver::AfXdp => format!("device = \"af_xdp:{PORT}\""),
            Driver::AfPacket => {
                format!("device = \"af_packet:{PORT}\"\ntwin = \"{}\"", self.device())
            }
        };
        let mut services = String::new();
        for family in FAMILIES {
            let all = [(Pair::vip(family), ""), (Pair::second_vip(family), "second")];
            for (vip, suffix) in &all[..1 + usize::from(self.kind.both_active)] {
                let all = [
                    ("web", "tcp", 80),
                    ("lines", "tcp", web::LINES_PORT),
                    ("dns", "udp", 53),
                    ("sip", "udp", 5060),
                ];
                for (what, protocol, port) in all {
                    let reals = (0..REALS).map(|it| Real::at(Pair::host(family, 11 + it)));
                    let name = format!("{what}{}{suffix}", family.bits());
                    let service = Service::new(&name, protocol, vip)
                        .set("port", port)
                        .set("mode", "fnat")
                        .set("pool", "lan")
                        .reals(reals);
                    services += &service.to_string();
                }
            }
        }
        let locals = |owner| FAMILIES.map(|family| Pair::local_of(family, owner));
        let pool = match self.kind.both_active {
            true => both_active_pool(&locals(self.index), &locals(1 - self.index))?,
            false => format!("[[pool]]\nname = \"lan\"\naddresses = {:?}\n", locals(0)),
        };
        Ok(format!(
            "[director]\ncores = {workers:?}\n\
             control_socket = {socket:?}\nstate_dir = {state:?}\n\n\
             [limits]\nsessions = 100000\n\n\
             [[port]]\nname = \"{PORT}\"\n{device}\n\n\
             {pool}\n{services}\n{}",
            self.more
        ))
    }
}

/// A director's pool as docs/high-availability.md has it, with its own addresses and the other's.
fn both_active_pool(own: &[String], other: &[String]) -> Result<String, LabError> {
    let block = page::block(page::HIGH_AVAILABILITY, "### Both active", "toml")?;
    let of_this =
        [("[\"192.0.2.10\"]", format!("{own:?}")), ("[\"192.0.2.20\"]", format!("{other:?}"))];
    page::replaced(&block, of_this)
}

/// Options that keep one keepalived out of another's way.
fn keepalived_options(file: &Path) -> Vec<String> {
    let beside = |name: &str| file.with_file_name(name).display().to_string();
    ["--dont-fork", "--log-console", "--log-detail", "--vrrp", "--use-file"]
        .map(str::to_owned)
        .into_iter()
        .chain([file.display().to_string()])
        .chain(["--pid".to_owned(), beside("keepalived.pid")])
        .chain(["--vrrp_pid".to_owned(), beside("keepalived-v.pid")])
        .collect()
}
