//! Capture points: what traces and captures ask the workers to see.
//!
//! While there is none, a burst costs one branch. A worker that has one takes its packets one at a
//! time (which gives what a burst gives), holds each against the capture point's [`Terms`] as it
//! came and as it leaves, and puts what fits, with everything that was decided, into two rings: one
//! of [`Catch`]es and one of their bytes. Nobody waits for the reader: what finds no room is
//! counted and gone. A capture point is bounded in packets, bytes and time, by the worker itself,
//! so that none outlives a control side that hangs.

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::Reason;
use sluice_director::fib::{LinkId, PortId};
use sluice_director::filter::Program;
use sluice_director::path::{Headers, PacketView, SeenSession, Verdict};
use sluice_director::plan::ServiceId;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Capture points that a worker has at a time.
pub const CAPTURE_POINTS: usize = 4;
/// The most bytes of a frame that are kept: all of any frame.
pub const MAX_SNAP: usize = 65_600;

/// One of the two forms that a packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it was received.
    Received,
    /// As it was sent.
    Sent,
}

/// What a capture point is for; what is `None` or empty does not restrict.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What the frame's bytes must be like, in any form that is looked at.
    pub program: Option<Program>,
    /// Sent to this service, or of one of its sessions.
    pub service: Option<ServiceId>,
    /// Of a session with this real server; the port only if there is one.
    pub real: Option<(IpAddr, Option<u16>)>,
    /// Received or sent by this port.
    pub port: Option<PortId>,
    /// Dropped, answered or left to the kernel for one of these reasons.
    pub reasons: Vec<Reason>,
    /// The form that is looked at; both, if it is `None`.
    pub form: Option<Form>,
    /// Whether frames that the kernel sends by a twin are looked at too.
    pub kernels: bool,
    /// Bytes of each frame that are kept, up to [`MAX_SNAP`].
    pub snap: usize,
    /// When it is over.
    pub until: Instant,
}

impl Terms {
    fn looks_at(&self, form: Form) -> bool {
        self.form.is_none_or(|only| only == form)
    }

    fn takes(&self, frame: &[u8]) -> bool {
        self.program.as_ref().is_none_or(|program| program.takes(frame))
    }

    /// Whether a packet fits whose bytes do, but for its reason.
    fn fits(&self, catch: &Catch) -> bool {
        let of = |seen: &Option<SeenSession>, holds: &dyn Fn(&SeenSession) -> bool| {
            seen.as_ref().is_some_and(holds)
        };
        let before = catch.view.and_then(|view| view.session);
        let either =
            |holds: &dyn Fn(&SeenSession) -> bool| of(&before, holds) || of(&catch.session, holds);
        let service = self.service.is_none_or(|id| {
            catch.view.is_some_and(|view| view.service == Some(id))
                || either(&|seen| seen.session.service == id)
        });
        let real = self.real.is_none_or(|(address, port)| {
            either(&|seen| {
                let (is, at) = seen.session.real;
                is == address && port.is_none_or(|port| port == at)
            })
        });
        let port = self.port.is_none_or(|port| {
            (self.looks_at(Form::Received) && catch.came != Came::Kernel && catch.port == port)
                || (self.looks_at(Form::Sent) && catch.sent_by == Some(port))
        });
        service && real && port
    }

    /// Whether one of the wanted reasons is a packet's.
    fn has_reason(&self, catch: &Catch) -> bool {
        let wanted = |reason: Reason| self.reasons.contains(&reason);
        self.reasons.is_empty() || catch.reason().is_some_and(wanted)
    }
}

/// How a packet came to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// By a port.
    Line,
    /// From another worker, which had received it or was the first to.
    Handed(u16),
    /// By a port, so many milliseconds ago: it waited for its datagram's first fragment.
    Parked(u32),
    /// From the kernel, by the port's twin.
    Kernel,
    /// It was complete, and had waited for its next hop's MAC address.
    Held,
}

/// Bytes of a frame: how many there were, and how many of them are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// All of them.
    pub length: u32,
    /// Those in the ring.
    pub bytes: u32,
}

