//! `sluice doctor`: what of this machine stands in the director's way, and how to mend it.
//!
//! Three parts, so that what is judged can be tested without a machine: [`gather`] looks and
//! judges nothing, [`facts`] is what it saw, and the verdicts (`memory`, `cores`, `ports`,
//! `addresses`, `sync`, `reals`, `process`) are functions from facts to [`Finding`]s. What could
//! not be looked at is a finding, too: silence always means that all is well.

mod addresses;
mod cores;
mod facts;
mod finding;
mod gather;
mod memory;
mod ports;
mod process;
mod reals;
mod sync;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::process::ExitCode;

use crate::Socket;
use crate::cli::machine::Doctor;
use crate::output::Output;
use crate::show::{self, Shown};

use facts::Facts;
pub use finding::{Finding, Mark};

/// Looks, judges and prints.
///
/// # Errors
/// When the configuration that was named cannot be read, or nothing can be printed.
pub fn run(asked: &Doctor, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let path = socket.path(asked.socket.as_ref());
    let facts = gather::look(asked.config.as_deref(), path)?;
    let findings = judge(&facts);
    let shown = if asked.json {
        Shown::new(serde_json::to_string_pretty(&findings)? + "\n")
    } else if asked.fix_script {
        Shown::new(show::fix_script(&findings))
    } else {
        show::doctor(&findings, asked.all, Output::width())
    };
    Output::write(&shown)?;
    let worst = findings.iter().map(|finding| finding.mark).max().unwrap_or(Mark::Ok);
    Ok(ExitCode::from(worst.exit_code()))
}

/// All findings, section by section.
fn judge(facts: &Facts) -> Vec<Finding> {
    let sections: [fn(&Facts) -> Vec<Finding>; 7] = [
        process::judge,
        memory::judge,
        cores::judge,
        ports::judge,
        addresses::judge,
        sync::judge,
        reals::judge,
    ];
    sections.iter().flat_map(|judge| judge(facts)).collect()
}
