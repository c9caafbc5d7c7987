//! ICMP errors that arrive: what is about a packet of a session is brought to whom that came from,
//! about the packet that it sent; all else is counted.

use super::forward::{check_way, destination};
use super::owners::{clients_behind, clients_inside, of_port};
use super::session::{Direction, Session};
use super::{Checker, Owned, Scene, Violation, Way};
use crate::errors::{About, Flaw, Trouble};
use crate::frame::Buffer;
use crate::wire::{Addr, IcmpError, Outer, Packet, Tuple, frame_len, is_v4, read_error, write};
use sluice_director::path::{Verdict, Waiting};
use sluice_director::spec::{Mode, Orphans};
use sluice_director::{Frame, Reason};

/// How long a path MTU is believed (RFC 1191 6.3).
const BELIEVED_MS: u64 = 600_000;

/// What a worker learned of the path to a real server's end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    mtu: u16,
    at: u64,
}

/// The ways that a frame may have gone on.
fn way(verdict: Verdict, waiting: Option<Waiting>) -> Option<Way> {
    match verdict {
        Verdict::Tx(port) => Some(Way::Sent(port.0)),
        Verdict::Wait => Some(Way::Waits(waiting)),
        _ => None,
    }
}

/// How many ICMP errors of a worker's allowance a frame stands for: 0 or 1.
pub(super) fn sends(frame: &Buffer, verdict: Verdict) -> u64 {
    let tunnel = || frame.about.as_ref().is_some_and(|about| about.outer.is_some());
    u64::from(match verdict {
        Verdict::Answer(_, reason) => matches!(reason, Reason::TtlExpired | Reason::TooBig),
        Verdict::Tx(_) | Verdict::Fragment(..) | Verdict::Wait => tunnel(),
        Verdict::Drop(Reason::NoRoute) => tunnel(),
        _ => false,
    })
}

impl Checker {
    /// Judges what became of an ICMP error.
    pub(super) fn judge_error(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        about: &About,
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let counted = matches!(verdict, Verdict::Drop(Reason::IcmpError));
        let passed = verdict == Verdict::Kernel(Reason::NotOurs);
        let result = match about.flaw {
            Flaw::Kind if passed => Ok(()),
            Flaw::Elsewhere if passed || counted => Ok(()),
            Flaw::Short if about.outer.is_none() && (passed || counted) => Ok(()),
            Flaw::Kind | Flaw::Elsewhere => Err(format!("{verdict:?} for nonsense")),
            // The header around a packet is enough to learn from.
            _ if about.outer.is_some() => self.judge_outer(scene, frame, about, (verdict, waiting)),
            Flaw::Short => Err(format!("{verdict:?} for nonsense")),
            _ => self.judge_quote(scene, frame, about, (verdict, waiting)),
        };
        result.map_err(|violation| format!("an ICMP error, {about:?}: {violation}"))
    }

    fn judge_quote(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        about: &About,
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let Scene { universe, snapshot, .. } = scene;
        let answer = about.quoted.tuple.reversed();
        let owner = of_port(scene, answer);
        if let Verdict::HandOff(to) = verdict {
            return self.error_handed(scene, (frame, answer), owner, to);
        }
        if owner.is_some() {
            return Err(format!("{verdict:?} at worker {}, not {owner:?}", scene.worker));
        }
        // What belongs to nobody is handed on and on before all workers agree on that.
        let lost = verdict == Verdict::Drop(Reason::HandOffLoop) && !scene.agreed;
        let Some((id, direction)) = self.find(scene, answer) else {
            let at = (answer.dst, answer.dport);
            let service = snapshot.service_at(universe, answer.protocol, at).is_some();
            let pool = snapshot.locals.get(&answer.dst).map(|(pool, _)| &universe.pools[*pool]);
            let local = pool.is_some_and(|pool| pool.owner(answer.dport, 1).is_some());
            let right = if service || local {
                Verdict::Drop(Reason::IcmpError)
            } else {
                Verdict::Kernel(Reason::NotOurs)
            };
            let told = || format!("{verdict:?}, not {right:?}");
            return (verdict == right || lost).then_some(()).ok_or_else(told);
        };
        let session = self.sessions[id as usize].clone();
        let Some(new) = session.becomes(direction) else {
            // It leads to nobody whom the model knows.
            return Ok(());
        };
        let to = destination(scene, &session, direction);
        let next = snapshot.next(universe, to);
        // Nobody is there any more to tell, or who has something to be told.
        let gone = session
            .real
            .is_some_and(|real| snapshot.rule(universe, session.service, real) != Orphans::Keep);
        let nobody = [Verdict::Drop(Reason::IcmpError), Verdict::Kernel(Reason::NotOurs)];
        if gone && (nobody.contains(&verdict) || lost) {
            return Ok(());
        }
        if about.flaw == Flaw::Checksum {
            let right = verdict == Verdict::Drop(Reason::BadL4Checksum);
            return if right { Ok(()) } else { Err(format!("{verdict:?} for a wrong checksum")) };
        }
        match (verdict, way(verdict, waiting)) {
            (Verdict::Drop(Reason::TtlExpired), _) if about.ttl <= 1 => Ok(()),
            (Verdict::Drop(Reason::NoRoute), _) if next.is_none() => Ok(()),
            (Verdict::Drop(Reason::TooBig), _) => {
                let mtu = next.map_or(0, |(link, ..)| universe.links[link].mtu);
                let most = self.path_mtu(scene, &session, direction, mtu);
                let shim = session.shim(universe).filter(|_| direction == Direction::Inbound);
                let grows = shim
                    .map_or(0, |shim| usize::from(shim.length()) + if is_v4(to) { 20 } else { 40 });
                let length = about.quote + if is_v4(about.to) { 28 } else { 48 } + grows;
                if length > usize::from(most) { Ok(()) } else { Err("not too big".into()) }
            }
            (_, Some(way)) if about.ttl > 1 => {
                self.relayed(scene, frame, about, ((&session, direction), new, to, way))
            }
            _ => Err(format!("{verdict:?}; its session: {session:?}")),
        }
    }

