//! Packets for local ports of other workers: told from the rest of a burst by few instructions.
//!
//! Nearly every packet stays where it is, and two comparisons say so of most: its destination lies
//! outside of all local addresses, or its port is this worker's in every pool. Only the others are
//! looked up ([`super::parse`]).
//!
//! Where the NIC brings many to the wrong worker, they are taken out of a burst before anything
//! else is done with it ([`super::Path::take_misdirected`]), so that nothing is parsed twice and
//! the groups that the stages work on are full. Only plain ones are; who gets them looks at them as
//! closely as at any other. What it gains: without it the mix with a quarter of misdirected packets
//! takes 26 % more cycles (`sluice-bench mix`).

mod owner;

use super::group::{Group, Together};
use super::owners::Round;
use super::probe::{Probe, Stage};
use super::{BURST, Marked, Path, Shared, parse};
use crate::family::{Family, Ipv4, Ipv6};
use crate::frame::Frame;
use crate::path::group::{Ends, NO_ROWS, NOTHING};
use crate::plan::{Plan, Pool};
use arrayvec::ArrayVec;
use owner::{Ports, Tell};
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::part::part;
use sluice_lanes::words::Words;
use sluice_wire::{ethernet, ipv4, ipv6};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Bytes of a frame up to the ports.
const FOUR: usize = ethernet::HEADER + ipv4::HEADER + 4;
const SIX: usize = ethernet::HEADER + ipv6::HEADER + 4;
const IP6_PROTOCOL: usize = ethernet::HEADER + 6;
/// Words with a bit for each frame of a burst.
const WORDS: usize = BURST / 64;
/// Groups ahead of the one that is looked at whose frames are asked for.
const AHEAD: usize = 4;

/// Numbers from one to another, which it has too: `span` more than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    span: u32,
}

impl Range {
    /// No port; of addresses one that is none either, though only a closer look tells.
    const NONE: Self = Self { first: u32::MAX, span: 0 };

    const fn between(first: u32, last: u32) -> Self {
        if first > last { Self::NONE } else { Self { first, span: last - first } }
    }

    /// The least that has all.
    fn around(numbers: impl Iterator<Item = u32> + Clone) -> Self {
        match (numbers.clone().min(), numbers.max()) {
            (Some(first), Some(last)) => Self::between(first, last),
            _ => Self::NONE,
        }
    }

    /// What is in both.
    fn common(self, other: Self) -> Self {
        let last = |range: Self| range.first + range.span;
        Self::between(self.first.max(other.first), last(self).min(last(other)))
    }

    /// Whether each of eight numbers is one.
    #[inline(always)]
    fn have<I: Instructions>(self, numbers: Words<I>, instructions: I) -> Words<I> {
        (numbers - self.first).at_most(Words::splat(instructions, self.span))
    }
}

/// What tells most of what stays here from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The last words of the local addresses, of IPv4 and of IPv6.
    four: Range,
    six: Range,
    /// The local ports that are this worker's in every pool.
    own: Range,
    /// What all have as their ports, if no address of IPv4 between the first and the last is none.
    alike: Option<Ports>,
    /// Whether the frames that this worker received for the next turn were searched already, and
    /// whether those of IPv6 were, or those of IPv4.
    pub searched: Option<bool>,
}

impl Bounds {
    /// Nothing is for another worker.
    pub const NONE: Self =
        Self { four: Range::NONE, six: Range::NONE, own: Range::NONE, alike: None, searched: None };

    /// Those of a worker whose shares of the pools are these.
    pub fn of(plan: &Plan, shares: &[(u16, u32)]) -> Self {
        let ids = plan.pools.iter().flat_map(Pool::all_locals);
        let all = ids.filter_map(|id| plan.locals.get(usize::from(id.0)));
        let four = all.clone().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        });
        let six = all.filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits() as u32),
        });
        let shares = shares.iter().map(|(first, count)| match count {
            0 => Range::NONE,
            _ => Range { first: u32::from(*first), span: count - 1 },
        });
        let own = shares.reduce(Range::common).unwrap_or(Range::NONE);
        let (six, all) = (Range::around(six), four.collect::<BTreeSet<u32>>());
        let four = Range::around(all.iter().copied());
        let mut ports = plan.pools.iter().map(Ports::of);
        let first = ports.next().filter(|_| all.len() as u64 == u64::from(four.span) + 1);
        let alike = first.filter(|first| ports.all(|ports| ports == *first));
        Self { four, six, own, alike, searched: None }
    }
}

