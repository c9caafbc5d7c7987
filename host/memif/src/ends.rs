//! The ends of a queue, each of one worker.
//!
//! Whether the peer sleeps is looked at a turn after frames were given to it ([`Debt`]): to look at
//! once, a full barrier would have to wait until the peer's cache lines are written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use arrayvec::ArrayVec;

use crate::counters::Counters;
use crate::event::Signal;
use crate::ip::{self, Addresses, Answers, Fate, Framing};
use crate::link::{Connection, Line, Mode, Shared, lock};
use crate::transfer::{Landing, Lie, RxRing, TxRing};

/// Packets that are given to a ring in one go in IP mode.
const RUN: usize = 64;

/// The two ends of the queue of an index, of so many.
pub(crate) fn pair(
    shared: &Arc<Shared>,
    (index, queues): (u16, u16),
    mode: Mode,
) -> io::Result<(Receiver, Sender)> {
    let (owes, signal) = (AtomicBool::new(false), Signal::new()?);
    let debt = Arc::new(Debt { owes, signal, mode, answers: Answers::default() });
    let receiver = Receiver::new(shared, &debt, (index, queues))?;
    Ok((receiver, Sender::new(shared, debt, index)))
}

/// What an end knows of the connection.
#[derive(Debug)]
struct View {
    shared: Arc<Shared>,
    generation: u64,
    connection: Option<Arc<Connection>>,
}

impl View {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), generation: 0, connection: None }
    }

    /// Whether another connection is in place than this end knows.
    #[inline]
    fn is_old(&self) -> bool {
        self.shared.generation.load(Ordering::Acquire) != self.generation
    }

    #[cold]
    fn renew(&mut self) {
        let current = lock(&self.shared.connection);
        // Under the lock, so that both belong together.
        self.generation = self.shared.generation.load(Ordering::Acquire);
        self.connection.clone_from(&current);
    }
}

/// Frames that were given to a peer which was not looked after yet: it may sleep. Both ends of a
/// queue have it: whoever is called next pays.
#[derive(Debug)]
struct Debt {
    owes: AtomicBool,
    signal: Signal,
    /// What the link carries, and in IP mode answers to what was asked by sending.
    mode: Mode,
    answers: Answers,
}

impl Debt {
    /// Wakes the peer if it sleeps.
    #[inline]
    fn settle(&self, connection: Option<&Arc<Connection>>, index: usize) {
        if self.owes.load(Ordering::Relaxed) {
            self.pay(connection, index);
        }
    }

    fn pay(&self, connection: Option<&Arc<Connection>>, index: usize) {
        // What was given is seen before the peer is looked after, whichever end pays.
        self.owes.swap(false, Ordering::Acquire);
        if let Some(line) = connection.and_then(|connection| connection.tx_line(index))
            && line.words.wants_interrupt()
        {
            self.signal.raise(&line.event);
        }
    }
}

impl Connection {
    /// The ring that a queue sends by.
    #[inline]
    fn tx_line(&self, index: usize) -> Option<&Line<TxRing>> {
        self.tx.get(index).or_else(|| self.tx.get(index % self.tx.len().max(1)))
    }
}

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Receiver {
    view: View,
    debt: Arc<Debt>,
    index: usize,
    /// Queues of the link.
    queues: usize,
    /// The ring that is emptied first, so that a busy one does not starve the others.
    first: usize,
    /// Readable when frames may have come. It waits for edges, so that nothing of the peer's is
    /// ever read.
    wake: OwnedFd,
    counters: Arc<Counters>,
}

