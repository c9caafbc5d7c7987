//! Changes as transactions: staged, checked as a whole, compiled, written, in force.
//!
//! Requests that wait are taken together: one check, one plan and one sync serve all of them,
//! while each has its own epoch and its own answer. When the whole is wrong, halves are tried, so
//! that one bad request costs the others little and never their success.

use std::net::SocketAddr;
use std::path::Path;

use sluice_config::{Config, ConfigErrors, Diagnostic};

use crate::change::Change;
use crate::disk::{self, Journal, OpenError, Recovered};
use crate::edit::{self, Edit, FileContent, Request, What};
use crate::history::{Epoch, HISTORY_BYTES, History};
use crate::object::{Author, Key, Kind, Source};
use crate::refusal::{Refusal, RefusalKind, pointer_of};
use crate::state::State;
use crate::typed::Typed;
use crate::view::{Entry, View};
use crate::words;

/// The desired state with its history, and where both are kept.
#[derive(Debug, Default)]
pub struct Desired {
    state: State,
    history: History,
    typed: Typed,
    journal: Option<Journal>,
    notes: Vec<String>,
    differs_from_file: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The epoch that it made; without changes the one that is in force.
    pub epoch: u64,
    /// What changed, in a line; empty when nothing did.
    pub summary: String,
    /// Each step.
    pub changes: Vec<Change>,
    /// Whether it survives a restart.
    pub durable: bool,
}

/// What became of requests: an answer for each, and what is to be put in force.
#[derive(Debug)]
pub struct Outcome<P> {
    /// In the order of the requests.
    pub answers: Vec<Result<Applied, Refusal>>,
    /// What is to be put in force, if anything changed.
    pub publish: Option<Publish<P>>,
}

/// What is to be put in force.
#[derive(Debug)]
pub enum Publish<P> {
    /// A configuration, and what was compiled of it.
    Whole(Box<Config>, P),
    /// Other weights of some real servers and nothing else: that needs no compiling.
    Weights(Vec<Weight>),
}

/// The weight of a real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its service.
    pub service: String,
    /// Its address and port.
    pub real: SocketAddr,
    /// 0 while it drains.
    pub weight: u16,
}

/// A request whose steps have been taken.
struct Staged<'r> {
    place: usize,
    request: &'r Request,
    changes: Vec<Change>,
}

/// Compiles a configuration, or says why not.
type Compile<'c, P> = &'c mut dyn FnMut(&Config) -> Result<P, String>;

