//! The golden cases, made when tests ask for them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter that Debian's python3-scapy belongs to.
const PYTHON: &str = "/usr/bin/python3";

/// Makes the golden cases from their rows, unless they are up to date, and gives their folder.
///
/// # Errors
/// When they cannot be made: what `golden/make.py` said.
pub fn cases() -> io::Result<PathBuf> {
    make("--cases")?;
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/golden"))
}

/// Compares the digests of the golden cases and their list with those that are committed.
///
/// # Errors
/// What differs.
pub fn check() -> io::Result<()> {
    make("--check")
}

fn make(how: &str) -> io::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/make.py");
    let output = Command::new(PYTHON).arg(script).arg(how).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(io::Error::other(format!("{said}golden/make.py makes them; it needs python3-scapy")))
}
