//! Changes of the desired state, from whichever source: checked, compiled, written, published.
//!
//! Calls that wait are taken together, so that a plan is compiled and published once for all of
//! them. A worker never waits for this, and a change that is refused leaves everything as it was.

use crate::daemon::Daemon;
use crate::own_ports::{Forced, OwnPorts};
use crate::{news, notices, report, wiring};
use sd_notify::NotifyState;
use sluice_api::{ApiError, Network, Reply, model};
use sluice_config::{Config, Loaded};
use sluice_director::counters::{Counters, RealCounters};
use sluice_director::plan::{Plan, RealId, Retired, ServiceId};
use sluice_state::{
    Applied, Author, Change, Desired, FieldFault, FileContent, Kind, Outcome, Publish, Refusal,
    RefusalKind, Request, Source, Weight, What,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{error, info, warn};

/// A request and where its answer goes.
pub(crate) type Asked = (Request, Reply<Result<Applied, Refusal>>);

/// The state and the plan that a director starts with: what was kept, and the file if it has
/// changed since it was read last.
pub(crate) fn begin(loaded: &Loaded) -> Result<(Desired, Config, Plan), crate::errors::Error> {
    begin_with(Desired::open(&loaded.config.director.state_dir)?, loaded, true)
}

/// The same beside a director that goes on changing its state: nothing that is written lasts.
pub(crate) fn begin_beside(
    loaded: &Loaded,
) -> Result<(Desired, Config, Plan), crate::errors::Error> {
    begin_with(Desired::peek(&loaded.config.director.state_dir)?, loaded, false)
}

fn begin_with(
    mut desired: Desired,
    loaded: &Loaded,
    may_begin_anew: bool,
) -> Result<(Desired, Config, Plan), crate::errors::Error> {
    let mut compile = |config: &Config| {
        wiring::compile(config, None, &Retired::default()).map_err(|error| error.to_string())
    };
    let file = FileContent::loaded(loaded);
    let kept = desired.epoch();
    if desired.has_read(&file) {
        desired.learn(&file);
    } else {
        let request = file_request(file, None, false);
        let Outcome { mut answers, publish } = desired.commit(&[request], now_ms(), &mut compile);
        match (publish, answers.pop()) {
            (Some(Publish::Whole(config, plan)), _) => return Ok((desired, *config, plan)),
            (_, Some(Err(refusal))) if kept == 0 || !may_begin_anew => return Err(refusal.into()),
            (_, Some(Err(refusal))) => {
                error!("the file cannot be used, and what was in force before is kept:\n{refusal}");
            }
            _ => {}
        }
    }
    let (config, plan) = match desired.present(&mut compile) {
        Ok(made) => made,
        Err(refusal) if !may_begin_anew => return Err(refusal.into()),
        Err(refusal) => return begin_anew(desired, loaded, &refusal),
    };
    if kept > 0 {
        info!(epoch = kept, "the state is that of before");
    }
    if desired.differs_from_file() {
        warn!("what runs is not what the file says: see `sluice config diff`; a reload uses it");
    }
    Ok((desired, config, plan))
}

/// What was kept cannot be used, as after a change of version: the file must do, if it does.
fn begin_anew(
    desired: Desired,
    loaded: &Loaded,
    why: &Refusal,
) -> Result<(Desired, Config, Plan), crate::errors::Error> {
    let mut compile = |config: &Config| {
        wiring::compile(config, None, &Retired::default()).map_err(|error| error.to_string())
    };
    let mut read = |desired: &mut Desired| {
        let request = file_request(FileContent::loaded(loaded), None, false);
        let Outcome { mut answers, publish } = desired.commit(&[request], now_ms(), &mut compile);
        match (publish, answers.pop()) {
            (Some(Publish::Whole(config, plan)), _) => Ok((*config, plan)),
            (_, Some(Err(refusal))) => Err(refusal),
            _ => Err(why.clone()),
        }
    };
    // Nothing is put aside for a file that is wrong as well.
    read(&mut Desired::default())?;
    let mut desired = desired.begin_anew(&loaded.config.director.state_dir, why)?;
    let (config, plan) = read(&mut desired)?;
    Ok((desired, config, plan))
}

fn file_request(file: FileContent, if_epoch: Option<u64>, dry_run: bool) -> Request {
    let what = What::File(file);
    Request { by: Author::of(Source::File), if_epoch, dry_run, force: false, what }
}

/// Applies what was asked for, and answers.
pub(crate) fn apply(daemon: &mut Daemon, asked: Vec<Asked>) {
    if asked.is_empty() {
        return;
    }
    let (requests, replies): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let answers = commit(daemon, &requests);
    for (answer, reply) in answers.into_iter().zip(replies) {
        // Whoever asked may not wait any more.
        let _ = reply.send(answer);
    }
}

/// SIGHUP, or a call `by` somebody: reads the file again. A wrong one changes nothing.
pub(crate) fn reload(
    daemon: &mut Daemon,
    by: Option<Author>,
    if_epoch: Option<u64>,
    dry_run: bool,
) -> Result<Applied, Refusal> {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notices::tell(&states);
    let outcome = read_file(daemon, by, if_epoch, dry_run);
    match &outcome {
        Ok(_) if dry_run => {}
        Ok(applied) => info!(epoch = applied.epoch, "the configuration was read again"),
        Err(_) if dry_run => {}
        Err(failure) => {
            daemon.operator.server.events().note(news::refused(failure));
            error!("the configuration stays as it was:\n{failure}");
        }
    }
    if !dry_run {
        daemon.configured.last_reload = Some(model::Reload {
            at_unix_s: now_ms() / 1000,
            ok: outcome.is_ok(),
            error: outcome.as_ref().err().map(ToString::to_string),
        });
    }
    notices::tell(&[NotifyState::Ready]);
    outcome
}

fn read_file(
    daemon: &mut Daemon,
    by: Option<Author>,
    if_epoch: Option<u64>,
    dry_run: bool,
) -> Result<Applied, Refusal> {
    let loaded = Config::load(&daemon.configured.file).map_err(|errors| Refusal {
        epoch: Some(daemon.configured.desired.epoch()),
        ..Refusal::of_file(&errors)
    })?;
    for warning in loaded.warnings.iter().cloned().chain(loaded.check_live()) {
        warn!("{warning}");
    }
    // Certificates and tokens may be others though the file is the same.
    let prepared = daemon.operator.server.prepare(&Network::from(&loaded.config.api));
    let prepared = prepared.map_err(|error| unusable(daemon, &error))?;
    let file = FileContent::loaded(&loaded);
    // What is in the file stays the file's, whoever had it read.
    let by = by.unwrap_or(Author::of(Source::File));
    let request = Request { by, ..file_request(file, if_epoch, dry_run) };
    let answer = commit(daemon, &[request]).remove(0)?;
    if !dry_run {
        daemon.operator.server.reach(prepared);
    }
    Ok(answer)
}

/// What `[api]` names cannot be used.
fn unusable(daemon: &Daemon, error: &ApiError) -> Refusal {
    let fault = FieldFault {
        pointer: "/api".to_owned(),
        detail: error.to_string(),
        hint: "correct it, or leave [api] out".to_owned(),
    };
    Refusal {
        kind: RefusalKind::Invalid,
        detail: error.to_string(),
        faults: vec![fault],
        owner: None,
        epoch: Some(daemon.configured.desired.epoch()),
    }
}

/// Another `[api]` is in force, by a rollback: it holds if it can be had.
fn follow_api(daemon: &mut Daemon, former: &sluice_config::Api) {
    if daemon.configured.config.api == *former {
        return;
    }
    match daemon.operator.server.prepare(&Network::from(&daemon.configured.config.api)) {
        Ok(prepared) => daemon.operator.server.reach(prepared),
        Err(error) => error!("the API over the network stays as it was: {error}"),
    }
}

/// Applies requests that wait together, and publishes what came of them.
pub(crate) fn commit(daemon: &mut Daemon, requests: &[Request]) -> Vec<Result<Applied, Refusal>> {
    let (before, crew) = (Arc::clone(&daemon.dataplane.plan), &daemon.dataplane.crew);
    let (kernel, running) = (daemon.kernel.mirror.state(), &daemon.configured.config);
    let (forced, mut taken) = (Forced::by(requests), Vec::new());
    let mut compile = |config: &Config| {
        taken.clear();
        for (name, text) in OwnPorts::look(kernel).taken(config, Some(running)) {
            if !forced.may(name) {
                return Err(format!("{text}; use another port, or force it"));
            }
            taken.push(text);
        }
        let reports = crew.reports();
        let settled = reports.len() == crew.size()
            && reports.iter().all(|report| report.epoch == before.epoch);
        let retired =
            if settled { retired(&before, &report::total(&reports)) } else { Retired::default() };
        wiring::compile(config, Some(&before), &retired).map_err(|error| error.to_string())
    };
    let Outcome { answers, publish } =
        daemon.configured.desired.commit(requests, now_ms(), &mut compile);
    tell_notes(&mut daemon.configured.desired, &daemon.operator.server);
    if publish.is_some() {
        tell_of_taken(daemon, &taken);
    }
    for (request, answer) in requests.iter().zip(&answers) {
        if let (false, Ok(applied)) = (request.dry_run, answer) {
            daemon.operator.server.note_all(news::applied(&request.by, applied));
        }
    }
    match publish {
        Some(Publish::Whole(config, plan)) => put_in_force(daemon, *config, plan, &answers),
        Some(Publish::Weights(weights)) => weigh(daemon, &weights),
        None => {}
    }
    answers
}

/// What the state has to say, in the log and as events.
pub(crate) fn tell_notes(desired: &mut Desired, server: &sluice_api::Server) {
    for note in desired.take_notes() {
        warn!("{note}");
        server.events().note(model::Event::new(model::EventKind::Config, note));
    }
}

/// Says what services take of the machine's own.
fn tell_of_taken(daemon: &Daemon, taken: &[String]) {
    for text in taken {
        warn!("{text}");
        daemon
            .operator
            .server
            .events()
            .note(model::Event::new(model::EventKind::Config, text.clone()));
    }
}

/// Says so at the start, of whatever was kept or is in the file.
pub(crate) fn warn_of_own_ports(daemon: &Daemon) {
    let taken = OwnPorts::look(daemon.kernel.mirror.state()).taken(&daemon.configured.config, None);
    let texts: Vec<_> = taken.into_iter().map(|(_, text)| text).collect();
    tell_of_taken(daemon, &texts);
}

/// Another configuration is in force than the one that this process began with.
pub(crate) fn catch_up(daemon: &mut Daemon, config: Config) {
    let before = Arc::clone(&daemon.dataplane.plan);
    match wiring::compile(&config, Some(&before), &Retired::default()) {
        Ok(plan) => put_in_force(daemon, config, plan, &[]),
        Err(failure) => error!("what was changed meanwhile cannot be applied: {failure}"),
    }
}

fn put_in_force(
    daemon: &mut Daemon,
    mut config: Config,
    plan: Plan,
    answers: &[Result<Applied, Refusal>],
) {
    daemon.prober.add_ports(&mut config);
    let mut steps = answers.iter().flatten().flat_map(|applied| &applied.changes);
    let tell = steps.any(is_of_section);
    keep_what_needs_a_restart(&mut config, &daemon.configured.config, tell);
    daemon.log.follow(&config.director);
    let former = std::mem::replace(&mut daemon.configured.config, config);
    follow_api(daemon, &former.api);
    daemon.dataplane.plan = daemon.health.follow(&daemon.configured.config, Arc::new(plan));
    if let Some(kept) = &mut daemon.dataplane.kept {
        kept.follow(&daemon.dataplane.plan);
    }
    // First the workers learn of a service, then its packets come.
    daemon.follow_kernel();
    daemon.keep_neighbours();
    daemon.steer();
}

/// Other weights: neither routes nor checks depend on them.
fn weigh(daemon: &mut Daemon, weights: &[Weight]) {
    let (plan, health) = (&daemon.dataplane.plan, &daemon.health);
    let ids = weights.iter().map(|it| (health.id(&it.service, it.real), it.weight));
    let found: Vec<_> = ids.filter_map(|(id, weight)| Some((id?, weight))).collect();
    for (id, weight) in &found {
        let Some(real) = plan.real(*id) else { continue };
        let place = plan.service(real.service).map(|service| service.position);
        let service = place.and_then(|place| daemon.configured.config.services.get_mut(place));
        if let Some(it) = service.and_then(|it| it.reals.get_mut(real.position as usize)) {
            it.weight = *weight;
        }
    }
    daemon.revise(plan.with_weights(&found));
}

fn is_of_section(change: &Change) -> bool {
    match change {
        Change::Object { key, .. } => key.kind == Kind::Section,
        _ => false,
    }
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Tombstones that no session uses, and no client is bound to: an id that is given again is
/// another real server's, of another service maybe. No worker opens a session to one, so once there
/// is none there will be none.
fn retired(plan: &Plan, total: &Counters) -> Retired {
    let used = |id: usize| total.reals.get(id).is_some_and(RealCounters::is_used);
    let mut busy = HashSet::new();
    let mut retired = Retired::default();
    for (id, real) in plan.reals.iter().enumerate() {
        if real.live || used(id) {
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

/// Takes from the running configuration what cannot change while it runs, and says so when it
/// has just been asked for.
fn keep_what_needs_a_restart(new: &mut Config, running: &Config, tell: bool) {
    let (level, format) = (new.director.log_level, new.director.log_format);
    new.director.log_level = running.director.log_level;
    new.director.log_format = running.director.log_format;
    for (section, differs) in [
        ("[director] (but log_level and log_format)", new.director != running.director),
        ("[limits]", new.limits != running.limits),
        ("[sync]", new.sync != running.sync),
        ("[announce]", new.announce != running.announce),
        ("[[network]]", new.networks != running.networks),
        ("[[port]]", new.ports != running.ports),
    ] {
        if differs && tell {
            warn!("the change of {section} takes effect when the director is restarted");
        }
    }
    new.director = running.director.clone();
    new.director.log_level = level;
    new.director.log_format = format;
    new.limits = running.limits;
    new.sync.clone_from(&running.sync);
    new.announce.clone_from(&running.announce);
    new.networks.clone_from(&running.networks);
    new.ports.clone_from(&running.ports);
}
