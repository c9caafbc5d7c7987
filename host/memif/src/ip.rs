//! IP mode: packets without Ethernet headers, behind a port that has them.
//!
//! What is received gets a header; what is sent loses it. Nobody at the other end resolves
//! addresses, so the questions that the kernel asks through the port's twin are answered here: each
//! address is at the peer (RFC 826, RFC 4861). Questions of a host whether an address is in use
//! (RFC 5227, RFC 4862 §5.4) are not: it may be its own.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use sluice_wire::{checksum, ethernet};

use crate::link::lock;
use crate::transfer::Landing;

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
const ARP: u16 = 0x0806;
/// Bytes of an ARP packet for IPv4 over Ethernet, of IPv6's header, of a neighbour solicitation and
/// of an advertisement with one option.
const ARP_BYTES: usize = 28;
const IPV6_BYTES: usize = 40;
const SOLICITATION_BYTES: usize = 24;
const ADVERTISEMENT_BYTES: usize = 32;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Answers that wait to be received at most; the kernel asks again.
const MOST_ANSWERS: usize = 64;

/// The link-layer addresses that a port in IP mode shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The port's.
    pub ours: [u8; 6],
    /// What all addresses behind the peer resolve to.
    pub theirs: [u8; 6],
}

/// A frame that answers.
type Answer = ArrayVec<u8, { HEADER + IPV6_BYTES + ADVERTISEMENT_BYTES }>;

/// What became of a frame that is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate<'a> {
    /// A packet for the peer.
    Packet(&'a [u8]),
    /// A question that has an answer.
    Answer(Answer),
    /// Nothing that IP mode carries.
    Neither,
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

/// Looks at a frame that is to be sent.
#[inline]
pub(crate) fn fate(frame: &[u8], addresses: Addresses) -> Fate<'_> {
    if frame.len() <= HEADER {
        return Fate::Neither;
    }
    let packet = &frame[HEADER..];
    match u16::from_be_bytes(bytes(frame, 12)) {
        ethernet::IPV4 => Fate::Packet(packet),
        ethernet::IPV6 if is_solicitation(packet) => {
            advertisement(packet, frame, addresses).map_or(Fate::Neither, Fate::Answer)
        }
        ethernet::IPV6 => Fate::Packet(packet),
        ARP => arp_reply(packet, addresses).map_or(Fate::Neither, Fate::Answer),
        _ => Fate::Neither,
    }
}

fn arp_reply(request: &[u8], addresses: Addresses) -> Option<Answer> {
    let request: [u8; ARP_BYTES] = bytes(request.get(..ARP_BYTES)?, 0);
    // Ethernet, IPv4, six and four bytes, a request.
    if request[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
        return None;
    }
    let (asker, sender, target) = (&request[8..14], &request[14..18], &request[24..28]);
    if sender == [0; 4] || sender == target {
        return None;
    }
    let mut reply = Answer::new();
    reply.extend(asker.iter().copied().chain(addresses.theirs).chain(ARP.to_be_bytes()));
    reply.extend([0, 1, 8, 0, 6, 4, 0, 2]);
    reply.extend(addresses.theirs.iter().chain(target).chain(asker).chain(sender).copied());
    Some(reply)
}

fn is_solicitation(packet: &[u8]) -> bool {
    packet.len() >= IPV6_BYTES + SOLICITATION_BYTES
        && packet[6] == ICMPV6
        && packet[IPV6_BYTES..][..2] == [SOLICITATION, 0]
}

fn advertisement(packet: &[u8], frame: &[u8], addresses: Addresses) -> Option<Answer> {
    let (asker, target): ([u8; 16], [u8; 16]) = (bytes(packet, 8), bytes(packet, IPV6_BYTES + 8));
    // Only of this link (RFC 4861 §7.1.1).
    if asker == [0; 16] || packet[7] != 255 {
        return None;
    }
    let mut message = [0; ADVERTISEMENT_BYTES];
    message[0] = ADVERTISEMENT;
    // Solicited, and to take the place of what was known.
    message[4] = 0x60;
    message[8..24].copy_from_slice(&target);
    message[24..26].copy_from_slice(&[2, 1]);
    message[26..32].copy_from_slice(&addresses.theirs);
    let (from, to) = (u128::from_be_bytes(target), u128::from_be_bytes(asker));
    let sum = checksum::transport_v6(from, to, ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut reply = Answer::new();
    reply.extend(bytes::<6>(frame, 6).into_iter().chain(addresses.theirs));
    reply.extend(ethernet::IPV6.to_be_bytes());
    reply.extend([0x60, 0, 0, 0, 0, ADVERTISEMENT_BYTES as u8, ICMPV6, 255]);
    reply.extend(target.into_iter().chain(asker).chain(message));
    Some(reply)
}

/// Puts headers in front of packets that land.
pub(crate) struct Framing<'a, L> {
    pub inner: &'a mut L,
    pub addresses: Addresses,
}

