//! Frames that go on: to whom, through which session, and whether each bit of them is right.

use super::session::{Direction, Session, State};
use super::{Checker, Lookup, Scene, Violation, Way};
use crate::frame::{Buffer, Kind};
use crate::pieces;
use crate::status::{link_mac, node_of};
use crate::wire::{
    ACK, Addr, FIN, Outer, Packet, RST, SCTP, SYN, Seen, TCP, Tuple, UDP, is_v4, read, to_ip,
};
use sluice_director::Frame;
use sluice_director::path::Waiting;
use sluice_director::spec::Mode;

/// Of so many frames one is shown to the second reader too.
const SAMPLE: u64 = 64;

/// The state of a session that a packet may open.
pub(super) fn opening(scene: Scene<'_>, packet: &Packet, mid_stream: bool) -> Option<State> {
    match packet.tuple.protocol {
        SCTP => {
            let mid_stream = scene.universe.mid_stream || mid_stream;
            let init = packet.flags & (SYN | ACK | RST) == SYN;
            let data = packet.flags & (SYN | RST) == 0;
            return (init || data && mid_stream).then_some(State::Sctp);
        }
        TCP | UDP => {}
        _ => return Some(State::Other),
    }
    if packet.tuple.protocol != TCP {
        let Tuple { dst, dport, protocol, .. } = packet.tuple;
        let service = scene.snapshot.service_at(scene.universe, protocol, (dst, dport));
        let one = service.is_some_and(|service| scene.universe.services[service].one_packet);
        return Some(if one { State::OnePacket } else { State::Udp });
    }
    match packet.flags & (SYN | ACK | RST | FIN) {
        SYN => Some(State::SynRecv),
        0 | ACK if scene.universe.mid_stream || mid_stream => Some(State::Established),
        _ => None,
    }
}

impl Checker {
    /// A frame that goes on.
    pub(super) fn forwarded(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        lookup: Lookup,
        way: Way,
    ) -> Result<(), Violation> {
        let whole = match frame.place {
            // Its checksum is that of the whole.
            Some(place) => {
                let (meant, scratch) = (&frame.packet, &mut self.scratch);
                Some(pieces::as_whole(frame.bytes(), meant, &place, scratch)?)
            }
            None => None,
        };
        let (whole, seen) = match whole {
            Some((whole, seen)) => (Some(whole), seen),
            None => (None, read(frame.bytes())?),
        };
        if frame.packet.ttl <= 1 {
            return Err("forwarded with no time to live left".into());
        }
        if lookup.gone {
            return Err("forwarded though its real server is gone".into());
        }
        let (id, direction) = match lookup.found {
            Some(found) => found,
            None => match self.surprise(scene, &frame.packet, &seen)? {
                Some(id) => (id, Direction::Outbound),
                None => (self.open(scene, frame, &seen, (lookup, way))?, Direction::Inbound),
            },
        };
        if self.sessions[id as usize].becomes(direction).is_none() {
            self.lead(scene, id, seen.packet.tuple, real_of(scene, &seen, way))?;
        }
        let session = self.sessions[id as usize].clone();
        let bytes = whole.as_deref().unwrap_or(frame.bytes());
        self.compare(scene, (frame, bytes), &seen, (&session, direction), way)?;
        let to = destination(scene, &session, direction);
        let link = scene.snapshot.next(scene.universe, to).map(|(link, ..)| link);
        let mtu = link.map_or(0, |link| scene.universe.links[link].mtu);
        let mtu = self.path_mtu(scene, &session, direction, mtu);
        check_way(scene, &seen, (to, mtu.min(across_mtu(&frame.packet, &seen))), way)?;
        frame.seen = seen;
        self.count_passed(scene, frame, (&session, direction));
        if matches!(way, Way::Sent(_)) {
            self.leaves(scene.worker, frame)?;
        }
        let packet = frame.packet;
        if frame.place.is_some() {
            self.pieces.went = Some((session, direction));
        }
        self.pass(scene, id, direction, &packet);
        Ok(())
    }

    /// A packet of a session passed.
    pub(super) fn pass(
        &mut self,
        scene: Scene<'_>,
        id: u32,
        direction: Direction,
        packet: &Packet,
    ) {
        let session = &mut self.sessions[id as usize];
        if session.vacant {
            session.seen_ms = scene.now;
            return;
        }
        let packet = session.learn(scene, direction, packet);
        if session.pass(scene.universe, scene.now, direction, &packet) {
            let closed = session.state == State::TimeWait;
            self.tally(scene.worker).closed += 1;
            if closed { self.retire(id) } else { self.remove(id) }
        }
    }

