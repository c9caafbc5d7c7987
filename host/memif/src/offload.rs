//! Ends of queues whose frames are copied by a [`Copier`]: begun in one call, over in a later one.
//!
//! Frames are *in flight* between the two, in a queue of their own for each end, and leave it in
//! their order only: so a short frame that the processor copied waits for a long one before it,
//! and the peer's index moves over nothing that is not whole. Copies that the copier has no room
//! for, and those that it failed to do, are the processor's.
//!
//! Invariant: while frames are in flight the end keeps their buffers and the connection, whose
//! regions stay mapped therefore, whatever the peer does; copies are begun of memory of these two
//! only, each part checked to lie in it. An end that is dropped waits for its copies; if they do
//! not end, the memory is never given back.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use crate::copier::{Copier, Job};
use crate::counters::Counters;
use crate::ends::{Receiver, Sender};
use crate::link::Connection;
use crate::transfer::{Fit, Lie, Parts};
use sluice_lanes::copy::copy;

/// Frames of an end that may be in flight.
pub const IN_FLIGHT: usize = 1024;
/// How long an end that is dropped waits for its copies.
const PATIENCE: Duration = Duration::from_secs(2);

/// A packet buffer that frames are copied into or out of.
///
/// # Safety
/// Its memory stays where it is when the value is moved, is there as long as the value is, and is
/// nobody else's meanwhile.
pub unsafe trait Buffer: Send {
    /// All room for a frame.
    fn room(&mut self) -> &mut [u8];

    /// The frame.
    fn bytes(&self) -> &[u8];
}

/// Where received frames go.
pub trait Dock<B> {
    /// An empty buffer; `None` when there is no more: frames stay in the ring.
    fn buffer(&mut self) -> Option<B>;

    /// A frame of so many bytes lies at the beginning of the buffer's room.
    fn landed(&mut self, buffer: B, length: usize);
}

/// A frame in flight.
#[derive(Debug)]
struct Flight<B> {
    /// `None` of a bad one.
    buffer: Option<B>,
    length: usize,
    /// Descriptors that it takes, and in which ring.
    slots: u16,
    ring: usize,
    /// Copies of it that are not over.
    copies: u16,
}

/// Frames in flight, and their copies.
#[derive(Debug)]
struct Flights<B> {
    copier: Box<dyn Copier>,
    /// Bytes from which on the copier copies.
    from: u32,
    frames: VecDeque<Flight<B>>,
    /// Copies that were begun, in their order.
    begun: VecDeque<Job>,
    /// Copies that are to be begun, and frames that they are of, counted from the oldest.
    jobs: Vec<Job>,
    of: Vec<usize>,
    results: Vec<bool>,
    connection: Option<Arc<Connection>>,
}

impl<B> Flights<B> {
    fn new(copier: Box<dyn Copier>, from: u32) -> Self {
        Self {
            copier,
            from,
            frames: VecDeque::with_capacity(IN_FLIGHT),
            begun: VecDeque::with_capacity(IN_FLIGHT),
            jobs: Vec::with_capacity(IN_FLIGHT),
            of: Vec::with_capacity(IN_FLIGHT),
            results: Vec::with_capacity(IN_FLIGHT),
            connection: None,
        }
    }

    /// A copy that belongs to the next frame that will be added; whether it is left to the copier.
    ///
    /// # Safety
    /// As for [`Copier::begin`]: the memory is that of the frame's buffer and of the connection.
    unsafe fn plan(&mut self, job: Job) -> bool {
        if job.length < self.from {
            // SAFETY: the caller's.
            unsafe { copy(job.from, job.to, job.length as usize) };
            return false;
        }
        self.of.push(self.frames.len());
        self.jobs.push(job);
        true
    }

