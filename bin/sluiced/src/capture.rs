//! Traces and captures: an operator's request becomes a capture point at every worker, and a thread
//! of its own turns what they catch into what is sent to the operator.
//!
//! The thread only reads rings; workers never wait for it, nor does the control loop. It takes the
//! capture points back when the request's packets, bytes or seconds are used up, or when nobody
//! reads any more, and frees them here and not on a worker.

mod names;
mod pcapng;
mod terms;
mod text;

use crate::queues::PortQueue;
use bytes::Bytes;
use names::{Latest, Names};
use pcapng::Pcapng;
use sluice_api::model::{LookEnd, LookKind, LookRequest, TraceLine};
use sluice_api::{LookRefusal, Pieces, Reply};
use sluice_director::plan::Plan;
use sluice_worker::capture_point::{
    Allowance, CAPTURE_POINTS, CapturePoint, Catch, Catches, Form, capture_point,
};
use sluice_worker::{Inbox, Message, Published};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use text::Trace;
use tokio::sync::mpsc;
use tracing::warn;

/// How often the rings are looked at while they are empty.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a worker may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a reader may read nothing when all has been caught.
const STALLED: Duration = Duration::from_secs(30);
/// Pieces that may wait for the reader, and the bytes of one.
const PIECES: usize = 64;
const PIECE_BYTES: usize = 64 << 10;
/// Packets of one worker that are taken at a time.
const AT_A_TIME: usize = 256;

/// What traces and captures need to know of the director, and how many there are.
#[derive(Default)]
pub struct CapturePoints {
    latest: Arc<Mutex<Latest>>,
    running: Arc<AtomicUsize>,
    made: u64,
}