/// Finds the frames that, if they are plain packets, may be for a local port of another worker: a
/// bit for each, sixty-four to a word. `HEAD` is where the ports end.
struct Suspects<'a, B, const HEAD: usize> {
    frames: &'a [B],
    addresses: Range,
    own: Range,
}

impl<B: Frame, const HEAD: usize> Suspects<'_, B, HEAD> {
    /// What ends in a frame's ports.
    #[inline(always)]
    fn row(frame: &B) -> &[u8; 16] {
        let row = frame.bytes().get(HEAD - 16..HEAD).and_then(|row| row.first_chunk());
        row.unwrap_or(NOTHING)
    }

    /// Those of eight that may be.
    #[inline(always)]
    fn look<I: Instructions>(&self, instructions: I, rows: Lanes<&[u8; 16]>) -> u8 {
        let [.., last, ports] = Words::columns(instructions, rows);
        let local = self.addresses.have(last.swap_bytes(), instructions);
        let own = self.own.have(ports.swap_bytes() & 0xffff, instructions);
        (local & !own).mask()
    }
}

impl<B: Frame, const HEAD: usize> Kernel for Suspects<'_, B, HEAD> {
    type Output = [u64; WORDS];

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) -> [u64; WORDS] {
        let (eights, rest) = self.frames.as_chunks::<LANES>();
        let mut found = [0; WORDS];
        for (group, eight) in eights.iter().enumerate() {
            if let Some(eight) = eights.get(group + AHEAD) {
                each_lane!(lane => eight[lane].prefetch());
            }
            let mut rows = NO_ROWS;
            each_lane!(lane => rows[lane] = Self::row(&eight[lane]));
            let at = group * LANES;
            found[at / 64 % WORDS] |= u64::from(self.look(instructions, rows)) << (at % 64);
        }
        if !rest.is_empty() {
            let mut rows = NO_ROWS;
            rows.iter_mut().zip(rest).for_each(|(row, frame)| *row = Self::row(frame));
            // Nothing looks like a packet to an address that ends in zeros.
            let some = self.look(instructions, rows) & ((1 << rest.len()) - 1);
            let at = eights.len() * LANES;
            found[at / 64 % WORDS] |= u64::from(some) << (at % 64);
        }
        found
    }
}

/// Finds the lanes of a group that may be for another worker.
pub(super) struct Foreign<'a, F: Together> {
    pub group: &'a Group<F::Words>,
    pub bounds: &'a Bounds,
}

impl<F: Together> Kernel for Foreign<'_, F> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) -> u8 {
        let Self { group, bounds } = self;
        let addresses = if F::WIDE { bounds.six } else { bounds.four };
        let heads = F::heads(&group.words, instructions);
        let local = addresses.have(heads.dst.last().swap_bytes(), instructions);
        let own = bounds.own.have(heads.ports.swap_bytes() & 0xffff, instructions);
        (local & !own).mask()
    }
}

