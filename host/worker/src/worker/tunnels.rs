//! Frames that travel in tunnels: taken out of what underlay ports receive, put into what leaves by
//! virtual ports.
//!
//! A frame that came out of a tunnel is one that its virtual port received: it goes through the
//! path of that port's network. What the kernel is to have of it goes there with its outer headers,
//! to the kernel's own device of that tunnel; that is how ARP and neighbour discovery are answered.

use super::{Attached, Worker};
use crate::mailbox::{Carried, Event};
use crate::pieces;
use crate::queue::{Burst, Queue};
use crate::ring::Rounds;
use arrayvec::ArrayVec;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, Unprobed, Verdict, View};
use sluice_director::vxlan::Outcome;
use sluice_director::{Frame, Reason, Time};

/// Frames that came out of tunnels, with the virtual ports that they came by.
type Inner<F> = ArrayVec<(PortId, F), BURST>;

/// At most so often the control side is told of a path MTU.
const NARROW_EACH_MS: u64 = 10;
/// So many frames ahead, headers are asked for.
const AHEAD: usize = 4;

impl<Q: Queue> Worker<Q> {
    /// Takes what is tunnels' out of a burst of an underlay port, and runs it through the paths of
    /// its networks. The rest of the burst keeps its order.
    #[inline(never)]
    pub(super) fn take_tunnelled(&mut self, now: Time, port: PortId, burst: &mut Burst<Q::Frame>) {
        // Nearly always all of a burst are of one tunnel, or none is, and stay where they are.
        let (mut all, mut other) = (None, None);
        let mut count = 0;
        while count < burst.len() && other.is_none() {
            if let Some(next) = burst.get(count + AHEAD) {
                next.prefetch();
            }
            match self.tunnels.decapsulate(port, &mut burst[count]) {
                outcome if all.is_none_or(|all| all == outcome) => {
                    all = Some(outcome);
                    count += 1;
                }
                outcome => other = Some(outcome),
            }
        }
        match (all, other) {
            (Some(Outcome::Inner(by)), None) => {
                self.serve_tunnel(now, by, burst);
                burst.clear();
                self.enter(port);
            }
            (Some(Outcome::NotTunnelled), None) => {}
            _ => self.sort_tunnelled(now, port, burst, (all, count, other)),
        }
    }

    /// The same of a burst in which not all are alike. So many of its frames turned out to be
    /// `all`, and then one, if any, to be `other`.
    #[cold]
    fn sort_tunnelled(
        &mut self,
        now: Time,
        port: PortId,
        burst: &mut Burst<Q::Frame>,
        (all, count, mut other): (Option<Outcome>, usize, Option<Outcome>),
    ) {
        let mut inner = Inner::new();
        let mut rest = Burst::new();
        for (at, mut frame) in burst.drain(..).enumerate() {
            let outcome = match all {
                Some(all) if at < count => all,
                _ => other.take().unwrap_or_else(|| self.tunnels.decapsulate(port, &mut frame)),
            };
            match outcome {
                Outcome::NotTunnelled => rest.push(frame),
                Outcome::Inner(by) => inner.push((by, frame)),
                Outcome::Error => {
                    if !self.hear_of_narrow(now, port, &frame) {
                        rest.push(frame);
                    }
                }
                Outcome::Drop(reason) => self.net.path.count(reason),
                Outcome::UnknownVni => {
                    self.net.path.count(Reason::VxlanVni);
                    self.pass_to_kernel(now, port, frame, false);
                }
            }
        }
        *burst = rest;
        while let Some(by) = inner.first().map(|(by, _)| *by) {
            let mut of_port = Burst::new();
            let mut others = Inner::new();
            for (port, frame) in inner.drain(..) {
                if port == by {
                    of_port.push(frame);
                } else {
                    others.push((port, frame));
                }
            }
            inner = others;
            self.serve_tunnel(now, by, &mut of_port);
        }
        self.enter(port);
    }

    /// Tells of a link on the way to a remote that takes less, if a frame is an error that is
    /// believed: the network itself must send such a frame as the error quotes. Whether the frame
    /// is done with; the kernel, where there is a way to it, has packets in the tunnel, too.
    fn hear_of_narrow(&mut self, now: Time, port: PortId, frame: &Q::Frame) -> bool {
        let Some(narrow) = self.tunnels.narrow(port, frame.bytes()) else { return false };
        self.enter(narrow.port);
        let fib = &self.net.snapshot.fib;
        let hop = fib.lookup(narrow.to).ok().and_then(|id| fib.hop(id));
        let is_sent = hop.is_some_and(|hop| hop.port == narrow.port && hop.macs == narrow.macs);
        self.enter(port);
        if !is_sent {
            return false;
        }
        // Each packet that is too large has its error: that is told often enough.
        let is_due = self.told_narrow.is_none_or(|told| now.0 - told.0 >= NARROW_EACH_MS);
        if is_due && self.events.send(Event::PathMtu(narrow.remote, narrow.mtu)).is_ok() {
            self.told_narrow = Some(now);
            self.events_wake.wake();
        }
        if !self.has_twins {
            self.net.path.count(Reason::VxlanNarrow);
        }
        !self.has_twins
    }

