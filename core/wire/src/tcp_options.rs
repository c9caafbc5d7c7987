//! TCP options (RFC 9293 3.2): read one after another, and changed in place, each change with its
//! difference in the checksum.
//!
//! The list ends at the first option that makes no sense, as it does for the kernels at both ends.
//! Options are not aligned: a 16-bit word of the checksum may hold the halves of two fields, so a
//! field at an odd offset changes the sum as if its bytes were swapped (RFC 1071 2 B).

use core::ops::Range;

use crate::be32;
use crate::checksum::Delta;
use crate::tcp::{CHECKSUM, HEADER, Header, SYN};

/// Bytes of options that a header can hold.
pub const MOST: usize = 40;

/// Kind: end of the list.
pub const END: u8 = 0;
/// Kind: nothing, for alignment.
pub const NOP: u8 = 1;
/// Kind: maximum segment size.
pub const MSS: u8 = 2;
/// Kind: SACK permitted (RFC 2018).
pub const SACK_PERMITTED: u8 = 4;
/// Kind: SACK, blocks of two sequence numbers each (RFC 2018).
pub const SACK: u8 = 5;
/// Kind: the client's address, as the TOA kernel modules of DPVS, Alibaba and Huawei read it: an
/// experimental kind (RFC 4727) used without RFC 6994's identifier. Behind kind and length are the
/// port and the address; the length alone says of which family.
pub const TOA: u8 = 254;

/// Kind: TCP Fast Open's cookie, or the request for one (RFC 7413).
pub const FAST_OPEN: u8 = 34;
/// Kinds for experiments (RFC 4727), whose data begins with an identifier (RFC 6994).
pub const EXPERIMENTS: [u8; 2] = [253, 254];
/// The identifier of TCP Fast Open before it had a kind of its own.
pub const FAST_OPEN_ID: [u8; 2] = [0xf9, 0x89];

/// Bytes of a TOA option with an IPv4 address.
pub const TOA_V4: usize = 8;
/// Bytes of a TOA option with an IPv6 address.
pub const TOA_V6: usize = 20;

/// An option that is neither padding nor the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind.
    pub kind: u8,
    /// What is behind kind and length.
    pub data: &'a [u8],
    /// Where `data` begins in the segment.
    pub at: usize,
}

/// The options of a header, one after another.
#[derive(Clone)]
pub struct Options<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// Those of the header at the start of `segment`; none when that is no TCP header.
    #[inline]
    pub fn of(segment: &'a [u8]) -> Self {
        let end = Header::parse(segment).map_or(HEADER.min(segment.len()), Header::header_len);
        Self { header: &segment[..end], at: HEADER }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<TcpOption<'a>> {
        while *self.header.get(self.at)? == NOP {
            self.at += 1;
        }
        let kind = self.header[self.at];
        let length = usize::from(*self.header.get(self.at + 1)?);
        if kind == END || length < 2 {
            self.at = self.header.len();
            return None;
        }
        let (at, end) = (self.at + 2, self.at + length);
        self.at = end;
        Some(TcpOption { kind, data: self.header.get(at..end)?, at })
    }
}

/// Bytes of options that can still be added to a header of `header_len` bytes.
#[inline]
pub const fn room(header_len: usize) -> usize {
    (HEADER + MOST).saturating_sub(header_len)
}

/// Where the data of the next option of `kind` is in `segment`, looking from `from` on.
fn find(segment: &[u8], kind: u8, from: usize) -> Option<Range<usize>> {
    let mut rest = Options { at: from, ..Options::of(segment) };
    rest.find(|option| option.kind == kind).map(|option| option.at..option.at + option.data.len())
}

/// The maximum segment size that `segment` announces.
pub fn mss(segment: &[u8]) -> Option<u16> {
    segment[find(segment, MSS, HEADER)?].try_into().ok().map(u16::from_be_bytes)
}

/// Lowers the maximum segment size that a SYN announces to `max`, checksum and all. Whether it was
/// larger; a SYN without the option means 536 bytes (RFC 9293 3.7.1) and is left alone.
pub fn clamp_mss(segment: &mut [u8], max: u16) -> bool {
    let syn = Header::parse(segment).is_some_and(|header| header.flags() & SYN != 0);
    let (true, Some(place), Some(old)) = (syn, find(segment, MSS, HEADER), mss(segment)) else {
        return false;
    };
    if old <= max {
        return false;
    }
    let delta = if place.start.is_multiple_of(2) {
        Delta::NONE.word16(old, max)
    } else {
        Delta::NONE.word16(old.swap_bytes(), max.swap_bytes())
    };
    segment[place].copy_from_slice(&max.to_be_bytes());
    apply(segment, delta);
    true
}

