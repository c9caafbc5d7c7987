//! A program that a director left behind when it was killed.
//!
//! An attached program outlives the process that attached it. It does no harm (without sockets it
//! passes everything), but it is in the way of the next director. A living director holds a
//! descriptor of its program, which `/proc` shows; so a program of ours that nobody holds is stale.

use std::fs;

use aya::programs::loaded_programs;
use tracing::warn;

use crate::{Error, PROGRAM, Result, link};

/// Takes a stale steering program off an interface. Says whether there was one.
///
/// Fails when the interface carries somebody else's program, or that of a living director.
pub fn release_stale(index: u32) -> Result<bool> {
    let found = link::query(index)
        .map_err(|source| Error::Link { context: "ask for an interface", source })?;
    let Some((id, mode)) = found.program else { return Ok(false) };
    let program = program_name(id)?;
    if program != PROGRAM {
        return Err(Error::Foreign { index, name: found.name, program, id });
    }
    if let Some(pid) = holder(id) {
        return Err(Error::InUse { name: found.name, pid });
    }
    link::detach(index, mode)
        .map_err(|source| Error::Link { context: "detach a stale steering program", source })?;
    warn!(interface = found.name, "took off a steering program that a director left behind");
    Ok(true)
}

fn program_name(id: u32) -> Result<String> {
    for program in loaded_programs() {
        let program =
            program.map_err(|source| Error::Program { context: "list BPF programs", source })?;
        if program.id() == id {
            return Ok(program.name_as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(String::new())
}

/// A process that holds a descriptor of the program.
fn holder(id: u32) -> Option<u32> {
    let wanted = format!("prog_id:\t{id}");
    let processes = fs::read_dir("/proc").ok()?;
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(
        |pid: &u32| {
            let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
            descriptors
                .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
                .any(|text| text.lines().any(|line| line == wanted))
        },
    )
}
