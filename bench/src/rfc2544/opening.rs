//! Opens sessions before trials (RFC 2544 calls such frames learning frames): a frame of each, in a
//! closed loop, until each has come to a real server.
//!
//! What comes tells what the director made of the session. A frame that does not come is sent
//! again; when none comes any more, it is an error that says what to look at. Where trials send
//! both ways, real servers answer, so that the director has seen both sides of each session.

use super::device::Ports;
use super::frame::{Mix, Stamp, Way, judge};
use super::traffic::{Local, Traffic};
use crate::clock;
use crate::error::BenchError;
use sluice_director::frame::Frame;
use sluice_dpdk::{BURST, Burst, Mbuf};
use std::time::Duration;

/// Frames on the way at a time: fewer than any ring holds.
const ON_THE_WAY: usize = 256;
/// MAC addresses, IPv4 addresses and UDP ports of both ends: where, and how long they are.
const EXCHANGED: [(usize, usize, usize); 3] = [(0, 6, 6), (26, 30, 4), (34, 36, 2)];
/// Seconds after which what has not come is sent again.
const AGAIN_S: f64 = 0.05;
/// Seconds without any frame after which there is no hope.
const HOPELESS_S: f64 = 5.0;
/// How long nothing is done between bursts of a given rate.
const PAUSE: Duration = Duration::from_micros(100);

/// The least frames, which open sessions.
pub fn smallest() -> Result<Mix, BenchError> {
    Mix::parse("64").map_err(BenchError::Usage)
}

/// How sessions are opened.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The number that frames carry.
    pub trial: u16,
    pub ticks_per_s: f64,
    /// Sessions in a second, at most.
    pub rate: Option<u64>,
    /// Whether real servers answer each first frame.
    pub answers: bool,
}

/// Opens all sessions of `traffic`. Gives the MAC addresses of the frames that came to real
/// servers: source, destination.
pub fn open(
    ports: &mut Ports,
    traffic: &mut Traffic,
    manner: Manner,
) -> Result<[[u8; 6]; 2], BenchError> {
    ports.empty();
    let mut opening = Opening {
        locals: vec![Local::default(); traffic.locals.len()],
        missing: Vec::new(),
        next: 0,
        macs: None,
        manner,
    };
    let begun = clock::ticks();
    let (mut heard, mut asked) = (begun, begun);
    let ticks = |seconds: f64| (seconds * manner.ticks_per_s) as u64;
    while !opening.is_done() {
        let now = clock::ticks();
        let elapsed_s = (now - begun) as f64 / manner.ticks_per_s;
        let due = manner.rate.map_or(f64::MAX, |rate| rate as f64 * elapsed_s);
        opening.send_new(ports, traffic, due as usize);
        if manner.rate.is_some() {
            // The core may have others to run: what is measured, say.
            std::thread::sleep(PAUSE);
        }
        if opening.missing.is_empty() {
            heard = now;
        }
        if opening.receive(ports)? {
            (heard, asked) = (now, now);
        } else if now - heard > ticks(HOPELESS_S) {
            let opened = opening.locals.iter().filter(|local| local.is_known()).count();
            return Err(BenchError::Silent { opened, sessions: opening.locals.len() });
        } else if now - asked > ticks(AGAIN_S) {
            asked = now;
            let missing = opening.missing.clone();
            opening.send(ports, traffic, &missing);
        }
    }
    traffic.locals = opening.locals;
    opening.macs.ok_or(BenchError::Silent { opened: 0, sessions: 0 })
}

struct Opening {
    locals: Vec<Local>,
    /// Sessions whose frame is on the way.
    missing: Vec<u32>,
    /// The next one that has not been sent yet.
    next: u32,
    macs: Option<[[u8; 6]; 2]>,
    manner: Manner,
}

impl Opening {
    fn is_done(&self) -> bool {
        self.next as usize == self.locals.len() && self.missing.is_empty()
    }

    /// Sends first frames of further sessions, of which so many are due since the beginning.
    fn send_new(&mut self, ports: &mut Ports, traffic: &Traffic, due: usize) {
        let left = self.locals.len().min(due).saturating_sub(self.next as usize);
        let count = (ON_THE_WAY - self.missing.len()).min(left).min(BURST) as u32;
        let flows: Vec<u32> = (self.next..self.next + count).collect();
        self.send(ports, traffic, &flows);
        self.next += count;
        self.missing.extend(flows);
    }

    /// Sends a frame of each; one that cannot go now will be missed and sent again.
    fn send(&self, ports: &mut Ports, traffic: &Traffic, flows: &[u32]) {
        let way = Way::Inbound;
        let queue = ports.from(way);
        let mut burst = Burst::new();
        for part in flows.chunks(BURST) {
            for flow in part {
                let stamp = Stamp { trial: self.manner.trial, way, flow: *flow, sequence: 0 };
                let Some(mut frame) = ports.pool.alloc() else { break };
                let fits = frame.set_len(traffic.len(stamp));
                debug_assert!(fits, "a buffer holds any frame of ours");
                traffic.write(frame.bytes_mut(), stamp);
                burst.push(frame);
            }
            ports.tx[queue].tx(&mut burst);
            burst.clear();
        }
    }

    /// Takes what has come. Whether a session was opened.
    fn receive(&mut self, ports: &mut Ports) -> Result<bool, BenchError> {
        let (mut burst, mut any) = (Burst::new(), false);
        let Some(queue) = ports.rx.last_mut() else { return Ok(false) };
        queue.rx(&mut burst);
        let mut answers = Burst::new();
        for frame in &burst {
            let learnt = self.learn(frame.bytes())?;
            any |= learnt;
            if learnt && self.manner.answers {
                answers.extend(answer(ports, frame.bytes()));
            }
        }
        if let Some(tx) = ports.tx.last_mut() {
            tx.tx(&mut answers);
        }
        // A frame may come back to the clients' port, as an ICMP error.
        if ports.rx.len() > 1 {
            burst.clear();
            ports.rx[0].rx(&mut burst);
        }
        Ok(any)
    }

    fn learn(&mut self, frame: &[u8]) -> Result<bool, BenchError> {
        let stamp = Stamp::read(frame);
        let trial = self.manner.trial;
        let Some(stamp) = stamp.filter(|s| s.trial == trial && s.way == Way::Inbound) else {
            return Ok(false);
        };
        let Some(at) = self.missing.iter().position(|flow| *flow == stamp.flow) else {
            return Ok(false);
        };
        let seen = judge(frame)?;
        self.missing.swap_remove(at);
        self.locals[stamp.flow as usize] = Local::of(seen.from, seen.to);
        self.macs.get_or_insert([seen.macs.0, seen.macs.1]);
        Ok(true)
    }
}

/// What a real server answers to a frame: the same with its ends exchanged, which leaves checksums
/// as they are. `None` if there is no room.
fn answer(ports: &Ports, request: &[u8]) -> Option<Mbuf> {
    let mut frame = ports.pool.alloc()?;
    if !frame.set_len(request.len()) {
        return None;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_from_slice(request);
    for (from, to, length) in EXCHANGED {
        let (before, behind) = bytes.split_at_mut(to);
        before[from..from + length].swap_with_slice(&mut behind[..length]);
    }
    Some(frame)
}
