//! `sluice`: the operator's command. It asks the director over its control socket and prints the
//! answers, and it replays captures without a director.
//!
//! Exit codes: 0 when it worked, 1 when it did not, 2 when the command line is wrong (`doctor` has
//! its own). A reader that closes the pipe early (`sluice sessions | head`) is no error.
#![forbid(unsafe_code)]

mod advice;
mod capacity;
mod cli;
mod complete;
mod desired;
mod doctor;
mod dpip;
mod elephants;
mod events;
mod failure;
mod ha;
mod import;
mod ipvsadm;
mod kill;
mod look;
mod man;
mod output;
mod run;
mod show;
mod token;
mod top;
mod watch;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{CommandFactory, FromArgMatches};
use sluice::replay;
use sluice_api::{ApiError, Client, DEFAULT_SOCKET, Remote, Resource};
use sluice_director::path::BURST;
use sluice_ipvs::call::Caller;

use advice::Reached;
use cli::{Asking, Cli, Command, Reach, Replay};
use output::Output;
use show::Shown;

/// The director's configuration file where no other is named.
pub(crate) const USUAL_FILE: &str = "/etc/sluice/sluice.toml";

fn main() -> ExitCode {
    // Ends the process when it is a shell that asks how a line may go on.
    complete::answer();
    let mut words = std::env::args_os();
    let program = words.next();
    let mut arguments: Vec<String> = words.map(|it| it.to_string_lossy().into_owned()).collect();
    if dpip::is_named(program.as_deref()) {
        let socket = std::env::var_os("SLUICE_SOCKET").map(PathBuf::from);
        return dpip::run(&arguments, &socket.unwrap_or_else(|| DEFAULT_SOCKET.into()));
    }
    if let Some(named) = ipvsadm::Named::by(program.as_deref()) {
        let name = program.unwrap_or_default().to_string_lossy().into_owned();
        return ipvsadm::run(named, &name, &arguments, Caller::from_environment());
    }
    // As raw as under its own name: clap would take `--color` and the like out of it.
    if arguments.first().is_some_and(|first| first == "ipvsadm") {
        let name = format!("sluice {}", arguments.remove(0));
        let named = ipvsadm::Named::Itself;
        return ipvsadm::run(named, &name, &arguments, Caller::from_environment());
    }
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let json = failure::wants_json(&matches);
        Cli::from_arg_matches(&matches).map(|cli| (cli, json))
    });
    let (cli, json) = match parsed {
        Ok(parsed) => parsed,
        Err(wrong) => failure::wrong_line(&wrong, &arguments),
    };
    cli.color.choose();
    match cli.watch {
        Some(seconds) => watch::again_and_again(cli, seconds, json),
        None => failure::told(run(cli), json),
    }
}

/// Where the director's socket is unless a subcommand's own option says so; or how to reach it
/// over the network.
pub(crate) struct Socket {
    path: PathBuf,
    remote: Option<Remote>,
    /// How an advised command names the one over the network.
    remote_reached: Reached,
}

impl Socket {
    fn of(reach: Reach) -> Result<Self, Box<dyn Error>> {
        let Reach { socket, url, token_file, ca } = reach;
        let mut remote_reached = Reached::default();
        let remote = match (url, token_file) {
            (None, _) => None,
            (Some(url), Some(file)) => {
                remote_reached = Reached::by_url(&url, &file, ca.as_deref());
                Some(Remote::new(&url, &file, ca.as_deref())?)
            }
            (Some(url), None) => {
                let advice = "name a file with it by --token-file or SLUICE_TOKEN_FILE";
                return Err(format!("{url}: this takes a token; {advice}").into());
            }
        };
        Ok(Self { path: socket, remote, remote_reached })
    }

    fn client(&self, asking: &Asking) -> Client {
        self.client_at(asking.socket.as_deref())
    }

    /// A client for another socket, if one is named.
    fn client_at(&self, other: Option<&Path>) -> Client {
        match (other, &self.remote) {
            (None, Some(remote)) => Client::remote(remote.clone()),
            (named, _) => Client::new(named.unwrap_or(&self.path)),
        }
    }

    /// How commands that are advised reach the director that [`Self::client_at`] asks.
    pub(crate) fn reached(&self, other: Option<&Path>) -> Reached {
        match (other, &self.remote) {
            (None, Some(_)) => self.remote_reached.clone(),
            (named, _) => Reached::by_socket(named.unwrap_or(&self.path)),
        }
    }

    /// Whether the director is on another machine.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Its path unless `nearer` is one.
    pub(crate) fn path<'s>(&'s self, nearer: Option<&'s PathBuf>) -> &'s PathBuf {
        nearer.unwrap_or(&self.path)
    }
}

pub(crate) fn run(cli: Cli) -> Result<ExitCode, Box<dyn Error>> {
    let Cli { reach, command, .. } = cli;
    match command {
        Command::Replay(asked) => play(asked).map(|()| ExitCode::SUCCESS),
        Command::Token(command) => token::run(&command),
        Command::Capacity(asked) => capacity::run(&asked),
        Command::Completions { shell } => complete::script(&shell),
        Command::Man { dir } => man::write(&dir),
        Command::Import(command) => import::run(command),
        Command::Dpip { arguments } => Ok(dpip::run(&arguments, &reach.socket)),
        Command::Ipvsadm { arguments } => with_ipvsadm(&arguments, &Socket::of(reach)?),
        command => with_director(command, &Socket::of(reach)?),
    }
}

/// `ipvsadm` with options of this command before it.
fn with_ipvsadm(arguments: &[String], socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    if socket.is_remote() {
        return Err("`ipvsadm` asks the director of this machine: leave --url out".into());
    }
    let caller = Caller::new(socket.path(None));
    Ok(ipvsadm::run(ipvsadm::Named::Itself, "sluice ipvsadm", arguments, caller))
}

