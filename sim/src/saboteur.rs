//! Breaks something on purpose, between the path and the checker: a checker that does not notice
//! is worth nothing.

use crate::frame::Buffer;
use crate::machine::Worker;
use crate::recipe::Sabotage;
use crate::rng::Rng;
use crate::status::Snapshot;
use crate::universe::{Rule, Universe};
use crate::wire::{self, Addr, OTHERS, Shim, Tuple, is_v4};
use rustc_hash::FxHashMap;
use sluice_director::path::{BURST, PagePolicy, Path, PathConfig, Verdict, View};
use sluice_director::{Frame, Reason};
use std::rc::Rc;

/// An address and a port.
type End = (Addr, u16);

/// One thing of so many is broken.
const ONE_IN: u64 = 100;

pub(crate) struct Saboteur {
    what: Option<Sabotage>,
    rng: Rng,
    /// The first snapshot that was seen.
    first: Option<Rc<Snapshot>>,
    /// By endpoint inside: where its datagrams went, and when.
    passed: FxHashMap<End, Vec<(End, u64)>>,
}

impl Saboteur {
    pub fn new(what: Option<Sabotage>, seed: u64) -> Self {
        Self { what, rng: Rng::of(&[seed, 8]), first: None, passed: FxHashMap::default() }
    }

    fn strikes(&mut self, what: Sabotage) -> bool {
        self.what == Some(what) && self.rng.below(ONE_IN) == 0
    }

    pub fn sweeps(&self) -> bool {
        self.what != Some(Sabotage::NoSweep)
    }

    pub fn is_deaf(&mut self) -> bool {
        self.what == Some(Sabotage::Deaf)
    }

    pub fn loses(&mut self) -> bool {
        self.strikes(Sabotage::Leak)
    }

    pub fn overtakes(&self) -> bool {
        self.what == Some(Sabotage::Overtake)
    }

    pub fn mislays(&mut self) -> bool {
        self.strikes(Sabotage::Mislay)
    }

    pub fn forgets_fences(&self) -> bool {
        self.what == Some(Sabotage::NoFence)
    }

    pub fn marks_early(&self) -> bool {
        self.what == Some(Sabotage::EarlyMark)
    }

    pub fn counts_twice(&mut self) -> bool {
        self.strikes(Sabotage::CountTwice)
    }

    /// Spoils what a helper is done with, frame by frame.
    pub fn spoil_dealt(&mut self, frame: &mut Buffer) {
        match self.what {
            Some(Sabotage::OuterSum) => spoil_outer_sum(frame),
            Some(Sabotage::Offset) => restore_numbers(frame, true),
            Some(Sabotage::SackOffset) => restore_numbers(frame, false),
            _ => {}
        }
    }

    pub fn is_stale(&self) -> bool {
        self.what == Some(Sabotage::Stale)
    }

    /// What a turn runs with.
    pub fn view<'a>(&'a mut self, snapshot: &'a Rc<Snapshot>) -> View<'a> {
        let mut used = snapshot;
        if self.what == Some(Sabotage::OldPlan) {
            used = self.first.get_or_insert_with(|| Rc::clone(snapshot));
        }
        View { plan: &used.plan, fib: &snapshot.fib }
    }

    /// Spoils the outcome of a turn.
    pub fn act(
        &mut self,
        universe: &Universe,
        worker: &mut Worker,
        burst: &mut [Buffer],
        verdicts: &mut [Verdict; BURST],
        now: u64,
    ) {
        if self.what.is_none() {
            return;
        }
        if self.strikes(Sabotage::Miscount) {
            worker.path.count(Reason::NoRoute);
        }
        if now.is_multiple_of(50) && self.strikes(Sabotage::Amnesia) {
            self.forget(universe, worker);
        }
        for (frame, verdict) in burst.iter_mut().zip(verdicts) {
            match verdict {
                Verdict::Tx(_) => {
                    self.spoil_outward(universe, frame, now);
                    self.spoil(universe, frame);
                }
                Verdict::HandOff(to) if self.strikes(Sabotage::WrongWorker) => {
                    *to = (*to + 1) % universe.workers;
                }
                _ => {}
            }
        }
    }

