//! A simulated world around the director: one process, virtual time, a seed.
//!
//! Clients and real servers talk through one to four real packet paths while the network loses,
//! doubles and delays, and while services, real servers, addresses, neighbours and routes come and
//! go. A model that shares no code with the director judges every single frame. Everything follows
//! from the seed, so a failure can be had again, and made small.
//!
//! No threads, no clock, no I/O: see `README.md` for the parts.
#![forbid(unsafe_code)]

mod actions;
mod check;
pub mod cluster;
mod cut;
mod errors;
mod frame;
mod machine;
mod parked;
mod peers;
mod pieces;
mod recipe;
mod rng;
mod saboteur;
mod second;
mod shrink;
mod sim;
mod status;
mod trace;
mod universe;
mod wheel;
mod wire;

pub use recipe::{Feature, Recipe, Sabotage};
pub use shrink::shrink;
pub use sim::{Failure, Outcome};

use sim::Sim;

/// The services, pools and links of a recipe's world.
pub fn describe(recipe: &Recipe) -> String {
    universe::Universe::new(recipe).to_string()
}

/// Runs a world to its end.
///
/// # Errors
/// The first invariant that is broken.
pub fn run(recipe: &Recipe) -> Result<Outcome, Failure> {
    begin(recipe, false).0
}

/// The same, with the run as lines to read.
pub fn run_traced(recipe: &Recipe) -> (Result<Outcome, Failure>, Vec<String>) {
    begin(recipe, true)
}

fn begin(recipe: &Recipe, traced: bool) -> (Result<Outcome, Failure>, Vec<String>) {
    let failed = |what, outcome: Outcome| Failure {
        what,
        packets: outcome.packets,
        outcome: Box::new(outcome),
    };
    let mut sim = match Sim::new(recipe) {
        Ok(sim) => sim,
        Err(what) => return (Err(failed(what, Outcome::default())), Vec::new()),
    };
    sim.trace.lines = traced.then(Vec::new);
    let result = sim.run();
    let lines = sim.trace.lines.take().unwrap_or_default();
    (result.map(|()| sim.outcome).map_err(|what| failed(what, sim.outcome)), lines)
}
