//! What real servers are told of their clients: the TCP option that is called TOA, and headers of
//! the PROXY protocol (its text, 2.1 and 2.2), which move the numbers of a stream.
//!
//! A connection is told from the client's SYN on, whose number is remembered. Each segment that
//! begins where the client's stream does carries the option or header, until the real server has
//! acknowledged it. From then on all segments change alike, and only then may a flow be spread.

use super::Scene;
use super::session::{Direction, Session, State};
use crate::wire::{ACK, Addr, Packet, RST, SYN, TCP, Tuple, is_v4, to_ip};
use sluice_director::spec::{ClientAddress, Mode};

/// What is known of a connection's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The client's initial number.
    isn: Option<u32>,
    /// Whether the real server knows the client.
    known: bool,
}

/// The least MTU of a link, where the one to a real server is not known (RFC 8200 5).
const LEAST: u16 = 1280;
const HALF: u32 = 1 << 31;

/// What a stream begins with at a real server.
fn header(how: ClientAddress, tuple: &Tuple) -> Vec<u8> {
    let Tuple { src, dst, sport, dport, .. } = *tuple;
    let v4 = is_v4(src);
    match how {
        ClientAddress::ProxyV1 => {
            let family = if v4 { 4 } else { 6 };
            format!("PROXY TCP{family} {} {} {sport} {dport}\r\n", to_ip(src), to_ip(dst))
                .into_bytes()
        }
        ClientAddress::ProxyV2 => {
            let bytes = |address: Addr| address.to_be_bytes()[if v4 { 12 } else { 0 }..].to_vec();
            let ports = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
            let ends = [bytes(src), bytes(dst), ports].concat();
            let family = if v4 { 0x11 } else { 0x21 };
            let start = [0x21, family, 0, ends.len() as u8];
            [b"\r\n\r\n\0\r\nQUIT\n", &start[..], &ends[..]].concat()
        }
        ClientAddress::Toa | ClientAddress::Hidden => Vec::new(),
    }
}

impl Session {
    /// How its real server learns its client's address; `None` if it does not.
    fn how(&self, scene: Scene<'_>) -> Option<ClientAddress> {
        let how = scene.universe.services[self.service].client_address;
        let tells = self.mode == Mode::Fnat && self.inbound.protocol == TCP;
        Some(how).filter(|how| tells && *how != ClientAddress::Hidden)
    }

    /// Whether what becomes of its packets depends on each.
    pub(super) fn is_being_told(&self, scene: Scene<'_>) -> bool {
        self.how(scene).is_some() && self.told.isn.is_some() && !self.told.known
    }

    /// Whether a segment begins where its client's stream does, and nobody knows the client yet.
    fn begins(&self, packet: &Packet) -> bool {
        let first = self.told.isn.map(|isn| isn.wrapping_add(1));
        first == Some(packet.seq) && !self.told.known && packet.flags & (SYN | RST) == 0
    }

    /// Whether a packet's data is taken out: it would be at the header's place (RFC 7413 4.2), or
    /// reach into it.
    pub(super) fn loses_data(
        &self,
        scene: Scene<'_>,
        direction: Direction,
        packet: &Packet,
    ) -> bool {
        let how = self.how(scene).filter(|how| *how != ClientAddress::Toa);
        if how.is_none() || direction == Direction::Outbound {
            return false;
        }
        if packet.flags & SYN != 0 {
            return true;
        }
        let first = self.told.isn.filter(|_| !self.told.known).map(|isn| isn.wrapping_add(1));
        first.is_some_and(|first| {
            let before = first.wrapping_sub(packet.seq);
            before != 0 && before <= HALF && u32::from(packet.payload.len) > before
        })
    }

    /// Adds to what a packet becomes what telling the client does. Gives the bytes that come before
    /// its data.
    pub(super) fn tell(
        &self,
        scene: Scene<'_>,
        direction: Direction,
        (mtu, reached): (u16, bool),
        (meant, right): (&Packet, &mut Packet),
    ) -> Vec<u8> {
        let Some(how) = self.how(scene) else { return Vec::new() };
        let header = header(how, &self.inbound);
        let option = if is_v4(self.inbound.src) { 8 } else { 20 };
        let length = header.len() as u32;
        if meant.flags & SYN != 0 {
            if direction == Direction::Outbound && meant.mss != 0 {
                let network = if meant.is_v4() { 20 } else { 40 };
                let added = if how == ClientAddress::Toa { option } else { length as u16 };
                let room = if reached { mtu } else { LEAST };
                right.mss = meant.mss.min(room - network - 20 - added);
            }
            return Vec::new();
        }
        let Some(isn) = self.told.isn else { return Vec::new() };
        let first = isn.wrapping_add(1);
        let fits = |more: usize| meant.length() + more <= usize::from(mtu);
        match (how, direction) {
            (ClientAddress::Toa, Direction::Inbound) => {
                if self.begins(meant) && fits(option.into()) {
                    right.toa = Some((self.inbound.src, self.inbound.sport));
                }
            }
            (ClientAddress::Toa, Direction::Outbound) => {}
            (_, Direction::Inbound) => {
                let before = meant.seq.wrapping_sub(first) >= HALF && !self.told.known;
                let at_first = meant.seq == first && !self.told.known;
                if before || at_first && meant.flags & RST != 0 {
                    return Vec::new();
                }
                if self.begins(meant) && fits(header.len()) {
                    return header;
                }
                right.seq = meant.seq.wrapping_add(length);
            }
            (_, Direction::Outbound) => {
                if meant.flags & ACK != 0 {
                    right.ack = self.seen_ack(length, meant.ack);
                    let less = |edge: u32| edge.wrapping_sub(length);
                    right.sack = meant.sack.map(|(left, right)| (less(left), less(right)));
                }
            }
        }
        Vec::new()
    }

    /// Whether a real server that acknowledges this has the header.
    fn has_header(&self, length: u32, ack: u32) -> bool {
        let got = self.told.isn.map_or(0, |isn| ack.wrapping_sub(isn.wrapping_add(1)));
        self.told.known || got >= length && got < HALF
    }

    /// What of the client's stream such an acknowledgement means.
    fn seen_ack(&self, length: u32, ack: u32) -> u32 {
        match self.told.isn {
            Some(_) if self.has_header(length, ack) => ack.wrapping_sub(length),
            Some(isn) => isn.wrapping_add(1),
            None => ack,
        }
    }

    /// A packet passed. Gives it in the client's numbers, by which the session is followed.
    pub(super) fn learn(
        &mut self,
        scene: Scene<'_>,
        direction: Direction,
        packet: &Packet,
    ) -> Packet {
        let mut packet = *packet;
        let Some(how) = self.how(scene) else { return packet };
        if self.loses_data(scene, direction, &packet) {
            packet.payload.len = 0;
        }
        if packet.flags & SYN != 0 {
            if direction == Direction::Inbound && self.state == State::SynRecv {
                self.told.isn = Some(packet.seq);
            }
            return packet;
        }
        if self.told.isn.is_none() || direction == Direction::Inbound {
            return packet;
        }
        let length = header(how, &self.inbound).len() as u32;
        if how == ClientAddress::Toa {
            self.told.known = true;
        } else if packet.flags & ACK != 0 {
            let all = self.has_header(length, packet.ack);
            packet.ack = self.seen_ack(length, packet.ack);
            self.told.known |= all;
        }
        packet
    }
}
