//! Fuzz target: what stock programs send to IPVS. What must hold: `fuzz/properties/src/ipvs.rs`.
//!
//! Unsafe code: what `fuzz_target!` expands to, the entry point that libFuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_properties::ipvs(data));
