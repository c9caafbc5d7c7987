//! The process as the kernel sees it, under the names that every Prometheus client library uses.

use std::fs;
use std::time::Duration;

/// What `/proc/self` says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// User and system time.
    pub cpu: Duration,
    /// Open file descriptors.
    pub open_fds: u64,
    /// The most there can be.
    pub max_fds: Option<u64>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
}

impl Process {
    /// Reads it; nothing if this machine has no `/proc`.
    pub fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let stat = Self::from_stat(&stat, ticks, rustix::param::page_size() as u64)?;
        // One of them is the folder that was read.
        Some(Self { open_fds: open_fds.saturating_sub(1) as u64, max_fds: limit, ..stat })
    }

    /// Reads `/proc/PID/stat` (proc_pid_stat(5)). Fields are counted from behind the program's
    /// name, which may contain anything.
    fn from_stat(stat: &str, ticks_per_s: u64, page_bytes: u64) -> Option<Self> {
        let (_, behind) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        // The first is field 3, the state.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)? + field(15)?;
        Some(Self {
            cpu: Duration::from_secs_f64(ticks as f64 / ticks_per_s as f64),
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_bytes,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) S (b) R 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 3 0 100 8192 2 1";
        let read = Process::from_stat(stat, 100, 4096).expect("fields");
        assert_eq!(read.cpu, Duration::from_secs(2));
        assert_eq!((read.threads, read.virtual_bytes, read.resident_bytes), (3, 8192, 8192));
        assert_eq!(Process::from_stat("7 (short) R 1", 100, 4096), None);
    }

    /// Against another source of the kernel's: memory of this size has to show.
    #[test]
    fn this_process_is_read() {
        let before = Process::read().expect("/proc");
        let held = vec![1_u8; 64 << 20];
        let file = fs::File::open("/proc/self/stat").expect("a file");
        let after = Process::read().expect("/proc");
        assert!(after.resident_bytes >= before.resident_bytes + (48 << 20), "{before:?} {after:?}");
        assert!(after.open_fds >= 4 && after.max_fds.is_none_or(|max| max >= after.open_fds));
        drop((held, file));
    }
}
