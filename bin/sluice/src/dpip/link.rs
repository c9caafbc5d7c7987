//! `dpip link`.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use sluice_api::Client;
use sluice_api::model::Worker;
use sluice_config::Mac;
use sluice_linux::survey::Survey;
use sluice_linux::{Commands, LinkFlag, ListedLink};

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::mac_text;
use super::words::{Line, Rest, either};
use crate::output::Output;
use crate::show::Shown;

/// Bits of a link's flags (`IFF_*`).
const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;
const IFF_PROMISC: u32 = 0x100;
const IFF_ALLMULTI: u32 = 0x200;

/// What a device counted, in the order in which it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; 8]);

const COUNT_NAMES: [&str; 8] =
    ["ipackets", "opackets", "ibytes", "obytes", "ierrors", "oerrors", "imissed", "rx_nombuf"];

pub fn run(mut line: Line, socket: &Path) -> Done {
    match line.command.as_str() {
        "show" | "list" | "" => show(&mut line, socket),
        "set" => set(&mut line.rest, socket),
        _ => Err(line.unknown_command("show or set")),
    }
}

fn set(rest: &mut Rest, socket: &Path) -> Done {
    let wanted = "set DEV up|down, or a word and a value; see -h";
    let (Some(device), Some(word)) = (rest.word(), rest.word()) else {
        return Err(Failure::parameter(wanted));
    };
    let devices = Devices::look(socket)?;
    // A port that is all the director's own is up as long as the director runs.
    let no_interface = devices.port(&device).is_some_and(|port| port.interface.is_none());
    if no_interface && (word == "up" || word == "link") {
        let up = word == "up" || either("link", &rest.value("link")?, "up", "down")?;
        return match up {
            true => Ok(Shown::new(String::new())),
            false => Err(Failure::unsupported(format!(
                "port {device} is the director's own: take it out of the configuration"
            ))),
        };
    }
    let ifindex = devices.link(&device)?.index;
    let mut commands = Commands::open()?;
    match word.as_str() {
        "up" => commands.set_up(ifindex, true)?,
        "down" => commands.set_up(ifindex, false)?,
        "link" => {
            let up = either("link", &rest.value("link")?, "up", "down")?;
            commands.set_up(ifindex, up)?;
        }
        "promisc" | "allmulticast" => {
            let on = either(&word, &rest.value(&word)?, "on", "off")?;
            let flag = match word.as_str() {
                "promisc" => LinkFlag::Promiscuous,
                _ => LinkFlag::AllMulticast,
            };
            commands.set_flag(ifindex, flag, on)?;
        }
        "addr" => {
            let mac: Mac = rest.read("addr", "a MAC address such as 02:00:…:01")?;
            commands.set_mac(ifindex, mac.bytes())?;
        }
        "mtu" => commands.set_mtu(ifindex, rest.read("mtu", "a number of bytes")?)?,
        other => return Err(other_word(other)),
    }
    rest.end()?;
    Ok(Shown::new(String::new()))
}

fn other_word(word: &str) -> Failure {
    let instead = match word {
        "forward2kni" => "use `sluice capture`; the kernel receives its own traffic anyway",
        "tc-ingress" | "tc-egress" => "`tc` shapes what the kernel sends and receives",
        "lldp" => "`lldpd` speaks LLDP on the port's interface",
        _ if word.starts_with("bond-") => "`ip link set … type bond …` sets up bonds",
        _ => return Failure::parameter(format!("link set has no word {word}; see -h")),
    };
    Failure::unsupported(format!("{word}: {instead}"))
}

fn show(line: &mut Line, socket: &Path) -> Done {
    let name = line.rest.word();
    line.rest.end()?;
    if let Some(cpu) = name.as_deref().and_then(|name| name.strip_prefix("cpu")) {
        return cores(cpu, line.statistics, socket);
    }
    let look = || text(&Devices::look(socket)?, name.as_deref(), line);
    let Some(seconds) = line.interval_s else { return look().map(Shown::new) };
    rates(line, seconds, name.as_deref(), socket)?;
    Ok(Shown::new(String::new()))
}

