//! Where a worker's frames go when their verdict is known: out by a port, as they are or in pieces,
//! to the kernel, or to another worker.

use super::Worker;
use crate::outlet::Outlet;
use crate::pieces;
use crate::queue::Queue;
use crate::ring::{Handoff, HandoffMessage, Sender};
use sluice_director::fib::PortId;
use sluice_director::path::{Verdict, View};
use sluice_director::{Reason, Time};

impl<Q: Queue> Worker<Q> {
    /// What frames leave by at a port.
    #[inline(always)]
    pub(super) fn line(&mut self, port: PortId) -> Option<&mut Outlet<Q>> {
        self.ports.get_mut(usize::from(port.0))?.lines.first_mut()
    }

    pub(super) fn count(&mut self, packets: usize, reason: Reason) {
        (0..packets).for_each(|_| self.net.path.count(reason));
    }

    /// Sends a frame by a port: by the own queue, by that of a worker that has one, or in a tunnel.
    #[inline(always)]
    pub(super) fn send(&mut self, port: PortId, frame: Q::Frame, handoff: bool) {
        if self.line(port).is_none() && self.tunnels.is_virtual(port) {
            return self.send_tunnelled(port, frame);
        }
        self.send_by_line(port, frame, handoff);
    }

    /// Sends a frame by a port that is not virtual.
    #[inline(always)]
    pub(super) fn send_by_line(&mut self, port: PortId, frame: Q::Frame, handoff: bool) {
        if let Some(line) = self.line(port) {
            let dropped = line.push(frame);
            self.count(dropped, Reason::TxFull);
        } else if handoff {
            self.net.path.count(Reason::PortGone);
        } else {
            self.by_another(HandoffMessage::of(frame, port, Handoff::Send));
        }
    }

    /// Sends a frame by a port in pieces: by the own queue, or by that of a worker that has one.
    #[cold]
    pub(super) fn cut(&mut self, port: PortId, frame: Q::Frame, mtu: u16) {
        if self.line(port).is_some() {
            self.send_cut(port, &frame, mtu);
        } else if self.tunnels.is_virtual(port) {
            self.cut_tunnelled(port, &frame, mtu);
        } else {
            self.by_another(HandoffMessage::of(frame, port, Handoff::Cut(mtu)));
        }
    }

    /// Sends a frame by the own queue of a port in pieces.
    pub(super) fn send_cut(&mut self, port: PortId, frame: &Q::Frame, mtu: u16) {
        let Some(line) = self.line(port) else { return self.net.path.count(Reason::PortGone) };
        match pieces::cut(frame, mtu, &mut line.queue) {
            Ok(pieces) => {
                let dropped = pieces.into_iter().map(|piece| line.push(piece)).sum();
                self.count(dropped, Reason::TxFull);
            }
            Err(reason) => self.net.path.count(reason),
        }
    }

    pub(super) fn pass_to_kernel(
        &mut self,
        now: Time,
        port: PortId,
        mut frame: Q::Frame,
        handoff: bool,
    ) {
        if self.tunnels.is_virtual(port) {
            return self.pass_tunnelled_to_kernel(now, port, frame);
        }
        let attached = self.ports.get_mut(usize::from(port.0));
        let has_line = attached.as_ref().is_some_and(|port| !port.lines.is_empty());
        if let Some(twin) = attached.and_then(|port| port.twins.first_mut()) {
            let dropped = twin.push(frame);
            self.count(dropped, Reason::TxFull);
        } else if !has_line && !handoff {
            self.by_another(HandoffMessage::of(frame, port, Handoff::Kernel));
        } else {
            let snapshot = &self.net.snapshot;
            let view = View { plan: &snapshot.plan, fib: &snapshot.fib };
            match self.net.path.as_gateway(view, &mut frame) {
                Verdict::Tx(port) => self.send(port, frame, false),
                _ => self.net.path.count(Reason::NoKernelPath),
            }
        }
    }

    /// Queues of a port go to the workers from number 0 on, so worker 0 has one of every port.
    pub(super) fn by_another(&mut self, message: HandoffMessage<Q::Frame>) {
        if self.number == 0 {
            self.net.path.count(Reason::PortGone);
        } else {
            self.hand_off(0, message);
        }
    }

    pub(super) fn hand_off(&mut self, worker: u16, message: HandoffMessage<Q::Frame>) {
        let dropped = self.rings.hand_over(worker, message);
        self.count(dropped, Reason::HandOffFull);
    }

    /// Puts what was handed over in this turn into the rings. Who is to take it is woken in the
    /// next turn ([`Worker::wake_called`]).
    pub(super) fn flush_rings(&mut self) {
        let mut dropped = 0;
        for ring in self.rings.to.iter_mut().flatten().filter(|ring| !ring.is_empty()) {
            dropped += ring.flush();
            self.owes_wakes = true;
        }
        self.count(dropped, Reason::HandOffFull);
    }

    /// Wakes those who were handed something in the last turn. To look whether they sleep has to
    /// wait until they can see it, which takes as long as to get the rings' lines from their cores
    /// when it is done at once; by now it is so.
    #[inline(always)]
    pub(crate) fn wake_called(&mut self) {
        if self.owes_wakes {
            self.wake_all_called();
        }
    }

    #[inline(never)]
    fn wake_all_called(&mut self) {
        self.owes_wakes = false;
        for (ring, wake) in self.rings.to.iter_mut().zip(&self.wakes) {
            if ring.as_mut().is_some_and(Sender::was_flushed) {
                wake.wake_if_sleeping();
            }
        }
    }
}
