//! Two clocks: the time stamp counter, which everything is measured with, and the core's own.
//!
//! The time stamp counter (TSC) runs at a constant frequency whatever the core does; one of its
//! ticks is what this program calls a cycle. The core's frequency is found by a chain of
//! dependent instructions whose latency in core cycles is known.
//!
//! Unsafe: the instruction that reads the counter.

use std::time::{Duration, Instant};

/// What [`ticks`] counts.
#[cfg(target_arch = "x86_64")]
pub const NAME: &str = "TSC";
/// What [`ticks`] counts.
#[cfg(not(target_arch = "x86_64"))]
pub const NAME: &str = "nanoseconds";

/// The time stamp counter, read after everything before it has been executed. On other
/// processors: nanoseconds.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(unsafe_code)]
pub fn ticks() -> u64 {
    let mut core = 0;
    // SAFETY: RDTSCP reads a counter and writes `core`; every x86-64 processor that this runs on
    // has it (since 2008), and Linux does not forbid it to user space.
    unsafe { core::arch::x86_64::__rdtscp(&mut core) }
}

/// The time stamp counter, read after everything before it has been executed. On other
/// processors: nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks a second, measured against the system's clock. Takes a fifth of a second.
pub fn ticks_per_s() -> f64 {
    // The shortest distance between the two clocks' readings is the least disturbed one.
    let sample = || {
        let readings = (0..32).map(|_| {
            let before = ticks();
            let moment = Instant::now();
            let after = ticks();
            (after - before, moment, before + (after - before) / 2)
        });
        readings.min_by_key(|(distance, ..)| *distance).map(|(_, moment, at)| (moment, at))
    };
    let Some((start, first)) = sample() else { return f64::NAN };
    while start.elapsed() < Duration::from_millis(200) {
        std::hint::spin_loop();
    }
    let Some((end, last)) = sample() else { return f64::NAN };
    (last - first) as f64 / (end - start).as_secs_f64()
}

/// Core cycles of one step of the chain in [`core_ghz`]: a 64-bit multiplication (3) and an
/// exclusive or (1), as every x86-64 core since Nehalem and Zen has them.
const STEP_CYCLES: f64 = 4.0;

/// The calling core's frequency under load, by a chain of dependent multiplications: the fastest
/// of several short runs. `None` where the latency of a multiplication is not known.
pub fn core_ghz() -> Option<f64> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    const STEPS: u32 = 1_000_000;
    let run = || {
        let (factor, pattern) = std::hint::black_box((0x9e37_79b9_7f4a_7c15_u64, 0xa076_1d64_u64));
        let start = Instant::now();
        let (mut value, mut left) = (factor, STEPS);
        // A range's iterator would take longer than the chain where nothing is optimised.
        while left > 0 {
            value = value.wrapping_mul(factor) ^ pattern;
            left -= 1;
        }
        std::hint::black_box(value);
        start.elapsed().as_secs_f64()
    };
    let best = (0..12).map(|_| run()).fold(f64::INFINITY, f64::min);
    Some(f64::from(STEPS) * STEP_CYCLES / best / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_and_agree_with_themselves() {
        let (before, after) = (ticks(), ticks());
        assert!(after >= before);
        // A shared core takes any time for anything: only what that cannot explain is wrong.
        let (a, b) = (ticks_per_s(), ticks_per_s());
        assert!((a / b - 1.0).abs() < 0.1, "{a} {b}");
        assert!(a > 1e8);
        if let Some(ghz) = core_ghz() {
            assert!(ghz > 0.0 && ghz < 8.0, "{ghz}");
        }
    }
}
