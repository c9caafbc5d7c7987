//! `sluice-bench`: how fast the director is, measured where nothing but the director is timed.
//!
//! `throughput` runs the real worker loop (the one that `sluiced` runs over DPDK) over queues in
//! memory. What is timed is the worker's turns and nothing else; the traffic is written before and
//! judged afterwards, by a parser that is not the director's. A run in which a single packet was
//! dropped or came out wrong is an error, not a result. `matrix` does so for every mode, family and
//! some schedulers, `cps` for connections from their first segment to their last. `schedulers`
//! times the schedulers alone, and says how they distribute sessions.
//!
//! Unsafe are reading the processor's time stamp counter ([`clock`]) and the bytes of a frame
//! ([`port`]).
#![deny(unsafe_code)]

mod args;
mod choice;
mod clients;
mod clock;
mod cps;
mod error;
mod floor;
mod gate;
mod judge;
mod machine;
mod matrix;
mod memory;
mod port;
mod report;
mod rounds;
mod scene;
mod schedulers;
mod station;
mod template;
mod throughput;
mod traffic;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Throughput(args) => throughput::run(&args).map(|report| match args.json {
            true => format!("{:#}\n", report.json()),
            false => report.text(),
        }),
        Command::Matrix(args) => matrix::run(&args).map(|table| match args.json {
            true => format!("{:#}\n", table.json()),
            false => table.text(),
        }),
        Command::Cps(args) => cps::run(&args).map(|report| match args.json {
            true => format!("{:#}\n", report.json()),
            false => report.text(),
        }),
        Command::Schedulers(args) => schedulers::run(&args).map(|report| match args.json {
            true => format!("{:#}\n", report.json()),
            false => report.text(),
        }),
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
