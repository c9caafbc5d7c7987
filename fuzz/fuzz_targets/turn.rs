//! Fuzz target: whole turns of the packet path. What must hold: `fuzz/properties/src/turn.rs`.
//!
//! Unsafe code: what `fuzz_target!` expands to, the entry point that libFuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_properties::turn(data));
