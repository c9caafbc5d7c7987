//! Packets that are too large for their way and may go on in pieces: made complete here, and cut
//! by whoever has buffers for the pieces.
//!
//! A router cuts IPv4 without DF (RFC 791 3.2). It cuts no IPv6; but what the director itself makes
//! of IPv6, an outer header or a packet of the other family, has it as its source, and packets of
//! up to 1,280 bytes have to get through (RFC 8200 5, RFC 4213 3.2.1, RFC 2473 7.1, RFC 7915 5.1).
//! And IPv4 without DF becomes IPv6 of no more than that (RFC 7915 4.1).

use super::burst::Lane;
use super::client_address::Room;
use super::follow::write;
use super::parse::Parse;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, exception, follow, rewrite, super_packet};
use crate::frame::Frame;
use crate::plan::RealId;
use crate::reason::Reason;
use crate::session::Flow;
use crate::track;
use sluice_wire::{checksum, ethernet, ipv4, ipv6};

/// Whether a packet that is too large may go on in pieces.
pub(super) fn may_cut<F: Parse, B: Frame>(lane: &Lane<F::Addr>, frame: &B) -> bool {
    let packet = frame.bytes().get(usize::from(lane.parsed.l3)..).unwrap_or_default();
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        let crosses = F::crosses(&lane.parsed.tuple, &lane.new);
        // What becomes a fragment of IPv4 may be cut again, however long (RFC 7915 5.1.1).
        if crosses && exception::is_fragment(packet) == Some(true) {
            return true;
        }
        let remade = lane.forwarding.has_tunnel() || crosses;
        return remade && usize::from(super_packet::longest(&lane.parsed, frame)) <= ipv6::MIN_MTU;
    }
    ipv4::Header::parse(packet).is_ok_and(|header| !header.dont_fragment())
}

/// Makes a packet complete that [`super::follow::track`] found too large, and does for it what that
/// does for those that fit.
pub(super) fn cut<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Verdict {
    let Turn { view, now, .. } = turn;
    let packet = frame.bytes().get(usize::from(lane.parsed.l3)..).unwrap_or_default();
    // A later fragment has no session, and its lane tells the real server in place of one.
    let whole = !exception::is_later(packet);
    let (flow, length, at_frame) = (lane.flow, lane.parsed.length, usize::from(lane.frame));
    let (forwarding, direction) = (lane.forwarding, flow.direction());
    let real = if whole { table.sessions.slab().at(flow.id()).real() } else { RealId(flow.id()) };
    let past = forwarding.answers_past();
    let to = view.plan.real(real).filter(|_| past).map(|real| real.address);
    let to = to.unwrap_or_else(|| F::to_ip(lane.new.dst));
    let next = view.fib.lookup(to);
    let Some(of_link) = view.fib.mtu(next) else { return Verdict::Drop(Reason::NoRoute) };
    let mtu = match forwarding.has_tunnel() {
        true => shared.paths.mtu(real, of_link, now),
        false => F::cut_mtu(of_link, lane),
    };
    if F::WIDE && whole && view.plan.tells_client && forwarding.translates_both() {
        let crosses = F::crosses(&lane.parsed.tuple, &lane.new);
        // What is put in makes it no less of a packet that is to be cut.
        let room = Room { here: u16::MAX, ..Room::of(view.fib, of_link, real, crosses) };
        let session = table.sessions.at_mut(flow.id());
        match F::introduce(view.plan, session, direction, lane, frame, room) {
            Ok(()) => {}
            Err(Outcome::Is(verdict)) => return verdict,
            Err(_) => return Verdict::Drop(Reason::TooBig),
        }
    }
    shared.statistics.forwarded(real, direction, length);
    if past {
        lane.flow = Flow(real.0);
    }
    if let Some(reason) = write::<F, B>(shared, view, lane, frame) {
        return Verdict::Drop(reason);
    }
    if forwarding.has_tunnel() {
        if may_be_cut(frame, shared.answers.cut_id) {
            shared.answers.cut_id = shared.answers.cut_id.wrapping_add(1);
        }
    } else if F::crosses(&lane.parsed.tuple, &lane.new) {
        // With what was put in, IPv6 may have become IPv4 too long to be without DF. The
        // translation took an identification for it.
        may_be_cut(frame, shared.answers.nat64_id);
    }
    if whole {
        let session = table.sessions.at_mut(flow.id());
        session.seen_ms = now.low();
        // The introduction may have moved it.
        let segment = lane.parsed.segment;
        if !track::is_plain(session, direction, segment) {
            follow::track_tcp(table, shared, view.plan, flow, segment);
        }
    }
    match next.map(|id| view.fib.hop(id)) {
        Ok(Some(hop)) => rewrite::link_layer(frame, hop).in_pieces(Some(mtu)),
        Ok(None) => Verdict::Drop(Reason::NoRoute),
        Err(why) => shared.scratch.no_hop(at_frame, why, Some(mtu)),
    }
}

/// Takes DF off the IPv4 header that the director has made for a packet. An outer one was given DF
/// because nobody may cut what is inside: the tunnel's far end puts the pieces together again
/// before anyone looks there.
///
/// Whether it had it: `id` then is the packet's identification.
fn may_be_cut<B: Frame>(frame: &mut B, id: u16) -> bool {
    let at = ethernet::payload(frame.bytes()).map_or(0, |payload| payload.offset);
    let Some(header) = frame.bytes_mut().get_mut(at..) else { return false };
    let Some(header) = header.first_chunk_mut::<{ ipv4::HEADER }>() else { return false };
    if header[0] >> 4 != 4 || header[6] & 0x40 == 0 {
        return false;
    }
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6] = 0;
    header[ipv4::CHECKSUM..][..2].fill(0);
    let sum = checksum::full(header);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    true
}
