//! Workers over queues in memory.

mod fragments;
mod memory;
mod turns;
