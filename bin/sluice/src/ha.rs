//! `sluice ha check`, `sluice ha drain` and `sluice ha config`: what moves the addresses of two
//! directors, by keepalived; `sluice ha notify`, which tells what it has done; and `sluice ha
//! upgrade`, which replaces the process of one. Showing them is done where everything is shown.

mod check;
mod drain;
mod keepalived;
mod notify;
mod upgrade;

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::Socket;
use crate::cli::ha::{Config, Doing};
use crate::output::{self, Output};
use crate::show::Shown;

/// Checks this director, or prints a configuration.
///
/// # Errors
/// When the configuration cannot be read or has nothing that moves.
pub fn run(doing: &Doing, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    match doing {
        Doing::Check(asked) => check::run(asked, socket),
        Doing::Drain(asked) => drain::run(asked, socket),
        Doing::Notify(asked) => notify::run(asked, socket),
        Doing::Upgrade(asked) => upgrade::run(asked, socket),
        Doing::Config(Config::Keepalived(asked)) => {
            let text = keepalived::made(asked, socket)?;
            Output::write(&Shown::new(text))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Tells whether something holds, and why or why not, in words or as an object.
fn tell(
    (holds, why): (bool, &str),
    mut object: Value,
    json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    if holds {
        let line = if json { object.to_string() } else { why.to_owned() };
        Output::write(&Shown::new(line + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::complain(why);
    if json {
        // As every failure has it.
        object["error"] = json!({ "message": why });
        Output::write(&Shown::new(format!("{object}\n")))?;
    }
    Ok(ExitCode::FAILURE)
}
