//! ICMP errors about packets of sessions: brought to whom the packet came from, with what that one
//! knows of it in them (RFC 5508 4, RFC 7915 4.2 and 5.2).
//!
//! An error belongs to the session that the answer to the quoted packet would belong to. Nothing
//! else of the session is touched: it is neither refreshed nor ended (RFC 5927). What belongs to
//! none is counted if the director is who should know, and is the kernel's otherwise: it may be
//! about what the machine itself has sent.
//!
//! With several workers an error may come to one that does not have the session. Where the quoted
//! packet tells whose it is (a local port, a client that belongs to a worker), it goes the way of
//! its answer ([`super::owners`]). The client's side of full NAT, and of tunnels and direct
//! routing, does not tell: such an error is looked up where it came, which is right when the NIC
//! or the classifier spreads errors as the packets that they quote, and is dropped and counted
//! otherwise.

mod nat64;

use super::burst::Lane;
use super::follow::destination;
use super::parse::Parse;
use super::quote::{self, Quote};
use super::shared::Scratch;
use super::sweep::expired;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, Waiting, answer, hairpin, rewrite, snat, source_route, tunnel};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::fib::{Fib, NoHop};
use crate::frame::Frame;
use crate::plan::{Forwarding, Plan};
use crate::reason::Reason;
use crate::session::{Flow, Sessions};
use sluice_wire::{checksum, icmp, ipv4, ipv6};
use std::net::IpAddr;

/// An ICMP error as it came.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub from: IpAddr,
    pub to: IpAddr,
    pub ttl: u8,
    /// Offset of its IP header in the frame.
    pub l3: usize,
    /// Offset of the ICMP message in the frame.
    pub message: usize,
    /// Where the message ends in the frame.
    pub end: usize,
    /// Bytes of the quote, which begins behind the message's header.
    pub quoted: usize,
    pub kind: u8,
    pub code: u8,
    /// The second word of the message.
    pub rest: u32,
}

impl Received {
    fn read(frame: &[u8], l3: usize) -> Option<Self> {
        let packet = frame.get(l3..)?;
        let (from, to, ttl, upper, total) = if packet.first()? >> 4 == 6 {
            let header = ipv6::Header::parse(packet).ok()?;
            let upper = ipv6::walk(packet).ok()?.offset;
            let (from, to) = (Ipv6::to_ip(header.source()), Ipv6::to_ip(header.destination()));
            (from, to, header.hop_limit(), upper, header.total_len())
        } else {
            let header = ipv4::Header::parse(packet).ok()?;
            let (from, to) = (Ipv4::to_ip(header.source()), Ipv4::to_ip(header.destination()));
            (from, to, header.ttl(), header.header_len(), header.total_len())
        };
        let message = packet.get(upper..total)?;
        let error = match to {
            IpAddr::V4(_) => icmp::Error::parse_v4(message)?,
            IpAddr::V6(_) => icmp::Error::parse_v6(message)?,
        };
        Some(Self {
            from,
            to,
            ttl,
            l3,
            message: l3 + upper,
            end: l3 + total,
            quoted: error.quoted().len(),
            kind: error.kind(),
            code: error.code(),
            rest: error.rest(),
        })
    }

    /// The quoted packet, as far as it is quoted.
    pub fn quote(self, frame: &[u8]) -> &[u8] {
        let at = self.message + icmp::HEADER;
        frame.get(at..at + self.quoted).unwrap_or_default()
    }

    /// Whether it is about the packet's way, and so for its sender: the others are between hosts
    /// and routers of one link, or of the past (RFC 6633).
    const fn is_for_sender(self) -> bool {
        match self.to {
            IpAddr::V4(_) => matches!(
                self.kind,
                icmp::v4::UNREACHABLE | icmp::v4::TIME_EXCEEDED | icmp::v4::PARAMETER_PROBLEM
            ),
            IpAddr::V6(_) => matches!(
                self.kind,
                icmp::v6::UNREACHABLE
                    | icmp::v6::PACKET_TOO_BIG
                    | icmp::v6::TIME_EXCEEDED
                    | icmp::v6::PARAMETER_PROBLEM
            ),
        }
    }

    /// The MTU that it tells, if it is about a packet that was too large; 0 from a router that says
    /// no more than that.
    pub fn mtu(self) -> Option<u32> {
        let narrow = (icmp::v4::UNREACHABLE, icmp::v4::FRAGMENTATION_NEEDED);
        match self.to {
            IpAddr::V4(_) => ((self.kind, self.code) == narrow).then_some(self.rest & 0xffff),
            IpAddr::V6(_) => (self.kind == icmp::v6::PACKET_TOO_BIG).then_some(self.rest),
        }
    }

