//! One direction of a session, frozen: all that turns a plain packet of it into what leaves.
//!
//! It names no session and no plan, so any worker may apply it, to packets that the session's owner
//! has found to be plain ([`FlowRewrite::look`]). It says what the general path would do with such
//! a packet, by the same functions.

use crate::encap::Encap;
use crate::family::{Tuple, mapped, unmapped};
use crate::fib::macs::OwnMacs;
use crate::fib::{Hop, PortId};
use crate::frame::{Checked, Frame};
use crate::path::burst::{Lane, Parsed};
use crate::path::client_address::{Room, Settled};
use crate::path::parse::tcp_segment;
use crate::path::{Verdict, nat64, rewrite};
use crate::plan::RealId;
use crate::reason::Reason;
use crate::session::Flow;
use crate::track::Segment;
use rewrite::Change;
use sluice_wire::ethernet::{self, HEADER};
use sluice_wire::{checksum, ipv4, ipv6, tcp, udp};
use std::net::IpAddr;

const L4_V4: usize = HEADER + ipv4::HEADER;
const L4_V6: usize = HEADER + ipv6::HEADER;
/// Addresses and ports lie together in both versions, where there are no options.
const KEY_V4: usize = HEADER + ipv4::SOURCE;
const KEY_V6: usize = HEADER + ipv6::SOURCE;
/// Bytes that each plain packet has at least.
const HEAD_V4: usize = L4_V4 + udp::HEADER;
const HEAD_V6: usize = L4_V6 + udp::HEADER;

/// What a packet of a flow becomes, whichever worker does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRewrite {
    pub(super) ends: Ends,
    pub(super) becomes: Becomes,
    pub(super) settled: Settled,
    /// Where it goes.
    pub(super) hop: Hop,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) real: RealId,
    /// Which session of which table.
    pub(super) flow: Flow,
    pub(super) wide: bool,
}

/// Addresses and ports that packets of either version come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    V4 { old: Tuple<u32>, key: [u8; 12] },
    V6 { old: Tuple<u128>, key: [u8; 36] },
}

impl Ends {
    pub fn v4(old: Tuple<u32>) -> Self {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&old.src.to_be_bytes());
        key[4..8].copy_from_slice(&old.dst.to_be_bytes());
        key[8..].copy_from_slice(&ports(&old));
        Self::V4 { old, key }
    }

    pub fn v6(old: &Tuple<u128>) -> Self {
        let mut key = [0; 36];
        key[..16].copy_from_slice(&old.src.to_be_bytes());
        key[16..32].copy_from_slice(&old.dst.to_be_bytes());
        key[32..].copy_from_slice(&ports(old));
        Self::V6 { old: *old, key }
    }

    /// Whether a frame of any form is of the flow. A later fragment has no ports: it is if it is
    /// of the two addresses.
    fn have(&self, bytes: &[u8]) -> Option<bool> {
        let payload = ethernet::payload(bytes)?;
        let packet = bytes.get(payload.offset..)?;
        match self {
            Self::V4 { old, .. } if payload.ethertype == ethernet::IPV4 => {
                let header = ipv4::Header::parse(packet).ok()?;
                let same = (header.source(), header.destination()) == (old.src, old.dst);
                let offset = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff;
                let at = (header.header_len(), header.protocol(), offset != 0);
                Some(same && is_its(packet, at, old))
            }
            Self::V6 { old, .. } if payload.ethertype == ethernet::IPV6 => {
                let header = ipv6::Header::parse(packet).ok()?;
                if (header.source(), header.destination()) != (old.src, old.dst) {
                    return Some(false);
                }
                let upper = ipv6::walk(packet).ok()?;
                let later = upper.fragment.is_some_and(|fragment| fragment.offset != 0);
                Some(is_its(packet, (upper.offset, upper.protocol, later), old))
            }
            _ => Some(false),
        }
    }
}

/// Tells the packets of a flow, of whatever form, by source and destination as they arrive.
#[derive(Clone, Debug)]
pub struct FlowMatch(Ends);

impl FlowMatch {
    /// That of a protocol between two endpoints; `None` if these are of different IP versions.
    pub fn new(protocol: u8, from: (IpAddr, u16), to: (IpAddr, u16)) -> Option<Self> {
        let (sport, dport) = (from.1, to.1);
        let ends = match (from.0, to.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                Ends::v4(Tuple { src, dst, sport, dport, protocol })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                Ends::v6(&Tuple { src, dst, sport, dport, protocol })
            }
            _ => return None,
        };
        Some(Self(ends))
    }

    /// Whether a frame is of the flow. Later fragments have no ports: those between its addresses
    /// are.
    pub fn has(&self, bytes: &[u8]) -> bool {
        self.0.have(bytes).unwrap_or(false)
    }
}

/// Addresses and ports that packets leave with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    V4(Change<u32>),
    V6(Change<u128>),
    /// Those of the other version, in the extended table's form.
    Other {
        old: Tuple<u128>,
        new: Tuple<u128>,
    },
}