    /// An error goes on to whom it is for.
    fn relayed(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        about: &About,
        ((session, direction), new, to, way): ((&Session, Direction), Tuple, Addr, Way),
    ) -> Result<(), Violation> {
        let error = read_error(frame.bytes())?;
        let past = session.answers_past();
        // Of whoever keeps its address in that direction, the router's own says more.
        let keeps = match direction {
            Direction::Inbound => session.mode == Mode::Nat,
            Direction::Outbound => session.mode == Mode::Snat,
        };
        let teller = if past || keeps { about.from } else { new.src };
        let Packet { tuple, ttl, .. } = error.seen.packet;
        let ends = (teller, if past { about.to } else { new.dst });
        if ((tuple.src, tuple.dst), ttl) != (ends, about.ttl - 1) {
            return Err(format!("goes as {} with {ttl} left", error.seen.packet));
        }
        let shim = session.shim(scene.universe).filter(|_| direction == Direction::Inbound);
        if error.seen.outer.map(|outer| outer.shim) != shim {
            return Err(format!("goes in {:?}", error.seen.outer));
        }
        check_message(about, &error, is_v4(new.dst))?;
        let packet = Packet { tuple: new.reversed(), ..about.quoted };
        let quote = &frame.bytes()[error.quote.0..error.quote.1];
        check_quote(about, &packet, quote)?;
        let mtu = scene.snapshot.next(scene.universe, to).map_or(0, |(link, ..)| {
            self.path_mtu(scene, session, direction, scene.universe.links[link].mtu)
        });
        check_way(scene, &error.seen, (to, mtu), way)?;
        frame.seen = error.seen;
        if matches!(about.trouble, Trouble::TooBig(_)) {
            frame.told = Some(error.rest as u16);
            frame.packet.tuple = packet.tuple;
        }
        Ok(())
    }

    /// An error that was handed to another worker: to one that the answer would go to.
    fn error_handed(
        &mut self,
        scene: Scene<'_>,
        (frame, answer): (&mut Buffer, Tuple),
        owner: Option<u16>,
        to: u16,
    ) -> Result<(), Violation> {
        let Scene { universe, snapshot, .. } = scene;
        frame.handed += 1;
        if scene.agreed && u16::from(frame.handed) > universe.workers {
            return Err("handed on and on".into());
        }
        if owner.is_some() && owner != Some(to) || to == scene.worker {
            return Err(format!("handed to worker {to}, not {owner:?}"));
        }
        if owner.is_some() {
            return Ok(());
        }
        let Tuple { src, sport, dst, dport, protocol } = answer;
        let services = snapshot.owned_at(universe, protocol, (dst, dport));
        let mut clients: Vec<Owned> =
            services.map(|at| (at, universe.services[at].client((src, sport)))).collect();
        if clients.is_empty() {
            clients = clients_behind(universe, answer);
            clients.extend(clients_inside(scene, answer));
        }
        let known = |client: &Owned| self.owners.get(client).is_none_or(|at| *at == to);
        match clients[..] {
            _ if to == frame.home && !clients.is_empty() => Ok(()),
            [client] => self.owns(to, client),
            _ if clients.iter().any(known) => Ok(()),
            _ => Err(format!("handed to worker {to}")),
        }
    }

