//! Sessions that a director left which has ended.

use super::Placed;
use super::names::{Head, NoNames};
use super::place::{self, Place, Which};
use crate::crew::Crew;
use crate::sync::Plans;
use sluice_config::Config;
use sluice_director::path::{Batch, Former, Owners, Restored};
use sluice_director::plan::{Names, Plan};
use sluice_worker::Published;
use std::path::Path;
use std::sync::Arc;
use tracing::{info, warn};

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
        let state_dir = &config.director.state_dir;
        let former = head_of(state_dir).map(|head| {
            let tables = |network| {
                (0..head.workers).map(|worker| head.read_tables(worker, network)).collect()
            };
            let networks = (0..=head.networks.len()).map(tables).collect();
            Self { head, networks }
        });
        if let Some(former) = &former {
            place::remove(&former.head.slots);
        }
        for which in Which::BOTH {
            Place::clear(state_dir, which);
        }
        former.filter(|_| config.director.keep_sessions)
    }

    /// How the sessions are placed.
    pub const fn placed(&self) -> Placed {
        Placed::of(&self.head)
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
        let parts = &Plans::parts(published);
        for (at, tables) in self.networks.iter().enumerate() {
            let plan = network_plan(&self.head, at, parts);
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
        let former = Former::new(plan, names, owners, (self.head.workers, shift_ms))
            .scattered(self.head.scattered);
        let mut batches: Vec<Batch> = (0..crew.size()).map(|_| Batch::default()).collect();
        let mut all = Restored::default();
        for (worker, [narrow, extended]) in tables.iter().enumerate() {
            all += former.sort(worker as u16, [narrow, extended], &mut batches);
        }
        all += crew.restore(plan.network, batches, former.scatters());
        all
    }
}

/// The head of the director that ran last: of two that handed over to each other the later one's.
fn head_of(state_dir: &Path) -> Option<Head> {
    let heads = Which::BOTH.map(|which| Head::read(&Place::of(state_dir, which).names_file()));
    let mut last: Option<Head> = None;
    for head in heads {
        match head {
            Ok(head) if last.as_ref().is_none_or(|it| it.generation < head.generation) => {
                last = Some(head);
            }
            Ok(_) | Err(NoNames::Absent) => {}
            Err(NoNames::Unusable(why) | NoNames::OtherLayout(why)) => {
                warn!(why, "the sessions of the director before cannot be taken over");
            }
        }
    }
    last
}

/// The plan of a network of a head: 0 for the default one. A network that is gone has none. They
/// are looked for among the parts of a plan, the default network's first.
pub(super) fn network_plan<'p>(
    head: &Head,
    network: usize,
    parts: &'p [Arc<Plan>],
) -> Option<&'p Arc<Plan>> {
    match network.checked_sub(1).and_then(|at| head.networks.get(at)) {
        None => parts.first(),
        Some(name) => {
            let is_it = |plan: &&Arc<Plan>| plan.network_name(plan.network) == Some(name);
            parts.get(1..)?.iter().find(is_it)
        }
    }
}