impl Becomes {
    /// That of packets with the tuple `old`, in the extended table's form.
    pub fn of(old: &Tuple<u128>, new: &Tuple<u128>) -> Self {
        let (old_v4, new_v4) = (unmapped(old.src).is_some(), unmapped(new.src).is_some());
        let short = |tuple: &Tuple<u128>| tuple.map(|address| address as u32);
        match (old_v4, new_v4) {
            (true, true) => Self::V4(Change::v4(&short(old), &short(new))),
            (false, false) => Self::V6(Change::v6(old, new)),
            _ => Self::Other { old: *old, new: *new },
        }
    }

    /// Whether it is this tuple, in the extended table's form.
    pub fn is(&self, tuple: &Tuple<u128>) -> bool {
        match self {
            Self::V4(change) => change.result().map(mapped) == *tuple,
            Self::V6(change) => change.result() == tuple,
            Self::Other { new, .. } => new == tuple,
        }
    }

    /// Whether packets of IPv6 become those of IPv4.
    pub const fn is_v4_of_v6(&self) -> bool {
        matches!(self, Self::Other { new, .. } if unmapped(new.src).is_some())
    }
}

fn ports<A>(tuple: &Tuple<A>) -> [u8; 4] {
    let ([a, b], [c, d]) = (tuple.sport.to_be_bytes(), tuple.dport.to_be_bytes());
    [a, b, c, d]
}

/// An outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub encap: Encap,
    pub from: IpAddr,
    pub to: IpAddr,
    pub hash: u64,
}

/// What a frame is to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// None of its packets.
    Other,
    /// One that any worker may rewrite: its length in bytes, and what tracking needs of it.
    Plain(u16, Segment),
    /// One that the owner has to look at.
    Odd,
}

impl FlowRewrite {
    /// The port that its packets leave by.
    pub const fn port(&self) -> PortId {
        self.hop.port
    }

    /// The longest packet, as it comes, that the way takes as it leaves without a tunnel.
    pub(super) fn room(&self) -> u16 {
        let mtu = self.hop.mtu;
        let room = match &self.becomes {
            Becomes::Other { old, .. } => nat64::whole_room(mtu, old),
            _ => mtu,
        };
        match self.settled.longer() {
            0 => room,
            longer => {
                let crosses = matches!(self.becomes, Becomes::Other { .. });
                room.min(Room::within(mtu, crosses)).saturating_sub(longer)
            }
        }
    }

    /// Source and destination of its packets as they arrive.
    pub fn received(&self) -> ((IpAddr, u16), (IpAddr, u16)) {
        let (src, dst, ports) = match &self.ends {
            Ends::V4 { old, .. } => {
                (old.src.to_be_bytes().into(), old.dst.to_be_bytes().into(), (old.sport, old.dport))
            }
            Ends::V6 { old, .. } => {
                (old.src.to_be_bytes().into(), old.dst.to_be_bytes().into(), (old.sport, old.dport))
            }
        };
        ((src, ports.0), (dst, ports.1))
    }

    /// Rewrites a frame that the owner has found plain: [`Verdict::Tx`], or a drop for want of
    /// headroom.
    #[inline]
    pub fn apply<B: Frame>(&self, frame: &mut B) -> Verdict {
        if !self.settled.is_unchanged() || matches!(self.becomes, Becomes::Other { .. }) {
            return self.apply_by_lane(frame).unwrap_or(Verdict::Drop(Reason::Headroom));
        }
        self.rewrite(frame);
        if let Some(Tunnel { encap, from, to, hash }) = &self.tunnel
            && rewrite::encapsulate(frame, HEADER, encap, (*from, *to, *hash)).is_none()
        {
            return Verdict::Drop(Reason::Headroom);
        }
        rewrite::link(frame, HEADER as u8, &self.hop)
    }

    /// Rewrites what stays of its IP version.
    #[inline(always)]
    fn rewrite<B: Frame>(&self, frame: &mut B) {
        match &self.becomes {
            Becomes::V4(change) => change.write(frame.bytes_mut(), (HEADER, L4_V4)),
            Becomes::V6(change) => change.write(frame.bytes_mut(), (HEADER, L4_V6)),
            Becomes::Other { .. } => {}
        }
    }

    /// The same for a frame that more is changed of than addresses and ports: as the general path
    /// does it, which knows packets by their lanes. `None` for want of headroom.
    #[inline(never)]
    fn apply_by_lane<B: Frame>(&self, frame: &mut B) -> Option<Verdict> {
        let mut lane = self.lane(frame.bytes())?;
        self.settled.write(&mut lane, frame)?;
        match self.becomes {
            Becomes::Other { .. } => nat64::translate_plain(frame, &lane)?,
            _ => self.rewrite(frame),
        }
        Some(rewrite::link(frame, HEADER as u8, &self.hop))
    }

