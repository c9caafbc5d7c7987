//! A worker's ports: their queues given to it and taken back.

use super::{Attached, Worker};
use crate::outlet::Outlet;
use crate::queue::Queue;
use sluice_director::Reason;
use sluice_director::fib::PortId;

impl<Q: Queue> Worker<Q> {
    /// Gives the worker a queue of a port, and one of its twin.
    pub fn attach(&mut self, port: PortId, line: Q, twin: Option<Q>) {
        let at = usize::from(port.0);
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, Attached::default);
        }
        self.ports[at].lines.push(Outlet::new(line));
        self.ports[at].twins.extend(twin.map(Outlet::new));
    }

    /// The same of several ports.
    pub(super) fn attach_all(&mut self, all: Vec<(PortId, Q, Option<Q>)>) {
        all.into_iter().for_each(|(port, line, twin)| self.attach(port, line, twin));
    }

    /// Takes a port's queues back; its twin's are dropped, and so is what it received and waits
    /// for other fragments, which would not come any more.
    pub fn detach(&mut self, port: PortId) -> Vec<Q> {
        self.enter(port);
        let parked = self.net.parking.clear(Some(port));
        self.count(parked, Reason::PortGone);
        self.leave();
        let attached = self.ports.get_mut(usize::from(port.0)).map(std::mem::take);
        attached.into_iter().flat_map(|a| a.lines).map(|outlet| outlet.queue).collect()
    }
}
