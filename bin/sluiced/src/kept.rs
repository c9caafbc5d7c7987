//! Sessions that outlive the process: where their memory lies, and how the next start reads it.
//!
//! The slots of each worker's tables, of each network, lie in files of a memory file system, in a
//! directory of this director's own (by its `state_dir`). Beside them, `names` says what the
//! ids in slots stand for; it is written before workers run with a plan that gives out new ids.
//! Nothing is done at the end of the process, so it makes no difference how it ends: a restart, a
//! crash and `kill -9` are one case.
//!
//! At the start all live slots are read into ordinary memory, while the environment layer starts;
//! then the files go, before the workers make theirs: huge pages may be only enough for one set. A
//! director that dies between these two moments loses its sessions.
//!
//! A director that hands over to another goes on meanwhile, so there are two places for two at once
//! ([`Which`]). The later one's names count from the moment when it takes over, and say that they
//! are later; so whenever either dies, the next start finds which sessions are the right ones. The
//! later one reads the slots of the other ([`RunningSessions`]), or, if it does not know their
//! layout, has it export them by addresses ([`SessionExport`]).
//!
//! Trust: the directories are root's alone (0700); one that is not is not used. What is in them is
//! checked slot by slot all the same (see `sluice_director::path::Former`).

mod export;
mod former;
mod import;
mod names;
mod place;
mod running;
mod tables;

use crate::networks;
pub use export::SessionExport;
pub use former::{FormerReading, FormerSessions};
use names::Head;
use place::Place;
pub use place::Which;
pub use running::RunningSessions;
use serde::{Deserialize, Serialize};
use sluice_config::{Config, HugePages};
use sluice_director::path::{TableFiles, table_bytes};
use sluice_director::plan::Plan;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::{debug, warn};

/// Where the sessions of this process are kept.
pub struct Kept {
    which: Which,
    place: Place,
    head: Head,
    /// Whether another director's sessions are the right ones still.
    pending: bool,
}

/// What a director says of its sessions to the one that takes over, which may know no more of them:
/// this is the same whatever the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placing {
    state_dir: PathBuf,
    workers: u16,
    /// A director that does not say so may have placed them anywhere.
    #[serde(default = "anywhere")]
    scattered: bool,
    seed: u64,
    generation: u64,
}

const fn anywhere() -> bool {
    true
}

impl Placing {
    const fn placed(&self) -> Placed {
        Placed { workers: self.workers, scattered: self.scattered }
    }

    /// See [`Placed::scatters`].
    const fn scatters(&self, workers: u16) -> bool {
        self.placed().scatters(workers)
    }
}

/// How a director has placed its sessions.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    workers: u16,
    scattered: bool,
}

impl Placed {
    const fn of(head: &Head) -> Self {
        Self { workers: head.workers, scattered: head.scattered }
    }

    /// Whether its sessions may be at workers that their packets do not come to by themselves, once
    /// they are those of a director with so many workers.
    const fn scatters(self, workers: u16) -> bool {
        self.scattered || self.workers != workers
    }
}

impl Kept {
    /// Prepares a place for the sessions of this process: beside those of the director that it is
    /// to follow, if there is one; `former` is whose sessions it takes up. `None`, and a warning,
    /// if there is none.
    pub fn prepare(
        config: &Config,
        plan: &Plan,
        seed: u64,
        (beside, former): (Option<&RunningSessions>, Option<Placed>),
    ) -> Option<Self> {
        if !config.director.keep_sessions {
            return None;
        }
        let which = beside.map_or(Which::First, RunningSessions::other_place);
        if beside.is_some() {
            Place::clear(&config.director.state_dir, which);
        }
        let workers = config.workers() as u64;
        let isolated = networks::of_worker(config, config.workers()).sessions;
        let tables = std::iter::once(config.sessions_per_worker()).chain(isolated);
        let bytes = tables.flat_map(table_bytes).sum::<u64>();
        let wanted = workers * bytes;
        let huge = config.director.huge_pages != HugePages::Off;
        let made = Place::make(&config.director.state_dir, which, huge.then_some(wanted));
        let place = made
            .inspect_err(|error| warn!(%error, "sessions will not outlive this process"))
            .ok()?;
        debug!(slots = %place.slots().display(), "session memory");
        let mut head = Head::new(config.director.state_dir.clone(), place.slots().to_owned());
        (head.workers, head.seed) = (workers as u16, seed);
        // Sessions that other directors have told of may be any worker's.
        let told = config.sync.listen.is_some() && workers > 1;
        head.scattered = told || former.is_some_and(|former| former.scatters(head.workers));
        head.generation = beside.map_or(0, RunningSessions::generation) + 1;
        head.networks = config.networks.iter().map(|network| network.name.clone()).collect();
        head.take_names(plan);
        Some(Self { which, place, head, pending: beside.is_some() })
    }

    /// Which place it is.
    pub const fn which(&self) -> Which {
        self.which
    }

    /// What the next process is to know of them.
    pub fn placing(&self) -> Placing {
        let Head { state_dir, workers, scattered, seed, generation, .. } = &self.head;
        Placing {
            state_dir: state_dir.clone(),
            workers: *workers,
            scattered: *scattered,
            seed: *seed,
            generation: *generation,
        }
    }

    /// The file of its names.
    pub fn names_file(&self) -> PathBuf {
        self.place.names_file()
    }

    /// Whether the slots have huge pages.
    pub fn is_huge(&self) -> bool {
        self.place.slots() != self.place.dir()
    }

    /// From now on these sessions are the right ones, and no others of this director.
    pub fn take_effect(&mut self) -> std::io::Result<()> {
        self.pending = false;
        std::fs::rename(self.place.pending_file(), self.place.names_file())
    }

    /// Empty files for a worker's tables, by network. Without room for all there are none.
    pub fn files(&self, worker: u16) -> Option<Vec<TableFiles>> {
        let networks = 0..=self.head.networks.len();
        networks.map(|network| self.files_of(worker, network)).collect()
    }

    fn files_of(&self, worker: u16, network: usize) -> Option<TableFiles> {
        let make = |path: PathBuf| {
            let file = place::create(&path);
            file.inspect_err(|error| warn!(file = %path.display(), %error, "no session memory"))
        };
        let [narrow, extended] = self.head.tables(worker, network);
        Some(TableFiles {
            narrow: make(narrow).ok()?.into(),
            extended: make(extended).ok()?.into(),
        })
    }

    /// The workers run, with a clock that began so many milliseconds after the machine.
    pub fn begin(&mut self, zero_boot_ms: u64) {
        self.head.zero_boot_ms = zero_boot_ms;
        self.write();
    }

    /// Follows a plan that is about to be published.
    pub fn follow(&mut self, plan: &Plan) {
        if self.head.take_names(plan) {
            self.write();
        }
    }

    fn write(&self) {
        let file = match self.pending {
            true => self.place.pending_file(),
            false => self.place.names_file(),
        };
        if let Err(error) = self.head.write(&file) {
            warn!(%error, "sessions will not outlive this process");
        }
    }
}

/// Removes what is left in a place of a director with this `state_dir`, which has gone from there.
pub fn clear(state_dir: &Path, which: Which) {
    Place::clear(state_dir, which);
}

/// Milliseconds since the machine started, suspended or not.
pub fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32).as_millis() as u64
}
