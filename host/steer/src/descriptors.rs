//! Who holds descriptors of a program: what `/proc` says of them.

use std::fs;
use std::os::fd::RawFd;

use crate::steer::program;
use crate::{Error, Result, link};

/// This process's descriptors of the program on an interface, of the program's maps and of its
/// type information. Right after the AF_XDP driver loaded the program these are the driver's,
/// which never closes them.
pub fn descriptors_held(index: u32) -> Result<Vec<RawFd>> {
    let found = link::query(index)
        .map_err(|source| Error::Link { context: "ask for an interface", source })?;
    let (id, _) = found.program.ok_or(Error::NotAttached { index })?;
    let program = program(id)?.ok_or(Error::NotAttached { index })?;
    let maps = program
        .map_ids()
        .map_err(|source| Error::Program { context: "read about the steering program", source })?;
    let mut wanted: Vec<String> = vec![format!("prog_id:\t{id}")];
    wanted.extend(maps.unwrap_or_default().iter().map(|map| format!("map_id:\t{map}")));
    wanted.extend(program.btf_id().map(|btf| format!("btf_id:\t{btf}")));
    Ok(holding("self", &wanted))
}

/// A process other than this one that holds a descriptor of a program.
pub(crate) fn other_holder(id: u32) -> Option<u32> {
    let wanted = [format!("prog_id:\t{id}")];
    let own = std::process::id();
    let processes = fs::read_dir("/proc").ok()?;
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| *pid != own && !holding(&pid.to_string(), &wanted).is_empty())
}

/// A process's descriptors of which `/proc` says one of these lines.
fn holding(process: &str, wanted: &[String]) -> Vec<RawFd> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return Vec::new() };
    folder
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path()).ok()?;
            let held = text.lines().any(|line| wanted.iter().any(|wanted| wanted == line));
            held.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
        })
        .collect()
}
