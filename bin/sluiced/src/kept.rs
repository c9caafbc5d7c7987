//! Sessions that outlive the process: where their memory lies, and how the next start reads it.
//!
//! The slots of each worker's tables, of each network, lie in files of a memory file system, in a
//! directory of this director's own (by its `state_dir`). Beside them, `names.json` says what the
//! ids in slots stand for; it is written before workers run with a plan that gives out new ids.
//! Nothing is done at the end of the process, so it makes no difference how it ends: a restart, a
//! crash and `kill -9` are one case.
//!
//! At the start all live slots are read into ordinary memory and the files go, before the workers
//! make theirs: huge pages may be only enough for one set. A director that dies between these two
//! moments loses its sessions.
//!
//! Trust: the directories are root's alone (0700); one that is not is not used. What is in them is
//! checked slot by slot all the same (see `sluice_director::path::Former`).

mod names;
mod place;

use crate::crew::Crew;
use crate::networks;
use names::Head;
use place::Place;
use sluice_config::{Config, HugePages};
use sluice_director::path::{Batch, Former, Owners, Restored, TableFiles, table_bytes};
use sluice_director::plan::{Names, Plan};
use sluice_worker::Published;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Where the sessions of this process are kept.
pub struct Kept {
    place: Place,
    head: Head,
}

/// The live slots of a director that ran before: of each of its networks, the default one first, a
/// pair of tables for each of its workers.
pub struct FormerSessions {
    head: Head,
    networks: Vec<Vec<[Vec<u8>; 2]>>,
}

impl FormerSessions {
    /// Reads what a director with this configuration left, and removes it. `None` without such.
    pub fn read(config: &Config) -> Option<Self> {
        place::purge();
        let place = Place::of(&config.director.state_dir);
        let found = Head::read(&place.names_file());
        let former = match found {
            Ok(head) => {
                let tables = |network| {
                    (0..head.workers).map(|worker| head.read_tables(worker, network)).collect()
                };
                let networks = (0..=head.networks.len()).map(tables).collect();
                Some(Self { head, networks })
            }
            Err(names::NoNames::Absent) => None,
            Err(names::NoNames::Unusable(why)) => {
                warn!(why, "the sessions of the director before cannot be taken over");
                None
            }
        };
        if let Some(former) = &former {
            place::remove(&former.head.slots);
        }
        place::remove(place.dir());
        former.filter(|_| config.director.keep_sessions)
    }

    /// The secret of its session hash, which says whose sessions are which worker's.
    pub const fn seed(&self) -> u64 {
        self.head.seed
    }

    /// Gives the sessions to the workers. To be called before any packet comes.
    pub fn restore(self, crew: &Crew, published: &Published, seed: u64) -> Restored {
        let names = self.head.names();
        let all_of = |tables: &[_], plan| self.restore_network(crew, plan, (&names, seed), tables);
        let mut all = Restored::default();
        for (at, tables) in self.networks.iter().enumerate() {
            let plan = match at.checked_sub(1).and_then(|at| self.head.networks.get(at)) {
                None => Some(&published.default.plan),
                Some(name) => {
                    let is_it = |plan: &&Arc<Plan>| plan.network_name(plan.network) == Some(name);
                    published.isolated.iter().map(|snapshot| &snapshot.plan).find(is_it)
                }
            };
            // A network that is gone takes its sessions with it.
            all += plan.map(|plan| all_of(tables, plan)).unwrap_or_default();
        }
        let Restored { sessions, expired, unknown, refused, damaged } = all;
        info!(sessions, expired, unknown, refused, damaged, "sessions go on from before");
        all
    }

    /// Gives those of one network to the workers.
    fn restore_network(
        &self,
        crew: &Crew,
        plan: &Plan,
        (names, seed): (&Names, u64),
        tables: &[[Vec<u8>; 2]],
    ) -> Restored {
        let owners = Owners::new(seed, crew.size() as u16);
        let shift_ms = self.head.zero_boot_ms.wrapping_sub(crew.zero_boot_ms()) as u32;
        let former = Former::new(plan, names, owners, (self.head.workers, shift_ms));
        let mut batches: Vec<Batch> = (0..crew.size()).map(|_| Batch::default()).collect();
        let mut all = Restored::default();
        for (worker, [narrow, extended]) in tables.iter().enumerate() {
            all += former.sort(worker as u16, [narrow, extended], &mut batches);
        }
        all += crew.restore(plan.network, batches, former.scatters());
        all
    }
}

impl Kept {
    /// Prepares a place for the sessions of this process. `None`, and a warning, if there is none.
    pub fn prepare(config: &Config, plan: &Plan, seed: u64) -> Option<Self> {
        if !config.director.keep_sessions {
            return None;
        }
        let workers = config.workers() as u64;
        let isolated = networks::of_worker(config, config.workers()).sessions;
        let tables = std::iter::once(config.sessions_per_worker()).chain(isolated);
        let bytes = tables.flat_map(table_bytes).sum::<u64>();
        let wanted = workers * bytes;
        let huge = config.director.huge_pages != HugePages::Off;
        let made = Place::make(&config.director.state_dir, huge.then_some(wanted));
        let place = made
            .inspect_err(|error| warn!(%error, "sessions will not outlive this process"))
            .ok()?;
        debug!(slots = %place.slots().display(), "session memory");
        let mut head = Head::new(config.director.state_dir.clone(), place.slots().to_owned());
        (head.workers, head.seed) = (workers as u16, seed);
        head.networks = config.networks.iter().map(|network| network.name.clone()).collect();
        head.take_names(plan);
        Some(Self { place, head })
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
        if let Err(error) = self.head.write(&self.place.names_file()) {
            warn!(%error, "sessions will not outlive this process");
        }
    }
}

/// Milliseconds since the machine started, suspended or not.
pub fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32).as_millis() as u64
}
