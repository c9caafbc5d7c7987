//! Connections that are over and closed: for a second what is sent again at their end may still get
//! through, or may not, since whoever needs what they hold takes it.

use super::session::{Direction, Session};
use super::{Checker, Lookup, Scene};
use crate::frame::Buffer;
use crate::wire::{ACK, Packet, RST, SYN, read};
use sluice_director::Frame;
use sluice_director::Reason;
use sluice_director::path::Verdict;

/// How long a session lingers that no packet comes for.
const LINGER_MS: u64 = 1000;

impl Checker {
    /// A session is over with a packet of both sides' end. What is counted forgets it.
    pub(super) fn retire(&mut self, id: u32) {
        self.leave(id);
        let session = &self.sessions[id as usize];
        let (worker, inbound, outbound) = (session.worker, session.inbound, session.outbound());
        for (tuple, direction) in
            [(Some(inbound), Direction::Inbound), (outbound, Direction::Outbound)]
        {
            let Some(tuple) = tuple else { continue };
            if let Some((other, _)) = self.lingering.insert((worker, tuple), (id, direction))
                && other != id
            {
                self.forget(other);
                self.lingering.insert((worker, tuple), (id, direction));
            }
        }
    }

    /// A session lingers no longer.
    pub(super) fn forget(&mut self, id: u32) {
        let Session { worker, inbound, .. } = self.sessions[id as usize];
        let outbound = self.sessions[id as usize].outbound();
        for tuple in [Some(inbound), outbound].into_iter().flatten() {
            if self.lingering.get(&(worker, tuple)).is_some_and(|known| known.0 == id) {
                self.lingering.remove(&(worker, tuple));
            }
        }
        self.mappings.let_go(id, &self.sessions[id as usize]);
        self.free.push(id);
    }

    /// The session that a packet may have met, by what became of it, if it has none that goes on.
    pub(super) fn met(
        &self,
        scene: Scene<'_>,
        frame: &Buffer,
        lookup: &Lookup,
        verdict: Verdict,
    ) -> Option<(u32, Direction)> {
        let (id, direction) = self.lingers(scene, &frame.packet, lookup)?;
        let becomes = self.sessions[id as usize].becomes(direction);
        let met = match verdict {
            Verdict::Tx(_) | Verdict::Fragment(..) | Verdict::Wait => {
                frame.place.is_some()
                    || read(frame.bytes()).is_ok_and(|seen| Some(seen.packet.tuple) == becomes)
            }
            Verdict::Drop(reason) | Verdict::Answer(_, reason) => {
                matches!(reason, Reason::TtlExpired | Reason::TooBig | Reason::NoRoute)
            }
            _ => false,
        };
        met.then_some((id, direction))
    }

    /// The session that lingers, and that a packet without one may be of.
    pub(super) fn lingers(
        &self,
        scene: Scene<'_>,
        packet: &Packet,
        lookup: &Lookup,
    ) -> Option<(u32, Direction)> {
        let known = self.lingering.get(&(scene.worker, packet.tuple)).copied();
        let (id, direction) = known.filter(|_| lookup.found.is_none() && !lookup.gone)?;
        let session = &self.sessions[id as usize];
        let opens = packet.flags & (SYN | ACK | RST) == SYN && direction == Direction::Inbound;
        (!opens && scene.now - session.seen_ms <= LINGER_MS).then_some((id, direction))
    }
}
