//! What a group has of IPv4 packets.

use super::ends::NO_ROWS;
use super::outer::{DONT_FRAGMENT, Inside};
use super::read::{Read, Transport};
use super::verify::{Changes, Heads};
use super::{Group, Reals, Together, fold, halves, short};
use crate::family::Ipv4;
use crate::frame::Frame;
use crate::key::Key;
use crate::path::picks::Picks;
use crate::plan::LocalId;
use crate::plan::side::Side;
use bytemuck::Zeroable;
use sluice_lanes::at::At;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_wire::{ethernet, ipv4, tcp, udp};

/// Bytes of a frame that are looked at: as many as the shortest TCP segment has. (Ethernet's
/// shortest frame has sixty; only virtual ports carry shorter datagrams.)
const HEAD: usize = L4 + tcp::HEADER;
const L4: usize = ethernet::HEADER + ipv4::HEADER;
/// Where the eight words begin that a group has of each frame, so that they are those of the IPv4
/// header from the second on.
const WORDS: usize = 10;
/// Where what changes of them begins: time to live, protocol and checksum, addresses, ports.
const CHANGES: usize = ethernet::HEADER + ipv4::TTL;
const UDP_SUM: usize = L4 + udp::CHECKSUM;
const TCP_SUM: usize = L4 + tcp::CHECKSUM;

/// The headers of eight packets, and what becomes of them.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(in crate::path) struct Four {
    /// The five words of the IPv4 headers, and the ports.
    words: [Lanes<u32>; 6],
    /// What bytes 22 to 38 of the frames become.
    changed: Lanes<[u32; 4]>,
}

/// The protocol in the third word of an IPv4 header.
#[inline(always)]
const fn protocol(word: u32) -> u8 {
    (word >> 8) as u8
}

impl Together for Ipv4 {
    type Words = Four;
    type Ends<I: Instructions> = Words<I>;
    const ETHERTYPE: u16 = ethernet::IPV4;
    const PROTOCOL: u8 = ipv4::IPV4;
    const L4: usize = L4;
    const HOP: usize = CHANGES;

    #[inline(always)]
    fn read<I: Instructions, B: Frame, P: Picks>(
        read: Read<'_, Self, B, P>,
        instructions: I,
    ) -> u8 {
        let heads = read.heads::<HEAD>();
        let front = Words::columns(instructions, heads.parts(WORDS));
        let middle = Words::columns(instructions, heads.parts(WORDS + 16));
        let back = Words::columns(instructions, heads.parts(L4 + 4));
        let (room, is_frame) = heads.room(read.macs, instructions);
        let (good, barred) = (heads.good, heads.barred);
        let [link, first, second, third] = front;
        let [src, dst, ports, _] = middle;
        let [next, ack, offset_flags, last] = back;
        let Read { group, seed, index, .. } = read;
        for (words, to) in
            [first, second, third, src, dst, ports].into_iter().zip(&mut group.words.words)
        {
            words.store(to);
        }
        let total = short(first.shr::<16>());
        let header = halves(first) + halves(second) + halves(third) + halves(src) + halves(dst);
        let verified = fold(header).is_word(0xffff).mask() | good;
        // EtherType, version and length of the header; neither a fragment nor the first of some.
        let ethertype = link.shr::<16>();
        let whole = ethertype.is_word(u32::from(ethernet::IPV4.to_be()))
            & (first & 0xff).is_word(0x45)
            & (second & 0xff3f_0000).is_word(0);
        let protocol = third.shr::<8>() & 0xff;
        total.store(&mut group.lengths);
        let transport = Transport {
            protocol,
            length: total,
            before: ipv4::HEADER as u32,
            second: next,
            rest: [ack, offset_flags, last],
        };
        let fits = total.at_most(room) & transport.read(group);
        group.begin((whole & fits & is_frame).mask() & verified & !barred);
        group.hash_keys(instructions, (seed, index), [[src, dst], [ports, protocol]]);
        ethertype.is_word(u32::from(ethernet::IPV6.to_be())).mask()
    }

    #[inline(always)]
    fn ttl(words: &Four, lane: usize) -> u8 {
        words.words[2][lane] as u8
    }

