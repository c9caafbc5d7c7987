//! The generator: the other ends of a director's two shared-memory ports.

use super::scene::{self, BACK, MACS, VTEPS};
use crate::args::Network;
use crate::clients::Random;
use crate::error::BenchError;
use crate::rfc2544::frame::{Mix, Stamp, Way, judge};
use crate::rfc2544::traffic::{Local, Traffic};
use etherparse::PacketBuilder;
use sluice_memif::{
    Address, Landing, Link, LinkConfig, Mode, Receiver, Role, SECRET_BYTES, Sender,
};
use sluice_wire::vxlan;
use std::time::{Duration, Instant};

/// Bytes of the outer headers.
const OUTER: usize = vxlan::OVERHEAD_V4;
/// How long a link may take to come up, and frames to come.
const PATIENCE: Duration = Duration::from_secs(15);
/// One frame in so many is judged.
const JUDGE_EVERY: u32 = 64;
/// Logarithm of a ring's descriptors.
pub const LOG2: u8 = 11;

/// One end of a port.
#[derive(Debug)]
struct End {
    link: Link,
    rx: Receiver,
    tx: Sender,
}

impl End {
    fn open(socket: &str) -> Result<Self, BenchError> {
        let config = LinkConfig {
            name: "sluice-bench".into(),
            socket: Address::Abstract(socket.into()),
            id: 0,
            role: Role::Client,
            mode: Mode::Ethernet,
            secret: [0; SECRET_BYTES],
            queues: 1,
            log2: LOG2,
            buffer_bytes: 2048,
        };
        let opened = Link::open(config)
            .map_err(|source| BenchError::Machine { what: format!("memif:@{socket}"), source });
        let (link, mut ends) = opened?;
        let Some((rx, tx)) = ends.pop() else {
            return Err(BenchError::Link { device: format!("memif:@{socket}") });
        };
        Ok(Self { link, rx, tx })
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        while self.tx.send([frame].into_iter()) == 0 {
            if Instant::now() > deadline {
                let what = "the director's ring stays full".into();
                return Err(BenchError::Usage(what));
            }
        }
        Ok(())
    }
}

/// Where received frames are looked at.
struct Reading<F> {
    room: Vec<u8>,
    look: F,
    failed: Option<BenchError>,
}

impl<F: FnMut(&mut [u8]) -> Result<(), BenchError>> Landing for Reading<F> {
    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn landed(&mut self, length: usize) -> bool {
        if let Err(error) = (self.look)(&mut self.room[..length]) {
            self.failed.get_or_insert(error);
        }
        true
    }
}

/// The generator of one director.
#[derive(Debug)]
pub struct Peer {
    /// In the order of [`Way`]: frames of a way enter by one and leave by the other.
    ends: [End; 2],
    pub traffic: Traffic,
    /// What is before the frames of real servers, by their nodes; nothing without tunnels.
    outer: Vec<[u8; OUTER]>,
    network: Network,
    random: Random,
    trial: u16,
    sequence: u32,
    frame: Vec<u8>,
}

impl Peer {
    pub fn new(
        network: Network,
        sockets: [&str; 2],
        (seed, sessions): (u64, u64),
    ) -> Result<Self, BenchError> {
        let [front, back] = sockets.map(End::open);
        Ok(Self {
            ends: [front?, back?],
            traffic: Traffic::new(seed, scene::VIP, sessions as u32),
            outer: Vec::new(),
            network,
            random: Random::new(seed),
            trial: 0,
            sequence: 0,
            frame: Vec::new(),
        })
    }

