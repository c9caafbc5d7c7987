//! Completion by the shell: what there is on the command line comes from its definition, names of
//! services, networks, pools and real servers from the director that the line would ask.
//!
//! The shell's script calls this program with `COMPLETE` set. It must be quick and quiet: a
//! director that is not there, or slow, means no names, and never a message.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, builder::PossibleValue};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, CompletionCandidate};
use sluice_api::model::Services;
use sluice_api::{Client, DEFAULT_SOCKET};
use sluice_state::Kind;

use crate::cli::Cli;
use crate::show::{endpoint, real_port};

/// How long somebody who pressed a key waits for names.
const PATIENCE: Duration = Duration::from_millis(500);
/// The variable that the scripts set.
const VARIABLE: &str = "COMPLETE";

/// Answers a shell that asks, and ends the process then.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// The shells there are scripts for.
pub fn shells() -> PossibleValuesParser {
    PossibleValuesParser::new(Shells::builtins().names().map(PossibleValue::new))
}

/// Prints a shell's script.
///
/// # Errors
/// When it cannot be written.
pub fn script(shell: &str) -> Result<ExitCode, Box<dyn Error>> {
    let shells = Shells::builtins();
    let completer = shells.completer(shell).ok_or("no such shell")?;
    match completer.write_registration(VARIABLE, "sluice", "sluice", "sluice", &mut io::stdout()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Names of services.
pub fn services(typed: &OsStr) -> Vec<CompletionCandidate> {
    let known = client().services(&[]).unwrap_or_default();
    let named = known.services.iter().map(|service| {
        let at = endpoint(service.vip, &service.ports);
        (service.name.clone(), format!("{} {at}", service.protocol.name()))
    });
    candidates(typed, named)
}

/// Real servers: those of the services that the line names, or of all when it names none.
pub fn reals(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Services { services, .. } = client().services(&[]).unwrap_or_default();
    let line = line();
    let named = |name: &str| line.iter().any(|word| word == name);
    let any = services.iter().any(|service| named(&service.name));
    let wanted = services.iter().filter(|service| !any || named(&service.name));
    let reals = wanted.flat_map(|service| {
        let of = service.name.clone();
        service.reals.iter().map(move |real| match real.port {
            0 => (real.address.to_string(), of.clone()),
            port => (endpoint(real.address, real_port(port)), of.clone()),
        })
    });
    candidates(typed, reals)
}

/// Names of networks.
pub fn networks(typed: &OsStr) -> Vec<CompletionCandidate> {
    let known = client().networks().unwrap_or_default().networks;
    candidates(typed, known.into_iter().map(|network| (network.name, String::new())))
}

/// Names of pools.
pub fn pools(typed: &OsStr) -> Vec<CompletionCandidate> {
    configured(typed, |kind| kind == Kind::Pool)
}

/// Names of services and of pools, by which of the two the line is about.
pub fn objects(typed: &OsStr) -> Vec<CompletionCandidate> {
    match line().iter().any(|word| word == "pool") {
        true => pools(typed),
        false => configured(typed, |kind| kind == Kind::Service),
    }
}

fn configured(typed: &OsStr, wanted: impl Fn(Kind) -> bool) -> Vec<CompletionCandidate> {
    let objects = client().config().map(|view| view.objects).unwrap_or_default();
    let keys = objects.into_iter().map(|entry| entry.key).filter(|key| wanted(key.kind));
    candidates(typed, keys.map(|key| (key.name, String::new())))
}

fn candidates(
    typed: &OsStr,
    all: impl Iterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    all.filter(|(name, _)| name.starts_with(&*typed))
        .map(|(name, help)| {
            let help = (!help.is_empty()).then(|| help.into());
            CompletionCandidate::new(name).help(help)
        })
        .collect()
}

/// The words that have been typed: the script passes them behind `--`.
fn line() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// The director that the line would ask.
fn client() -> Client {
    let line = line();
    let by_option = line.iter().zip(line.iter().skip(1)).find(|(option, _)| *option == "--socket");
    let by_variable = || std::env::var_os("SLUICE_SOCKET");
    let path = by_option.map(|(_, path)| path.clone()).or_else(by_variable);
    Client::new(path.map_or(PathBuf::from(DEFAULT_SOCKET), PathBuf::from)).with_patience(PATIENCE)
}
