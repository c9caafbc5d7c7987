//! `sluice elephants pin` and `unpin`. Showing them is done where everything is shown.

use std::error::Error;
use std::process::ExitCode;

use crate::Socket;
use crate::cli::elephants::Doing;
use crate::output::Output;
use crate::show::{self, Shown};

pub fn run(doing: Doing, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let (flow, asking, pinned) = match doing {
        Doing::Pin { flow, workers, asking } => (flow.pin(workers), asking, true),
        Doing::Unpin { flow, asking } => (flow.pin(None), asking, false),
    };
    let spread = socket.client(&asking).pin(&flow, pinned)?;
    let shown = match asking.json {
        true => Shown::new(serde_json::to_string_pretty(&spread)? + "\n"),
        false => show::spread(&spread.spread, Output::width()),
    };
    Output::write(&shown)?;
    Ok(ExitCode::SUCCESS)
}
