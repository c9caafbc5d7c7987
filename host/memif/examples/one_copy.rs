//! What zero-copy receiving would gain: nanoseconds a frame from one shared ring into another by
//! two copies, as a port does it, and by one, for which only the header is copied first.
//!
//! `cargo run --release -p sluice-memif --example one_copy [CORE CORE]`
//!
//! A thread on the first core writes all frames of the first ring and reads all of the second; the
//! one that is measured carries them, in bursts, and changes 64 bytes of each header. Medians of
//! rounds in which both ways take turns.

use sluice_lanes::copy::copy;
use sluice_lanes::prefetch;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

const FRAMES: usize = 1024;
const STRIDE: usize = 2112;
const BURST: usize = 64;
const ROUNDS: usize = 2000;
/// Frames ahead of which memory is asked for.
const AHEAD: usize = 4;
const LINE: usize = 64;
/// What is copied before a frame is judged.
const HEADER: usize = 128;

const PEER: usize = 0;
const PORT: usize = 1;
const END: usize = 2;

/// A cache line.
#[repr(align(64))]
struct Line([AtomicU64; LINE / 8]);

/// Buffers that two threads take turns with.
struct Ring(Vec<Line>);

impl Ring {
    fn new(frames: usize) -> Self {
        let line = || Line([1; LINE / 8].map(AtomicU64::new));
        Self((0..frames * STRIDE / LINE).map(|_| line()).collect())
    }

    /// The cache lines of so many bytes of a frame.
    fn lines(&self, frame: usize, bytes: usize) -> &[Line] {
        &self.0[frame * STRIDE / LINE..][..bytes.div_ceil(LINE)]
    }

    fn at(&self, frame: usize) -> *mut u8 {
        self.lines(frame, STRIDE).as_ptr().cast_mut().cast()
    }
}

fn ask(from: *const u8, bytes: usize) {
    (0..bytes).step_by(LINE).for_each(|at| prefetch::at(from.wrapping_add(at)));
}

fn ask_to_write(to: *mut u8, bytes: usize) {
    (0..bytes).step_by(LINE).for_each(|at| prefetch::to_write(to.wrapping_add(at)));
}

fn carry(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: both are of buffers of this process with so many bytes at least, which do not
    // overlap, and the other thread waits for its turn.
    unsafe { copy(from, to, bytes) }
}

fn edit(header: *mut u8) {
    // SAFETY: as in `carry`.
    (0..LINE).for_each(|at| unsafe { *header.add(at) ^= 0x5a });
}

/// Carries all frames. With `whole` each is copied into a buffer of the port's own first, else its
/// header only.
fn run((came, own, leaves): (&Ring, &Ring, &Ring), size: usize, whole: bool) -> f64 {
    let first = if whole { size } else { HEADER.min(size) };
    let begun = Instant::now();
    for begin in (0..FRAMES).step_by(BURST) {
        for frame in 0..BURST {
            if frame + AHEAD < BURST {
                ask(came.at(begin + frame + AHEAD), first);
            }
            carry(came.at(begin + frame), own.at(frame), first);
        }
        (0..BURST).for_each(|frame| edit(own.at(frame)));
        for frame in 0..BURST {
            if frame + AHEAD < BURST {
                let next = begin + frame + AHEAD;
                ask(came.at(next).wrapping_add(first), size - first);
                ask_to_write(leaves.at(next), size);
            }
            let to = leaves.at(begin + frame);
            carry(own.at(frame), to, first);
            let rest = came.at(begin + frame).wrapping_add(first);
            carry(rest, to.wrapping_add(first), size - first);
        }
    }
    begun.elapsed().as_nanos() as f64 / FRAMES as f64
}

fn pin(core: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

fn peer((came, leaves): (&Ring, &Ring), size: usize, turn: &AtomicUsize) {
    let mut round = 0u64;
    loop {
        match turn.load(Ordering::Acquire) {
            PORT => spin_loop(),
            END => return,
            _ => {
                round = round.wrapping_add(1);
                for frame in 0..FRAMES {
                    let read = leaves.lines(frame, size).iter();
                    let sum = read.fold(round, |sum, line| sum ^ line.0[0].load(Ordering::Relaxed));
                    let words = came.lines(frame, size).iter().flat_map(|line| &line.0);
                    words.for_each(|word| word.store(sum, Ordering::Relaxed));
                }
                turn.store(PORT, Ordering::Release);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cores: Vec<usize> =
        std::env::args().skip(1).map(|it| it.parse()).collect::<Result<_, _>>()?;
    let cores = [0, 1].map(|at| cores.get(at).copied().unwrap_or(at));
    let (came, own, leaves) = (Ring::new(FRAMES), Ring::new(BURST), Ring::new(FRAMES));
    pin(cores[1])?;
    println!("bytes  two copies  one copy  saved");
    for size in [64, 256, 512, 1024, 1500] {
        let turn = AtomicUsize::new(PEER);
        let mut took = [Vec::new(), Vec::new()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Without a core of its own it is only slower.
                let _ = pin(cores[0]);
                peer((&came, &leaves), size, &turn);
            });
            for round in 0..2 * ROUNDS {
                while turn.load(Ordering::Acquire) != PORT {
                    spin_loop();
                }
                let way = round % 2;
                took[way].push(run((&came, &own, &leaves), size, way == 0));
                turn.store(if round + 1 == 2 * ROUNDS { END } else { PEER }, Ordering::Release);
            }
        });
        let [two, one] = took.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[ROUNDS / 2]
        });
        println!("{size:5}  {two:10.1}  {one:8.1}  {:5.1}", two - one);
    }
    Ok(())
}
