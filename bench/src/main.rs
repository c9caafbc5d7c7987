//! `sluice-bench`: how fast the director is, measured where nothing but the director is timed.
//!
//! `throughput` runs the real worker loop (the one that `sluiced` runs over DPDK) over queues in
//! memory. What is timed is the worker's turns and nothing else; the traffic is written before and
//! judged afterwards, by a parser that is not the director's. `mix` has the traffic that users
//! have, by which special paths are judged. A run in which a single packet was
//! dropped or came out wrong is an error, not a result. `matrix` does so for every mode, family and
//! some schedulers, `cps` for connections from their first segment to their last; `memory`,
//! `elephant`, `scaling`, `latency` and `churn` vary what their names say. `schedulers` times the
//! schedulers alone, and says how they distribute sessions. `rfc2544` is the exception: it measures
//! a director that runs elsewhere, over DPDK ports. `plot` makes a page of the results.
//!
//! Unsafe are reading the processor's time stamp counter ([`clock`]) and the bytes of a frame
//! ([`port`]).
#![deny(unsafe_code)]

mod args;
mod blocks;
mod choice;
mod churn;
mod clients;
mod clock;
mod cps;
mod elephant;
mod error;
mod floor;
mod gate;
mod histogram;
mod judge;
mod latency;
mod machine;
mod matrix;
mod memif;
mod memory;
mod mix;
mod plot;
mod port;
mod report;
mod resident;
mod rfc2544;
mod rounds;
mod runs;
mod scaling;
mod scene;
mod schedule;
mod schedulers;
mod seen;
mod spread;
mod station;
mod template;
mod throughput;
mod traffic;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

/// What a command measured, as it is to be printed.
macro_rules! shown {
    ($report:expr, $json:expr) => {
        $report.map(|report| if $json { format!("{:#}\n", report.json()) } else { report.text() })
    };
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Mix(args) => shown!(mix::run(&args), args.turns.conditions.json),
        Command::Throughput(args) => shown!(throughput::run(&args), args.json),
        Command::Matrix(args) => shown!(matrix::run(&args), args.json),
        Command::Cps(args) => shown!(cps::run(&args), args.json),
        Command::Schedulers(args) => shown!(schedulers::run(&args), args.json),
        Command::Memory(args) => shown!(memory::run(&args), args.turns.conditions.json),
        Command::Elephant(args) if !args.spread.is_empty() => {
            shown!(spread::run(&args), args.turns.conditions.json)
        }
        Command::Elephant(args) => shown!(elephant::run(&args), args.turns.conditions.json),
        Command::Scaling(args) => shown!(scaling::run(&args), args.turns.conditions.json),
        Command::Latency(args) => shown!(latency::run(&args), args.turns.conditions.json),
        Command::Churn(args) => shown!(churn::run(&args), args.conditions.json),
        Command::Memif(args) => shown!(memif::run(&args), args.conditions.json),
        Command::Rfc2544(args) => shown!(rfc2544::run(&args), args.json),
        Command::Plot(args) => plot::run(&args),
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sluice-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
