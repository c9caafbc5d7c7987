//! What an operator sees of one packet: its headers, whose it is, its session. Looking changes
//! nothing, so it may be done before a turn and after it; what a turn decided is the difference.

use super::inspect::{self, SessionInfo};
use super::parse::{Parse, transport};
use super::sweep::timed_out;
use super::table::Table;
use super::{Path, persist};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::plan::{Plan, RealId, ServiceId};
use crate::time::Time;
use sluice_wire::fragment::FragmentInfo;
use sluice_wire::{ethernet, icmp, ipv4, ipv6};
use std::net::IpAddr;

/// The headers of a packet, as far as they could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Endpoints and protocol; an echo has its identifier as the port of the side that chose it,
    /// what has no ports, or a later fragment, zeros.
    pub tuple: Tuple<IpAddr>,
    /// Time to live.
    pub ttl: u8,
    /// Bytes of the IP packet.
    pub length: u16,
    /// Flags of TCP.
    pub flags: Option<u8>,
    /// Type and code of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// Of a fragment: where it begins, in bytes.
    pub fragment: Option<u16>,
}

impl Headers {
    /// Reads those of an Ethernet frame; `None` when it carries no IP packet whose header is
    /// complete. Nothing is verified.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let payload = ethernet::payload(frame)?;
        match payload.ethertype {
            ethernet::IPV4 | ethernet::IPV6 => Self::of_packet(frame.get(payload.offset..)?),
            _ => None,
        }
    }

    /// Reads those of an IP packet.
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        let six = packet.first()? >> 4 == 6;
        let (bare, carried) = if six { bare_v6(packet)? } else { bare_v4(packet)? };
        Some(bare.with_transport(packet.get(carried..bare.length.into()).unwrap_or_default()))
    }

    /// Whether it is a fragment but its datagram's first.
    const fn is_later(&self) -> bool {
        matches!(self.fragment, Some(1..))
    }

    fn with_transport(self, carried: &[u8]) -> Self {
        if self.is_later() {
            return self;
        }
        let mut full = self;
        let protocol = self.tuple.protocol;
        if matches!(protocol, ipv4::ICMP | ipv6::ICMPV6) {
            full.icmp = carried.first().copied().zip(carried.get(icmp::CODE).copied());
            let echo = match full.icmp {
                Some((kind, _)) if protocol == ipv4::ICMP => {
                    matches!(kind, icmp::v4::ECHO | icmp::v4::ECHO_REPLY)
                }
                Some((kind, _)) => matches!(kind, icmp::v6::ECHO | icmp::v6::ECHO_REPLY),
                None => false,
            };
            if !echo {
                return full;
            }
        }
        if let Ok((sport, dport, segment)) = transport(protocol, carried) {
            (full.tuple.sport, full.tuple.dport) = (sport, dport);
            full.flags = (protocol == ipv4::TCP).then_some(segment.flags);
        }
        full
    }
}

/// What the IPv4 header says, and where what the packet carries begins.
fn bare_v4(packet: &[u8]) -> Option<(Headers, usize)> {
    let header = ipv4::Header::parse(packet).ok()?;
    let (src, dst) = (Ipv4::to_ip(header.source()), Ipv4::to_ip(header.destination()));
    let offset = FragmentInfo::of(header).offset;
    let headers = Headers {
        tuple: Tuple { src, dst, sport: 0, dport: 0, protocol: header.protocol() },
        ttl: header.ttl(),
        length: header.total_len() as u16,
        flags: None,
        icmp: None,
        fragment: header.is_fragment().then_some(offset),
    };
    Some((headers, header.header_len()))
}

/// The same for IPv6, behind its extension headers.
fn bare_v6(packet: &[u8]) -> Option<(Headers, usize)> {
    let header = ipv6::Header::parse(packet).ok()?;
    let upper = ipv6::walk(packet).ok()?;
    let (src, dst) = (Ipv6::to_ip(header.source()), Ipv6::to_ip(header.destination()));
    let headers = Headers {
        tuple: Tuple { src, dst, sport: 0, dport: 0, protocol: upper.protocol },
        ttl: header.hop_limit(),
        length: header.total_len() as u16,
        flags: None,
        icmp: None,
        fragment: upper.fragment.filter(|f| f.offset != 0 || f.more).map(|f| f.offset),
    };
    Some((headers, upper.offset))
}

