//! Frames that do not go on: whether their reason is one.

use super::forward::{destination, opening};
use super::session::Direction;
use super::{Checker, Lookup, Scene, Violation};
use crate::frame::{Buffer, Kind};
use crate::wire::{
    ACK, Addr, FIN, Packet, RST, SYN, Shim, Stream, TCP, Tuple, UDP, is_v4, read, read_error,
    read_piece, write,
};
use sluice_director::spec::{Mode, NoSession, Refusal};
use sluice_director::{Frame, Reason};

/// Whether no packet can come from an address.
const fn is_martian(address: Addr) -> bool {
    let first = (address >> 24) as u8;
    let v6 = address == 0 || address == 1 || address >> 120 == 0xff;
    if is_v4(address) { matches!(first, 0 | 127 | 224..=255) } else { v6 }
}

/// A packet that found no session, as the director must see it.
struct Lost {
    /// The service it is for.
    service: Option<usize>,
    /// Whether it is for a local port.
    local: bool,
    opens: bool,
    martian: bool,
}

fn lost(scene: Scene<'_>, packet: &Packet, mid_stream: bool) -> Lost {
    let tuple = packet.tuple;
    let Scene { universe, snapshot, .. } = scene;
    let pool = snapshot.locals.get(&tuple.dst).map(|(pool, _)| &universe.pools[*pool]);
    let owner = pool.and_then(|pool| pool.owner(tuple.dport, universe.workers));
    Lost {
        service: snapshot.service_of(universe, tuple),
        local: owner.is_some(),
        opens: opening(scene, packet, mid_stream).is_some(),
        martian: is_martian(tuple.src) || tuple.src == tuple.dst,
    }
}

/// How much longer a packet is when it reaches a real server of this mode and family, with what a
/// tunnel puts before it.
fn growth(packet: &Packet, (mode, shim): (Mode, Option<Shim>), real: Addr) -> i32 {
    if let Some(shim) = shim {
        return i32::from(shim.length()) + if is_v4(real) { 20 } else { 40 };
    }
    match (mode, packet.is_v4(), is_v4(real)) {
        (Mode::Fnat, true, false) => 20,
        (Mode::Fnat, false, true) => -20,
        _ => 0,
    }
}

impl Checker {
    /// A frame that was given to the kernel.
    pub(super) fn passed(
        &mut self,
        scene: Scene<'_>,
        frame: &Buffer,
        lookup: Lookup,
        reason: Reason,
    ) -> Result<(), Violation> {
        let packet = &frame.packet;
        let lost = lost(scene, packet, false);
        let found = lookup.found.is_some() || lookup.gone;
        let foreign = !found && lost.service.is_none() && !lost.local;
        let payload = Stream { len: packet.payload.len, ..Stream::default() };
        let untouched = match frame.place {
            Some(place) => read_piece(frame.bytes())?.place == place,
            None => read(frame.bytes())?.packet == Packet { payload, ..*packet },
        };
        if reason == Reason::NotOurs && foreign && untouched {
            return self.is_nobodys(scene, packet.tuple);
        }
        Err(format!("given to the kernel as {}", reason.name()))
    }

    /// A frame that became an answer to its sender.
    pub(super) fn answered(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        lookup: Lookup,
        (port, reason): (u16, Reason),
    ) -> Result<(), Violation> {
        let meant = frame.packet;
        let lost = lost(scene, &meant, lookup.mid_stream);
        let tcp = meant.tuple.protocol == TCP && meant.flags & RST == 0;
        let may = match reason {
            Reason::NoSessionReset => {
                let served = lost.service.is_some_and(|at| !is_rule(scene, at));
                let ours = served && !lost.opens || lost.service.is_none() && lost.local;
                let none = lookup.found.is_none() && !lookup.gone;
                ours && none && !lost.martian && resets(scene, frame)
            }
            Reason::RealGone => lookup.gone && lookup.inbound && tcp,
            Reason::TtlExpired | Reason::TooBig => {
                let mtu = self.must_tell(scene, &meant, lookup, reason)?;
                return self.check_error(scene, frame, (lookup, port), (reason, mtu));
            }
            Reason::NoReal | Reason::RealsFull | Reason::ServiceFull => {
                return self.refused(scene, frame, lookup, (port, reason));
            }
            _ => false,
        };
        if !may {
            return Err(format!("answered as {}", reason.name()));
        }
        if reason == Reason::NoSessionReset {
            self.is_nobodys(scene, meant.tuple)?;
        }
        check_reset(scene, frame, port)
    }

