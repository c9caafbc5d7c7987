//! Fuzz target: what a memif's peer says and writes. What must hold: `host/memif/src/fuzzing.rs`.
//!
//! Unsafe code: what `fuzz_target!` expands to, the entry point that libFuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_properties::memif(data));
