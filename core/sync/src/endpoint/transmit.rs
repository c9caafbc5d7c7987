//! What goes to a peer.

use super::Endpoint;
use crate::message::Ack;
use crate::peer::{HELLO, HELLO_FAST};
use crate::seal::HEADER;

impl Endpoint {
    /// Makes the next datagram that is due to a peer.
    pub(super) fn transmit(&mut self, index: usize, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        let Some(peer) = self.peers.get_mut(index) else { return false };
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
            if buffer.is_empty() {
                self.data(index, buffer);
            }
        }
        !buffer.is_empty()
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

    fn data(&mut self, index: usize, buffer: &mut Vec<u8>) {
        let (first, next) = (self.stream.first(), self.stream.next());
        let Some(remote) = self.peers.get_mut(index).and_then(|peer| peer.remote.as_mut()) else {
            return;
        };
        let Some(progress) = &mut remote.progress else { return };
        let Some((sequence, again)) = progress.take(self.now, first, next) else { return };
        if let Some(bytes) = self.stream.get(sequence) {
            buffer.extend_from_slice(bytes);
            self.counters.repaired += u64::from(again);
        }
    }
}
