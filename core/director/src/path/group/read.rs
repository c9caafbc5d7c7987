//! The headers of eight frames, a word of each beside the other.

use super::{Group, HEAD, L4, NO_HEAD, NOTHING, WORDS, fold, halves, short};
use crate::family::{Family, Ipv4, Seed};
use crate::frame::{Checked, Frame};
use crate::session::Flow;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_wire::{ethernet, ipv4, tcp, udp};

/// Sixteen bytes of each of the frames' first ones.
#[inline(always)]
fn parts<'a>(heads: &Lanes<&'a [u8; HEAD]>, from: usize) -> Lanes<&'a [u8; 16]> {
    let mut parts = [NOTHING; LANES];
    for lane in 0..LANES {
        parts[lane] = heads[lane][from..].first_chunk().unwrap_or(NOTHING);
    }
    parts
}

/// Reads the headers of at most eight frames into a group, and finds the plain ones.
pub(super) struct Read<'a, B> {
    pub group: &'a mut Group,
    pub frames: &'a [B],
    pub seed: &'a Seed,
}

impl<B: Frame> Kernel for Read<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) {
        let Self { group, frames, seed } = self;
        let mut heads = [NO_HEAD; LANES];
        let mut room = [0; LANES];
        let (mut good, mut barred) = (0, 0);
        for lane in 0..LANES {
            let Some(frame) = frames.get(lane) else { break };
            let bytes = frame.bytes();
            let Some(head) = bytes.first_chunk() else { continue };
            heads[lane] = head;
            room[lane] = (bytes.len() - ethernet::HEADER).min(0xffff) as u32;
            let known = frame.rx_checksum();
            good |= u8::from(known.ip == Checked::Good) << lane;
            let barred_here = known.l4 == Checked::Bad || frame.segment_size() != 0;
            barred |= u8::from(barred_here) << lane;
        }
        // Groups of receivers.
        barred |= heads.iter().rfold(0, |mask, head| mask << 1 | head[0] & 1);
        let front = Words::columns(instructions, parts(&heads, WORDS));
        let middle = Words::columns(instructions, parts(&heads, WORDS + 16));
        let back = Words::columns(instructions, parts(&heads, L4 + 4));
        let [link, first, second, third] = front;
        let [src, dst, ports, _] = middle;
        // Of UDP the length and the checksum are in the first word, of TCP what is told by the
        // third, and the checksum in the last.
        let [udp, _, offset_flags, last] = back;
        for (words, to) in [first, third, src, dst, ports].into_iter().zip(&mut group.words) {
            words.store(to);
        }
        let total = short(first.shr::<16>());
        let header = halves(first) + halves(second) + halves(third) + halves(src) + halves(dst);
        let verified = fold(header).is_word(0xffff).mask() | good;
        // EtherType, version and length of the header; neither a fragment nor the first of some.
        let whole = link.shr::<16>().is_word(u32::from(ethernet::IPV4.to_be()))
            & (first & 0xff).is_word(0x45)
            & (second & 0xff3f_0000).is_word(0);
        let protocol = third.shr::<8>() & 0xff;
        let is_tcp = protocol.is_word(u32::from(ipv4::TCP));
        let datagram = short(udp & 0xffff);
        let udp_fits = protocol.is_word(u32::from(ipv4::UDP))
            & datagram.at_least(udp::HEADER as u32)
            & (datagram + ipv4::HEADER as u32).at_most(total);
        let options = (offset_flags & 0xf0).shr::<2>();
        let tcp_fits = is_tcp
            & options.at_least(tcp::HEADER as u32)
            & (options + ipv4::HEADER as u32).at_most(total);
        (offset_flags.shr::<8>() & 0xff & is_tcp).store(&mut group.flags);
        is_tcp.pick(last & 0xffff, udp.shr::<16>()).store(&mut group.sum);
        let fits = total.at_most(Words::load(instructions, &room)) & (udp_fits | tcp_fits);
        group.quick = (whole & fits).mask() & verified & !barred;
        group.flow = [Flow::NONE.0; LANES];
        let same = src.is(src.before()) & dst.is(dst.before());
        let same = same & ports.is(ports.before()) & protocol.is(protocol.before());
        group.again = same.mask();
        group.settle();
        for lane in 0..LANES {
            group.hash[lane] = match group.again >> lane & 1 {
                0 => Ipv4::hash_key(&group.key(lane), seed),
                _ => group.hash[lane.wrapping_sub(1) % LANES],
            };
        }
    }
}
