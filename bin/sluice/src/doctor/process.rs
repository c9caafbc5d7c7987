//! The process: whether it runs, with what configuration, what it may do, and where its state is.

use std::path::PathBuf;

use sluice_config::Config;
use sluice_linux::survey::Capability;

use crate::advice::word;
use crate::show::file_of;

use super::facts::{Facts, Folder, Running};
use super::finding::{Finding, Mark, Section};

/// Kernels before this one lack something that the director uses: AF_XDP that needs no copy to be
/// shared (5.10 has what 5.4 began), BPF as a capability of its own (5.8).
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// Less room than this for the journal is too little.
const LITTLE_ROOM_BYTES: u64 = 64 << 20;
/// Share of the session table that is too much, in percent.
const NEARLY_FULL: u64 = 90;

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![configuration(facts)];
    match &facts.director {
        Some(running) => {
            findings.extend(said(facts, running));
            findings.extend(rights(facts, running));
        }
        None => findings.push(find("director", Mark::Warn, facts.silence.clone())),
    }
    findings.extend(kernel(facts));
    findings.extend(facts.state_dir.as_ref().map(state_dir));
    findings
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Director, id, mark, text)
}

fn configuration(facts: &Facts) -> Finding {
    match facts.config().map(Config::summary) {
        Some(summary) => find("config", Mark::Ok, format!("{} is right ({summary})", facts.origin)),
        None => find("config", Mark::Unseen, facts.origin.clone())
            .advise("name the configuration with --config FILE"),
    }
}

fn said(facts: &Facts, running: &Running) -> Vec<Finding> {
    let status = &running.status;
    let mut findings = Vec::new();
    if running.elsewhere {
        let text = format!(
            "the director (pid {}) is in another network namespace: what is said of interfaces, \
             addresses and routes is said of this one",
            status.pid
        );
        let named = |file: &PathBuf| format!(" --config {}", word(&file.display().to_string()));
        let named = facts.file.as_ref().map_or(String::new(), named);
        let again = facts.reached.sluice(&format!("doctor{named}"));
        let command = format!("nsenter -t {} -n {again}", status.pid);
        findings.push(find("namespace", Mark::Warn, text).fix(command));
    }
    if let Some(reload) = status.last_reload.as_ref().filter(|reload| !reload.ok) {
        let why = reload.error.as_deref().unwrap_or("no reason was given");
        let text = format!("the last reload was refused, what ran before still runs: {why}");
        // It asks no director.
        let command = format!("sluice config check {}", file_of(status));
        let reload = facts.reached.sluice("config reload");
        findings.push(
            find("reload", Mark::Fail, text)
                .advise(format!("mend the file (`{command}` says where), then `{reload}`")),
        );
    }
    if status.differs_from_file {
        let text = "what runs is not what the configuration file says".to_owned();
        let command = facts.reached.sluice(&format!("config diff {}", file_of(status)));
        findings.push(
            find("differs", Mark::Warn, text)
                .advise(format!("`{command}` tells the difference; a reload takes the file's"))
                .fix(facts.reached.sluice("config reload")),
        );
    }
    if !status.durable {
        let text =
            "changes made at run time do not survive a restart: the journal cannot be written";
        findings.push(
            find("durable", Mark::Warn, text.to_owned())
                .advise("look at `state_dir` below, then restart the director"),
        );
    }
    let sessions = &status.sessions;
    if sessions.capacity > 0 && sessions.live * 100 > sessions.capacity * NEARLY_FULL {
        let text = format!(
            "{} of {} sessions are in use: new ones will be refused",
            sessions.live, sessions.capacity
        );
        findings.push(
            find("sessions", Mark::Fail, text)
                .advise("raise `sessions` in [limits] and restart the director"),
        );
    }
    if findings.is_empty() {
        let text = format!("sluiced {} runs (pid {})", status.version, status.pid);
        findings.push(find("director", Mark::Ok, text));
    }
    findings
}

fn rights(facts: &Facts, running: &Running) -> Vec<Finding> {
    let Some(process) = &running.process else {
        let text = format!("what process {} may do is hidden from us", running.status.pid);
        return vec![find("rights", Mark::Unseen, text).advise("run this as root")];
    };
    let config = facts.config();
    let steered = config.is_some_and(|it| it.ports.iter().any(|p| p.device.kind() == "af_xdp"));
    let kernels = config.is_some_and(|it| it.ports.iter().any(|p| p.device.interface().is_some()));
    let mut missing = Vec::new();
    if kernels {
        missing.extend([Capability::NetAdmin, Capability::NetRaw]);
    }
    if steered && !process.may(Capability::SysAdmin) {
        missing.push(Capability::Bpf);
    }
    missing.retain(|&capability| !process.may(capability));
    let mut findings = Vec::new();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|capability| capability.name()).collect();
        let names = names.join(" ");
        let text = format!("the director lacks {names}: its ports cannot be opened again");
        let advice = format!("add {names} to CapabilityBoundingSet in sluiced.service");
        findings.push(find("capabilities", Mark::Fail, text).advise(advice));
    }
    if let Some(locked) = process.locked_bytes.filter(|_| !process.may(Capability::IpcLock)) {
        let text = format!("the director may lock {locked} bytes only: rings and maps need more");
        let advice = "set LimitMEMLOCK=infinity in sluiced.service and restart it";
        findings.push(find("memlock", Mark::Warn, text).advise(advice));
    }
    findings
}

fn kernel(facts: &Facts) -> Option<Finding> {
    let mut numbers = facts.kernel.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    let (major, minor) = OLDEST_KERNEL;
    if version >= OLDEST_KERNEL {
        return Some(find("kernel", Mark::Ok, format!("Linux {}", facts.kernel)));
    }
    let text = format!("Linux {} is older than {major}.{minor}: AF_XDP lacks much", facts.kernel);
    Some(find("kernel", Mark::Warn, text).advise("use the kernel of Debian 12 (6.1) or newer"))
}

fn state_dir(folder: &Folder) -> Finding {
    let path = folder.path.display();
    if !folder.exists {
        let text = format!("`state_dir` {path} is not there; the director makes it if it may");
        return find("state_dir", Mark::Warn, text).fix(format!("install -d -m 750 {path}"));
    }
    if folder.read_only {
        let text = format!("`state_dir` {path} is on a file system that takes no changes");
        return find("state_dir", Mark::Fail, text)
            .advise("name another folder, or mount that file system for writing");
    }
    if let Some(free) = folder.free_bytes.filter(|&free| free < LITTLE_ROOM_BYTES) {
        let free = crate::show::memory(free);
        let text = format!("only {free} are free in `state_dir` {path}: the journal needs room");
        return find("state_dir", Mark::Fail, text).advise("make room on that file system");
    }
    if folder.kind == "tmpfs" || folder.kind == "ramfs" {
        let text = format!("`state_dir` {path} is in memory: changes are lost with the machine");
        return find("state_dir", Mark::Warn, text)
            .advise("name a folder on a disk in [director], such as /var/lib/sluice");
    }
    find("state_dir", Mark::Ok, format!("`state_dir` {path} is on {}", folder.kind))
}
