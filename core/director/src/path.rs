//! The path of a burst: rx → parse → find → track (misses: admit) → rewrite → tx.
//!
//! A turn takes up to [`BURST`] frames and gives each a verdict. There are two tiers, and nothing
//! between them:
//!
//! 1. The **vector path** ([`group`]) takes groups of eight packets with a mask of lanes. Its
//!    stages run a few groups behind each other ([`engine`]), and each prefetches what the next one
//!    reads. It takes untagged TCP and UDP of existing sessions by `fnat`, `nat`, `dr` and `ipip`.
//! 2. The **general path** ([`general`], [`follow`], [`admit`], [`answer`] and on) takes one packet
//!    in plain early-return code, and knows everything.
//!
//! A packet goes from the first to the second if it has tags, IP options, extension headers or
//! fragments, if its transport is not TCP or UDP, if no session is found for it or its session has
//! expired, if it is translated between families or by source NAT, if its client is told to the
//! real server, if its TTL ends, if its next hop is unknown, or if it exceeds the MTU.
//!
//! What is found ahead is a hint; tracking goes through the lanes in the order of arrival,
//! verifies each and acts. A burst gives exactly what its packets one at a time would give (a
//! property test holds it): lanes behind a packet that changed their session are looked up again.

mod admit;
mod adopt;
mod answer;
mod burst;
mod changes;
mod client_address;
mod cut;
mod elephants;
mod engine;
mod errors;
mod evict;
mod exception;
mod follow;
mod fragments;
mod gateway;
mod general;
mod group;
mod hairpin;
mod half_open;
mod handoff;
mod import;
mod inspect;
mod kill;
mod leaving;
mod linger;
mod lookup;
mod nat64;
mod open;
mod others;
mod owners;
mod parking;
mod parse;
mod persist;
mod picks;
mod probe;
mod quote;
mod rate;
mod repeats;
mod restore;
mod retell;
mod rewrite;
mod shared;
mod snat;
mod source_route;
mod spread;
mod super_packet;
mod sweep;
mod table;
mod trace;
mod tunnel;
mod turn;

#[cfg(test)]
mod tests;

pub use changes::{Change, Portable};
pub use elephants::{Elephant, PLACES as ELEPHANTS};
pub use import::{Imported, Importer, Imports};
pub use inspect::{SessionFilter, SessionInfo};
pub use owners::{Owners, Round};
pub use parking::{Parked, Parking};
pub use probe::{Probe, Stage, Unprobed};
pub use restore::{Batch, Former, Restored, SLOT_LAYOUT};
pub(crate) use rewrite::{extended as rewrite_extended, v4 as rewrite_v4};
pub use spread::{Dealt, FlowMatch, FlowName, FlowRewrite, NotSpreadable};
pub use trace::{Headers, PacketView, SeenSession};

use crate::counters::Counters;
use crate::family::{Ipv4, Ipv6};
use crate::fib::{Fib, LinkId, PortId};
use crate::frame::Frame;
use crate::hash::Seed;
use crate::plan::{Plan, RealId};
use crate::reason::Reason;
use crate::session::SessionOf;
use crate::time::Time;
use engine::Engine;
use others::Others;
use picks::Picks;
use shared::Shared;
pub use sluice_lanes::level::Level;
pub use sluice_lanes::part::Marked;
pub use sluice_table::{MemoryFile, PagePolicy, RegionError};
use std::net::IpAddr;
use turn::Turn;

/// The most frames of one turn.
pub const BURST: usize = 256;

/// What shall happen to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it by this port.
    Tx(PortId),
    /// Send it by this port: it has become the director's answer to the packet that it was, for
    /// this reason.
    Answer(PortId, Reason),
    /// Send it by this port in fragments of at most so many bytes of IP packet: it is complete, but
    /// larger than the way allows and may be cut (see `sluice_wire::fragment`).
    Fragment(PortId, u16),
    /// Keep it for a moment and turn it again: it is a later fragment whose first did not come
    /// yet. The number names the datagram: see [`Path::joined`].
    Park(u32),
    /// Give it to the kernel.
    Kernel(Reason),
    /// Give it to the worker with this number, with what [`Path::round`] says.
    HandOff(u16),
    /// Hold it until its next hop is known: see [`Path::waiting`].
    Wait,
    /// Drop it.
    Drop(Reason),
}

impl Verdict {
    /// The same for a frame that has to be cut, if it has.
    fn in_pieces(self, cut: Option<u16>) -> Self {
        match (self, cut) {
            (Self::Tx(port), Some(mtu)) => Self::Fragment(port, mtu),
            (other, _) => other,
        }
    }
}

/// A frame that is complete but for its link-layer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its lane in the turn.
    pub lane: usize,
    /// The link it will leave by.
    pub link: LinkId,
    /// The neighbour whose MAC is wanted.
    pub next: IpAddr,
    /// The most bytes of IP packet that the way allows, if it is larger and has to be cut.
    pub cut: Option<u16>,
}

/// The published state that a turn is run against.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The compiled configuration.
    pub plan: &'a Plan,
    /// Routes and neighbours.
    pub fib: &'a Fib,
}

