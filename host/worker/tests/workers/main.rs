//! Workers over queues in memory.

mod fragments;
mod guests;
mod lookouts;
mod memory;
mod rounds;
mod turns;
