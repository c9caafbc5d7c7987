//! The source of IPVS's programs: what they ask is answered from the desired state and the
//! counters, what they change is a change as any other.

mod connections;
mod figures;
mod many;

use crate::change;
use crate::daemon::Daemon;
use crate::report;
pub(crate) use figures::Figures;
use sluice_api::model::{Event, EventKind};
use sluice_ipvs::{Answer, Errno, Info, Reply, Request, Service, ServiceKey, Timeouts};
use sluice_ipvs_source::Refused;
use sluice_state::{Author, Edit, Request as Wish, What};
use std::time::{Duration, Instant};
use tracing::warn;

/// IPVS's version that the director speaks as: 1.2.1.
const VERSION: u32 = 0x01_02_01;
/// Buckets of the kernel's table of connections unless somebody chose another number.
const TABLE_SIZE: u32 = 4096;

/// A request, who asks, and where the answer goes.
pub(crate) type Asked = (Box<Request>, Author, sluice_api::Reply<Answer>);

/// Answers a request; connections from a thread of their own.
pub(crate) fn answer(daemon: &mut Daemon, (request, by, reply): Asked) {
    if let Request::Connections { cursor } = *request {
        return daemon.lister().connections(cursor, reply);
    }
    let answer = match ask(daemon, &request, by.clone()) {
        Ok(reply) => Answer::Ok(reply),
        Err(refused) => refused.into(),
    };
    for (errno, detail) in refusals(&request, &answer) {
        daemon.say_refused(errno, detail, &by);
    }
    // Whoever asked may not wait any more.
    let _ = reply.send(answer);
}

/// Changes that were refused, with the director's reasons.
fn refusals<'a>(request: &Request, answer: &'a Answer) -> Vec<(Errno, &'a str)> {
    let of = |request: &Request, answer: &'a Answer| match answer {
        Answer::Refused { errno, detail } if request.changes() => Some((*errno, &**detail)),
        _ => None,
    };
    match (request, answer) {
        (Request::Many(requests), Answer::Ok(Reply::Many(answers))) => {
            requests.iter().zip(answers).filter_map(|(one, answer)| of(one, answer)).collect()
        }
        _ => of(request, answer).into_iter().collect(),
    }
}

/// Events of refused changes: [`Self::MOST`] a minute. A program that asks in vain again and again
/// does not push out what else has happened.
#[derive(Debug, Default)]
pub(crate) struct RefusedEvents {
    began: Option<Instant>,
    told: u32,
}

impl RefusedEvents {
    const MOST: u32 = 20;
    const PERIOD: Duration = Duration::from_secs(60);

    /// Whether one more may be noted.
    fn admits(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= Self::PERIOD) {
            (self.began, self.told) = (Some(now), 0);
        }
        self.told = self.told.saturating_add(1);
        self.told <= Self::MOST
    }
}

fn ask(daemon: &mut Daemon, request: &Request, by: Author) -> Result<Reply, Refused> {
    let state = daemon.configured.desired.state();
    Ok(match request {
        Request::Info => {
            let services = sluice_ipvs_source::services(state).len() as u32;
            Reply::Info(Info { version: VERSION, table_size: TABLE_SIZE, services })
        }
        Request::Services => Reply::Services(counted(daemon, sluice_ipvs_source::services(state))),
        Request::Matches => Reply::Services(counted(daemon, sluice_ipvs_source::matches(state))),
        Request::Service(key) => {
            Reply::Services(counted(daemon, vec![sluice_ipvs_source::service(state, key)?]))
        }
        Request::Timeouts => {
            let held = daemon.configured.config.ipvs.onto(daemon.configured.config.timeouts);
            Reply::Timeouts(Timeouts {
                tcp_s: held.tcp_established_s,
                tcp_fin_s: held.tcp_fin_wait_s,
                udp_s: held.udp_s,
            })
        }
        Request::Daemons => Reply::Daemons(sluice_ipvs_source::daemons(state)),
        Request::LocalAddresses(key) => {
            Reply::LocalAddresses(sluice_ipvs_source::local_addresses(state, key.as_ref())?)
        }
        Request::Listed(list, key) => {
            Reply::Listed(sluice_ipvs_source::lists(state, *list, key.as_ref())?)
        }
        Request::Many(requests) => Reply::Many(many::change(daemon, requests, &by)),
        request => change_by(daemon, request, &by)?,
    })
}

