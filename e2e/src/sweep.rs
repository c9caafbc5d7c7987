//! Removing what labs made: at the end of a lab, on SIGINT and SIGTERM, for processes that were
//! killed, and for labs that were left running on purpose.
//!
//! A lab is found again by its name alone: every namespace is called `PREFIX-PID-N-…` and the
//! directory `PREFIX-PID-N`, so nothing has to survive in memory. Errors are ignored on purpose: a
//! sweep takes what it can get, and what is gone already is no error.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::LabError;
use crate::process;

/// A file of this name in a lab's directory says that the lab outlives its process.
pub const KEPT_MARK: &str = "kept";

const NETNS_DIR: &str = "/run/netns";
const PATIENCE: Duration = Duration::from_secs(10);

/// Names of the labs that live in this process. The signal thread takes the lock and never gives
/// it back, so nothing new is made while it removes.
static LIVE: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SIGNALS: Once = Once::new();

fn live() -> MutexGuard<'static, Vec<String>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a lab, so that a signal removes it.
pub fn register(name: &str) {
    live().push(name.to_owned());
}

/// A lab is gone or left on purpose: signals no longer concern it.
pub fn forget(name: &str) {
    live().retain(|other| other != name);
}

/// Makes something that belongs to a lab, unless a signal has begun to remove them all (then this
/// never returns).
pub fn unless_stopping<T>(make: impl FnOnce() -> T) -> T {
    let _held = live();
    make()
}

/// From now on SIGINT, SIGTERM and SIGHUP remove this process's labs before it ends with 128 + the
/// signal's number.
///
/// # Errors
/// When the handlers cannot be set.
pub fn on_signals() -> Result<(), LabError> {
    let mut set = Ok(());
    SIGNALS.call_once(|| match signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        Ok(mut signals) => {
            std::thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    let names = live();
                    names.iter().for_each(|name| remove(name));
                    std::process::exit(128 + signal);
                }
            });
        }
        Err(source) => set = Err(LabError::file("setting signal handlers")(source)),
    });
    set
}

/// Ends every process in a lab's namespaces, removes the namespaces (their devices go with them)
/// and the directory; again and again, for a program that was just being started may come to a
/// namespace, or write into the directory, after they were looked at.
pub fn remove(name: &str) {
    let started = Instant::now();
    while !traces(name).is_empty() && started.elapsed() < PATIENCE {
        let spaces = spaces_of(name);
        spaces.iter().for_each(|space| end_processes(space));
        for space in &spaces {
            let _ = process::run(Command::new("ip").args(["netns", "delete", space]));
        }
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(name));
    }
}

/// Removes what processes that were killed left of labs with this prefix; labs that were kept on
/// purpose stay.
pub fn residue(prefix: &str) {
    for name in labs(prefix) {
        let kept = std::env::temp_dir().join(&name).join(KEPT_MARK).exists();
        if !kept && !owner_lives(prefix, &name) {
            remove(&name);
        }
    }
}

/// Names of the labs with this prefix that were kept on purpose.
pub fn kept(prefix: &str) -> Vec<String> {
    let mut names = labs(prefix);
    names.retain(|name| std::env::temp_dir().join(name).join(KEPT_MARK).exists());
    names
}

/// Whether a lab has left anything: a namespace or its directory. For tests of the cleaning.
pub fn traces(name: &str) -> Vec<String> {
    let mut found = spaces_of(name);
    let dir = std::env::temp_dir().join(name);
    if dir.exists() {
        found.push(dir.display().to_string());
    }
    found
}

fn entries(dir: &Path) -> Vec<String> {
    let Ok(read) = std::fs::read_dir(dir) else { return Vec::new() };
    read.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn spaces_of(name: &str) -> Vec<String> {
    let start = format!("{name}-");
    let mut spaces = entries(Path::new(NETNS_DIR));
    spaces.retain(|space| space.starts_with(&start));
    spaces
}

/// `PREFIX-PID-N` of everything that is called so, by namespace or by directory.
fn labs(prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = entries(Path::new(NETNS_DIR))
        .into_iter()
        .chain(entries(&std::env::temp_dir()))
        .filter_map(|entry| lab_of(prefix, &entry))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn lab_of(prefix: &str, entry: &str) -> Option<String> {
    let mut parts = entry.strip_prefix(prefix)?.strip_prefix('-')?.splitn(3, '-');
    let pid: u32 = parts.next()?.parse().ok()?;
    let number: u32 = parts.next()?.parse().ok()?;
    Some(format!("{prefix}-{pid}-{number}"))
}

fn owner_lives(prefix: &str, name: &str) -> bool {
    let pid = name.strip_prefix(prefix).and_then(|rest| rest.split('-').nth(1));
    pid.is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

fn end_processes(space: &str) {
    let started = Instant::now();
    loop {
        let pids = pids_in(space);
        if pids.is_empty() || started.elapsed() > PATIENCE {
            return;
        }
        for pid in pids {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes in the namespace that still run; the dead that only wait for their parent do not hold
/// it (they have left it).
fn pids_in(space: &str) -> Vec<Pid> {
    let Ok(ran) = process::run(Command::new("ip").args(["netns", "pids", space])) else {
        return Vec::new();
    };
    ran.stdout.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::lab_of;

    #[test]
    fn names_of_labs_are_found_in_names_of_spaces() {
        assert_eq!(lab_of("sl-demo", "sl-demo-12-0-client").as_deref(), Some("sl-demo-12-0"));
        assert_eq!(lab_of("sl-demo", "sl-demo-12-0").as_deref(), Some("sl-demo-12-0"));
        assert_eq!(lab_of("sl-demo", "sl-demo-x-0-client"), None);
        assert_eq!(lab_of("sl-demo", "sl-demo2-1-0"), None);
        assert_eq!(lab_of("sl", "sl-demo-12-0"), None);
    }
}
