//! `sluice-bench`: how fast the director is, measured where nothing but the director is timed.
//!
//! `throughput` runs the real worker loop (the one that `sluiced` runs over DPDK) over queues in
//! memory. What is timed is the worker's turns and nothing else; the traffic is written before and
//! judged afterwards, by a parser that is not the director's. A run in which a single packet was
//! dropped or came out wrong is an error, not a result.
//!
//! The one unsafe thing here is reading the processor's time stamp counter ([`clock`]).
#![deny(unsafe_code)]

mod args;
mod clients;
mod clock;
mod error;
mod floor;
mod gate;
mod judge;
mod machine;
mod memory;
mod port;
mod report;
mod rounds;
mod scene;
mod station;
mod template;
mod throughput;
mod traffic;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Command::Throughput(args) = Cli::parse().command;
    match throughput::run(&args) {
        Ok(report) => {
            if args.json {
                println!("{:#}", report.json());
            } else {
                print!("{}", report.text());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sluice-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
