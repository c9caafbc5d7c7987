//! What comes from peers that are accepted.

use super::{BACKLOG, Endpoint, Event, MOST_EVENTS, records_of};
use crate::codec::read_items;
use crate::incoming::{Next, Place};
use crate::message::{Ack, Message};
use crate::peer::Peer;
use crate::seal::{Counter, Header, open};
use crate::status::Reject;

impl Endpoint {
    pub(super) fn receive(&mut self, index: usize, datagram: &[u8]) -> Result<(), Reject> {
        let header = self.keyring.header(datagram)?;
        let Some(peer) = self.peers.get_mut(index) else { return Err(Reject::Start) };
        if !peer.is_current(&header.start) {
            return self.receive_unknown(index, header, datagram);
        }
        match header.counter {
            Counter::Data(sequence) => self.receive_data(index, header, sequence, datagram),
            Counter::Control(_) => self.receive_control(index, header, datagram),
        }
    }

    fn receive_control(
        &mut self,
        index: usize,
        header: Header,
        datagram: &[u8],
    ) -> Result<(), Reject> {
        let Some(remote) = self.peers.get_mut(index).and_then(|peer| peer.remote.as_mut()) else {
            return Err(Reject::Start);
        };
        let counter = Peer::control(remote, header.counter)?;
        let opener = remote.opener(&self.keyring, header.key)?;
        open(opener, header.counter, datagram, &mut self.scratch)?;
        remote.replay.mark(counter);
        remote.keys |= 1 << header.key;
        remote.heard_at = self.now;
        match crate::message::read(&self.scratch) {
            Some(Message::Hello(hello)) => self.receive_hello(index, counter, hello),
            Some(Message::Ack(ack)) => self.acknowledged(index, &ack),
            _ => return Err(Reject::Malformed),
        }
        Ok(())
    }

    fn acknowledged(&mut self, index: usize, ack: &Ack) {
        let own = self.keyring.start();
        let (first, next) = (self.stream.first(), self.stream.next());
        let Some(peer) = self.peers.get_mut(index).filter(|_| ack.to == own) else { return };
        let Some(progress) = peer.remote.as_mut().and_then(|remote| remote.progress.as_mut())
        else {
            return;
        };
        progress.acknowledge(self.now, ack.expected, next);
        progress.missing(self.now, first, &ack.missing);
        // Only Hello tells the peer that what it misses is not held any more.
        if ack.expected < first {
            let earliest = peer.hello_sent_at.map_or(self.now, |at| at + crate::peer::HELLO_FAST);
            peer.hello_at = peer.hello_at.min(earliest.max(self.now));
        }
    }

    fn receive_data(
        &mut self,
        index: usize,
        header: Header,
        sequence: u64,
        datagram: &[u8],
    ) -> Result<(), Reject> {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.up) else { return Ok(()) };
        let Some(remote) = &mut peer.remote else { return Ok(()) };
        let place = remote.incoming.place(sequence);
        match place {
            Place::Beyond => return Ok(()),
            Place::Seen => {
                // The acknowledgement may have been lost.
                remote.incoming.came(self.now);
                return Err(Reject::Replay);
            }
            Place::Next | Place::Later => {}
        }
        let opener = remote.opener(&self.keyring, header.key)?;
        open(opener, header.counter, datagram, &mut self.scratch)?;
        remote.keys |= 1 << header.key;
        remote.heard_at = self.now;
        let Some(Message::Data(items)) = crate::message::read(&self.scratch) else {
            return Err(Reject::Malformed);
        };
        if let Some((sealed, _)) = items.split_first_chunk() {
            remote.clock.note(self.now, u64::from_be_bytes(*sealed));
        }
        let direct = place == Place::Next && !full(self.backlog, self.appetite, self.events.len());
        if direct {
            remote.incoming.advance();
        } else {
            remote.incoming.hold(sequence, items);
        }
        remote.incoming.came(self.now);
        let later = remote.incoming.ready();
        if direct {
            let payload = std::mem::take(&mut self.scratch);
            self.deliver(index, payload.get(1..).unwrap_or_default());
            self.scratch = payload;
        }
        if later {
            self.drain(index);
        }
        Ok(())
    }

    /// Delivers what is in order of all peers, when some of it waited.
    pub(super) fn resume_delivery(&mut self) {
        let count = self.peers.len();
        self.stalled = false;
        for step in 0..count {
            self.drain((self.turn + step) % count);
        }
    }

    /// Delivers what is in order of a peer.
    pub(super) fn drain(&mut self, index: usize) {
        loop {
            let Some(remote) = self.peers.get_mut(index).and_then(|peer| peer.remote.as_mut())
            else {
                return;
            };
            if !remote.incoming.ready() {
                return;
            }
            if full(self.backlog, self.appetite, self.events.len()) {
                self.stalled = true;
                return;
            }
            match remote.incoming.next() {
                Some(Next::Data(items)) => {
                    remote.incoming.came(self.now);
                    self.deliver(index, &items);
                }
                Some(Next::Lost(count)) => self.lost(index, count),
                None => return,
            }
        }
    }

    /// Delivers the items of a datagram. One that is not understood would not be the next time
    /// either, and is passed over.
    fn deliver(&mut self, index: usize, items: &[u8]) {
        let read = items
            .split_first_chunk()
            .and_then(|(sealed, items)| Some((u64::from_be_bytes(*sealed), read_items(items)?)));
        let Some((sealed, mut items)) = read else {
            self.counters.reject(Reject::Malformed);
            return;
        };
        let remote = self.peers.get(index).and_then(|peer| peer.remote.as_ref());
        let age = remote.map_or(0, |remote| remote.clock.age(self.now, sealed));
        for session in items.runs.iter_mut().flat_map(|(_, sessions)| sessions) {
            session.idle_ms = session.idle_ms.saturating_add(age);
        }
        let records = records_of(&items.runs);
        self.counters.records_received += records as u64;
        if self.pulls.active.is_some_and(|active| active.peer == index) {
            self.pulls.records += records as u64;
        }
        if records > 0 {
            self.backlog += records;
            self.events.push_back(Event::Sessions { peer: index, runs: items.runs });
        }
        for pull in items.markers {
            self.pulled(index, pull);
        }
    }

    /// The end of a pull came, perhaps of another director's.
    fn pulled(&mut self, index: usize, pull: u64) {
        if !self.pulls.finish(index, pull) {
            return;
        }
        if self.pulls.synchronised {
            return;
        }
        // The one that was asked may not have had what others have: it was not synchronised, or
        // they had told it, before they told this end, and that had not arrived.
        for (other, peer) in self.peers.iter_mut().enumerate() {
            peer.needs_pull |= other != index && peer.up;
        }
        self.synchronise(Some(index));
    }

    /// Datagrams of a peer cannot be had any more.
    fn lost(&mut self, index: usize, count: u64) {
        self.counters.lost = self.counters.lost.saturating_add(count);
        self.pulls.give_up(index);
        if let Some(peer) = self.peers.get_mut(index) {
            peer.needs_pull = true;
        }
    }
}

const fn full(backlog: usize, appetite: usize, events: usize) -> bool {
    backlog >= appetite || backlog >= BACKLOG || events >= MOST_EVENTS
}
