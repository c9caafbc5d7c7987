//! Fragments: the first of a datagram has the ports and decides, the others follow it.
//!
//! The first fragment (RFC 791, RFC 8200 4.5) goes the way of any packet: it is found, may open a
//! session, is tracked. What was decided is recorded under what all fragments of a datagram have
//! in common, and later ones become what the record says: new addresses, a hop less, a tunnel. No
//! transport checksum is touched, since the first fragment has it and the difference to it is the
//! same whoever carries it. Nothing is put together here: overlapping fragments are forwarded
//! alike, and the receiver judges them.
//!
//! A record holds the decision itself and no session's number, so that it cannot lead to another's
//! session; whether the plan still knows the real server is asked for each fragment.
//!
//! A later fragment that comes before its first is given back to be parked ([`super::parking`]).
//! Ports spread the fragments of a datagram, which tell no ports, by their addresses: all arrive
//! at one worker, which may not be the one that the flow's whole packets arrive at. Where the
//! ports say whose packet it is (a local port, an owned service), the first is handed there and
//! the others follow. Anything else is decided where it arrives: a client's fragmented datagrams
//! then have a session of their own beside that of its whole ones, with the same real server only
//! where the scheduler hashes or remembers the client, and a fragment of a TCP stream that another
//! worker holds has no session.

mod later;
mod place;

pub(super) use place::most;

use super::burst::Lane;
use super::owners::stays_here;
use super::parse::{Parse, transport};
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, admit, cut, exception, follow};
use crate::counters::Direction;
use crate::family::{Family, Ipv6, Tuple};
use crate::frame::Frame;
use crate::hash::Seed;
use crate::plan::{Forwarding, Plan, RealId};
use crate::reason::Reason;
use crate::session::{Flow, SessionOf, Sessions};
use crate::spec::ClientAddress;
use crate::time::Time;
use crate::track::Segment;
use sluice_wire::fragment::FragmentInfo;
use sluice_wire::{icmp, ipv4, ipv6, tcp, udp};

/// Records that one place in the table has to choose from.
const WAYS: usize = 4;
/// How long the fragments of an IPv4 datagram may be apart: what Linux waits for them (RFC 791
/// says 15 s or more).
const V4_MS: u64 = 30_000;
/// The same for IPv6 (RFC 8200 4.5).
const V6_MS: u64 = 60_000;
/// In place of a protocol: there is no transport header to write to.
const NO_TRANSPORT: u8 = 0;

/// What the first fragment of a datagram has decided.
#[derive(Clone, Copy, Debug)]
enum Decision<A> {
    /// They are forwarded.
    Forward(Way<A>),
    /// They go to another worker, in the plan of this number.
    HandOff(u16, u64),
    /// They get this verdict.
    Is(Verdict),
}

/// How a datagram is forwarded.
#[derive(Clone, Copy, Debug)]
struct Way<A> {
    src: A,
    dst: A,
    real: RealId,
    forwarding: Forwarding,
    direction: Direction,
    /// The flow's hash, which an outer source address is chosen by.
    hash: u64,
    /// What the datagram is of, which later fragments of IPv6 need not say.
    protocol: u8,
    /// Bytes by which the first has become longer, and the others move back: a multiple of eight.
    shift: u8,
    /// Bytes of the first that what was put in is behind.
    front: u8,
}

#[derive(Clone, Copy, Debug)]
struct Record<A> {
    /// Identification in place of ports; no protocol with IPv6.
    key: Tuple<A>,
    until: Time,
    decision: Decision<A>,
}

/// The datagrams of one table whose first fragment was seen: as many as it was made for, the one
/// that ends first giving way to a new one.
pub(super) struct Fragments<A> {
    records: Box<[Option<Record<A>>]>,
}

impl<A: Copy + Eq> Fragments<A> {
    /// Room for `capacity` datagrams, and for a handful at least.
    pub fn new(capacity: u32) -> Self {
        let sets = (capacity as usize).div_ceil(WAYS).max(1);
        Self { records: vec![None; sets * WAYS].into_boxed_slice() }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.records.fill(None);
    }

    fn set(&self, hash: u64) -> usize {
        let sets = (self.records.len() / WAYS) as u64;
        (((hash >> 32) * sets) >> 32) as usize * WAYS
    }

    fn find(&self, now: Time, hash: u64, key: &Tuple<A>) -> Option<Decision<A>> {
        let at = self.set(hash);
        let records = self.records[at..at + WAYS].iter().flatten();
        let mut same = records.filter(|record| record.key == *key && record.until > now);
        same.next().map(|record| record.decision)
    }

    fn put(&mut self, hash: u64, new: Record<A>) {
        let at = self.set(hash);
        let records = &mut self.records[at..at + WAYS];
        let same = |record: &Option<Record<A>>| record.is_some_and(|r| r.key == new.key);
        let place = records.iter().position(same).or_else(|| {
            let until = |at: &usize| records[*at].map_or(Time(0), |record| record.until);
            (0..WAYS).min_by_key(until)
        });
        records[place.unwrap_or(0)] = Some(new);
    }

