//! The checker: a model of what a director must do, which sees each frame as it goes in, and what
//! became of it.
//!
//! The model is written from the description of the behaviour and keeps its own sessions; it asks
//! the director's structures nothing. Where the director has a choice (which real server, which
//! local port) the model takes the choice from the first packet, holds it against the rules, and
//! from then on holds the director to it.

mod allowance;
mod audit;
mod choice;
mod counts;
mod errors;
mod forward;
mod linger;
mod mapping;
mod owners;
mod pieces;
mod refuse;
mod room;
mod session;
mod spread;
mod told;

pub(crate) use spread::Expected;

use crate::frame::{Buffer, Kind};
use crate::status::Snapshot;
use crate::universe::Universe;
use crate::wire::{Addr, Packet, Tuple};
use allowance::Allowance;
use choice::{Hashed, Remembered, Turns};
use counts::Counts;
use rustc_hash::{FxBuildHasher, FxHashMap};
use session::{Direction, Session, State};
use sluice_director::Reason;
use sluice_director::path::{Verdict, Waiting};
use sluice_director::spec::Orphans;
use std::collections::VecDeque;

/// What is broken, in one sentence.
pub(crate) type Violation = String;

/// Where and when a frame is judged.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub universe: &'a Universe,
    pub snapshot: &'a Snapshot,
    pub worker: u16,
    pub now: u64,
    /// Whether all workers run with the same plan.
    pub agreed: bool,
}

/// What one worker must have counted.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub reasons: [u64; Reason::COUNT],
    pub handed_off: u64,
    pub created: u64,
    pub closed: u64,
    /// Frames that were put into turns.
    pub turned: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { reasons: [0; Reason::COUNT], handed_off: 0, created: 0, closed: 0, turned: 0 }
    }
}

/// What a packet meets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lookup {
    /// Its session.
    found: Option<(u32, Direction)>,
    /// It had a session whose real server is gone, and which ended with that.
    gone: bool,
    /// And came from the client.
    inbound: bool,
    /// It had one, and may open another from the middle of a stream.
    mid_stream: bool,
}

/// How a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// It was sent by a port.
    Sent(u16),
    /// It is to be cut to an MTU, and sent by a port.
    Cut(u16, u16),
    /// It waits for a neighbour.
    Waits(Option<Waiting>),
}

/// A service, and what of a client's endpoint says which worker it belongs to.
type Owned = (usize, (Addr, u16));

/// A tuple as it arrives at a worker.
type Key = (u16, Tuple);

/// A worker, and a real server's endpoint and protocol with a local address towards it.
type Place = (u16, u8, (Addr, u16), Addr);

/// The model.
pub(crate) struct Checker {
    sessions: Vec<Session>,
    free: Vec<u32>,
    by_key: FxHashMap<Key, (u32, Direction)>,
    /// Sessions that are over and may still be met.
    lingering: FxHashMap<Key, (u32, Direction)>,
    /// Entries that may still be in the director, by worker.
    entries: Vec<u32>,
    /// Local ports in use.
    used: FxHashMap<Place, u32>,
    /// Workers that own clients.
    owners: FxHashMap<Owned, u16>,
    turns: FxHashMap<(u16, usize), Turns>,
    /// Workers and real servers of services towards which no local port was found lately.
    dry: FxHashMap<(u16, usize, usize), ()>,
    /// Real servers that hashing gave, by what it depends on.
    hashed: FxHashMap<Hashed, usize>,
    /// Sessions whose real server no packet showed yet.
    pub ghosts: Vec<u32>,
    /// Where clients went last, by worker and service.
    remembered: FxHashMap<(u16, usize, Addr), Remembered>,
    /// New sessions that services may still have, by worker.
    rates: FxHashMap<(u16, usize), (u32, Allowance)>,
    pub tally: Vec<Tally>,
    counts: Counts,
    looked: u64,
    /// ICMP errors that workers may still send.
    errors: Vec<Allowance>,
    /// Refused connections that they may still answer.
    refusals: Vec<Allowance>,
    /// Those that the rest of the burst sends: a director need not go by the order of frames.
    errors_ahead: u64,
    pieces: pieces::Pieces,
    /// For what a packet in pieces would be as a whole.
    scratch: Vec<u8>,
    /// Path MTUs of tunnels, by worker and far end.
    learned: FxHashMap<(u16, Addr), errors::Learned>,
    /// The last frame that left of what arrives at a worker.
    left: FxHashMap<Key, u64>,
    /// What was dealt of that and has not come out.
    away: FxHashMap<Key, VecDeque<u64>>,
    /// By worker.
    passed: Vec<spread::Passed>,
    /// What hosts inside have outside.
    pub mappings: mapping::Mappings,
}

