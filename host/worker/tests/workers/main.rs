//! Workers over queues in memory.

mod capture_points;
mod fragments;
mod handoff;
mod memory;
mod rounds;
mod turns;