    fn remove(&mut self, hash: u64, key: &Tuple<A>) {
        let at = self.set(hash);
        let records = &mut self.records[at..at + WAYS];
        records.iter_mut().filter(|r| r.is_some_and(|r| r.key == *key)).for_each(|r| *r = None);
    }
}

/// A fragment, as its own headers tell.
struct Piece<A> {
    key: Tuple<A>,
    /// Where its data belongs in the datagram's.
    offset: u16,
    /// What the data is of: in a later fragment of IPv6 maybe an extension header.
    protocol: u8,
    /// Where its data begins in the packet.
    data: usize,
    life_ms: u64,
}

impl<A: Copy> Piece<A> {
    fn of<F: Family<Addr = A>>(packet: &[u8]) -> Option<Self> {
        let ends = exception::ends::<F>(packet)?;
        let with = |id: u32, protocol| Tuple {
            sport: (id >> 16) as u16,
            dport: id as u16,
            protocol,
            ..ends
        };
        if packet.first()? >> 4 == 6 {
            let upper = ipv6::walk(packet).ok()?;
            let place = upper.fragment?;
            // Fragments of one datagram may name different headers (RFC 8200 4.5).
            let key = with(place.id, 0);
            let (protocol, data) = (upper.protocol, upper.offset);
            return Some(Self { key, offset: place.offset, protocol, data, life_ms: V6_MS });
        }
        let header = ipv4::Header::parse(packet).ok()?;
        let place = FragmentInfo::of(header);
        let protocol = header.protocol();
        let key = with(u32::from(place.id), protocol);
        let data = header.header_len();
        Some(Self { key, offset: place.offset, protocol, data, life_ms: V4_MS })
    }
}

/// Decides on a fragment.
pub(super) fn fragment<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    let l3 = usize::from(lane.parsed.l3);
    let Some(piece) = frame.bytes().get(l3..).and_then(Piece::of::<F>) else {
        return Outcome::Is(Verdict::Drop(Reason::Truncated));
    };
    if piece.offset != 0 {
        return later::later(table, lane, shared, turn, frame, &piece);
    }
    let hash = table.sessions.hash(&piece.key);
    let (outcome, way) = first(table, lane, shared, turn, frame, &piece);
    let decision = match (outcome, way) {
        // The extended table's record counts now.
        (Outcome::Wide, _) => {
            table.fragments.remove(hash, &piece.key);
            return outcome;
        }
        (_, Some(way)) => Decision::Forward(way),
        (Outcome::Is(verdict), _) => match verdict {
            Verdict::HandOff(worker) => Decision::HandOff(worker, turn.view.plan.epoch),
            // Only the first is answered.
            Verdict::Answer(_, reason) => drop_for(reason),
            other => Decision::Is(other),
        },
        (Outcome::Refuse(reason), _) => drop_for(reason),
        (Outcome::TooBig(_), _) => drop_for(Reason::TooBig),
        _ => drop_for(Reason::NoSession),
    };
    let until = Time(turn.now.0 + piece.life_ms);
    table.fragments.put(hash, Record { key: piece.key, until, decision });
    // One at most for each frame, so there is room.
    let _ = shared.scratch.joined.try_push(name::<F>(&piece.key, &shared.seed));
    outcome
}

/// The first fragment of a datagram, which is treated as a whole packet is: what becomes of it,
/// and the way that the others follow if they go on.
fn first<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    piece: &Piece<F::Addr>,
) -> (Outcome, Option<Way<F::Addr>>) {
    let plan = turn.view.plan;
    let flow = match flow_of_first(table, lane, shared, turn, frame, piece) {
        Ok(flow) => flow,
        Err(outcome) => return (outcome, None),
    };
    let session = table.sessions.slab().at(flow.id());
    let (real, direction) = (session.real(), flow.direction());
    let service = plan.service_of(session).and_then(|id| plan.service(id));
    let told = service.is_some_and(|service| service.client_address != ClientAddress::Hidden);
    lane.flow = flow;
    if let Some(reason) = kept_whole::<F, B>(plan, session, lane, frame) {
        return (Outcome::Is(Verdict::Drop(reason)), None);
    }
    let (tuple, hash, length) = (lane.parsed.tuple, lane.hash, lane.parsed.length);
    let front = header_len(tuple.protocol, frame.bytes(), lane.parsed.l4.into());
    let mut outcome = follow::track(table, lane, shared, turn, frame);
    if outcome == Outcome::Again {
        // The others would have to follow it twice.
        outcome = Outcome::Is(Verdict::Drop(Reason::Fragment));
    }
    if matches!(outcome, Outcome::TooBig(_)) && cut::may_cut::<F, B>(lane, frame) {
        // Now, since the others need to know what is put in.
        outcome = Outcome::Is(cut::cut(table, lane, shared, turn, frame));
    }
    let goes_on = match outcome {
        Outcome::Forward | Outcome::Unresolved => true,
        Outcome::Is(verdict) => matches!(verdict, Verdict::Fragment(..) | Verdict::Wait),
        // Its sender was told, and the others may fit; but not behind what was not put in.
        Outcome::TooBig(_) => !told,
        _ => false,
    };
    let way = Way {
        src: lane.new.src,
        dst: lane.new.dst,
        real,
        forwarding: lane.forwarding,
        direction,
        hash,
        protocol: tuple.protocol,
        shift: lane.parsed.length.saturating_sub(length) as u8,
        front,
    };
    (outcome, goes_on.then_some(way))
}