    /// A first packet whose sender was told that nobody takes its connection.
    fn refused(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        lookup: Lookup,
        (port, reason): (u16, Reason),
    ) -> Result<(), Violation> {
        let meant = frame.packet;
        let right = lookup.found.is_none()
            && !lookup.gone
            && scene.universe.refused == Refusal::Answer
            && self.drops_lost(scene, frame, lookup, reason);
        let allowed = &mut self.refusals[usize::from(scene.worker)];
        if !right || !allowed.allows(scene.now) {
            return Err(format!("answered as {}", reason.name()));
        }
        allowed.take();
        match meant.tuple.protocol {
            TCP => check_reset(scene, frame, port),
            _ => {
                let told = if meant.is_v4() { (3, 3, 0) } else { (1, 4, 0) };
                check_message(scene, frame, port, (Some(meant.tuple.dst), told))
            }
        }
    }

    /// Whether a first packet that was refused must be answered.
    fn must_answer(&mut self, scene: Scene<'_>, frame: &Buffer, reason: Reason) -> bool {
        let tuple = frame.packet.tuple;
        matches!(reason, Reason::NoReal | Reason::RealsFull | Reason::ServiceFull)
            && scene.universe.refused == Refusal::Answer
            && matches!(tuple.protocol, TCP | UDP)
            && frame.place.is_none()
            && !is_martian(tuple.src)
            // Of one burst all IPv4 goes before all IPv6.
            && self.refusals[usize::from(scene.worker)]
                .spares(scene.now, scene.universe.burst as u64)
    }

    /// A frame that was dropped.
    pub(super) fn dropped(
        &mut self,
        scene: Scene<'_>,
        frame: &Buffer,
        lookup: Lookup,
        reason: Reason,
    ) -> Result<(), Violation> {
        let packet = &frame.packet;
        let right = match reason {
            Reason::RealGone => {
                let answers =
                    lookup.inbound && packet.tuple.protocol == TCP && packet.flags & RST == 0;
                lookup.gone && !answers
            }
            Reason::TtlExpired | Reason::TooBig => {
                self.must_tell(scene, packet, lookup, reason)?;
                !self.may_tell(scene, frame, lookup)
            }
            _ if lookup.gone => false,
            // Workers that do not agree have handed it on and on.
            Reason::HandOffLoop => lookup.found.is_none() && !scene.agreed,
            Reason::NoRoute if lookup.found.is_some() => {
                lookup.found.is_some_and(|(id, direction)| {
                    let to = destination(scene, &self.sessions[id as usize], direction);
                    scene.snapshot.next(scene.universe, to).is_none()
                })
            }
            _ if self.must_answer(scene, frame, reason) => false,
            _ => lookup.found.is_none() && self.drops_lost(scene, frame, lookup, reason),
        };
        if right && reason == Reason::NoSession {
            return self.is_nobodys(scene, packet.tuple);
        }
        if right {
            return Ok(());
        }
        let known = lookup.found.map(|(id, _)| self.sessions[id as usize].clone());
        Err(format!("dropped as {}; its session: {known:?}", reason.name()))
    }