    /// A packet that happens to come from where a session leads which has sent nothing there yet.
    fn surprise(
        &mut self,
        scene: Scene<'_>,
        packet: &Packet,
        seen: &Seen,
    ) -> Result<Option<u32>, Violation> {
        let inbound = seen.packet.tuple.reversed();
        let Some((id, Direction::Inbound)) = self.find(scene, inbound) else { return Ok(None) };
        if self.sessions[id as usize].forward.is_some() {
            return Ok(None);
        }
        self.lead(scene, id, packet.tuple.reversed(), None)?;
        Ok(Some(id))
    }

    /// A packet without a session opened one.
    fn open(
        &mut self,
        scene: Scene<'_>,
        frame: &Buffer,
        seen: &Seen,
        (lookup, way): (Lookup, Way),
    ) -> Result<u32, Violation> {
        let (tuple, to) = (frame.packet.tuple, seen.packet.tuple);
        let service = scene.snapshot.service_of(scene.universe, tuple);
        let state = opening(scene, &frame.packet, lookup.mid_stream);
        let (Some(service), Some(state)) = (service, state) else {
            return Err(format!("became {to} without a session"));
        };
        let id = self.begin(scene, service, &frame.packet, state)?;
        let real = self.lead(scene, id, to, real_of(scene, seen, way))?;
        let local = scene.snapshot.locals.get(&to.src);
        let in_pool = local == Some(&(scene.universe.services[service].pool, true))
            || self.keeps_mapping(scene, id, to);
        if self.sessions[id as usize].place().is_some() && !in_pool {
            return Err(format!("{to} is not from an address of the pool"));
        }
        self.chosen(scene, service, real, &tuple)?;
        Ok(id)
    }

    /// Adds a session that leads nowhere yet; what timed out at its place goes.
    pub(super) fn begin(
        &mut self,
        scene: Scene<'_>,
        service: usize,
        packet: &Packet,
        state: State,
    ) -> Result<u32, Violation> {
        let inbound = packet.tuple;
        for worker in 0..scene.universe.workers {
            if state == State::OnePacket {
                break;
            }
            let Some((former, _)) = self.by_key.get(&(worker, inbound)).copied() else { continue };
            if worker == scene.worker {
                self.remove(former);
            } else if !self.pieces.apart.contains(&inbound)
                && !self.sessions[former as usize].is_over(scene.universe, scene.now)
            {
                return Err(format!("{inbound} has a session at worker {worker} too"));
            }
        }
        if scene.snapshot.owned[service] {
            let client = scene.universe.services[service].client((inbound.src, inbound.sport));
            self.owns(scene.worker, (service, client))?;
        }
        self.within_limits(scene, service)?;
        let mut session = Session::new(scene.worker, service, packet, state);
        session.seen_ms = scene.now;
        self.tally(scene.worker).created += 1;
        Ok(self.insert(session))
    }

