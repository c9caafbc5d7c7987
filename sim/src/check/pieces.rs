//! Fragments: the first of a datagram is judged as the whole would be, since the world knows the
//! rest of it; what became of it is a trail, which all others of the datagram must follow.
//!
//! A director remembers a bounded number of trails, and may forget some with a reload. Whether it
//! certainly remembers one is what the model knows, not what the director says.

use super::forward::{across_mtu, check_outer, check_way, destination};
use super::session::{Direction, Session, State};
use super::{Checker, Scene, Violation, Way};
use crate::frame::Buffer;
use crate::parked::Taken;
use crate::pieces;
use crate::universe::Universe;
use crate::wire::{
    Packet, Place, SCTP, Seen, SeenPiece, TCP, Tuple, UDP, is_v4, portless, read_piece, write_piece,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_director::path::{Verdict, Waiting};
use sluice_director::spec::{Mode, Orphans};
use sluice_director::{Frame, Reason};

/// How long the fragments of a datagram may be apart, by family.
const LIFE_MS: [u64; 2] = [30_000, 60_000];
/// Trails that compete for the same places in a director's table.
const WAYS: usize = 4;

/// What the first fragment of a datagram became.
#[derive(Clone, Debug)]
enum Became {
    /// A packet of this session, in this direction.
    Forwarded(Box<Session>, Direction),
    Handed(u16),
    Refused(Verdict),
}

#[derive(Clone, Debug)]
struct Trail {
    became: Became,
    epoch: u64,
    at: u64,
    until: u64,
}

/// A datagram at a worker: addresses, protocol where all pieces tell it, identification.
type Datagram = (u16, Tuple, u32);

/// What is known of datagrams in pieces.
#[derive(Default)]
pub(super) struct Pieces {
    trails: FxHashMap<Datagram, Trail>,
    /// When first fragments came, by worker.
    firsts: FxHashMap<u16, Vec<u64>>,
    /// What the director calls datagrams.
    names: FxHashMap<(Tuple, u32), u32>,
    /// Tuples of packets that came in pieces: their sessions may be at two workers.
    pub apart: FxHashSet<Tuple>,
    /// Session and direction of the fragment that was forwarded last.
    pub went: Option<(Session, Direction)>,
}

fn key(packet: &Packet, place: &Place) -> (Tuple, u32) {
    let protocol = if packet.is_v4() { packet.tuple.protocol } else { 0 };
    (Tuple { protocol, ..portless(packet.tuple) }, place.id)
}

impl Checker {
    /// Judges what became of a fragment.
    pub(super) fn judge_piece(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        place: Place,
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let packet = frame.packet;
        if packet.tuple.protocol == TCP && tiny(&place) {
            let right = verdict == Verdict::Drop(Reason::TinyFragment);
            self.note(scene, &packet, &place, Became::Refused(verdict));
            return if right { Ok(()) } else { Err(format!("{verdict:?} for too little")) };
        }
        if place.offset != 0 {
            return self
                .judge_later(scene, frame, place, (verdict, waiting))
                .map_err(|violation| format!("a later fragment at {}: {violation}", place.offset));
        }
        self.pieces.apart.insert(packet.tuple);
        let became = match verdict {
            Verdict::Drop(Reason::Untranslatable | Reason::Fragment) => {
                self.kept_whole(scene, &packet)?;
                Became::Refused(verdict)
            }
            _ => {
                self.pieces.went = None;
                self.judge_whole(scene, frame, verdict, waiting)?;
                match (verdict, self.pieces.went.take()) {
                    (_, Some((session, direction))) => {
                        Became::Forwarded(Box::new(session), direction)
                    }
                    (Verdict::HandOff(to), _) => Became::Handed(to),
                    (Verdict::Answer(_, reason), _) => Became::Refused(Verdict::Drop(reason)),
                    _ => Became::Refused(verdict),
                }
            }
        };
        self.note(scene, &packet, &place, became);
        if matches!(verdict, Verdict::Answer(..)) {
            // What goes back is whole.
            frame.place = None;
        }
        Ok(())
    }

    /// Remembers what a first fragment became.
    fn note(&mut self, scene: Scene<'_>, packet: &Packet, place: &Place, became: Became) {
        if place.offset != 0 {
            return;
        }
        let (tuple, id) = key(packet, place);
        self.pieces.firsts.entry(scene.worker).or_default().push(scene.now);
        let until = scene.now + LIFE_MS[usize::from(!packet.is_v4())];
        let (epoch, at) = (scene.snapshot.epoch, scene.now);
        let trail = Trail { became, epoch, at, until };
        self.pieces.trails.insert((scene.worker, tuple, id), trail);
    }

    /// The trail of a datagram at a worker, and whether the director certainly remembers it.
    fn trail(&self, scene: Scene<'_>, packet: &Packet, place: &Place) -> Option<(&Trail, bool)> {
        let (tuple, id) = key(packet, place);
        let trail = self.pieces.trails.get(&(scene.worker, tuple, id))?;
        let kept = trail.epoch == scene.snapshot.epoch
            && self.has_place(scene.universe, scene.worker, (trail.at, scene.now));
        (trail.until > scene.now).then_some((trail, kept))
    }

    /// Whether a director certainly still has what it noted about a datagram at a time. What ends
    /// first gives way, so what counts is how many came with it or later; where those of both
    /// families share a table, any that may still be there do.
    fn has_place(&self, universe: &Universe, worker: u16, (at, now): (u64, u64)) -> bool {
        let Some(firsts) = self.pieces.firsts.get(&worker) else { return false };
        let mixed = universe.clients.iter().all(|family| !family.is_empty());
        let from = if mixed { now.saturating_sub(LIFE_MS[1]) } else { at };
        let others = firsts.len() - firsts.partition_point(|first| *first < from) - 1;
        let places = universe.fragments as usize / if mixed { 16 } else { 64 };
        others < places.max(WAYS)
    }

    fn judge_later(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        place: Place,
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let packet = frame.packet;
        if let Verdict::Park(name) = verdict {
            let known = *self.pieces.names.entry(key(&packet, &place)).or_insert(name);
            if known != name {
                return Err(format!("parked as {name}, and before as {known}"));
            }
        }
        let found = self.trail(scene, &packet, &place).map(|(trail, sure)| (trail.clone(), sure));
        let unknown = match verdict {
            Verdict::Park(_) => may_be_ours(scene, &packet),
            Verdict::Kernel(Reason::NotOurs) => !is_ours(scene, &packet),
            _ => false,
        };
        let Some((trail, sure)) = found else {
            return if unknown { Ok(()) } else { Err(format!("{verdict:?} without a first")) };
        };
        if unknown && !sure {
            return Ok(());
        }
        match trail.became {
            Became::Forwarded(session, direction) => {
                self.follows(scene, frame, place, (&session, direction), (verdict, waiting))
            }
            Became::Handed(to) if verdict == Verdict::HandOff(to) => Ok(()),
            // It was lost on its way round, and those that follow it find no end.
            Became::Handed(_)
                if verdict == Verdict::Drop(Reason::HandOffLoop)
                    && self.goes_round(scene, &packet, &place) =>
            {
                Ok(())
            }
            Became::Refused(right) if verdict == right => Ok(()),
            // It was handed on too often, and each of the others is or is not by itself.
            Became::Refused(Verdict::Drop(Reason::HandOffLoop)) => match verdict {
                Verdict::HandOff(_) => Ok(()),
                _ => Err(format!("{verdict:?} though the first was handed on and on")),
            },
            other => Err(format!("{verdict:?} though the first was {other:?}")),
        }
    }

    /// Whether each worker that a datagram's first came to handed it on, in the end to this one.
    fn goes_round(&self, scene: Scene<'_>, packet: &Packet, place: &Place) -> bool {
        let (tuple, id) = key(packet, place);
        let mut at = scene.worker;
        (0..scene.universe.workers).any(|_| {
            let trail = self.pieces.trails.get(&(at, tuple, id));
            if let Some(Trail { became: Became::Handed(to), .. }) = trail {
                at = *to;
                return at == scene.worker;
            }
            false
        })
    }

    /// A later fragment goes where the first went.
    fn follows(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        place: Place,
        (session, direction): (&Session, Direction),
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let meant = frame.packet;
        let tuple = session.becomes(direction).unwrap_or_default();
        let Some(real) = session.real else { return Err("follows nobody".into()) };
        let rule = scene.snapshot.rule(scene.universe, session.service, real);
        let to = destination(scene, session, direction);
        let way = match verdict {
            Verdict::Tx(port) => Way::Sent(port.0),
            Verdict::Fragment(port, mtu) => Way::Cut(port.0, mtu),
            Verdict::Wait => Way::Waits(waiting),
            Verdict::Drop(Reason::RealGone) if rule != Orphans::Keep => return Ok(()),
            Verdict::Drop(Reason::NoRoute) if scene.snapshot.next(scene.universe, to).is_none() => {
                return Ok(());
            }
            // Not every director translates fragments.
            Verdict::Drop(Reason::Untranslatable) if meant.is_v4() != is_v4(tuple.src) => {
                return Ok(());
            }
            _ => return Err(format!("{verdict:?} though the first went on")),
        };
        if rule != Orphans::Keep {
            return Err("forwarded though its real server is gone".into());
        }
        let piece = read_piece(frame.bytes())?;
        check_bytes(&meant, &place, (frame.bytes(), &piece), tuple, &mut self.scratch)?;
        let tunnel = direction == Direction::Inbound && session.shim(scene.universe).is_some();
        let plain = Packet { df: false, ..meant };
        match &piece.seen.outer {
            Some(outer) if tunnel => check_outer(scene, &plain, outer, session, way)?,
            None if !tunnel => {}
            outer => return Err(format!("came out with {outer:?} around it")),
        }
        let mtu = self.path_mtu(scene, session, direction, across_mtu(&plain, &piece.seen));
        check_way(scene, &piece.seen, (to, mtu), way)?;
        self.count_passed(scene, frame, (session, direction));
        frame.seen = Seen { right: true, ..piece.seen };
        Ok(())
    }

    /// A first fragment of what goes only as a whole: it belongs to a session, or opens one.
    fn kept_whole(&mut self, scene: Scene<'_>, packet: &Packet) -> Result<(), Violation> {
        let Scene { universe, snapshot, .. } = scene;
        let mut lookup = self.look_up(scene, packet);
        lookup.found = lookup.found.or_else(|| self.lingers(scene, packet, &lookup));
        if lookup.gone {
            return Err("its real server is gone".into());
        }
        if let Some((id, direction)) = lookup.found {
            let session = &self.sessions[id as usize];
            let becomes = session.becomes(direction);
            let crosses = becomes.is_none_or(|new| is_v4(new.src) != packet.is_v4());
            // What ports do to a CRC depends on the length of the whole.
            let ports = |tuple: Tuple| (tuple.sport, tuple.dport);
            let summed = packet.tuple.protocol == SCTP
                && becomes.is_some_and(|new| ports(new) != ports(packet.tuple));
            let kept = crosses || summed || universe.services[session.service].tells_client();
            return if kept { Ok(()) } else { Err("kept whole, and need not be".into()) };
        }
        let tuple = packet.tuple;
        let service = snapshot.service_of(universe, tuple);
        let state = super::forward::opening(scene, packet, lookup.mid_stream);
        let (Some(service), Some(state)) = (service, state) else {
            return Err("kept whole without a session".into());
        };
        let spec = &universe.services[service];
        let mut reals = snapshot.eligible[service].iter().map(|at| &spec.reals[*at]);
        let kept = spec.tells_client()
            || spec.rule.is_none()
                && reals.any(|real| {
                    let port = ![0, tuple.dport].contains(&real.port) && real.mode == Mode::Nat;
                    let crosses = is_v4(universe.nodes[real.node].address) != packet.is_v4();
                    crosses || port && tuple.protocol == SCTP
                });
        if !kept {
            return Err("kept whole, and need not be".into());
        }
        self.turn_lost(scene, service);
        let id = self.begin(scene, service, packet, state)?;
        if state != State::OnePacket {
            self.ghosts.push(id);
        }
        Ok(())
    }

    /// The datagrams that a turn says began in it: those that did, and no more.
    pub fn check_joined(
        &self,
        scene: Scene<'_>,
        burst: &[Buffer],
        joined: &[u32],
    ) -> Result<(), Violation> {
        let mut firsts = 0;
        for frame in burst {
            let Some(place) = frame.place.filter(|place| place.offset == 0) else { continue };
            firsts += 1;
            let name = self.pieces.names.get(&key(&frame.packet, &place));
            if name.is_some_and(|name| !joined.contains(name)) {
                return Err(format!(
                    "{}: worker {} says not that it began",
                    frame.packet, scene.worker
                ));
            }
        }
        if joined.len() <= firsts { Ok(()) } else { Err("more began than came".into()) }
    }

    /// A fragment waited in vain: its first must not have come.
    pub fn orphaned(
        &self,
        universe: &Universe,
        worker: u16,
        taken: &Taken,
    ) -> Result<(), Violation> {
        let Some(place) = taken.frame.place else { return Err("it is no fragment".into()) };
        let (tuple, id) = key(&taken.frame.packet, &place);
        let came = self.pieces.trails.get(&(worker, tuple, id));
        match came {
            Some(trail)
                if trail.at > taken.since
                    && self.has_place(universe, worker, (trail.at, trail.at)) =>
            {
                Err(format!("{}: its first came, and it went on waiting", taken.frame.packet))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a fragment of TCP could put something else in place of its header.
const fn tiny(place: &Place) -> bool {
    if place.offset == 0 { place.len < 20 } else { place.offset < 20 }
}

/// Whether a later fragment is, bit by bit, what it must be.
fn check_bytes(
    meant: &Packet,
    place: &Place,
    (bytes, found): (&[u8], &SeenPiece),
    tuple: Tuple,
    scratch: &mut Vec<u8>,
) -> Result<(), Violation> {
    let mut right = Packet { tuple, ttl: meant.ttl - 1, ..*meant };
    let mut place = *place;
    if meant.is_v4() != is_v4(tuple.src) {
        // RFC 7915 4.1, 5.1: no flow label, and the lower bits of the identification.
        (right.id, place.id) = (0, place.id & 0xffff);
    }
    let segment = pieces::segment(meant, scratch);
    let (from, to) = (usize::from(place.offset), usize::from(place.offset + place.len));
    let mut out = vec![0; crate::wire::piece_len(&right, &place)];
    write_piece(&right, &place, ([0; 6], [0; 6]), &segment[from..to], &mut out);
    let headers = out.len() - usize::from(place.len) - 14;
    let begin = found.data - headers;
    let end = found.data + usize::from(place.len);
    if bytes.get(begin..end) == Some(&out[14..]) {
        return Ok(());
    }
    Err(format!("became {:?} {:?}, not {right:?} {place:?}", found.seen.packet, found.place))
}

/// Whether fragments with these addresses are certainly the director's.
fn is_ours(scene: Scene<'_>, packet: &Packet) -> bool {
    let Scene { universe, snapshot, .. } = scene;
    let there = snapshot.status.services.iter().zip(&universe.services);
    let mut vips = there.filter(|(status, _)| status.present).map(|(_, service)| service.vip);
    let local = snapshot.locals.get(&packet.tuple.dst).is_some_and(|(_, there)| *there);
    vips.any(|vip| vip == packet.tuple.dst) || local
}

/// Whether fragments with these addresses may be the director's, or may have been.
fn may_be_ours(scene: Scene<'_>, packet: &Packet) -> bool {
    let Scene { universe, snapshot, .. } = scene;
    let tuple = packet.tuple;
    let vip = universe.services.iter().any(|service| service.vip == tuple.dst);
    let mut reals = universe.services.iter().flat_map(|service| &service.reals);
    let nat =
        reals.any(|real| real.mode == Mode::Nat && universe.nodes[real.node].address == tuple.src);
    // Of IPv6 not all pieces tell the protocol.
    let protocols = if packet.is_v4() { [tuple.protocol; 2] } else { [TCP, UDP] };
    let mut tuples = protocols.map(|protocol| Tuple { protocol, ..tuple }).into_iter();
    let from_inside = tuples.any(|tuple| snapshot.once_ruled(universe, tuple).next().is_some());
    vip || nat || from_inside || snapshot.locals.contains_key(&tuple.dst)
}