    /// Whether a packet's sender must be told of trouble, and which MTU: none when the session
    /// that it opened has shown no real server yet.
    fn must_tell(
        &mut self,
        scene: Scene<'_>,
        packet: &Packet,
        lookup: Lookup,
        reason: Reason,
    ) -> Result<Option<u16>, Violation> {
        let lost = lost(scene, packet, lookup.mid_stream);
        let Some((id, direction)) = lookup.found else {
            if reason == Reason::TtlExpired && lost.service.is_some() && packet.ttl <= 1 {
                return Ok(None);
            }
            let too_big = reason == Reason::TooBig && lost.opens;
            if let Some(service) = lost.service.filter(|_| too_big) {
                return self.open_too_big(scene, packet, (service, lookup.mid_stream));
            }
            return Err(format!("refused as {} without a session", reason.name()));
        };
        if reason == Reason::TtlExpired {
            let over = packet.ttl <= 1;
            return if over { Ok(None) } else { Err("refused with time to live left".into()) };
        }
        let session = &self.sessions[id as usize];
        if session.real.is_none() {
            // Opened within the same burst, and nobody knows yet where it leads.
            return Ok(None);
        }
        let to = destination(scene, session, direction);
        let growth = match direction {
            Direction::Inbound => growth(packet, (session.mode, session.shim(scene.universe)), to),
            Direction::Outbound => growth(packet, (Mode::Fnat, None), to),
        };
        let Some((link, ..)) = scene.snapshot.next(scene.universe, to) else {
            return Err("too big, and there is no route".into());
        };
        let mtu = self.path_mtu(scene, session, direction, scene.universe.links[link].mtu);
        let room = i32::from(mtu) - growth;
        let cut = if packet.is_v4() { !packet.df } else { growth != 0 && packet.length() <= 1280 };
        let right = packet.length() as i32 > room && !cut;
        if session.real.is_some() && !right {
            return Err(format!("refused as {} for {room} bytes", reason.name()));
        }
        Ok(session.real.map(|_| room as u16))
    }

    /// Whether a worker may send an ICMP error about a packet.
    fn may_tell(&mut self, scene: Scene<'_>, frame: &Buffer, lookup: Lookup) -> bool {
        let ahead = self.errors_ahead;
        self.errors[usize::from(scene.worker)].allows_beside(scene.now, ahead)
            && !is_martian(frame.packet.tuple.src)
            && self.tells_from(scene, frame, lookup).is_some()
    }

    /// The address that tells of trouble.
    fn tells_from(&self, scene: Scene<'_>, frame: &Buffer, lookup: Lookup) -> Option<Addr> {
        let Scene { universe, snapshot, .. } = scene;
        let packet = &frame.packet;
        let own = universe.links[frame.link].own[usize::from(!packet.is_v4())];
        let to = packet.tuple.dst;
        let vip = snapshot.status.services.iter().zip(&universe.services);
        let mut vips = vip.filter(|(status, _)| status.present).map(|(_, service)| service.vip);
        let known = vips.any(|vip| vip == to) || snapshot.locals.contains_key(&to);
        let session = lookup.found.map(|(id, _)| &self.sessions[id as usize]);
        // A rule has no virtual address, but what it translates to.
        let of_session = session.and_then(|session| match is_rule(scene, session.service) {
            true => session.forward.map(|forward| forward.src),
            false => Some(session.inbound.dst),
        });
        own.or(known.then_some(to)).or(of_session)
    }

    /// Whether a frame became the right ICMP error.
    fn check_error(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        (lookup, port): (Lookup, u16),
        (reason, mtu): (Reason, Option<u16>),
    ) -> Result<(), Violation> {
        let meant = frame.packet;
        let error = read_error(frame.bytes())?;
        let v4 = meant.is_v4();
        let from = self.tells_from(scene, frame, lookup);
        let errors = &mut self.errors[usize::from(scene.worker)];
        if !errors.allows(scene.now) {
            return Err("more ICMP errors than are allowed in a second".into());
        }
        errors.take();
        let told = |mtu: u16| u32::from(if v4 { mtu } else { mtu.max(1280) });
        let rest = mtu.map_or(error.rest, told);
        let right = match (reason, v4) {
            (Reason::TtlExpired, true) => (11, 0, 0),
            (Reason::TtlExpired, false) => (3, 0, 0),
            (_, true) => (3, 4, rest),
            (_, false) => (2, 0, rest),
        };
        frame.told = (reason == Reason::TooBig).then_some(error.rest as u16);
        check_message(scene, frame, port, (from, right))
    }

