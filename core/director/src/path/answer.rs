//! Packets that the director itself sends: the reset for TCP without a session.

use super::burst::Parsed;
use super::engine::{Engine, Turn};
use super::parse::Parse;
use super::{Shared, Verdict};
use crate::blueprint::NoSession;
use crate::counters::Direction;
use crate::fib::PortId;
use crate::frame::Frame;
use crate::plan::Plan;
use crate::reason::Reason;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};
use sluice_wire::{checksum, ipv4, ipv6, tcp};

/// Time to live of what the director sends.
const TTL: u8 = 64;

/// The verdict on a packet that belongs to no session and may not open one; turns it into the
/// reset that answers it, if the plan says so.
pub(super) fn no_session<A, B: Frame>(
    plan: &Plan,
    parsed: &Parsed<A>,
    port: PortId,
    frame: &mut B,
) -> Verdict {
    let wanted = plan.no_session == NoSession::Reset
        && parsed.tuple.protocol == ipv4::TCP
        && parsed.segment.flags & RST == 0;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    if wanted && reset(frame, l3, l4, usize::from(parsed.length)) {
        return Verdict::Answer(port, Reason::NoSessionReset);
    }
    Verdict::Drop(Reason::NoSession)
}

/// The verdict on a packet of a session that ended because its real server is gone; TCP of a
/// client is answered with a reset.
pub(super) fn real_gone<A, B: Frame>(
    parsed: &Parsed<A>,
    direction: Direction,
    port: PortId,
    frame: &mut B,
) -> Verdict {
    let wanted = direction == Direction::Inbound
        && parsed.tuple.protocol == ipv4::TCP
        && parsed.segment.flags & RST == 0;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    if wanted && reset(frame, l3, l4, usize::from(parsed.length)) {
        return Verdict::Answer(port, Reason::RealGone);
    }
    Verdict::Drop(Reason::RealGone)
}

impl<F: Parse> Engine<F> {
    /// The verdict on a packet that may not go on.
    #[cold]
    pub fn refuse<B: Frame>(
        &mut self,
        _shared: &mut Shared,
        _turn: Turn<'_>,
        _lane: usize,
        _frame: &mut B,
        why: Reason,
    ) -> Verdict {
        Verdict::Drop(why)
    }

    /// The verdict on a packet that is larger than `mtu`, the most that may go its way.
    #[cold]
    pub fn too_big<B: Frame>(
        &mut self,
        _shared: &mut Shared,
        _turn: Turn<'_>,
        _lane: usize,
        _frame: &mut B,
        _mtu: u16,
    ) -> Verdict {
        Verdict::Drop(Reason::TooBig)
    }
}

/// Turns a TCP segment into the reset that answers it (RFC 9293, 3.10.7.1): with the number the
/// peer expects where it said so, otherwise acknowledging all that it sent. It goes back the way
/// the segment came. `false` when the frame's buffer cannot hold it.
fn reset<B: Frame>(frame: &mut B, l3: usize, l4: usize, ip_length: usize) -> bool {
    let bytes = frame.bytes();
    let Some(segment) = bytes.get(l4..l3 + ip_length).and_then(tcp::Header::parse) else {
        return false;
    };
    let flags = segment.flags();
    let data = l3 + ip_length - l4 - segment.header_len();
    let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let (sequence, acknowledgement, answer) = if flags & ACK != 0 {
        (segment.acknowledgement(), 0, RST)
    } else {
        let next = segment.sequence().wrapping_add(data as u32).wrapping_add(control);
        (0, next, RST | ACK)
    };
    let version = bytes.get(l3).map_or(0, |first| first >> 4);
    let ends = match version {
        6 => bytes.get(l3..).and_then(|packet| ipv6::Header::parse(packet).ok()).map(Ends::v6),
        _ => bytes.get(l3..).and_then(|packet| ipv4::Header::parse(packet).ok()).map(Ends::v4),
    };
    let Some(ends) = ends else { return false };
    let ports = [segment.0[2], segment.0[3], segment.0[0], segment.0[1]];
    let l4 = l3 + ends.header_len();
    if !frame.set_len(l4 + tcp::HEADER) {
        return false;
    }
    let mut header = [0; tcp::HEADER];
    header[..4].copy_from_slice(&ports);
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    header[12] = ((tcp::HEADER / 4) << 4) as u8;
    header[tcp::FLAGS] = answer;
    let bytes = frame.bytes_mut();
    swap_macs(bytes);
    let checksum = ends.write_back(&mut bytes[l3..l4], &header);
    header[tcp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    bytes[l4..].copy_from_slice(&header);
    true
}

/// Where a packet came from and went to.
#[derive(Clone, Copy)]
enum Ends {
    V4(u32, u32),
    V6(u128, u128),
}

impl Ends {
    const fn v4(header: ipv4::Header<'_>) -> Self {
        Self::V4(header.source(), header.destination())
    }

    const fn v6(header: ipv6::Header<'_>) -> Self {
        Self::V6(header.source(), header.destination())
    }

    const fn header_len(self) -> usize {
        match self {
            Self::V4(..) => ipv4::HEADER,
            Self::V6(..) => ipv6::HEADER,
        }
    }

    /// Writes the header of a packet back that carries nothing but `segment`, whose checksum it
    /// gives.
    fn write_back(self, out: &mut [u8], segment: &[u8; tcp::HEADER]) -> u16 {
        match self {
            Self::V4(source, destination) => {
                ip_header(out, destination, source);
                checksum::transport_v4(destination, source, ipv4::TCP, segment)
            }
            Self::V6(source, destination) => {
                out.fill(0);
                out[0] = 0x60;
                out[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&(tcp::HEADER as u16).to_be_bytes());
                out[ipv6::NEXT_HEADER] = ipv4::TCP;
                out[ipv6::HOP_LIMIT] = TTL;
                out[ipv6::SOURCE..][..16].copy_from_slice(&destination.to_be_bytes());
                out[ipv6::DESTINATION..][..16].copy_from_slice(&source.to_be_bytes());
                checksum::transport_v6(destination, source, ipv4::TCP, segment)
            }
        }
    }
}

fn swap_macs(bytes: &mut [u8]) {
    let (destination, rest) = bytes.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}

/// Writes the header of a TCP packet without options and data. DF is set and the identification
/// is zero, as RFC 6864 allows for packets that are not fragmented.
fn ip_header(header: &mut [u8], source: u32, destination: u32) {
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((ipv4::HEADER + tcp::HEADER) as u16).to_be_bytes());
    header[6] = 0x40;
    header[ipv4::TTL] = TTL;
    header[9] = ipv4::TCP;
    header[ipv4::SOURCE..][..4].copy_from_slice(&source.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&destination.to_be_bytes());
    let checksum = checksum::full(header);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
}
