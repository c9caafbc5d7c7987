//! The start of what forwards packets: the environment layer, and workers with the sessions of a
//! director that ran before or runs still.

use crate::crew::{Crew, Tables};
use crate::errors::{Error, system};
use crate::handover::Successor;
use crate::kept::{FormerReading, FormerSessions, Kept, RunningSessions};
use crate::sync::Plans;
use crate::{ports, wiring};
use sluice_config::Config;
use sluice_director::plan::Plan;
use sluice_dpdk::Eal;
use sluice_linux::Mirror;
use sluice_worker::Published;
use std::sync::Arc;

/// Starts the environment layer. Meanwhile what a director that ran before has left is read, unless
/// it runs still.
pub fn eal(
    config: &Config,
    mirror: &Mirror,
    beside: bool,
) -> Result<(Eal, Option<FormerSessions>), Error> {
    let begin = || FormerReading::begin(config).map_err(system("start a thread"));
    let reading = (!beside).then(begin).transpose()?;
    let queues = |port: &_| ports::queues(port, mirror.state(), config.workers() as u16);
    let eal = Eal::init(&wiring::eal(config, queues))?;
    let former = reading.and_then(|reading| reading.end(config));
    Ok((eal, former))
}

/// Starts the workers, with the sessions of a director that ran before or runs still, and gives the
/// secret of their session hash too.
pub fn crew(
    config: &Config,
    eal: &Eal,
    (plan, published): (&Arc<Plan>, &Arc<Published>),
    (former, from): (Option<FormerSessions>, Option<&mut Successor>),
) -> Result<(Crew, Option<Kept>, u64), Error> {
    let running = from.as_ref().map(|from| from.sessions());
    let seed = running.map(RunningSessions::seed);
    let seed = seed.or(former.as_ref().map(FormerSessions::seed)).unwrap_or_else(Tables::new_seed);
    let placed = running.map(RunningSessions::placed);
    let placed = placed.or(former.as_ref().map(FormerSessions::placed));
    let mut kept = Kept::prepare(config, plan, seed, (running, placed));
    let crew = Crew::start(config, eal, published, &Tables { seed, kept: kept.as_ref() })?;
    if let Some(kept) = &mut kept {
        kept.begin(crew.zero_boot_ms());
    }
    if let Some(former) = former {
        former.restore(&crew, published, seed);
    }
    if let Some(from) = from {
        from.copy_sessions(&crew, kept.as_ref(), &Plans::new(plan, published))?;
    }
    Ok((crew, kept, seed))
}
