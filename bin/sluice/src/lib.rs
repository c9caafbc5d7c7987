//! What `sluice` does that others want to call without starting a process: tests and fuzzers play
//! captures through the packet path in-process.
#![forbid(unsafe_code)]

pub mod filter;
pub mod replay;
