//! Workers over queues in memory.

mod capture_points;
mod fence;
mod fragments;
mod handoff;
mod memory;
mod networks;
mod outbox;
mod rounds;
mod snat;
mod spread;
mod told;
mod tunnels;
mod turns;