    /// Whether a packet without a session may be dropped.
    fn drops_lost(
        &mut self,
        scene: Scene<'_>,
        frame: &Buffer,
        lookup: Lookup,
        reason: Reason,
    ) -> bool {
        let packet = &frame.packet;
        let lost = lost(scene, packet, lookup.mid_stream);
        let Some(service) = lost.service else {
            return match reason {
                Reason::Martian => lost.martian && lost.local,
                Reason::NoSession => lost.local && !resets(scene, frame),
                _ => false,
            };
        };
        self.unsure(scene, service, packet.tuple.src);
        let refused = match reason {
            Reason::Martian => return lost.martian,
            // Nobody inside is told what no rule lets out.
            Reason::NoSession if is_rule(scene, service) => return !lost.opens,
            Reason::NoSession => return !lost.opens && !resets(scene, frame),
            Reason::NoReal => scene.snapshot.eligible[service].is_empty(),
            Reason::SessionsFull => {
                // The index may be full where the table is not, which shows after the choice.
                self.turn_lost(scene, service);
                // Of one burst all IPv4 goes before all IPv6.
                let ahead = scene.universe.burst as u32;
                self.places(scene.worker) + ahead >= scene.universe.capacity
            }
            Reason::ServiceFull => self.is_full(scene, service),
            Reason::ServiceRate => {
                let limited = scene.universe.services[service].limits.new_per_s != 0;
                limited && self.rate(scene, service).refuses(scene.now)
            }
            Reason::RealsFull => self.are_full(scene, service),
            Reason::NoRoute => self.no_route(scene, packet, service),
            Reason::LocalPortsExhausted => {
                self.turn_lost(scene, service);
                self.mappings.outward[2] += u64::from(is_rule(scene, service));
                self.is_exhausted(scene, service, packet)
            }
            Reason::NatConflict if is_rule(scene, service) => {
                let answer = self.mappings.answer(scene.worker, packet.tuple);
                let taken = answer.is_some_and(|answer| self.find(scene, answer).is_some());
                return lost.opens && (taken || self.counts.unled > 0);
            }
            Reason::NatConflict => {
                self.turn_lost(scene, service);
                // Whose way nobody knows yet may go where this one would.
                let end = |tuple: &Tuple| (tuple.src, tuple.sport);
                let ghost = |id: &u32| {
                    let session = &self.sessions[*id as usize];
                    session.worker == scene.worker && end(&session.inbound) == end(&packet.tuple)
                };
                self.ghosts.iter().any(ghost) || self.conflicts(scene, service, &packet.tuple) > 0
            }
            _ => false,
        };
        refused && lost.opens
    }

    /// Whether there is no way to the client, or to one of the real servers that take sessions.
    fn no_route(&mut self, scene: Scene<'_>, packet: &Packet, service: usize) -> bool {
        let Scene { universe, snapshot, .. } = scene;
        let spec = &universe.services[service];
        let answers = matches!(spec.mode, Mode::Fnat | Mode::Nat | Mode::Snat);
        if answers && snapshot.next(universe, packet.tuple.src).is_none() {
            return true;
        }
        if spec.rule.is_some() {
            return false;
        }
        self.turn_lost(scene, service);
        let mut to = snapshot.eligible[service].iter().map(|at| spec.reals[*at].node);
        to.any(|node| snapshot.next(universe, universe.nodes[node].address).is_none())
    }

    /// A first packet that is too big for the way to the real server opened a session, which
    /// nobody knows the other end of.
    fn open_too_big(
        &mut self,
        scene: Scene<'_>,
        packet: &Packet,
        (service, mid_stream): (usize, bool),
    ) -> Result<Option<u16>, Violation> {
        let Some(state) = opening(scene, packet, mid_stream) else {
            return Err("too big, and opens nothing".into());
        };
        let Scene { universe, snapshot, .. } = scene;
        let spec = &universe.services[service];
        let mut reals = snapshot.eligible[service].iter().map(|at| &spec.reals[*at]);
        let too_big = reals.any(|real| {
            let to = universe.nodes[real.node].address;
            let mtu = snapshot.next(universe, to).map_or(0, |(link, ..)| universe.links[link].mtu);
            let shim = Shim::of(real.mode, spec.tunnel);
            let mtu = if shim.is_some() { self.tunnel_mtu(scene, to, mtu) } else { mtu };
            packet.length() as i32 + growth(packet, (real.mode, shim), to) > i32::from(mtu)
        });
        if !too_big {
            return Err("too big for no real server".into());
        }
        self.turn_lost(scene, service);
        let id = self.begin(scene, service, packet, state)?;
        self.ghosts.push(id);
        Ok(None)
    }
}

