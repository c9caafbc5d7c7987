//! The headers of eight frames, a word of each beside the other.

use super::ends::{NO_ROWS, Rows};
use super::{Group, NOTHING, Together};
use crate::fib::macs::OwnMacs;
use crate::frame::{Checked, Frame};
use crate::hash::Seed;
use crate::path::picks::Picks;
use crate::session::Flow;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_table::Index;
use sluice_wire::{ethernet, ipv4, tcp, udp};

/// Reads the headers of at most eight frames into a group, and finds the plain ones. Gives those
/// that are for the other table.
pub(in crate::path) struct Read<'a, F: Together, B, P> {
    pub group: &'a mut Group<F::Words>,
    pub frames: &'a [B],
    pub picks: &'a P,
    /// The first of them.
    pub from: usize,
    pub seed: &'a Seed,
    pub index: &'a Index,
    /// What their port takes frames for.
    pub macs: &'a OwnMacs,
}

impl<F: Together, B: Frame, P: Picks> Kernel for Read<'_, F, B, P> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) -> u8 {
        F::read(self, instructions)
    }
}

/// The first bytes of eight frames.
pub(in crate::path) struct Heads<'a, const N: usize> {
    pub bytes: Lanes<&'a [u8; N]>,
    /// Their lengths.
    lengths: Lanes<u32>,
    /// Lanes whose IPv4 checksum the port has found good.
    pub good: u8,
    /// Lanes that are not plain, whatever they are.
    pub barred: u8,
}

impl<'a, F: Together, B: Frame, P: Picks> Read<'a, F, B, P> {
    /// The frames' first bytes; zeros of those that are shorter.
    #[inline(always)]
    pub fn heads<const N: usize>(&self) -> Heads<'a, N> {
        let mut heads = Heads::NONE;
        if let Some(frames) = self.picks.eight(self.frames, self.from) {
            each_lane!(lane => heads.add(lane, &frames[lane]));
        } else {
            for lane in 0..LANES {
                let Some(frame) = self.picks.pick(self.frames, self.from + lane) else { break };
                heads.add(lane, frame);
            }
        }
        heads
    }
}

impl<'a, const N: usize> Heads<'a, N> {
    const NONE: Self = Self { bytes: [&[0; N]; LANES], lengths: [0; LANES], good: 0, barred: 0 };

    /// Adds a frame.
    #[inline(always)]
    fn add<B: Frame>(&mut self, lane: usize, frame: &'a B) {
        let all = frame.bytes();
        let head = all.first_chunk();
        self.bytes[lane] = head.unwrap_or(&[0; N]);
        self.lengths[lane] = all.len() as u32;
        let known = frame.rx_checksum();
        self.good |= u8::from(known.ip == Checked::Good) << lane;
        let barred = known.l4 == Checked::Bad || frame.segment_size() != 0;
        self.barred |= u8::from(barred) << lane;
    }

    /// Bytes of the frames behind their link-layer headers, and which of them are neither too short
    /// nor to other receivers.
    #[inline(always)]
    pub fn room<I: Instructions>(&self, macs: &OwnMacs, instructions: I) -> (Words<I>, Words<I>) {
        let lengths = Words::load(instructions, &self.lengths);
        let room = lengths - ethernet::HEADER as u32;
        let is_frame = lengths.at_least(N as u32);
        if macs.take_all(self.bytes) {
            return (room, is_frame);
        }
        (room, is_frame & self.ours(macs, instructions))
    }

    /// Which of the frames are to their port, or to any single receiver if nothing is known of it.
    #[inline(always)]
    fn ours<I: Instructions>(&self, macs: &OwnMacs, instructions: I) -> Words<I> {
        let (mut front, mut back) = ([0; LANES], [0; LANES]);
        each_lane!(lane => {
            let [a, b, c, d, e, f] = *self.bytes[lane].first_chunk().unwrap_or(&[0; 6]);
            front[lane] = u32::from_ne_bytes([a, b, c, d]);
            back[lane] = u32::from_ne_bytes([c, d, e, f]);
        });
        let [front, back] = [front, back].map(|words| Words::load(instructions, &words));
        // None is known, so that the lowest bit of the first byte says enough.
        let mut ours = (front & u32::from_ne_bytes([1, 0, 0, 0])).is_word(0);
        if let Some(([first, last], rest)) = macs.words().split_first() {
            ours = front.is_word(*first) & back.is_word(*last);
            for [first, last] in rest {
                ours = ours | (front.is_word(*first) & back.is_word(*last));
            }
        }
        ours
    }
}

impl<'a, const N: usize> Heads<'a, N> {
    /// Sixteen bytes of each from one on.
    #[inline(always)]
    pub fn parts(&self, from: usize) -> Rows<'a> {
        let mut parts = NO_ROWS;
        for (part, head) in parts.iter_mut().zip(self.bytes) {
            *part = head[from..].first_chunk().unwrap_or(NOTHING);
        }
        parts
    }
}

/// What the transport headers of eight packets say.
pub(super) struct Transport<I: Instructions> {
    pub protocol: Words<I>,
    /// Length of the packets, and how much of it is before their transport headers.
    pub length: Words<I>,
    pub before: u32,
    /// The second word of the headers: of UDP the length and the checksum, of TCP the sequence
    /// number.
    pub second: Words<I>,
    /// Of TCP the third to fifth.
    pub rest: [Words<I>; 3],
}

impl<I: Instructions> Transport<I> {
    /// Keeps what tracking and rewriting need, and tells which are whole TCP or UDP.
    #[inline(always)]
    pub fn read<W>(self, group: &mut Group<W>) -> Words<I> {
        let Self { protocol, length, before, second, rest: [ack, offset_flags, last] } = self;
        let is_tcp = protocol.is_word(u32::from(ipv4::TCP));
        let datagram = super::short(second & 0xffff);
        let udp_fits = protocol.is_word(u32::from(ipv4::UDP))
            & datagram.at_least(udp::HEADER as u32)
            & (datagram + before).at_most(length);
        let options = (offset_flags & 0xf0).shr::<2>();
        let tcp_fits =
            is_tcp & options.at_least(tcp::HEADER as u32) & (options + before).at_most(length);
        (offset_flags.shr::<8>() & 0xff & is_tcp).store(&mut group.flags);
        let end = second.swap_bytes() + length - options - before;
        (end & is_tcp).store(&mut group.numbers[0]);
        (ack.swap_bytes() & is_tcp).store(&mut group.numbers[1]);
        group.tcp = is_tcp.mask();
        is_tcp.pick(last & 0xffff, second.shr::<16>()).store(&mut group.sum);
        udp_fits | tcp_fits
    }
}

impl<W> Group<W> {
    /// Notes which lanes are plain.
    #[inline(always)]
    pub(super) fn begin(&mut self, plain: u8) {
        self.quick = plain;
        self.flow = [Flow::NONE.0; LANES];
    }

    /// Notes the hashes of all keys, which are these pairs of words.
    #[inline(always)]
    pub(super) fn hash_keys<I: Instructions, const N: usize>(
        &mut self,
        instructions: I,
        (seed, index): (&Seed, &Index),
        pairs: [[Words<I>; 2]; N],
    ) {
        let [lower, upper] = seed.hash_eight(instructions, pairs);
        lower.store(&mut self.hashes[0]);
        upper.store(&mut self.hashes[1]);
        index.homes(instructions, upper).store(&mut self.homes);
    }
}