/// The commands that a director answers.
fn with_director(command: Command, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Sessions { kill: Some(doing), .. } => kill::run(doing, socket),
        Command::Ha { doing: Some(doing), .. } => ha::run(&doing, socket),
        Command::Elephants { doing: Some(doing), .. } => elephants::run(doing, socket),
        Command::Events(command) => events::run(&command, socket),
        Command::Config(command) => desired::config(command, socket),
        Command::Service(command) => desired::service(command, socket),
        Command::Real(command) => desired::real(command, socket),
        Command::Pool(command) => desired::pool(command, socket),
        Command::Trace(asked) => look::trace(asked, socket),
        Command::Capture(asked) => look::capture(asked, socket),
        Command::Top(asked) => top::run(&asked, socket),
        Command::Doctor(asked) => doctor::run(&asked, socket),
        Command::RunIpvsadm(asked) => run::become_program("ipvsadm", &asked, socket),
        Command::RunKeepalived(asked) => run::become_program("keepalived", &asked, socket),
        command => {
            Output::write(&shown(command, socket)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Ports, or what is taken from each.
fn ports(client: &Client, asking: &Asking, rules: bool) -> Result<Shown, Box<dyn Error>> {
    if rules {
        return answer(client, asking, &Resource::PortsRules, |client| {
            Ok(show::ports_rules(&client.ports_rules()?, Output::width()))
        });
    }
    answer(client, asking, &Resource::Ports, |client| Ok(show::ports(&client.ports()?)))
}

/// What a command shows that asks once.
fn shown(command: Command, socket: &Socket) -> Result<Shown, Box<dyn Error>> {
    let client = |asking: &Asking| socket.client(asking);
    match command {
        Command::Status(asking) => answer(&client(&asking), &asking, &Resource::Status, |client| {
            let reached = socket.reached(asking.socket.as_deref());
            Ok(show::status(&client.status()?, now_unix_s(), &reached))
        }),
        Command::Services { asking, names, network } => {
            let resource = Resource::Services { names: names.clone(), network: network.clone() };
            answer(&client(&asking), &asking, &resource, |client| {
                let services = match &network {
                    Some(network) => client.services_in(network, &names)?,
                    None => client.services(&names)?,
                };
                Ok(show::services(&services, Output::width()))
            })
        }
        Command::Sessions { kill: _, asking, filter, page } => {
            let query = page.of(filter.query());
            let resource = Resource::Sessions(query.clone());
            answer(&client(&asking), &asking, &resource, |client| {
                Ok(show::sessions(&client.sessions(&query)?, &query, Output::width()))
            })
        }
        Command::Ports { asking, rules } => ports(&client(&asking), &asking, rules),
        Command::Networks(asking) => {
            answer(&client(&asking), &asking, &Resource::Networks, |client| {
                Ok(show::networks(&client.networks()?))
            })
        }
        Command::Drops { asking, service, network, all } => {
            let resource = Resource::Drops { service: service.clone(), network: network.clone() };
            answer(&client(&asking), &asking, &resource, |client| {
                let drops = match (&service, &network) {
                    (Some(name), _) => client.drops_of(name)?,
                    (None, Some(name)) => client.drops_in(name)?,
                    (None, None) => client.drops()?,
                };
                Ok(show::drops(&drops, all, Output::width()))
            })
        }
        Command::Health(asking) => answer(&client(&asking), &asking, &Resource::Health, |client| {
            Ok(show::health(&client.health()?, Output::width()))
        }),
        Command::Ha { doing: _, asking } => {
            answer(&client(&asking), &asking, &Resource::Ha, |client| Ok(show::ha(&client.ha()?)))
        }
        Command::Stages { asking, interval } => {
            answer(&client(&asking), &asking, &Resource::Stages, |client| {
                let before = client.stages()?;
                std::thread::sleep(Duration::from_secs_f64(interval));
                Ok(show::stages(&before, &client.stages()?, interval))
            })
        }
        Command::Elephants { doing: _, asking, limit } => {
            answer(&client(&asking), &asking, &Resource::Elephants(limit), |client| {
                Ok(show::elephants(&client.elephants(limit)?, Output::width()))
            })
        }
        Command::Metrics { socket: own } => {
            let client = socket.client_at(own.as_deref());
            client.text(&Resource::Metrics).map(Shown::new).map_err(Into::into)
        }
        // Those that do not only show were taken before.
        _ => Err("this command shows nothing".into()),
    }
}

/// What is printed: the director's own JSON, or what `show` makes of it.
pub(crate) fn answer(
    client: &Client,
    asking: &Asking,
    resource: &Resource,
    show: impl FnOnce(&Client) -> Result<Shown, ApiError>,
) -> Result<Shown, Box<dyn Error>> {
    if !asking.json {
        return Ok(show(client)?);
    }
    let value: serde_json::Value = serde_json::from_str(&client.text(resource)?)?;
    Ok(Shown::new(serde_json::to_string_pretty(&value)? + "\n"))
}

fn play(asked: Replay) -> Result<(), Box<dyn Error>> {
    let Replay { config, inputs, out_dir, rules, json } = asked;
    let job = replay::Job { config, inputs, out_dir, burst: BURST, rules };
    let summary = replay::run(&job)?;
    for warning in &summary.warnings {
        output::complain(&warning.to_string());
    }
    let shown = match (json, &summary.rules) {
        (true, Some(rules)) => Shown::new(serde_json::to_string_pretty(rules)? + "\n"),
        (true, None) => Shown::new(summary.report.json()?),
        (false, _) => show::replay(&summary, &job.out_dir, Output::width()),
    };
    Ok(Output::write(&shown)?)
}

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
