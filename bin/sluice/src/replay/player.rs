//! Frames through the packet path on the captures' clock.
//!
//! Frames are collected to bursts as a port would deliver them: consecutive ones of one port, up
//! to the burst's length. A burst ends where the path's clock moves on, so that every frame meets
//! the same clock whatever the bursts' length, and the outcome does not depend on it.

use std::time::Duration;

use sluice_config::Config;
use sluice_director::fib::{Fib, PortId};
use sluice_director::path::{BURST, Path, PathConfig, Verdict, View};
use sluice_director::plan::{Plan, Retired};
use sluice_director::{Frame, Reason, Time};
use sluice_table::PagePolicy;

use super::error::ReplayError;
use super::frame::CaptureFrame;
use super::network;
use super::report::{PortReport, Report};

/// The hash secret of every replay: the outcome may not depend on chance.
const SEED: u64 = 0x510_1ce;
/// A running director's sweep goes around the sessions in this time or less.
const SWEEP_MS: u64 = 1000;
/// Sessions keep 32 bits of their time, so none may grow older than that unseen by the sweep.
const LONGEST_LEAP_MS: u64 = 1 << 30;

/// One worker's packet path, and the frames that wait for its next turn.
pub struct Player {
    config: Config,
    plan: Plan,
    fib: Fib,
    path: Path,
    burst: usize,
    port: PortId,
    frames: Vec<CaptureFrame>,
    times: Vec<Duration>,
    now: Time,
    swept: Time,
    ports: Vec<PortReport>,
}

impl Player {
    /// A director with this configuration that has seen no packet. One worker holds all sessions,
    /// however many the configuration has. Turns take up to `burst` frames (1 to 64).
    ///
    /// # Errors
    /// When the configuration cannot be compiled or its session table does not fit in memory.
    pub fn new(config: &Config, burst: usize) -> Result<Self, ReplayError> {
        let plan = Plan::compile(&config.blueprint(), None, &Retired::default())?;
        let fib = network::fib(config, &plan);
        let mut path = Path::new(&PathConfig {
            worker: 0,
            workers: 1,
            sessions: config.limits.sessions,
            fragments: config.limits.fragments,
            seed: SEED,
            pages: PagePolicy::Ordinary,
        })
        .map_err(|error| ReplayError::Memory(error.to_string()))?;
        path.adopt(&plan);
        let ports = config.ports.iter();
        Ok(Self {
            ports: ports
                .map(|port| PortReport { name: port.name.clone(), received: 0, sent: 0 })
                .collect(),
            config: config.clone(),
            plan,
            fib,
            path,
            burst: burst.clamp(1, BURST),
            port: PortId(0),
            frames: Vec::with_capacity(BURST),
            times: Vec::with_capacity(BURST),
            now: Time(0),
            swept: Time(0),
        })
    }

    /// Lets `port` receive a frame at `at`; time that goes back stands still. What leaves the
    /// director by then goes to `send`, with the time of the frame that caused it.
    pub fn receive<E>(
        &mut self,
        port: PortId,
        at: Duration,
        bytes: &[u8],
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let now = Time(u64::try_from(at.as_millis()).unwrap_or(u64::MAX)).max(self.now);
        if port != self.port || now != self.now || self.frames.len() == self.burst {
            self.turn(send)?;
        }
        self.port = port;
        self.set_clock(now);
        if let Some(counts) = self.ports.get_mut(usize::from(port.0)) {
            counts.received += 1;
        }
        self.frames.push(CaptureFrame::new(bytes));
        self.times.push(at);
        Ok(())
    }

    /// Plays what still waits, and reports.
    pub fn finish<E>(
        mut self,
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<Report, E> {
        self.turn(send)?;
        self.path.sweep_all(&self.plan, self.now);
        Ok(Report::new(&self.config, &self.plan, &self.path, self.ports))
    }

    /// Moves the clock, and ends on the way what would have timed out in a running director.
    fn set_clock(&mut self, now: Time) {
        if self.now == Time(0) {
            self.swept = now;
        }
        self.now = now;
        while now.0 - self.swept.0 >= SWEEP_MS {
            self.swept = now.min(Time(self.swept.0 + LONGEST_LEAP_MS));
            self.path.sweep_all(&self.plan, self.swept);
        }
    }

    fn turn<E>(
        &mut self,
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut verdicts = [Verdict::Wait; BURST];
        let verdicts = &mut verdicts[..self.frames.len()];
        let view = View { plan: &self.plan, fib: &self.fib };
        self.path.turn(view, self.now, self.port, &mut self.frames, verdicts);
        for (lane, verdict) in verdicts.iter().enumerate() {
            match *verdict {
                Verdict::Tx(port) | Verdict::Answer(port, _) => {
                    if let Some(counts) = self.ports.get_mut(usize::from(port.0)) {
                        counts.sent += 1;
                    }
                    send(port, self.times[lane], self.frames[lane].bytes())?;
                }
                // Static neighbours never become known.
                Verdict::Wait => self.path.count(Reason::Unresolved),
                Verdict::HandOff(_) => self.path.count(Reason::HandOffLoop),
                Verdict::Fragment(..) => self.path.count(Reason::TooBig),
                Verdict::Park(_) => self.path.count(Reason::Fragment),
                Verdict::Kernel(_) | Verdict::Drop(_) => {}
            }
        }
        self.frames.clear();
        self.times.clear();
        Ok(())
    }
}
