//! Whose eight misdirected packets of IPv4 are, told at once: where all local addresses are one
//! range, with the same ports each, neither a pool nor anything else has to be looked up.
//!
//! What it gains: with each looked up by itself the mix with a quarter of misdirected packets takes
//! 9 % more cycles (`sluice-bench mix`).

use super::{FOUR, WORDS};
use crate::frame::Frame;
use crate::path::BURST;
use crate::path::group::{ALL, NO_ROWS, NOTHING};
use crate::plan::Pool;
use arrayvec::ArrayVec;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES};
use sluice_lanes::words::Words;
use sluice_wire::{ethernet, ipv4};

/// Where the rows of a header begin that have what is asked: ethertype to protocol, and what ends
/// in the ports.
const KIND: usize = 8;
const ENDS: usize = FOUR - 16;
/// Ethertype, version and header length, as a word ahead of the type of service.
const PLAIN: u32 = (ethernet::IPV4 as u32) << 16 | 0x4500;

/// The ports that all pools have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    first: u32,
    count: u32,
    each: u64,
}

impl Ports {
    pub fn of(pool: &Pool) -> Self {
        Self { first: pool.first_port.into(), count: pool.ports, each: pool.each() }
    }

    /// The workers that ports belong to, as [`Pool::owner`] says, and whether they are any's.
    #[inline(always)]
    fn owners<I: Instructions>(
        self,
        ports: Words<I>,
        workers: u16,
        instructions: I,
    ) -> [Words<I>; 2] {
        let word = |word: u32| Words::splat(instructions, word);
        let offset = ports - self.first;
        let some = offset.at_most(word(self.count.wrapping_sub(1)));
        // Of those that are any's this is below 2³²; what others give does not count.
        let [part, _] = (offset + 1).multiply(word(workers.into()));
        let part = part - 1;
        let [_, carry] = part.multiply(word(self.each as u32));
        let [low, high] = part.multiply(word((self.each >> 32) as u32));
        let sum = low + carry;
        // A truth is -1.
        let high = high - !carry.at_most(sum);
        [high.shl::<16>() | sum.shr::<16>(), some]
    }
}

/// Tells whose those of a burst are that have a bit of `suspects`, most of which may be for others:
/// takes the bits of those that are not plain or for nobody else, and adds an owner for each that
/// has one left.
pub(super) struct Tell<'a, B> {
    pub frames: &'a [B],
    pub suspects: &'a mut [u64; WORDS],
    pub owners: &'a mut ArrayVec<u16, BURST>,
    pub ports: Ports,
    pub worker: u16,
    pub workers: u16,
}

impl<B: Frame> Tell<'_, B> {
    /// The owners of eight, and which of them have one.
    #[inline(always)]
    fn look<I: Instructions>(&self, instructions: I, at: &[u8; LANES]) -> ([u32; LANES], u8) {
        let (mut kinds, mut ends, mut many) = (NO_ROWS, NO_ROWS, 0);
        each_lane!(lane => {
            let frame = self.frames.get(usize::from(at[lane]));
            let header = frame.and_then(|frame| frame.bytes().first_chunk::<FOUR>());
            let header = header.unwrap_or(&[0; FOUR]);
            kinds[lane] = row(header, KIND);
            ends[lane] = row(header, ENDS);
            many |= (header[0] & 1) << lane;
        });
        let [_, kind, _, rest] = Words::columns(instructions, kinds);
        let [.., ports] = Words::columns(instructions, ends);
        let is_ip = (kind.swap_bytes() & 0xffff_ff00).is_word(PLAIN);
        let rest = rest.swap_bytes();
        let is_whole = (rest & 0x3fff_0000).is_word(0);
        let protocol = rest & 0xff;
        let is_known = protocol.is_word(ipv4::TCP.into()) | protocol.is_word(ipv4::UDP.into());
        let ports = ports.swap_bytes() & 0xffff;
        let [owners, some] = self.ports.owners(ports, self.workers, instructions);
        let others = !owners.is_word(self.worker.into());
        let mut told = [0; LANES];
        owners.store(&mut told);
        (told, (is_ip & is_whole & is_known & some & others).mask() & !many)
    }
}

/// Sixteen bytes of a header.
#[inline(always)]
fn row(header: &[u8; FOUR], at: usize) -> &[u8; 16] {
    header.get(at..).and_then(|row| row.first_chunk()).unwrap_or(NOTHING)
}

impl<B: Frame> Kernel for Tell<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) {
        let (mut all, mut count) = ([0u8; BURST], 0);
        for (word, suspects) in self.suspects.iter().enumerate() {
            let mut left = *suspects;
            while left != 0 {
                all[count % BURST] = (word * 64) as u8 + left.trailing_zeros() as u8;
                left &= left - 1;
                count += 1;
            }
        }
        let (eights, _) = all.as_chunks::<LANES>();
        for (number, at) in eights.iter().enumerate().take(count.div_ceil(LANES)) {
            let here = (count - number * LANES).min(LANES);
            let (told, others) = self.look(instructions, at);
            let others = others & ((1u32 << here) - 1) as u8;
            if others == ALL {
                // There is room for as many as a burst has frames.
                let _ = self.owners.try_extend_from_slice(&told.map(|owner| owner as u16));
                continue;
            }
            for (lane, (at, owner)) in at.iter().zip(told).enumerate().take(here) {
                if others >> lane & 1 == 1 {
                    self.owners.push(owner as u16);
                } else {
                    self.suspects[usize::from(at / 64) % WORDS] &= !(1 << (at % 64));
                }
            }
        }
    }
}
