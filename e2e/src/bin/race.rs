//! `sluice-race`, what `make race` runs: the director beside the kernel and other load balancers,
//! on network namespaces that it makes and removes.
//!
//! It exits with 0 only when every turn of every contender was verified.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use sluice_e2e::error::LabError;
use sluice_e2e::race::{self, Contender, Machine, Options};

#[derive(Parser)]
#[command(about = "Sluice beside the kernel and other load balancers, end to end (needs root)")]
struct Arguments {
    /// Who takes part, in this order, parted by commas; all but sluice-busy unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    contenders: Vec<Contender>,
    /// Rounds; each contender has one turn in each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each load: there are four in a turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// One round.
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// MTU of all wires.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9216))]
    mtu: Option<u16>,
    /// Let the kernel join received segments, as it does behind a NIC.
    #[arg(long)]
    gro: bool,
    /// Leave transmit checksums and segmentation to the other end of each wire, as to a NIC.
    #[arg(long)]
    offloads: bool,
    /// Let all cores handle received packets (RPS), as those of separate machines would.
    #[arg(long)]
    rps: bool,
    /// Give the contender a processor of its own, the last one; all else shares the others.
    #[arg(long)]
    apart: bool,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match raced(&arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nrace: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn raced(arguments: &Arguments) -> Result<String, LabError> {
    let contenders = match arguments.contenders.is_empty() {
        true => Contender::USUAL.to_vec(),
        false => arguments.contenders.clone(),
    };
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let Arguments { seconds, mtu, gro, offloads, rps, apart, .. } = *arguments;
    let options = Options { contenders, rounds, seconds, mtu, gro, offloads, rps, apart };
    let machine = Machine::look();
    let lanes = race::run(&options)?;
    Ok(match arguments.json {
        true => format!("{:#}", race::json(&machine, &options, &lanes)),
        false => race::table(&machine, &options, &lanes),
    })
}
