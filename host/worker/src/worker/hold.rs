//! Frames that are complete but for their next hop's MAC address: held, asked for, released.

use super::Worker;
use crate::capture_point::Came;
use crate::held::wanted;
use crate::mailbox::Event;
use crate::queue::Queue;
use sluice_director::path::{Verdict, Waiting};
use sluice_director::{Reason, Time};
use std::sync::Arc;

impl<Q: Queue> Worker<Q> {
    pub(super) fn wait(&mut self, now: Time, waiting: Option<Waiting>, frame: Q::Frame) {
        let Some(waiting) = waiting else {
            debug_assert!(false, "a frame waits for nobody");
            return self.path.count(Reason::Unresolved);
        };
        if self.held.ask(wanted(&waiting), now.0) {
            self.request(Event::Resolve(waiting.link, waiting.next));
        }
        if self.held.hold(frame, waiting, now.0).is_err() {
            self.path.count(Reason::Unresolved);
        }
    }

    fn request(&self, event: Event) {
        // Without a control side nobody resolves; frames then wait until they are given up.
        if self.events.send(event).is_ok() {
            self.events_wake.wake();
        }
    }

    pub(super) fn look_after_held(&mut self, now: Time) {
        while let Some(frame) = self.held.give_up(now.0) {
            self.path.count(Reason::Unresolved);
            self.watch_alone(Came::Held, None, &frame, Some(Reason::Unresolved));
        }
        for (link, next) in self.held.overdue(now.0) {
            self.request(Event::Resolve(link, next));
        }
    }

    /// Sends held frames whose neighbour is known by now.
    pub(super) fn release_held(&mut self) {
        let snapshot = Arc::clone(&self.snapshot);
        let mut waiting = self.held.take();
        for _ in 0..waiting.len() {
            let Some(mut held) = waiting.pop_front() else { break };
            match self.path.release(&snapshot.fib, &mut held.frame, held.waiting) {
                Verdict::Tx(port) => {
                    self.watch_alone(Came::Held, Some(port), &held.frame, None);
                    self.send(port, held.frame, false);
                }
                Verdict::Fragment(port, mtu) => {
                    self.watch_alone(Came::Held, Some(port), &held.frame, None);
                    self.cut(port, held.frame, mtu);
                }
                Verdict::Drop(reason) => self.path.count(reason),
                _ => waiting.push_back(held),
            }
        }
        self.held.put_back(waiting);
        // The next turn may be a sleep away.
        self.flush();
    }
}