    /// The worker loses its sessions, but not what it counted.
    fn forget(&mut self, universe: &Universe, worker: &mut Worker) {
        let config = PathConfig {
            worker: 0,
            workers: universe.workers,
            sessions: universe.capacity,
            fragments: universe.fragments,
            seed: universe.seed,
            pages: PagePolicy::Ordinary,
        };
        if let Ok(path) = Path::new(&config) {
            worker.path = path;
            worker.path.adopt(&worker.snapshot.plan);
        }
    }

    fn spoil(&mut self, universe: &Universe, frame: &mut Buffer) {
        if self.what == Some(Sabotage::Error) && frame.about.is_some() {
            Self::exaggerate(frame);
        }
        let later = frame.place.is_some_and(|place| place.offset != 0);
        if later && self.what == Some(Sabotage::Piece) {
            self.reroute(universe, frame);
        }
        if self.strikes(Sabotage::Payload)
            && let Some(last) = frame.bytes_mut().last_mut()
        {
            *last ^= 1;
        }
        let protocol = frame.packet.tuple.protocol;
        if protocol == wire::SCTP && self.strikes(Sabotage::Crc) {
            flip_crc(frame);
        }
        if OTHERS.contains(&protocol) && self.strikes(Sabotage::Renumber) {
            renumber(frame);
        }
        if self.strikes(Sabotage::Mac) {
            frame.bytes_mut()[5] ^= 1;
        }
        let header = self.strikes(Sabotage::Header);
        let swerve = self.strikes(Sabotage::Swerve);
        if header || swerve {
            self.rewrite(universe, frame, header);
        }
    }

    /// Spoils source NAT: what an inside endpoint has outside, or whom an answer goes to.
    fn spoil_outward(&mut self, universe: &Universe, frame: &mut Buffer, now: u64) {
        let whole = frame.place.is_none() && frame.about.is_none() && frame.is_whole();
        let address = |node: &usize| universe.nodes[*node].address;
        let from = frame.packet.tuple.src;
        let mut rules = universe.services.iter().filter_map(|service| service.rule.as_ref());
        let remaps = self.what == Some(Sabotage::Remap)
            && rules.all(Rule::shares)
            && universe.insiders.iter().any(|node| address(node) == from)
            && self.is_second(frame.packet.tuple, now);
        let inward = universe.outsiders.iter().any(|node| address(node) == from);
        let misdelivers = inward && whole && self.strikes(Sabotage::Misdeliver);
        let Ok(seen) = wire::read(frame.bytes()) else { return };
        if !whole || !(remaps || misdelivers) || seen.vlan != 0 {
            return;
        }
        let mut packet = seen.packet;
        packet.payload = frame.packet.payload;
        if remaps {
            packet.tuple.sport ^= 1;
        } else {
            packet.tuple.dst = address(self.rng.pick(&universe.insiders));
        }
        if is_v4(packet.tuple.dst) == is_v4(packet.tuple.src) {
            wire::write(&packet, (seen.from, seen.to), frame.bytes_mut());
        }
    }

    /// Whether a datagram is its sender's first to there, and others passed that no session has
    /// outlived yet.
    fn is_second(&mut self, tuple: Tuple, now: u64) -> bool {
        if tuple.protocol != wire::UDP {
            return false;
        }
        let passed = self.passed.entry((tuple.src, tuple.sport)).or_default();
        let known = passed.iter().any(|(to, _)| *to == (tuple.dst, tuple.dport));
        let lives = passed.iter().any(|(_, at)| now - at < 900);
        passed.push(((tuple.dst, tuple.dport), now));
        !known && lives
    }