/// One packet with what was decided about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Catch {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// The worker.
    pub worker: u16,
    /// How it came.
    pub came: Came,
    /// The port that received it; of [`Came::Held`] and [`Came::Kernel`] the one that sends it.
    pub port: PortId,
    /// What was known of it before anything was decided; `None` when it is no IP packet.
    pub view: Option<PacketView>,
    /// What was decided; `None` where the path was not asked.
    pub verdict: Option<Verdict>,
    /// Whether the director forwarded it as the gateway of its sender, in place of the kernel.
    pub gateway: bool,
    /// The neighbour that it waits for.
    pub waits: Option<(LinkId, IpAddr)>,
    /// Whether it opened a session.
    pub opened: bool,
    /// Sessions that ended or had timed out in its turn.
    pub ended: u32,
    /// Its session afterwards.
    pub session: Option<SeenSession>,
    /// Why it was dropped after the verdict.
    pub lost: Option<Reason>,
    /// The port that it was sent by.
    pub sent_by: Option<PortId>,
    /// The headers that it was sent with.
    pub sent_headers: Option<Headers>,
    /// Link-layer destination that it was sent to, and its VLAN.
    pub sent_to: Option<([u8; 6], u16)>,
    /// Its bytes as they came.
    pub received: Option<Kept>,
    /// Its bytes as they left, before anything cut them.
    pub sent: Option<Kept>,
}

impl Catch {
    pub(crate) fn new(worker: u16, came: Came, port: PortId) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            at_ns: since.as_nanos() as u64,
            worker,
            came,
            port,
            view: None,
            verdict: None,
            gateway: false,
            waits: None,
            opened: false,
            ended: 0,
            session: None,
            lost: None,
            sent_by: None,
            sent_headers: None,
            sent_to: None,
            received: None,
            sent: None,
        }
    }

    /// Why it was dropped, answered or left to the kernel, if it was.
    pub const fn reason(&self) -> Option<Reason> {
        match (self.lost, self.verdict) {
            (Some(reason), _) => Some(reason),
            (
                None,
                Some(Verdict::Drop(reason) | Verdict::Kernel(reason) | Verdict::Answer(_, reason)),
            ) => Some(reason),
            _ => None,
        }
    }

    /// Whether another worker will tell the rest.
    pub const fn goes_on(&self) -> bool {
        matches!((self.verdict, self.lost), (Some(Verdict::HandOff(_)), None))
    }

    fn is_kernels(&self) -> bool {
        self.came == Came::Kernel
    }
}

/// How far a capture point goes, over all workers, and what became of it.
#[derive(Debug)]
pub struct Allowance {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    over: AtomicBool,
}

impl Allowance {
    /// Packets that may still be taken.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes that may still be kept.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets that fitted and found no room, because the reader was slow.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether no worker looks any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Takes so much of what is left; `false` when there is not as much, which ends it.
    fn take(&self, from: &AtomicU64, count: u64) -> bool {
        let less = |left: u64| left.checked_sub(count);
        let took = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if !took {
            self.end();
        }
        took
    }
}

/// How far a capture point goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets, over all workers.
    pub packets: u64,
    /// Bytes, over all workers.
    pub bytes: u64,
    /// Packets that one worker may be ahead of the reader.
    pub ring_packets: usize,
    /// Bytes that one worker may be ahead of the reader.
    pub ring_bytes: usize,
}

/// A capture point as one worker has it.
#[derive(Debug)]
pub struct CapturePoint {
    number: u64,
    terms: Arc<Terms>,
    allowance: Arc<Allowance>,
    catches: Producer<Catch>,
    bytes: Producer<u8>,
    received: Vec<u8>,
    sent: Vec<u8>,
    /// Whether the packet that is on its way fits by its bytes as it came.
    fits: bool,
    /// Whether it fits in all but its reason.
    caught: bool,
}

/// The reader's end of one worker's capture point.
#[derive(Debug)]
pub struct Catches {
    catches: Consumer<Catch>,
    bytes: Consumer<u8>,
}

impl Catches {
    /// The next packet, its bytes as they came and as they left in place of what `received` and
    /// `sent` hold.
    pub fn next(&mut self, received: &mut Vec<u8>, sent: &mut Vec<u8>) -> Option<Catch> {
        let catch = self.catches.pop().ok()?;
        for (kept, bytes) in [(catch.received, received), (catch.sent, sent)] {
            bytes.clear();
            bytes.resize(kept.unwrap_or_default().bytes as usize, 0);
            // They were put in before the catch was.
            let there = self.bytes.pop_entire_slice(bytes);
            debug_assert!(there.is_ok(), "a catch without its bytes");
        }
        Some(catch)
    }
}