    /// The least MTU of any link (RFC 791 3.2, RFC 8200 5).
    const fn least_mtu(self) -> u32 {
        if self.to.is_ipv4() { ipv4::MIN_MTU } else { ipv6::MIN_MTU as u32 }
    }

    /// Whether it tells of no MTU that no link has (RFC 8201 4): nobody may believe that.
    pub fn is_possible(self) -> bool {
        let v4 = self.to.is_ipv4();
        self.mtu().is_none_or(|mtu| mtu >= self.least_mtu() || v4 && mtu == 0)
    }

    /// The same with a smaller MTU if it tells one: what was sent became so much longer.
    fn with_less(self, longer: u16, frame: &mut [u8]) -> Self {
        // A router that tells none (RFC 1191 5) still tells none.
        let Some(told) = self.mtu().filter(|mtu| *mtu != 0) else { return self };
        if longer == 0 {
            return self;
        }
        let less = told.saturating_sub(longer.into()).max(self.least_mtu());
        let rest = self.rest - (told - less);
        if let Some(field) = frame.get_mut(self.message + 4..self.message + icmp::HEADER) {
            field.copy_from_slice(&rest.to_be_bytes());
        }
        Self { rest, ..self }
    }

    /// Whether its checksum is right. It is read in full, since it will be written in full.
    pub fn is_sound(self, frame: &[u8]) -> bool {
        let Some(message) = frame.get(self.message..self.end) else { return false };
        match (self.from, self.to) {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (from, to) = (from.to_bits(), to.to_bits());
                checksum::transport_v6(from, to, ipv6::ICMPV6, message) == 0
            }
            _ => checksum::sum(message) == 0xffff,
        }
    }
}

/// The session that an error is about.
#[derive(Clone, Copy)]
struct About<A> {
    /// That of the answer to the quoted packet.
    flow: Flow,
    /// What the answer's tuple would become.
    new: Tuple<A>,
    /// How it would be forwarded.
    forwarding: Forwarding,
}

/// Decides on an ICMP error.
pub(super) fn error<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    let plan = turn.view.plan;
    let is = Outcome::Is;
    let l3 = usize::from(lane.parsed.l3);
    let Some(received) = Received::read(frame.bytes(), l3) else {
        return is(Verdict::Drop(Reason::Truncated));
    };
    if !received.is_for_sender() {
        return is(Verdict::Kernel(Reason::NotOurs));
    }
    if tunnel::is_about_own(&shared.paths, plan, received, frame.bytes()) {
        let at = lane.frame;
        return is(tunnel::reported(shared, turn, &table.sessions, (received, at), frame));
    }
    let Some(to) = F::from_ip(received.to) else {
        return is(Verdict::Drop(Reason::Truncated));
    };
    let quote = quote::read::<F>(received.quote(frame.bytes()));
    let Some(quote) = quote.filter(|quote| quote.tuple.src == to) else {
        let ours = F::side(plan).owns(to);
        return is(if ours {
            Verdict::Drop(Reason::IcmpError)
        } else {
            Verdict::Kernel(Reason::NotOurs)
        });
    };
    let answer = quote.tuple.reversed();
    if let Some(about) = about(table, turn, &answer) {
        return is(relay(table, lane, shared, turn, frame, (received, quote, about)));
    }
    match elsewhere::<F>(shared, turn, &answer, lane.frame) {
        Some(outcome) => outcome,
        None if is_claimed::<F>(plan, &answer) => is(Verdict::Drop(Reason::IcmpError)),
        None => is(Verdict::Kernel(Reason::NotOurs)),
    }
}

/// The flow that a packet with this tuple belongs to, what it would become, and how it would
/// be forwarded.
fn about<F: Parse>(
    table: &Table<F>,
    turn: Turn<'_>,
    answer: &Tuple<F::Addr>,
) -> Option<About<F::Addr>> {
    let plan = turn.view.plan;
    let flow = table.sessions.find(plan, table.sessions.hash(answer), answer)?;
    let session = table.sessions.slab().at(flow.id());
    if expired(session, plan, turn.now) {
        return None;
    }
    let (new, forwarding) = Sessions::<F>::translated(plan, session, flow.direction(), answer)?;
    Some(About { flow, new, forwarding })
}

/// Takes out of an error what introducing the client did to the packet that it is about.
fn in_its_numbers<F: Parse>(
    table: &Table<F>,
    plan: &Plan,
    frame: &mut [u8],
    received: Received,
    quote: &Quote<F::Addr>,
    about: About<F::Addr>,
) -> Received {
    if !F::WIDE || !plan.tells_client || !about.forwarding.translates_both() {
        return received;
    }
    let session = table.sessions.slab().at(about.flow.id());
    let at = received.message + icmp::HEADER;
    let upper = frame.get_mut(at + quote.upper..at + received.quoted).unwrap_or_default();
    let longer = F::requote(plan, session, about.flow.direction(), upper);
    received.with_less(longer, frame)
}

