//! `sluice replay`: the director's own data path over capture files.
//!
//! No root, no DPDK, no clock but the captures' time stamps; the same input gives the same output
//! to the byte. The path is the one that the workers run, one worker of it; the configuration's
//! static routes and neighbours stand in for the kernel's. What the kernel would answer (ARP,
//! ping) is counted and not answered.

mod capture;
mod error;
mod frame;
mod network;
mod player;
mod report;
mod rules;

#[cfg(test)]
mod tests;

pub use capture::{Capture, Output, Record};
pub use error::ReplayError;
pub use frame::CaptureFrame;
pub use player::Player;
pub use report::{Balanced, PortReport, RealReport, Report, ServiceReport, SessionReport, Ways};
pub use rules::{RuleReport, RulesReport};

use rules::Classifier;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sluice_config::{Config, Diagnostic};
use sluice_director::fib::PortId;

/// `--in PORT=FILE`: what a port receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name of a port of the configuration.
    pub port: String,
    /// A pcap or pcapng file.
    pub file: PathBuf,
}

impl FromStr for Input {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<Self, ReplayError> {
        match text.split_once('=') {
            Some((port, file)) if !port.is_empty() && !file.is_empty() => {
                Ok(Self { port: port.to_owned(), file: file.into() })
            }
            _ => Err(ReplayError::BadInput(text.to_owned())),
        }
    }
}

/// What to replay.
#[derive(Clone, Debug)]
pub struct Job {
    /// The configuration file.
    pub config: PathBuf,
    /// Captures; several may be of one port.
    pub inputs: Vec<Input>,
    /// Folder for `PORT.pcap` of each port and `counters.json`; made when it is missing.
    pub out_dir: PathBuf,
    /// Frames of one turn at most, 1 to 64. Changes nothing but the speed.
    pub burst: usize,
    /// Whether to tell which steering rule takes each packet.
    pub rules: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What `counters.json` has.
    pub report: Report,
    /// Packets by steering rule, if that was asked for.
    pub rules: Option<RulesReport>,
    /// What is questionable about the configuration.
    pub warnings: Vec<Diagnostic>,
    /// Packets of which the captures hold only the beginning (snap length).
    pub cut: u64,
}

/// Plays captures through the director's data path, in the order of their time stamps; packets of
/// the same time in the order of the inputs.
///
/// # Errors
/// See [`ReplayError`]. Outputs may be written in part then.
pub fn run(job: &Job) -> Result<Summary, ReplayError> {
    let loaded = Config::load(&job.config)?;
    let config = loaded.config;
    let mut player = Player::new(&config, job.burst)?;
    let mut sources = Vec::new();
    for input in &job.inputs {
        sources.push((port_id(&config, &input.port)?, Capture::open(&input.file)?));
    }
    fs::create_dir_all(&job.out_dir).map_err(ReplayError::file(&job.out_dir))?;
    let mut outputs = Vec::new();
    for port in &config.ports {
        let path = job.out_dir.join(format!("{}.pcap", port.name));
        spare_inputs(job, &path, &port.name)?;
        outputs.push(Output::create(&path)?);
    }
    let mut send = |port: PortId, at, bytes: &[u8]| match outputs.get_mut(usize::from(port.0)) {
        Some(output) => output.write(at, bytes),
        None => Ok(()),
    };
    let mut classifier = job.rules.then(|| Classifier::new(player.plans()));
    let mut cut = 0;
    let mut merged = Merged::new(sources)?;
    while let Some((port, record)) = merged.next_record()? {
        cut += u64::from(record.cut);
        if let Some(classifier) = &mut classifier {
            classifier.note(player.network_of(port), port.0, &record.bytes);
        }
        player.receive(port, record.at, &record.bytes, &mut send)?;
    }
    let report = player.finish(&mut send)?;
    for output in outputs {
        output.finish()?;
    }
    write_counters(&job.out_dir.join("counters.json"), &report)?;
    let rules = classifier.map(|classifier| classifier.report(&config));
    Ok(Summary { report, rules, warnings: loaded.warnings, cut })
}

fn write_counters(path: &Path, report: &Report) -> Result<(), ReplayError> {
    let text = report.json().map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text)).map_err(ReplayError::file(path))
}

fn port_id(config: &Config, name: &str) -> Result<PortId, ReplayError> {
    config.port_id(name).map(PortId).ok_or_else(|| {
        let known: Vec<_> = config.ports.iter().map(|port| &*port.name).collect();
        ReplayError::UnknownPort { port: name.to_owned(), known: known.join(", ") }
    })
}

/// Refuses to write over an input.
fn spare_inputs(job: &Job, output: &Path, port: &str) -> Result<(), ReplayError> {
    let Ok(output) = output.canonicalize() else { return Ok(()) };
    let input = job.inputs.iter().find(|i| i.file.canonicalize().is_ok_and(|p| p == output));
    match input {
        Some(input) => {
            Err(ReplayError::WouldOverwrite { path: input.file.clone(), port: port.to_owned() })
        }
        None => Ok(()),
    }
}

/// Several captures as one, in the order of time. Each capture's own order is kept, even where its
/// time stamps go back.
struct Merged {
    sources: Vec<(PortId, Capture)>,
    next: Vec<Option<Record>>,
}

impl Merged {
    fn new(mut sources: Vec<(PortId, Capture)>) -> Result<Self, ReplayError> {
        let next = sources.iter_mut().map(|(_, source)| source.next_record());
        let next = next.collect::<Result<_, _>>()?;
        Ok(Self { sources, next })
    }

    fn next_record(&mut self) -> Result<Option<(PortId, Record)>, ReplayError> {
        let times = self.next.iter().enumerate();
        let first = times.filter_map(|(at, r)| Some((r.as_ref()?.at, at))).min();
        let Some((_, at)) = first else { return Ok(None) };
        let (port, source) = &mut self.sources[at];
        let record = std::mem::replace(&mut self.next[at], source.next_record()?);
        Ok(record.map(|record| (*port, record)))
    }
}
