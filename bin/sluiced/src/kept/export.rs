//! Exports the sessions by addresses to a process that takes over, in the records of session
//! synchronisation: the new program cannot read the slots, since it has another layout.
//!
//! Every attempt to hand over has a thread for it, at one end of a socket pair whose other end the
//! new process gets. Each byte that comes from there asks for what has become of the sessions since
//! they were asked for last, at first all of them. The thread reads the slots as the new process
//! would, so workers have nothing to do with it. The answer is parts of [`PART`] bytes at most:
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | length of the records; 0 behind the last part, which ends here |
//! | 2 | the worker whose sessions they are |
//! | 8 | when they were read: milliseconds since the machine started |
//! | | records, in the form of session synchronisation ([`sluice_sync::records`]) |

use super::Kept;
use super::boot_ms;
use super::former::network_plan;
use super::names::Head;
use super::tables::RunningTables;
use crate::sync::Plans;
use crate::sync::records::{Reals, session_record};
use sluice_director::Time;
use sluice_director::path::{Change, Former, Owners, Restored};
use sluice_director::plan::Names;
use sluice_sync::records::Writer;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Bytes of the records of a part at most.
pub const PART: usize = 60 * 1024;
/// Bytes before them.
pub const HEAD: usize = 14;
/// Changes that are sorted by real server: those of one in a row take less room.
const SORTED: usize = 4096;
/// How long the other process may read nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread, as long as there is an attempt.
pub struct SessionExport {
    plans: Arc<Mutex<Plans>>,
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has.
struct Exporter {
    head: Head,
    tables: RunningTables,
    stream: UnixStream,
    plans: Arc<Mutex<Plans>>,
    known: Option<Known>,
}

/// What follows from a plan.
struct Known {
    epoch: u64,
    names: Names,
    reals: Reals,
}

impl SessionExport {
    /// Starts one. The descriptor is the new process's.
    pub fn start(kept: &Kept, plans: Plans) -> io::Result<(Self, OwnedFd)> {
        let (own, other) = UnixStream::pair()?;
        own.set_write_timeout(Some(PATIENCE))?;
        let plans = Arc::new(Mutex::new(plans));
        let exporter = Exporter {
            head: kept.head.clone(),
            tables: RunningTables::of(&kept.head),
            stream: own.try_clone()?,
            plans: Arc::clone(&plans),
            known: None,
        };
        let thread = std::thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(move || exporter.serve())?;
        Ok((Self { plans, stream: own, thread: Some(thread) }, other.into()))
    }

    /// Follows plans that are about to be published.
    pub fn follow(&self, plans: Plans) {
        *self.plans.lock().unwrap_or_else(PoisonError::into_inner) = plans;
    }
}

impl Drop for SessionExport {
    fn drop(&mut self) {
        // Wakes the thread, whatever it does.
        let _ = self.stream.shutdown(Shutdown::Both);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread that exports sessions had panicked");
        }
    }
}

impl Exporter {
    fn serve(mut self) {
        let mut asked = [0];
        while self.stream.read_exact(&mut asked).is_ok() {
            if let Err(error) = self.answer() {
                // The other process has ended, or takes nothing.
                debug!(%error, "sessions are not exported to the end");
                return;
            }
        }
    }

    /// Sends what has become of the sessions.
    fn answer(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let slack_ms = self.tables.begin();
        let epoch = plans.whole.epoch;
        let known = self.known.take().filter(|known| known.epoch == epoch);
        let known = known.unwrap_or_else(|| Known {
            epoch,
            names: plans.whole.names(),
            reals: Reals::of(&plans.whole),
        });
        let owners = Owners::new(self.head.seed, self.head.workers);
        let (mut parts, mut left) = (Parts::new(&self.stream), Restored::default());
        for (at, workers) in self.tables.networks.iter_mut().enumerate() {
            let Some(plan) = network_plan(&self.head, at, &plans.of_networks) else { continue };
            let former = Former::new(plan, &known.names, owners, (self.head.workers, 0));
            for (worker, [narrow, extended]) in (0..).zip(workers) {
                let paths = self.head.tables(worker, at);
                let read = [narrow.read(&paths[0]), extended.read(&paths[1])];
                let read_ms = boot_ms();
                let now = Time(read_ms.wrapping_sub(self.head.zero_boot_ms));
                parts.begin(worker, read_ms);
                left += former.tell_changes(read, (slack_ms, now), |change| {
                    parts.add(&known.reals, change);
                });
                parts.end(&known.reals);
            }
        }
        self.known = Some(known);
        let (sent, took_us) = (parts.sent, began.elapsed().as_micros() as u64);
        let Restored { unknown, damaged, .. } = left;
        debug!(sent, unknown, damaged, took_us, "sessions are exported to the new process");
        parts.finish()
    }
}

/// An answer as it is written.
struct Parts<'s> {
    stream: &'s UnixStream,
    sorted: Vec<Change>,
    records: Writer,
    of: (u16, u64),
    sent: u64,
    outcome: io::Result<()>,
}

impl<'s> Parts<'s> {
    fn new(stream: &'s UnixStream) -> Self {
        let (sorted, records) = (Vec::with_capacity(SORTED), Writer::new(PART));
        Self { stream, sorted, records, of: (0, 0), sent: 0, outcome: Ok(()) }
    }

    /// What is added from now on is of a worker, and was read then.
    fn begin(&mut self, worker: u16, read_ms: u64) {
        self.of = (worker, read_ms);
    }

    fn add(&mut self, reals: &Reals, change: Change) {
        self.sorted.push(change);
        if self.sorted.len() == SORTED {
            self.write(reals);
        }
    }

    /// Writes what was added.
    fn write(&mut self, reals: &Reals) {
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.sort_by_key(|change| change.real);
        for change in sorted.drain(..) {
            let Some(real) = reals.get(change.real) else { continue };
            let record = session_record(&change);
            let mut added = self.records.add(real, &record);
            if !added {
                self.send();
                added = self.records.add(real, &record);
            }
            self.sent += u64::from(added);
        }
        self.sorted = sorted;
    }

    /// Nothing more comes of the worker.
    fn end(&mut self, reals: &Reals) {
        self.write(reals);
        self.send();
    }

    /// Sends a part, unless one could not be sent.
    fn send(&mut self) {
        if self.outcome.is_ok() && !self.records.bytes().is_empty() {
            self.outcome = self.put();
        }
        self.records.clear();
    }

    fn put(&mut self) -> io::Result<()> {
        let (records, (worker, read_ms)) = (self.records.bytes(), self.of);
        let mut head = (records.len() as u32).to_ne_bytes().to_vec();
        head.extend(worker.to_ne_bytes());
        head.extend(read_ms.to_ne_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(records)
    }

    fn finish(self) -> io::Result<()> {
        let Self { mut stream, outcome, .. } = self;
        outcome?;
        stream.write_all(&[0; HEAD])
    }
}
