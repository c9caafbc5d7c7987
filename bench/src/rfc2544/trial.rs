//! One trial: so many frames a second for so long, and how many of them came.
//!
//! Sender and receiver take turns on one core, or have one each; they share nothing but what says
//! that the sender is done. Every frame that comes is asked for its stamp, its port and its length,
//! and counts once; one in [`JUDGED`] is read to the last field. A frame of an earlier trial is
//! told by its stamp and does not count.

use super::device::Ports;
use super::frame::{Stamp, Way};
use super::pace::Pace;
use super::search::{Ask, Outcome};
use super::traffic::Traffic;
use super::window::{Arrival, Window};
use crate::clients::Random;
use crate::clock;
use crate::error::BenchError;
use crate::machine;
use sluice_director::frame::Frame;
use sluice_dpdk::{BURST, Burst, FramePool, RxQueue, TxQueue, WorkerThread};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Of so many frames one is judged.
const JUDGED: u64 = 256;
/// The sender is not done yet.
const NOT_DONE: u64 = u64::MAX;
/// Seconds that frames which a port does not take are offered to it after the last.
const FLUSH_S: f64 = 0.1;

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// By direction, each frame once.
    pub received: [u64; 2],
    /// Of earlier trials.
    pub late: u64,
    /// That had come before.
    pub again: u64,
    /// So late that it is unknown whether they had come before; they do not count.
    pub forgotten: u64,
    /// Not ours.
    pub foreign: u64,
    /// Read to the last field.
    pub judged: u64,
}

/// What a trial gave.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub ask: Ask,
    /// Frames that went, or would have gone if the device under test had taken them.
    pub sent: u64,
    /// Of these, frames for which the device's ring had no room.
    pub refused: u64,
    pub count: Count,
    pub effective_s: f64,
    pub fell_short: bool,
    /// Seconds in which the generator was not given its core.
    pub stood_still_s: f64,
    pub longest_gap_s: f64,
}

impl Done {
    /// For the search.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            sent: self.sent,
            received: self.count.received.iter().sum(),
            effective_s: self.effective_s,
            fell_short: self.fell_short,
        }
    }
}

/// How trials are run.
#[derive(Clone, Debug)]
pub struct Bench {
    pub ticks_per_s: f64,
    /// Seconds without a frame after which those that are missing are lost.
    pub drain_s: f64,
    /// A core of the receiver's own.
    pub receiver_core: Option<usize>,
    /// The number of the last trial.
    pub trial: u16,
    pub random: Random,
}

impl Bench {
    /// The next trial's number.
    pub fn number(&mut self) -> u16 {
        self.trial = self.trial.checked_add(1).unwrap_or(1);
        self.trial
    }

    /// Runs a trial.
    pub fn run(
        &mut self,
        ports: &mut Ports,
        traffic: &Traffic,
        ask: Ask,
    ) -> Result<Done, BenchError> {
        ports.empty();
        let trial = self.number();
        let from = Way::BOTH.map(|way| ports.from(way));
        let mut sender = Sender {
            tx: &mut ports.tx,
            pool: ports.pool,
            traffic,
            from,
            trial,
            random: self.random.clone(),
            waiting: [Burst::new(), Burst::new()],
            sequence: [0; 2],
            sent: 0,
            refused: 0,
            full_is_lost: ports.full_is_lost,
        };
        let receiver = Receiver::new(&mut ports.rx, traffic, trial);
        let unit = traffic.ways.len() as u64;
        let pace = Pace::new(ask.load_pps, ask.duration_s, unit, self.ticks_per_s, clock::ticks());
        let (pace, count) = match self.receiver_core {
            None => self.alone(&mut sender, receiver, pace)?,
            Some(core) => self.together(&mut sender, (receiver, core, &ports.eal), pace)?,
        };
        self.random = sender.random.clone();
        let (stood_still_s, longest_gap_s) = pace.disturbance_s();
        Ok(Done {
            ask,
            sent: sender.sent + sender.refused,
            refused: sender.refused,
            count,
            effective_s: pace.effective_s(),
            fell_short: pace.fell_short(),
            stood_still_s,
            longest_gap_s,
        })
    }

    /// Both on this core, in turns.
    fn alone(
        &self,
        sender: &mut Sender,
        mut receiver: Receiver,
        mut pace: Pace,
    ) -> Result<(Pace, Count), BenchError> {
        while !pace.is_over() {
            sender.turn(&mut pace);
            receiver.turn()?;
        }
        let flush = clock::ticks() + self.ticks(FLUSH_S);
        while !sender.flush() && clock::ticks() < flush {
            receiver.turn()?;
        }
        let sent = AtomicU64::new(sender.sent);
        receiver.drain(&sent, self.ticks(self.drain_s))?;
        Ok((pace, receiver.count))
    }

    /// The receiver on a core of its own.
    fn together(
        &self,
        sender: &mut Sender,
        (mut receiver, core, eal): (Receiver, usize, &sluice_dpdk::Eal),
        mut pace: Pace,
    ) -> Result<(Pace, Count), BenchError> {
        let (sent, drain) = (AtomicU64::new(NOT_DONE), self.ticks(self.drain_s));
        let sent = &sent;
        let received = thread::scope(|scope| {
            let thread = scope.spawn(move || {
                machine::pin(core)?;
                let _registered = WorkerThread::register(eal)?;
                receiver.drain(sent, drain)?;
                Ok(receiver.count)
            });
            while !pace.is_over() && !thread.is_finished() {
                sender.turn(&mut pace);
            }
            let flush = clock::ticks() + self.ticks(FLUSH_S);
            while !sender.flush() && clock::ticks() < flush {}
            sent.store(sender.sent, Ordering::Release);
            thread.join()
        });
        let count = received.expect("a panic in a thread has said what it is");
        count.map(|count| (pace, count))
    }