impl Desired {
    /// What a state directory holds.
    ///
    /// # Errors
    ///
    /// When its journal may not be used. When it cannot be, the state is empty and lives only as
    /// long as this does, and a note says so.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        match Journal::open(folder) {
            Ok((journal, Recovered { state, history, notes })) => {
                let journal = Some(journal);
                let mut desired = Self { state, history, journal, notes, ..Self::default() };
                desired.compare_with_file();
                Ok(desired)
            }
            Err(error @ OpenError::Unusable { .. }) => {
                let note = format!("{error}: changes made at run time will not survive a restart");
                Ok(Self { notes: vec![note], ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// What a state directory holds that another director has open, and goes on changing. It lives
    /// only as long as this does, whatever is changed in it.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is of a later version.
    pub fn peek(folder: &Path) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Unusable { path: folder.to_owned(), source };
        let Recovered { state, history, notes } = disk::peek(folder).map_err(unusable)?;
        let mut desired = Self { state, history, notes, ..Self::default() };
        desired.compare_with_file();
        Ok(desired)
    }

    /// Puts the journal aside, since its state is not right any more, and begins with an empty one.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn begin_anew(self, folder: &Path, why: &Refusal) -> Result<Self, OpenError> {
        // Gives the lock back.
        drop(self);
        let aside = disk::put_wrong_aside(folder);
        let aside =
            aside.map_err(|source| OpenError::Unusable { path: folder.to_owned(), source })?;
        let mut desired = Self::open(folder)?;
        desired.notes.push(format!(
            "the state that was kept is refused and is not in force: {why}; it was kept as {}, and \
             only what the file says holds",
            aside.display()
        ));
        Ok(desired)
    }

    /// What an operator should know and was not told yet.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The epoch that is in force.
    pub const fn epoch(&self) -> u64 {
        self.history.last()
    }

    /// What was applied.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Whether the file's objects are not what it said when it was last read.
    pub const fn differs_from_file(&self) -> bool {
        self.differs_from_file
    }

    fn compare_with_file(&mut self) {
        let own = self.state.in_order().into_iter().filter(|it| it.1.owner.source == Source::File);
        let document = crate::view::document(own.map(|(key, object)| (key, &*object.value)));
        let digest = edit::digest(&document);
        self.differs_from_file = self.state.file().is_some_and(|file| file != digest);
    }

    /// Whether changes survive a restart.
    pub const fn is_durable(&self) -> bool {
        self.journal.is_some()
    }

    /// Everything, as it is shown.
    pub fn view(&self) -> View {
        let objects = self.state.in_order().into_iter();
        View {
            epoch: self.epoch(),
            durable: self.journal.is_some(),
            differs_from_file: self.differs_from_file,
            objects: objects.map(|(key, object)| Entry::of(&self.state, key, object)).collect(),
        }
    }

    /// One object, as it is shown.
    ///
    /// # Errors
    ///
    /// When there is none of this name.
    pub fn entry(&self, key: &Key) -> Result<Entry, Refusal> {
        let object = self.state.object(key).ok_or_else(|| Refusal::not_found(key))?;
        Ok(Entry::of(&self.state, key, object))
    }

    /// The state as it is, compiled: for the start.
    ///
    /// # Errors
    ///
    /// When it is not right any more, as after a change of version.
    pub fn present<P>(&mut self, compile: Compile<'_, P>) -> Result<(Config, P), Refusal> {
        self.compiled(&[], true, compile)
    }

    /// Whether this is the file that was read last.
    pub fn has_read(&self, file: &FileContent) -> bool {
        self.state.file() == Some(file.digest())
    }

    /// What was read of a file: objects that are in the state just so need not be read again.
    pub fn learn(&mut self, file: &FileContent) {
        self.typed.learn(&self.state, file);
    }

    /// Applies requests in their order, each wholly or not at all.
    pub fn commit<P>(
        &mut self,
        requests: &[Request],
        now_unix_ms: u64,
        compile: Compile<'_, P>,
    ) -> Outcome<P> {
        let nothing = || Err(Refusal::new(RefusalKind::Invalid, "nothing was asked for"));
        let answers = requests.iter().map(|_| nothing()).collect();
        let mut outcome = Outcome { answers, publish: None };
        let together =
            |request: &Request| matches!(request.what, What::Edits(_)) && !request.dry_run;
        let mut from = 0;
        while from < requests.len() {
            let run = requests[from..].iter().take_while(|request| together(request)).count();
            let until = from + run.max(1);
            let group: Vec<_> = (from..until).map(|at| (at, &requests[at])).collect();
            self.group(&group, now_unix_ms, compile, &mut outcome);
            from = until;
        }
        self.tidy_journal();
        outcome
    }

    fn group<P>(
        &mut self,
        requests: &[(usize, &Request)],
        now_unix_ms: u64,
        compile: Compile<'_, P>,
        outcome: &mut Outcome<P>,
    ) {
        let staged = self.stage(requests, &mut outcome.answers);
        let Some(first) = staged.first() else { return };
        if first.request.dry_run {
            let checked = self.compiled(&staged, true, compile);
            self.undo(&staged);
            for one in staged {
                outcome.answers[one.place] = checked
                    .as_ref()
                    .map_err(Refusal::clone)
                    .map(|_| self.applied(one.request, one.changes, self.epoch()));
            }
            return;
        }
        if let Some(weights) = self.weights(&staged, outcome.publish.as_ref()) {
            if self.write(staged, now_unix_ms, &mut outcome.answers) {
                outcome.publish = Some(Publish::Weights(weights));
            }
            return;
        }
        let whole = staged.iter().flat_map(|one| &one.changes);
        let whole = whole.into_iter().any(|change| !matches!(change, Change::Override { .. }));
        for one in &staged {
            if let What::File(file) = &one.request.what {
                self.typed.learn(&self.state, file);
            }
        }
        match self.compiled(&staged, whole, compile) {
            Ok(publish) => {
                if self.write(staged, now_unix_ms, &mut outcome.answers) {
                    outcome.publish = Some(Publish::Whole(Box::new(publish.0), publish.1));
                }
            }
            Err(refusal) if staged.len() == 1 => {
                self.undo(&staged);
                outcome.answers[first.place] = Err(refusal);
            }
            Err(_) => {
                self.undo(&staged);
                let (one, other) = requests.split_at(requests.len() / 2);
                self.group(one, now_unix_ms, compile, outcome);
                self.group(other, now_unix_ms, compile, outcome);
            }
        }
    }

    /// The weights that are others, besides those that were before in the same turn, if no step
    /// changes anything else.
    fn weights<P>(
        &self,
        staged: &[Staged<'_>],
        before: Option<&Publish<P>>,
    ) -> Option<Vec<Weight>> {
        let mut weights = match before {
            None => Vec::new(),
            Some(Publish::Weights(weights)) => weights.clone(),
            Some(Publish::Whole(..)) => return None,
        };
        for change in staged.iter().flat_map(|one| &one.changes) {
            let Change::Override { service, real, before, .. } = change else { return None };
            let weight = self.typed.weight(&self.state, (service, *real), *before)?;
            weights.push(Weight { service: service.clone(), real: *real, weight });
        }
        Some(weights)
    }

    /// Takes the steps of requests, and answers those that may not be or that change nothing.
    fn stage<'r>(
        &mut self,
        requests: &[(usize, &'r Request)],
        answers: &mut [Result<Applied, Refusal>],
    ) -> Vec<Staged<'r>> {
        let mut staged: Vec<Staged<'r>> = Vec::new();
        for &(place, request) in requests {
            let epoch = self.epoch() + staged.len() as u64;
            let stale = request.if_epoch.filter(|wanted| *wanted != epoch);
            let steps = match stale {
                Some(wanted) => Err(Refusal::stale(wanted, epoch)),
                None => self.steps(request),
            };
            match steps {
                Err(refusal) => answers[place] = Err(refusal),
                Ok(changes) if changes.is_empty() => {
                    answers[place] = Ok(self.applied(request, changes, epoch));
                }
                Ok(changes) => staged.push(Staged { place, request, changes }),
            }
        }
        staged
    }

    fn steps(&mut self, request: &Request) -> Result<Vec<Change>, Refusal> {
        match &request.what {
            What::Edits(edits) => edit::stage(&mut self.state, &request.by, edits),
            What::File(file) => edit::stage_file(&mut self.state, file),
            What::Rollback(number) => match self.history.state_at(*number, &self.state) {
                Some(target) => edit::stage_rollback(&mut self.state, &target),
                None => {
                    let (first, last) = self.history.reach();
                    let dropped = if *number < first { "; older ones were dropped" } else { "" };
                    let detail = format!(
                        "there is no way back to epoch {number}: epochs {first} to {last} are \
                         known{dropped} (`sluice config history`)"
                    );
                    Err(Refusal::new(RefusalKind::NotFound, detail))
                }
            },
        }
    }

    fn undo(&mut self, staged: &[Staged<'_>]) {
        staged.iter().rev().for_each(|one| self.state.undo(&one.changes));
    }

    /// The present state as a configuration, checked and compiled.
    fn compiled<P>(
        &mut self,
        staged: &[Staged<'_>],
        whole: bool,
        compile: Compile<'_, P>,
    ) -> Result<(Config, P), Refusal> {
        let refused = |errors: &ConfigErrors, config: Option<&Config>| {
            Refusal::of_errors(errors, |found| pointer(config?, staged, found))
        };
        let config = self.typed.config(&self.state).map_err(|errors| refused(&errors, None))?;
        if whole {
            config.check_errors().map_err(|errors| refused(&errors, Some(&config)))?;
        }
        let compiled = compile(&config);
        let plan = compiled.map_err(|error| Refusal::new(RefusalKind::Invalid, error))?;
        Ok((config, plan))
    }

    /// Makes epochs of what is staged and writes them. `false` when that fails: then nothing has
    /// changed.
    fn write(
        &mut self,
        staged: Vec<Staged<'_>>,
        at_unix_ms: u64,
        answers: &mut [Result<Applied, Refusal>],
    ) -> bool {
        let epochs = staged.iter().zip(self.epoch() + 1..).map(|(one, epoch)| Epoch {
            epoch,
            at_unix_ms,
            author: one.request.by.clone(),
            summary: summary(one.request, &one.changes),
            changes: one.changes.clone(),
        });
        let epochs: Vec<Epoch> = epochs.collect();
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.append(&epochs)
        {
            self.undo(&staged);
            let detail = format!("the change cannot be written down and was not made: {error}");
            for one in &staged {
                answers[one.place] = Err(Refusal::new(RefusalKind::Storage, detail.clone()));
            }
            return false;
        }
        // Edits do not reach what the file owns, and a file that was read is what the file says.
        let (mut read, mut back) = (false, false);
        for one in &staged {
            read |= matches!(one.request.what, What::File(_));
            back |= matches!(one.request.what, What::Rollback(_));
        }
        let mut dropped: Option<(u64, u64)> = None;
        for (one, epoch) in staged.into_iter().zip(epochs) {
            answers[one.place] = Ok(self.applied(one.request, one.changes, epoch.epoch));
            if let Some(gone) = self.history.push(epoch) {
                dropped = Some(dropped.map_or(gone, |(first, _)| (first, gone.1)));
            }
        }
        self.notes.extend(dropped.map(|(first, last)| {
            let back_to = self.history.reach().0;
            format!(
                "the history takes more than {} MiB: epochs {first} to {last} were dropped, and \
                 one can go back as far as epoch {back_to}",
                HISTORY_BYTES >> 20
            )
        }));
        if back {
            self.compare_with_file();
        } else if read {
            self.differs_from_file = false;
        }
        true
    }

    fn applied(&self, request: &Request, changes: Vec<Change>, epoch: u64) -> Applied {
        let summary = match changes.is_empty() {
            true => String::new(),
            false => summary(request, &changes),
        };
        Applied { epoch, summary, changes, durable: self.journal.is_some() }
    }

    /// Writes the journal anew when it has grown, or when a write had failed.
    fn tidy_journal(&mut self) {
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.wants_rewrite()) else {
            return;
        };
        if let Err(error) = journal.rewrite(&self.state, &self.history) {
            self.notes.push(format!("the journal cannot be written anew: {error}"));
        }
    }
}

fn summary(request: &Request, changes: &[Change]) -> String {
    let told = words::summary(&Author::of(Source::File), changes);
    match request.what {
        What::Rollback(number) => format!("back to epoch {number}: {told}"),
        What::File(_) if request.by.source != Source::File => {
            format!("the file read again: {told}")
        }
        What::Edits(_) | What::File(_) => told,
    }
}

/// Where in the only request's body the thing stands that a diagnostic of the whole is about.
fn pointer(config: &Config, staged: &[Staged<'_>], found: &Diagnostic) -> Option<String> {
    let [Staged { request: Request { what: What::Edits(edits), .. }, .. }] = staged else {
        return None;
    };
    let (section, rest) = found.key.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    let index: usize = index.parse().ok()?;
    let kind = Kind::NAMED.into_iter().find(|kind| kind.name() == section)?;
    let name = match kind {
        Kind::Check => &config.checks.get(index)?.name,
        Kind::Pool => &config.pools.get(index)?.name,
        Kind::Service => &config.services.get(index)?.name,
        Kind::Snat => &config.snat.get(index)?.name,
        Kind::Section => return None,
    };
    edits.iter().find_map(|edit| match edit {
        Edit::Put { key, pointer, .. } if key.kind == kind && key.name == *name => {
            Some(format!("{pointer}{}", pointer_of(rest.trim_start_matches('.'))))
        }
        _ => None,
    })
}