/// How a path is made.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Number of the worker that owns it.
    pub worker: u16,
    /// Number of workers.
    pub workers: u16,
    /// Capacity of its session table.
    pub sessions: u32,
    /// Datagrams in fragments that are followed at a time, for either table.
    pub fragments: u32,
    /// Secret for the session hash; the same seed gives the same behaviour.
    pub seed: u64,
    /// Pages of its tables.
    pub pages: PagePolicy,
}

/// One worker's packet path: its sessions, its counters, its place in every round robin.
pub struct Path {
    shared: Shared,
    v4: Engine<Ipv4>,
    extended: Engine<Ipv6>,
    config: PathConfig,
    files: Option<TableFiles>,
}

/// Files for the sessions of a path. They become as large as the tables, and outlive the process.
#[derive(Debug)]
pub struct TableFiles {
    /// For the IPv4 table.
    pub narrow: MemoryFile,
    /// For the extended one, once it is needed.
    pub extended: MemoryFile,
}

/// Bytes of the slots of a path's two tables, the IPv4 one and the extended one, for so many
/// sessions.
pub fn table_bytes(sessions: u32) -> [u64; 2] {
    let slots = u64::from(sessions.max(1)) + u64::from(linger::Linger::most(sessions));
    [size_of::<SessionOf<Ipv4>>(), size_of::<SessionOf<Ipv6>>()].map(|size| slots * size as u64)
}

impl Path {
    /// A path with empty tables.
    pub fn new(config: &PathConfig) -> Result<Self, RegionError> {
        Self::in_files(config, None)
    }

    /// The same with its sessions in files, if there is room for them there.
    pub fn in_files(config: &PathConfig, files: Option<TableFiles>) -> Result<Self, RegionError> {
        let shared = Shared::new(config);
        let room = (config.sessions, config.fragments);
        let file = files.as_ref().map(|files| &files.narrow);
        let v4 = Engine::new(room, Seed::new(config.seed), config.pages, file)?;
        // Made when a plan first needs it.
        let extended = Engine::new((1, 1), Seed::new(config.seed), PagePolicy::Ordinary, None)?;
        Ok(Self { shared, v4, extended, config: *config, files })
    }

    /// Whether all sessions lie in files and outlive the process.
    pub fn is_kept(&self) -> bool {
        let extended = self.extended.table.sessions.is_kept();
        let used = self.extended.table.sessions.slab().capacity() >= self.config.sessions;
        self.v4.table.sessions.is_kept() && (extended || !used)
    }

    /// Uses these instructions instead of the best that the processor has: to compare them.
    #[must_use]
    pub fn at_level(mut self, level: Level) -> Self {
        (self.v4.level, self.extended.level) = (level, level);
        self
    }

    /// Sends all packets down the general path: to compare it with the vector path.
    #[must_use]
    pub fn without_vector_path(mut self) -> Self {
        (self.v4.vector, self.extended.vector) = (false, false);
        self
    }

    /// Begins to give out local ports at this place of each pool, modulo its size; to be called
    /// before any plan is adopted. A director that was restarted begins elsewhere, so that it does
    /// not meet at once the ports that real servers still hold in TIME_WAIT.
    pub fn begin_ports_at(&mut self, place: u32) {
        self.shared.ports.from = place;
    }

    /// Runs one burst of at most [`BURST`] frames that `port` received, and says in `verdicts`,
    /// which is as long, what shall happen to each. Frames to be sent or held are rewritten.
    ///
    /// # Panics
    /// When `frames` is longer than [`BURST`] or `verdicts` shorter than `frames`.
    pub fn turn<F: Frame>(
        &mut self,
        view: View<'_>,
        now: Time,
        port: PortId,
        frames: &mut [F],
        verdicts: &mut [Verdict],
    ) {
        self.turn_handed(view, now, port, (frames, &[]), verdicts);
    }

    /// The same for a burst that ends in frames that other workers have handed over, each with
    /// what [`Path::round`] said of it there.
    ///
    /// # Panics
    /// As [`Path::turn`], and when `rounds` is longer than `frames`.
    pub fn turn_handed<F: Frame>(
        &mut self,
        view: View<'_>,
        now: Time,
        port: PortId,
        handed: (&mut [F], &[Round]),
        verdicts: &mut [Verdict],
    ) {
        self.turn_probed(view, now, port, handed, (verdicts, &mut Unprobed));
    }

