//! Cutting a packet into fragments (RFC 791 2.3 and 3.2, RFC 8200 4.5).
//!
//! Each piece is handed on as a header and the part of the packet's payload that it carries, so
//! that the payload is copied once, to where it is sent from, and nothing is set aside here. Nobody
//! cuts IPv6 on the way (RFC 8200 5); it is cut here where the director is its source: the outer
//! packet of a tunnel (RFC 2473 7.2), or one made of an IPv4 packet that may be cut (RFC 7915 4.1).

use crate::ipv4::{CHECKSUM, HEADER, Header, Options};
use crate::{Malformed, be16, be32, checksum, ipv6};

/// The least MTU of a link that carries IPv4 (RFC 791 3.2): a header with all options, 8 bytes.
pub const MIN_MTU: u16 = 68;

/// Bytes of the longest header.
const LONGEST: usize = 60;
/// More fragments, in the word with the offset.
const MORE: u16 = 0x2000;
/// Where the offset is in that word, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// A packet's place in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Where this packet's payload belongs in the datagram's, a multiple of 8 bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification, the same in all fragments of a datagram.
    pub id: u16,
}

impl FragmentInfo {
    /// The place of the packet with this header; a whole datagram is at 0 with no more to come.
    #[inline]
    pub const fn of(header: Header<'_>) -> Self {
        let place = be16(header.0, 6);
        Self { offset: (place & OFFSET) * 8, more: place & MORE != 0, id: header.id() }
    }

    /// Whether this is a part of a datagram, and not the one with the ports.
    #[inline]
    pub const fn is_later(self) -> bool {
        self.offset != 0
    }
}

/// Why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncut {
    /// No packet; or one that would end beyond the longest datagram (`BadLength`).
    Malformed(Malformed),
    /// It may not be fragmented, or is of a kind that is not.
    Forbidden,
    /// Less than 8 bytes of payload fit behind the header.
    MtuTooSmall,
    /// The receiver of the pieces wanted no more.
    Refused,
}

/// Cuts `packet`, of either version: see [`cut_v4`] and [`cut_v6`].
///
/// # Errors
/// See [`Uncut`].
pub fn cut(
    packet: &[u8],
    mtu: u16,
    piece: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<usize, Uncut> {
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        cut_v6(packet, mtu, piece)
    } else {
        cut_v4(packet, mtu, piece)
    }
}