    /// Makes an ICMP error tell something else.
    fn exaggerate(frame: &mut Buffer) {
        let Ok(error) = wire::read_error(frame.bytes()) else { return };
        if error.seen.vlan != 0 || error.seen.outer.is_some() {
            return;
        }
        let quote = frame.bytes()[error.quote.0..error.quote.1].to_vec();
        let message = (error.kind, error.code, error.rest ^ 1);
        let bytes = wire::write_icmp(&error.seen.packet, message, &quote);
        frame.bytes_mut()[12..].copy_from_slice(&bytes[12..]);
    }

    /// Sends a fragment to somebody else.
    fn reroute(&mut self, universe: &Universe, frame: &mut Buffer) {
        let Ok(piece) = wire::read_piece(frame.bytes()) else { return };
        let mut packet = piece.seen.packet;
        packet.tuple.dst = self.rng.pick(&universe.nodes).address;
        if piece.seen.vlan != 0 || piece.seen.outer.is_some() {
            return;
        }
        let data = frame.bytes()[piece.data..][..usize::from(piece.place.len)].to_vec();
        let macs = (piece.seen.from, piece.seen.to);
        if wire::piece_len(&packet, &piece.place) == frame.bytes().len() {
            wire::write_piece(&packet, &piece.place, macs, &data, frame.bytes_mut());
        }
    }

    /// Makes the frame another one that is right in itself.
    fn rewrite(&mut self, universe: &Universe, frame: &mut Buffer, header: bool) {
        let Ok(seen) = wire::read(frame.bytes()) else { return };
        let mut packet = seen.packet;
        packet.payload = frame.packet.payload;
        if header {
            packet.window ^= 0x100;
            packet.ttl ^= 0x20;
        } else {
            let other = self.rng.pick(&universe.nodes).address;
            packet.tuple.dst = other;
        }
        if seen.vlan == 0 && seen.outer.is_none() {
            let macs = (seen.from, seen.to);
            wire::write(&packet, macs, frame.bytes_mut());
        }
    }
}

/// Makes the checksum of the header between an outer one and a packet wrong by a bit.
fn spoil_outer_sum(frame: &mut Buffer) {
    let Ok(wire::Seen { vlan, outer: Some(outer), .. }) = wire::read(frame.bytes()) else { return };
    let at = if vlan == 0 { 14 } else { 18 } + if is_v4(outer.src) { 20 } else { 40 };
    match outer.shim {
        Shim::Gue { checksum: true, .. } => frame.bytes_mut()[at + 7] ^= 1,
        Shim::Gre { checksum: true, .. } => frame.bytes_mut()[at + 5] ^= 1,
        _ => {}
    }
}

/// Gives a segment the SACK block back that its sender meant, and, if `all`, its numbers.
fn restore_numbers(frame: &mut Buffer, all: bool) {
    let Ok(seen) = wire::read(frame.bytes()) else { return };
    let (meant, mut packet) = (frame.packet, seen.packet);
    packet.payload = meant.payload;
    packet.sack = meant.sack;
    if all {
        (packet.seq, packet.ack) = (meant.seq, meant.ack);
    }
    if packet.tuple.protocol == wire::TCP && seen.vlan == 0 && seen.outer.is_none() {
        wire::write(&packet, (seen.from, seen.to), frame.bytes_mut());
    }
}

/// Makes an untunnelled SCTP packet's checksum wrong by a bit.
fn flip_crc(frame: &mut Buffer) {
    let Ok(seen) = wire::read(frame.bytes()) else { return };
    let at = 14 + if is_v4(seen.packet.tuple.src) { 20 } else { 40 } + 8;
    if seen.vlan == 0 && seen.outer.is_none() {
        frame.bytes_mut()[at] ^= 1;
    }
}

/// Sends a packet on under the number of another protocol.
fn renumber(frame: &mut Buffer) {
    let Ok(seen) = wire::read(frame.bytes()) else { return };
    let mut packet = seen.packet;
    packet.payload = frame.packet.payload;
    packet.tuple.protocol = if packet.tuple.protocol == OTHERS[0] { OTHERS[1] } else { OTHERS[0] };
    if seen.vlan == 0 && seen.outer.is_none() {
        wire::write(&packet, (seen.from, seen.to), frame.bytes_mut());
    }
}