/// Brings an error to whom it is for.
fn relay<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    (received, quote, about): (Received, Quote<F::Addr>, About<F::Addr>),
) -> Verdict {
    let About { flow, new, forwarding } = about;
    let (plan, fib) = (turn.view.plan, turn.view.fib);
    let session = table.sessions.slab().at(flow.id());
    let (direction, real) = (flow.direction(), session.real());
    if !received.is_possible() {
        return Verdict::Drop(Reason::IcmpError);
    }
    if !received.is_sound(frame.bytes()) {
        return Verdict::Drop(Reason::BadL4Checksum);
    }
    // Who sent that packet would have to be told by its own session.
    if F::WIDE && forwarding.has_remote() && hairpin::stays_inside::<F>(plan, session) {
        return Verdict::Drop(Reason::IcmpError);
    }
    if source_route::is_at(frame, received.l3) {
        return Verdict::Drop(Reason::SourceRoute);
    }
    // Of an error nobody is told.
    if received.ttl <= 1 {
        return Verdict::Drop(Reason::TtlExpired);
    }
    let to = destination::<F>(plan, session, direction, forwarding, &new);
    let past = forwarding.answers_past();
    // With a tunnel's header if it gets one.
    let room = |mtu: u16| match forwarding.has_tunnel() {
        true => tunnel::room(&shared.paths, plan, real, mtu, turn.now),
        false => mtu,
    };
    let next = fib.lookup(to);
    let (hop, mtu) = (next.ok().and_then(|id| fib.hop(id)), fib.mtu(next));
    let crosses = F::WIDE && F::crosses(&quote.tuple.reversed(), &new);
    let length = received.end - received.l3;
    if !crosses && mtu.is_some_and(|mtu| length > usize::from(room(mtu))) {
        return Verdict::Drop(Reason::TooBig);
    }
    let ends = (teller::<F>(received, direction, forwarding, &new), F::to_ip(new.dst));
    if is_link_local(if past { received.from } else { ends.0 }) {
        return Verdict::Drop(Reason::LinkLocal);
    }
    let received = in_its_numbers(table, plan, frame.bytes_mut(), received, &quote, about);
    let failed = if past {
        take_hop(frame.bytes_mut(), received);
        // By the same way as the session's packets.
        lane.hash = table.sessions.hash(&quote.tuple.reversed());
        lane.flow = Flow(real.0);
        if forwarding.has_tunnel() { lane.enter_tunnel(plan, frame) } else { None }
    } else if crosses {
        let links = links(turn, frame.bytes(), mtu);
        nat64::rewrite::<F, B>(frame, received, &quote, &new.reversed(), ends, links)
    } else {
        rewrite_here::<F>(frame.bytes_mut(), received, &quote, &new.reversed(), ends);
        None
    };
    match (failed, hop) {
        (Some(reason), _) => Verdict::Drop(reason),
        (None, Some(hop)) => rewrite::link_layer(frame, hop),
        (None, None) => shared.scratch.unresolved(fib, lane.frame, to),
    }
}

impl Scratch {
    /// The verdict for a frame without a next hop, which may have to be cut.
    pub(super) fn no_hop(&mut self, lane: usize, why: NoHop, cut: Option<u16>) -> Verdict {
        match why {
            NoHop::NoRoute => Verdict::Drop(Reason::NoRoute),
            NoHop::Unresolved(link, next) => {
                match self.waiting.try_push(Waiting { lane, link, next, cut }) {
                    Ok(()) => Verdict::Wait,
                    Err(_) => Verdict::Drop(Reason::Unresolved),
                }
            }
        }
    }

    /// The verdict on a frame without a known next hop towards `to`.
    pub(super) fn unresolved(&mut self, fib: &Fib, frame: u8, to: IpAddr) -> Verdict {
        match fib.lookup(to) {
            Err(why) => self.no_hop(usize::from(frame), why, None),
            Ok(_) => Verdict::Drop(Reason::NoRoute),
        }
    }
}