/// Adds `by` (modulo 2^32) to every edge of every SACK block, for a stream whose sequence numbers
/// were moved on the way. Whether there was one.
pub fn shift_sack(segment: &mut [u8], by: u32) -> bool {
    let (mut delta, mut found, mut from) = (Delta::NONE, false, HEADER);
    while let Some(place) = find(segment, SACK, from) {
        from = place.end;
        let aligned = place.start.is_multiple_of(2);
        for edge in segment[place].as_chunks_mut::<4>().0 {
            let old = u32::from_be_bytes(*edge);
            let new = old.wrapping_add(by);
            *edge = new.to_be_bytes();
            delta = if aligned {
                delta.word32(old, new)
            } else {
                delta.word32(old.rotate_left(8), new.rotate_left(8))
            };
            found = true;
        }
    }
    if found {
        apply(segment, delta);
    }
    found
}

/// Whether an option is TCP Fast Open's.
pub fn is_fast_open(option: TcpOption<'_>) -> bool {
    option.kind == FAST_OPEN
        || EXPERIMENTS.contains(&option.kind) && option.data.starts_with(&FAST_OPEN_ID)
}

/// Overwrites every option of `kind`, whatever its length, with no-operations, so that the receiver
/// finds none of them; the checksum follows by difference. Whether there was one.
pub fn erase(segment: &mut [u8], kind: u8) -> bool {
    erase_if(segment, |option| option.kind == kind)
}

