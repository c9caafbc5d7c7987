//! Who holds descriptors of a program: what `/proc` says of them.

use std::fs;
use std::os::fd::RawFd;

use crate::steer::program;
use crate::{Error, Result, link};

/// A descriptor of this process, and what `/proc` says of what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The descriptor.
    pub fd: RawFd,
    line: String,
}

impl Held {
    /// Whether the descriptor still stands for the same.
    pub fn is_still(&self) -> bool {
        holding_line(&format!("/proc/self/fdinfo/{}", self.fd), std::slice::from_ref(&self.line))
            .is_some()
    }
}

/// This process's descriptors of the program on an interface, of the program's maps and of its
/// type information. Right after the AF_XDP driver loaded the program these are the driver's,
/// which never closes them.
pub fn descriptors_held(index: u32) -> Result<Vec<Held>> {
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

/// This process's descriptor of the link that keeps a program of ours on an interface. `None` when
/// the program was attached without one, as on Linux before 5.9.
pub fn link_held(index: u32) -> Option<RawFd> {
    let folder = fs::read_dir("/proc/self/fdinfo").ok()?;
    let wanted = ["link_type:\txdp".to_owned(), format!("ifindex:\t{index}")];
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|number: &RawFd| {
        let path = format!("/proc/self/fdinfo/{number}");
        wanted.iter().all(|line| holding_line(&path, std::slice::from_ref(line)).is_some())
    })
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
fn holding(process: &str, wanted: &[String]) -> Vec<Held> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return Vec::new() };
    folder
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let line = holding_line(entry.path().to_str()?, wanted)?;
            Some(Held { fd: entry.file_name().to_str()?.parse().ok()?, line })
        })
        .collect()
}

/// Which of these lines a file has.
fn holding_line(path: &str, wanted: &[String]) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    wanted.iter().find(|wanted| text.lines().any(|line| line == *wanted)).cloned()
}
