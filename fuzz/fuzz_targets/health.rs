//! Fuzz target: what a health check's peer sends. What must hold: `fuzz/properties/src/health.rs`.
//!
//! Unsafe code: what `fuzz_target!` expands to, the entry point that libFuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_properties::health(data));
