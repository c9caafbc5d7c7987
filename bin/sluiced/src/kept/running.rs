//! The sessions of a director that goes on until this one takes over.
//!
//! They are read while that one forwards, and then again: what has become of them in between is
//! taken up in place of what was. So when it has stopped there is little left to do, however many
//! sessions there are: to compare what was read with what is there.
//!
//! A slot may be read while it is written. It is checked as any other, and is another one when it
//! is read again.

use super::Placed;
use super::former::plan_of;
use super::names::{Head, NoNames, read_touched};
use super::place::Which;
use crate::crew::Crew;
use sluice_director::path::{Batch, Former, Owners, Restored};
use sluice_worker::Published;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::debug;

/// The least time of a session's last packet that makes it another one.
const LEAST_SLACK: Duration = Duration::from_secs(1);

/// The sessions.
pub struct RunningSessions {
    names_file: PathBuf,
    head: Head,
    /// Of each network, the default one first, a pair of tables for each of its workers.
    networks: Vec<Vec<[Table; 2]>>,
    /// When they were read last.
    read: Option<Instant>,
}

/// A table, as it was read last.
struct Table {
    file: Option<File>,
    slots: Vec<u8>,
    /// What is read into next.
    spare: Vec<u8>,
}

impl RunningSessions {
    /// Looks at those of the director whose names these are.
    ///
    /// # Errors
    /// When its names cannot be read, in words.
    pub fn of(names_file: &Path) -> Result<Self, String> {
        let head = Head::read(names_file).map_err(|error| match error {
            NoNames::Absent => format!("{}: it is not there", names_file.display()),
            NoNames::Unusable(why) | NoNames::OtherLayout(why) => why,
        })?;
        // A table that is made later, when a plan first needs it, is opened then.
        let tables = |network| {
            let of_worker = |worker| head.tables(worker, network).map(|path| Table::of(&path));
            (0..head.workers).map(of_worker).collect()
        };
        let networks = (0..=head.networks.len()).map(tables).collect();
        Ok(Self { names_file: names_file.to_owned(), head, networks, read: None })
    }

    /// How the sessions are placed.
    pub const fn placed(&self) -> Placed {
        Placed::of(&self.head)
    }

    /// The secret of the session hash.
    pub const fn seed(&self) -> u64 {
        self.head.seed
    }

    /// How many directors have handed over to each other before.
    pub const fn generation(&self) -> u64 {
        self.head.generation
    }

    /// Where the other one does not keep them.
    pub fn other_place(&self) -> Which {
        match self.place() {
            Which::First => Which::Second,
            Which::Second => Which::First,
        }
    }

    /// Where the other one keeps them.
    pub fn place(&self) -> Which {
        let first = super::Place::of(&self.head.state_dir, Which::First);
        if first.names_file() == self.names_file { Which::First } else { Which::Second }
    }

    /// Takes up what has become of them since they were read last; at first all of them.
    pub fn catch_up(&mut self, crew: &Crew, published: &Published) -> Restored {
        let age = self.read.map_or(Duration::ZERO, |read| read.elapsed());
        let slack_ms = (2 * age).max(LEAST_SLACK).as_millis() as u32;
        let began = Instant::now();
        // Its names change with its plan.
        if let Ok(head) = Head::read(&self.names_file) {
            self.head = head;
        }
        let names = self.head.names();
        let shift_ms = self.head.zero_boot_ms.wrapping_sub(crew.zero_boot_ms()) as u32;
        let owners = Owners::new(self.head.seed, crew.size() as u16);
        let mut all = Restored::default();
        for (at, workers) in self.networks.iter_mut().enumerate() {
            let Some(plan) = plan_of(&self.head, at, published) else { continue };
            let former = Former::new(plan, &names, owners, (self.head.workers, shift_ms))
                .scattered(self.head.scattered);
            let mut batches: Vec<Batch> = (0..crew.size()).map(|_| Batch::default()).collect();
            for (worker, [narrow, extended]) in (0..).zip(workers) {
                let paths = self.head.tables(worker, at);
                let read = [narrow.read(&paths[0]), extended.read(&paths[1])];
                all += former.sort_changes(worker, read, slack_ms, &mut batches);
            }
            if batches.iter().any(|batch| !batch.is_empty()) {
                all += crew.restore(plan.network, batches, former.scatters());
            }
        }
        self.read = Some(began);
        let Restored { sessions, expired, unknown, refused, damaged } = all;
        let took_us = began.elapsed().as_micros() as u64;
        debug!(sessions, expired, unknown, refused, damaged, took_us, "sessions are copied");
        all
    }
}

impl Table {
    fn of(path: &Path) -> Self {
        Self { file: File::open(path).ok(), slots: Vec::new(), spare: Vec::new() }
    }

    /// Reads it: as it was before, and as it is. One that cannot be read has nothing.
    fn read(&mut self, path: &Path) -> (&[u8], &[u8]) {
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
