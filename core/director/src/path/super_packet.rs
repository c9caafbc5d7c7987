//! Super-packets: one TCP segment with the data of many, which goes through the path as one packet
//! and is cut where it is sent, or by the kernel there (GSO). Most things are the same for all its
//! segments. What is not is said here: how long they are, and how many.
//!
//! Nothing cuts a super-packet into fragments. One that may be cut gets smaller segments instead,
//! which is what a sender does that learns of a smaller MTU; one that may not is answered like its
//! first segment would be.

use super::burst::{Lane, Parsed};
use super::parse::Parse;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, follow};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::{offload, tcp};

/// The least data that a super-packet's segments are given, so that none becomes more than a
/// thousand packets. No link is so narrow that its senders are not told first.
const LEAST_DATA: u16 = 64;

/// Bytes of a packet's headers up to its data.
fn headers<A, B: Frame>(parsed: &Parsed<A>, frame: &B) -> u16 {
    let own = frame.bytes().get(usize::from(parsed.l4)..).and_then(tcp::Header::parse);
    let own = own.map_or(tcp::HEADER, tcp::Header::header_len) as u16;
    parsed.l4.saturating_sub(parsed.l3.into()).saturating_add(own)
}

/// Length of the longest packet that a frame is on the wire.
#[inline(always)]
pub(super) fn longest<A, B: Frame>(parsed: &Parsed<A>, frame: &B) -> u16 {
    match frame.segment_size() {
        0 => parsed.length,
        size => parsed.length.min(headers(parsed, frame).saturating_add(size)),
    }
}

/// How many packets a frame is on the wire, and their bytes.
#[inline(always)]
pub(super) fn carried<A, B: Frame>(parsed: &Parsed<A>, frame: &B) -> (u64, u64) {
    let length = u64::from(parsed.length);
    match frame.segment_size() {
        0 => (1, length),
        size => {
            let headers = u64::from(headers(parsed, frame));
            let packets = length.saturating_sub(headers).div_ceil(u64::from(size)).max(1);
            (packets, length + (packets - 1) * headers)
        }
    }
}

/// Makes a super-packet the first of its segments.
pub(super) fn keep_first<B: Frame>(frame: &mut B) {
    let size = frame.segment_size();
    if size == 0 {
        return;
    }
    if let Some(length) = offload::keep_first(frame.bytes_mut(), size) {
        let cut = frame.set_len(length);
        debug_assert!(cut, "it is shorter than it was");
    }
    frame.set_finished();
}

/// The verdict on a super-packet whose segments are larger than `mtu`, and may be cut: they
/// become smaller ones.
#[cold]
pub(super) fn shrink<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    mtu: u16,
) -> Verdict {
    let size = mtu.saturating_sub(headers(&lane.parsed, frame));
    if size < LEAST_DATA || size >= frame.segment_size() {
        return Verdict::Drop(Reason::TooBig);
    }
    frame.set_segment_size(size);
    match follow::track(table, lane, shared, turn, frame) {
        Outcome::Forward => follow::finish::<F, B>(lane, shared, turn.view, frame),
        Outcome::Unresolved => follow::hold::<F, B>(lane, shared, turn, frame),
        Outcome::Is(verdict) => verdict,
        _ => Verdict::Drop(Reason::TooBig),
    }
}