/// Whether a service is a rule of source NAT.
fn is_rule(scene: Scene<'_>, service: usize) -> bool {
    scene.universe.services[service].rule.is_some()
}

/// Whether a frame became an ICMP error of this type, code and second word, from this address,
/// about itself.
fn check_message(
    scene: Scene<'_>,
    frame: &mut Buffer,
    port: u16,
    (from, right): (Option<Addr>, (u8, u8, u32)),
) -> Result<(), Violation> {
    let meant = frame.packet;
    let error = read_error(frame.bytes())?;
    let link = &scene.universe.links[frame.link];
    let v4 = meant.is_v4();
    let Packet { tuple, ttl, .. } = error.seen.packet;
    let way = (error.seen.from, error.seen.to, error.seen.vlan, port);
    let whole = match frame.place {
        Some(place) => crate::pieces::fragment(&meant, &place),
        None => {
            let mut whole = vec![0; crate::wire::frame_len(&meant)];
            write(&meant, frame.macs, &mut whole);
            whole
        }
    };
    let most = if v4 { 576 - 28 } else { 1280 - 48 };
    let quoted = &whole[14..whole.len().min(14 + most)];
    let quote = &frame.bytes()[error.quote.0..error.quote.1];
    let data = (14 + meant.length() - usize::from(meant.payload.len)).min(whole.len());
    let sure = if frame.kind == Kind::Whole { quoted.len() } else { data - 14 };
    let sound = (error.kind, error.code, error.rest) == right
        && (Some(tuple.src), tuple.dst, ttl) == (from, meant.tuple.src, 64)
        && way == (frame.macs.1, frame.macs.0, link.vlan, link.port)
        && quote.len() == quoted.len()
        && quote.get(..sure) == quoted.get(..sure);
    frame.seen = error.seen;
    if sound { Ok(()) } else { Err(format!("answered with {error:?}, not {right:?}")) }
}

/// Whether a frame became the right reset (RFC 9293 3.10.7.1).
fn check_reset(scene: Scene<'_>, frame: &mut Buffer, port: u16) -> Result<(), Violation> {
    let meant = frame.packet;
    let seen = read(frame.bytes())?;
    let control = u32::from(meant.flags & SYN != 0) + u32::from(meant.flags & FIN != 0);
    let end = meant.seq.wrapping_add(u32::from(meant.payload.len)).wrapping_add(control);
    let (seq, ack, flags) =
        if meant.flags & ACK != 0 { (meant.ack, 0, RST) } else { (0, end, RST | ACK) };
    let got = (seen.packet.seq, seen.packet.ack, seen.packet.flags);
    let link = &scene.universe.links[frame.link];
    let right = seen.packet.tuple == meant.tuple.reversed()
        && got == (seq, ack, flags)
        && seen.right
        && seen.packet.payload.len == 0
        && seen.packet.ttl == 64
        && (seen.from, seen.to) == (frame.macs.1, frame.macs.0)
        && (seen.vlan, port) == (link.vlan, link.port);
    frame.seen = seen;
    if right { Ok(()) } else { Err(format!("answered with {}", seen.packet)) }
}

/// Whether a packet without a session must be answered, not just dropped. A fragment must not.
fn resets(scene: Scene<'_>, frame: &Buffer) -> bool {
    scene.universe.no_session == NoSession::Reset
        && frame.packet.tuple.protocol == TCP
        && frame.packet.flags & RST == 0
        && frame.place.is_none_or(|place| place.offset == 0 && !place.more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v4;

    #[test]
    fn martians() {
        for martian in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 5], [255; 4]] {
            assert!(is_martian(v4(martian)));
        }
        assert!(!is_martian(v4([192, 0, 2, 1])));
    }
}