    /// Begins all planned copies.
    fn begin(&mut self, counters: &Counters) {
        if self.jobs.is_empty() {
            return;
        }
        // SAFETY: the jobs are of frames that are in flight now ([`Self::plan`]): their buffers
        // and the connection are kept until the copies are over.
        let count = unsafe { self.copier.begin(&self.jobs) }.min(self.jobs.len());
        self.begun.extend(&self.jobs[..count]);
        for (job, frame) in self.jobs[count..].iter().zip(&self.of[count..]) {
            // SAFETY: as above, and the copier has not begun it.
            unsafe { copy(job.from, job.to, job.length as usize) };
            if let Some(frame) = self.frames.get_mut(*frame) {
                frame.copies -= 1;
            }
        }
        let full = self.jobs.len() - count;
        counters.copies_offloaded.add(count as u64);
        if full > 0 {
            counters.copies_full.add(full as u64);
        }
        self.jobs.clear();
        self.of.clear();
    }

    /// Takes note of copies that are over.
    fn look(&mut self, counters: &Counters) {
        if self.begun.is_empty() {
            return;
        }
        self.results.clear();
        self.copier.over(&mut self.results);
        let mut frames = self.frames.iter_mut();
        let mut frame = frames.next();
        for done in self.results.drain(..) {
            let Some(job) = self.begun.pop_front() else { break };
            if !done {
                // SAFETY: the frame is in flight still, so its memory is there, and the copy is
                // over.
                unsafe { copy(job.from, job.to, job.length as usize) };
                counters.copies_failed.add(1);
            }
            while frame.as_ref().is_some_and(|frame| frame.copies == 0) {
                frame = frames.next();
            }
            if let Some(frame) = &mut frame {
                frame.copies -= 1;
            }
        }
    }

    /// The oldest frame if it is whole.
    fn arrived(&mut self) -> Option<Flight<B>> {
        if self.frames.front()?.copies > 0 {
            return None;
        }
        let arrived = self.frames.pop_front();
        if self.frames.is_empty() {
            self.connection = None;
        }
        arrived
    }

    /// Whether one more frame may take off.
    fn has_room(&self) -> bool {
        self.frames.len() < IN_FLIGHT
    }
}

impl<B> Drop for Flights<B> {
    fn drop(&mut self) {
        let (nobody, limit) = (Counters::default(), Instant::now() + PATIENCE);
        while !self.begun.is_empty() && Instant::now() < limit {
            self.look(&nobody);
            std::thread::yield_now();
        }
        if !self.begun.is_empty() {
            // What is being copied must not become anything else.
            let _ = ManuallyDrop::new(std::mem::take(&mut self.frames));
            let _ = ManuallyDrop::new(self.connection.take());
        }
    }
}

/// The receiving end of a queue, in Ethernet mode.
#[derive(Debug)]
pub struct OffloadReceiver<B: Buffer> {
    end: Receiver,
    flights: Flights<B>,
    /// A buffer that the last frame did not need.
    spare: Option<B>,
}

impl<B: Buffer> OffloadReceiver<B> {
    /// Has frames' parts of `from` bytes or more copied.
    pub fn new(end: Receiver, copier: Box<dyn Copier>, from: u32) -> Self {
        Self { end, flights: Flights::new(copier, from), spare: None }
    }

    /// The end itself, to be armed before sleeping, and waited for.
    pub fn end(&mut self) -> &mut Receiver {
        &mut self.end
    }

    /// The same, to be looked at.
    pub fn as_end(&self) -> &Receiver {
        &self.end
    }

    /// Whether frames are in flight, so that there is something to do.
    pub fn is_busy(&self) -> bool {
        !self.flights.frames.is_empty()
    }

    /// Lands frames whose copies are over, `most` at most, and begins to copy those that wait.
    /// Gives how many landed.
    pub fn receive(&mut self, most: usize, dock: &mut impl Dock<B>) -> usize {
        if self.flights.frames.is_empty() {
            self.end.follow();
        }
        self.end.settle();
        let counters = self.end.counters();
        self.flights.look(&counters);
        let mut count = self.land(most, dock);
        if !self.end.is_old() {
            self.take_off(most - count, dock);
            // Short ones behind none are whole already.
            count += self.land(most - count, dock);
        }
        count
    }

