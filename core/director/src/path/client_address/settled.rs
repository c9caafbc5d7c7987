//! What client address insertion still does to a flow once the real server knows its client: the
//! same to every packet, so that it can be frozen and any worker can do it.
//!
//! Of a TCP connection nothing is settled before the real server has acknowledged what was put in.
//! Until then a segment at the stream's begin carries the option or header, and what a segment
//! becomes depends on the session. Of datagrams each carries a header, from the first to the last.

use super::{ACKNOWLEDGEMENT, BEGUN, DONE, SEQUENCE, asked, header, renumber, stream_len};
use crate::counters::Direction;
use crate::family::Ipv6;
use crate::frame::Frame;
use crate::path::burst::Lane;
use crate::plan::Plan;
use crate::session::SessionOf;
use crate::spec::ClientAddress;
use sluice_wire::proxy_protocol::{self as proxy, Ends};
use sluice_wire::{ipv4, tcp, tcp_options};

/// What becomes of each packet of a flow, before its addresses and ports are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) enum Settled {
    /// Nothing.
    Unchanged,
    /// A TOA option is overwritten: only a client can have put it in.
    WithoutOption,
    /// Its sequence number grows by the length of the header that the stream begins with.
    Ahead(u32),
    /// Its acknowledgement number and SACK blocks shrink by that.
    Behind(u32),
    /// A PROXY header comes before its data.
    Header(Ends),
}

impl Settled {
    /// That of a session's packets in a direction; `None` if it is not settled yet.
    pub fn of(plan: &Plan, session: &SessionOf<Ipv6>, direction: Direction) -> Option<Self> {
        let Some((how, ends)) = asked(plan, session) else { return Some(Self::Unchanged) };
        let inbound = direction == Direction::Inbound;
        if session.protocol() != ipv4::TCP {
            let has_header = how == ClientAddress::ProxyV2 && inbound;
            return Some(if has_header { Self::Header(ends) } else { Self::Unchanged });
        }
        let began = session.closing & BEGUN != 0;
        if began && session.closing & DONE == 0 {
            return None;
        }
        Some(match (how, inbound) {
            (ClientAddress::Toa, true) => Self::WithoutOption,
            (ClientAddress::Toa | ClientAddress::Hidden, _) => Self::Unchanged,
            // A connection that was open before the director knew it has no header.
            _ if !began => Self::Unchanged,
            (_, true) => Self::Ahead(stream_len(how, &ends)),
            (_, false) => Self::Behind(stream_len(how, &ends)),
        })
    }

    /// Bytes by which each packet becomes longer.
    pub fn longer(&self) -> u16 {
        match self {
            Self::Header(ends) => proxy::v2_len(ends) as u16,
            _ => 0,
        }
    }

    /// By how much acknowledgement numbers become lower: sessions are tracked in the client's.
    pub const fn acknowledged(&self) -> u32 {
        match self {
            Self::Behind(length) => *length,
            _ => 0,
        }
    }

    /// Whether frames stay as they are.
    #[inline(always)]
    pub const fn is_unchanged(&self) -> bool {
        matches!(self, Self::Unchanged)
    }

    /// Does it to a frame with whole headers, which is neither fragment nor super-packet; `None` if
    /// it has no room.
    pub fn write<B: Frame>(&self, lane: &mut Lane<u128>, frame: &mut B) -> Option<()> {
        match self {
            Self::Unchanged => return Some(()),
            Self::Header(ends) => return header::in_datagram(ends, lane, frame, false),
            _ => {}
        }
        let segment = frame.bytes_mut().get_mut(usize::from(lane.parsed.l4)..)?;
        let header = tcp::Header::parse(segment)?;
        let (sequence, acknowledgement) = (header.sequence(), header.acknowledgement());
        let acknowledges = header.flags() & tcp::ACK != 0;
        match *self {
            Self::WithoutOption => {
                tcp_options::erase(segment, tcp_options::TOA);
            }
            Self::Ahead(length) => {
                renumber(segment, SEQUENCE, sequence, sequence.wrapping_add(length));
            }
            Self::Behind(length) if acknowledges => {
                let seen = acknowledgement.wrapping_sub(length);
                renumber(segment, ACKNOWLEDGEMENT, acknowledgement, seen);
                tcp_options::shift_sack(segment, length.wrapping_neg());
            }
            Self::Behind(_) | Self::Unchanged | Self::Header(_) => {}
        }
        Some(())
    }
}
