//! SIGHUP: the configuration is read again, and used as a whole or not at all.

use crate::daemon::{Daemon, notify};
use crate::errors::Error;
use crate::{report, wiring};
use sd_notify::NotifyState;
use sluice_api::model;
use sluice_config::Config;
use sluice_director::counters::Counters;
use sluice_director::plan::{Plan, RealId, Retired, ServiceId};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{error, info, warn};

/// Reads the configuration again. A wrong one is logged and changes nothing.
pub(crate) fn reload(daemon: &mut Daemon) {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify(&states);
    let outcome = apply(daemon);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match &outcome {
        Ok(()) => info!(epoch = daemon.plan.epoch, "the configuration was read again"),
        Err(failure) => error!("the configuration stays as it was:\n{failure}"),
    }
    daemon.last_reload = Some(model::Reload {
        at_unix_s: since_1970.as_secs(),
        ok: outcome.is_ok(),
        error: outcome.err().map(|failure| failure.to_string()),
    });
    notify(&[NotifyState::Ready]);
}

fn apply(daemon: &mut Daemon) -> Result<(), Error> {
    let loaded = Config::load(&daemon.file)?;
    for warning in loaded.warnings.iter().cloned().chain(loaded.check_live()) {
        warn!("{warning}");
    }
    let mut config = loaded.config;
    let reports = daemon.crew.reports();
    let settled = reports.len() == daemon.crew.size()
        && reports.iter().all(|report| report.epoch == daemon.plan.epoch);
    let retired =
        if settled { retired(&daemon.plan, &report::total(&reports)) } else { Retired::default() };
    let plan = wiring::compile(&config, Some(&daemon.plan), &retired)?;
    keep_what_needs_a_restart(&mut config, &daemon.config);
    (daemon.set_level)(config.director.log_level);
    daemon.config = config;
    daemon.plan = daemon.health.follow(&daemon.config, Arc::new(plan));
    // First the workers learn of a service, then its packets come.
    daemon.follow_kernel();
    daemon.keep_neighbours();
    daemon.steer();
    Ok(())
}

/// Tombstones that no session uses. No worker opens a session to one, so once there is none there
/// will be none.
fn retired(plan: &Plan, total: &Counters) -> Retired {
    let active = |id: usize| total.reals.get(id).is_some_and(|counted| counted.active > 0);
    let mut busy = HashSet::new();
    let mut retired = Retired::default();
    for (id, real) in plan.reals.iter().enumerate() {
        if real.live || active(id) {
            busy.insert(real.service);
        } else {
            retired.reals.insert(RealId(id as u32));
        }
    }
    for (id, service) in plan.services.iter().enumerate() {
        let id = ServiceId(id as u16);
        if !service.live && !busy.contains(&id) {
            retired.services.insert(id);
        }
    }
    retired
}

/// Takes from the running configuration what cannot change while it runs, and says so.
fn keep_what_needs_a_restart(new: &mut Config, running: &Config) {
    let level = new.director.log_level;
    new.director.log_level = running.director.log_level;
    for (section, differs) in [
        ("[director] (but log_level)", new.director != running.director),
        ("[limits]", new.limits != running.limits),
        ("[[port]]", new.ports != running.ports),
    ] {
        if differs {
            warn!("the change of {section} takes effect when the director is restarted");
        }
    }
    new.director = running.director.clone();
    new.director.log_level = level;
    new.limits = running.limits;
    new.ports.clone_from(&running.ports);
}