    #[inline(always)]
    fn key_of(words: &Four, lane: usize) -> Key<u32> {
        let [_, _, third, src, dst, ports] = &words.words;
        let protocol = protocol(third[lane]);
        Key { src: src[lane], dst: dst[lane], ports: ports[lane], protocol }
    }

    #[inline(always)]
    fn changed_key(words: &Four, lane: usize) -> Key<u32> {
        let [_, src, dst, ports] = words.changed[lane];
        Key { src, dst, ports, protocol: protocol(words.words[2][lane]) }
    }

    #[inline(always)]
    fn inside<I: Instructions>(words: &Four, salts: Words<I>, instructions: I) -> Inside<I> {
        let [first, second, ..] = &words.words;
        let (first, second) = (Words::load(instructions, first), Words::load(instructions, second));
        let start = first & 0xffff;
        let ids = (short(second & 0xffff) + salts) & 0xffff;
        let may_cut = (second & DONT_FRAGMENT).is_word(0);
        let second = may_cut.pick(short(ids), Words::splat(instructions, DONT_FRAGMENT));
        Inside { start, class: start.shr::<8>(), second }
    }

    #[inline(always)]
    fn one_hop_less(words: &Four, lane: usize) -> [u8; 4] {
        words.changed[lane][0].to_ne_bytes()
    }

    #[inline(always)]
    fn write(group: &Group<Four>, lane: usize, frame: &mut [u8]) -> bool {
        let Some(head) = frame.first_chunk_mut::<HEAD>() else { return false };
        let words = &group.words;
        let sum_at = if group.tcp >> lane & 1 == 1 { TCP_SUM } else { UDP_SUM };
        head[CHANGES..][..16].copy_from_slice(bytemuck::bytes_of(&words.changed[lane]));
        head[sum_at..][..2].copy_from_slice(&(group.new_sum[lane] as u16).to_le_bytes());
        true
    }

    #[inline(always)]
    fn heads<I: Instructions>(words: &Four, instructions: I) -> Heads<I, Words<I>> {
        let load = |of: &Lanes<u32>| Words::load(instructions, of);
        let [_, _, third, src, dst, ports] = words.words.each_ref().map(load);
        Heads { src, dst, ports, protocol: third.shr::<8>() & 0xff, ttl: third & 0xff }
    }

    #[inline(always)]
    fn change<I: Instructions>(words: &mut Four, changes: Changes<I, Words<I>>, instructions: I) {
        let Changes { src, dst, ports, addresses } = changes;
        let third = Words::load(instructions, &words.words[2]);
        // RFC 1624: a word is taken away by adding its complement. One hop less is 0xfffe.
        let header = !fold(addresses + (!third).shr::<16>() + 0xfffe);
        let hop = ((third - 1) & 0xffff) | header.shl::<16>();
        words.changed = Words::rows([hop, src, dst, ports]);
    }

    #[inline(always)]
    fn clients<I: Instructions>(instructions: I, clients: &Lanes<u32>) -> Words<I> {
        Words::load(instructions, clients)
    }

    #[inline(always)]
    fn locals<I: Instructions>(instructions: I, side: &Side<u32>, ids: Words<I>) -> Words<I> {
        if let Some([table, ..]) = side.few_locals() {
            return ids.of(table) & ids.at_most(Words::splat(instructions, 15));
        }
        let mut locals = [0; LANES];
        ids.store(&mut locals);
        let address = |id| side.local_wire(LocalId(id as u16)).unwrap_or_default();
        Words::load(instructions, &locals.map(address))
    }

    #[inline(always)]
    fn reals<I: Instructions>(
        instructions: I,
        side: &Side<u32>,
        ids: Words<I>,
    ) -> Option<Reals<I, Words<I>>> {
        let (reals, are_there) = At::cut(side.real_rows(), ids)?;
        let mut rows = NO_ROWS;
        each_lane!(lane => rows[lane] = bytemuck::must_cast_ref(reals.get(lane)));
        let [address, vip, rest, _] = Words::columns(instructions, rows);
        Some(([address, vip], rest & are_there))
    }
}
