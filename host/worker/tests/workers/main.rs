//! Workers over queues in memory.

mod fragments;
mod lookouts;
mod memory;
mod rounds;
mod turns;
