//! A program that a director left behind when it was killed.
//!
//! An attached program outlives the process that attached it. It does no harm (without sockets it
//! passes everything), but it is in the way of the next director. A living director holds a
//! descriptor of its program, which `/proc` shows; so a program of ours that no other process holds
//! is stale.

use tracing::warn;

use crate::descriptors::other_holder;
use crate::steer::program;
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
    if let Some(pid) = other_holder(id) {
        return Err(Error::InUse { name: found.name, pid });
    }
    link::detach(index, mode)
        .map_err(|source| Error::Link { context: "detach a stale steering program", source })?;
    warn!(interface = found.name, "took off a steering program that a director left behind");
    Ok(true)
}

/// Takes the steering program off an interface, if it is ours. Says whether there was one.
pub fn detach(index: u32) -> Result<bool> {
    let found = link::query(index)
        .map_err(|source| Error::Link { context: "ask for an interface", source })?;
    match found.program {
        Some((id, mode)) if program_name(id)? == PROGRAM => link::detach(index, mode)
            .map(|()| true)
            .map_err(|source| Error::Link { context: "detach the steering program", source }),
        _ => Ok(false),
    }
}

fn program_name(id: u32) -> Result<String> {
    let name = program(id)?.and_then(|program| program.name_as_str().map(str::to_owned));
    Ok(name.unwrap_or_default())
}