    /// The same, telling a probe what is done when.
    ///
    /// # Panics
    /// As [`Path::turn_handed`].
    pub fn turn_probed<F: Frame, T: Probe>(
        &mut self,
        view: View<'_>,
        now: Time,
        port: PortId,
        (frames, rounds): (&mut [F], &[Round]),
        (verdicts, probe): (&mut [Verdict], &mut T),
    ) {
        assert!(frames.len() <= BURST && verdicts.len() >= frames.len());
        self.shared.begin_rounds(frames.len(), rounds);
        self.shared.scratch.waiting.clear();
        self.shared.scratch.deferred.clear();
        self.shared.scratch.joined.clear();
        self.shared.now = now;
        self.shared.scratch.macs = *view.fib.own_macs(port);
        // What comes together is alike: one look says that the IPv4 table has nothing of it.
        if frames.iter().all(parse::is_ipv6) {
            self.turn_extended((view, now, port), frames.len(), (frames, verdicts), probe);
        } else {
            let turn =
                Turn { view, now, port, others: Others::Extended(&self.extended.table.sessions) };
            self.v4.turn(&mut self.shared, turn, frames.len(), (frames, verdicts), probe);
            let mut picks = std::mem::take(&mut self.shared.scratch.deferred);
            if !picks.is_empty() {
                // Those that were parsed as its own are ahead of those that the other gave up.
                picks.sort_unstable();
                self.turn_extended((view, now, port), picks.as_slice(), (frames, verdicts), probe);
                // The caller takes them in the order of their frames.
                self.shared.scratch.waiting.sort_unstable_by_key(|waiting| waiting.lane);
            }
        }
        if !rounds.is_empty() {
            self.shared.end_rounds(verdicts);
        }
        let verdicts = &verdicts[..frames.len()];
        self.shared.scratch.leaves_by = leaving::by_one(verdicts);
        if self.shared.scratch.leaves_by.is_none() {
            self.shared.statistics.count(verdicts);
        }
        self.shared.ports.bounds.searched = None;
    }

    /// The extended table's part of a turn.
    fn turn_extended<F: Frame, P: Picks, T: Probe>(
        &mut self,
        (view, now, port): (View<'_>, Time, PortId),
        picks: P,
        burst: (&mut [F], &mut [Verdict]),
        probe: &mut T,
    ) {
        let turn = Turn { view, now, port, others: Others::Compact(&self.v4.table.sessions) };
        self.extended.turn(&mut self.shared, turn, picks, burst, probe);
    }

    /// What goes with a frame of the last turn whose verdict is [`Verdict::HandOff`].
    pub fn round(&self, lane: usize) -> Round {
        self.shared.next_round(lane as u8)
    }

    /// The port that all of the last turn's frames leave by ([`Verdict::Tx`]), if it is one.
    pub const fn all_leave_by(&self) -> Option<PortId> {
        self.shared.scratch.leaves_by
    }

    /// The frames of the last turn whose verdict is [`Verdict::Wait`].
    pub fn waiting(&self) -> &[Waiting] {
        &self.shared.scratch.waiting
    }

    /// The datagrams whose first fragment came in the last turn: frames that were parked under
    /// these numbers may be turned again.
    pub fn joined(&self) -> &[u32] {
        &self.shared.scratch.joined
    }

    /// Tries again to send a frame that was held: [`Verdict::Tx`], or [`Verdict::Fragment`] if it
    /// has to be cut, once its neighbour is known.
    pub fn release<F: Frame>(&mut self, fib: &Fib, frame: &mut F, waiting: Waiting) -> Verdict {
        let Waiting { link, next, cut, .. } = waiting;
        let hop = fib.neighbour(link, next).and_then(|id| fib.hop(id));
        hop.map_or(Verdict::Wait, |hop| rewrite::link_layer(frame, hop).in_pieces(cut))
    }

    /// Ends sessions that have timed out: a part of the table, chosen so that calls in quick
    /// succession cover all of it every two seconds (larger ones than 16 M slots take longer).
    pub fn sweep(&mut self, plan: &Plan, now: Time) {
        self.shared.admission.settle_pressure(plan, now);
        sweep::sweep(&mut self.v4.table, &mut self.shared, plan, now);
        sweep::sweep(&mut self.extended.table, &mut self.shared, plan, now);
    }

    /// Ends every session that has timed out.
    pub fn sweep_all(&mut self, plan: &Plan, now: Time) {
        sweep::sweep_all(&mut self.v4.table, &mut self.shared, plan, now);
        sweep::sweep_all(&mut self.extended.table, &mut self.shared, plan, now);
    }

    /// What was counted so far.
    pub const fn counters(&self) -> &Counters {
        &self.shared.statistics.counters
    }

    /// Counts a packet that the caller had to drop after its verdict.
    pub fn count(&mut self, reason: Reason) {
        self.shared.statistics.counters.count(reason);
    }

    /// The real servers that get no new sessions from this worker because they were full and are
    /// not empty enough yet.
    pub fn full_reals(&self) -> impl Iterator<Item = RealId> + '_ {
        self.shared.admission.schedulers.full()
    }

    /// Sessions that are open now.
    pub const fn live_sessions(&self) -> u32 {
        self.shared.admission.live - self.shared.admission.templates
    }

    /// What persistence and source NAT remember beside sessions; it takes the room of as many.
    pub const fn templates(&self) -> u32 {
        self.shared.admission.templates
    }

    /// The most sessions there can be.
    pub const fn session_capacity(&self) -> u32 {
        self.shared.admission.capacity
    }

    /// Bytes of address space of the session tables, and the pages they lie in.
    pub fn memory(&self) -> (usize, &'static str) {
        let slab = self.v4.table.sessions.slab();
        (
            self.v4.table.sessions.mapped_bytes() + self.extended.table.sessions.mapped_bytes(),
            slab.pages().name(),
        )
    }
}