impl Receiver {
    fn new(
        shared: &Arc<Shared>,
        debt: &Arc<Debt>,
        (index, queues): (u16, u16),
    ) -> io::Result<Self> {
        let wake = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&wake, &shared.changed)?;
        let (view, debt) = (View::new(shared), Arc::clone(debt));
        let (index, queues) = (usize::from(index), usize::from(queues));
        let counters = shared.counters.add();
        Ok(Self { view, debt, index, queues, first: 0, wake, counters })
    }

    /// Waits for the ring's interrupts no more. The peer has the eventfd too, so that closing ours
    /// would not end it.
    fn forget(&self) {
        for line in self.lines() {
            let _ = epoll::delete(&self.wake, &line.event);
        }
    }

    #[cold]
    fn renew(&mut self) {
        self.forget();
        self.view.renew();
        for line in self.lines() {
            let _ = watch(&self.wake, &line.event);
        }
    }

    /// The rings that this queue empties.
    #[inline]
    fn lines(&self) -> impl Iterator<Item = &Line<RxRing>> {
        let all = self.view.connection.iter().flat_map(|connection| connection.rx.iter());
        all.skip(self.index).step_by(self.queues)
    }

    /// Receives the frames that wait, `most` at most. Returns how many.
    #[inline]
    pub fn receive(&mut self, most: usize, landing: &mut impl Landing) -> usize {
        if self.view.is_old() {
            self.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        match self.debt.mode {
            Mode::Ethernet => self.collect(most, landing),
            Mode::Ip(addresses) => {
                let answers = &self.debt.answers;
                let count = if answers.is_some() { answers.land(most, landing) } else { 0 };
                count + self.collect(most - count, &mut Framing { inner: landing, addresses })
            }
        }
    }

    /// Receives the frames that wait in all rings of this queue.
    #[inline]
    fn collect(&mut self, most: usize, landing: &mut impl Landing) -> usize {
        let rings = self.view.connection.as_ref().map_or(0, |connection| connection.rx.len());
        if rings <= self.index + self.queues {
            return if rings > self.index { self.empty(self.index, most, landing) } else { 0 };
        }
        let of_it = (rings - self.index).div_ceil(self.queues);
        self.first = (self.first + 1) % of_it;
        let mut count = 0;
        for turn in 0..of_it {
            let ring = self.index + (self.first + turn) % of_it * self.queues;
            count += self.empty(ring, most - count, landing);
        }
        count
    }

    /// Receives the frames that wait in a ring.
    #[inline]
    fn empty(&mut self, ring: usize, most: usize, landing: &mut impl Landing) -> usize {
        let connection = self.view.connection.as_ref();
        let Some(line) = connection.and_then(|connection| connection.rx.get(ring)) else {
            return 0;
        };
        let came = line.ring.with(|ring| ring.receive(most, landing));
        let counters = &self.counters;
        match came {
            Ok(came) => {
                if came.frames > 0 {
                    counters.rx_frames.add(came.frames as u64);
                    counters.rx_bytes.add(came.bytes);
                }
                if came.errors > 0 || came.no_room {
                    counters.rx_errors.add(came.errors);
                    counters.rx_no_buffer.add(u64::from(came.no_room));
                }
                came.frames
            }
            Err(lie) => {
                self.leave(lie);
                0
            }
        }
    }

    #[cold]
    pub(crate) fn leave(&mut self, lie: Lie) {
        self.forget();
        self.view.shared.accuse(lie);
        self.view.connection = None;
    }

    /// Whether another connection is in place, or none.
    pub(crate) fn is_old(&self) -> bool {
        self.view.is_old()
    }

    /// Takes the connection that is in place.
    pub(crate) fn follow(&mut self) {
        if self.view.is_old() {
            self.renew();
        }
    }

    /// Wakes the peer if it was given something and sleeps.
    pub(crate) fn settle(&self) {
        self.debt.settle(self.view.connection.as_ref(), self.index);
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.view.connection.clone()
    }

    /// The rings that this queue empties, each time another one first.
    pub(crate) fn rings(&mut self) -> impl Iterator<Item = usize> + use<> {
        let rings = self.view.connection.as_ref().map_or(0, |connection| connection.rx.len());
        let of_it = rings.saturating_sub(self.index).div_ceil(self.queues);
        self.first = (self.first + 1) % of_it.max(1);
        let (index, first, queues) = (self.index, self.first, self.queues);
        (0..of_it).map(move |turn| index + (first + turn) % of_it * queues)
    }

    /// The descriptor that is readable when frames may have come since [`Self::arm`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Called before sleeping: asks the peer for interrupts. `false` when there is something to
    /// receive already: do not sleep.
    pub fn arm(&mut self) -> bool {
        if self.view.is_old() {
            self.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        if self.debt.answers.is_some() {
            return false;
        }
        self.lines().for_each(|line| line.words.want_interrupts(true));
        let sleeps = self.lines().all(|line| line.ring.with(|ring| ring.waiting() == Ok(0)));
        if !sleeps {
            self.lines().for_each(|line| line.words.want_interrupts(false));
        }
        sleeps
    }

    /// Called after sleeping.
    pub fn disarm(&mut self) {
        self.lines().for_each(|line| line.words.want_interrupts(false));
        let mut events =
            [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 32];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.wake, &mut events[..], Some(&now));
    }
}

