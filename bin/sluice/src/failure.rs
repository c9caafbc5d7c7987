//! How the command ends when something went wrong: the reason for people on standard error, and
//! with `--json` for programs on standard output, too.
//!
//! A program that reads standard output gets one line there, the last one: an object with `error`.
//! No answer has that key, so it can be told from each of them.

use std::error::Error;
use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::{Value, json};
use sluice_api::ApiError;

use crate::output::{self, Output};
use crate::show::Shown;

/// Whether the command line asks for JSON, whatever the subcommand.
pub fn wants_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>("json").ok().flatten() == Some(&true);
    here || matches.subcommand().is_some_and(|(_, deeper)| wants_json(deeper))
}

/// How the process ends; says why when something went wrong.
pub fn told(outcome: Result<ExitCode, Box<dyn Error>>, json: bool) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        let api = error.downcast_ref::<ApiError>();
        let hint = api.filter(|it| is_of_another_version(it)).map(|_| another_version());
        output::complain(&error.to_string());
        if let Some(hint) = &hint {
            output::remark(hint);
        }
        if json {
            let problem = match api {
                Some(ApiError::Refused(problem)) => serde_json::to_value(problem).ok(),
                _ => None,
            };
            print(&error.to_string(), hint, problem);
        }
        ExitCode::FAILURE
    })
}

/// Ends the process for a command line that is wrong, or that only asks for help.
pub fn wrong_line(wrong: &clap::Error, arguments: &[String]) -> ! {
    if wrong.use_stderr() && arguments.iter().any(|it| it == "--json") {
        let text = wrong.render().to_string();
        print(text.trim().trim_start_matches("error: "), None, None);
    }
    wrong.exit()
}

fn print(message: &str, hint: Option<String>, problem: Option<Value>) {
    let mut error = json!({ "message": message });
    if let Some(hint) = hint {
        error["hint"] = hint.into();
    }
    if let Some(problem) = problem {
        error["problem"] = problem;
    }
    // Nobody is left to tell that this failed.
    let _ = Output::write(&Shown::new(format!("{}\n", json!({ "error": error }))));
}

fn another_version() -> String {
    let mine = env!("CARGO_PKG_VERSION");
    format!(
        "the director is of another version than this command ({mine}): use the `sluice` that \
         came with it, or restart it as the newer one"
    )
}

/// Whether a director does not know what this command asks for.
fn is_of_another_version(error: &ApiError) -> bool {
    match error {
        ApiError::Refused(problem) => {
            let kinds = ["not-found", "unknown-parameter", "method-not-allowed"];
            let unknown = kinds.iter().any(|kind| problem.kind.ends_with(kind));
            // "There is no service x" is of the first kind, too.
            unknown && (problem.status != 404 || problem.detail.starts_with("there is nothing at"))
        }
        ApiError::Strange { .. } => true,
        _ => false,
    }
}
