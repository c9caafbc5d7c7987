//! Fuzz target: files of other balancers. What must hold: `fuzz/properties/src/import.rs`.
//!
//! Unsafe code: what `fuzz_target!` expands to, the entry point that libFuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_properties::import(data));
