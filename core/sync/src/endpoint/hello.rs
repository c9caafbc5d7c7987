//! Hello: who a peer is, whether it is alive, and whether it is up.

use super::{Endpoint, Event, MOST_EVENTS};
use crate::clock::stamp;
use crate::message::{Hello, Message};
use crate::peer::{HELLO_FAST, Pending};
use crate::progress::Progress;
use crate::seal::{Counter, HEADER, Header, open};
use crate::status::Reject;

impl Endpoint {
    /// A datagram came from a start of a peer that is not accepted.
    pub(super) fn receive_unknown(
        &mut self,
        index: usize,
        header: Header,
        datagram: &[u8],
    ) -> Result<(), Reject> {
        let former = self.peers.get(index).is_none_or(|peer| peer.is_former(&header.start));
        // A start that is another peer's is one whose datagrams are passed on.
        let elsewhere = self.peers.iter().any(|peer| peer.is_current(&header.start));
        let Counter::Control(counter) = header.counter else { return Err(Reject::Start) };
        if former || elsewhere || header.start == self.keyring.start() {
            return Err(Reject::Start);
        }
        let opener = self.keyring.opener(header.key, &header.start).ok_or(Reject::Key)?;
        let mut payload = std::mem::take(&mut self.scratch);
        let hello = open(&opener, header.counter, datagram, &mut payload).and_then(|()| {
            match crate::message::read(&payload) {
                Some(Message::Hello(hello)) => Ok(hello),
                Some(_) => Err(Reject::Start),
                None => Err(Reject::Malformed),
            }
        });
        self.scratch = payload;
        let hello = hello?;
        let keys = self.keyring.mask(&hello.keys) | 1 << header.key;
        let own = self.keyring.start();
        let Some(peer) = self.peers.get(index) else { return Err(Reject::Start) };
        let challenge = self.keyring.challenge(index, peer.generation);
        if hello.to == own && hello.echo == challenge && self.events.len() < MOST_EVENTS {
            self.down(index);
            if let Some(peer) = self.peers.get_mut(index) {
                peer.accept(self.now, header.start);
                if let Some(remote) = &mut peer.remote {
                    remote.keys = keys;
                    // Its earlier Hellos were handled while it was pending: they are not new.
                    remote.replay.close(counter);
                }
            }
            self.receive_hello(index, counter, hello);
            return Ok(());
        }
        let pending = Pending { start: header.start, challenge: hello.challenge, keys, counter };
        let Some(peer) = self.peers.get_mut(index) else { return Err(Reject::Start) };
        if !peer.note_pending(self.now, pending) {
            return Err(Reject::Replay);
        }
        // The echo of a former challenge is what a recording has.
        if hello.echo == [0; 16] { Ok(()) } else { Err(Reject::Start) }
    }

    /// A Hello came from the start that is accepted.
    pub(super) fn receive_hello(&mut self, index: usize, counter: u64, hello: Hello) {
        let own = self.keyring.start();
        let mask = self.keyring.mask(&hello.keys);
        let next = self.stream.next();
        let Some(peer) = self.peers.get_mut(index) else { return };
        let Some(remote) = peer.remote.as_mut().filter(|remote| remote.hello < counter) else {
            return;
        };
        remote.hello = counter;
        remote.clock.note(self.now, hello.clock);
        remote.challenge = hello.challenge;
        remote.keys |= mask;
        peer.name = hello.name;
        peer.fingerprint = hello.fingerprint;
        peer.synchronised = hello.synchronised;
        peer.standing = hello.standing;
        let mutual = hello.to == own && hello.knows;
        if mutual {
            remote.incoming.begin(hello.from);
            remote.incoming.raise(hello.first);
            if let Some(progress) = &mut remote.progress {
                progress.acknowledge(self.now, hello.expected, next);
            }
        }
        // The peer waits for an answer to come up.
        if !mutual || !hello.up {
            let earliest = peer.hello_sent_at.map_or(self.now, |at| at + HELLO_FAST);
            peer.hello_at = peer.hello_at.min(earliest.max(self.now));
        }
        if mutual {
            self.up(index);
            self.drain(index);
            self.receive_pull(index, hello.pull);
        } else {
            self.down(index);
        }
    }

