//! One flow of numbered datagrams or segments, and rounds of it through whatever spreads it.

use super::{MEANT, lost};
use crate::args::{Family, Protocol, Work};
use crate::clients::{self, Endpoint};
use crate::error::BenchError;
use crate::port::{self, MemFrame, MemQueue};
use crate::report::quantile;
use crate::scene::{MACS, ROUTER_MAC, Scene};
use crate::template::{Content, Kind, Segment, Template, headers};
use crate::traffic::Way;
use sluice_director::Frame;
use sluice_director::counters::Direction;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, FlowName, Owners, PagePolicy};
use std::net::{IpAddr, Ipv4Addr};

/// Frames that are written and then go through, burst by burst.
const FRAMES: usize = 4096;
/// The client's port, or the first of some.
const PORT: u16 = 4000;
/// Initial sequence numbers of the client, which [`Kind::Data`] has, and of the real server.
const NUMBERS: [u32; 2] = [1000, 2000];

/// What one burst took, by step: to receive and deal, to schedule, to rewrite, to collect and send.
pub(super) type Steps<T> = [T; 4];

/// The flow, and frames for it.
pub(super) struct Flow {
    frames: Vec<MemFrame>,
    template: Template,
    ends: [Endpoint; 2],
    work: Work,
    /// That its packets come by, and leave by.
    ports: [PortId; 2],
}

impl Flow {
    /// A flow of worker 0, also where the client's address says whose it is.
    pub fn new(scene: &Scene, (work, size): (Work, u16), seed: u64) -> Result<Self, BenchError> {
        let frames = port::frames(FRAMES, PagePolicy::Auto).map_err(BenchError::Memory)?;
        let (address, _) = clients::prefix(Family::V4);
        let (client, owners) = (ip(address + 1), Owners::new(seed, 2));
        let port = (PORT..).find(|port| owners.of(client, *port) == 0).unwrap_or(PORT);
        let ends = [Endpoint { address: address + 1, port }, scene.target(0)];
        let content = Kind::Data.content(Family::V4, work.protocol(), size);
        let ports = [Way::In, Way::Out].map(|way| scene.port(way));
        let template = Template::new(Family::V4, content, [ROUTER_MAC, mac(ports[0])]);
        Ok(Self { frames, template, ends, work, ports })
    }

    /// The ports that it comes by and leaves by.
    pub const fn ports(&self) -> [PortId; 2] {
        self.ports
    }

    /// A queue of a port in memory.
    pub fn queue(&mut self) -> MemQueue {
        MemQueue::new(BURST, &mut self.frames)
    }

    /// How an operator names it.
    pub fn name(&self) -> FlowName {
        let [client, virtual_] = self.ends.map(|end| (ip(end.address), end.port));
        let protocol = if self.work.protocol() == Protocol::Tcp { 6 } else { 17 };
        FlowName { protocol, client, virtual_, direction: Direction::Inbound }
    }

    /// The transport of its packets.
    pub const fn protocol(&self) -> Protocol {
        self.work.protocol()
    }

    /// Takes its frames, numbered, as many as whole lots of them are, and the rest.
    pub fn take(&mut self, lot: usize) -> (Vec<MemFrame>, Vec<MemFrame>) {
        let mut frames = std::mem::take(&mut self.frames);
        let rest = frames.split_off(frames.len() / lot * lot);
        self.write(&mut frames, 0);
        (frames, rest)
    }

