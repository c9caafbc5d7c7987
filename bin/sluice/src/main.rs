//! `sluice`: the operator's command. It asks the director over its control socket and prints the
//! answers, and it replays captures without a director.
//!
//! Exit codes: 0 when it worked, 1 when it did not, 2 when the command line is wrong. A reader
//! that closes the pipe early (`sluice sessions | head`) is no error.
#![forbid(unsafe_code)]

mod cli;
mod desired;
mod events;
mod kill;
mod output;
mod show;
mod token;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use sluice::replay;
use sluice_api::{ApiError, Client, Remote, Resource};
use sluice_director::path::BURST;

use cli::{Asking, Cli, Command, Reach, Replay};
use output::Output;
use show::Shown;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Where the director's socket is unless a subcommand's own option says so; or how to reach it
/// over the network.
pub(crate) struct Socket {
    path: PathBuf,
    remote: Option<Remote>,
}

impl Socket {
    fn of(reach: Reach) -> Result<Self, Box<dyn Error>> {
        let Reach { socket, url, token_file, ca } = reach;
        let remote = match (url, token_file) {
            (None, _) => None,
            (Some(url), Some(file)) => Some(Remote::new(&url, &file, ca.as_deref())?),
            (Some(url), None) => {
                let advice = "name a file with it by --token-file or SLUICE_TOKEN_FILE";
                return Err(format!("{url}: this takes a token; {advice}").into());
            }
        };
        Ok(Self { path: socket, remote })
    }

    fn client(&self, asking: &Asking) -> Client {
        match (&asking.socket, &self.remote) {
            (None, Some(remote)) => Client::remote(remote.clone()),
            (named, _) => Client::new(named.as_ref().unwrap_or(&self.path)),
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Box<dyn Error>> {
    let Cli { reach, command } = cli;
    let command = match command {
        Command::Replay(asked) => return play(asked).map(|()| ExitCode::SUCCESS),
        Command::Token(command) => return token::run(&command),
        other => other,
    };
    let socket = Socket::of(reach)?;
    let client = |asking: &Asking| socket.client(asking);
    let shown = match command {
        Command::Status(asking) => answer(&client(&asking), &asking, &Resource::Status, |client| {
            Ok(show::status(&client.status()?, now_unix_s()))
        }),
        Command::Services { asking, names } => {
            let resource = Resource::Services(names.clone());
            answer(&client(&asking), &asking, &resource, |client| {
                Ok(show::services(&client.services(&names)?))
            })
        }
        Command::Sessions { kill: Some(doing), .. } => return kill::run(doing, &socket),
        Command::Sessions { kill: None, asking, filter, page } => {
            let query = page.of(filter.query());
            let resource = Resource::Sessions(query.clone());
            answer(&client(&asking), &asking, &resource, |client| {
                Ok(show::sessions(&client.sessions(&query)?, &query))
            })
        }
        Command::Ports(asking) => answer(&client(&asking), &asking, &Resource::Ports, |client| {
            Ok(show::ports(&client.ports()?))
        }),
        Command::Drops { asking, all } => {
            answer(&client(&asking), &asking, &Resource::Drops, |client| {
                Ok(show::drops(&client.drops()?, all, Output::width()))
            })
        }
        Command::Health(asking) => answer(&client(&asking), &asking, &Resource::Health, |client| {
            Ok(show::health(&client.health()?, Output::width()))
        }),
        Command::Events(command) => return events::run(&command, &socket),
        Command::Stages { asking, interval } => {
            answer(&client(&asking), &asking, &Resource::Stages, |client| {
                let before = client.stages()?;
                std::thread::sleep(Duration::from_secs_f64(interval));
                Ok(show::stages(&before, &client.stages()?, interval))
            })
        }
        Command::Elephants { asking, limit } => {
            answer(&client(&asking), &asking, &Resource::Elephants(limit), |client| {
                Ok(show::elephants(&client.elephants(limit)?))
            })
        }
        Command::Config(command) => return desired::config(command, &socket),
        Command::Service(command) => return desired::service(command, &socket),
        Command::Real(command) => return desired::real(command, &socket),
        Command::Pool(command) => return desired::pool(command, &socket),
        Command::Replay(_) | Command::Token(_) => return Ok(ExitCode::SUCCESS),
    }?;
    Output::write(&shown)?;
    Ok(ExitCode::SUCCESS)
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
    let Replay { config, inputs, out_dir, json } = asked;
    let job = replay::Job { config, inputs, out_dir, burst: BURST };
    let summary = replay::run(&job)?;
    for warning in &summary.warnings {
        output::complain(&warning.to_string());
    }
    let shown = match json {
        true => Shown::new(summary.report.json()?),
        false => show::replay(&summary, &job.out_dir, Output::width()),
    };
    Ok(Output::write(&shown)?)
}

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
