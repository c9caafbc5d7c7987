//! Keeps the kernel from answering for the director while none runs.
//!
//! What is the director's reaches the kernel once its sockets and programs are gone, and the kernel
//! knows none of these connections: it resets them, towards clients and real servers. So a table of
//! nftables drops such packets on the director's interfaces, each network's on its own. It costs
//! nothing while a director runs: what it takes never comes there.
//!
//! The table must outlast a process that ends in any way, but not the director's removal. So its
//! interfaces are elements of a set with a time limit (`hold_s`), which the running director puts
//! in again and again; once that ends, the kernel gets the packets.
//!
//! `nft` is run by a thread of its own: with many services it takes its time.

use sluice_config::Config;
use sluice_director::spec::NetworkId;
use sluice_steer::{EndpointMatch, LocalMatch, Matches};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{debug, warn};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The longest time between two signs of life.
const LONGEST_BEAT: Duration = Duration::from_secs(10);

/// What keeps the kernel quiet.
pub struct Guard {
    rules: Sender<Vec<Part>>,
    thread: JoinHandle<()>,
}

/// What is to be dropped of a network's, and where.
pub struct Part {
    /// The network.
    pub network: NetworkId,
    /// What is the director's there.
    pub matches: Matches,
    /// Its interfaces.
    pub interfaces: BTreeSet<String>,
}

impl Part {
    /// A set's name in this network.
    fn name(&self, set: &str) -> String {
        match self.network {
            NetworkId::DEFAULT => set.to_owned(),
            NetworkId(number) => format!("{set}_{number}"),
        }
    }
}

impl Guard {
    /// Starts one, if the configuration has one.
    pub fn start(config: &Config) -> Option<Self> {
        let table = table_name(&config.director.state_dir);
        let hold = Duration::from_secs(config.director.hold_s.into());
        if hold.is_zero() {
            // What an earlier director has left ends by itself too.
            let _ = nft(&format!("delete table inet {table}\n"));
            return None;
        }
        let (rules, orders) = channel();
        let life = move || live(&table, hold, &orders);
        let thread = std::thread::Builder::new().name("guard".to_owned()).spawn(life);
        let thread = thread.inspect_err(|error| warn!(%error, "no guard")).ok()?;
        Some(Self { rules, thread })
    }

    /// From now on this is dropped.
    pub fn set(&self, parts: Vec<Part>) {
        // It has ended only if it could not go on, and has said so.
        let _ = self.rules.send(parts);
    }

    /// Gives the last sign of life, and waits until it is given.
    pub fn end(self) {
        drop(self.rules);
        // A panic has been told.
        let _ = self.thread.join();
    }
}

/// The life of the guard's thread.
fn live(table: &str, hold: Duration, orders: &Receiver<Vec<Part>>) {
    let beat = (hold / 4).min(LONGEST_BEAT);
    let mut rules: Option<Vec<Part>> = None;
    loop {
        let order = orders.recv_timeout(beat);
        let over = matches!(order, Err(RecvTimeoutError::Disconnected));
        let new = order.is_ok();
        if let Ok(order) = order {
            rules = Some(order);
        }
        let Some(parts) = &rules else {
            if over {
                return;
            }
            continue;
        };
        let beaten = !new && nft(&sign_of_life(table, parts)).is_ok();
        // New rules; or somebody has flushed the ruleset.
        if !beaten && let Err(error) = nft(&ruleset(table, hold, parts)) {
            warn!(%error, "the kernel may reset connections while no director runs");
            if error.kind() == io::ErrorKind::NotFound {
                return;
            }
        }
        if over {
            return;
        }
    }
}

/// Runs `nft` on a script, which takes effect as a whole or not at all.
fn nft(script: &str) -> io::Result<()> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "`nft` is not installed"),
        _ => error,
    })?;
    // If it ends early, its own words are the better ones.
    let sent = child.stdin.take().map(|mut input| input.write_all(script.as_bytes()));
    let ended = child.wait_with_output()?;
    if ended.status.success() {
        return sent.unwrap_or(Ok(()));
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    debug!(%said, "nft");
    Err(io::Error::other(format!("nft: {}", said.lines().next().unwrap_or_default())))
}