impl<L: Landing> Landing for Framing<'_, L> {
    #[inline]
    fn room(&mut self) -> Option<&mut [u8]> {
        self.inner.room()?.get_mut(HEADER..)
    }

    #[inline]
    fn landed(&mut self, length: usize) -> bool {
        let Some(room) = self.inner.room() else { return false };
        let kind = match room[HEADER] >> 4 {
            4 => ethernet::IPV4,
            6 => ethernet::IPV6,
            _ => return false,
        };
        room[..6].copy_from_slice(&self.addresses.ours);
        room[6..12].copy_from_slice(&self.addresses.theirs);
        room[12..HEADER].copy_from_slice(&kind.to_be_bytes());
        self.inner.landed(HEADER + length)
    }
}

/// Answers on their way from the sending end of a queue to the receiving one.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    some: AtomicBool,
    waiting: Mutex<VecDeque<Answer>>,
}

impl Answers {
    pub fn push(&self, answer: Answer) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < MOST_ANSWERS {
            waiting.push_back(answer);
            self.some.store(true, Ordering::Release);
        }
    }

    /// Whether some wait.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// Lets those that wait land, `most` at most.
    #[cold]
    pub fn land(&self, most: usize, landing: &mut impl Landing) -> usize {
        let (mut waiting, mut count) = (lock(&self.waiting), 0);
        while count < most
            && let Some(answer) = waiting.front()
            && let Some(room) = landing.room()
            && let Some(room) = room.get_mut(..answer.len())
        {
            room.copy_from_slice(answer);
            landing.landed(answer.len());
            waiting.pop_front();
            count += 1;
        }
        self.some.store(!waiting.is_empty(), Ordering::Release);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{ArpOperation, NetSlice, SlicedPacket, TransportSlice};

    const ADDRESSES: Addresses = Addresses { ours: [2, 0, 0, 0, 0, 1], theirs: [2, 0, 0, 0, 0, 2] };

    fn request(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let ours = ADDRESSES.ours;
        let mut frame = [[0xff; 6], ours].concat();
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(ours.iter().chain(&sender).chain(&[0; 6]).chain(&target).copied());
        frame
    }

    #[test]
    fn arp_is_answered_by_the_peers_address() {
        let frame = request([192, 0, 2, 1], [192, 0, 2, 9]);
        let Fate::Answer(answer) = fate(&frame, ADDRESSES) else { panic!("it is a question") };
        let sliced = SlicedPacket::from_ethernet(&answer).unwrap();
        let Some(NetSlice::Arp(reply)) = sliced.net else { panic!("{sliced:?}") };
        assert_eq!(reply.operation(), ArpOperation::REPLY);
        assert_eq!(reply.sender_hw_addr(), ADDRESSES.theirs);
        assert_eq!(reply.sender_protocol_addr(), [192, 0, 2, 9]);
        assert_eq!(reply.target_hw_addr(), ADDRESSES.ours);
        assert_eq!(reply.target_protocol_addr(), [192, 0, 2, 1]);
        assert_eq!(answer[..12], [ADDRESSES.ours, ADDRESSES.theirs].concat());
    }

    /// A neighbour solicitation, with a checksum that nobody reads.
    fn solicitation(asker: [u8; 16], hop_limit: u8) -> Vec<u8> {
        let target = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets();
        let mut frame = [[0x33, 0x33, 0xff, 0, 0, 9], ADDRESSES.ours].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, hop_limit]);
        frame.extend(asker.iter().chain(&target));
        frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target);
        frame
    }

    #[test]
    fn neighbour_solicitations_are_answered_by_the_peers_address() {
        let asker = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets();
        let frame = solicitation(asker, 255);
        let Fate::Answer(answer) = fate(&frame, ADDRESSES) else { panic!("it is a question") };
        let sliced = SlicedPacket::from_ethernet(&answer).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("{sliced:?}") };
        assert_eq!((ip.header().destination(), ip.header().hop_limit()), (asker, 255));
        let Some(TransportSlice::Icmpv6(message)) = &sliced.transport else { panic!("{sliced:?}") };
        assert!(message.is_checksum_valid(ip.header().source(), asker));
        let bytes = message.slice();
        assert_eq!((bytes[0], bytes[4]), (136, 0x60), "an advertisement, solicited");
        assert_eq!(bytes[8..24], ip.header().source());
        assert_eq!(bytes[24..], [2, 1, 2, 0, 0, 0, 0, 2], "the target's link-layer address");
    }

    #[test]
    fn a_host_that_asks_whether_its_address_is_in_use_gets_no_answer() {
        for (sender, target) in [([0; 4], [192, 0, 2, 9]), ([192, 0, 2, 9], [192, 0, 2, 9])] {
            assert_eq!(fate(&request(sender, target), ADDRESSES), Fate::Neither);
        }
        assert_eq!(fate(&solicitation([0; 16], 255), ADDRESSES), Fate::Neither);
        let far = solicitation([1; 16], 64);
        assert_eq!(fate(&far, ADDRESSES), Fate::Neither, "it came by a router");
        assert_eq!(fate(&[0; 14], ADDRESSES), Fate::Neither);
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0], &[0x45; 40]].concat();
        assert_eq!(fate(&tagged, ADDRESSES), Fate::Neither, "no tags");
        let short = request([192, 0, 2, 1], [192, 0, 2, 9]);
        assert_eq!(fate(&short[..40], ADDRESSES), Fate::Neither);
    }
}
