//! One worker between shared-memory ports: Gbit/s of a core by frame size, plain and isolated.
//!
//! Two threads take turns, in step: the generator ([`peer`]) writes into the rings' memory and
//! reads from it, the worker ([`bed`]) is timed. So nothing of the generator counts, and yet each
//! frame's cache lines come from another core.

mod bed;
mod peer;
mod report;
mod scene;

use crate::args::{Copies, Memif as Options, Network};
use crate::clock;
use crate::error::BenchError;
use crate::gate::Gate;
use crate::machine::{self, Machine, Priority};
use bed::{Bed, Done};
use peer::Peer;
use report::{Report, Row};
use sluice_dpdk::{DmaCopies, Eal, EalConfig, PortConfig};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rounds of a setting before the next has its turn, and how many of them bring its memory back
/// into the caches and do not count.
const BLOCK: u32 = 16;
const WARM_UP: u32 = 4;
/// Sessions that are opened in a round.
const OPENED: u32 = 512;
/// Buffers beside those of ports: what is in the worker's hands.
const SPARE_FRAMES: u32 = 4096;
/// The largest frame, with its outer headers.
const MAX_FRAME: u16 = 1664;
/// No director has this number: the worker's thread is to end.
const END: usize = usize::MAX;

/// What the two threads tell each other.
struct Turns {
    gate: Gate,
    /// Which director has the turn, and how many frames come to it.
    bed: AtomicUsize,
    expected: AtomicUsize,
    done: Mutex<(Done, Option<String>)>,
}

impl Turns {
    /// Lets the worker of a director run until so many frames have come.
    fn run(&self, bed: usize, expected: usize) -> Result<Done, BenchError> {
        self.bed.store(bed, Ordering::Relaxed);
        self.expected.store(expected, Ordering::Relaxed);
        self.gate.spin()?;
        self.gate.spin()?;
        Ok(self.done.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The worker's thread.
    fn work(&self, beds: &mut [Bed], core: usize) -> Result<Option<f64>, BenchError> {
        machine::pin(core)?;
        let ghz = clock::core_ghz();
        loop {
            self.gate.spin()?;
            let bed = self.bed.load(Ordering::Relaxed);
            let Some(bed) = beds.get_mut(bed) else { return Ok(ghz) };
            let done = bed.run(self.expected.load(Ordering::Relaxed));
            let reasons = bed.reasons();
            *self.done.lock().unwrap_or_else(PoisonError::into_inner) = (done, reasons);
            self.gate.spin()?;
        }
    }

    fn lost(&self, doing: &'static str, expected: usize, got: usize) -> BenchError {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let reasons = done.1.clone().unwrap_or_else(|| "nothing was dropped".into());
        BenchError::Lost { worker: 0, doing, expected, got, reasons }
    }
}

/// Measures.
pub fn run(args: &Options) -> Result<Report, BenchError> {
    let usable = machine::usable_cores()?;
    let last = |n: usize| usable[usable.len() - 1 - n % usable.len()];
    let (core, generator) = match args.cores[..] {
        [core, generator] => (core, generator),
        _ => (last(0), last(1)),
    };
    let machine = Machine::look(core);
    let _priority = Priority::set(args.conditions.nice)?;
    machine::pin(generator)?;
    let ticks_per_s = clock::ticks_per_s();
    let (mut beds, mut peers) = make(args, ticks_per_s)?;
    let turns = Turns {
        gate: Gate::new(2),
        bed: AtomicUsize::new(END),
        expected: AtomicUsize::new(0),
        done: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| turns.work(&mut beds, core).inspect_err(|_| turns.gate.fail()));
        let rows = measure(args, &turns, &mut peers);
        turns.bed.store(END, Ordering::Relaxed);
        if rows.is_err() {
            turns.gate.fail();
        } else {
            turns.gate.spin()?;
        }
        let ended = worker.join().expect("a panic in the worker has said what it is");
        let rows = match rows {
            Err(BenchError::Aborted) => return ended.and(Err(BenchError::Aborted)),
            rows => rows?,
        };
        Ok(Report { args: args.clone(), machine, tsc_hz: ticks_per_s, core_ghz: ended?, rows })
    })
}

