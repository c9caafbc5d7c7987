//! Sessions that a director left which has ended.

use super::Placed;
use super::names::{Head, NoNames};
use super::place::{self, Place, Which};
use crate::crew::Crew;
use crate::sync::Plans;
use sluice_config::Config;
use sluice_director::path::{Former, Owners, Restored};
use sluice_director::plan::Plan;
use sluice_worker::Published;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use tracing::{info, warn};

/// The live slots of a director that ran before: of each of its networks, the default one first, a
/// pair of tables for each of its workers.
pub struct FormerSessions {
    head: Head,
    networks: Vec<Vec<[Vec<u8>; 2]>>,
}

/// The sessions that a director with the same configuration left, while they are read.
pub struct FormerReading(JoinHandle<Option<FormerSessions>>);

impl FormerReading {
    /// Begins, in a thread of its own: it takes as long as the start of the environment layer,
    /// which sleeps for a part of its time.
    pub fn begin(config: &Config) -> io::Result<Self> {
        let director = config.director.clone();
        let read = move || match director.keep_sessions {
            true => FormerSessions::read(&director.state_dir),
            false => None,
        };
        std::thread::Builder::new().name("kept".to_owned()).spawn(read).map(Self)
    }

    /// Waits for them, and removes what they were read from. `None` without such.
    pub fn end(self, config: &Config) -> Option<FormerSessions> {
        let former = self.0.join().ok().flatten();
        place::purge();
        if let Some(former) = &former {
            place::remove(&former.head.slots);
        }
        for which in Which::BOTH {
            Place::clear(&config.director.state_dir, which);
        }
        former
    }
}

impl FormerSessions {
    fn read(state_dir: &Path) -> Option<Self> {
        let head = head_of(state_dir)?;
        let tables =
            |network| (0..head.workers).map(|worker| head.read_tables(worker, network)).collect();
        let networks = (0..=head.networks.len()).map(tables).collect();
        Some(Self { head, networks })
    }

    /// How the sessions are placed.
    pub const fn placed(&self) -> Placed {
        Placed::of(&self.head)
    }

    /// The secret of its session hash, which says whose sessions are which worker's.
    pub const fn seed(&self) -> u64 {
        self.head.seed
    }

    /// Gives the sessions to the workers, each of which takes up a part while the next is sorted.
    /// To be called before any packet comes.
    pub fn restore(self, crew: &Crew, published: &Published, seed: u64) -> Restored {
        let names = self.head.names();
        let parts = &Plans::parts(published);
        let mut all = Restored::default();
        let (reply, answers) = channel();
        for (at, tables) in self.networks.iter().enumerate() {
            // A network that is gone takes its sessions with it.
            let Some(plan) = network_plan(&self.head, at, parts) else { continue };
            let owners = Owners::new(seed, crew.size() as u16);
            let shift_ms = self.head.zero_boot_ms.wrapping_sub(crew.zero_boot_ms()) as u32;
            let former = Former::new(plan, &names, owners, (self.head.workers, shift_ms))
                .scattered(self.head.scattered);
            for (worker, [narrow, extended]) in (0..).zip(tables) {
                all += former.sort(worker, [narrow, extended], |batches| {
                    crew.give(plan.network, batches, former.scatters(), &reply);
                });
            }
        }
        drop(reply);
        answers.iter().for_each(|one| all += one);
        let Restored { sessions, expired, unknown, refused, damaged } = all;
        info!(sessions, expired, unknown, refused, damaged, "sessions go on from before");
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
