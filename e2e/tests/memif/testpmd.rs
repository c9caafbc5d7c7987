//! `dpdk-testpmd` as the peer of both links: DPDK's own memif driver, in either role.
//!
//! Its ports are a capture (0), `front` (1) and `back` (2), and each one's frames leave by the
//! next: the capture's into `front`, those that the director sends by `back` into another capture.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use rustix::process::Signal;
use sluice_e2e::{LabError, Running, wait_until};

use super::ground::{Ground, Role, SECRET};
use crate::fixture::SOON;

/// The numbers of its ports at `front` and `back`.
pub const FRONT: u32 = 1;
pub const BACK: u32 = 2;

/// What it does.
#[derive(Debug, Clone, Copy)]
pub enum Game<'a> {
    /// Plays a capture once, and writes what comes by `back` into the lab's `came.pcap`.
    Once(&'a Path),
    /// Plays it for ever, and throws away what comes.
    Endless(&'a Path),
}

/// A running testpmd.
pub struct Testpmd {
    running: Running,
    input: ChildStdin,
}

impl Testpmd {
    /// Starts it, and waits until it takes commands.
    pub fn start(ground: &Ground, game: Game<'_>) -> Result<Self, LabError> {
        let pcap = match game {
            Game::Once(file) => {
                let to = came(ground);
                format!("net_pcap0,rx_pcap={},tx_pcap={}", file.display(), to.display())
            }
            // Without a file to write, it drops what it is to send.
            Game::Endless(file) => format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display()),
        };
        let core = ground.other_core();
        let mut words = vec!["-oL".to_owned(), "dpdk-testpmd".to_owned()];
        let name = ground.lab.name();
        words.extend(["--no-huge", "--no-shconf", "-m", "128", "--no-pci"].map(str::to_owned));
        words.extend(["--no-telemetry".to_owned(), format!("--file-prefix={name}")]);
        words.push(format!("--lcores=0@{core},1@{core}"));
        words.push(format!("--vdev={pcap}"));
        words.extend((0..2).map(|link| format!("--vdev={}", link_option(ground, link))));
        words.extend(
            ["--", "--interactive", "--disable-link-check", "--no-flush-rx"].map(str::to_owned),
        );
        words.extend(["--port-topology=chained", "--forward-mode=io"].map(str::to_owned));
        words.extend(["--mbuf-size=512", "--total-num-mbufs=16384"].map(str::to_owned));
        let mut command = ground.space.command("stdbuf");
        command.args(&words);
        let log = ground.lab.dir().join("testpmd.log");
        let (running, input) = Running::start_told("testpmd", &mut command, &log)?;
        let mut testpmd = Self { running, input };
        testpmd.running.wait_for_words("testpmd> ", SOON)?;
        Ok(testpmd)
    }

    /// Gives a command. One that has gone hears nothing, which is seen elsewhere.
    pub fn say(&mut self, command: &str) {
        let _ = writeln!(self.input, "{command}");
    }

    /// Offers what a full ring had no room for again, so that nothing is lost in here.
    pub fn lose_nothing(&mut self) {
        self.say("set fwd io retry");
        self.say("set burst tx delay 20 retry 100000");
    }

    /// What a port received and sent, as it counts itself.
    pub fn counters(&mut self, port: u32) -> Result<(u64, u64), LabError> {
        const LAST: &str = "Tx-pps:";
        let before = self.running.log().matches(LAST).count();
        self.say(&format!("show port stats {port}"));
        let log = wait_until("testpmd's counters", SOON, || {
            let log = self.running.log();
            Ok((log.matches(LAST).count() > before).then_some(log))
        })?;
        let title = format!("NIC statistics for port {port} ");
        let shown = log.rsplit_once(&*title).map_or("", |(_, shown)| shown);
        let number = |key: &str| {
            let rest = shown.split_once(key)?.1;
            rest.split_whitespace().next()?.parse().ok()
        };
        let counters = number("RX-packets:").zip(number("TX-packets:"));
        counters.ok_or(LabError::Unreadable { what: "testpmd's counters".to_owned(), text: log })
    }

    /// Has it connect both links again, which it does not by itself, until they are up: it asks
    /// once, and is not heard before the director listens. Its driver may have crashed when the
    /// director left under traffic (it forwards from memory that is unmapped meanwhile): then
    /// another one goes on.
    pub fn connect(&mut self, ground: &Ground, game: Game<'_>) -> Result<(), LabError> {
        wait_until("the links to be up again", SOON, || {
            if let Some(status) = self.running.ended()? {
                eprintln!("testpmd has ended: {status}");
                *self = Self::start(ground, game)?;
            }
            for command in ["stop", "port stop all", "port start all", "start"] {
                self.say(command);
            }
            match ground.wait_links_for(&["front", "back"], true, Duration::from_secs(3)) {
                Err(LabError::Late { .. }) => Ok(None),
                other => other.map(Some),
            }
        })
    }

    /// Tells it to end, and waits.
    pub fn quit(&mut self) -> Result<(), LabError> {
        self.say("quit");
        self.running.wait(SOON)?;
        Ok(())
    }

    /// Ends it without a word.
    pub fn kill(&mut self) -> Result<(), LabError> {
        self.running.kill().map(drop)
    }

    /// Stops it where it stands, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        self.running.signal(if frozen { Signal::STOP } else { Signal::CONT });
    }

    /// The last lines that it said.
    pub fn said(&self) -> String {
        self.running.log_tail(15)
    }
}

/// Where it writes what came by `back`.
pub fn came(ground: &Ground) -> PathBuf {
    ground.lab.dir().join("came.pcap")
}

fn link_option(ground: &Ground, link: usize) -> String {
    let socket = ground.socket(link);
    let (file, is_abstract) = match socket.strip_prefix('@') {
        Some(name) => (name, "yes"),
        None => (&*socket, "no"),
    };
    let role = if ground.shape.director == Role::Server { "client" } else { "server" };
    let secret = if ground.shape.secret { format!(",secret={SECRET}") } else { String::new() };
    format!(
        "net_memif{link},id={link},role={role},socket={file},socket-abstract={is_abstract},\
         rsize=11{secret}"
    )
}
