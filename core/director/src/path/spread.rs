//! Flows that several workers process: the part of it that the session's owner has.
//!
//! One direction of a session is frozen into a [`FlowRewrite`]. The owner takes the packets of the
//! flow out of its bursts ([`Path::deal`]): it tracks and counts them, which only it may, and what
//! is left of each, to rewrite it, any worker can do. Packets that are not plain stay the owner's;
//! whoever deals keeps their place in the order.
//!
//! A burst from which some were dealt gives what it would have given without: the same frames, the
//! same counters, the same sessions (a property test holds it). So dealing ends at a packet that
//! may change the session's state, and is refused as soon as the session is no longer what was
//! frozen.

mod rewrite;

pub use rewrite::{FlowMatch, FlowRewrite};

use super::client_address::Settled;
use super::follow::{destination, way};
use super::parse::Parse;
use super::sweep::timed_out;
use super::table::Table;
use super::{BURST, Path, Shared, View, hairpin, tunnel};
use crate::counters::Direction;
use crate::family::{Family, Tuple, mapped};
use crate::fib::PortId;
use crate::fib::macs::OwnMacs;
use crate::frame::Frame;
use crate::plan::{Forwarding, Plan};
use crate::session::{Flow, SessionOf, Sessions, State};
use crate::time::Time;
use crate::track::{self, Segment};
use arrayvec::ArrayVec;
use rewrite::{Becomes, Ends, Look, Tunnel};
use sluice_lanes::part::part;
use sluice_table::Slot;
use sluice_wire::ipv4;
use std::net::IpAddr;

/// Frames ahead that are asked for while one is looked at.
const AHEAD: usize = 8;

/// One direction of a session, as an operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// IP protocol number.
    pub protocol: u8,
    /// Client address and port.
    pub client: (IpAddr, u16),
    /// Virtual address and port.
    pub virtual_: (IpAddr, u16),
    /// Which of the two ways its packets go.
    pub direction: Direction,
}

/// Why the packets of a flow cannot be rewritten by other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSpreadable {
    /// There is no such session here.
    NoSession,
    /// It is neither TCP nor UDP.
    Protocol,
    /// Its connection is not established, or nobody has answered yet.
    State,
    /// Its packets in this direction do not pass the director.
    OneWay,
    /// It is between two hosts behind source NAT: its packets go through the path twice.
    Hairpin,
    /// Its real server has not acknowledged yet what tells it the client's address.
    ClientAddress,
    /// The way to its destination is not known.
    NoHop,
    /// Its real server is gone, or there is no source for its tunnel.
    NoReal,
}

impl NotSpreadable {
    /// What to tell an operator.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoSession => "there is no such session",
            Self::Protocol => "only TCP and UDP flows are spread",
            Self::State => "the session is not established",
            Self::OneWay => "packets in this direction bypass the director",
            Self::Hairpin => "flows between two hosts behind source NAT are not spread",
            Self::ClientAddress => {
                "the real server has not acknowledged the client's address (PROXY, TOA) yet"
            }
            Self::NoHop => "the next hop is not known",
            Self::NoReal => "the real server is gone or has no tunnel source",
        }
    }
}

/// What is taken out of a burst, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealt {
    /// It is tracked and counted; any worker may [apply](FlowRewrite::apply) the flow to it.
    Plain,
    /// It has to go through the owner's path, behind those before it.
    Owners,
}

/// Freezes a direction of a session.
fn freeze<F: Parse>(
    table: &Table<F>,
    view: View<'_>,
    now: Time,
    flow: Flow,
) -> Result<FlowRewrite, NotSpreadable> {
    let View { plan, fib } = view;
    let slab = table.sessions.slab();
    let session = slab.get(flow.id()).ok_or(NotSpreadable::NoSession)?;
    let direction = flow.direction();
    let Becoming { old, new, forwarding, settled } =
        spreadable::<F>(plan, now, session, direction)?;
    let hop = fib.hop(way::<F>(session, direction, forwarding, fib)).copied();
    let looked_up = || {
        let to = destination::<F>(plan, session, direction, forwarding, &new);
        fib.lookup(to).ok().and_then(|id| fib.hop(id)).copied()
    };
    let hop = hop.or_else(looked_up).ok_or(NotSpreadable::NoHop)?;
    let real = session.real();
    let hash = table.sessions.hash(&old);
    let tunnel = match forwarding.has_tunnel() {
        true => {
            let way = tunnel::way_into(plan, (real, hash));
            let (encap, from, to) = way.map_err(|_| NotSpreadable::NoReal)?;
            Some(Tunnel { encap: *encap, from, to, hash })
        }
        false => None,
    };
    let ends = as_v4::<F>(&old).map_or_else(|| Ends::v6(&as_v6::<F>(&old)), Ends::v4);
    let becomes = Becomes::of(&as_v6::<F>(&old), &as_v6::<F>(&new));
    Ok(FlowRewrite { ends, becomes, settled, hop, tunnel, real, flow, wide: F::WIDE })
}