/// Shows rates again and again: each from two looks.
fn rates(line: &Line, seconds: u32, name: Option<&str>, socket: &Path) -> Result<(), Failure> {
    let mut before = counts(&Devices::look(socket)?, name)?;
    let mut left = line.count;
    while left != Some(0) {
        std::thread::sleep(Duration::from_secs(seconds.into()));
        let now = counts(&Devices::look(socket)?, name)?;
        let mut text = String::new();
        for (name, now) in &now {
            let old = before.iter().find(|(other, _)| other == name).map(|(_, it)| *it);
            let _ = writeln!(text, "{name}:");
            text.push_str(&rate_rows(old.unwrap_or_default(), *now, seconds));
        }
        before = now;
        if !Output::pass(&Shown::new(text))? {
            return Ok(());
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn chosen<'d>(
    devices: &'d Devices,
    name: Option<&str>,
) -> Result<Vec<(String, &'d ListedLink)>, Failure> {
    if let Some(name) = name {
        return Ok(vec![(name.to_owned(), devices.link(name)?)]);
    }
    let links = devices.links.iter().filter(|link| !devices.is_loopback(link.index));
    Ok(links.map(|link| (devices.name(link.index), link)).collect())
}

fn text(devices: &Devices, name: Option<&str>, line: &Line) -> Result<String, Failure> {
    let survey = Survey::at("/");
    let mut text = String::new();
    for (name, link) in chosen(devices, name)? {
        let port = devices.port(&name);
        let node = survey.node_of(&link.name).unwrap_or(0);
        let (rx, tx) = match port {
            Some(port) => (port.queues.into(), port.queues.into()),
            None => (link.rx_queues, link.tx_queues),
        };
        let _ = writeln!(
            text,
            "{}: {name}: socket {node} mtu {} rx-queue {rx} tx-queue {tx}",
            link.index, link.mtu
        );
        let up = link.flags & IFF_UP != 0 && link.flags & IFF_RUNNING != 0;
        let duplex = of_sys(&link.name, "duplex").filter(|duplex| duplex != "unknown");
        let _ = write!(
            text,
            "    {} {} Mbps {}-duplex fixed-nego ",
            if up { "UP" } else { "DOWN" },
            of_sys(&link.name, "speed").filter(|speed| speed != "-1").unwrap_or("0".to_owned()),
            duplex.as_deref().unwrap_or("full"),
        );
        let promiscuous = link.flags & IFF_PROMISC != 0 || link.promiscuity > 0;
        text.push_str(if promiscuous { "promisc " } else { "promisc-off " });
        text.push_str(if link.flags & IFF_ALLMULTI != 0 { "allmulticast \n" } else { "\n" });
        let mac = link.mac.map_or("none".to_owned(), |mac| mac_text(mac).to_uppercase());
        let _ = writeln!(text, "    addr {mac} ");
        if line.statistics {
            text.push_str(&rows(counted(devices, &name, link)));
        }
    }
    Ok(text)
}

fn counts(devices: &Devices, name: Option<&str>) -> Result<Vec<(String, Counts)>, Failure> {
    let all = chosen(devices, name)?;
    Ok(all.into_iter().map(|(name, link)| (name.clone(), counted(devices, &name, link))).collect())
}

/// What a device counted: a port's own counts, which have what the kernel does not see.
fn counted(devices: &Devices, name: &str, link: &ListedLink) -> Counts {
    if let Some(port) = devices.port(name) {
        let (rx, tx) = (&port.rx, &port.tx);
        return Counts([
            rx.packets, tx.packets, rx.bytes, tx.bytes, rx.errors, tx.errors, rx.missed, 0,
        ]);
    }
    let files = [
        "rx_packets",
        "tx_packets",
        "rx_bytes",
        "tx_bytes",
        "rx_errors",
        "tx_errors",
        "rx_missed_errors",
        "rx_nohandler",
    ];
    let count = |file: &str| of_sys(&link.name, &format!("statistics/{file}"));
    Counts(files.map(|file| count(file).and_then(|text| text.parse().ok()).unwrap_or(0)))
}

fn of_sys(interface: &str, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?;
    Some(text.trim().to_owned())
}

/// Counts as DPVS shows them: names above values, four in a row.
pub fn rows(counts: Counts) -> String {
    let mut text = String::new();
    for (names, values) in COUNT_NAMES.chunks(4).zip(counts.0.chunks(4)) {
        let names: String = names.iter().map(|name| format!("{name:<20}")).collect();
        let values: String = values.iter().map(|value| format!("{value:<20}")).collect();
        let _ = writeln!(text, "    {}\n    {}", names, values);
    }
    text
}

fn rate_rows(before: Counts, now: Counts, seconds: u32) -> String {
    let units = ["/pps", "/pps", "/Bps", "/Bps", "/pps", "/pps", "/pps", "/pps"];
    let names = COUNT_NAMES.iter().zip(units).map(|(name, unit)| format!("{name}{unit}"));
    let values = now.0.iter().zip(before.0);
    let values = values.map(|(now, before)| now.saturating_sub(before) / u64::from(seconds.max(1)));
    let (names, values): (Vec<_>, Vec<_>) = (names.collect(), values.collect());
    let mut text = String::new();
    for (names, values) in names.chunks(4).zip(values.chunks(4)) {
        let names: String = names.iter().map(|name| format!("{name:<16}")).collect();
        let values: String = values.iter().map(|value| format!("{value:<16}")).collect();
        let _ = writeln!(text, "    {names}\n    {values}");
    }
    text
}

fn cores(which: &str, statistics: bool, socket: &Path) -> Done {
    let which = match which {
        "" => None,
        number => Some(super::words::number("cpu", number, 0, 1023)?),
    };
    let status = Client::new(socket).status();
    let status = status.map_err(|error| Failure { text: "failed", detail: error.to_string() })?;
    Ok(Shown::new(core_rows(&status.workers, which, statistics)))
}

/// The workers, as DPVS shows its data plane.
pub fn core_rows(workers: &[Worker], which: Option<u32>, statistics: bool) -> String {
    let mut text = "<< Data Plane >>\n".to_owned();
    for worker in workers {
        if which.is_some_and(|which| which != u32::from(worker.core)) {
            continue;
        }
        let _ = writeln!(text, "{}: cpu{}: worker {}", worker.core, worker.core, worker.worker);
        if !statistics {
            continue;
        }
        let _ = writeln!(text, "    {:<20}{:<20}{:<20}", "lcore_loop", "pktburst", "zpktburst");
        let busy = worker.turns.saturating_sub(worker.empty_turns);
        let _ = writeln!(text, "    {:<20}{busy:<20}{:<20}", worker.turns, worker.empty_turns);
        let _ = writeln!(text, "    {:<20}{:<20}{:<20}", "ipackets", "sessions", "sleeps");
        let _ = writeln!(
            text,
            "    {:<20}{:<20}{:<20}",
            worker.packets, worker.sessions, worker.sleeps
        );
    }
    text
}
