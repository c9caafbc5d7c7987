//! The manual pages: those of this command from its definition, `sluice.toml(5)` from the
//! descriptions that configuration files are read by, `sluiced(8)` from the text beside this.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::Cli;

/// `sluiced(8)`: the daemon's own definition is not to be had here, since this command must not
/// need what the daemon needs.
const SLUICED: &str = include_str!("man/sluiced.8");

/// Writes `sluice.1` and a page for each subcommand, `sluiced.8` and `sluice.toml.5`.
///
/// # Errors
/// When they cannot be written.
pub fn write(dir: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir).map_err(failed)?;
    let pages =
        [("sluiced.8", SLUICED.to_owned()), ("sluice.toml.5", sluice_config::reference::manual())];
    for (name, text) in pages {
        fs::write(dir.join(name), text).map_err(failed)?;
    }
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
