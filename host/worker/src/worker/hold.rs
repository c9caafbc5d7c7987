//! Frames that are complete but for their next hop's MAC address: held, asked for, released.

use super::Worker;
use crate::capture_point::Came;
use crate::held::wanted;
use crate::mailbox::Event;
use crate::queue::Queue;
use sluice_director::fib::LinkId;
use sluice_director::path::{Verdict, Waiting};
use sluice_director::{Reason, Time};
use std::net::IpAddr;
use std::sync::Arc;

impl<Q: Queue> Worker<Q> {
    pub(super) fn wait(&mut self, now: Time, waiting: Option<Waiting>, frame: Q::Frame) {
        let Some(waiting) = waiting else {
            debug_assert!(false, "a frame waits for nobody");
            return self.net.path.count(Reason::Unresolved);
        };
        if self.net.held.ask(wanted(&waiting), now.0) {
            self.request(waiting.link, waiting.next);
        }
        if self.net.held.hold(frame, waiting, now.0).is_err() {
            self.net.path.count(Reason::Unresolved);
        }
    }

    fn request(&self, link: LinkId, next: IpAddr) {
        let event = Event::Resolve(self.net.id, link, next);
        // Without a control side nobody resolves; frames then wait until they are given up.
        if self.events.send(event).is_ok() {
            self.events_wake.wake();
        }
    }

    pub(super) fn look_after_held(&mut self, now: Time) {
        if self.nets().any(|net| net.held.len() > 0) {
            self.in_each(|worker| worker.look_after_held_here(now));
        }
    }

    #[cold]
    fn look_after_held_here(&mut self, now: Time) {
        while let Some(frame) = self.net.held.give_up(now.0) {
            self.net.path.count(Reason::Unresolved);
            self.watch_alone(Came::Held, None, &frame, Some(Reason::Unresolved));
        }
        for (link, next) in self.net.held.overdue(now.0) {
            self.request(link, next);
        }
    }

    /// Sends the current network's held frames whose neighbour is known by now.
    pub(super) fn release_held(&mut self) {
        let fib = Arc::clone(&self.net.snapshot.fib);
        let mut waiting = self.net.held.take();
        for _ in 0..waiting.len() {
            let Some(mut held) = waiting.pop_front() else { break };
            match self.net.path.release(&fib, &mut held.frame, held.waiting) {
                Verdict::Tx(port) => {
                    self.watch_alone(Came::Held, Some(port), &held.frame, None);
                    self.send(port, held.frame, false);
                }
                Verdict::Fragment(port, mtu) => {
                    self.watch_alone(Came::Held, Some(port), &held.frame, None);
                    self.cut(port, held.frame, mtu);
                }
                Verdict::Drop(reason) => self.net.path.count(reason),
                _ => waiting.push_back(held),
            }
        }
        self.net.held.put_back(waiting);
        // The next turn may be a sleep away.
        self.flush();
    }
}

impl<Q: Queue> Worker<Q> {
    /// Gives up fragments whose first did not come in time.
    pub(super) fn give_up_parked(&mut self, now: Time) {
        if self.nets().all(|net| net.parking.is_empty()) {
            return;
        }
        self.in_each(|worker| {
            while let Some(parked) = worker.net.parking.give_up(now) {
                worker.net.path.count(Reason::FragmentOrphan);
                let why = Some(Reason::FragmentOrphan);
                worker.watch_alone(Came::Line, Some(parked.port), &parked.frame, why);
            }
        });
    }
}
