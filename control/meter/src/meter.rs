//! Takes the samples, and answers from them.

use crate::families;
use crate::history::{History, Totals, unix_ms};
use crate::ledger::Ledger;
use crate::networks;
use crate::page::Page;
use crate::process::Process;
use crate::rows::{self, Tags};
use crate::sample::{Checks, Sample, WorkerFigures};
use bytes::Bytes;
use sluice_api::Exposition;
use sluice_api::model::{Rates, RatesQuery};
use sluice_director::counters::Counters;
use sluice_director::reason::{Fate, Reason};

/// What does not change while a director runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the program.
    pub version: &'static str,
    /// When it started, in milliseconds since 1970.
    pub began_unix_ms: u64,
}

/// What the samples add up to.
#[derive(Debug)]
pub struct Meter {
    identity: Identity,
    ledger: Ledger,
    history: History,
    tags: Tags,
    latest: Option<Sample>,
    /// What all workers counted when all answered last, without services and real servers.
    counters: Counters,
    /// Cores, whether workers answered, and what they said last.
    workers: Vec<(u16, bool, WorkerFigures)>,
    /// When the file was last accepted, in milliseconds since 1970.
    reloaded_unix_ms: u64,
    /// The pages of the latest sample that were asked for.
    pages: [Option<Bytes>; 2],
    /// How long the last page was.
    room: usize,
}

impl Meter {
    /// Nothing counted yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            reloaded_unix_ms: identity.began_unix_ms,
            identity,
            ledger: Ledger::default(),
            history: History::default(),
            tags: Tags::default(),
            latest: None,
            counters: Counters::default(),
            workers: Vec::new(),
            pages: [None, None],
            room: 0,
        }
    }

    /// Takes a sample.
    pub fn take(&mut self, mut sample: Sample) {
        self.pages = [None, None];
        if let Some(reload) = sample.last_reload.as_ref().filter(|reload| reload.ok) {
            self.reloaded_unix_ms = reload.at_unix_s * 1000;
        }
        self.workers.resize(sample.workers.len(), Default::default());
        for (known, worker) in self.workers.iter_mut().zip(&mut sample.workers) {
            known.0 = worker.core;
            known.1 = worker.figures.is_some();
            if let Some(figures) = worker.figures.take() {
                known.2 = figures;
            }
        }
        let before = self.latest.as_ref().and_then(|latest| latest.ha.sync.as_ref());
        if let (Some(sync), Some(before)) = (&mut sample.ha.sync, before) {
            // It lacks what workers counted that did not answer.
            sync.ends_unreported = sync.ends_unreported.max(before.ends_unreported);
        }
        if let Some(counters) = sample.counters.take() {
            self.ledger.add(&sample.plan, &counters);
            self.counters = Counters { reals: Vec::new(), services: Vec::new(), ..counters };
            self.tags.follow(&sample.plan, &self.ledger);
            let now = unix_ms(self.identity.began_unix_ms, sample.at);
            self.history.note(now, self.totals(), self.ledger.owners());
            self.latest = Some(sample);
        } else if let Some(latest) = &mut self.latest {
            // The ledger is that of the plan before.
            let (plan, full) = (latest.plan.clone(), std::mem::take(&mut latest.full));
            *latest = Sample { plan, full, ..sample };
        }
    }

    fn totals(&self) -> Totals {
        let reasons = Reason::ALL.iter().filter(|reason| reason.fate() == Fate::Dropped);
        let said = || self.workers.iter().map(|(_, _, said)| said);
        Totals {
            forwarded: *self.ledger.all(),
            sessions: said().map(|said| said.sessions).sum(),
            received: said().map(|said| said.packets).sum(),
            dropped: reasons.map(|reason| self.counters.of(*reason)).sum(),
            workers: said().map(|said| said.work).collect(),
        }
    }

    /// The page of the latest sample, written if nobody has asked for it yet. `checks` and
    /// `process` are only asked for then. Nothing before the first sample.
    pub fn page(
        &mut self,
        exposition: Exposition,
        checks: impl FnOnce() -> Checks,
        process: impl FnOnce() -> Option<Process>,
    ) -> Option<Bytes> {
        let place = usize::from(exposition == Exposition::OpenMetrics);
        if self.pages[place].is_none() {
            let page = self.write(exposition, checks, process)?;
            self.room = page.len() + page.len() / 16;
            self.pages[place] = Some(page.into());
        }
        self.pages[place].clone()
    }

    fn write(
        &self,
        exposition: Exposition,
        checks: impl FnOnce() -> Checks,
        process: impl FnOnce() -> Option<Process>,
    ) -> Option<Vec<u8>> {
        let sample = self.latest.as_ref()?;
        let seconds = |ms: u64| ms as f64 / 1e3;
        let began = self.identity.began_unix_ms;
        let mut page = Page::new(exposition, self.room);
        let times = [unix_ms(began, sample.at), self.reloaded_unix_ms].map(seconds);
        rows::director(&mut page, sample, self.identity.version, times);
        page.one(&families::HISTORY_BYTES, self.history.bytes() as u64);
        rows::sessions(&mut page, &self.counters, &self.workers);
        networks::rows(&mut page, &sample.plan, &self.workers);
        rows::balanced(&mut page, sample, &self.ledger, &self.tags);
        if sample.real_servers {
            rows::checks(&mut page, &checks());
        }
        rows::workers(&mut page, &self.workers);
        rows::ports(&mut page, &sample.ports.ports);
        rows::addresses(&mut page, &sample.ha);
        if let Some(sync) = &sample.ha.sync {
            rows::synchronisation(&mut page, sync);
        }
        if let Some(found) = process() {
            rows::process(&mut page, &found, seconds(began));
        }
        Some(page.finish())
    }

    /// Part of the last hour; or the names that there are, if there is no such service.
    ///
    /// # Errors
    /// The names of all services and rules of source NAT.
    pub fn rates(&self, query: &RatesQuery, now_ms: u64) -> Result<Rates, Vec<String>> {
        let names = || self.ledger.owners().iter().map(|owner| owner.name.to_string());
        match &query.service {
            Some(name) if !names().any(|known| known == *name) => Err(names().collect()),
            _ => Ok(self.history.rates(query, now_ms)),
        }
    }
}