/// The table of the director with this `state_dir`.
fn table_name(state_dir: &Path) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let path: String = state_dir.to_string_lossy().chars().map(known).collect();
    format!("sluice_hold{path}")
}

fn sign_of_life(table: &str, parts: &[Part]) -> String {
    let mut script = String::new();
    for part in parts {
        let alive = part.name("alive");
        let _ = writeln!(script, "flush set inet {table} {alive}");
        if !part.interfaces.is_empty() {
            let names = part.interfaces.iter().map(|name| format!("\"{name}\""));
            let names = names.collect::<Vec<_>>().join(", ");
            let _ = writeln!(script, "add element inet {table} {alive} {{ {names} }}");
        }
    }
    script
}

/// Endpoints of packets, by address and protocol; 0 for every protocol.
#[derive(Default)]
struct Endpoints(BTreeMap<(IpAddr, u8), Vec<RangeInclusive<u16>>>);

impl Endpoints {
    fn add(&mut self, address: IpAddr, protocol: u8, ports: &RangeInclusive<u16>) {
        self.0.entry((address, protocol)).or_default().push(ports.clone());
    }

    fn of(matches: &[EndpointMatch]) -> Self {
        let mut all = Self::default();
        matches.iter().for_each(|it| all.add(it.address, it.protocol, &it.ports));
        all
    }

    fn add_locals(&mut self, locals: &[LocalMatch]) {
        for local in locals {
            [TCP, UDP].iter().for_each(|protocol| self.add(local.address, *protocol, &local.ports));
        }
    }

    /// Elements of a set of one family: whole addresses, or addresses with protocol and ports.
    /// Ranges that meet are one: nftables takes no two that overlap.
    fn elements(&self, six: bool, whole: bool) -> Vec<String> {
        let mut elements = Vec::new();
        for (&(address, protocol), ranges) in &self.0 {
            if address.is_ipv6() != six || (protocol == 0) != whole {
                continue;
            }
            if whole {
                elements.push(address.to_string());
                continue;
            }
            let mut ranges: Vec<_> = ranges.iter().map(|it| (*it.start(), *it.end())).collect();
            ranges.sort_unstable();
            let mut merged: Vec<(u16, u16)> = Vec::new();
            for (first, last) in ranges {
                match merged.last_mut() {
                    Some(before) if first <= before.1.saturating_add(1) => {
                        before.1 = before.1.max(last);
                    }
                    _ => merged.push((first, last)),
                }
            }
            let element = |(first, last)| format!("{address} . {protocol} . {first}-{last}");
            elements.extend(merged.into_iter().map(element));
        }
        elements
    }
}

/// The whole table, in place of what is there.
fn ruleset(table: &str, hold: Duration, parts: &[Part]) -> String {
    let seconds = hold.as_secs();
    let (mut sets, mut rules) = (String::new(), String::new());
    for part in parts {
        let alive = part.name("alive");
        let _ =
            writeln!(sets, "  set {alive} {{ type ifname; flags timeout; timeout {seconds}s; }}");
        add_part(&mut sets, &mut rules, part);
    }
    format!(
        "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{sets}  \
         chain prerouting {{\n    \
         type filter hook prerouting priority -310; policy accept;\n{rules}  }}\n}}\n{}",
        sign_of_life(table, parts)
    )
}