fn change_by(daemon: &mut Daemon, request: &Request, by: &Author) -> Result<Reply, Refused> {
    let edits = sluice_ipvs_source::edits(daemon.configured.desired.state(), request)?;
    if let Request::Zero(key) = request {
        look(daemon);
        let services = match key {
            Some(key) => vec![sluice_ipvs_source::service(daemon.configured.desired.state(), key)?],
            None => {
                let state = daemon.configured.desired.state();
                [sluice_ipvs_source::services(state), sluice_ipvs_source::matches(state)].concat()
            }
        };
        daemon.operator.figures.zero(services.iter().map(|service| &*service.name));
        return Ok(Reply::Done);
    }
    if !edits.is_empty() {
        commit(daemon, edits, by)?;
        tell(daemon, request, by);
    }
    Ok(Reply::Done)
}

fn commit(daemon: &mut Daemon, edits: Vec<Edit>, by: &Author) -> Result<(), Refused> {
    let what = What::Edits(edits);
    let wish = Wish { by: by.clone(), if_epoch: None, dry_run: false, force: false, what };
    change::commit(daemon, &[wish]).remove(0)?;
    Ok(())
}

/// Says so when what was done does nothing.
fn tell(daemon: &Daemon, request: &Request, by: &Author) {
    if let Some(text) = without_effect(request) {
        warn!(%by, "{text}");
        let event = Event { author: Some(by.clone()), ..Event::new(EventKind::Config, text) };
        daemon.operator.server.events().note(event);
    }
}

/// What is kept and listed, and does nothing.
fn without_effect(request: &Request) -> Option<String> {
    match request {
        Request::AddService(spec) => match spec.key {
            ServiceKey::Mark { mark, .. } => Some(format!(
                "the service of firewall mark {mark} is kept and takes no packets: the director \
                 has them before netfilter could mark any; make a service of address and port"
            )),
            ServiceKey::Address { .. } | ServiceKey::Match(_) => None,
        },
        Request::StartDaemon(_) => Some(
            "the daemon of the synchronisation is kept and listed, but this director does not \
             synchronise sessions"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Takes what was counted until now.
fn look(daemon: &mut Daemon) {
    let reports = daemon.dataplane.crew.reports();
    daemon.take_figures(&reports);
}

/// The services with their figures.
fn counted(daemon: &mut Daemon, mut services: Vec<Service>) -> Vec<Service> {
    look(daemon);
    daemon.operator.figures.put_on(&mut services);
    services
}

impl Daemon {
    /// Says why a change was refused: stock programs have one sentence for many reasons.
    fn say_refused(&mut self, errno: Errno, detail: &str, by: &Author) {
        let detail = detail.replace('\n', "; ");
        warn!(%by, ?errno, "refused: {detail}");
        if self.operator.refused_events.admits(Instant::now()) {
            let event = Event::new(EventKind::Config, format!("refused: {detail}"));
            self.operator.server.events().note(Event { author: Some(by.clone()), ..event });
        }
    }

    /// Adds what the workers have counted, if all of them tell of the plan that is in force.
    pub fn take_figures(&mut self, reports: &[sluice_worker::Report]) {
        let settled = reports.len() == self.dataplane.crew.size()
            && reports.iter().all(|report| report.epoch == self.dataplane.plan.epoch);
        if settled {
            self.operator.figures.take(
                self.started.elapsed(),
                &self.dataplane.plan,
                &report::total(reports),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_ipvs::Role;

    #[test]
    fn only_refused_changes_are_told_and_only_so_many() {
        let no = |text: &str| Answer::Refused { errno: Errno::Inval, detail: text.to_owned() };
        assert!(refusals(&Request::Services, &no("a question")).is_empty());
        let stop = || Request::StopDaemon(Role::Master);
        let many = Request::Many(vec![stop(), stop(), stop()]);
        let done = Answer::Ok(Reply::Done);
        let answers = Answer::Ok(Reply::Many(vec![no("one"), done, no("two")]));
        let told = refusals(&many, &answers);
        assert_eq!(told, [(Errno::Inval, "one"), (Errno::Inval, "two")]);
        let (mut events, begin) = (RefusedEvents::default(), Instant::now());
        let noted = (0..1000).filter(|_| events.admits(begin)).count();
        assert_eq!(noted, RefusedEvents::MOST as usize);
        assert!(events.admits(begin + RefusedEvents::PERIOD));
    }
}
