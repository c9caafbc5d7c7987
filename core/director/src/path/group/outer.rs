//! Eight packets put into tunnels, whichever version they and the outer headers are of.
//!
//! What it gains: with [`TOGETHER`] off each packet is put into its tunnel by itself, and `ipip`
//! takes 246 instructions a packet where it takes 158 (`packaging/instructions.sh`), and 11 % more
//! cycles on the mix (`sluice-bench mix --mode ipip`).

use super::ends::NO_ROWS;
use super::forward::{Forward, account};
use super::{ALL, Group, Together, fold, halves, short};
use crate::fib::Hop;
use crate::frame::Frame;
use crate::path::Verdict;
use crate::path::tunnel::{Four, Six, Tunnel};
use sluice_lanes::at::At;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, Lanes};
use sluice_lanes::words::Words;
use sluice_wire::{ethernet, ipip};

/// Whether groups are put into tunnels together.
pub(super) const TOGETHER: bool = true;
/// In the second word of an IPv4 header, as it lies in memory.
pub(super) const DONT_FRAGMENT: u32 = u32::from_ne_bytes([0, 0, 0x40, 0]);

/// What outer headers take of eight packets, as it lies in memory.
pub(in crate::path) struct Inside<I: Instructions> {
    /// Their own first two bytes.
    pub start: Words<I>,
    /// Traffic classes, or types of service.
    pub class: Words<I>,
    /// The second words of outer IPv4 headers: identification and flags.
    pub second: Words<I>,
}

/// What is to be written before packets; by lane.
type Written = Lanes<[u32; 4]>;

/// How the outer headers of a version are made and written.
pub(super) trait Outer: Tunnel {
    /// What is different in each.
    type Made;

    /// Makes them.
    fn make<F: Together, I: Instructions>(_: Head<I>, _: Inside<I>, _: I) -> Self::Made;

    /// Writes a link-layer header, the outer one, and the first two bytes of the packet again.
    /// Buffers begin cache lines, and frames most often begin one too before they grow: nothing is
    /// written across the place where one then begins, nor any byte twice.
    fn write<F: Together>(&self, made: &Self::Made, lane: usize, frame: &mut [u8], hop: &Hop);
}

/// What eight outer headers are made of, besides what the packets say.
pub(super) struct Head<I: Instructions> {
    /// See [`Tunnel::row`].
    row: [Words<I>; 4],
    /// The packets' lengths.
    length: Words<I>,
    /// The lower halves of their hashes.
    hash: Words<I>,
    /// The last two words of the MAC addresses.
    macs: [Words<I>; 2],
}

/// Writes eight frames, all of which go into tunnels, and counts them. Gives the lanes that are
/// left.
pub(super) struct Enter<'a, F: Together, B, T> {
    pub tunnels: &'a [T],
    /// All else that is needed for it.
    pub forward: Forward<'a, F, B>,
}

impl<F: Together, B: Frame, T: Outer> Kernel for Enter<'_, F, B, T> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) -> u8 {
        let Self { tunnels, forward } = self;
        let Forward { group, hops, sessions, reals, seen_ms, frames, verdicts } = forward;
        let ways = ways::<T, F::Words, I>(group, hops, instructions);
        let Some((hops, macs)) = ways else { return ALL };
        let made = made::<F, T, I>(group, (tunnels, macs), instructions);
        let Some((tunnels, made)) = made else { return ALL };
        each_lane!(lane => {
            let (frame, hop) = (&mut frames[lane], hops.get(lane));
            if !frame.push_front(T::OVERHEAD) {
                return ALL << lane;
            }
            let bytes = frame.bytes_mut();
            let inside = T::OVERHEAD + F::HOP;
            let Some(word) = bytes.get_mut(inside..inside + 4) else {
                let _ = frame.pull_front(T::OVERHEAD);
                return ALL << lane;
            };
            word.copy_from_slice(&F::one_hop_less(&group.words, lane));
            tunnels.get(lane).write::<F>(&made, lane, bytes, hop);
            verdicts[lane] = Verdict::Tx(hop.port);
            account::<F>(group, lane, (sessions, seen_ms), reals);
        });
        0
    }
}

/// The hops of eight packets, and the last two words of their MAC addresses; `None` if one gives
/// tags, or its link does not take the packet with its outer header.
#[inline(always)]
fn ways<'a, T: Tunnel, W, I: Instructions>(
    group: &Group<W>,
    hops: &'a [Hop],
    instructions: I,
) -> Option<(At<'a, Hop>, [Words<I>; 2])> {
    let ids = Words::load(instructions, &group.hop) & 0xffff;
    let (hops, are_there) = At::cut(hops, ids)?;
    let mut rows = NO_ROWS;
    each_lane!(lane => rows[lane] = hops.get(lane).row());
    let [first, second, leave, most] = Words::columns(instructions, rows);
    let longest = Words::load(instructions, &group.lengths) + T::OVERHEAD as u32;
    let good = longest.at_most(most) & leave.shr::<16>().is_word(0) & are_there;
    (good.mask() == ALL).then_some((hops, [first, second]))
}

