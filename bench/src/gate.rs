//! A barrier that nobody waits at for ever: one who fails opens it for all.
//!
//! Workers wait by spinning, so that they start a round within nanoseconds of each other; the
//! coordinating thread naps, so that it takes no core from them.

use crate::error::BenchError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Spins before a waiting worker lets others run: there may be more workers than cores.
const SPINS: u32 = 20_000;

/// Where `parties` threads meet.
pub struct Gate {
    parties: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    failed: AtomicBool,
}

impl Gate {
    pub const fn new(parties: usize) -> Self {
        Self {
            parties,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Lets nobody wait here any more.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Whether somebody failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Waits for all, spinning.
    pub fn spin(&self) -> Result<(), BenchError> {
        let mut spins = 0;
        self.wait(|| {
            spins += 1;
            if spins % SPINS == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        })
    }

    /// Waits for all, napping.
    pub fn nap(&self) -> Result<(), BenchError> {
        self.wait(|| std::thread::sleep(Duration::from_millis(1)))
    }

    fn wait(&self, mut pass_time: impl FnMut()) -> Result<(), BenchError> {
        let generation = self.generation.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.parties {
            self.arrived.store(0, Ordering::SeqCst);
            self.generation.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        while self.generation.load(Ordering::SeqCst) == generation {
            if self.has_failed() {
                return Err(BenchError::Aborted);
            }
            pass_time();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_all_are_there() {
        let (gate, count) = (Gate::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=200 {
                        count.fetch_add(1, Ordering::SeqCst);
                        gate.spin().unwrap();
                        assert!(count.load(Ordering::SeqCst) >= round * 3);
                        gate.spin().unwrap();
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 600);
    }

    #[test]
    fn a_failure_frees_all() {
        let gate = Gate::new(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.nap());
            gate.fail();
            assert!(matches!(waits.join().unwrap(), Err(BenchError::Aborted)));
        });
    }
}