impl Path {
    /// Takes the frames out of a burst that came from a port that are for local ports of other
    /// workers, as [`Path::turn`] would hand them over, and gives them away: to which worker each,
    /// and what goes with all. Not all: what is not plain stays, and so does what the port has
    /// found something wrong with. Gives how many it took.
    pub fn take_misdirected<B: Frame, T: Probe>(
        &mut self,
        plan: &Plan,
        burst: &mut ArrayVec<B, BURST>,
        give: impl FnOnce(&[u16], Round, &mut Marked<'_, B>),
        probe: &mut T,
    ) -> usize {
        let shared = &mut self.shared;
        burst.iter().take(AHEAD * LANES).for_each(Frame::prefetch);
        // What comes together is alike.
        let bounds = &shared.ports.bounds;
        let frames = burst.as_slice();
        let is_six = frames.first().map(parse::is_ipv6);
        let mut suspects = match is_six {
            Some(false) => {
                let (addresses, own) = (bounds.four, bounds.own);
                self.v4.level.run(Suspects::<_, FOUR> { frames, addresses, own })
            }
            Some(true) => {
                let (addresses, own) = (bounds.six, bounds.own);
                self.v4.level.run(Suspects::<_, SIX> { frames, addresses, own })
            }
            None => return 0,
        };
        probe.mark(Stage::Screen);
        let mut owners = ArrayVec::<u16, BURST>::new();
        if is_six == Some(false)
            && let Some(ports) = bounds.alike
        {
            let (suspects, owners) = (&mut suspects, &mut owners);
            let (worker, workers) = (shared.worker, shared.workers);
            self.v4.level.run(Tell { frames, suspects, owners, ports, worker, workers });
        } else {
            shared.tell_each(plan, frames, is_six, (&mut suspects, &mut owners));
        }
        probe.mark(Stage::Owner);
        let (round, count) = (shared.first_round(), owners.len());
        if count > 0 {
            part(burst, &suspects, |frames| give(&owners, round, frames));
        }
        probe.mark(Stage::HandOff);
        shared.statistics.counters.handed_off += count as u64;
        // Of a burst that is empty now there will be no turn to forget it.
        shared.ports.bounds.searched = is_six.filter(|_| !burst.is_empty());
        count
    }
}

impl Shared {
    /// Does what [`Tell`] does for packets one after the other, whatever the addresses are.
    fn tell_each<B: Frame>(
        &self,
        plan: &Plan,
        frames: &[B],
        is_six: Option<bool>,
        (suspects, owners): (&mut [u64; WORDS], &mut ArrayVec<u16, BURST>),
    ) {
        for (word, suspects) in suspects.iter_mut().enumerate() {
            let mut left = *suspects;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let bytes = frames[word * 64 + bit as usize].bytes();
                let owner = match is_six {
                    Some(true) => self.owner_of_six(plan, bytes),
                    _ => self.owner_of_four(plan, bytes),
                };
                match owner {
                    Some(owner) => owners.push(owner),
                    None => *suspects &= !(1 << bit),
                }
            }
        }
    }

    /// The other worker whose local port a plain packet of IPv4 is for.
    #[inline(always)]
    fn owner_of_four(&self, plan: &Plan, bytes: &[u8]) -> Option<u16> {
        let header = bytes.first_chunk::<FOUR>()?;
        // Ethertype, version and header length; fragment, time to live and protocol.
        let (kind, rest) = (word(header, 12), word(header, 20));
        let is_ip = kind & 0xffff_ff00 == u32::from(ethernet::IPV4) << 16 | 0x4500;
        let is_whole = rest & 0x3fff_0000 == 0;
        let dst = word(header, FOUR - 8);
        let plain = is_ip & is_whole & is_plain(header, rest as u8);
        let pool = plan.pool_number(Ipv4::side(plan), plain.then_some(dst)?)?;
        self.owner_in(plan, pool, word(header, FOUR - 4) as u16)
    }

    /// The same of a packet of IPv6.
    #[inline(always)]
    fn owner_of_six(&self, plan: &Plan, bytes: &[u8]) -> Option<u16> {
        let header = bytes.first_chunk::<SIX>()?;
        let is_ip = word(header, 12) & 0xffff_f000 == u32::from(ethernet::IPV6) << 16 | 0x6000;
        let plain = is_ip & is_plain(header, header[IP6_PROTOCOL]);
        let dst = *header[SIX - 20..].first_chunk().filter(|_| plain)?;
        let pool = plan.pool_number(Ipv6::side(plan), u128::from_be_bytes(dst))?;
        self.owner_in(plan, pool, word(header, SIX - 4) as u16)
    }

    /// The other worker that a port of a pool is of.
    #[inline(always)]
    fn owner_in(&self, plan: &Plan, pool: usize, port: u16) -> Option<u16> {
        let owner = plan.pools.get(pool)?.owner(port, self.workers)?;
        (owner != self.worker).then_some(owner)
    }
}

/// Whether a frame with whole headers of a kind that is known is for one receiver, and carries TCP
/// or UDP. Without a branch, as what is asked beside it.
#[inline(always)]
fn is_plain(frame: &[u8], protocol: u8) -> bool {
    !ethernet::is_group(frame) & ((protocol == ipv4::TCP) | (protocol == ipv4::UDP))
}

/// The word at a place of a header that is long enough.
#[inline(always)]
fn word<const HEAD: usize>(header: &[u8; HEAD], at: usize) -> u32 {
    let bytes = header.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
