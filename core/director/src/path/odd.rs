//! Packets without a tuple of their own: ICMP errors and fragments.

use super::engine::{Engine, Outcome, Turn};
use super::parse::Parse;
use super::{Shared, Verdict};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::{ipv4, ipv6};

impl<F: Parse> Engine<F> {
    /// Decides on an ICMP error or a fragment.
    #[cold]
    pub fn odd<B: Frame>(
        &mut self,
        _shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        frame: &mut B,
    ) -> Outcome {
        let l3 = usize::from(self.burst.lanes[lane].parsed.l3);
        let packet = &frame.bytes()[l3..];
        let (to, error) = if packet[0] >> 4 == 6 {
            let header = ipv6::Header::parse(packet).ok();
            let upper = ipv6::walk(packet).ok();
            let to = header.map(|h| std::net::Ipv6Addr::from_bits(h.destination()).into());
            (to, upper.is_some_and(|upper| upper.fragment.is_none()))
        } else {
            let header = ipv4::Header::parse(packet).ok();
            let to = header.map(|h| std::net::Ipv4Addr::from_bits(h.destination()).into());
            (to, header.is_some_and(|h| !h.is_fragment()))
        };
        let Some(to) = to.and_then(F::from_ip) else {
            return Outcome::Is(Verdict::Drop(Reason::Truncated));
        };
        if !F::side(turn.view.plan).owns(to) {
            return Outcome::Is(Verdict::Kernel(Reason::NotOurs));
        }
        let reason = if error { Reason::IcmpError } else { Reason::Fragment };
        Outcome::Is(Verdict::Drop(reason))
    }
}
