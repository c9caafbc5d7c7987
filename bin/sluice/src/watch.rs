//! `--watch`: the same command again and again, until somebody ends it.
//!
//! A director that is away for a moment does not end it: what went wrong is said in the answer's
//! place, and the next turn asks again.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::Cli;
use crate::output::{self, Output};
use crate::{failure, run};

/// Runs the command line every `seconds`; returns only when it is not one that shows something.
pub fn again_and_again(first: Cli, seconds: f64, json: bool) -> ExitCode {
    if !first.command.shows() {
        output::complain("--watch is for commands that show something: leave it away here");
        return ExitCode::from(2);
    }
    let words = std::env::args().skip(1).filter(|word| !word.starts_with("--watch"));
    let title = format!("every {seconds} s: sluice {}", words.collect::<Vec<_>>().join(" "));
    let mut next = Some(first);
    loop {
        Output::begin_turn(&title);
        failure::told(run(next.take().unwrap_or_else(Cli::parse)), json);
        if !Output::is_read() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
}