    fn land(&mut self, most: usize, dock: &mut impl Dock<B>) -> usize {
        let counters = self.end.counters();
        let Some(connection) = self.flights.connection.clone() else { return 0 };
        let (mut count, mut bytes, mut errors) = (0, 0, 0);
        let mut release = Release::default();
        while count < most {
            let Some(flight) = self.flights.arrived() else { break };
            release.add(&connection, (flight.ring, flight.slots));
            match flight.buffer {
                Some(buffer) => {
                    dock.landed(buffer, flight.length);
                    count += 1;
                    bytes += flight.length as u64;
                }
                None => errors += 1,
            }
        }
        release.give(&connection);
        if count > 0 {
            counters.rx_frames.add(count as u64);
            counters.rx_bytes.add(bytes);
        }
        if errors > 0 {
            counters.rx_errors.add(errors);
        }
        count
    }

    /// Begins to copy frames that wait, `most` at most.
    fn take_off(&mut self, most: usize, dock: &mut impl Dock<B>) {
        let Some(connection) = self.end.connection() else { return };
        let mut parts = Parts::new();
        let mut left = most;
        for ring in self.end.rings() {
            while left > 0 && self.flights.has_room() {
                match self.take_one(&connection, ring, (&mut parts, dock)) {
                    Ok(true) => left -= 1,
                    Ok(false) => break,
                    Err(lie) => {
                        self.flights.begin(&self.end.counters());
                        return self.end.leave(lie);
                    }
                }
            }
        }
        self.flights.begin(&self.end.counters());
    }

    fn take_one(
        &mut self,
        connection: &Arc<Connection>,
        ring: usize,
        (parts, dock): (&mut Parts, &mut impl Dock<B>),
    ) -> Result<bool, Lie> {
        let Some(line) = connection.rx.get(ring) else { return Ok(false) };
        if self.spare.is_none() {
            self.spare = dock.buffer();
        }
        let Some(buffer) = &mut self.spare else {
            if line.ring.with(|ring| ring.waiting())? > 0 {
                self.end.counters().rx_no_buffer.add(1);
            }
            return Ok(false);
        };
        let room = buffer.room();
        let taken = line.ring.with(|ring| ring.take(room.len(), parts))?;
        let Some(taken) = taken else { return Ok(false) };
        let (mut to, mut copies) = (room.as_mut_ptr(), 0);
        for part in parts.iter().filter(|_| !taken.bad) {
            let job = Job { from: part.at, to, length: part.length };
            // SAFETY: the part lies in a region of the connection, and all parts together are no
            // longer than the room ([`RxRing::take`](crate::transfer::RxRing::take)). Both are
            // kept with the frame, which is added below.
            copies += u16::from(unsafe { self.flights.plan(job) });
            // SAFETY: within the room, or at its end.
            to = unsafe { to.add(part.length as usize) };
        }
        let buffer = if taken.bad { None } else { self.spare.take() };
        let (length, slots) = (taken.length, taken.slots);
        self.flights.connection.get_or_insert_with(|| Arc::clone(connection));
        self.flights.frames.push_back(Flight { buffer, length, slots, ring, copies });
        Ok(true)
    }
}

/// Descriptors that go back to the peer, of one ring as a rule.
#[derive(Default)]
struct Release {
    ring: usize,
    slots: u16,
}

impl Release {
    fn add(&mut self, connection: &Connection, (ring, slots): (usize, u16)) {
        if self.ring != ring {
            self.give(connection);
            self.ring = ring;
        }
        self.slots += slots;
    }

    fn give(&mut self, connection: &Connection) {
        let slots = std::mem::take(&mut self.slots);
        if slots > 0
            && let Some(line) = connection.rx.get(self.ring)
        {
            line.ring.with(|ring| ring.release(slots));
        }
    }
}

/// The sending end of a queue, in Ethernet mode.
#[derive(Debug)]
pub struct OffloadSender<B: Buffer> {
    end: Sender,
    flights: Flights<B>,
}