/// Whether who tells of an error is known on its own link only.
const fn is_link_local(teller: IpAddr) -> bool {
    match teller {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Who tells of the error. A sender hears it from the address that it sent to, since it may know
/// of no other; but where its packets keep their destination, so does who complains about them
/// (RFC 5508 4.2).
fn teller<F: Family>(
    received: Received,
    direction: Direction,
    forwarding: Forwarding,
    new: &Tuple<F::Addr>,
) -> IpAddr {
    let translated = match direction {
        Direction::Inbound => forwarding.translates_source(),
        Direction::Outbound => forwarding.translates_destination(),
    };
    if translated { F::to_ip(new.src) } else { received.from }
}

/// Where else the session may be of a packet with this tuple.
fn elsewhere<F: Family>(
    shared: &Shared,
    turn: Turn<'_>,
    answer: &Tuple<F::Addr>,
    frame: u8,
) -> Option<Outcome> {
    let plan = turn.view.plan;
    let side = F::side(plan);
    let hand = |worker| Outcome::Is(Verdict::HandOff(worker));
    let pool = plan.pool_of(side, answer.dst).filter(|_| shared.workers > 1);
    if let Some(owner) = pool.and_then(|pool| pool.owner(answer.dport, shared.workers)) {
        if owner != shared.worker {
            return Some(hand(owner));
        }
        return (!F::WIDE && plan.wide_v4).then_some(Outcome::Wide);
    }
    if let Some(service) = side.service_at(answer.protocol, answer.dst, answer.dport) {
        return shared.next_stop::<F>(plan, service, answer, (frame, false)).map(hand);
    }
    if !F::WIDE && plan.wide_v4 {
        return Some(Outcome::Wide);
    }
    let rule = snat::rule_for::<F>(plan, turn.view.fib, answer).filter(|_| F::WIDE);
    shared.next_stop_of_stranger::<F>(plan, rule.map(|(id, _)| id), answer, frame).map(hand)
}

/// Whether a packet with this tuple would be the director's, and not the kernel's.
fn is_claimed<F: Family>(plan: &Plan, answer: &Tuple<F::Addr>) -> bool {
    let side = F::side(plan);
    let served = |protocol, dst, dport| side.service_at(protocol, dst, dport).is_some();
    let v4 = match F::to_ip(answer.dst) {
        IpAddr::V4(dst) => {
            plan.v4.service_at(answer.protocol, dst.to_bits(), answer.dport).is_some()
        }
        IpAddr::V6(_) => false,
    };
    let pool = plan.pool_of(side, answer.dst);
    v4 || served(answer.protocol, answer.dst, answer.dport)
        || pool.is_some_and(|pool| pool.owner(answer.dport, 1).is_some())
}

/// The MTUs of the links that an error came in by and leaves by.
fn links(turn: Turn<'_>, frame: &[u8], leaves: Option<u16>) -> (u16, u16) {
    let came = turn.view.fib.link_of(turn.port, answer::vlan(frame));
    (came.map_or(u16::MAX, |link| link.mtu), leaves.unwrap_or(u16::MAX))
}

/// Takes one hop off an error's time to live.
fn take_hop(frame: &mut [u8], received: Received) {
    let Some(packet) = frame.get_mut(received.l3..) else { return };
    match received.to {
        IpAddr::V4(_) => outer_v4(packet, received.ttl - 1, None),
        IpAddr::V6(_) => packet[ipv6::HOP_LIMIT] = received.ttl - 1,
    }
}

/// Writes the time to live, maybe the addresses, and the checksum of an IPv4 header.
fn outer_v4(packet: &mut [u8], ttl: u8, ends: Option<(u32, u32)>) {
    let length = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(header) = packet.get_mut(..length).filter(|header| header.len() >= ipv4::HEADER)
    else {
        return;
    };
    header[ipv4::TTL] = ttl;
    if let Some((from, to)) = ends {
        header[ipv4::SOURCE..][..4].copy_from_slice(&from.to_be_bytes());
        header[ipv4::DESTINATION..][..4].copy_from_slice(&to.to_be_bytes());
    }
    header[ipv4::CHECKSUM..][..2].fill(0);
    let sum = checksum::full(header);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Rewrites an error where it is: its ends, and its quote into that of a packet with the tuple
/// `about`, of the same IP version.
fn rewrite_here<F: Family>(
    frame: &mut [u8],
    received: Received,
    quote: &Quote<F::Addr>,
    about: &Tuple<F::Addr>,
    (from, to): (IpAddr, IpAddr),
) {
    let Received { l3, message, end, ttl, .. } = received;
    let at = message + icmp::HEADER;
    if let Some(quoted) = frame.get_mut(at..at + received.quoted) {
        quote::rewrite::<F>(quoted, quote, about);
    }
    let Some((packet, message)) =
        frame.get_mut(..end).and_then(|f| f.split_at_mut_checked(message))
    else {
        return;
    };
    let Some(packet) = packet.get_mut(l3..) else { return };
    message[icmp::CHECKSUM..][..2].fill(0);
    let sum = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            outer_v4(packet, ttl - 1, Some((from.to_bits(), to.to_bits())));
            checksum::full(message)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet[ipv6::HOP_LIMIT] = ttl - 1;
            packet[ipv6::SOURCE..][..16].copy_from_slice(&from.octets());
            packet[ipv6::DESTINATION..][..16].copy_from_slice(&to.octets());
            checksum::transport_v6(from.to_bits(), to.to_bits(), ipv6::ICMPV6, message)
        }
        _ => return,
    };
    message[icmp::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}
