//! The life of one check: its machine, its probe, and the cell where others see how it stands.

use crate::probe::{Tools, probe};
use crate::spec::Spec;
use sluice_health::{Check, Finding, Output, State, Transition};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How a check stands.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Whose health, and how it is found out.
    pub spec: Arc<Spec>,
    /// What is known.
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// The evidence of the last change; empty before the first.
    pub reason: String,
    /// The last finding, and how long it took to find.
    pub last: Option<(Finding, Duration)>,
    /// When the next probe is due; `None` while one is under way.
    pub next: Option<Instant>,
    /// Probes so far.
    pub probes: u64,
}

/// The cell of one check.
#[derive(Debug)]
pub(crate) struct Cell(Mutex<Shown>);

impl Cell {
    pub fn new(spec: Arc<Spec>, before: Option<&Shown>) -> Self {
        let shown = match before {
            Some(before) => Shown { spec, ..before.clone() },
            None => Shown {
                spec,
                state: State::Unknown,
                since: Instant::now(),
                reason: String::new(),
                last: None,
                next: None,
                probes: 0,
            },
        };
        Self(Mutex::new(shown))
    }

    pub fn get(&self) -> Shown {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Hears of a change.
type Tell = dyn Fn(&Spec, Transition) + Send + Sync;

/// What all checks of a runner share.
pub(crate) struct Shared {
    pub tools: Tools,
    /// Probes at a time.
    pub places: Arc<Semaphore>,
    /// Hears of each change.
    pub tell: Box<Tell>,
}

type Probing<'s> = Pin<Box<dyn Future<Output = Finding> + Send + 's>>;

/// A probe under way, and its place among those at a time.
struct Running<'s> {
    number: u64,
    work: Probing<'s>,
    _place: Option<OwnedSemaphorePermit>,
}

/// Something else than a probe has found a real server down.
#[derive(Debug)]
pub(crate) struct Sentence {
    /// How long passes count for nothing.
    pub hold: Duration,
    /// The evidence.
    pub reason: String,
}

/// Checks until the task is aborted.
pub(crate) async fn check(
    spec: Arc<Spec>,
    cell: Arc<Cell>,
    shared: Arc<Shared>,
    mut sentences: UnboundedReceiver<Sentence>,
) {
    let epoch = Instant::now();
    let known = cell.get().state;
    let mut machine = Check::new(spec.rules.clone(), known, seed(&spec), Duration::ZERO);
    let mut running: Option<Running<'_>> = None;
    loop {
        let mut place = None;
        if running.is_none() && machine.poll_timeout() <= epoch.elapsed() {
            // A check that has to wait for its turn is late, and nothing else.
            place = Arc::clone(&shared.places).acquire_owned().await.ok();
        }
        while let Some(output) = machine.poll_output(epoch.elapsed()) {
            match output {
                Output::Begin { probe: number } => {
                    cell.set(|shown| shown.probes += 1);
                    let work = Box::pin(probe(&spec, &shared.tools, number));
                    running = Some(Running { number, work, _place: place.take() });
                }
                Output::Abandon { .. } => running = None,
                Output::Turned(transition) => {
                    show(&cell, &machine, epoch, Some(&transition));
                    (shared.tell)(&spec, transition);
                }
            }
        }
        show(&cell, &machine, epoch, None);
        let timer = tokio::time::sleep_until((epoch + machine.poll_timeout()).into());
        match &mut running {
            None => {
                tokio::select! {
                    Some(Sentence { hold, reason }) = sentences.recv() => {
                        machine.condemn(epoch.elapsed(), hold, reason);
                    }
                    () = timer => {}
                }
            }
            Some(Running { number, work, .. }) => {
                tokio::select! {
                    Some(Sentence { hold, reason }) = sentences.recv() => {
                        machine.condemn(epoch.elapsed(), hold, reason);
                    }
                    finding = work => {
                        let number = *number;
                        running = None;
                        machine.handle(epoch.elapsed(), number, finding);
                    }
                    () = timer => {}
                }
            }
        }
    }
}

fn show(cell: &Cell, machine: &Check, epoch: Instant, turned: Option<&Transition>) {
    let last = machine.past().next_back();
    cell.set(|shown| {
        shown.state = machine.state();
        if let Some(turned) = turned {
            shown.since = epoch + turned.at;
            shown.reason.clone_from(&turned.reason);
        }
        if let Some(last) = last {
            shown.last = Some((last.finding.clone(), last.took));
        }
        shown.next = machine.next().map(|at| epoch + at);
    });
}

/// The same for the same real server each time, so that a restart keeps checks apart as they were.
fn seed(spec: &Spec) -> u64 {
    let mut hasher = DefaultHasher::new();
    spec.key.hash(&mut hasher);
    hasher.finish()
}
