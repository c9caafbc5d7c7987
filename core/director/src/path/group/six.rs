//! What a group has of IPv6 packets.

use super::ends::{Ends, NO_ROWS, Rows};
use super::outer::{DONT_FRAGMENT, Inside};
use super::read::{Read, Transport};
use super::verify::{Changes, Heads};
use super::{Group, NOTHING, Reals, Together, short};
use crate::family::Ipv6;
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
use sluice_wire::{ethernet, ipv4, ipv6, tcp, udp};

const L4: usize = ethernet::HEADER + ipv6::HEADER;
/// Bytes of every frame that are looked at: as many as the shortest datagram has. A TCP segment has
/// more.
const HEAD: usize = L4 + udp::HEADER;
/// Where the words begin that a group has of each frame: two before the IPv6 header, so that they
/// are its own from the third on.
const WORDS: usize = ethernet::HEADER - 8;
/// Where what changes of them begins: with the word of the hop limit; then addresses and ports.
const CHANGES: usize = ethernet::HEADER + 4;
const SOURCE: usize = ethernet::HEADER + ipv6::SOURCE;
const DESTINATION: usize = ethernet::HEADER + ipv6::DESTINATION;
const UDP_SUM: usize = L4 + udp::CHECKSUM;
const TCP_SUM: usize = L4 + tcp::CHECKSUM;
/// One hop in the second word of the header.
const HOP: u32 = 1 << 24;

/// The headers of eight packets, and what becomes of them.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(in crate::path) struct Six {
    /// The first word of the IPv6 headers: version, traffic class, flow label.
    first: Lanes<u32>,
    /// The second: length, next header, hop limit.
    second: Lanes<u32>,
    src: [Lanes<u32>; 4],
    dst: [Lanes<u32>; 4],
    ports: Lanes<u32>,
    /// What bytes 18 to 58 of the frames become; the rest is nothing.
    changed: [Lanes<[u32; 4]>; 3],
}

/// Four words of a lane as an address, as they lie in memory.
#[inline(always)]
fn address([a, b, c, d]: [u32; 4]) -> u128 {
    bytemuck::must_cast([a, b, c, d])
}

impl Six {
    #[inline(always)]
    fn protocol(&self, lane: usize) -> u8 {
        (self.second[lane] >> 16) as u8
    }
}

/// Sixteen bytes of each frame from the second word of its transport header on: of none that is a
/// datagram too short for it.
#[inline(always)]
fn behind<'a, B: Frame, P: Picks>(read: &Read<'a, Ipv6, B, P>) -> Rows<'a> {
    let mut rows = NO_ROWS;
    for (lane, row) in rows.iter_mut().enumerate() {
        let frame = read.picks.pick(read.frames, read.from + lane);
        let part = frame.and_then(|frame| frame.bytes().get(L4 + 4..)?.first_chunk());
        *row = part.unwrap_or(NOTHING);
    }
    rows
}

impl Together for Ipv6 {
    type Words = Six;
    type Ends<I: Instructions> = [Words<I>; 4];
    const ETHERTYPE: u16 = ethernet::IPV6;
    const PROTOCOL: u8 = ipv4::IPV6;
    const L4: usize = L4;
    const HOP: usize = CHANGES;

    #[inline(always)]
    fn read<I: Instructions, B: Frame, P: Picks>(
        read: Read<'_, Self, B, P>,
        instructions: I,
    ) -> u8 {
        let heads = read.heads::<HEAD>();
        let [_, link, first, second] = Words::columns(instructions, heads.parts(WORDS));
        let src = Words::columns(instructions, heads.parts(SOURCE));
        let dst = Words::columns(instructions, heads.parts(DESTINATION));
        let [_, _, ports, next] = Words::columns(instructions, heads.parts(HEAD - 16));
        let protocol = second.shr::<16>() & 0xff;
        let mut rest = [Words::splat(instructions, 0); 3];
        // Often in another cache line.
        if protocol.is_word(u32::from(ipv4::TCP)).mask() != 0 {
            let [_, ack, offset_flags, last] = Words::columns(instructions, behind(&read));
            rest = [ack, offset_flags, last];
        }
        let Read { group, seed, index, .. } = read;
        first.store(&mut group.words.first);
        second.store(&mut group.words.second);
        ports.store(&mut group.words.ports);
        for (words, to) in src.into_iter().zip(&mut group.words.src) {
            words.store(to);
        }
        for (words, to) in dst.into_iter().zip(&mut group.words.dst) {
            words.store(to);
        }
        let length = short(second & 0xffff);
        let (room, is_frame) = heads.room(read.macs, instructions);
        let fits = length.at_most(room - ipv6::HEADER as u32) & is_frame;
        let whole = link.shr::<16>().is_word(u32::from(ethernet::IPV6.to_be()))
            & (first & 0xf0).is_word(0x60)
            & !(src.is_mapped(instructions) | dst.is_mapped(instructions));
        (length + ipv6::HEADER as u32).store(&mut group.lengths);
        let transport = Transport { protocol, length, before: 0, second: next, rest };
        let fits = fits & transport.read(group);
        group.begin((whole & fits).mask() & !heads.barred);
        let pair = |at: usize| [src[at], dst[at]];
        let pairs = [pair(0), pair(1), pair(2), pair(3), [ports, protocol]];
        group.hash_keys(instructions, (seed, index), pairs);
        0
    }

    #[inline(always)]
    fn ttl(words: &Six, lane: usize) -> u8 {
        (words.second[lane] >> 24) as u8
    }