/// One of the places that there are.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(running: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(running));
        let before = running.fetch_add(1, Ordering::SeqCst);
        // What is given back when there was none is the one that was just taken.
        (before < CAPTURE_POINTS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CapturePoints {
    /// What the workers have from now on.
    pub fn publish(&self, plan: &Arc<Plan>, published: &Published) {
        let all = std::iter::once(&published.default).chain(&published.isolated);
        let fibs = all.map(|snapshot| Arc::clone(&snapshot.fib)).collect();
        let latest = Latest { plan: Arc::clone(plan), fibs };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
    }

    /// Begins to look, and answers with where the pieces will come from.
    pub fn start(
        &mut self,
        (kind, request): (LookKind, &LookRequest),
        ports: Vec<(String, String)>,
        workers: Vec<Inbox<PortQueue>>,
        reply: Reply<Result<Pieces, LookRefusal>>,
    ) {
        let names = Names { latest: Arc::clone(&self.latest), ports };
        let asked = match terms::read(kind, request, &names) {
            Ok(asked) => asked,
            Err(faults) => return drop(reply.send(Err(LookRefusal::Wrong(faults)))),
        };
        let Some(place) = Place::take(&self.running) else {
            return drop(reply.send(Err(LookRefusal::Busy(CAPTURE_POINTS))));
        };
        self.made += 1;
        let (form, until) = (asked.terms.form, asked.terms.until);
        let (number, snap) = (self.made, asked.terms.snap);
        let (ends, catches, allowance) =
            capture_point(number, asked.terms, &asked.limits, workers.len());
        let (out, pieces) = mpsc::channel(PIECES);
        let collector = Collector { number, workers, catches, allowance, until, out, place };
        let work = move || {
            if !collector.arm(ends) {
                collector.disarm();
                return drop(reply.send(Err(LookRefusal::NoAnswer)));
            }
            if reply.send(Ok(pieces)).is_err() {
                return collector.disarm();
            }
            match kind {
                LookKind::Trace => collector.run(Trace::new(names)),
                LookKind::Capture => collector.run(Pcapng::new(names, form, snap)),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("capture_point".into()).spawn(work) {
            warn!(%error, "cannot start a thread for a trace or a capture");
        }
    }
}

/// What is made of the packets.
trait Teller {
    /// The beginning, once so many workers look.
    fn begin(&mut self, workers: usize);
    /// A packet.
    fn tell(&mut self, caught: &Caught);
    /// The end.
    fn end(&mut self, end: &LookEnd);
    /// What was made since this was last asked.
    fn take(&mut self) -> Vec<u8>;
    /// Packets that were told.
    fn told(&self) -> u64;
}

/// A packet with its bytes, as it came and as it left.
struct Caught {
    catch: Catch,
    received: Vec<u8>,
    sent: Vec<u8>,
}

/// The thread behind one trace or capture.
struct Collector {
    number: u64,
    workers: Vec<Inbox<PortQueue>>,
    catches: Vec<Catches>,
    allowance: Arc<Allowance>,
    until: Instant,
    out: mpsc::Sender<Bytes>,
    place: Place,
}

impl Collector {
    /// Gives every worker its capture point. `false` when one has no place for it or does not
    /// answer.
    fn arm(&self, ends: Vec<CapturePoint>) -> bool {
        let asked: Vec<_> = self
            .workers
            .iter()
            .zip(ends)
            .map(|(worker, end)| {
                let (reply, answer) = channel();
                worker.send(Message::LookOut(Box::new(end), reply));
                answer
            })
            .collect();
        asked.iter().all(|answer| matches!(answer.recv_timeout(PATIENCE), Ok(Ok(()))))
    }

    /// Takes all capture points back.
    fn disarm(&self) {
        self.allowance.end();
        let asked: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                let (reply, answer) = channel();
                worker.send(Message::LookAway(self.number, reply));
                answer
            })
            .collect();
        // What comes back is freed here; what does not frees itself with its worker.
        asked.iter().for_each(|answer| drop(answer.recv_timeout(PATIENCE)));
    }

    fn run(mut self, mut teller: impl Teller) {
        teller.begin(self.workers.len());
        let mut reading = self.send(teller.take());
        while reading {
            let came = self.gather(&mut teller);
            reading = self.send(teller.take()) && !self.out.is_closed();
            if came == 0 {
                if self.is_over() {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }
        let why = self.why();
        self.disarm();
        while reading && self.gather(&mut teller) > 0 {
            reading = self.send(teller.take());
        }
        let end = LookEnd { why, packets: teller.told(), lost: self.allowance.lost() };
        teller.end(&end);
        self.send(teller.take());
        drop(self.place);
    }

    fn is_over(&self) -> bool {
        let spent = self.allowance.packets() == 0 || self.allowance.bytes() == 0;
        spent || self.allowance.is_over() || Instant::now() >= self.until
    }

    fn why(&self) -> String {
        let why = if self.allowance.packets() == 0 {
            "packets"
        } else if self.out.is_closed() {
            "stopped"
        } else if Instant::now() >= self.until {
            "seconds"
        } else {
            "bytes"
        };
        why.to_owned()
    }

    /// Takes what the workers have caught, in the order of time.
    fn gather(&mut self, teller: &mut impl Teller) -> usize {
        let mut all = Vec::new();
        for catches in &mut self.catches {
            for _ in 0..AT_A_TIME {
                let (mut received, mut sent) = (Vec::new(), Vec::new());
                let Some(catch) = catches.next(&mut received, &mut sent) else { break };
                all.push(Caught { catch, received, sent });
            }
        }
        all.sort_by_key(|caught| caught.catch.at_ns);
        all.iter().for_each(|caught| teller.tell(caught));
        all.len()
    }

    /// Gives the reader bytes, and waits for it as long as there is any. `false` when there is
    /// none.
    fn send(&self, bytes: Vec<u8>) -> bool {
        let patience = self.until.max(Instant::now()) + STALLED;
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match self.out.try_send(piece) {
                    Ok(()) => break,
                    Err(mpsc::error::TrySendError::Full(back)) if Instant::now() < patience => {
                        piece = back;
                        std::thread::sleep(PAUSE);
                    }
                    Err(_) => return false,
                }
            }
        }
        true
    }
}

/// A line of a trace as it is sent.
fn line(line: &TraceLine) -> Vec<u8> {
    // Strings and numbers can always be written as JSON.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Whether a packet of a form is told.
fn wants(form: Option<Form>, this: Form) -> bool {
    form.is_none_or(|only| only == this)
}