    /// A session turns out to lead to a real server, by its first packet there, which has this
    /// tuple and goes to this node's link-layer or outer address.
    pub(super) fn lead(
        &mut self,
        scene: Scene<'_>,
        id: u32,
        forward: Tuple,
        node: Option<usize>,
    ) -> Result<usize, Violation> {
        let Scene { universe, snapshot, worker, now, .. } = scene;
        let Session { service: number, inbound, .. } = self.sessions[id as usize];
        let service = &universe.services[number];
        let reaches = |at: &usize| {
            let real = &service.reals[*at];
            let port = if real.port == 0 { inbound.dport } else { real.port };
            let there = (universe.nodes[real.node].address, port) == (forward.dst, forward.dport);
            let same_client = (forward.src, forward.sport) == (inbound.src, inbound.sport);
            let same_client = same_client && forward.protocol == inbound.protocol;
            match real.mode {
                Mode::Fnat => there && snapshot.locals.contains_key(&forward.src),
                Mode::Nat => there && same_client,
                // The real server is whoever the host inside sends to.
                Mode::Snat => {
                    let same = (forward.dst, forward.dport) == (inbound.dst, inbound.dport);
                    let known = snapshot.locals.contains_key(&forward.src);
                    same && known && forward.protocol == inbound.protocol
                }
                _ => forward == inbound && node == Some(real.node),
            }
        };
        let Some(real) = (0..service.reals.len()).find(reaches) else {
            return Err(format!("{forward} leads to no real server of service {number}"));
        };
        let mode = service.reals[real].mode;
        if matches!(mode, Mode::Fnat | Mode::Snat) {
            let pool = snapshot.locals.get(&forward.src).map_or(service.pool, |at| at.0);
            let in_pool = pool == service.pool || self.keeps_mapping(scene, id, forward);
            let owner = universe.pools[pool].owner(forward.sport, universe.workers);
            if !in_pool || owner != Some(worker) {
                return Err(format!("{forward} is not from a local port of worker {worker}"));
            }
        }
        let session = &mut self.sessions[id as usize];
        self.counts.unled -= u32::from(session.forward.is_none());
        (session.real, session.forward, session.mode) = (Some(real), Some(forward), mode);
        let outbound = session.outbound();
        if let Some(outbound) = outbound
            && let Some((other, _)) = self.by_key.get(&(worker, outbound)).copied()
        {
            let again = [id, other].iter().all(|id| {
                let session = &self.sessions[*id as usize];
                (session.state, session.mode) == (State::OnePacket, Mode::Nat)
            });
            if !again && !self.sessions[other as usize].is_over(universe, now) {
                let other = self.sessions[other as usize].inbound;
                return Err(format!("{forward} is also used for {other}"));
            }
            self.remove(other);
        }
        self.settle(id);
        self.mappings.check(scene, &self.sessions, id)?;
        Ok(real)
    }

    /// Whether a session of source NAT whose packets become this has its mapping from another.
    fn keeps_mapping(&self, scene: Scene<'_>, id: u32, forward: Tuple) -> bool {
        let session = &self.sessions[id as usize];
        let rule = scene.universe.services[session.service].rule.as_ref();
        self.mappings.keeps(rule, (session, id), (forward.src, forward.sport))
    }

    /// Whether a frame is, bit by bit, what its sender meant but for what must change.
    pub(super) fn compare(
        &mut self,
        scene: Scene<'_>,
        (frame, bytes): (&Buffer, &[u8]),
        seen: &Seen,
        (session, direction): (&Session, Direction),
        way: Way,
    ) -> Result<(), Violation> {
        let meant = &frame.packet;
        let tuple = session.becomes(direction).unwrap_or_default();
        if seen.packet.tuple != tuple {
            return Err(format!("became {}, not {tuple}", seen.packet.tuple));
        }
        let mut right =
            Packet { tuple, ttl: meant.ttl - 1, payload: seen.packet.payload, ..*meant };
        match (meant.is_v4(), is_v4(tuple.src)) {
            // RFC 7915 4.1: no flow label, and never without a checksum.
            (true, false) => (right.id, right.df, right.checksum) = (0, false, true),
            (false, true) => (right.id, right.df) = (seen.packet.id, seen.packet.df),
            _ => {}
        }
        let (mtu, reached) = real_way(scene, session);
        let header = session.tell(scene, direction, (mtu, reached), (meant, &mut right));
        if seen.packet != right {
            return Err(format!("became {:?}, not {right:?}", seen.packet));
        }
        let tunnel = direction == Direction::Inbound && session.shim(scene.universe).is_some();
        match &seen.outer {
            Some(outer) if tunnel => check_outer(scene, meant, outer, session, way)?,
            None if !tunnel => {}
            outer => return Err(format!("came out with {outer:?} around it")),
        }
        let data = bytes.get(usize::from(seen.data)..).unwrap_or_default();
        let data = data.get(..usize::from(seen.packet.payload.len)).unwrap_or_default();
        let Some(data) = data.strip_prefix(&header[..]) else {
            return Err(format!("does not begin with {header:?}"));
        };
        let whole = frame.kind == Kind::Whole;
        let same = match session.loses_data(scene, direction, meant) {
            true => data.is_empty(),
            false => meant.payload.is(data) == whole,
        };
        if !same || seen.right != whole {
            return Err("its payload or its checksum was changed".into());
        }
        self.looked += 1;
        if whole
            && seen.outer.is_none()
            && frame.place.is_none()
            && self.looked.is_multiple_of(SAMPLE)
        {
            crate::second::opinion(frame.bytes())?;
        }
        Ok(())
    }
}

