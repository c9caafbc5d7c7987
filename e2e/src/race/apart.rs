//! The contender on a processor of its own and everybody else on the others, as far as a machine
//! has processors; and how much of its time a contender takes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::contender::Stand;
use crate::error::{LabError, expect};

/// Who may run where.
#[derive(Debug, Clone, Copy)]
pub struct Apart {
    all: CpuSet,
    contender: CpuSet,
    others: CpuSet,
}

impl Apart {
    /// The last processor that this process may use is the contender's.
    ///
    /// # Errors
    /// When it may use one only.
    pub fn look() -> Result<Self, LabError> {
        let all = sched_getaffinity(None).map_err(refused)?;
        let mut others = all;
        let last = (0..CpuSet::MAX_CPU).rev().find(|core| all.is_set(*core)).unwrap_or(0);
        others.unset(last);
        expect(others.count() > 0, || "two processors are needed to keep apart".to_owned())?;
        let mut contender = CpuSet::new();
        contender.set(last);
        Ok(Self { all, contender, others })
    }

    /// What is started from now on shares the processors that are not the contender's.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn others(&self) -> Result<(), LabError> {
        sched_setaffinity(None, &self.others).map_err(refused)
    }

    /// What is started from now on runs anywhere.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn anywhere(&self) -> Result<(), LabError> {
        sched_setaffinity(None, &self.all).map_err(refused)
    }

    /// Moves all that a contender runs to its own processor.
    pub fn move_over(&self, stand: &Stand) {
        for pid in processes(stand) {
            for thread in list(&format!("/proc/{pid}/task")) {
                let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
                // One that has ended meanwhile needs no place.
                let _ = sched_setaffinity(thread, &self.contender);
            }
        }
    }
}

fn refused(error: rustix::io::Errno) -> LabError {
    LabError::Wrong(format!("placing programs on processors: {error}"))
}

/// The time that a contender's processes have taken, what the kernel does in their name included.
#[derive(Debug)]
pub struct Watch {
    processes: Vec<u32>,
    begun: Instant,
    before: Duration,
}

impl Watch {
    /// `None` for a contender that is the kernel alone.
    pub fn start(stand: &Stand) -> Option<Self> {
        let processes = processes(stand);
        let before = taken(&processes);
        (!processes.is_empty()).then(|| Self { processes, begun: Instant::now(), before })
    }

    /// The share of one processor since then.
    pub fn share(&self) -> f64 {
        let taken = taken(&self.processes).saturating_sub(self.before);
        taken.as_secs_f64() / self.begun.elapsed().as_secs_f64()
    }
}

/// A contender's process and its children.
fn processes(stand: &Stand) -> Vec<u32> {
    let Some(first) = stand.pid() else { return Vec::new() };
    let mut all = vec![first];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    all
}

fn list(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Of all threads, to the nanosecond (`schedstat`; the kernel's ticks are too coarse for a second).
fn taken(processes: &[u32]) -> Duration {
    let threads = processes.iter().flat_map(|pid| {
        let tasks = format!("/proc/{pid}/task");
        list(&tasks).into_iter().map(move |thread| format!("{tasks}/{thread}/schedstat"))
    });
    let ran = |file: String| fs::read_to_string(file).ok()?.split(' ').next()?.parse::<u64>().ok();
    Duration::from_nanos(threads.filter_map(ran).sum())
}
