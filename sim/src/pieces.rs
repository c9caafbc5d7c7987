//! Datagrams in pieces: cut by whoever sends them, or by a router on the way, and put together
//! again by the receiver (RFC 791 3.2, RFC 8200 4.5).

use crate::frame::Pool;
use crate::rng::Rng;
use crate::wire::{
    ACK, FIN, Packet, Place, RST, SYN, Seen, TCP, Tuple, frame_len, piece_len, portless, read,
    read_piece, whole, write, write_piece,
};
use rustc_hash::FxHashMap;

/// Frames are not longer than this, so that a packet that is must be cut.
const LONGEST: usize = 1514;
/// Receivers wait for the rest so long.
const PATIENCE_MS: u64 = 30_000;
/// So many datagrams wait before anybody looks how long they have.
const MANY: usize = 256;

/// What a packet carries: its transport header and payload, written into `scratch`.
pub(crate) fn segment<'a>(packet: &Packet, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let len = frame_len(packet);
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    write(packet, ([0; 6], [0; 6]), &mut scratch[..len]);
    &scratch[if packet.is_v4() { 34 } else { 54 }..len]
}

/// The untagged frame of a fragment, but for MAC addresses.
pub(crate) fn fragment(packet: &Packet, place: &Place) -> Vec<u8> {
    let mut scratch = Vec::new();
    let segment = segment(packet, &mut scratch);
    let data = &segment[usize::from(place.offset)..][..usize::from(place.len)];
    let mut out = vec![0; piece_len(packet, place)];
    write_piece(packet, place, ([0; 6], [0; 6]), data, &mut out);
    out
}

/// What a first fragment would be if it were the whole: the frame of that, and what it says; its
/// length is that of the fragment. `meant` is the packet that its sender cut.
pub(crate) fn as_whole(
    frame: &[u8],
    meant: &Packet,
    place: &Place,
    scratch: &mut Vec<u8>,
) -> Result<(Vec<u8>, Seen), String> {
    let piece = read_piece(frame)?;
    // Into the other family it keeps the lower half of its number (RFC 7915 4.1, 5.1).
    let crosses = meant.is_v4() != piece.seen.packet.is_v4();
    let id = if crosses { place.id & 0xffff } else { place.id };
    let found = piece.place;
    if (found.id, found.offset, found.more) != (id, 0, true) {
        return Err(format!("a first fragment became {found:?}, not {place:?}"));
    }
    let first = &frame[piece.data..piece.data + usize::from(found.len)];
    let rest = segment(meant, scratch).get(usize::from(place.len)..).unwrap_or_default();
    let bytes = whole(&piece.seen, [first, rest]);
    let inner = read(&bytes)?;
    let seen = Seen { packet: inner.packet, data: inner.data, right: inner.right, ..piece.seen };
    Ok((bytes, seen))
}

/// How a packet is cut.
pub(crate) struct Cut {
    /// In the order in which they are sent, with how late each is.
    pub pieces: Vec<(Place, u64)>,
}

impl Cut {
    /// Whether a packet is to be cut, and how; `often` of a thousand are that need not be.
    pub fn of(packet: &Packet, often: u32, number: u32, rng: &mut Rng) -> Option<Self> {
        let long = frame_len(packet) > LONGEST;
        let tcp = packet.tuple.protocol == TCP;
        let plain = !tcp || packet.flags & (SYN | FIN | RST | ACK) == ACK;
        let total = (frame_len(packet) - if packet.is_v4() { 34 } else { 54 }) as u16;
        let chance = if tcp { often / 10 } else { often };
        let cut = long || plain && total > 72 && rng.chance(chance);
        if !cut {
            return None;
        }
        let id = if packet.is_v4() { number & 0xffff } else { number.wrapping_mul(0x9e37_79b1) };
        let sizes: &[u16] = if long { &[552, 1160] } else { &[64, 200, 552] };
        let size = *rng.pick(sizes);
        // Once in a while too little for a TCP header.
        let size = if tcp && rng.chance(100) { 16 } else { size };
        let overlap = if rng.chance(100) && size > 64 { 8 } else { 0 };
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < total {
            let len = size.min(total - at);
            let more = at + len < total;
            pieces.push((Place { id, offset: at, len, more }, 0));
            at += if more { len - overlap } else { len };
        }
        if pieces.len() < 2 {
            return None;
        }
        match rng.below(20) {
            0..5 => {
                for at in (1..pieces.len()).rev() {
                    pieces.swap(at, rng.below(at as u64 + 1) as usize);
                }
            }
            5 | 6 => pieces.reverse(),
            // Perhaps for longer than anybody waits.
            7 => pieces[0].1 = rng.range(1, 1500),
            8 => drop(pieces.remove(0)),
            _ => {}
        }
        Some(Self { pieces })
    }

    /// The frames, with how late each is.
    pub fn frames(
        self,
        pool: &mut Pool,
        packet: &Packet,
        macs: ([u8; 6], [u8; 6]),
        luck: &mut Rng,
    ) -> Vec<(crate::frame::Buffer, u64)> {
        let mut scratch = std::mem::take(&mut pool.scratch);
        let segment = segment(packet, &mut scratch);
        let make = |(place, late): (Place, u64)| {
            let data = &segment[usize::from(place.offset)..][..usize::from(place.len)];
            (pool.make_piece(packet, (place, data), macs, luck.next()), late)
        };
        let frames = self.pieces.into_iter().map(make).collect();
        pool.scratch = scratch;
        frames
    }
}

/// A datagram of which something came.
struct Partial {
    bytes: Vec<u8>,
    /// By eight bytes: whether they came.
    have: Vec<bool>,
    total: Option<usize>,
    at: u64,
}

/// Datagrams that receivers put together.
#[derive(Default)]
pub(crate) struct Reassembly {
    partial: FxHashMap<(usize, Tuple, u32), Partial>,
}

impl Reassembly {
    /// A fragment came to a host. Gives the whole if that is all of it now: its frame and what
    /// that says.
    pub fn put(
        &mut self,
        now: u64,
        host: usize,
        frame: &[u8],
    ) -> Result<Option<(Vec<u8>, Seen)>, String> {
        let piece = read_piece(frame)?;
        let (place, tuple) = (piece.place, portless(piece.seen.packet.tuple));
        if self.partial.len() > MANY {
            self.partial.retain(|_, partial| now - partial.at < PATIENCE_MS);
        }
        let key = (host, tuple, place.id);
        let fresh = || Partial { bytes: Vec::new(), have: Vec::new(), total: None, at: now };
        let partial = self.partial.entry(key).or_insert_with(fresh);
        let (from, len) = (usize::from(place.offset), usize::from(place.len));
        if partial.bytes.len() < from + len {
            partial.bytes.resize(from + len, 0);
            partial.have.resize((from + len).div_ceil(8), false);
        }
        partial.bytes[from..from + len].copy_from_slice(&frame[piece.data..piece.data + len]);
        partial.have[from / 8..(from + len).div_ceil(8)].fill(true);
        if !place.more {
            partial.total = Some(from + len);
        }
        let complete = partial.total == Some(partial.bytes.len()) && !partial.have.contains(&false);
        if !complete {
            return Ok(None);
        }
        let Some(partial) = self.partial.remove(&key) else { return Ok(None) };
        let bytes = whole(&piece.seen, [&partial.bytes, &[]]);
        let inner = read(&bytes)?;
        if !inner.right {
            return Err(format!("{} was put together wrong", inner.packet));
        }
        Ok(Some((bytes, Seen { outer: piece.seen.outer, ..inner })))
    }
}