/// The MTU of the link to a session's real server, and whether its neighbour there is known.
fn real_way(scene: Scene<'_>, session: &Session) -> (u16, bool) {
    let to = destination(scene, session, Direction::Inbound);
    let next = scene.snapshot.next(scene.universe, to);
    next.map_or((0, false), |(link, _, mac)| (scene.universe.links[link].mtu, mac.is_some()))
}

/// Where a session's packets go next as far as addresses say.
pub(super) fn destination(scene: Scene<'_>, session: &Session, direction: Direction) -> Addr {
    let Scene { universe, .. } = scene;
    let node = session.real.map(|real| universe.services[session.service].reals[real].node);
    match (direction, node) {
        (Direction::Inbound, _) if session.mode == Mode::Snat => session.inbound.dst,
        (Direction::Inbound, Some(node)) => universe.nodes[node].address,
        _ => session.inbound.src,
    }
}

/// The node that a frame goes to by its link layer, or its outer header.
fn real_of(scene: Scene<'_>, seen: &Seen, way: Way) -> Option<usize> {
    match (&seen.outer, way) {
        (Some(outer), _) => scene.snapshot.node_at(outer.dst),
        (None, Way::Waits(waiting)) => scene.snapshot.node_at(crate::wire::from_ip(waiting?.next)),
        (None, _) => node_of(seen.to),
    }
}

/// Whether the header around a packet is as RFC 2003, 2473 and 6040 have it.
pub(super) fn check_outer(
    scene: Scene<'_>,
    meant: &Packet,
    outer: &Outer,
    session: &Session,
    way: Way,
) -> Result<(), Violation> {
    let to = destination(scene, session, Direction::Inbound);
    let (net, bits) = scene.universe.tunnel[usize::from(!is_v4(to))];
    let cut = matches!(way, Way::Cut(..) | Way::Waits(Some(Waiting { cut: Some(_), .. })));
    let df = is_v4(to) && !cut && (!meant.is_v4() || meant.df);
    let right = outer.dst == to
        && (outer.src ^ net).checked_shr(128 - bits).unwrap_or(0) == 0
        && (outer.ttl, outer.tos, outer.df) == (64, meant.tos, df)
        && (outer.id == 0 || is_v4(to) && !df)
        && Some(outer.shim) == session.shim(scene.universe);
    if right { Ok(()) } else { Err(format!("{outer:?} is around it")) }
}

/// The most bytes of a packet that becomes `seen`, whatever its link allows: IPv4 without DF
/// becomes IPv6 that every link takes (RFC 7915 4.1).
pub(super) fn across_mtu(meant: &Packet, seen: &Seen) -> u16 {
    let to_six = meant.is_v4() && !seen.packet.is_v4();
    if to_six && !meant.df { 1280 } else { u16::MAX }
}

/// Whether a frame goes to the right neighbour, or waits for it.
pub(super) fn check_way(
    scene: Scene<'_>,
    seen: &Seen,
    (to, mtu): (Addr, u16),
    way: Way,
) -> Result<(), Violation> {
    let Some((link, neighbour, mac)) = scene.snapshot.next(scene.universe, to) else {
        return Err(format!("there is no route to {}", to_ip(to)));
    };
    let place = &scene.universe.links[link];
    let most = mtu.min(place.mtu);
    let fits = seen.length <= most;
    let df = seen.outer.map_or(seen.packet.df, |outer| outer.df);
    let (port, right) = match way {
        Way::Sent(port) => (port, fits),
        Way::Cut(port, mtu) => (port, !fits && !df && mtu == most),
        Way::Waits(Some(waiting)) if mac.is_none() => {
            let right = (usize::from(waiting.link.0), waiting.next) == (link, to_ip(neighbour))
                && waiting.cut == (!fits).then_some(most)
                && (fits || !df);
            return if right {
                Ok(())
            } else {
                Err(format!("{} bytes wait: {waiting:?}", seen.length))
            };
        }
        Way::Waits(_) => return Err("waits, and knows where to go".into()),
    };
    if !right {
        return Err(format!("{} bytes are sent as {way:?} by link {link}", seen.length));
    }
    if (Some(seen.to), seen.from, seen.vlan, port) == (mac, link_mac(link), place.vlan, place.port)
    {
        return Ok(());
    }
    let found = (port, seen.to, seen.from, seen.vlan);
    Err(format!("goes by {found:?}, not link {link} to {mac:?}"))
}