impl Checker {
    pub fn new(universe: &Universe) -> Self {
        let workers = usize::from(universe.workers);
        Self {
            sessions: Vec::with_capacity(512),
            free: Vec::new(),
            by_key: FxHashMap::with_capacity_and_hasher(1024, FxBuildHasher),
            lingering: FxHashMap::default(),
            entries: vec![0; workers],
            used: FxHashMap::default(),
            owners: FxHashMap::default(),
            turns: FxHashMap::default(),
            dry: FxHashMap::default(),
            hashed: FxHashMap::default(),
            ghosts: Vec::new(),
            remembered: FxHashMap::default(),
            rates: FxHashMap::default(),
            tally: vec![Tally::default(); workers],
            counts: Counts::new(universe),
            looked: 0,
            errors_ahead: 0,
            errors: vec![Allowance::new(universe.errors_per_s); workers],
            refusals: vec![Allowance::new(universe.errors_per_s); workers],
            pieces: pieces::Pieces::default(),
            scratch: Vec::new(),
            learned: FxHashMap::default(),
            left: FxHashMap::default(),
            away: FxHashMap::default(),
            passed: vec![spread::Passed::default(); workers],
            mappings: mapping::Mappings::default(),
        }
    }

    /// What a worker must have counted.
    pub fn tally(&mut self, worker: u16) -> &mut Tally {
        &mut self.tally[usize::from(worker)]
    }

    /// A burst's frames will be judged.
    pub fn foresee(&mut self, burst: &[Buffer], verdicts: &[Verdict]) {
        let all = burst.iter().zip(verdicts);
        self.errors_ahead = all.map(|(frame, verdict)| errors::sends(frame, *verdict)).sum();
    }

    /// Judges what became of a frame.
    pub fn judge(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        verdict: Verdict,
        waiting: Option<Waiting>,
    ) -> Result<(), Violation> {
        self.errors_ahead -= errors::sends(frame, verdict);
        let tally = self.tally(scene.worker);
        tally.turned += 1;
        match verdict {
            Verdict::Kernel(reason) | Verdict::Drop(reason) | Verdict::Answer(_, reason) => {
                tally.reasons[reason as usize] += 1;
            }
            Verdict::HandOff(_) => tally.handed_off += 1,
            Verdict::Tx(_) | Verdict::Wait | Verdict::Fragment(..) | Verdict::Park(_) => {}
        }
        if let Some(place) = frame.place {
            return self.judge_piece(scene, frame, place, (verdict, waiting));
        }
        if let Some(about) = frame.about.take() {
            let judged = self.judge_error(scene, frame, &about, (verdict, waiting));
            frame.about = Some(about);
            return judged;
        }
        let foretold = match frame.kind {
            Kind::Whole | Kind::Payload => return self.judge_whole(scene, frame, verdict, waiting),
            Kind::Noticed => matches!(verdict, Verdict::Drop(Reason::BadL4Checksum)),
            Kind::Header => matches!(verdict, Verdict::Drop(Reason::BadIpChecksum)),
            Kind::Cut => {
                use Reason::{BadIpLength, BadL4Header, Truncated};
                matches!(verdict, Verdict::Drop(Truncated | BadIpLength | BadL4Header))
            }
            Kind::Foreign => verdict == Verdict::Kernel(Reason::NotIp),
            Kind::Group => verdict == Verdict::Kernel(Reason::Group),
        };
        if foretold { Ok(()) } else { Err(format!("{verdict:?} for a frame {:?}", frame.kind)) }
    }