/// The tunnels of eight packets, and what is written of their outer headers; `None` if not all of
/// the packets have such a tunnel, and are known to fit into it.
#[inline(always)]
fn made<'a, F: Together, T: Outer, I: Instructions>(
    group: &Group<F::Words>,
    (tunnels, macs): (&'a [T], [Words<I>; 2]),
    instructions: I,
) -> Option<(At<'a, T>, T::Made)> {
    let reals = Words::load(instructions, &group.reals);
    let (tunnels, are_there) = At::cut(tunnels, reals)?;
    let mut rows = NO_ROWS;
    each_lane!(lane => rows[lane] = bytemuck::must_cast_ref(tunnels.get(lane).row()));
    let row = Words::columns(instructions, rows);
    let length = Words::load(instructions, &group.lengths);
    if length.at_most(row[3] & are_there).mask() != ALL {
        return None;
    }
    // Nothing but the hop is written of what is inside. One at a time, a checksum is written too,
    // and of TCP the other form of zero becomes zero: where one is zero, that way is left to it.
    if Words::load(instructions, &group.new_sum).is_word(0).mask() & group.tcp != 0 {
        return None;
    }
    let hash = Words::load(instructions, &group.hashes[0]);
    let inside = F::inside(&group.words, hash & 0xffff, instructions);
    Some((tunnels, T::make::<F, I>(Head { row, length, hash, macs }, inside, instructions)))
}

impl Outer for Four {
    /// All but the first word to the end of the lengths; the rest.
    type Made = (Written, Written);

    #[inline(always)]
    fn make<F: Together, I: Instructions>(head: Head<I>, inside: Inside<I>, _: I) -> Self::Made {
        let Head { row: [to, from, hosts, _], length, hash, macs: [a, b] } = head;
        let Inside { start, class, second } = inside;
        let from = from | (hash.shr::<16>().swap_bytes() & hosts);
        let front = class.shl::<8>() | 0x45;
        let total = short(length + Self::OVERHEAD as u32);
        let third = u32::from(u16::from_ne_bytes([ipip::TTL, F::PROTOCOL]));
        let sum = front + total + halves(second) + halves(from) + halves(to) + third;
        let sum = !fold(sum) & 0xffff;
        let link = front.shl::<16>() | u32::from(ethernet::IPV4.to_be());
        let next = total | second.shl::<16>();
        let behind = [
            second.shr::<16>() | third << 16,
            sum | from.shl::<16>(),
            from.shr::<16>() | to.shl::<16>(),
            to.shr::<16>() | start.shl::<16>(),
        ];
        (Words::rows([a, b, link, next]), Words::rows(behind))
    }

    #[inline(always)]
    fn write<F: Together>(&self, made: &Self::Made, lane: usize, frame: &mut [u8], hop: &Hop) {
        let Some(head) = frame.first_chunk_mut::<36>() else { return };
        head[..4].copy_from_slice(&hop.macs[0][..4]);
        head[4..20].copy_from_slice(bytemuck::bytes_of(&made.0[lane]));
        head[20..].copy_from_slice(bytemuck::bytes_of(&made.1[lane]));
    }
}

impl Outer for Six {
    /// All but the first word to the end of the lengths; what is added to [`Six::back`], and before
    /// that where source and destination meet.
    type Made = (Written, Written, Lanes<u32>);

    #[inline(always)]
    fn make<F: Together, I: Instructions>(
        head: Head<I>,
        inside: Inside<I>,
        instructions: I,
    ) -> Self::Made {
        let Head { row: [_, middle, hosts, _], length, hash, macs: [a, b] } = head;
        let Inside { start, class, .. } = inside;
        let front = short(class.shl::<4>() | 0x6000);
        let link = front.shl::<16>() | u32::from(ethernet::IPV6.to_be());
        let mut middles = [0; _];
        (middle | (short(hash.shr::<16>()) & hosts)).store(&mut middles);
        let none = Words::splat(instructions, 0);
        (
            Words::rows([a, b, link, short(length).shl::<16>()]),
            Words::rows([none, none, none, start.shl::<16>()]),
            middles,
        )
    }

    #[inline(always)]
    fn write<F: Together>(&self, made: &Self::Made, lane: usize, frame: &mut [u8], hop: &Hop) {
        let Some(head) = frame.first_chunk_mut::<56>() else { return };
        let [first, a, b, c] = self.front;
        let ([d, e, f, g], [h, i, j, k]) = (self.back, made.1[lane]);
        head[..4].copy_from_slice(&hop.macs[0][..4]);
        head[4..20].copy_from_slice(bytemuck::bytes_of(&made.0[lane]));
        let protocol = u32::from_ne_bytes([F::PROTOCOL, 0, 0, 0]);
        head[20..36].copy_from_slice(bytemuck::bytes_of(&[first | protocol, a, b, c]));
        head[36..40].copy_from_slice(bytemuck::bytes_of(&made.2[lane]));
        head[40..].copy_from_slice(bytemuck::bytes_of(&[d | h, e | i, f | j, g | k]));
    }
}