/// Cuts `packet` (IPv6 without link layer, maybe with padding behind it, and without extension
/// headers that every fragment would have to carry) into pieces of at most `mtu` bytes, each with a
/// fragment header, and hands each to `piece` like [`cut_v4`]. One that is a fragment already is
/// cut into more of them.
///
/// The identification is the fragment's, or else a hash of the packet's beginning, which holds all
/// that its source told it apart by.
///
/// # Errors
/// See [`Uncut`]; `Forbidden` for a packet that has other extension headers.
pub fn cut_v6(
    packet: &[u8],
    mtu: u16,
    mut piece: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<usize, Uncut> {
    let header = ipv6::Header::parse(packet).map_err(Uncut::Malformed)?;
    let (old, payload) = packet[..header.total_len()].split_at(ipv6::HEADER);
    let mut hand = |new: &[u8], part: &[u8]| piece(new, part).then_some(()).ok_or(Uncut::Refused);
    if header.total_len() <= usize::from(mtu) {
        return hand(old, payload).map(|()| 1);
    }
    let (own, payload) = own_fragment(header.next_header(), payload)?;
    let (next, start, more, id) =
        own.map_or((header.next_header(), 0, false, name(packet)), |own| own);
    if ipv6::is_extension(next) {
        return Err(Uncut::Forbidden);
    }
    if usize::from(start) + payload.len() > usize::from(u16::MAX) {
        return Err(Uncut::Malformed(Malformed::BadLength));
    }
    let mut new = [0; ipv6::HEADER + ipv6::FRAGMENT_HEADER];
    new[..ipv6::HEADER].copy_from_slice(old);
    new[ipv6::NEXT_HEADER] = ipv6::FRAGMENT;
    new[ipv6::HEADER] = next;
    new[ipv6::HEADER + 4..].copy_from_slice(&id.to_be_bytes());
    let room = usize::from(mtu).saturating_sub(new.len()) & !7;
    if room == 0 {
        return Err(Uncut::MtuTooSmall);
    }
    let parts = payload.chunks(room);
    let count = parts.len();
    for (number, part) in parts.enumerate() {
        let last = !more && number + 1 == count;
        let place = (start + (number * room) as u16) | u16::from(!last);
        let length = (ipv6::FRAGMENT_HEADER + part.len()) as u16;
        new[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&length.to_be_bytes());
        new[ipv6::HEADER + 2..][..2].copy_from_slice(&place.to_be_bytes());
        hand(&new, part)?;
    }
    Ok(count)
}

/// What a fragment header says: next header, offset in bytes, more to come, identification.
type Own = (u8, u16, bool, u32);

/// The fragment header that a packet's payload begins with, if `next` names one, and what is
/// behind it.
fn own_fragment(next: u8, payload: &[u8]) -> Result<(Option<Own>, &[u8]), Uncut> {
    if next != ipv6::FRAGMENT {
        return Ok((None, payload));
    }
    let short = Uncut::Malformed(Malformed::Truncated);
    let (header, data) = payload.split_first_chunk::<{ ipv6::FRAGMENT_HEADER }>().ok_or(short)?;
    let place = be16(header, 2);
    Ok((Some((header[0], place & !7, place & 1 == 1, be32(header, 4))), data))
}

/// A hash of what a packet begins with: FNV-1a over the outer, the inner and a transport header.
fn name(packet: &[u8]) -> u32 {
    let begin = &packet[..packet.len().min(3 * ipv6::HEADER)];
    begin.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Cuts `packet` (IPv4 without link layer, maybe with padding behind it) into pieces of at most
/// `mtu` bytes and hands each to `piece` as header and payload, in order, until that returns
/// false. How many there were; a packet that fits is one, with its own header.
///
/// # Errors
/// See [`Uncut`]; no piece was handed on, unless it is [`Uncut::Refused`].
pub fn cut_v4(
    packet: &[u8],
    mtu: u16,
    mut piece: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<usize, Uncut> {
    let header = Header::parse(packet).map_err(Uncut::Malformed)?;
    let (old, payload) = packet[..header.total_len()].split_at(header.header_len());
    let mut hand = |new: &[u8], part: &[u8]| piece(new, part).then_some(()).ok_or(Uncut::Refused);
    if header.total_len() <= usize::from(mtu) {
        return hand(old, payload).map(|()| 1);
    }
    if header.dont_fragment() {
        return Err(Uncut::Forbidden);
    }
    let place = FragmentInfo::of(header);
    if usize::from(place.offset) + payload.len() > usize::from(u16::MAX) - HEADER {
        return Err(Uncut::Malformed(Malformed::BadLength));
    }
    let mut new = [0; LONGEST];
    let mut length = old.len();
    new[..length].copy_from_slice(old);
    let (mut at, mut count) = (0, 0);
    while at < payload.len() {
        let room = usize::from(mtu).saturating_sub(length);
        let rest = &payload[at..];
        let part = if rest.len() > room { &rest[..room & !7] } else { rest };
        if part.is_empty() {
            return Err(Uncut::MtuTooSmall);
        }
        let more = place.more || part.len() < rest.len();
        write(&mut new[..length], usize::from(place.offset) + at, more, part.len());
        hand(&new[..length], part)?;
        (at, count) = (at + part.len(), count + 1);
        if count == 1 {
            length = HEADER + keep_copied(&mut new[HEADER..], &old[HEADER..]);
            new[0] = 0x40 | (length / 4) as u8;
        }
    }
    Ok(count)
}

/// Makes `header` that of a piece with `payload` bytes at `offset`, checksum in full.
fn write(header: &mut [u8], offset: usize, more: bool, payload: usize) {
    let total = header.len() + payload;
    let place = (offset / 8) as u16 | if more { MORE } else { 0 };
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[6..8].copy_from_slice(&place.to_be_bytes());
    header[CHECKSUM..][..2].fill(0);
    let sum = checksum::full(header);
    header[CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes to `new` those of the options `old` that every fragment carries (their highest bit says
/// so, RFC 791 3.1), padded to a multiple of 4 bytes. How many bytes; options behind one that makes
/// no sense are left out.
fn keep_copied(new: &mut [u8], old: &[u8]) -> usize {
    let mut kept = 0;
    for option in Options(old).filter(|option| option[0] & 0x80 != 0) {
        new[kept..kept + option.len()].copy_from_slice(option);
        kept += option.len();
    }
    let padded = kept.next_multiple_of(4);
    new[kept..padded].fill(0);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::defrag::IpDefragPool;
    use etherparse::{IpNumber, Ipv4Header, Ipv4HeaderSlice, SlicedPacket};
    use proptest::prelude::*;

    fn packet(options: &[u8], payload: &[u8], id: u16) -> Vec<u8> {
        let length = payload.len() as u16;
        let mut header =
            Ipv4Header::new(length, 9, IpNumber::UDP, [192, 0, 2, 1], [192, 0, 2, 2]).unwrap();
        header.dont_fragment = false;
        header.identification = id;
        header.options = options.try_into().unwrap();
        header.set_payload_len(payload.len()).unwrap();
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    fn pieces(packet: &[u8], mtu: u16) -> Result<Vec<Vec<u8>>, Uncut> {
        let mut all = Vec::new();
        let count = cut_v4(packet, mtu, |header, payload| {
            all.push([header, payload].concat());
            true
        })?;
        assert_eq!(count, all.len());
        Ok(all)
    }

    /// What `etherparse` puts together from fragments.
    fn joined(pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut pool = IpDefragPool::<(), ()>::new();
        let mut whole = None;
        for piece in pieces {
            let sliced = SlicedPacket::from_ip(piece).unwrap();
            assert!(whole.is_none(), "whole before its last piece");
            whole = pool.process_sliced_packet(&sliced, (), ()).unwrap();
        }
        whole.expect("not whole after its last piece").payload
    }

    fn options() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let option = prop_oneof![
            Just(vec![1]),
            Just(vec![0x94, 4, 0, 0]),
            (prop_oneof![Just(7u8), Just(0x83)], 3u8..12).prop_map(|(kind, length)| {
                let mut bytes = vec![0xaa; length.into()];
                (bytes[0], bytes[1]) = (kind, length);
                bytes
            }),
        ];
        proptest::collection::vec(option, 0..3)
    }

    /// Options as a header carries them.
    fn padded(options: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut bytes: Vec<u8> = options.flatten().collect();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    proptest! {
        /// Pieces fit, carry right headers, and are together what they were; also when cut again.
        #[test]
        fn pieces_make_the_whole(
            options in options(), payload in proptest::collection::vec(any::<u8>(), 1..4000),
            mtu in 68u16..1600, second in 68u16..1600, id: u16, padding in 0usize..20,
        ) {
            let in_all = options.clone().into_iter().filter(|option| option[0] >= 0x80);
            let (in_first, in_all) = (padded(options.into_iter()), padded(in_all));
            let mut whole = packet(&in_first, &payload, id);
            let length = whole.len();
            whole.resize(length + padding, 0);
            let once = pieces(&whole, mtu).unwrap();
            if length <= mtu.into() {
                prop_assert_eq!(&once, &[whole[..length].to_vec()]);
                return Ok(());
            }
            let twice: Vec<_> = once.iter().flat_map(|p| pieces(p, second).unwrap()).collect();
            for (all, mtu) in [(&once, mtu), (&twice, mtu.min(second))] {
                prop_assert_eq!(&joined(all), &payload);
                for (n, piece) in all.iter().enumerate() {
                    prop_assert!(piece.len() <= mtu.into());
                    let header = Ipv4HeaderSlice::from_slice(piece).unwrap().to_header();
                    prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                    prop_assert_eq!(header.identification, id);
                    prop_assert_eq!(usize::from(header.total_len), piece.len());
                    prop_assert_eq!(header.more_fragments, n + 1 < all.len());
                    let info = FragmentInfo::of(Header::parse(piece).unwrap());
                    prop_assert_eq!(info.offset, header.fragment_offset.byte_offset());
                    prop_assert_eq!((info.more, info.id), (header.more_fragments, id));
                    prop_assert_eq!(info.is_later(), n > 0);
                    let expected = if n == 0 { &in_first } else { &in_all };
                    prop_assert_eq!(header.options.as_slice(), &expected[..]);
                }
            }
        }

        /// Never a panic, and no piece is longer than the MTU or than it says.
        #[test]
        fn any_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 20..200), mtu in 0u16..200,
        ) {
            bytes[0] = 0x40 | bytes[0] & 0xf;
            bytes[2] = 0;
            for piece in pieces(&bytes, mtu).unwrap_or_default() {
                prop_assert!(piece.len() <= mtu.into());
                let header = Header::parse(&piece).unwrap();
                prop_assert_eq!(header.total_len(), piece.len());
            }
        }
    }

    #[test]
    fn only_options_to_be_copied_are() {
        // Record route (not copied), router alert and loose source route (both copied).
        let options = [7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0, 0x83, 3, 4, 1, 0];
        let all = pieces(&packet(&options, &[7; 200], 1), 100).unwrap();
        assert_eq!(all[0][20..36], options);
        assert_eq!(all[0].len() - 36, 64);
        assert_eq!(all[1][20..28], [0x94, 4, 0, 0, 0x83, 3, 4, 0]);
        assert_eq!(all[1][0], 0x47);
        // An option that reaches too far ends the list.
        let options = [0x94, 4, 0, 0, 0x83, 9, 0, 0];
        let all = pieces(&packet(&options, &[7; 200], 1), 100).unwrap();
        assert_eq!(all[1][0], 0x46);
    }

    #[test]
    fn what_may_not_be_cut_is_not() {
        let mut whole = packet(&[], &[7; 200], 1);
        assert_eq!(pieces(&whole, 27), Err(Uncut::MtuTooSmall));
        assert_eq!(pieces(&whole, 28).unwrap().len(), 25);
        assert_eq!(cut_v4(&whole, 28, |_, _| false), Err(Uncut::Refused));
        whole[6] = 0x40;
        assert_eq!(pieces(&whole, 100), Err(Uncut::Forbidden));
        assert_eq!(pieces(&whole, 220).unwrap(), [whole.clone()]);
        whole[6..8].copy_from_slice(&8180u16.to_be_bytes());
        assert_eq!(pieces(&whole, 100), Err(Uncut::Malformed(Malformed::BadLength)));
        assert_eq!(pieces(&whole[..19], 100), Err(Uncut::Malformed(Malformed::Truncated)));
    }

    proptest! {
        /// What another's reassembly makes of the pieces is the packet.
        #[test]
        fn ipv6_pieces_come_together(
            payload in proptest::collection::vec(any::<u8>(), 0..4000),
            mtu in 1280u16..1600,
            again in 100u16..1600,
            padding in 0usize..8,
        ) {
            let mut packet = Vec::new();
            let builder = etherparse::PacketBuilder::ipv6([1; 16], [2; 16], 60);
            builder.udp(4000, 53).write(&mut packet, &payload).unwrap();
            let whole = packet.clone();
            packet.extend(vec![0; padding]);
            let mut pieces = Vec::new();
            let count = cut(&packet, mtu, |header, part| {
                pieces.push([header, part].concat());
                true
            });
            prop_assert_eq!(count, Ok(pieces.len()));
            prop_assert!(pieces.iter().all(|piece| piece.len() <= usize::from(mtu)));
            if pieces.len() == 1 {
                prop_assert_eq!(&pieces[0], &whole);
                return Ok(());
            }
            // Pieces of pieces are pieces of the same.
            let mut smaller = Vec::new();
            for piece in &pieces {
                let count = cut(piece, again, |header, part| {
                    smaller.push([header, part].concat());
                    true
                });
                prop_assert!(count.is_ok_and(|count| again < mtu || count == 1));
            }
            prop_assert!(smaller.iter().all(|piece| piece.len() <= usize::from(again)));
            prop_assert_eq!(&put_together(&smaller), &whole[ipv6::HEADER..]);
            prop_assert_eq!(&put_together(&pieces), &whole[ipv6::HEADER..]);
        }
    }

    /// What `etherparse` makes of the fragments of a UDP datagram, the last one first.
    fn put_together(pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut pool = IpDefragPool::<(), ()>::new();
        let mut done = None;
        for piece in pieces.iter().rev() {
            let sliced = SlicedPacket::from_ip(piece).unwrap();
            done = pool.process_sliced_packet(&sliced, (), ()).unwrap();
        }
        let done = done.expect("all the pieces are there");
        assert_eq!(done.ip_number, IpNumber::UDP);
        done.payload
    }

    #[test]
    fn ipv6_that_is_not_ours_to_cut() {
        let mut packet = vec![0; 2000];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&1960u16.to_be_bytes());
        packet[6] = ipv6::DESTINATION_OPTIONS;
        assert_eq!(cut(&packet, 1280, |_, _| true), Err(Uncut::Forbidden));
        packet[6] = 17;
        assert_eq!(cut(&packet, 50, |_, _| true), Err(Uncut::MtuTooSmall));
        assert_eq!(cut(&packet, 1280, |_, _| false), Err(Uncut::Refused));
        assert_eq!(cut(&packet, 1280, |_, _| true), Ok(2));
        // A fragment that would end beyond the longest datagram.
        packet[6] = ipv6::FRAGMENT;
        packet[40..44].copy_from_slice(&[17, 0, 0xf8, 1]);
        assert_eq!(cut(&packet, 1280, |_, _| true), Ok(2));
        packet[42..44].copy_from_slice(&[0xff, 0]);
        let too_long = Err(Uncut::Malformed(Malformed::BadLength));
        assert_eq!(cut(&packet, 1280, |_, _| true), too_long);
        packet[40] = ipv6::DESTINATION_OPTIONS;
        assert_eq!(cut(&packet, 1280, |_, _| true), Err(Uncut::Forbidden));
    }
}