    /// An error about a packet in a tunnel: the director sent it, and its client is told.
    fn judge_outer(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        about: &About,
        (verdict, waiting): (Verdict, Option<Waiting>),
    ) -> Result<(), Violation> {
        let Some(outer) = about.outer else { return Ok(()) };
        if about.flaw == Flaw::Checksum {
            let right = verdict == Verdict::Drop(Reason::BadL4Checksum);
            return if right { Ok(()) } else { Err(format!("{verdict:?} for a wrong checksum")) };
        }
        let known = self.is_inside(scene, about, outer.dst);
        let clear = about.flaw != Flaw::Short;
        if clear && !known {
            return self.outer_of_nobody(scene, frame, about, verdict);
        }
        let message = match about.trouble {
            Trouble::TooBig(mtu) => self.learn(scene, about, (&outer, mtu)),
            _ => Some(Trouble::Host.message(!about.quoted.is_v4())),
        };
        let Some(way) = way(verdict, waiting) else {
            let ahead = self.errors_ahead;
            let may = self.errors[usize::from(scene.worker)].allows_beside(scene.now, ahead);
            let silent = message.is_none() || !may || !clear;
            let right = verdict == Verdict::Drop(Reason::IcmpError) && silent;
            let to = about.quoted.tuple.src;
            let lost = verdict == Verdict::Drop(Reason::NoRoute)
                && scene.snapshot.next(scene.universe, to).is_none();
            if lost {
                self.errors[usize::from(scene.worker)].take();
            }
            return if right || lost { Ok(()) } else { Err(format!("{verdict:?}")) };
        };
        let errors = &mut self.errors[usize::from(scene.worker)];
        if !errors.allows(scene.now) {
            return Err("more ICMP errors than are allowed in a second".into());
        }
        errors.take();
        let error = read_error(frame.bytes())?;
        let Packet { tuple, ttl, .. } = error.seen.packet;
        let Tuple { src, dst, .. } = about.quoted.tuple;
        let right = (tuple.src, tuple.dst, ttl) == (dst, src, 64)
            && Some((error.kind, error.code, error.rest)) == message
            && error.seen.outer.is_none();
        if !right {
            return Err(format!("its sender is told {error:?}, not {message:?}"));
        }
        let quote = &frame.bytes()[error.quote.0..error.quote.1];
        let inner = about.inner();
        // Behind an invented port, which may be one of a session by chance, is what was there.
        let ports = if about.quoted.is_v4() { 24 } else { 44 };
        let same = if about.flaw == Flaw::Invented { ports } else { quote.len() };
        if quote.len() < 28 || !inner.starts_with(&quote[..same.min(quote.len())]) {
            return Err("its sender is told of another packet".into());
        }
        check_way(scene, &error.seen, (src, u16::MAX), way)?;
        frame.seen = error.seen;
        if let Trouble::TooBig(_) = about.trouble {
            frame.told = Some(error.rest as u16);
            frame.packet.tuple = about.quoted.tuple;
        }
        Ok(())
    }

    /// A router said how much the path of a tunnel takes. Gives what the packet's sender must be
    /// told, if anything.
    fn learn(
        &mut self,
        scene: Scene<'_>,
        about: &About,
        (outer, told): (&Outer, u16),
    ) -> Option<(u8, u8, u32)> {
        let end = outer.dst;
        if told >= about.total {
            return None;
        }
        let unproven = about.flaw == Flaw::Short;
        if unproven && !is_v4(end) {
            return None;
        }
        let least = match (is_v4(end), unproven) {
            (true, false) => 576,
            (true, true) => 1300,
            (false, _) => 1280,
        };
        let key = (scene.worker, end);
        let before = self.learned.get(&key).filter(|known| scene.now - known.at < BELIEVED_MS);
        let mtu = told.max(least).min(before.map_or(u16::MAX, |known| known.mtu));
        self.learned.insert(key, Learned { mtu, at: scene.now });
        let room = told - outer.length();
        let quoted = &about.quoted;
        let cut = if quoted.is_v4() { !quoted.df } else { quoted.length() <= 1280 };
        let room = if quoted.is_v4() { room } else { room.max(1280) };
        (!cut).then(|| Trouble::TooBig(room).message(!quoted.is_v4()))
    }

