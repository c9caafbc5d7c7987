//! The sessions of a director that goes on until this one takes over.
//!
//! They are read while that one forwards, and then again: what has become of them in between is
//! taken up in place of what was. So when it has stopped there is little left to do, however many
//! sessions there are: to compare what was read with what is there.
//!
//! A slot may be read while it is written. It is checked as any other, and is another one when it
//! is read again.

use super::former::network_plan;
use super::import::SessionImport;
use super::names::{Head, NoNames};
use super::place::{Place, Which};
use super::tables::RunningTables;
use super::{Placed, Placing};
use crate::crew::Crew;
use crate::sync::Plans;
use sluice_director::path::{Batch, Former, Owners, Restored};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// The sessions.
pub struct RunningSessions {
    names_file: PathBuf,
    placing: Placing,
    source: Source,
    /// What was imported by addresses, if any was.
    imported: Option<Imported>,
}

/// Where they come from.
enum Source {
    /// This process reads the slots of the other one, under these names.
    Slots(Box<Head>, RunningTables),
    /// The other one exports them, by addresses.
    Import(SessionImport),
}

/// What was imported by addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Why not by slots.
    pub why: String,
    /// Sessions of the first answer.
    pub sessions: u64,
    /// Sessions of later answers: they had changed.
    pub changed: u64,
    /// How long that took in all.
    pub took: Duration,
}

impl RunningSessions {
    /// Looks at those of the director whose names these are, and whose sessions are placed so. If
    /// its slots cannot be read it exports them by the stream, if it can.
    ///
    /// # Errors
    /// When it neither can, in words.
    pub fn of(
        names_file: &Path,
        placing: Placing,
        stream: Option<OwnedFd>,
    ) -> Result<Self, String> {
        let why = match Head::read(names_file) {
            Ok(head) => {
                let (tables, names_file) = (RunningTables::of(&head), names_file.to_owned());
                let source = Source::Slots(Box::new(head), tables);
                return Ok(Self { names_file, placing, source, imported: None });
            }
            Err(NoNames::Absent) => format!("{}: it is not there", names_file.display()),
            Err(NoNames::Unusable(why) | NoNames::OtherLayout(why)) => why,
        };
        let Some(stream) = stream else {
            return Err(format!("{why}; and the running director cannot export its sessions"));
        };
        warn!(why, "the running director exports its sessions by addresses");
        let import =
            SessionImport::from_stream(stream.into()).map_err(|error| error.to_string())?;
        let imported = Some(Imported { why, ..Imported::default() });
        let names_file = names_file.to_owned();
        Ok(Self { names_file, placing, source: Source::Import(import), imported })
    }

    /// How the sessions are placed.
    pub const fn placed(&self) -> Placed {
        self.placing.placed()
    }

    /// The secret of the session hash.
    pub const fn seed(&self) -> u64 {
        self.placing.seed
    }

    /// How many directors have handed over to each other before.
    pub const fn generation(&self) -> u64 {
        self.placing.generation
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
        let first = Place::of(&self.placing.state_dir, Which::First);
        if first.names_file() == self.names_file { Which::First } else { Which::Second }
    }

    /// What was imported by addresses, unless slots were read.
    pub const fn imported(&self) -> Option<&Imported> {
        self.imported.as_ref()
    }

    /// Takes up what has become of them since they were read last; at first all of them.
    ///
    /// # Errors
    /// When they are imported, and that comes to no end.
    pub fn catch_up(&mut self, crew: &Crew, plans: &Plans) -> std::io::Result<Restored> {
        let began = Instant::now();
        let all = match &mut self.source {
            Source::Slots(head, tables) => {
                // Its names change with its plan.
                if let Ok(read) = Head::read(&self.names_file) {
                    **head = read;
                }
                catch_up(head, tables, crew, plans)
            }
            Source::Import(import) => import.catch_up(crew, plans, &self.placing)?,
        };
        let took = began.elapsed();
        if let Some(imported) = &mut self.imported {
            let first = imported.took == Duration::ZERO;
            *(if first { &mut imported.sessions } else { &mut imported.changed }) += all.sessions;
            imported.took += took;
        }
        let Restored { sessions, expired, unknown, refused, damaged } = all;
        let took_us = took.as_micros() as u64;
        debug!(sessions, expired, unknown, refused, damaged, took_us, "sessions are copied");
        Ok(all)
    }
}

/// Reads slots, and takes up what is not as it was.
fn catch_up(head: &Head, tables: &mut RunningTables, crew: &Crew, plans: &Plans) -> Restored {
    let (slack_ms, names) = (tables.begin(), head.names());
    let shift_ms = head.zero_boot_ms.wrapping_sub(crew.zero_boot_ms()) as u32;
    let owners = Owners::new(head.seed, crew.size() as u16);
    let mut all = Restored::default();
    for (at, workers) in tables.networks.iter_mut().enumerate() {
        let Some(plan) = network_plan(head, at, &plans.of_networks) else { continue };
        let former =
            Former::new(plan, &names, owners, (head.workers, shift_ms)).scattered(head.scattered);
        let mut batches: Vec<Batch> = (0..crew.size()).map(|_| Batch::default()).collect();
        for (worker, [narrow, extended]) in (0..).zip(workers) {
            let paths = head.tables(worker, at);
            let read = [narrow.read(&paths[0]), extended.read(&paths[1])];
            all += former.sort_changes(worker, read, slack_ms, &mut batches);
        }
        if batches.iter().any(|batch| !batch.is_empty()) {
            all += crew.restore(plan.network, batches, former.scatters());
        }
    }
    all
}