/// Whether a session still is what was frozen.
fn is_still<F: Parse>(table: &Table<F>, plan: &Plan, now: Time, frozen: &FlowRewrite) -> bool {
    let Some(session) = table.sessions.slab().get(frozen.flow.id()) else { return false };
    let is = spreadable::<F>(plan, now, session, frozen.flow.direction());
    let Ok(Becoming { old, new, settled, .. }) = is else { return false };
    let same = match &frozen.ends {
        Ends::V4 { old: known, .. } => as_v4::<F>(&old) == Some(*known),
        Ends::V6 { old: known, .. } => as_v6::<F>(&old) == *known,
    };
    let same = same && frozen.becomes.is(&as_v6::<F>(&new)) && frozen.settled == settled;
    same && session.real() == frozen.real
}

/// Tracks the plain packets of a flow and marks all of it. `true` if dealing has to end.
fn mark<F: Parse, B: Frame>(
    table: &mut Table<F>,
    shared: &mut Shared,
    now: Time,
    (frozen, mut hold, room): (&FlowRewrite, bool, u16),
    (macs, frames): (&OwnMacs, &[B]),
    [plain, owners]: &mut [Marks; 2],
) -> bool {
    let flow = frozen.flow;
    let (mut packets, mut bytes) = (0, 0);
    frames.iter().take(AHEAD).for_each(Frame::prefetch);
    for (at, frame) in frames.iter().enumerate() {
        frames.get(at + AHEAD).into_iter().for_each(Frame::prefetch);
        match frozen.look(frame, macs, room) {
            Look::Other => {}
            Look::Plain(length, segment) if !hold && move_on(table, flow, segment) => {
                (packets, bytes) = (packets + 1, bytes + u64::from(length));
                plain[at / 64] |= 1 << (at % 64);
            }
            look => {
                owners[at / 64] |= 1 << (at % 64);
                // Behind what may change the session nothing is known of it.
                hold |= matches!(look, Look::Plain(..));
            }
        }
    }
    if packets > 0 {
        let session = table.sessions.at_mut(flow.id());
        session.seen_ms = now.low();
        let statistics = &mut shared.statistics;
        statistics.forwarded_all(frozen.real, flow.direction(), (packets, bytes));
        statistics.sketch.record_dealt::<F>(now, (flow, session), (packets, bytes));
        // As on the path, where each packet takes one, whether or not it leaves with it.
        if frozen.becomes.is_v4_of_v6() {
            let id = &mut shared.answers.nat64_id;
            *id = id.wrapping_add(packets as u16);
        }
    }
    hold
}

/// Moves a session on by a packet that goes on; `false`, and nothing done, if the packet may
/// change more than how far its numbers have come.
#[inline(always)]
fn move_on<F: Parse>(table: &mut Table<F>, flow: Flow, segment: Segment) -> bool {
    if u32::from(segment.flags) & track::ENDS != 0 {
        return false;
    }
    let (session, direction) = (table.sessions.at_mut(flow.id()), flow.direction());
    if !track::is_plain(session, direction, segment) {
        track::tcp(session, direction, segment);
    }
    true
}

/// A bit for each frame of a burst.
type Marks = [u64; BURST / 64];

/// What packets are and become, and how.
struct Becoming<A> {
    old: Tuple<A>,
    new: Tuple<A>,
    forwarding: Forwarding,
    settled: Settled,
}

/// What a session's packets in a direction are and become, if any worker could do that.
fn spreadable<F: Parse>(
    plan: &Plan,
    now: Time,
    session: &SessionOf<F>,
    direction: Direction,
) -> Result<Becoming<F::Addr>, NotSpreadable> {
    if session.is_vacant() || session.state == State::Template || timed_out(session, plan, now) {
        return Err(NotSpreadable::NoSession);
    }
    match (session.protocol(), session.state) {
        (ipv4::TCP, State::Established) | (ipv4::UDP, State::Udp) => {}
        (ipv4::TCP | ipv4::UDP, _) => return Err(NotSpreadable::State),
        _ => return Err(NotSpreadable::Protocol),
    }
    let keys = Sessions::<F>::keys(plan, session).ok_or(NotSpreadable::NoReal)?;
    let old = keys[direction as usize].ok_or(NotSpreadable::OneWay)?;
    let becomes = Sessions::<F>::translated(plan, session, direction, &old);
    let (new, forwarding) = becomes.ok_or(NotSpreadable::NoReal)?;
    if forwarding.has_remote() && hairpin::stays_inside::<F>(plan, session) {
        return Err(NotSpreadable::Hairpin);
    }
    let tells = plan.tells_client && forwarding.translates_both();
    let settled =
        if tells { F::settled(plan, session, direction) } else { Some(Settled::Unchanged) };
    let settled = settled.ok_or(NotSpreadable::ClientAddress)?;
    Ok(Becoming { old, new, forwarding, settled })
}

