//! One flow of numbered datagrams, and rounds of it through whatever spreads it.

use super::{MEANT, lost};
use crate::args::{Family, Mode, Protocol};
use crate::clients::{self, Endpoint};
use crate::error::BenchError;
use crate::port::{self, MemFrame, MemQueue};
use crate::report::quantile;
use crate::scene::{BACK, FRONT, MACS, ROUTER_MAC, Scene};
use crate::template::{Kind, Template};
use sluice_director::Frame;
use sluice_director::counters::Direction;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, FlowName, PagePolicy};
use std::net::{IpAddr, Ipv4Addr};

/// Frames that are written and then go through, burst by burst.
const FRAMES: usize = 4096;
/// The client's port.
const PORT: u16 = 4000;

/// What one burst took, by step: to receive and deal, to schedule, to rewrite, to collect and send.
pub(super) type Steps<T> = [T; 4];

/// The flow, and frames for it.
pub(super) struct Flow {
    frames: Vec<MemFrame>,
    template: Template,
    ends: [Endpoint; 2],
}

impl Flow {
    pub fn new(scene: &Scene, size: u16) -> Result<Self, BenchError> {
        let frames = port::frames(FRAMES, PagePolicy::Auto).map_err(BenchError::Memory)?;
        let (address, _) = clients::prefix(Family::V4);
        let ends = [Endpoint { address: address + 1, port: PORT }, scene.target(0)];
        let content = Kind::Data.content(Family::V4, Protocol::Udp, size);
        let template = Template::new(Family::V4, content, [ROUTER_MAC, MACS[0]]);
        Ok(Self { frames, template, ends })
    }

    /// A queue of a port in memory.
    pub fn queue(&mut self) -> MemQueue {
        MemQueue::new(BURST, &mut self.frames)
    }

    /// How an operator names it.
    pub fn name(&self) -> FlowName {
        let [client, virtual_] =
            self.ends.map(|end| (IpAddr::V4(Ipv4Addr::from_bits(end.address as u32)), end.port));
        FlowName { protocol: 17, client, virtual_, direction: Direction::Inbound }
    }

    /// Writes numbered frames of the flow.
    fn write(&self, frames: &mut [MemFrame], first: u32) {
        let [client, service] = self.ends;
        for (frame, number) in frames.iter_mut().zip(first..) {
            self.template.write(frame, client, service, number);
        }
    }
}

/// Something that the flow goes through.
pub(super) trait Bed {
    fn flow(&mut self) -> &mut Flow;

    fn queue(&mut self, port: PortId) -> Option<&mut MemQueue>;

    /// The ordinary path takes what a port received.
    fn turn(&mut self, port: PortId);

    fn load(&mut self, port: PortId, frames: &mut Vec<MemFrame>) {
        if let Some(queue) = self.queue(port) {
            queue.load(frames);
        }
    }

    fn sent(&mut self, port: PortId) -> Vec<MemFrame> {
        self.queue(port).map(|queue| queue.take_sent().collect()).unwrap_or_default()
    }

    /// Opens the flow: the client's datagrams, and an answer where those come by.
    fn open(&mut self, scene: &Scene, work: Mode) -> Result<(), BenchError> {
        let all = self.flow().frames.len();
        let mut few = self.flow().frames.split_off(all - MEANT);
        self.flow().write(&mut few, 0);
        self.load(FRONT, &mut few);
        self.turn(FRONT);
        let mut sent = self.sent(BACK);
        if sent.len() != MEANT {
            return Err(lost("opening the flow", MEANT, sent.len()));
        }
        if work.answers() {
            let content = Kind::Data.content(Family::V4, Protocol::Udp, 64);
            let macs = [scene.far_mac(0), MACS[1]];
            let answer = Template::new(Family::V4, content, macs);
            let mut frame = sent.pop().into_iter().collect::<Vec<_>>();
            for frame in &mut frame {
                let bytes = frame.bytes();
                let word =
                    |at: usize| bytes.get(at..at + 4).and_then(|it| it.first_chunk().copied());
                let address = u128::from(u32::from_be_bytes(word(26).unwrap_or_default()));
                let [a, b, ..] = word(34).unwrap_or_default();
                let local = Endpoint { address, port: u16::from_be_bytes([a, b]) };
                answer.write(frame, scene.far_endpoint(0), local, 0);
            }
            self.load(BACK, &mut frame);
            self.turn(BACK);
            sent.extend(self.sent(FRONT));
        }
        let frames = &mut self.flow().frames;
        frames.append(&mut sent);
        if frames.len() != all {
            return Err(lost("opening the flow", all, frames.len()));
        }
        Ok(())
    }

    /// Medians of what a burst's steps took a packet; every frame has to come out, in order.
    fn rounds(
        &mut self,
        seconds: f64,
        mut step: impl FnMut(&mut Self) -> Result<Steps<u64>, BenchError>,
    ) -> Result<Steps<f64>, BenchError> {
        let mut taken: Steps<Vec<f64>> = Default::default();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            let mut frames = std::mem::take(&mut self.flow().frames);
            let all = frames.len() / BURST * BURST;
            let mut rest = frames.split_off(all);
            self.flow().write(&mut frames, 0);
            let length = frames.first().map_or(0, |frame| frame.bytes().len());
            let mut waiting = frames.into_iter();
            for _ in 0..all / BURST {
                // Only what one turn takes: the next one of the owner is to collect, not to deal.
                self.load(FRONT, &mut waiting.by_ref().take(BURST).collect());
                for (taken, ticks) in taken.iter_mut().zip(step(self)?) {
                    taken.push(ticks as f64 / BURST as f64);
                }
            }
            let mut came = self.sent(BACK);
            let in_order = (0..).zip(&came).all(|(at, frame)| number(frame, length) == Some(at));
            if came.len() != all || !in_order {
                return Err(lost("spreading the flow", all, came.len()));
            }
            came.append(&mut rest);
            self.flow().frames = came;
        }
        Ok(taken.map(|taken| quantile(&taken, 0.5)))
    }
}

/// The number that a frame carries which had this length: behind what was put before it.
fn number(frame: &MemFrame, length: usize) -> Option<u32> {
    let bytes = frame.bytes();
    let at = 42 + bytes.len().checked_sub(length)?;
    bytes.get(at..).and_then(|it| it.first_chunk().copied()).map(u32::from_be_bytes)
}
