//! Frames through the packet path on the captures' clock.
//!
//! Frames are collected to bursts as a port would deliver them: consecutive ones of one port, up
//! to the burst's length. A burst ends where the path's clock moves on, so that every frame meets
//! the same clock whatever the bursts' length, and with the first fragment of a datagram, so that
//! those that came before it leave right behind it. So the outcome does not depend on the bursts'
//! length, nor does its order.

use std::time::Duration;

use sluice_config::Config;
use sluice_director::counters::Counters;
use sluice_director::fib::{Fib, PortId};
use sluice_director::path::{BURST, Parked, Parking, Path, PathConfig, Verdict, View};
use sluice_director::plan::{Plan, Retired};
use sluice_director::spec::NetworkId;
use sluice_director::{Frame, Reason, Time};
use sluice_table::PagePolicy;
use sluice_wire::{ethernet, fragment, ipv4, ipv6};

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

/// A network: a packet path of its own.
struct Net {
    plan: Plan,
    fib: Fib,
    path: Path,
    parking: Parking<CaptureFrame>,
}

/// One worker's packet paths, and the frames that wait for their next turn.
pub struct Player {
    config: Config,
    plan: Plan,
    /// By the networks' numbers.
    nets: Vec<Net>,
    /// The network of each port.
    of_port: Vec<NetworkId>,
    burst: usize,
    port: PortId,
    next: Batch,
    now: Time,
    swept: Time,
    ports: Vec<PortReport>,
}

impl Net {
    fn new(config: &Config, plan: &Plan, id: u16, sessions: u32) -> Result<Self, ReplayError> {
        let plan = plan.of_network(NetworkId(id));
        let fib = network::fib(config, &plan);
        let mut path = Path::new(&PathConfig {
            worker: 0,
            workers: 1,
            sessions,
            fragments: config.limits.fragments,
            seed: SEED,
            pages: PagePolicy::Ordinary,
        })
        .map_err(|error| ReplayError::Memory(error.to_string()))?;
        path.adopt(&plan);
        Ok(Self { plan, fib, path, parking: Parking::new() })
    }
}