/// The flow that a first fragment belongs to; its lane is then as that of a whole packet.
fn flow_of_first<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    piece: &Piece<F::Addr>,
) -> Result<Flow, Outcome> {
    let plan = turn.view.plan;
    let drop = |reason| Outcome::Is(Verdict::Drop(reason));
    let (l3, length) = (usize::from(lane.parsed.l3), usize::from(lane.parsed.length));
    let l4 = l3 + piece.data;
    let data = frame.bytes().get(l4..l3 + length).ok_or(drop(Reason::Truncated))?;
    if !is_for_tables::<F>(piece.protocol, data, plan) {
        return Err(Outcome::Is(Verdict::Kernel(Reason::NotOurs)));
    }
    let (sport, dport, segment) = head(piece.protocol, data).map_err(drop)?;
    let tuple = Tuple { sport, dport, protocol: piece.protocol, ..piece.key };
    lane.parsed.tuple = tuple;
    (lane.parsed.l4, lane.parsed.segment) = (l4 as u16, segment);
    lane.hash = table.sessions.hash(&tuple);
    if shared.workers > 1 {
        stays_here::<F>(&tuple, plan, shared).map_err(Outcome::Is)?;
    }
    admit::admit(table, lane, shared, turn, frame)
}

const fn drop_for<A>(reason: Reason) -> Decision<A> {
    Decision::Is(Verdict::Drop(reason))
}

/// The number by which a caller knows a datagram: the same whichever table decides on it.
fn name<F: Family>(key: &Tuple<F::Addr>, seed: &Seed) -> u32 {
    let general = key.map(|address| Ipv6::from_ip(F::to_ip(address)).unwrap_or_default());
    Ipv6::hash(&general, seed) as u32
}

/// Whether a table may know the datagram that begins with `data`: of ICMP only echoes, as of whole
/// packets.
fn is_for_tables<F: Family>(protocol: u8, data: &[u8], plan: &Plan) -> bool {
    let kind = data.first().copied().unwrap_or_default();
    match protocol {
        ipv4::ICMP => plan.wide_v4 && matches!(kind, icmp::v4::ECHO | icmp::v4::ECHO_REPLY),
        ipv6::ICMPV6 => F::WIDE && matches!(kind, icmp::v6::ECHO | icmp::v6::ECHO_REPLY),
        _ => true,
    }
}

/// Ports, and what tracking needs, of a datagram that begins with `data`. The header must be there
/// as a whole, or something else could be put in its place later (RFC 1858).
fn head(protocol: u8, data: &[u8]) -> Result<(u16, u16, Segment), Reason> {
    if protocol == ipv4::UDP {
        // Its length is the whole datagram's.
        let header = data.first_chunk().ok_or(Reason::TinyFragment).map(udp::Header)?;
        let [a, b, c, d, ..] = *header.0;
        return if header.length() < udp::HEADER {
            Err(Reason::BadL4Header)
        } else {
            Ok((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), Segment::default()))
        };
    }
    transport(protocol, data).map_err(|verdict| match verdict {
        Verdict::Drop(Reason::BadL4Header) => Reason::BadL4Header,
        _ => Reason::TinyFragment,
    })
}

/// Bytes of the transport header that is at `l4`.
fn header_len(protocol: u8, bytes: &[u8], l4: usize) -> u8 {
    let tcp = bytes.get(l4..).and_then(tcp::Header::parse).filter(|_| protocol == ipv4::TCP);
    tcp.map_or(udp::HEADER, tcp::Header::header_len) as u8
}

/// Why a session's datagram, whose first fragment is in a lane, cannot be forwarded piece by piece,
/// if it cannot.
fn kept_whole<F: Parse, B: Frame>(
    plan: &Plan,
    session: &SessionOf<F>,
    lane: &mut Lane<F::Addr>,
    frame: &B,
) -> Option<Reason> {
    let tuple = lane.parsed.tuple;
    let (new, _) = Sessions::<F>::translated(plan, session, lane.flow.direction(), &tuple)?;
    if F::WIDE && F::crosses(&tuple, &new) {
        lane.new = new;
        if !F::piece_has_like(lane, frame) {
            return Some(Reason::Untranslatable);
        }
    }
    // What ports do to SCTP's checksum depends on the length of the whole.
    let same = (new.sport, new.dport) == (tuple.sport, tuple.dport);
    (tuple.protocol == ipv4::SCTP && !same).then_some(Reason::Fragment)
}
