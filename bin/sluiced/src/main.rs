//! The director's daemon: composes configuration, kernel mirror, ports and workers, and serves
//! the operator's socket.
//!
//! `--check` validates a configuration and goes no further: it needs no privilege, no DPDK and no
//! network.
#![forbid(unsafe_code)]

mod announce;
mod answers;
mod capture;
mod change;
mod counter_log;
mod crew;
mod daemon;
mod errors;
mod guard;
mod ha;
mod handover;
mod health;
mod ipvs;
mod kept;
mod lister;
mod log;
mod meter;
mod networks;
mod news;
mod next_hops;
mod notices;
mod own_ports;
mod pages;
mod path_mtus;
mod ports;
mod prober;
mod queues;
mod report;
mod rules;
mod signals;
mod spreading;
mod start;
mod steering;
mod sync;
mod tunnels;
mod wiring;

use clap::Parser;
use errors::Error;
use log::Log;
use sluice_config::{Config, ConfigErrors, Diagnostic, LogFormat};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing::error;

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
    /// How to log: `text` for people, `json` with OpenTelemetry's names [default: as configured].
    #[arg(long, value_name = "FORMAT", value_parser = log_format)]
    log_format: Option<LogFormat>,
}

fn log_format(text: &str) -> Result<LogFormat, &'static str> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("right would be text or json"),
    }
}

const AFTER_HELP: &str = "Signals:
  HUP   read the configuration again; a wrong one is refused and the running one stays
  USR2  start the program again, which may be a newer version, and hand over to the new process;
        if it does not come up, this one goes on
  TERM  stop, leaving no XDP program, TAP interface or socket behind

The operator's command is `sluice` (sluice status, services, sessions, ports, drops).";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (&arguments.check, &arguments.config) {
        (Some(file), _) => check(file),
        (None, Some(file)) => run(file, arguments.log_format),
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
    let (wrong, unseen): (Vec<_>, Vec<_>) =
        sluice_api::check_files(&loaded).into_iter().partition(Diagnostic::is_error);
    if !wrong.is_empty() {
        return Err(ConfigErrors::Invalid { diagnostics: wrong, more: 0 }.into());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let live = loaded.check_live().into_iter().chain(loaded.check_machine(cpus));
    for warning in loaded.warnings.iter().cloned().chain(live).chain(unseen) {
        eprintln!("{warning}");
    }
    let config = &loaded.config;
    wiring::compile(config, None, &sluice_director::plan::Retired::default())?;
    println!("{}: right ({})", file.display(), config.summary());
    Ok(())
}

fn run(file: &Path, log_format: Option<LogFormat>) -> Result<(), Error> {
    let channel = handover::channel()?;
    let is_upgrade = channel.is_some();
    let loaded = Config::load(file);
    let stand_in = loaded.as_ref().ok().filter(|_| channel.is_none());
    let stand_in =
        stand_in.and_then(|loaded| handover::find_stand_in(&loaded.config.director.control_socket));
    let channel = channel.or(stand_in);
    let outcome = loaded.map_err(Error::from).and_then(|loaded| {
        let log = Log::start(&loaded.config.director, log_format);
        let policy = loaded.config.director.huge_pages;
        let outcome = daemon::run(file, loaded, (log, log_format), channel.as_ref());
        // The channel of an upgrade would be lost; the running director goes on instead.
        outcome.inspect_err(|failure| {
            if !is_upgrade {
                pages::start_anew(failure, policy);
            }
        })
    });
    if let (Some(channel), Err(failure)) = (&channel, &outcome) {
        handover::tell_failure(channel, failure);
    }
    outcome
}
