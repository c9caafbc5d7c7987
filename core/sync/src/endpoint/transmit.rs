//! What goes to a peer.

use super::{Destination, Endpoint};
use crate::message::Ack;
use crate::peer::{HELLO, HELLO_FAST};
use crate::progress::Progress;
use crate::seal::HEADER;

impl Endpoint {
    /// Makes the next datagram that is due to a peer, and says where it goes.
    pub(super) fn transmit(&mut self, index: usize, buffer: &mut Vec<u8>) -> Option<Destination> {
        buffer.clear();
        let mut to = Destination::Peer(index);
        let peer = self.peers.get_mut(index)?;
        if peer.answer_at.is_some_and(|at| self.now >= at) {
            peer.answer_at = None;
            peer.answered_at = Some(self.now);
            self.hello(index, true, buffer);
        } else if self.now >= peer.hello_at {
            peer.hello_at = self.now + if peer.up { HELLO } else { HELLO_FAST };
            peer.hello_sent_at = Some(self.now);
            self.hello(index, false, buffer);
        } else if peer.up {
            self.acknowledge(index, buffer);
            if buffer.is_empty() && self.data(index, buffer) {
                to = Destination::Group;
            }
        }
        (!buffer.is_empty()).then_some(to)
    }

    fn acknowledge(&mut self, index: usize, buffer: &mut Vec<u8>) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        let key = peer.key(self.now).unwrap_or(0);
        let Some(remote) = &mut peer.remote else { return };
        if remote.incoming.ack_at().is_none_or(|at| self.now < at) {
            return;
        }
        let expected = remote.incoming.expected();
        let missing = remote.incoming.acknowledge(self.now);
        buffer.resize(HEADER, 0);
        Ack { to: remote.start, expected, missing }.write(buffer);
        let counter = self.keyring.count();
        self.keyring.seal(key, counter, buffer);
    }

    /// Puts the next datagram of the stream for a peer into `buffer`; says whether it goes to the
    /// group, as others are to have it now too.
    fn data(&mut self, index: usize, buffer: &mut Vec<u8>) -> bool {
        let (now, first, next) = (self.now, self.stream.first(), self.stream.next());
        let Some(progress) = self.progress(index) else { return false };
        let may_share = progress.hears_group(now);
        let Some((sequence, again)) = progress.take(now, first, next) else { return false };
        let Some(bytes) = self.stream.get(sequence) else { return false };
        buffer.extend_from_slice(bytes);
        self.counters.repaired += u64::from(again);
        let shared =
            self.group && may_share && !again && self.share(index, (first, next), sequence);
        self.counters.to_group += u64::from(shared);
        shared
    }

    /// Takes a datagram for all other peers whose next it is. `false` if there is none.
    fn share(&mut self, index: usize, (first, next): (u64, u64), sequence: u64) -> bool {
        let now = self.now;
        let mut shared = false;
        for other in (0..self.peers.len()).filter(|other| *other != index) {
            if let Some(progress) = self.progress(other)
                && progress.take_this(now, first, next, sequence)
            {
                progress.note_group();
                shared = true;
            }
        }
        if shared && let Some(progress) = self.progress(index) {
            progress.note_group();
        }
        shared
    }

    /// How far a peer that is up is in the stream.
    fn progress(&mut self, index: usize) -> Option<&mut Progress> {
        let peer = self.peers.get_mut(index).filter(|peer| peer.up)?;
        peer.remote.as_mut()?.progress.as_mut()
    }
}