/// A tuple of IPv4 addresses, in whichever table.
fn as_v4<F: Family>(tuple: &Tuple<F::Addr>) -> Option<Tuple<u32>> {
    match (F::to_ip(tuple.src), F::to_ip(tuple.dst)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let Tuple { sport, dport, protocol, .. } = *tuple;
            Some(Tuple { src: src.to_bits(), dst: dst.to_bits(), sport, dport, protocol })
        }
        _ => None,
    }
}

/// A tuple in the extended table's form.
fn as_v6<F: Family>(tuple: &Tuple<F::Addr>) -> Tuple<u128> {
    tuple.map(|address| match F::to_ip(address) {
        IpAddr::V4(v4) => mapped(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    })
}

impl Path {
    /// Freezes a flow, if its session is here and its packets can be rewritten by any worker.
    ///
    /// # Errors
    /// Why they cannot be.
    pub fn freeze(
        &self,
        view: View<'_>,
        now: Time,
        name: &FlowName,
    ) -> Result<FlowRewrite, NotSpreadable> {
        let direction = name.direction;
        if let Some(id) = find(&self.v4.table, view.plan, name) {
            return freeze(&self.v4.table, view, now, Flow::new(id, direction));
        }
        let id = find(&self.extended.table, view.plan, name).ok_or(NotSpreadable::NoSession)?;
        freeze(&self.extended.table, view, now, Flow::new(id, direction))
    }

    /// Takes the packets of a flow out of a burst that a port received, and gives them away in
    /// their order, each with its place in the burst. With `hold` none is plain. `true` if none
    /// will be plain any more until the flow is frozen again, and what was given away has come
    /// through: the session may have changed.
    pub fn deal<B: Frame>(
        &mut self,
        view: View<'_>,
        now: Time,
        port: PortId,
        (frozen, hold): (&FlowRewrite, bool),
        burst: &mut ArrayVec<B, BURST>,
        mut give: impl FnMut(Dealt, usize, B),
    ) -> bool {
        let Self { shared, v4, extended, .. } = self;
        let is_still = match frozen.wide {
            false => is_still(&v4.table, view.plan, now, frozen),
            true => is_still(&extended.table, view.plan, now, frozen),
        };
        let (hop, real) = (&frozen.hop, frozen.real);
        let room = match frozen.tunnel {
            Some(_) => tunnel::room(&shared.paths, view.plan, real, hop.mtu, now),
            None => frozen.room(),
        };
        // The path does not count what it has no room for a header in as forwarded.
        let longer = frozen.settled.longer();
        let cramped = longer > 0 && burst.iter_mut().any(|frame| !has_room(frame, longer.into()));
        let hold = hold || !is_still;
        let mut marks = [Marks::default(); 2];
        let (flow, frames) =
            ((frozen, hold || cramped, room), (view.fib.own_macs(port), burst.as_slice()));
        let ends = match frozen.wide {
            false => mark(&mut v4.table, shared, now, flow, frames, &mut marks),
            true => mark(&mut extended.table, shared, now, flow, frames, &mut marks),
        };
        let ends = ends && (hold || !cramped);
        let [plain, owners] = marks;
        let all: Marks = std::array::from_fn(|word| plain[word] | owners[word]);
        if all == Marks::default() {
            return ends;
        }
        let mut places = (0..burst.len()).filter(|at| all[at / 64] >> (at % 64) & 1 == 1);
        part(burst, &all, |frames| {
            for (frame, at) in frames.zip(&mut places) {
                let is_plain = plain[at / 64] >> (at % 64) & 1 == 1;
                give(if is_plain { Dealt::Plain } else { Dealt::Owners }, at, frame);
            }
        });
        if burst.is_empty() {
            // There will be no turn to forget it.
            self.shared.ports.bounds.searched = None;
        }
        ends
    }

    /// Whether a flow's session still is what was frozen.
    pub fn is_still(&self, view: View<'_>, now: Time, frozen: &FlowRewrite) -> bool {
        match frozen.wide {
            false => is_still(&self.v4.table, view.plan, now, frozen),
            true => is_still(&self.extended.table, view.plan, now, frozen),
        }
    }
}

/// Whether a frame has room for so many bytes before it.
fn has_room<B: Frame>(frame: &mut B, count: usize) -> bool {
    frame.push_front(count) && frame.pull_front(count)
}

/// The session of a flow.
fn find<F: Parse>(table: &Table<F>, plan: &Plan, name: &FlowName) -> Option<u32> {
    let FlowName { protocol, client, virtual_, .. } = *name;
    let (src, dst) = (F::from_ip(client.0)?, F::from_ip(virtual_.0)?);
    let tuple = Tuple { src, dst, sport: client.1, dport: virtual_.1, protocol };
    let hash = table.sessions.hash(&tuple);
    table.sessions.find(plan, hash, &tuple).map(|flow| flow.id())
}