    fn ticks(&self, seconds: f64) -> u64 {
        (seconds * self.ticks_per_s) as u64
    }
}

/// Writes frames and sends them when they are due.
struct Sender<'a> {
    tx: &'a mut [TxQueue],
    pool: FramePool,
    traffic: &'a Traffic,
    /// The port of each direction.
    from: [usize; 2],
    trial: u16,
    random: Random,
    /// What a port has not taken yet.
    waiting: [Burst; 2],
    sequence: [u32; 2],
    sent: u64,
    refused: u64,
    full_is_lost: bool,
}

impl Sender<'_> {
    /// Sends what is due now, at most a burst of each direction.
    #[inline(always)]
    fn turn(&mut self, pace: &mut Pace) {
        let ways = self.traffic.ways;
        let due = pace.due(clock::ticks()) as usize / ways.len();
        if due == 0 || !self.flush() {
            return;
        }
        for way in ways {
            let count = self.write(*way, due.min(BURST));
            pace.sent(count as u64);
        }
        self.flush();
    }

    /// Writes frames. None where there are no buffers: then they are missing from the schedule.
    #[inline(always)]
    fn write(&mut self, way: Way, count: usize) -> usize {
        let burst = &mut self.waiting[way.index()];
        let count = self.pool.alloc_burst(burst, count);
        for frame in burst.iter_mut() {
            let sequence = &mut self.sequence[way.index()];
            let flow = self.traffic.draw(&mut self.random);
            let stamp = Stamp { trial: self.trial, way, flow, sequence: *sequence };
            *sequence += 1;
            let fits = frame.set_len(self.traffic.len(stamp));
            debug_assert!(fits, "a buffer holds any frame of ours");
            self.traffic.write(frame.bytes_mut(), stamp);
        }
        count
    }

    /// Hands over what waits. Whether nothing waits any more.
    #[inline(always)]
    fn flush(&mut self) -> bool {
        for way in self.traffic.ways {
            let burst = &mut self.waiting[way.index()];
            self.sent += self.tx[self.from[way.index()]].tx(burst) as u64;
            if self.full_is_lost {
                self.refused += burst.len() as u64;
                burst.clear();
            }
        }
        self.waiting.iter().all(|burst| burst.is_empty())
    }
}

/// Takes frames and counts them.
struct Receiver<'a> {
    rx: &'a mut [RxQueue],
    traffic: &'a Traffic,
    trial: u16,
    windows: [Window; 2],
    count: Count,
    burst: Burst,
}

impl<'a> Receiver<'a> {
    fn new(rx: &'a mut [RxQueue], traffic: &'a Traffic, trial: u16) -> Self {
        let windows = [Window::new(), Window::new()];
        Self { rx, traffic, trial, windows, count: Count::default(), burst: Burst::new() }
    }

    /// Looks at each port once.
    #[inline(always)]
    fn turn(&mut self) -> Result<(), BenchError> {
        for port in 0..self.rx.len() {
            let mut burst = std::mem::take(&mut self.burst);
            self.rx[port].rx(&mut burst);
            for frame in &burst {
                self.take(frame.bytes(), port)?;
            }
            burst.clear();
            self.burst = burst;
        }
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, frame: &[u8], port: usize) -> Result<(), BenchError> {
        let Some(stamp) = Stamp::read(frame) else {
            self.count.foreign += 1;
            return Ok(());
        };
        if stamp.trial != self.trial {
            self.count.late += 1;
            return Ok(());
        }
        let expected = match stamp.way {
            Way::Inbound => self.rx.len() - 1,
            Way::Outbound => 0,
        };
        if port != expected {
            let what = format!("{stamp:?} came to port {port} instead of {expected}");
            return Err(BenchError::Forged { what });
        }
        self.traffic.check(frame, stamp)?;
        match self.windows[stamp.way.index()].arrived(stamp.sequence) {
            Arrival::New => {}
            Arrival::Again => {
                self.count.again += 1;
                return Ok(());
            }
            Arrival::Forgotten => {
                self.count.forgotten += 1;
                return Ok(());
            }
        }
        let received = &mut self.count.received[stamp.way.index()];
        *received += 1;
        if (*received).is_multiple_of(JUDGED) {
            self.count.judged += 1;
            self.traffic.judge(frame, stamp)?;
        }
        Ok(())
    }

    fn received(&self) -> u64 {
        self.count.received.iter().sum()
    }

    /// Takes frames until all that were sent have come, or the sender is done and none of them has
    /// come for so many ticks.
    fn drain(&mut self, sent: &AtomicU64, ticks: u64) -> Result<(), BenchError> {
        let mut last = None;
        loop {
            let before = self.received();
            self.turn()?;
            let sent = sent.load(Ordering::Acquire);
            if sent == NOT_DONE {
                continue;
            }
            let now = clock::ticks();
            let any = self.received() > before;
            let since = if any { now } else { last.unwrap_or(now) };
            last = Some(since);
            if self.received() >= sent || now - since > ticks {
                return Ok(());
            }
        }
    }
}
