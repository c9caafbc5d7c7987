//! Workers over queues in memory.

mod fragments;
mod memory;
mod rounds;
mod turns;