/// Waits for edges of an eventfd.
fn watch(set: &OwnedFd, event: &OwnedFd) -> rustix::io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(set, event, EventData::new_u64(0), flags)
}

/// The sending end of a queue.
#[derive(Debug)]
pub struct Sender {
    view: View,
    debt: Arc<Debt>,
    index: usize,
    counters: Arc<Counters>,
}

impl Sender {
    fn new(shared: &Arc<Shared>, debt: Arc<Debt>, index: u16) -> Self {
        let (view, index) = (View::new(shared), usize::from(index));
        Self { view, debt, index, counters: shared.counters.add() }
    }

    /// Lets go of a peer that has left. To be called now and then where nothing is sent: its memory
    /// stays mapped as long as an end uses it.
    #[inline]
    pub fn refresh(&mut self) {
        if self.view.is_old() {
            self.view.renew();
        }
    }

    /// Whether another connection is in place, or none.
    pub(crate) fn is_old(&self) -> bool {
        self.view.is_old()
    }

    /// Wakes the peer if it was given something and sleeps.
    pub(crate) fn settle(&self) {
        self.debt.settle(self.view.connection.as_ref(), self.index);
    }

    /// The peer was given something.
    pub(crate) fn owe(&self) {
        self.debt.owes.store(true, Ordering::Release);
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.view.connection.clone()
    }

    /// The ring that this queue alone sends by.
    pub(crate) fn own_ring(&self, connection: &Connection) -> Option<usize> {
        let line = connection.tx.get(self.index)?;
        (!line.ring.is_shared()).then_some(self.index)
    }

    #[cold]
    pub(crate) fn leave(&mut self, lie: Lie) {
        self.view.shared.accuse(lie);
        self.view.connection = None;
    }

    /// Sends frames from the front. Returns how many need not be offered again. None without a
    /// peer. One that sleeps is woken at the next call of this or of [`Receiver::receive`], so one
    /// of them has to be called again and again.
    #[inline]
    pub fn send<'a>(&mut self, frames: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        if self.view.is_old() {
            self.view.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        match self.debt.mode {
            Mode::Ethernet => self.give(frames),
            Mode::Ip(addresses) => self.send_packets(frames, addresses),
        }
    }

    /// Sends the packets of frames, and answers what is asked.
    fn send_packets<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
        addresses: Addresses,
    ) -> usize {
        let (mut taken, mut run) = (0, ArrayVec::<&[u8], RUN>::new());
        for frame in frames {
            let fate = ip::fate(frame, addresses);
            if let Fate::Packet(packet) = fate {
                run.push(packet);
                if !run.is_full() {
                    continue;
                }
            }
            let given = self.give(run.iter().copied());
            taken += given;
            if given < run.len() {
                return taken;
            }
            run.clear();
            match fate {
                Fate::Packet(_) => {}
                Fate::Answer(answer) => {
                    self.debt.answers.push(answer);
                    taken += 1;
                }
                Fate::Neither => {
                    self.counters.tx_errors.add(1);
                    taken += 1;
                }
            }
        }
        taken + self.give(run.iter().copied())
    }

    /// Sends frames, or packets in IP mode, as they are.
    #[inline]
    fn give<'a>(&mut self, frames: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        let connection = self.view.connection.as_ref();
        let Some(line) = connection.and_then(|connection| connection.tx_line(self.index)) else {
            return 0;
        };
        let sent = line.ring.with(|ring| ring.send(frames));
        let counters = &self.counters;
        match sent {
            Ok(sent) => {
                let frames = sent.taken as u64 - sent.errors;
                if sent.errors > 0 {
                    counters.tx_errors.add(sent.errors);
                }
                if frames > 0 {
                    counters.tx_frames.add(frames);
                    counters.tx_bytes.add(sent.bytes);
                    self.debt.owes.store(true, Ordering::Release);
                }
                sent.taken
            }
            Err(lie) => {
                self.leave(lie);
                0
            }
        }
    }
}
