//! What single values cannot tell: whether they fit together.
//!
//! Each check reports at the path that an operator would change, names the other place involved
//! by its line, and goes on.

mod addresses;
mod announce;
mod api;
mod clients;
mod elephants;
mod health;
mod ipvs;
mod live;
mod networks;
mod ports;
mod prime;
mod reals;
mod replay;
mod rules;
mod services;
mod snat;
mod sync;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use warnings::warnings;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::suggest::did_you_mean;

/// How many of everything there may be.
pub(crate) struct Bounds {
    /// Workers: as many as a core mask has bits.
    pub workers: usize,
    /// Ports: as many as DPDK was built for.
    pub ports: usize,
    /// Isolated networks: as many as one byte tells apart from each other and the default one.
    pub networks: usize,
    /// Services: a session holds the index in 16 bits.
    pub services: usize,
    /// Local addresses of both families in all pools: a session holds the index in 16 bits.
    pub local_addresses: u128,
    /// Real servers in all services: a session holds the index in 24 bits.
    pub reals: usize,
}

/// The bounds that are in force.
pub(crate) const BOUNDS: Bounds = Bounds {
    workers: 64,
    ports: 32,
    networks: 255,
    services: 65_535,
    local_addresses: 65_535,
    reals: 1 << 24,
};

/// Reports everything that does not fit together.
pub(crate) fn errors(config: &Config, bounds: &Bounds, report: &mut Report) {
    check_workers(config, bounds, report);
    api::check(config, report);
    sync::check(config, report);
    let networks = networks::check(config, bounds, report);
    ports::check(config, bounds, report);
    announce::check(config, report);
    elephants::check(config, report);
    let local = addresses::check_pools(config, bounds, &networks, report);
    snat::check(config, report);
    services::check(config, bounds, (&networks, &local), report);
    health::check(config, report);
    ipvs::check(config, report);
    replay::check(config, report);
}

fn check_workers(config: &Config, bounds: &Bounds, report: &mut Report) {
    let path = Path::table(Place::Director, 0).key("cores");
    if let Some(cores) = &config.director.cores {
        if cores.is_empty() && !report.is_broken(path) {
            let hint = "name at least one core, or leave the key out for one worker";
            report.error(path, "the list is empty", hint);
        }
        if cores.len() > bounds.workers {
            let found = format!("{} cores are named", cores.len());
            report.error(path, found, format!("name at most {}", bounds.workers));
        }
        let sound = |index: &usize| !report.is_broken(path.item(*index));
        let sound: Vec<usize> = (0..cores.len()).filter(sound).collect();
        unique(
            sound.into_iter().map(|index| (cores[index], path.item(index))),
            report,
            |core, line| {
                let found = format!("core {core} has a worker already (line {line})");
                (found, "name each core once: a core runs one worker".to_owned())
            },
        );
    }
    let path = Path::table(Place::Limits, 0).key("sessions");
    check_sessions(config, config.limits.sessions, path, report);
}

/// Reports fewer sessions than there are workers.
fn check_sessions(config: &Config, sessions: u32, path: Path, report: &mut Report) {
    let workers = config.workers();
    if (sessions as usize) < workers {
        let found = format!("{sessions} sessions cannot be shared by {workers} workers");
        report.error(path, found, format!("use at least {workers}"));
    }
}

/// Reports each thing that is there a second time, where it is there again; `tell` makes message
/// and hint of the thing and the line of the first one.
fn unique<K: Hash + Eq>(
    things: impl IntoIterator<Item = (K, Path)>,
    report: &mut Report,
    tell: impl Fn(&K, usize) -> (String, String),
) {
    let mut first: HashMap<K, Path> = HashMap::new();
    for (thing, path) in things {
        match first.get(&thing) {
            Some(_) if report.is_full() => report.error(path, "", ""),
            Some(&earlier) => {
                let (message, hint) = tell(&thing, report.line(earlier));
                report.error(path, message, hint);
            }
            None => {
                first.insert(thing, path);
            }
        }
    }
}

/// Reports names that are used twice.
fn unique_names<'a>(kind: &str, names: impl Iterator<Item = (&'a str, Path)>, report: &mut Report) {
    let named = names.filter(|(name, _)| !name.is_empty());
    unique(named, report, |name, line| {
        let found = format!("another {kind} is called {name:?} already (line {line})");
        (found, format!("give each {kind} a name of its own"))
    });
}

/// The names of one kind of thing that a file defines. One that could not be read is there as
/// the empty name, and might have been any.
struct Names<'a> {
    kind: &'static str,
    ordered: Vec<&'a str>,
    known: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(kind: &'static str, names: impl Iterator<Item = &'a String>, report: &Report) -> Self {
        let ordered: Vec<&str> = names.map(String::as_str).collect();
        let mut known: HashSet<&str> = ordered.iter().copied().collect();
        if report.is_broken(Path::FILE.key(kind)) {
            known.insert("");
        }
        Self { kind, ordered, known }
    }

    /// Reports a name that nothing has.
    fn resolve(&self, name: &str, path: Path, report: &mut Report) {
        if self.known.contains(name) || self.known.contains("") || report.is_full() {
            return;
        }
        let kind = self.kind;
        let hint = if self.ordered.is_empty() {
            format!("define it in a [[{kind}]] section: there is none yet")
        } else {
            let shown = self.ordered[..self.ordered.len().min(20)].join(", ");
            let more = if self.ordered.len() > 20 { ", …" } else { "" };
            let near = did_you_mean(name, self.ordered.iter().copied());
            format!("the {kind}s defined are: {shown}{more}{near}")
        };
        let found = format!("no {kind} is called {}", crate::errors::quoted(name));
        report.error(path, found, hint);
    }
}