impl Player {
    /// A director with this configuration that has seen no packet. One worker holds all sessions,
    /// however many the configuration has. Turns take up to `burst` frames (1 to 64).
    ///
    /// # Errors
    /// When the configuration cannot be compiled or its session table does not fit in memory.
    pub fn new(config: &Config, burst: usize) -> Result<Self, ReplayError> {
        let plan = Plan::compile(&config.spec(), None, &Retired::default())?;
        let isolated = config.networks.iter().map(|network| network.sessions);
        let sessions = std::iter::once(config.limits.sessions).chain(isolated);
        let nets = sessions.zip(0..).map(|(sessions, id)| Net::new(config, &plan, id, sessions));
        let nets = nets.collect::<Result<Vec<_>, _>>()?;
        let of_port = config.ports.iter();
        let of_port = of_port.map(|port| config.network_id(&port.network).unwrap_or_default());
        let ports = config.ports.iter();
        Ok(Self {
            ports: ports
                .map(|port| PortReport { name: port.name.clone(), received: 0, sent: 0 })
                .collect(),
            of_port: of_port.collect(),
            config: config.clone(),
            plan,
            nets,
            burst: burst.clamp(1, BURST),
            port: PortId(0),
            next: Batch::default(),
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
        if port != self.port || now != self.now || self.next.frames.len() == self.burst {
            self.turn(send)?;
        }
        self.port = port;
        self.set_clock(now);
        if let Some(counts) = self.ports.get_mut(usize::from(port.0)) {
            counts.received += 1;
        }
        self.next.push(CaptureFrame::new(bytes), at, now);
        if is_first_fragment(bytes) { self.turn(send) } else { Ok(()) }
    }

    /// Plays what still waits, and reports.
    pub fn finish<E>(
        mut self,
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<Report, E> {
        self.turn(send)?;
        let (mut counters, mut live) = (Counters::default(), 0);
        for Net { plan, path, parking, .. } in &mut self.nets {
            let parked = parking.clear(None);
            (0..parked).for_each(|_| path.count(Reason::FragmentOrphan));
            path.sweep_all(plan, self.now);
            counters.add(path.counters());
            live += u64::from(path.live_sessions());
        }
        Ok(Report::new((&self.config, &self.plan), (&counters, live), self.ports))
    }

    /// The plans of the networks, by number.
    pub(super) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.nets.iter().map(|net| &net.plan)
    }

    /// The number of a port's network.
    pub(super) fn network_of(&self, port: PortId) -> u16 {
        self.of_port.get(usize::from(port.0)).copied().unwrap_or_default().0
    }

    /// The network of a port.
    fn net(&mut self, port: PortId) -> &mut Net {
        let network = self.network_of(port);
        &mut self.nets[usize::from(network)]
    }

    /// Moves the clock, and ends on the way what would have timed out in a running director.
    fn set_clock(&mut self, now: Time) {
        if self.now == Time(0) {
            self.swept = now;
        }
        self.now = now;
        for Net { path, parking, .. } in &mut self.nets {
            while parking.give_up(now).is_some() {
                path.count(Reason::FragmentOrphan);
            }
        }
        while now.0 - self.swept.0 >= SWEEP_MS {
            self.swept = now.min(Time(self.swept.0 + LONGEST_LEAP_MS));
            for Net { plan, path, .. } in &mut self.nets {
                path.sweep_all(plan, self.swept);
            }
        }
    }

    /// Plays the frames that wait for their turn, and then those that waited for one of them.
    fn turn<E>(
        &mut self,
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut batch = std::mem::take(&mut self.next);
        let at = batch.times.last().copied().unwrap_or_default();
        self.play(self.port, &mut batch, send)?;
        let net = self.net(self.port);
        let joined = net.path.joined().to_vec();
        // Who is parked again is not tried for ever.
        let mut tries = net.parking.len();
        while tries > 0
            && let Some(first) = self.net(self.port).parking.take(&joined, None)
        {
            let (port, mut next) = (first.port, Some(first));
            batch.clear();
            while let Some(parked) = next {
                // It leaves because of what came now.
                batch.push(parked.frame, at, parked.since);
                let full = batch.frames.len() == BURST;
                let parking = &mut self.net(port).parking;
                next = if full { None } else { parking.take(&joined, Some(port)) };
            }
            tries = tries.saturating_sub(batch.frames.len());
            self.play(port, &mut batch, send)?;
        }
        batch.clear();
        self.next = batch;
        Ok(())
    }

    fn play<E>(
        &mut self,
        port: PortId,
        batch: &mut Batch,
        send: &mut impl FnMut(PortId, Duration, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut verdicts = [Verdict::Wait; BURST];
        let verdicts = &mut verdicts[..batch.frames.len()];
        let now = self.now;
        let Net { plan, fib, path, .. } = self.net(port);
        path.turn(View { plan, fib }, now, port, &mut batch.frames, verdicts);
        for (lane, verdict) in verdicts.iter().enumerate() {
            let (frame, at) = (&batch.frames[lane], batch.times[lane]);
            match *verdict {
                Verdict::Tx(port) | Verdict::Answer(port, _) => {
                    self.count_sent(port);
                    send(port, at, frame.bytes())?;
                }
                Verdict::Fragment(port, mtu) => match pieces(frame.bytes(), mtu) {
                    Some(pieces) => {
                        for piece in pieces {
                            self.count_sent(port);
                            send(port, at, &piece)?;
                        }
                    }
                    None => self.net(port).path.count(Reason::TooBig),
                },
                Verdict::Park(datagram) => {
                    let (frame, since) = (frame.clone(), batch.since[lane]);
                    let Net { path, parking, .. } = self.net(port);
                    if let Err(reason) = parking.park(Parked { frame, port, datagram, since }) {
                        path.count(reason);
                    }
                }
                // Static neighbours never become known.
                Verdict::Wait => self.net(port).path.count(Reason::Unresolved),
                Verdict::HandOff(_) => self.net(port).path.count(Reason::HandOffLoop),
                Verdict::Kernel(_) | Verdict::Drop(_) => {}
            }
        }
        Ok(())
    }

    fn count_sent(&mut self, port: PortId) {
        if let Some(counts) = self.ports.get_mut(usize::from(port.0)) {
            counts.sent += 1;
        }
    }
}

/// Whether a frame carries the first fragment of a datagram.
fn is_first_fragment(frame: &[u8]) -> bool {
    let packet = ethernet::payload(frame).and_then(|payload| frame.get(payload.offset..));
    let Some(packet) = packet else { return false };
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        let place = ipv6::walk(packet).ok().and_then(|upper| upper.fragment);
        return place.is_some_and(|place| place.offset == 0 && place.more);
    }
    let place = ipv4::Header::parse(packet).map(fragment::FragmentInfo::of);
    place.is_ok_and(|place| place.offset == 0 && place.more)
}

/// Frames that are turned together: each with the time that it leaves at if it does, and when it
/// came.
#[derive(Default)]
struct Batch {
    frames: Vec<CaptureFrame>,
    times: Vec<Duration>,
    since: Vec<Time>,
}

impl Batch {
    fn push(&mut self, frame: CaptureFrame, at: Duration, since: Time) {
        self.frames.push(frame);
        self.times.push(at);
        self.since.push(since);
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.times.clear();
        self.since.clear();
    }
}

/// A frame in pieces whose packets are at most `mtu` bytes long, each behind the frame's own
/// link-layer header. `None` when it cannot be cut.
pub(super) fn pieces(frame: &[u8], mtu: u16) -> Option<Vec<Vec<u8>>> {
    let (link, packet) = frame.split_at_checked(ethernet::payload(frame)?.offset)?;
    let mut pieces = Vec::new();
    let cut = fragment::cut(packet, mtu, |header, payload| {
        pieces.push([link, header, payload].concat());
        true
    });
    cut.ok().map(|_| pieces)
}