    /// A peer is up, perhaps for long.
    fn up(&mut self, index: usize) {
        // With events that nobody takes, the next Hello is soon enough.
        let room = self.events.len() < MOST_EVENTS;
        let peer = self.peers.get_mut(index).filter(|peer| !peer.up && room);
        let Some(peer) = peer else { return };
        let Some(remote) = &mut peer.remote else { return };
        peer.up = true;
        peer.since = self.now;
        peer.hello_at = self.now;
        let next = self.stream.next();
        remote.progress.get_or_insert_with(|| Progress::new(self.now, next));
        if remote.fresh {
            remote.fresh = false;
            // What it told others before that pull began, but not this end, may not be in it.
            peer.needs_pull = self.pulls.synchronised || self.pulls.active.is_some();
        } else if let Some(progress) = &mut remote.progress {
            progress.resume(self.now);
        }
        remote.incoming.came(self.now);
        self.events.push_back(Event::PeerUp { peer: index, name: peer.name.clone() });
    }

    /// A peer is not up any more, if it was.
    pub(super) fn down(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.up) else { return };
        peer.up = false;
        peer.since = self.now;
        peer.hello_at = self.now;
        (peer.synchronised, peer.standing) = (false, None);
        if let Some(remote) = &mut peer.remote {
            remote.incoming.forget();
            // The peer may not have noticed, and still wait: it is to be asked for again.
            (remote.asked, remote.answered) = (0, 0);
        }
        if self.pulls.give_up(index) {
            peer.needs_pull |= self.pulls.synchronised;
        }
        self.events.push_back(Event::PeerDown { peer: index });
    }

    /// A peer asks for a pull, or for none when it is 0.
    fn receive_pull(&mut self, index: usize, pull: u64) {
        let room = self.events.len() < MOST_EVENTS;
        let peer = self.peers.get_mut(index).filter(|peer| peer.up);
        let Some(remote) = peer.and_then(|peer| peer.remote.as_mut()) else { return };
        if pull != 0 && pull != remote.asked && room {
            remote.asked = pull;
            self.events.push_back(Event::Pull { peer: index, pull });
        }
    }

    /// Makes the Hello for the start that is accepted, or for the pending one.
    pub(super) fn hello(&mut self, index: usize, pending: bool, buffer: &mut Vec<u8>) {
        let next = self.stream.next();
        let (keys, own) = (self.keyring.ids().to_vec(), self.keyring.ids().len());
        let Some(peer) = self.peers.get_mut(index) else { return };
        let mut hello = Hello {
            challenge: self.keyring.challenge(index, peer.generation),
            synchronised: self.pulls.synchronised,
            fingerprint: self.fingerprint,
            clock: stamp(self.now),
            first: self.stream.first(),
            from: next,
            keys,
            name: self.name.clone(),
            standing: self.standing,
            ..Hello::default()
        };
        let mut key = None;
        let answered = peer.pending.filter(|_| pending || peer.remote.is_none());
        if let Some(pending) = answered {
            (hello.to, hello.echo) = (pending.start, pending.challenge);
            key = crate::peer::newest(pending.keys);
        } else if let Some(remote) = &mut peer.remote {
            (hello.to, hello.echo) = (remote.start, remote.challenge);
            hello.knows = true;
            hello.up = peer.up;
            hello.expected = remote.incoming.expected();
            hello.pull = self.pulls.asked(index);
            let now = self.now;
            let progress = remote.progress.get_or_insert_with(|| Progress::new(now, next));
            hello.from = progress.acked().max(hello.first);
            key = peer.key(self.now);
        }
        let key = key.unwrap_or_else(|| peer.try_key(own));
        buffer.resize(HEADER, 0);
        hello.write(buffer);
        let counter = self.keyring.count();
        self.keyring.seal(key, counter, buffer);
    }
}