    /// What the general path would know of a plain packet of the flow.
    fn lane(&self, bytes: &[u8]) -> Option<Lane<u128>> {
        let packet = bytes.get(HEADER..)?;
        let (l4, old, length, ttl) = match &self.ends {
            Ends::V4 { old, .. } => {
                let header = ipv4::Header(packet.first_chunk()?);
                (L4_V4, old.map(mapped), header.total_len(), header.ttl())
            }
            Ends::V6 { old, .. } => {
                let header = ipv6::Header(packet.first_chunk()?);
                (L4_V6, *old, header.total_len(), header.hop_limit())
            }
        };
        let new = match &self.becomes {
            Becomes::V4(change) => change.result().map(mapped),
            Becomes::V6(change) => *change.result(),
            Becomes::Other { new, .. } => *new,
        };
        let parsed = Parsed {
            l3: HEADER as u8,
            ttl,
            l4: l4 as u16,
            length: length as u16,
            segment: Segment::default(),
            tuple: old,
        };
        Some(Lane { flow: self.flow, parsed, new, ..Lane::none() })
    }

    /// What a frame that came by a port with these addresses is to the flow, when the way takes
    /// packets of `room` bytes.
    #[inline(always)]
    pub(super) fn look<B: Frame>(&self, frame: &B, macs: &OwnMacs, room: u16) -> Look {
        let bytes = frame.bytes();
        let (protocol, length) = match &self.ends {
            Ends::V4 { old, key } => {
                let Some(head) = bytes.first_chunk::<HEAD_V4>() else { return Look::Other };
                // No tag, no options, no fragment.
                let is_usual = head[12..15] == [8, 0, 0x45] && head[20] & 0x3f | head[21] == 0;
                if !is_usual {
                    return self.look_closely(bytes);
                }
                if head[KEY_V4..KEY_V4 + 12] != *key || head[HEADER + 9] != old.protocol {
                    return Look::Other;
                }
                let header = head[HEADER..].first_chunk::<{ ipv4::HEADER }>();
                let Some(header) = header else { return Look::Other };
                let good = frame.rx_checksum().ip == Checked::Good;
                if !good && !checksum::ipv4_header_ok(header) || header[ipv4::TTL] <= 1 {
                    return Look::Odd;
                }
                (old.protocol, u16::from_be_bytes([header[2], header[3]]))
            }
            Ends::V6 { old, key } => {
                let Some(head) = bytes.first_chunk::<HEAD_V6>() else { return Look::Other };
                if head[12..14] != ethernet::IPV6.to_be_bytes() || head[14] >> 4 != 6 {
                    return self.look_closely(bytes);
                }
                let next = head[HEADER + ipv6::NEXT_HEADER];
                if next != old.protocol {
                    let has_none = matches!(next, ipv4::TCP | ipv4::UDP | ipv6::ICMPV6);
                    return if has_none { Look::Other } else { self.look_closely(bytes) };
                }
                if head[KEY_V6..KEY_V6 + 36] != *key {
                    return Look::Other;
                }
                let payload = u16::from_be_bytes([head[HEADER + 4], head[HEADER + 5]]);
                let Some(length) = payload.checked_add(ipv6::HEADER as u16) else {
                    return Look::Odd;
                };
                if head[HEADER + ipv6::HOP_LIMIT] <= 1 {
                    return Look::Odd;
                }
                (old.protocol, length)
            }
        };
        let odd = length > room
            || frame.segment_size() != 0
            || frame.rx_checksum().l4 == Checked::Bad
            || !macs.take(bytes)
            || !self.translates_plainly(bytes, (protocol, length));
        if odd {
            return Look::Odd;
        }
        self.transport(bytes, protocol, length).unwrap_or(Look::Odd)
    }

    /// A packet of so many bytes whose network header is plain; `None` if it is malformed.
    #[inline(always)]
    fn transport(&self, bytes: &[u8], protocol: u8, length: u16) -> Option<Look> {
        let l4 = if matches!(self.ends, Ends::V4 { .. }) { L4_V4 } else { L4_V6 };
        let segment = bytes.get(l4..HEADER + usize::from(length))?;
        if protocol == ipv4::UDP {
            udp::Header::parse(segment)?;
            return Some(Look::Plain(length, Segment::default()));
        }
        let header = tcp::Header::parse(segment)?;
        let data = segment.len() - header.header_len();
        let mut segment = tcp_segment(header, data);
        segment.ack = segment.ack.wrapping_sub(self.settled.acknowledged());
        Some(Look::Plain(length, segment))
    }

    /// Whether a packet whose network header is plain stays of its version, or becomes one of the
    /// other that is the same whoever translates it.
    #[inline(always)]
    fn translates_plainly(&self, bytes: &[u8], kind: (u8, u16)) -> bool {
        let Becomes::Other { .. } = self.becomes else { return true };
        bytes.get(HEADER..).is_some_and(|packet| nat64::is_plain(packet, kind))
    }

    /// The same for a frame that is not as plain ones are: with a tag, options, extension headers,
    /// or a fragment.
    #[cold]
    #[inline(never)]
    fn look_closely(&self, bytes: &[u8]) -> Look {
        if self.ends.have(bytes).unwrap_or(false) { Look::Odd } else { Look::Other }
    }
}

/// Whether a packet between the right addresses has the right protocol and ports, as far as it has
/// any.
fn is_its<A>(packet: &[u8], (at, protocol, later): (usize, u8, bool), old: &Tuple<A>) -> bool {
    let same = || packet.get(at..at + 4) == Some(&ports(old));
    protocol == old.protocol && (later || same())
}