    /// Waits until the director has come to both ports.
    pub fn wait(&self) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        while !self.ends.iter().all(|end| end.link.is_up()) {
            if Instant::now() > deadline {
                return Err(BenchError::Link { device: "memif".into() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// From now on frames have this size.
    pub fn shape(&mut self, size: u16) -> Result<(), BenchError> {
        let mix = Mix::parse(&size.to_string()).map_err(BenchError::Usage)?;
        let behind = if self.network == Network::Vxlan { 2 } else { usize::from(BACK.0) };
        self.traffic.shape(&mix, Way::Inbound, [scene::ROUTER_MAC, MACS[0]]);
        self.traffic.shape(&mix, Way::Outbound, [scene::real_mac(0), MACS[behind]]);
        if self.network == Network::Vxlan {
            self.outer = (1..=VTEPS).map(|from| outer(from, usize::from(size) - 4)).collect();
        }
        self.trial += 1;
        self.sequence = 0;
        Ok(())
    }

    fn give(&mut self, stamp: Stamp) -> Result<(), BenchError> {
        let before = match stamp.way {
            Way::Outbound if !self.outer.is_empty() => {
                self.outer[stamp.flow as usize % self.outer.len()].as_slice()
            }
            _ => &[],
        };
        let ahead = before.len();
        self.frame.resize(ahead + self.traffic.len(stamp), 0);
        self.frame[..ahead].copy_from_slice(before);
        self.traffic.write(&mut self.frame[ahead..], stamp);
        self.ends[stamp.way.index()].send(&self.frame)
    }

    /// Sends the first frames of these sessions.
    pub fn open(&mut self, flows: std::ops::Range<u32>) -> Result<(), BenchError> {
        let trial = self.trial;
        flows
            .into_iter()
            .try_for_each(|flow| self.give(Stamp { trial, way: Way::Inbound, flow, sequence: 0 }))
    }

    /// Learns from so many first frames what the director made of their sessions.
    pub fn learn(&mut self, count: usize) -> Result<usize, BenchError> {
        let (network, trial) = (self.network, self.trial);
        let locals = &mut self.traffic.locals;
        receive(&mut self.ends[Way::Outbound.index()].rx, count, |frame| {
            let frame = inside(network, Way::Inbound, frame)?;
            let stamp = Stamp::read(frame).filter(|stamp| stamp.trial == trial);
            let stamp = stamp.ok_or_else(|| forged("no first frame"))?;
            let seen = judge(frame)?;
            locals[stamp.flow as usize] = Local::of(seen.from, seen.to);
            Ok(())
        })
    }

    /// Sends a round: so many frames of random sessions each way.
    pub fn send_round(&mut self, count: u16) -> Result<(), BenchError> {
        for _ in 0..count {
            for way in Way::BOTH {
                let flow = self.traffic.draw(&mut self.random);
                let (trial, sequence) = (self.trial, self.sequence);
                self.give(Stamp { trial, way, flow, sequence })?;
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// Takes what came of a round, as many frames each way. Gives how many came.
    pub fn take_round(&mut self, count: u16) -> Result<usize, BenchError> {
        let (network, trial, traffic) = (self.network, self.trial, &self.traffic);
        let mut all = 0;
        for way in Way::BOTH {
            let out = &mut self.ends[1 - way.index()];
            all += receive(&mut out.rx, usize::from(count), |frame| {
                let frame = inside(network, way, frame)?;
                let stamp = Stamp::read(frame).filter(|s| s.trial == trial && s.way == way);
                let stamp = stamp.ok_or_else(|| forged("a frame of no round"))?;
                traffic.check(frame, stamp)?;
                match stamp.sequence % JUDGE_EVERY {
                    0 => traffic.judge(frame, stamp),
                    _ => Ok(()),
                }
            })?;
        }
        Ok(all)
    }
}

fn forged(what: &str) -> BenchError {
    BenchError::Forged { what: what.into() }
}

/// Receives frames until there are so many or none comes any more.
fn receive(
    rx: &mut Receiver,
    count: usize,
    look: impl FnMut(&mut [u8]) -> Result<(), BenchError>,
) -> Result<usize, BenchError> {
    let mut reading = Reading { room: vec![0; 2048], look, failed: None };
    let mut got = 0;
    while got < count {
        // The director has sent all that it will.
        match rx.receive(count - got, &mut reading) {
            0 => break,
            came => got += came,
        }
    }
    reading.failed.map_or(Ok(got), Err)
}

/// The frame that is in a tunnel, if frames of this way leave in one.
fn inside(network: Network, way: Way, frame: &mut [u8]) -> Result<&mut [u8], BenchError> {
    if network == Network::None || way == Way::Outbound {
        return Ok(frame);
    }
    let vni = frame.get(42..OUTER).and_then(|header| header.first_chunk()).and_then(vxlan::vni);
    if vni != Some(scene::VNI) {
        return Err(forged("a frame that is in no tunnel of the network"));
    }
    if frame[26..30] != scene::vtep(0).octets() || frame[30..33] != [203, 0, 113] {
        return Err(forged("a frame in a tunnel between others"));
    }
    Ok(&mut frame[OUTER..])
}

/// The outer headers that a node puts before frames of so many bytes.
fn outer(from: u8, length: usize) -> [u8; OUTER] {
    let mut bytes = Vec::new();
    let header = vxlan::header(scene::VNI);
    let data = [&header[..], &vec![0; length]].concat();
    let built = PacketBuilder::ethernet2(scene::vtep_mac(from), MACS[usize::from(BACK.0)])
        .ipv4(scene::vtep(from).octets(), scene::vtep(0).octets(), 64)
        .udp(50_000 + u16::from(from), vxlan::PORT)
        .write(&mut bytes, &data);
    debug_assert!(built.is_ok(), "a Vec takes all");
    // No checksum (RFC 7348 5).
    bytes[40..42].fill(0);
    *bytes.first_chunk().unwrap_or(&[0; OUTER])
}