    /// Whether a packet in a tunnel to `end` is one of a session of this worker's.
    fn is_inside(&self, scene: Scene<'_>, about: &About, end: Addr) -> bool {
        let found = self.find(scene, about.quoted.tuple);
        found.is_some_and(|(id, direction)| {
            let session = &self.sessions[id as usize];
            session.shim(scene.universe).is_some()
                && direction == Direction::Inbound
                && destination(scene, session, direction) == end
        })
    }

    /// An error about a packet in a tunnel that this worker has no session of: it teaches nothing,
    /// nobody is told, and the other workers are asked once.
    fn outer_of_nobody(
        &self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        about: &About,
        verdict: Verdict,
    ) -> Result<(), Violation> {
        let small = matches!(about.trouble, Trouble::TooBig(told) if told >= about.total);
        let right = match verdict {
            Verdict::HandOff(to) => {
                frame.handed += 1;
                let on_and_on = scene.agreed && u16::from(frame.handed) >= scene.universe.workers;
                !small && !on_and_on && to != scene.worker && to != frame.home
            }
            Verdict::Drop(Reason::IcmpError) => true,
            Verdict::Drop(Reason::HandOffLoop) => !scene.agreed,
            _ => false,
        };
        if right { Ok(()) } else { Err(format!("{verdict:?} for a packet of no session")) }
    }

    /// The most that a session's packets may be long where the link takes `mtu`, with what is put
    /// around them.
    pub(super) fn path_mtu(
        &self,
        scene: Scene<'_>,
        session: &Session,
        direction: Direction,
        mtu: u16,
    ) -> u16 {
        if session.shim(scene.universe).is_none() || direction == Direction::Outbound {
            return mtu;
        }
        self.tunnel_mtu(scene, destination(scene, session, direction), mtu)
    }

    /// The same for a tunnel to an address.
    pub(super) fn tunnel_mtu(&self, scene: Scene<'_>, to: Addr, mtu: u16) -> u16 {
        let known = self.learned.get(&(scene.worker, to));
        let fresh = known.filter(|known| scene.now - known.at < BELIEVED_MS);
        fresh.map_or(mtu, |known| mtu.min(known.mtu))
    }
}

/// Whether an error still says what it said, in its new reader's IP version (RFC 7915 4.2, 5.2).
fn check_message(about: &About, error: &IcmpError, v4: bool) -> Result<(), Violation> {
    let now = (error.kind, error.code, error.rest);
    let crosses = is_v4(about.to) != v4;
    let right = match about.trouble {
        Trouble::TooBig(mtu) if crosses => {
            let (kind, code, rest) = Trouble::TooBig(mtu).message(!v4);
            let most = if v4 { rest - 20 } else { rest.max(1260) + 20 };
            // The links on either side may take less.
            (error.kind, error.code) == (kind, code) && (576..=most).contains(&error.rest)
        }
        // RFC 7915 4.2: there is no route, as far as the host is concerned.
        Trouble::Host if crosses && !v4 => now == (1, 0, 0),
        trouble => now == trouble.message(!v4),
    };
    if right { Ok(()) } else { Err(format!("says {now:?}")) }
}

/// Whether an error quotes a packet, as far as it was quoted.
fn check_quote(about: &About, packet: &Packet, quote: &[u8]) -> Result<(), Violation> {
    let mut frame = vec![0; frame_len(packet)];
    write(packet, ([0; 6], [0; 6]), &mut frame);
    let right = &frame[14..];
    let (v4, before) = (packet.is_v4(), about.quoted.is_v4());
    if v4 == before {
        let len = about.quote.min(right.len());
        let same = quote.get(..len) == right.get(..len) && quote.len() == len;
        return if same { Ok(()) } else { Err(format!("is not about {packet}")) };
    }
    // Of a header that was made anew who it is from and to; and all that is behind it.
    let (at, ends) = if v4 { (20, 12..20) } else { (40, 8..40) };
    let header = quote.get(ends.clone()) == right.get(ends);
    let len = quote.len().min(right.len());
    let shown = about.quote.saturating_sub(if before { 20 } else { 40 });
    let whole = len >= at + shown.min(8);
    // A checksum that is none has no like.
    let body = !about.quoted.checksum || quote.get(at..len) == right.get(at..len);
    if header && whole && body { Ok(()) } else { Err(format!("is not about {packet}")) }
}