    /// Has its frames back.
    pub fn give_back(&mut self, frames: Vec<MemFrame>) {
        self.frames = frames;
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

    /// What comes out at the other port of one frame between the flow's ends, or of its answers.
    fn pass(
        &mut self,
        way: Way,
        frame: MemFrame,
        (content, macs): (Content, [[u8; 6]; 2]),
        [from, to]: [Endpoint; 2],
    ) -> Result<MemFrame, BenchError> {
        let [near, far] = self.flow().ports;
        let (by, leaves) = if way == Way::In { (near, far) } else { (far, near) };
        let mut frame = vec![frame];
        frame.iter_mut().for_each(|frame| {
            Template::new(Family::V4, content, macs).write(frame, from, to, 0);
        });
        self.load(by, &mut frame);
        self.turn(by);
        self.sent(leaves).pop().ok_or_else(|| lost("opening the flow", 1, 0))
    }

    /// Opens the flow, so that it may be spread.
    fn open(&mut self, scene: &Scene) -> Result<(), BenchError> {
        let all = self.flow().frames.len();
        match self.flow().work.protocol() {
            Protocol::Tcp => self.shake_hands(scene)?,
            Protocol::Udp => self.answer(scene)?,
        }
        match self.flow().frames.len() {
            came if came == all => Ok(()),
            came => Err(lost("opening the flow", all, came)),
        }
    }

    /// The client's datagrams, and an answer where those come by.
    fn answer(&mut self, scene: &Scene) -> Result<(), BenchError> {
        let [near, far] = self.flow().ports;
        let left = self.flow().frames.len() - MEANT;
        let mut few = self.flow().frames.split_off(left);
        self.flow().write(&mut few, 0);
        self.load(near, &mut few);
        self.turn(near);
        let mut sent = self.sent(far);
        if sent.len() != MEANT {
            return Err(lost("opening the flow", MEANT, sent.len()));
        }
        if self.flow().work.like().answers()
            && let Some(frame) = sent.pop()
        {
            let content = Kind::Data.content(Family::V4, Protocol::Udp, 64);
            let ends = [scene.far_endpoint(0), source(&frame)];
            let macs = [scene.far_mac(0), mac(far)];
            sent.push(self.pass(Way::Out, frame, (content, macs), ends)?);
        }
        self.flow().frames.append(&mut sent);
        Ok(())
    }

    /// A handshake, and the real server's acknowledgement of what it was told.
    fn shake_hands(&mut self, scene: &Scene) -> Result<(), BenchError> {
        let [near, far] = self.flow().ports;
        let (ends, [isn, answer]) = (self.flow().ends, NUMBERS);
        let there = [ROUTER_MAC, mac(near)];
        let back = [scene.far_mac(0), mac(far)];
        let Some(frame) = self.flow().frames.pop() else { return Ok(()) };
        let syn = Segment { syn: true, sequence: isn, ..Segment::default() };
        let frame = self.pass(Way::In, frame, (Content::Tcp(syn), there), ends)?;
        let answers = [scene.far_endpoint(0), source(&frame)];
        let acknowledged = Segment { ack: true, acknowledges: isn + 1, ..Segment::default() };
        let accept = Segment { syn: true, sequence: answer, ..acknowledged };
        let frame = self.pass(Way::Out, frame, (Content::Tcp(accept), back), answers)?;
        let ack = Segment { ack: true, acknowledges: answer + 1, ..Segment::default() };
        let ack = Segment { sequence: isn + 1, ..ack };
        let frame = self.pass(Way::In, frame, (Content::Tcp(ack), there), ends)?;
        // What the stream begins with, which an option is not.
        let bytes = frame.bytes();
        let data = usize::from(bytes.get(46).map_or(0, |offset| offset >> 4)) * 4 + 34;
        let total = bytes.get(16..18).and_then(|it| it.first_chunk().copied());
        let end = 14 + usize::from(u16::from_be_bytes(total.unwrap_or_default()));
        let header = end.saturating_sub(data) as u32;
        let knows = Segment { sequence: answer + 1, ..acknowledged };
        let knows = Segment { acknowledges: isn + 1 + header, ..knows };
        let frame = self.pass(Way::Out, frame, (Content::Tcp(knows), back), answers)?;
        self.flow().frames.push(frame);
        Ok(())
    }

    /// Medians of what a burst's steps took a packet; every frame has to come out, in order.
    fn rounds(
        &mut self,
        seconds: f64,
        mut step: impl FnMut(&mut Self) -> Result<Steps<u64>, BenchError>,
    ) -> Result<Steps<f64>, BenchError> {
        let mut taken: Steps<Vec<f64>> = Default::default();
        let ([near, far], protocol) = (self.flow().ports, self.flow().work.protocol());
        let at = headers(Family::V4, protocol);
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            let (frames, mut rest) = self.flow().take(BURST);
            let all = frames.len();
            let length = frames.first().map_or(0, |frame| frame.bytes().len());
            let mut waiting = frames.into_iter();
            for _ in 0..all / BURST {
                // Only what one turn takes: the next one of the owner is to collect, not to deal.
                self.load(near, &mut waiting.by_ref().take(BURST).collect());
                for (taken, ticks) in taken.iter_mut().zip(step(self)?) {
                    taken.push(ticks as f64 / BURST as f64);
                }
            }
            let mut came = self.sent(far);
            let in_order =
                (0..).zip(&came).all(|(place, frame)| number(frame, at, length) == Some(place));
            if came.len() != all || !in_order {
                return Err(lost("spreading the flow", all, came.len()));
            }
            came.append(&mut rest);
            self.flow().give_back(came);
        }
        Ok(taken.map(|taken| quantile(&taken, 0.5)))
    }
}

/// The number that a frame carries at this place of it, when it has this length: it comes behind
/// what is put before it.
pub(super) fn number(frame: &MemFrame, at: usize, length: usize) -> Option<u32> {
    let bytes = frame.bytes();
    let at = at + bytes.len().checked_sub(length)?;
    bytes.get(at..).and_then(|it| it.first_chunk().copied()).map(u32::from_be_bytes)
}

/// An address in the general form.
const fn ip(address: u128) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(address as u32))
}

/// The director's address at a port.
fn mac(port: PortId) -> [u8; 6] {
    MACS[usize::from(port.0)]
}

/// Whom a frame is from.
fn source(frame: &MemFrame) -> Endpoint {
    let bytes = frame.bytes();
    let word = |at: usize| bytes.get(at..at + 4).and_then(|it| it.first_chunk().copied());
    let address = u128::from(u32::from_be_bytes(word(26).unwrap_or_default()));
    let [a, b, ..] = word(34).unwrap_or_default();
    Endpoint { address, port: u16::from_be_bytes([a, b]) }
}
