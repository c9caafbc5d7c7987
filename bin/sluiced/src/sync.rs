//! Session synchronisation: a thread between the workers and the other directors.
//!
//! Workers tell which of their sessions have changed by rings ([`sluice_worker::Outbox`]). The
//! thread gives them to the protocol ([`sluice_sync::Endpoint`]), which decides what is sent when,
//! and gives what peers tell to the workers whose sessions those are here.
//!
//! Everything is bounded. A peer that cannot keep up stops the stream until it is given up waiting
//! for; then rings fill, and changes wait in the workers' tables, where the sweep finds them again.
//! Workers that cannot keep up with what peers tell stop the acknowledgements.

mod keys;
mod link;
pub mod records;
mod sockets;

use crate::crew::Crew;
use crate::errors::{Error, system};
use link::Link;
use sluice_api::EventLog;
use sluice_api::model::HaSync;
use sluice_config::SessionSync;
use sluice_director::path::Owners;
use sluice_director::plan::{Plan, RealId};
use sluice_director::spec::NetworkId;
use sluice_linux::Mirror;
use sluice_sync::{Endpoint, Standing};
use sluice_worker::{Message, Outbox, Published, Report, Wake};
use sockets::Sockets;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tracing::info;

/// What the thread is told.
enum Command {
    /// These are the plans from now on.
    Plans(Plans),
    /// This director stands so.
    Stand(Standing),
    /// End.
    Stop,
}

/// A plan, and its part in each network, by number.
#[derive(Clone)]
pub struct Plans {
    pub whole: Arc<Plan>,
    pub of_networks: Vec<Arc<Plan>>,
}

impl Plans {
    /// A plan, and what workers have of it.
    pub fn new(whole: &Arc<Plan>, published: &Published) -> Self {
        Self { whole: Arc::clone(whole), of_networks: Self::parts(published) }
    }

    /// The parts that workers have: the default network's first.
    pub fn parts(published: &Published) -> Vec<Arc<Plan>> {
        let snapshots = std::iter::once(&published.default).chain(&published.isolated);
        snapshots.map(|snapshot| Arc::clone(&snapshot.plan)).collect()
    }

    /// The network that a real server is in.
    pub fn network_of(&self, real: RealId) -> Option<NetworkId> {
        let plan = &self.whole;
        Some(plan.service(plan.real(real)?.service)?.network)
    }
}

/// What the thread shows; absent before it has begun.
type Board = Arc<Mutex<Option<HaSync>>>;

/// The thread.
pub struct Synchroniser {
    commands: Sender<Command>,
    wake: Wake,
    board: Board,
    /// Whether the sessions of the others came from a process that had them.
    inherited: bool,
    thread: Option<JoinHandle<()>>,
}

impl Synchroniser {
    /// Starts to synchronise, if it is configured. `seed` is that of the workers' session hash;
    /// `inherited` says that a process before had the sessions of the others, and this one has them
    /// from there; `mirror` says which interface has the address.
    pub fn start(
        config: &SessionSync,
        (plans, seed, inherited): (Plans, u64, bool),
        (crew, mirror): (&Crew, &Mirror),
        events: &Arc<EventLog>,
    ) -> Result<Option<Self>, Error> {
        let Some(listen) = config.listen else { return Ok(None) };
        let sockets = Sockets::open(config, listen, mirror.state())?;
        let endpoint = Endpoint::new(keys::settings(config)?)?;
        let wake = Wake::new().map_err(system("make an eventfd"))?;
        let workers = crew.inboxes();
        let mut rings = Vec::new();
        for worker in &workers {
            let (outbox, ring) = Outbox::new(wake.clone());
            worker.send(Message::TellBy(outbox));
            rings.push(ring);
        }
        let owners = Owners::new(seed, workers.len() as u16);
        let (commands, told) = channel();
        let board = Board::default();
        let mut link = Link::new(sockets, config, endpoint, (workers, rings), owners);
        link.follow(plans);
        let (own_wake, shown, events) = (wake.clone(), Arc::clone(&board), Arc::clone(events));
        let thread = std::thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || link.run(&own_wake, &told, &shown, &events))
            .map_err(system("start a thread"))?;
        info!(%listen, peers = ?config.peers, "sessions are synchronised");
        Ok(Some(Self { commands, wake, board, inherited, thread: Some(thread) }))
    }

    /// Follows plans that are about to be published.
    pub fn follow(&self, plans: Plans) {
        // Without the thread there is nobody to know them.
        let _ = self.commands.send(Command::Plans(plans));
        self.wake.wake();
    }

    /// Tells the others how this director stands.
    pub fn stand(&self, standing: Standing) {
        let _ = self.commands.send(Command::Stand(standing));
    }

    /// Whether this director has the sessions of the others.
    pub fn is_synchronised(&self) -> bool {
        let shown = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        self.inherited || shown.as_ref().is_some_and(|shown| shown.synchronised)
    }

    /// How it stands, with what workers report.
    pub fn shown(&self, reports: &[Report]) -> Option<HaSync> {
        let shown = self.board.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let synchronised = self.is_synchronised();
        shown.map(|shown| HaSync { synchronised, ..with_reports(shown, reports) })
    }
}

/// Adds what workers report.
fn with_reports(shown: HaSync, reports: &[Report]) -> HaSync {
    let ends_unreported = reports.iter().map(|report| report.untold).sum();
    let reports_waiting = reports.iter().map(|report| report.untaken).sum();
    HaSync { ends_unreported, reports_waiting, ..shown }
}

impl Drop for Synchroniser {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        self.wake.wake();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread of session synchronisation had panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::{HaDatagrams, HaReports};

    #[test]
    fn what_waits_at_workers_is_shown() {
        let listen = ([192, 0, 2, 1], 8848).into();
        let shown = HaSync {
            listen,
            synchronised: true,
            pulling_from: None,
            pulled: 0,
            peers: Vec::new(),
            reports_waiting: 0,
            reports_sent: 5,
            reports_received: HaReports::default(),
            ends_unreported: 0,
            datagrams: HaDatagrams::default(),
        };
        let report = |untold, untaken| Report { untold, untaken, ..Report::default() };
        let shown = with_reports(shown, &[report(1, 20), report(2, 300)]);
        assert_eq!((shown.reports_waiting, shown.ends_unreported), (320, 3));
        assert_eq!(shown.reports_sent, 5);
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["reports_waiting"], 320);
    }
}
