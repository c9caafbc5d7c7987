//! Packets that the director itself sends: the reset for TCP without a session.

use super::Verdict;
use super::burst::Parsed;
use crate::blueprint::NoSession;
use crate::fib::PortId;
use crate::frame::Frame;
use crate::plan::Plan;
use crate::reason::Reason;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};
use sluice_wire::{checksum, ipv4, tcp};

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
        return Verdict::Answer(port);
    }
    Verdict::Drop(Reason::NoSession)
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
    let Some((source, destination)) = bytes
        .get(l3..)
        .and_then(|packet| ipv4::Header::parse(packet).ok())
        .map(|header| (header.source(), header.destination()))
    else {
        return false;
    };
    let ports = [segment.0[2], segment.0[3], segment.0[0], segment.0[1]];
    if !frame.set_len(l3 + ipv4::HEADER + tcp::HEADER) {
        return false;
    }
    let mut header = [0; tcp::HEADER];
    header[..4].copy_from_slice(&ports);
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    header[12] = ((tcp::HEADER / 4) << 4) as u8;
    header[tcp::FLAGS] = answer;
    let checksum = checksum::transport_v4(destination, source, ipv4::TCP, &header);
    header[tcp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    let bytes = frame.bytes_mut();
    swap_macs(bytes);
    ip_header(&mut bytes[l3..l3 + ipv4::HEADER], destination, source);
    bytes[l3 + ipv4::HEADER..].copy_from_slice(&header);
    true
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
