//! The race's outcome as a table and as JSON: of each figure the median of the rounds, the least
//! and the most, and its ratio to the direct way in the same round.

use std::fmt::Write;
use std::process::Command;

use serde_json::{Value, json};

use super::{CALM, CONNECTIONS, Contender, Figures, Lane, Options};
use crate::load::median;
use crate::process;

/// How to read a figure from a turn.
type Reader = fn(&Figures) -> f64;

/// What the figures are called.
const COLUMNS: [(&str, Reader); 6] = [
    ("requests_per_s", |turn| turn.requests_per_s),
    ("connections_per_s", |turn| turn.connections_per_s),
    ("p50_us", |turn| turn.p50_us),
    ("p99_us", |turn| turn.p99_us),
    ("throughput_bits_per_s", |turn| turn.bits_per_s),
    ("retransmits", |turn| turn.retransmits as f64),
];

/// Where and with what it was measured.
#[derive(Debug, Clone)]
pub struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    load_average: String,
    commit: Option<String>,
    versions: Vec<String>,
}

impl Machine {
    /// Looks around; before the race, so that the load average is that of others.
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let git = |args: &[&str]| said(Command::new("git").args(args));
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        let mark = if changed.is_none() { "" } else { " with changes" };
        let commit = git(&["rev-parse", "--short=12", "HEAD"]);
        let asked = [("haproxy", "-v"), ("nginx", "-v"), ("nft", "--version"), ("wrk", "-v")];
        let version = |(program, flag): (&str, &str)| said(Command::new(program).arg(flag));
        Self {
            cpu: model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            commit: commit.map(|commit| commit + mark),
            versions: asked.into_iter().filter_map(version).collect(),
        }
    }
}

/// The first line that a command says, whichever way it says it.
fn said(command: &mut Command) -> Option<String> {
    let ran = process::run(command).ok()?;
    let line = ran.stdout.lines().chain(ran.stderr.lines()).next()?;
    Some(line.trim().to_owned())
}

/// Median, least and most.
fn spread(figures: &[f64]) -> [f64; 3] {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    [median(figures), least, most]
}

/// A figure of all turns of a lane.
fn figures(lane: &Lane, of: Reader) -> Vec<f64> {
    lane.turns.iter().map(of).collect()
}

/// The median of a figure's ratios to the direct way, round by round; `None` without a direct way.
fn ratio(lanes: &[Lane], lane: &Lane, of: Reader) -> Option<f64> {
    let direct = lanes.iter().find(|lane| lane.contender == Contender::Direct)?;
    let pairs = lane.turns.iter().zip(&direct.turns);
    let ratios: Vec<f64> =
        pairs.filter(|(_, base)| of(base) > 0.0).map(|(own, base)| of(own) / of(base)).collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// The share of a processor that a contender took while it carried the stream.
fn share(lane: &Lane) -> Option<f64> {
    let all: Vec<f64> = lane.turns.iter().filter_map(|turn| turn.share).collect();
    (!all.is_empty()).then(|| median(&all))
}

/// All of it as JSON.
pub fn json(machine: &Machine, options: &Options, lanes: &[Lane]) -> Value {
    let one = |lane: &Lane| {
        let mut out = json!({ "contender": lane.contender.name() });
        for (name, of) in COLUMNS {
            let all = figures(lane, of);
            let [median, min, max] = spread(&all);
            out[name] = json!({ "median": median, "min": min, "max": max, "rounds": all,
                                "to_direct": ratio(lanes, lane, of) });
        }
        out["stream_processor_share"] = share(lane).into();
        out
    };
    json!({
        "machine": { "cpu": machine.cpu, "cpus": machine.cpus, "kernel": machine.kernel,
                     "load_average_before": machine.load_average.parse::<f64>().ok() },
        "commit": machine.commit,
        "versions": machine.versions,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "mtu": options.mtu.unwrap_or(1500),
        "gro": options.gro,
        "offloads": options.offloads,
        "rps": options.rps,
        "apart": options.apart,
        "connections": CONNECTIONS,
        "latency_connections": CALM,
        "verified": "every turn",
        "contenders": lanes.iter().map(one).collect::<Vec<_>>(),
    })
}

/// All of it for people.
pub fn table(machine: &Machine, options: &Options, lanes: &[Lane]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_table(&mut out, machine, options, lanes);
    out
}

fn write_table(
    out: &mut String,
    machine: &Machine,
    options: &Options,
    lanes: &[Lane],
) -> std::fmt::Result {
    let Machine { cpu, cpus, kernel, load_average, commit, versions } = machine;
    writeln!(out, "{cpu}, {cpus} cores, kernel {kernel}, load average before {load_average}")?;
    writeln!(out, "commit {}; {}", commit.as_deref().unwrap_or("unknown"), versions.join("; "))?;
    let Options { rounds, seconds, mtu, gro, offloads, rps, apart, .. } = options;
    let (mtu, on) = (mtu.unwrap_or(1500), |set| if set { "on" } else { "off" });
    let wires =
        format!("MTU {mtu}, GRO {}, offloads {}, RPS {}", on(*gro), on(*offloads), on(*rps));
    writeln!(out, "{rounds} rounds, {seconds} s each load, {wires}")?;
    if *apart {
        writeln!(out, "the contender has a processor of its own")?;
    }
    writeln!(out, "median (least-most of the rounds), and the median ratio to direct")?;
    let titles = [
        format!("requests/s, {CONNECTIONS} kept"),
        "new connections/s".to_owned(),
        format!("p50 us, {CALM} conns"),
        format!("p99 us, {CALM} conns"),
        "TCP Mbit/s".to_owned(),
    ];
    write!(out, "\n{:<14}", "")?;
    titles.iter().try_for_each(|title| write!(out, "{title:>29}"))?;
    writeln!(out, "{:>8}{:>7}", "resent", "share")?;
    for lane in lanes {
        write!(out, "{:<14}", lane.contender.name())?;
        for (name, of) in &COLUMNS[..titles.len()] {
            let unit = if name.ends_with("bits_per_s") { 1e6 } else { 1.0 };
            let [middle, least, most] = spread(&figures(lane, *of)).map(|one| one / unit);
            let share = ratio(lanes, lane, *of).map_or(String::new(), |one| format!("{one:>5.2}x"));
            write!(out, "{:>29}", format!("{middle:.0} ({least:.0}-{most:.0}) {share}"))?;
        }
        let share = share(lane).map_or("-".to_owned(), |share| format!("{share:.2}"));
        let resent = median(&figures(lane, |turn| turn.retransmits as f64));
        writeln!(out, "{resent:>8.0}{share:>7}")?;
    }
    Ok(())
}
