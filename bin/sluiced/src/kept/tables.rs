//! The session tables of a director that goes on, as they were read last.

use super::names::{Head, read_touched};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The least time of a session's last packet that makes it another one.
const LEAST_SLACK: Duration = Duration::from_secs(1);

/// Of each network, the default one first, a pair of tables for each worker.
pub struct RunningTables {
    pub networks: Vec<Vec<[Table; 2]>>,
    /// When they were read last.
    read: Option<Instant>,
}

/// A table, as it was read last.
pub struct Table {
    file: Option<File>,
    slots: Vec<u8>,
    /// What is read into next.
    spare: Vec<u8>,
}

impl RunningTables {
    /// Those that a head says.
    pub fn of(head: &Head) -> Self {
        // A table that is made later, when a plan first needs it, is opened then.
        let tables = |network| {
            let of_worker = |worker| head.tables(worker, network).map(|path| Table::of(&path));
            (0..head.workers).map(of_worker).collect()
        };
        Self { networks: (0..=head.networks.len()).map(tables).collect(), read: None }
    }

    /// They are about to be read: gives how much later the last packet of a session may be than
    /// when it was read last for the session to count as unchanged.
    pub fn begin(&mut self) -> u32 {
        let age = self.read.map_or(Duration::ZERO, |read| read.elapsed());
        self.read = Some(Instant::now());
        (2 * age).max(LEAST_SLACK).as_millis() as u32
    }
}

impl Table {
    fn of(path: &Path) -> Self {
        Self { file: File::open(path).ok(), slots: Vec::new(), spare: Vec::new() }
    }

    /// Reads it: as it was before, and as it is. One that cannot be read has nothing.
    pub fn read(&mut self, path: &Path) -> (&[u8], &[u8]) {
        std::mem::swap(&mut self.slots, &mut self.spare);
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
        let read = match &self.file {
            Some(file) => read_touched(file, &mut self.slots),
            None => Ok(()),
        };
        if let Err(error) = read {
            tracing::warn!(file = %path.display(), %error, "kept sessions cannot be read");
            self.slots.clear();
        }
        (&self.spare, &self.slots)
    }
}