/// The same for every option that `which` says.
pub fn erase_if(segment: &mut [u8], which: impl Fn(TcpOption<'_>) -> bool) -> bool {
    let (mut delta, mut found, mut from) = (Delta::NONE, false, HEADER);
    loop {
        let mut rest = Options { at: from, ..Options::of(segment) };
        let next = rest.find(|option| which(*option));
        let Some(place) = next.map(|option| option.at..option.at + option.data.len()) else {
            break;
        };
        from = place.end;
        // Kind and length are in front of the data. A header is a multiple of four bytes long, so
        // that the words which these bytes lie in are all within it.
        let (first, words) = (place.start - 2, (place.start - 2) & !1..place.end);
        for at in words.step_by(2) {
            let old = u16::from_be_bytes([segment[at], segment[at + 1]]);
            let bytes = at.max(first)..(at + 2).min(place.end);
            segment[bytes].fill(NOP);
            delta = delta.word16(old, u16::from_be_bytes([segment[at], segment[at + 1]]));
        }
        found = true;
    }
    if found {
        apply(segment, delta);
    }
    found
}

/// The TOA option for a client at an IPv4 address.
pub const fn toa_v4(address: u32, port: u16) -> [u8; TOA_V4] {
    let ([p, q], [a, b, c, d]) = (port.to_be_bytes(), address.to_be_bytes());
    [TOA, TOA_V4 as u8, p, q, a, b, c, d]
}

/// The TOA option for a client at an IPv6 address.
pub fn toa_v6(address: u128, port: u16) -> [u8; TOA_V6] {
    let mut option = [0; TOA_V6];
    option[..2].copy_from_slice(&[TOA, TOA_V6 as u8]);
    option[2..4].copy_from_slice(&port.to_be_bytes());
    option[4..].copy_from_slice(&address.to_be_bytes());
    option
}

/// Puts `option`, of `N` bytes (a multiple of 4), first in a segment's list: `segment` has `N`
/// bytes of room before its header, which moves there. The checksum follows, with the longer
/// pseudo-header; the lengths in the IP header are the caller's. Whether there was a header with
/// [`room`] for it; if not, nothing changes.
///
/// First rather than last, because a list that ends with an explicit end would hide it.
pub fn insert<const N: usize>(segment: &mut [u8], option: &[u8; N]) -> bool {
    const { assert!(N.is_multiple_of(4) && N <= MOST) };
    let fits = segment.get(N..).and_then(Header::parse).map(Header::header_len);
    if fits.is_none_or(|header_len| room(header_len) < N) {
        return false;
    }
    segment.copy_within(N..N + HEADER, 0);
    segment[HEADER..HEADER + N].copy_from_slice(option);
    // The data offset is in the highest four bits of its word.
    let longer = (N / 4) as u16 * 0x1000;
    segment[12] += (longer >> 8) as u8;
    let mut delta = Delta::NONE.word16(0, longer).word16(0, N as u16);
    for word in option.as_chunks::<4>().0 {
        delta = delta.word32(0, be32(word, 0));
    }
    apply(segment, delta);
    true
}

/// Applies a difference to the checksum of a segment that has a header.
fn apply(segment: &mut [u8], delta: Delta) {
    let old = u16::from_be_bytes([segment[CHECKSUM], segment[CHECKSUM + 1]]);
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&delta.apply(old).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{TcpHeader, TcpHeaderSlice, TcpOptionElement};
    use proptest::prelude::*;

    const ENDS: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [198, 51, 100, 2]);

    /// A segment with these raw options, made and summed by `etherparse`.
    fn segment(options: &[u8], syn: bool, payload: &[u8]) -> Vec<u8> {
        let mut header = TcpHeader::new(1234, 80, 0x0102_0304, 5000);
        header.syn = syn;
        header.set_options_raw(options).unwrap();
        header.checksum = header.calc_checksum_ipv4_raw(ENDS.0, ENDS.1, payload).unwrap();
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(payload);
        bytes
    }

    /// Whether `etherparse` finds the checksum right.
    fn is_right(bytes: &[u8]) -> bool {
        let (header, payload) = TcpHeader::from_slice(bytes).unwrap();
        header.calc_checksum_ipv4_raw(ENDS.0, ENDS.1, payload).unwrap() == header.checksum
    }

    /// The options as `etherparse` reads them, up to the first that makes no sense.
    fn elements(bytes: &[u8]) -> Vec<TcpOptionElement> {
        let slice = TcpHeaderSlice::from_slice(bytes).unwrap();
        slice
            .options_iterator()
            .map_while(Result::ok)
            .filter(|e| *e != TcpOptionElement::Noop)
            .collect()
    }

    /// Options of many kinds, with padding that moves them to odd places.
    fn options() -> impl Strategy<Value = Vec<u8>> {
        let option = prop_oneof![
            Just(vec![NOP]),
            any::<[u8; 2]>().prop_map(|m| [&[MSS, 4], &m[..]].concat()),
            any::<[u8; 8]>().prop_map(|b| [&[SACK, 10], &b[..]].concat()),
            any::<[u8; 16]>().prop_map(|b| [&[SACK, 18], &b[..]].concat()),
            any::<[u8; 8]>().prop_map(|b| [&[8, 10], &b[..]].concat()),
            any::<u8>().prop_map(|scale| vec![3, 3, scale % 15]),
            Just(vec![SACK_PERMITTED, 2]),
        ];
        proptest::collection::vec(option, 0..6)
            .prop_map(|list| list.concat())
            .prop_filter("too long", |bytes| bytes.len() <= MOST)
    }

    proptest! {
        /// What `etherparse` reads is what is read, in the same order.
        #[test]
        fn reading_agrees_with_etherparse(options in options(), payload: [u8; 3]) {
            let bytes = segment(&options, true, &payload);
            let kinds: Vec<u8> = Options::of(&bytes).map(|option| option.kind).collect();
            let expected: Vec<u8> = elements(&bytes).iter().map(|element| match element {
                TcpOptionElement::Noop => NOP,
                TcpOptionElement::MaximumSegmentSize(_) => MSS,
                TcpOptionElement::WindowScale(_) => 3,
                TcpOptionElement::SelectiveAcknowledgementPermitted => SACK_PERMITTED,
                TcpOptionElement::SelectiveAcknowledgement(..) => SACK,
                TcpOptionElement::Timestamp(..) => 8,
            }).collect();
            prop_assert_eq!(kinds, expected);
            for option in Options::of(&bytes) {
                prop_assert_eq!(&bytes[option.at..option.at + option.data.len()], option.data);
            }
        }

        /// Never a panic, and every option lies within the header.
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), by: u32) {
            for option in Options::of(&bytes) {
                prop_assert!(option.at + option.data.len() <= usize::from(bytes[12] >> 4) * 4);
            }
            let _ = (mss(&bytes), clamp_mss(&mut bytes, 1000), shift_sack(&mut bytes, by));
            let _ = erase(&mut bytes, by as u8);
            insert(&mut bytes, &toa_v4(1, 2));
            insert(&mut bytes, &toa_v6(1, 2));
        }

        /// The MSS is lowered and nothing else, wherever it is; the checksum stays right.
        #[test]
        fn clamping(options in options(), max: u16, syn: bool, payload: [u8; 5]) {
            let before = segment(&options, syn, &payload);
            let mut after = before.clone();
            let changed = clamp_mss(&mut after, max);
            prop_assert!(is_right(&after));
            let old = mss(&before);
            prop_assert_eq!(changed, syn && old.is_some_and(|old| old > max));
            prop_assert_eq!(mss(&after), if syn { old.map(|old| old.min(max)) } else { old });
            let mut expected = elements(&before);
            let first = expected.iter_mut().find_map(|element| match element {
                TcpOptionElement::MaximumSegmentSize(size) if syn => Some(size),
                _ => None,
            });
            if let Some(size) = first {
                *size = max.min(*size);
            }
            prop_assert_eq!(elements(&after), expected);
        }

        /// Every edge moves, wherever it is; the checksum stays right; and back again.
        #[test]
        fn shifting(options in options(), by: u32, payload: [u8; 5]) {
            let before = segment(&options, false, &payload);
            let mut after = before.clone();
            let found = shift_sack(&mut after, by);
            prop_assert!(is_right(&after));
            let mut expected = elements(&before);
            for element in &mut expected {
                if let TcpOptionElement::SelectiveAcknowledgement(first, rest) = element {
                    let all = std::iter::once(first).chain(rest.iter_mut().flatten());
                    for (left, right) in all {
                        (*left, *right) = (left.wrapping_add(by), right.wrapping_add(by));
                    }
                    prop_assert!(found);
                }
            }
            prop_assert_eq!(elements(&after), expected);
            shift_sack(&mut after, by.wrapping_neg());
            prop_assert_eq!(elements(&after), elements(&before));
        }

        /// Options of a kind are gone wherever they were, the others stay where they are, and the
        /// checksum stays right.
        #[test]
        fn erasing(options in options(), kind in prop_oneof![2u8..9, Just(TOA)], payload: [u8; 5]) {
            let before = segment(&options, false, &payload);
            let mut after = before.clone();
            let all = |bytes: &[u8]| {
                Options::of(bytes)
                    .map(|option| (option.kind, option.at, option.data.to_vec()))
                    .collect::<Vec<_>>()
            };
            let mut expected = all(&before);
            expected.retain(|(other, ..)| *other != kind);
            prop_assert_eq!(erase(&mut after, kind), expected.len() < all(&before).len());
            prop_assert!(is_right(&after));
            prop_assert_eq!(all(&after), expected);
            prop_assert_eq!(&after[after.len() - 5..], &before[before.len() - 5..]);
        }

        /// The option goes in first, the rest stays, and the checksum is right for the longer
        /// segment; without room nothing changes.
        #[test]
        fn inserting(options in options(), address: u128, port: u16, payload: [u8; 5]) {
            let before = segment(&options, true, &payload);
            let option = toa_v6(address, port);
            let mut after = [&[0; TOA_V6], &before[..]].concat();
            let fits = insert(&mut after, &option);
            let length = usize::from(before[12] >> 4) * 4;
            prop_assert_eq!(fits, length + TOA_V6 <= 60);
            prop_assert_eq!(fits, room(length) >= TOA_V6);
            if !fits {
                prop_assert_eq!(&after[TOA_V6..], &before[..]);
                return Ok(());
            }
            prop_assert!(is_right(&after));
            prop_assert_eq!(usize::from(after[12] >> 4) * 4, length + TOA_V6);
            prop_assert_eq!(&after[..12], &before[..12]);
            prop_assert_eq!(&after[20..40], &option);
            prop_assert_eq!(&after[40..], &before[20..]);
            let first = Options::of(&after).next().unwrap();
            prop_assert_eq!((first.kind, first.data), (TOA, &option[2..]));
        }
    }

    /// As the kernel modules read it: port and address in network order, length for the family.
    #[test]
    fn client_addresses_are_as_the_modules_read_them() {
        assert_eq!(toa_v4(0xcb00_7109, 0x1f90), [254, 8, 0x1f, 0x90, 203, 0, 113, 9]);
        let option = toa_v6(0x2001_0db8 << 96 | 5, 80);
        assert_eq!(option[..8], [254, 20, 0, 80, 0x20, 1, 0xd, 0xb8]);
        assert_eq!(option[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn an_mss_that_is_not_too_large_stays() {
        let mut bytes = segment(&[MSS, 4, 5, 0xb4], true, &[]);
        assert!(!clamp_mss(&mut bytes, 1460) && clamp_mss(&mut bytes, 1459));
    }

    #[test]
    fn lists_end_where_they_make_no_sense() {
        let kinds = |options: &[u8]| {
            let bytes = segment(options, true, &[]);
            Options::of(&bytes).map(|option| option.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&[NOP, NOP, MSS, 4, 5, 6, 9, 1, 8, 10, 0, 0]), [MSS]);
        assert_eq!(kinds(&[MSS, 4, 5, 6, END, 3, 3, 7]), [MSS]);
        assert_eq!(kinds(&[MSS, 4, 5, 6, 8, 10, 1, 1]), [MSS]);
        assert_eq!(kinds(&[NOP, NOP, NOP, 8]), [0u8; 0]);
        assert_eq!((room(20), room(40), room(60)), (40, 20, 0));
    }
}