    #[inline(always)]
    fn key_of(words: &Six, lane: usize) -> Key<u128> {
        let of = |four: &[Lanes<u32>; 4]| address(four.map(|word| word[lane]));
        let (src, dst) = (of(&words.src), of(&words.dst));
        Key { src, dst, ports: words.ports[lane], protocol: words.protocol(lane) }
    }

    #[inline(always)]
    fn changed_key(words: &Six, lane: usize) -> Key<u128> {
        let [[_, a, b, c], [d, e, f, g], [h, ports, ..]] = words.changed.map(|rows| rows[lane]);
        let (src, dst) = (address([a, b, c, d]), address([e, f, g, h]));
        Key { src, dst, ports, protocol: words.protocol(lane) }
    }

    #[inline(always)]
    fn inside<I: Instructions>(words: &Six, _: Words<I>, instructions: I) -> Inside<I> {
        let start = Words::load(instructions, &words.first) & 0xffff;
        let class = short(start).shr::<4>() & 0xff;
        let second = Words::splat(instructions, DONT_FRAGMENT);
        Inside { start, class, second }
    }

    #[inline(always)]
    fn one_hop_less(words: &Six, lane: usize) -> [u8; 4] {
        let [first, ..] = &words.changed;
        first[lane][0].to_ne_bytes()
    }

    #[inline(always)]
    fn write(group: &Group<Six>, lane: usize, frame: &mut [u8]) -> bool {
        let words = &group.words;
        let sum_at = if words.protocol(lane) == ipv4::TCP { TCP_SUM } else { UDP_SUM };
        let Some(sum) = frame.get_mut(sum_at..sum_at + 2) else { return false };
        sum.copy_from_slice(&(group.new_sum[lane] as u16).to_le_bytes());
        let Some(head) = frame.first_chunk_mut::<HEAD>() else { return false };
        let [first, second, third] = &words.changed;
        head[CHANGES..][..16].copy_from_slice(bytemuck::bytes_of(&first[lane]));
        head[CHANGES + 16..][..16].copy_from_slice(bytemuck::bytes_of(&second[lane]));
        let [last, ports, ..] = third[lane];
        head[CHANGES + 32..][..8].copy_from_slice(bytemuck::bytes_of(&[last, ports]));
        true
    }

    #[inline(always)]
    fn heads<I: Instructions>(words: &Six, instructions: I) -> Heads<I, [Words<I>; 4]> {
        let second = Words::load(instructions, &words.second);
        Heads {
            src: four(&words.src, instructions),
            dst: four(&words.dst, instructions),
            ports: Words::load(instructions, &words.ports),
            protocol: second.shr::<16>() & 0xff,
            ttl: second.shr::<24>(),
        }
    }

    #[inline(always)]
    fn change<I: Instructions>(
        words: &mut Six,
        changes: Changes<I, [Words<I>; 4]>,
        instructions: I,
    ) {
        let Changes { src: [a, b, c, d], dst: [e, f, g, h], ports, .. } = changes;
        let second = Words::load(instructions, &words.second) - HOP;
        words.changed = [
            Words::rows([second, a, b, c]),
            Words::rows([d, e, f, g]),
            Words::rows([h, ports, ports, ports]),
        ];
    }

    #[inline(always)]
    fn clients<I: Instructions>(instructions: I, clients: &Lanes<u128>) -> [Words<I>; 4] {
        Words::columns(instructions, clients.each_ref().map(bytemuck::must_cast_ref))
    }

    #[inline(always)]
    fn locals<I: Instructions>(instructions: I, side: &Side<u128>, ids: Words<I>) -> [Words<I>; 4] {
        if let Some(tables) = side.few_locals() {
            let known = ids.at_most(Words::splat(instructions, 15));
            // Spelt out: a closure would be compiled for the baseline.
            let [a, b, c, d] = tables;
            return [ids.of(a) & known, ids.of(b) & known, ids.of(c) & known, ids.of(d) & known];
        }
        let (mut locals, mut rows) = ([0; LANES], NO_ROWS);
        ids.store(&mut locals);
        for (row, id) in rows.iter_mut().zip(locals) {
            if let Some(address) = side.local_wire_at(LocalId(id as u16)) {
                *row = bytemuck::must_cast_ref(address);
            }
        }
        Words::columns(instructions, rows)
    }

    #[inline(always)]
    fn reals<I: Instructions>(
        instructions: I,
        side: &Side<u128>,
        ids: Words<I>,
    ) -> Option<Reals<I, [Words<I>; 4]>> {
        let (reals, are_there) = At::cut(side.real_entries(), ids)?;
        let (mut addresses, mut vips, mut rest) = (NO_ROWS, NO_ROWS, [0; LANES]);
        each_lane!(lane => {
            let real = reals.get(lane);
            addresses[lane] = bytemuck::must_cast_ref(&real.wire_address);
            vips[lane] = bytemuck::must_cast_ref(&real.wire_vip);
            rest[lane] = real.rest();
        });
        let addresses = Words::columns(instructions, addresses);
        let vips = Words::columns(instructions, vips);
        Some(([addresses, vips], Words::load(instructions, &rest) & are_there))
    }
}

#[inline(always)]
fn four<I: Instructions>(words: &[Lanes<u32>; 4], instructions: I) -> [Words<I>; 4] {
    let [a, b, c, d] = words;
    [
        Words::load(instructions, a),
        Words::load(instructions, b),
        Words::load(instructions, c),
        Words::load(instructions, d),
    ]
}
