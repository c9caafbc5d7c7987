//! `sluice-demo`, what `make demo` runs: shows the director's main job on real traffic between
//! network namespaces, checks the answers, and removes everything again.
//!
//! It exits with 0 only when every answer was right. `--keep` leaves it running, `--stop` ends
//! what was left, `--figures` measures instead of showing.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sluice_e2e::demo::{self, Options};

#[derive(Parser)]
#[command(about = "Shows Sluice on real traffic between network namespaces (needs root)")]
struct Arguments {
    /// Leave everything running and print what to try.
    #[arg(long, conflicts_with_all = ["stop", "figures"])]
    keep: bool,
    /// End every demo that was left running.
    #[arg(long)]
    stop: bool,
    /// Print medians of several runs: direct kernel routing against the director.
    #[arg(long)]
    figures: bool,
    /// With --figures: how many runs.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Show isolated networks over two nodes instead.
    #[arg(long, conflicts_with_all = ["keep", "stop", "figures"])]
    networks: bool,
    /// Seconds of each wrk and iperf3 run.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Without the director: plain kernel routing only (checks the namespaces themselves).
    #[arg(long)]
    direct_only: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        keep: arguments.keep,
        runs: arguments.runs.max(1),
        seconds: arguments.seconds.max(1),
        idle_span: Duration::from_secs(10),
    };
    let done = if arguments.stop {
        demo::stop();
        Ok(())
    } else if arguments.networks {
        demo::networks::show()
    } else if arguments.direct_only {
        demo::direct_only(&options)
    } else if arguments.figures {
        demo::figures(&options)
    } else {
        demo::show(&options)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
