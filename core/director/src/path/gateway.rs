//! What the director forwards as the gateway that it is to real servers behind NAT.
//!
//! Where packets are taken from the kernel (AF_XDP) they cannot be given back. What comes from a
//! real server that is reached by NAT, or from a network that source NAT is for, and belongs to no
//! session, is then routed here as the kernel would have: an answer to somebody who connected to
//! the real server itself, say.

use super::{Path, Verdict, View, rewrite, source_route};
use crate::family::{Family, Ipv4, Ipv6};
use crate::fib::{Hop, NoHop};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::Delta;
use sluice_wire::{ethernet, ipv4, ipv6};
use std::net::IpAddr;

impl Path {
    /// The verdict on a frame that is the kernel's but cannot get there: [`Verdict::Tx`], and it is
    /// rewritten, when the director is its sender's gateway and knows the way.
    #[cold]
    pub fn as_gateway<F: Frame>(&self, view: View<'_>, frame: &mut F) -> Verdict {
        let lost = Verdict::Drop(Reason::NoKernelPath);
        let Some(at) = ethernet::payload(frame.bytes()).map(|payload| payload.offset) else {
            return lost;
        };
        let packet = &frame.bytes()[at..];
        let Some((from, to, hops, length)) = ends(packet) else { return lost };
        let ours = match Ipv4::from_ip(from) {
            Some(v4) => view.plan.v4.has_nat_real(v4),
            None => false,
        } || Ipv6::from_ip(from).is_some_and(|any| view.plan.extended.has_nat_real(any))
            || view.plan.is_inside(from);
        let way = view.fib.lookup(to).ok().and_then(|id| view.fib.hop(id));
        let passes = |hop: &&Hop| ours && hops > 1 && length <= usize::from(hop.mtu);
        match way.filter(passes) {
            Some(_) if source_route::is_at(frame, at) => Verdict::Drop(Reason::SourceRoute),
            Some(hop) if !view.fib.is_own(to) => {
                take_hop(&mut frame.bytes_mut()[at..]);
                rewrite::link_layer(frame, hop)
            }
            _ => lost,
        }
    }
}

impl Path {
    /// Routes a frame that came out of a tunnel and is the kernel's, where that cannot have it:
    /// whoever sent it into the tunnel chose this machine as its gateway. [`Verdict::Tx`], and it
    /// is rewritten, if the way is known.
    ///
    /// # Errors
    /// What it waits for, when only the neighbour is not known; it is rewritten but for that.
    #[cold]
    pub fn as_router<F: Frame>(
        &self,
        view: View<'_>,
        frame: &mut F,
    ) -> Result<Verdict, super::Waiting> {
        let lost = Ok(Verdict::Drop(Reason::NoKernelPath));
        let Some(at) = ethernet::payload(frame.bytes()).map(|payload| payload.offset) else {
            return lost;
        };
        let Some((_, to, hops, length)) = ends(&frame.bytes()[at..]) else { return lost };
        if hops < 2 || view.fib.is_own(to) {
            return lost;
        }
        if source_route::is_at(frame, at) {
            return Ok(Verdict::Drop(Reason::SourceRoute));
        }
        match view.fib.lookup(to) {
            Ok(id) => match view.fib.hop(id).filter(|hop| length <= usize::from(hop.mtu)) {
                Some(hop) => {
                    take_hop(&mut frame.bytes_mut()[at..]);
                    Ok(rewrite::link_layer(frame, hop))
                }
                None => lost,
            },
            Err(NoHop::Unresolved(link, next)) => {
                take_hop(&mut frame.bytes_mut()[at..]);
                Err(super::Waiting { lane: 0, link, next, cut: None })
            }
            Err(NoHop::NoRoute) => lost,
        }
    }
}

/// The verdict on what is for whoever sends probes: an answer that does not pass by a session
/// (`dr`, `ipip`), which goes on as it is.
#[cold]
pub(super) fn to_prober<F: Frame>(view: View<'_>, frame: &mut F) -> Verdict {
    let way = || {
        let at = ethernet::payload(frame.bytes())?.offset;
        let (_, to, hops, _) = ends(&frame.bytes()[at..])?;
        let hop = view.fib.lookup(to).ok().and_then(|id| view.fib.hop(id))?;
        (hops > 1).then_some((at, hop))
    };
    let Some((at, hop)) = way() else { return Verdict::Drop(Reason::NoRoute) };
    take_hop(&mut frame.bytes_mut()[at..]);
    rewrite::link_layer(frame, hop)
}

/// Where a packet comes from and goes to, the hops that it has left, and its length.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8, usize)> {
    if packet.first()? >> 4 == 6 {
        let header = ipv6::Header::parse(packet).ok()?;
        let (from, to) = (Ipv6::to_ip(header.source()), Ipv6::to_ip(header.destination()));
        return Some((from, to, header.hop_limit(), header.total_len()));
    }
    let header = ipv4::Header::parse(packet).ok()?;
    let (from, to) = (Ipv4::to_ip(header.source()), Ipv4::to_ip(header.destination()));
    Some((from, to, header.ttl(), header.total_len()))
}

/// Takes one hop off a packet that has more.
fn take_hop(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[ipv6::HOP_LIMIT] -= 1;
        return;
    }
    packet[ipv4::TTL] -= 1;
    let field = &mut packet[ipv4::CHECKSUM..ipv4::CHECKSUM + 2];
    // The time to live is the upper byte of its 16-bit word.
    let sum = Delta::NONE.word16(1 << 8, 0).apply(u16::from_be_bytes([field[0], field[1]]));
    field.copy_from_slice(&sum.to_be_bytes());
}