/// Adds the sets and rules of one network.
fn add_part(sets: &mut String, rules: &mut String, part: &Part) {
    let mut to = Endpoints::of(&part.matches.services);
    to.add_locals(&part.matches.locals);
    let from = Endpoints::of(&part.matches.reals);
    let alive = part.name("alive");
    // What real servers answer to the machine itself, as to its checks, is the kernel's.
    for (side, address, port, also, endpoints) in [
        ("to", "daddr", "dport", "", &to),
        ("from", "saddr", "sport", "fib daddr type != local ", &from),
    ] {
        for (six, ip) in [(false, "ip"), (true, "ip6")] {
            let kind = if six { "ipv6_addr" } else { "ipv4_addr" };
            for whole in [false, true] {
                let elements = endpoints.elements(six, whole);
                if elements.is_empty() {
                    continue;
                }
                let elements = elements.join(", ");
                let name =
                    part.name(&format!("{side}_{kind}{}", if whole { "_whole" } else { "" }));
                let (kind, key) = match whole {
                    true => (kind.to_owned(), format!("{ip} {address}")),
                    false => (
                        format!("{kind} . inet_proto . inet_service; flags interval"),
                        format!("{ip} {address} . meta l4proto . th {port}"),
                    ),
                };
                let _ =
                    writeln!(sets, "  set {name} {{ type {kind}; elements = {{ {elements} }} }}");
                let _ = writeln!(rules, "    iifname @{alive} {also}{key} @{name} counter drop");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches() -> Matches {
        let ip = |text: &str| text.parse().unwrap();
        let at = |protocol, address, ports| EndpointMatch { protocol, address: ip(address), ports };
        Matches {
            services: vec![
                at(TCP, "198.51.100.1", 80..=80),
                at(TCP, "198.51.100.1", 60..=90),
                at(TCP, "198.51.100.1", 91..=91),
                at(UDP, "2001:db8::1", 53..=53),
                at(0, "198.51.100.2", 0..=u16::MAX),
            ],
            locals: vec![LocalMatch {
                address: ip("192.0.2.10"),
                ports: 1024..=u16::MAX,
                echo: false,
            }],
            reals: vec![at(TCP, "192.0.2.11", 8080..=8080)],
            ..Matches::default()
        }
    }

    /// The default network, and one whose local address is the other's real server.
    fn parts() -> Vec<Part> {
        let interfaces = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let local = LocalMatch {
            address: "192.0.2.11".parse().unwrap(),
            ports: 1024..=u16::MAX,
            echo: false,
        };
        let (network, of_blue) = (NetworkId(1), Matches { locals: vec![local], ..matches() });
        vec![
            Part {
                network: NetworkId::DEFAULT,
                matches: matches(),
                interfaces: interfaces(&["eth0", "eth0.7"]),
            },
            Part { network, matches: of_blue, interfaces: interfaces(&["blue"]) },
        ]
    }

    #[test]
    fn the_table_drops_what_the_director_takes() {
        let table = table_name(Path::new("/var/lib/sluice"));
        let text = ruleset(&table, Duration::from_secs(60), &parts());
        for part in [
            "table inet sluice_hold_var_lib_sluice {",
            "timeout 60s",
            "198.51.100.1 . 6 . 60-91",
            "2001:db8::1 . 17 . 53-53",
            "192.0.2.10 . 17 . 1024-65535",
            "ip daddr @to_ipv4_addr_whole",
            "fib daddr type != local ip saddr . meta l4proto . th sport @from_ipv4_addr ",
            "alive { \"eth0\", \"eth0.7\" }",
            "alive_1 { \"blue\" }",
            "iifname @alive_1 ip daddr . meta l4proto . th dport @to_ipv4_addr_1 counter drop",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("1 . 6 . 80-80"), "overlapping ranges are one:\n{text}");
    }

    /// The table is nft's to judge, where it is installed; nothing is changed.
    #[test]
    fn nft_takes_the_table() {
        let text = ruleset("sluice_hold_test", Duration::from_secs(1), &parts());
        let mut command = Command::new("nft");
        command.args(["-c", "-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return };
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        // Without the right to ask the kernel it says only so.
        assert!(ended.status.success() || said.contains("not permitted"), "{said}\n{text}");
    }
}