/// A capture point for so many workers: their ends, the reader's in the same order, and what they
/// share.
pub fn capture_point(
    number: u64,
    terms: Terms,
    limits: &Limits,
    workers: usize,
) -> (Vec<CapturePoint>, Vec<Catches>, Arc<Allowance>) {
    let allowance = Arc::new(Allowance {
        packets: AtomicU64::new(limits.packets),
        bytes: AtomicU64::new(limits.bytes),
        lost: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let terms = Arc::new(Terms { snap: terms.snap.min(MAX_SNAP), ..terms });
    // Every copy fits an empty ring.
    let ring_bytes = limits.ring_bytes.max(2 * terms.snap);
    let ends = (0..workers).map(|_| {
        let (catches, from_catches) = RingBuffer::new(limits.ring_packets.max(1));
        let (bytes, from_bytes) = RingBuffer::new(ring_bytes);
        let capture_point = CapturePoint {
            number,
            terms: Arc::clone(&terms),
            allowance: Arc::clone(&allowance),
            catches,
            bytes,
            received: Vec::with_capacity(terms.snap),
            sent: Vec::with_capacity(terms.snap),
            fits: false,
            caught: false,
        };
        (capture_point, Catches { catches: from_catches, bytes: from_bytes })
    });
    let (capture_points, catches) = ends.unzip();
    (capture_points, catches, allowance)
}

impl CapturePoint {
    /// Its number.
    pub const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let over = self.allowance.is_over() || now >= self.terms.until;
        over || self.catches.is_abandoned()
    }

    /// Whether nothing of a burst can fit, as can be told before anything is decided.
    pub(crate) fn is_idle<'a>(&self, mut frames: impl Iterator<Item = &'a [u8]>) -> bool {
        !self.terms.looks_at(Form::Sent) && !frames.any(|frame| self.terms.takes(frame))
    }

    /// Looks at a frame as it came, before anything changes it. Gives whether it may be caught.
    pub(crate) fn look(&mut self, frame: &[u8]) -> bool {
        let Self { terms, received, .. } = self;
        self.fits = terms.looks_at(Form::Received) && terms.takes(frame);
        let may = self.fits || terms.looks_at(Form::Sent);
        received.clear();
        if may {
            received.extend_from_slice(&frame[..frame.len().min(terms.snap)]);
        }
        may
    }

    /// Looks at it as it leaves: gives whether it fits, but for its reason.
    pub(crate) fn look_again(&mut self, catch: &Catch, sent: Option<&[u8]>) -> bool {
        let Self { terms, .. } = self;
        let as_sent = |frame: &[u8]| terms.looks_at(Form::Sent) && terms.takes(frame);
        let fits = self.fits || sent.is_some_and(as_sent);
        self.sent.clear();
        let kernels = terms.kernels || !catch.is_kernels();
        self.caught = fits && kernels && terms.fits(catch);
        if let Some(sent) = sent.filter(|_| self.caught) {
            self.sent.extend_from_slice(&sent[..sent.len().min(terms.snap)]);
        }
        self.caught
    }

    /// What it said last.
    pub(crate) const fn is_caught(&self) -> bool {
        self.caught
    }

    /// Nothing of the next frame came by a port.
    pub(crate) fn look_at_none(&mut self) {
        self.fits = false;
        self.received.clear();
    }

    /// Puts a packet that fits into the rings, if its reason is wanted.
    pub(crate) fn catch(&mut self, catch: &Catch) {
        if !self.terms.has_reason(catch) || self.allowance.is_over() {
            return;
        }
        let kept = |kept: Option<Kept>, bytes: &[u8]| {
            kept.map(|kept| Kept { bytes: bytes.len() as u32, ..kept })
        };
        let catch = Catch {
            received: kept(catch.received, &self.received),
            sent: kept(catch.sent, &self.sent),
            ..*catch
        };
        let bytes = self.received.len() + self.sent.len();
        if self.catches.is_full() || self.bytes.slots() < bytes {
            self.allowance.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Allowance { packets, bytes: left, .. } = &*self.allowance;
        let counted = catch.goes_on() || self.allowance.take(packets, 1);
        if !counted || !self.allowance.take(left, bytes as u64) {
            return;
        }
        // There is room for all of it.
        let _ = self.bytes.push_entire_slice(&self.received);
        let _ = self.bytes.push_entire_slice(&self.sent);
        let _ = self.catches.push(catch);
    }
}