    fn judge_whole(
        &mut self,
        scene: Scene<'_>,
        frame: &mut Buffer,
        verdict: Verdict,
        waiting: Option<Waiting>,
    ) -> Result<(), Violation> {
        let packet = frame.packet;
        let owner = owners::of_port(scene, packet.tuple);
        if let Verdict::HandOff(to) = verdict {
            return self.handed(scene, frame, owner, to);
        }
        if let Some(owner) = owner {
            return Err(format!("{verdict:?} at worker {}, not {owner}", scene.worker));
        }
        let mut lookup = self.look_up(scene, &packet);
        lookup.mid_stream |= frame.resumes;
        lookup.found = lookup.found.or_else(|| self.met(scene, frame, &lookup, verdict));
        match verdict {
            Verdict::Tx(port) => self.forwarded(scene, frame, lookup, Way::Sent(port.0)),
            Verdict::Fragment(port, mtu) => {
                self.forwarded(scene, frame, lookup, Way::Cut(port.0, mtu))
            }
            Verdict::Wait => self.forwarded(scene, frame, lookup, Way::Waits(waiting)),
            Verdict::Answer(port, reason) => self.answered(scene, frame, lookup, (port.0, reason)),
            Verdict::Park(_) => Err("kept as a fragment".into()),
            Verdict::Kernel(reason) => self.passed(scene, frame, lookup, reason),
            Verdict::Drop(reason) => self.dropped(scene, frame, lookup, reason),
            Verdict::HandOff(_) => Ok(()),
        }
    }

    /// What a packet meets: its session if that goes on. A session that is over but for this
    /// packet is gone afterwards.
    fn look_up(&mut self, scene: Scene<'_>, packet: &Packet) -> Lookup {
        let mut lookup = Lookup::default();
        let Some((id, direction)) = self.find(scene, packet.tuple) else { return lookup };
        let session = &self.sessions[id as usize];
        let inbound = direction == Direction::Inbound;
        let rule = session.real.map_or(Orphans::Keep, |real| {
            scene.snapshot.rule(scene.universe, session.service, real)
        });
        if !(inbound && session.is_reused_by(packet, scene.now)) {
            match rule {
                Orphans::Keep => {
                    lookup.found = Some((id, direction));
                    return lookup;
                }
                // It is the client that is to hear of it.
                _ if !inbound => {
                    lookup.gone = true;
                    return lookup;
                }
                Orphans::Reschedule => lookup.mid_stream = true,
                Orphans::Reset => lookup.gone = true,
            }
        }
        lookup.inbound = inbound;
        self.tally(scene.worker).closed += 1;
        self.remove(id);
        lookup
    }

    /// The live session that packets with a tuple belong to.
    fn find(&self, scene: Scene<'_>, tuple: Tuple) -> Option<(u32, Direction)> {
        let found = self.by_key.get(&(scene.worker, tuple)).copied();
        found.filter(|(id, _)| !self.sessions[*id as usize].is_over(scene.universe, scene.now))
    }

    /// Removes a session.
    fn remove(&mut self, id: u32) {
        self.leave(id);
        self.mappings.let_go(id, &self.sessions[id as usize]);
        self.free.push(id);
    }

    /// A session counts no longer, and no packet has it.
    fn leave(&mut self, id: u32) {
        let session = &mut self.sessions[id as usize];
        session.vacant = true;
        self.counts.left(session);
        let (worker, inbound, outbound) = (session.worker, session.inbound, session.outbound());
        let place = session.place();
        if self.by_key.get(&(worker, inbound)) == Some(&(id, Direction::Inbound)) {
            self.by_key.remove(&(worker, inbound));
        }
        if let Some(outbound) = outbound {
            self.by_key.remove(&(worker, outbound));
        }
        if let Some(count) = place.and_then(|place| self.used.get_mut(&place)) {
            *count -= 1;
        }
        self.entries[usize::from(worker)] -= 1;
    }

    /// Adds a session.
    fn insert(&mut self, session: Session) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(session.clone());
            (self.sessions.len() - 1) as u32
        });
        let worker = session.worker;
        if let Some((ended, _)) = self.lingering.get(&(worker, session.inbound)).copied() {
            self.forget(ended);
        }
        if session.state != State::OnePacket {
            self.by_key.insert((worker, session.inbound), (id, Direction::Inbound));
        }
        self.entries[usize::from(worker)] += 1;
        self.counts.came(&session);
        self.sessions[id as usize] = session;
        self.settle(id);
        id
    }

    /// Notes where a session leads, as soon as that is known.
    fn settle(&mut self, id: u32) {
        let session = self.sessions[id as usize].clone();
        let worker = session.worker;
        if let Some(outbound) = session.outbound() {
            if let Some((ended, _)) = self.lingering.get(&(worker, outbound)).copied() {
                self.forget(ended);
            }
            self.by_key.insert((worker, outbound), (id, Direction::Outbound));
        }
        if let Some(place) = session.place() {
            *self.used.entry(place).or_default() += 1;
        }
    }
}
