//! Opens sessions before trials (RFC 2544 calls such frames learning frames): a frame of each, in a
//! closed loop, until each has come to a real server.
//!
//! What comes tells what the director made of the session. A frame that does not come is sent
//! again; when none comes any more, it is an error that says what to look at.

use super::device::Ports;
use super::frame::{Mix, Stamp, Way, judge};
use super::traffic::{Local, Traffic};
use crate::clock;
use crate::error::BenchError;
use sluice_director::frame::Frame;
use sluice_dpdk::{BURST, Burst};

/// Frames on the way at a time: fewer than any ring holds.
const ON_THE_WAY: usize = 256;
/// Seconds after which what has not come is sent again.
const AGAIN_S: f64 = 0.05;
/// Seconds without any frame after which there is no hope.
const HOPELESS_S: f64 = 5.0;

/// The least frames, which open sessions.
pub fn smallest() -> Result<Mix, BenchError> {
    Mix::parse("64").map_err(BenchError::Usage)
}

/// Opens all sessions of `traffic`, by frames that carry the number `trial`. Gives the MAC
/// addresses of the frames that came to real servers: source, destination.
pub fn open(
    ports: &mut Ports,
    traffic: &mut Traffic,
    trial: u16,
    ticks_per_s: f64,
) -> Result<[[u8; 6]; 2], BenchError> {
    ports.empty();
    let mut opening = Opening {
        locals: vec![Local::default(); traffic.locals.len()],
        missing: Vec::new(),
        next: 0,
        macs: None,
        trial,
    };
    let (mut heard, mut asked) = (clock::ticks(), clock::ticks());
    let ticks = |seconds: f64| (seconds * ticks_per_s) as u64;
    while !opening.is_done() {
        opening.send_new(ports, traffic);
        let now = clock::ticks();
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
    trial: u16,
}

impl Opening {
    fn is_done(&self) -> bool {
        self.next as usize == self.locals.len() && self.missing.is_empty()
    }

    /// Sends first frames of further sessions.
    fn send_new(&mut self, ports: &mut Ports, traffic: &Traffic) {
        let left = self.locals.len() - self.next as usize;
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
                let stamp = Stamp { trial: self.trial, way, flow: *flow, sequence: 0 };
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
        for frame in &burst {
            any |= self.learn(frame.bytes())?;
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
        let Some(stamp) = stamp.filter(|s| s.trial == self.trial && s.way == Way::Inbound) else {
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
