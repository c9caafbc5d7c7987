//! The director's daemon: composes configuration, kernel mirror, ports and workers, and serves
//! the operator's socket.
//!
//! `--check` validates a configuration and goes no further: it needs no privilege, no DPDK and no
//! network.
#![forbid(unsafe_code)]

mod change;
mod crew;
mod daemon;
mod errors;
mod health;
mod lister;
mod news;
mod next_hops;
mod ports;
mod queues;
mod report;
mod steering;
mod watch;
mod wiring;

use clap::Parser;
use errors::Error;
use sluice_config::{Config, LogLevel};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing::error;
use tracing_subscriber::filter::LevelFilter;

/// Sluice, a layer-4 load balancer: the director's daemon.
#[derive(Parser)]
#[command(name = "sluiced", version, about, after_help = AFTER_HELP)]
#[command(group(clap::ArgGroup::new("mode").required(true).args(["config", "check"])))]
struct Arguments {
    /// Run with this configuration, in the foreground (systemd: Type=notify).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this configuration and exit: 0 when it is right, 1 when it is not.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

const AFTER_HELP: &str = "Signals:
  HUP   read the configuration again; a wrong one is refused and the running one stays
  TERM  stop, leaving no XDP program, TAP interface or socket behind

The operator's command is `sluice` (sluice status, services, sessions, ports, drops).";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (&arguments.check, &arguments.config) {
        (Some(file), _) => check(file),
        (None, Some(file)) => run(file),
        (None, None) => Ok(()),
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    match failure {
        Error::Config(errors) => eprintln!("{errors}"),
        failure if arguments.check.is_some() => eprintln!("sluiced: {failure}"),
        failure => error!("cannot go on: {failure}"),
    }
    ExitCode::FAILURE
}

fn check(file: &Path) -> Result<(), Error> {
    let loaded = Config::load(file)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let live = loaded.check_live().into_iter().chain(loaded.check_machine(cpus));
    for warning in loaded.warnings.iter().cloned().chain(live) {
        eprintln!("{warning}");
    }
    let config = &loaded.config;
    wiring::compile(config, None, &sluice_director::plan::Retired::default())?;
    println!("{}: right ({})", file.display(), config.summary());
    Ok(())
}

fn run(file: &Path) -> Result<(), Error> {
    let loaded = Config::load(file)?;
    let level = start_log(loaded.config.director.log_level);
    daemon::run(file, loaded, level)
}

/// Changes the level of the log while the daemon runs.
pub(crate) type SetLevel = Box<dyn Fn(LogLevel)>;

/// Logs to standard error, with time stamps unless the journal adds its own.
fn start_log(level: LogLevel) -> SetLevel {
    use tracing_subscriber::prelude::*;
    let (filter, handle) = tracing_subscriber::reload::Layer::new(level_filter(level));
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let registry = tracing_subscriber::registry().with(filter);
    if journal {
        registry.with(layer.without_time()).init();
    } else {
        registry.with(layer).init();
    }
    Box::new(move |level| {
        // Fails only when the subscriber is gone, with the process.
        let _ = handle.modify(|filter| *filter = level_filter(level));
    })
}

const fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