/// What is compared.
fn settings(args: &Options) -> Vec<(Network, Copies)> {
    let of = |network: Network| args.copies.iter().map(move |copies| (network, *copies));
    args.networks.iter().copied().flat_map(of).collect()
}

/// A director and its generator for each setting.
fn make(args: &Options, ticks_per_s: f64) -> Result<(Vec<Bed>, Vec<Peer>), BenchError> {
    let process = std::process::id();
    let settings = settings(args);
    let dma = DmaCopies { device: args.dma_device.clone(), from: args.dma_from };
    let sockets: Vec<[String; 2]> = (0..settings.len())
        .map(|at| ["front", "back"].map(|end| format!("sluice-bench-{process}-{at}-{end}")))
        .collect();
    let sockets = sockets.iter().map(|[front, back]| [front.as_str(), back.as_str()]);
    let copies = settings.iter().map(|(_, copies)| (*copies == Copies::Dma).then_some(&dma));
    let configs: Vec<_> =
        sockets.clone().zip(copies).map(|(sockets, copies)| bed::ports(sockets, copies)).collect();
    let frames = configs.iter().flatten().map(PortConfig::frames).sum::<u32>() + SPARE_FRAMES;
    let pci_allow = Vec::from_iter(args.dma_device.contains(':').then(|| dma.device.clone()));
    let eal = EalConfig { frames, max_frame: MAX_FRAME, pci_allow, ..EalConfig::default() };
    let eal = Eal::init(&eal)?;
    let (sessions, seed) = (args.sessions, args.conditions.seed);
    let (mut beds, mut peers) = (Vec::new(), Vec::new());
    for (((network, _), sockets), configs) in settings.into_iter().zip(sockets).zip(&configs) {
        let how = (args.conditions.pages.policy(), ticks_per_s);
        beds.push(Bed::new(&eal, configs, network, (sessions, seed), how)?);
        peers.push(Peer::new(network, sockets, (seed, sessions))?);
    }
    peers.iter().try_for_each(Peer::wait)?;
    Ok((beds, peers))
}

/// Opens all sessions, and runs the rounds of each size, setting by setting in turns.
fn measure(args: &Options, turns: &Turns, peers: &mut [Peer]) -> Result<Vec<Row>, BenchError> {
    for (bed, peer) in peers.iter_mut().enumerate() {
        peer.shape(64)?;
        let sessions = args.sessions as u32;
        for first in (0..sessions).step_by(OPENED as usize) {
            let flows = first..sessions.min(first + OPENED);
            let count = flows.len();
            peer.open(flows)?;
            turns.run(bed, count)?;
            let got = peer.learn(count)?;
            if got < count {
                return Err(turns.lost("opening sessions", count, got));
            }
        }
    }
    let mut rows = Vec::new();
    for size in &args.sizes {
        let mut of_size: Vec<_> =
            settings(args).into_iter().map(|setting| Row::new(*size, setting)).collect();
        peers.iter_mut().try_for_each(|peer| peer.shape(*size))?;
        for _ in 0..args.rounds.div_ceil(BLOCK - WARM_UP) {
            for (bed, peer) in peers.iter_mut().enumerate() {
                for round in 0..BLOCK {
                    let done = one(args, turns, (bed, &mut *peer))?;
                    if round >= WARM_UP {
                        of_size[bed].note(done);
                    }
                }
            }
        }
        rows.append(&mut of_size);
    }
    Ok(rows)
}

/// One round.
fn one(args: &Options, turns: &Turns, (bed, peer): (usize, &mut Peer)) -> Result<Done, BenchError> {
    let expected = 2 * usize::from(args.frames);
    peer.send_round(args.frames)?;
    let done = turns.run(bed, expected)?;
    let got = peer.take_round(args.frames)?;
    if got < expected || done.came != expected {
        return Err(turns.lost("measuring", expected, got));
    }
    Ok(done)
}