impl<B: Buffer> OffloadSender<B> {
    /// Has frames' parts of `from` bytes or more copied.
    pub fn new(end: Sender, copier: Box<dyn Copier>, from: u32) -> Self {
        Self { end, flights: Flights::new(copier, from) }
    }

    /// Whether frames are in flight, so that there is something to do.
    pub fn is_busy(&self) -> bool {
        !self.flights.frames.is_empty()
    }

    /// Tells the peer of frames whose copies are over. To be called again and again while
    /// [`Self::is_busy`], and now and then where nothing is sent.
    pub fn refresh(&mut self) {
        if self.flights.frames.is_empty() {
            return self.end.refresh();
        }
        let counters = self.end.counters();
        self.flights.look(&counters);
        let Some(connection) = self.flights.connection.clone() else { return };
        let (mut slots, mut count, mut bytes) = (0, 0, 0);
        let mut ring = 0;
        while let Some(flight) = self.flights.arrived() {
            (slots, ring) = (slots + flight.slots, flight.ring);
            (count, bytes) = (count + 1, bytes + flight.length as u64);
        }
        if let Some(line) = connection.tx.get(ring).filter(|_| slots > 0) {
            line.ring.with(|ring| ring.publish(slots));
            self.end.owe();
        }
        if count > 0 {
            counters.tx_frames.add(count);
            counters.tx_bytes.add(bytes);
        }
    }

    /// Begins to send frames from the front; those that were taken leave the vector. None without a
    /// peer.
    pub fn send<const N: usize>(&mut self, frames: &mut ArrayVec<B, N>) -> usize {
        self.refresh();
        if self.flights.frames.is_empty() {
            self.end.refresh();
        }
        self.end.settle();
        if self.end.is_old() {
            return 0;
        }
        let Some(connection) = self.end.connection() else { return 0 };
        let Some(ring) = self.end.own_ring(&connection) else {
            // Another queue sends by the same ring: what is in flight could not be told apart.
            let taken = self.end.send(frames.iter().map(Buffer::bytes));
            frames.drain(..taken);
            return taken;
        };
        let (mut parts, mut taken, mut lied) = (Parts::new(), 0, None);
        let mut refused = 0;
        while taken < frames.len() && self.flights.has_room() {
            let bytes = frames[taken].bytes();
            let fit = connection.tx[ring].ring.with(|ring| ring.reserve(bytes.len(), &mut parts));
            let slots = match fit {
                Ok(Fit::Placed(slots)) => slots,
                Ok(Fit::Full) => break,
                Ok(Fit::Never) => {
                    frames.remove(taken);
                    refused += 1;
                    continue;
                }
                Err(lie) => {
                    lied = Some(lie);
                    break;
                }
            };
            let (mut from, mut copies, length) = (bytes.as_ptr(), 0, bytes.len());
            for part in &parts {
                let job = Job { from, to: part.at, length: part.length };
                // SAFETY: the part lies in a region of the connection, and all parts together are
                // as long as the frame ([`TxRing::reserve`](crate::transfer::TxRing::reserve)).
                // Both are kept with the frame, which is added here and gets its buffer below.
                copies += u16::from(unsafe { self.flights.plan(job) });
                // SAFETY: within the frame, or at its end.
                from = unsafe { from.add(part.length as usize) };
            }
            self.flights.frames.push_back(Flight { buffer: None, length, slots, ring, copies });
            taken += 1;
        }
        if taken > 0 {
            self.flights.connection.get_or_insert(connection);
            let first = self.flights.frames.len() - taken;
            for (flight, buffer) in
                self.flights.frames.range_mut(first..).zip(frames.drain(..taken))
            {
                flight.buffer = Some(buffer);
            }
        }
        let counters = self.end.counters();
        self.flights.begin(&counters);
        if refused > 0 {
            counters.tx_errors.add(refused as u64);
        }
        match lied {
            Some(lie) => self.end.leave(lie),
            None => self.refresh(),
        }
        taken + refused
    }
}