    /// What was carried by virtual ports.
    pub(super) fn carried(&self) -> Vec<(PortId, Carried)> {
        let all = (0..).map(PortId).zip(self.ports.iter().map(|port| port.carried));
        all.filter(|(_, carried)| *carried != Carried::default()).collect()
    }

    /// Adds frames and bytes that came by a virtual port, and those that left by it.
    #[inline(always)]
    fn count_carried(&mut self, port: PortId, [came, came_bytes, left, left_bytes]: [u64; 4]) {
        let Some(Attached { carried, .. }) = self.ports.get_mut(usize::from(port.0)) else {
            return;
        };
        carried.rx_frames += came;
        carried.rx_bytes += came_bytes;
        carried.tx_frames += left;
        carried.tx_bytes += left_bytes;
    }

    /// Runs a burst of a virtual port through the path.
    fn serve_tunnel(&mut self, now: Time, port: PortId, burst: &mut Burst<Q::Frame>) {
        self.enter(port);
        let bytes: u64 = burst.iter().map(|frame| frame.bytes().len() as u64).sum();
        self.count_carried(port, [burst.len() as u64, bytes, 0, 0]);
        let mut rounds = Rounds::new();
        if self.has_others {
            self.gather(now, port, (burst, &mut rounds), &mut Unprobed);
        }
        if !burst.is_empty() {
            self.process(now, port, (burst, &rounds), &mut Unprobed);
        }
    }

    /// Sends frames by a virtual port.
    pub(super) fn send_all_tunnelled(&mut self, port: PortId, burst: &mut Burst<Q::Frame>) {
        // Nearly always all leave by one port of the underlay.
        let (mut underlay, mut count, mut other) = (None, 0, None);
        let (mut sent, mut sent_bytes) = (0, 0);
        for (at, frame) in burst.iter_mut().enumerate() {
            let bytes = frame.bytes().len();
            match self.tunnels.encapsulate(port, frame) {
                Ok(by) if underlay.is_none_or(|underlay| underlay == by) => {
                    (underlay, count) = (Some(by), at + 1);
                    (sent, sent_bytes) = (sent + 1, sent_bytes + bytes as u64);
                }
                result => {
                    if result.is_ok() {
                        (sent, sent_bytes) = (sent + 1, sent_bytes + bytes as u64);
                    }
                    other = Some(result);
                    break;
                }
            }
        }
        self.count_carried(port, [0, 0, sent, sent_bytes]);
        if other.is_none()
            && let Some(line) = underlay.and_then(|underlay| self.line(underlay))
        {
            let dropped = line.push_all(burst);
            return self.count(dropped, Reason::TxFull);
        }
        for (at, frame) in burst.drain(..).enumerate() {
            match underlay {
                Some(underlay) if at < count => self.send_by_line(underlay, frame, false),
                _ => match other.take() {
                    Some(Ok(underlay)) => self.send_by_line(underlay, frame, false),
                    Some(Err(reason)) => self.net.path.count(reason),
                    None => self.send_tunnelled(port, frame),
                },
            }
        }
    }

    /// Sends a frame by a virtual port.
    pub(super) fn send_tunnelled(&mut self, port: PortId, mut frame: Q::Frame) {
        let bytes = frame.bytes().len();
        match self.tunnels.encapsulate(port, &mut frame) {
            Ok(underlay) => {
                self.count_carried(port, [0, 0, 1, bytes as u64]);
                self.send_by_line(underlay, frame, false);
            }
            Err(reason) => self.net.path.count(reason),
        }
    }

    /// Sends a frame by a virtual port in pieces.
    #[cold]
    pub(super) fn cut_tunnelled(&mut self, port: PortId, frame: &Q::Frame, mtu: u16) {
        // Any queue has room for pieces.
        let line = self.ports.iter_mut().find_map(|port| port.lines.first_mut());
        let Some(line) = line else { return self.net.path.count(Reason::PortGone) };
        match pieces::cut(frame, mtu, &mut line.queue) {
            Ok(pieces) => pieces.into_iter().for_each(|piece| self.send_tunnelled(port, piece)),
            Err(reason) => self.net.path.count(reason),
        }
    }

    /// Gives a frame that came by a virtual port to the kernel, as it came by the underlay. Where
    /// the underlay has no way to the kernel it is routed within its network.
    pub(super) fn pass_tunnelled_to_kernel(
        &mut self,
        now: Time,
        port: PortId,
        mut frame: Q::Frame,
    ) {
        if self.has_twins && self.tunnels.restore(port, &mut frame) {
            let Some(underlay) = self.tunnels.received_by(frame.bytes()) else {
                return self.net.path.count(Reason::NoKernelPath);
            };
            self.enter(underlay);
            self.pass_to_kernel(now, underlay, frame, false);
            return self.enter(port);
        }
        let view = View { plan: &self.net.snapshot.plan, fib: &self.net.snapshot.fib };
        match self.net.path.as_router(view, &mut frame) {
            Ok(Verdict::Tx(to)) => self.send(to, frame, false),
            Ok(Verdict::Drop(reason)) => self.net.path.count(reason),
            Ok(_) => self.net.path.count(Reason::NoKernelPath),
            Err(waiting) => self.wait(now, Some(waiting), frame),
        }
    }
}