/// A session that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenSession {
    /// The direction that the packet has.
    pub direction: Direction,
    /// What an operator sees of it.
    pub session: SessionInfo,
    /// Whether it has timed out, and so is none.
    pub timed_out: bool,
}

/// What is known of one packet at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketView {
    /// Its headers.
    pub headers: Headers,
    /// The service whose address and port it is sent to.
    pub service: Option<ServiceId>,
    /// The pool whose local address it is sent to, by its place in the plan, and the worker that
    /// has the port.
    pub pool: Option<(usize, Option<u16>)>,
    /// The real server that persistence has for its sender.
    pub remembered: Option<RealId>,
    /// Its session.
    pub session: Option<SeenSession>,
}

impl Path {
    /// What is known of the packet in a frame: `None` when it is no IP packet.
    pub fn view_packet(&self, plan: &Plan, now: Time, frame: &[u8]) -> Option<PacketView> {
        let headers = Headers::of_frame(frame)?;
        let mut view =
            PacketView { headers, service: None, pool: None, remembered: None, session: None };
        // What has no tuple of its own is not looked up by one.
        let error = headers.icmp.is_some() && headers.tuple.sport | headers.tuple.dport == 0;
        if headers.fragment.is_some() || error {
            return Some(view);
        }
        look(&self.v4.table, plan, now, self.shared.workers, &mut view);
        look(&self.extended.table, plan, now, self.shared.workers, &mut view);
        Some(view)
    }

    /// The session of packets with these headers, or of those that answer them.
    pub fn session_of(&self, plan: &Plan, now: Time, tuple: &Tuple<IpAddr>) -> Option<SeenSession> {
        let either = |tuple: &Tuple<IpAddr>| {
            let narrow = session_of(&self.v4.table, plan, now, tuple);
            narrow.or_else(|| session_of(&self.extended.table, plan, now, tuple))
        };
        either(tuple).or_else(|| either(&tuple.reversed()))
    }
}

fn session_of<F: Parse>(
    table: &Table<F>,
    plan: &Plan,
    now: Time,
    tuple: &Tuple<IpAddr>,
) -> Option<SeenSession> {
    let tuple = own::<F>(tuple)?;
    let flow = table.sessions.find(plan, table.sessions.hash(&tuple), &tuple)?;
    let session = table.sessions.slab().at(flow.id());
    Some(SeenSession {
        direction: flow.direction(),
        session: inspect::info::<F>(plan, now, session)?,
        timed_out: timed_out(session, plan, now),
    })
}

/// Adds what this table knows of a packet.
fn look<F: Parse>(table: &Table<F>, plan: &Plan, now: Time, workers: u16, view: &mut PacketView) {
    let Some(tuple) = own::<F>(&view.headers.tuple) else { return };
    let side = F::side(plan);
    if view.session.is_none() {
        view.session = session_of(table, plan, now, &view.headers.tuple);
    }
    if view.service.is_none() {
        view.service = side.service_at(tuple.protocol, tuple.dst, tuple.dport);
        if let Some(id) = view.service {
            view.remembered = persist::template_of(table, plan, now, &tuple, id);
        }
    }
    if view.pool.is_none() {
        let number = plan.pool_number(side, tuple.dst);
        let owner = |at: usize| plan.pools.get(at).and_then(|p| p.owner(tuple.dport, workers));
        view.pool = number.map(|at| (at, owner(at)));
    }
}

/// A tuple in the form that a table has it.
fn own<F: Family>(tuple: &Tuple<IpAddr>) -> Option<Tuple<F::Addr>> {
    let Tuple { sport, dport, protocol, .. } = *tuple;
    Some(Tuple { src: F::from_ip(tuple.src)?, dst: F::from_ip(tuple.dst)?, sport, dport, protocol })
}
