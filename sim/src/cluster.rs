//! Two to four directors that synchronise their sessions: real packet paths and real ends of the
//! protocol in virtual time, with links that lose packets, directors that come and go, and a judge
//! who knows only what was sent, what came out and when links were quiet.

mod director;
mod judge;
mod links;
mod records;
mod script;
mod site;
mod small;
mod spread;
mod traffic;
mod trouble;
mod world;

pub use small::shrink;

use std::fmt;
use std::ops::RangeInclusive;
use world::World;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What everything comes from.
    pub seed: u64,
    /// How many steps there are.
    pub steps: u64,
    /// Directors, 2 to 4; drawn from the seed without a number.
    pub directors: Option<usize>,
    /// Workers of each director; drawn from the seed without a number.
    pub workers: Option<u16>,
    /// Whether clients use ports again also where the director is known to mistake it.
    pub reuse: bool,
    /// The steps that are taken; all of them without a list.
    pub only: Option<Vec<RangeInclusive<u32>>>,
}

impl Recipe {
    /// A run of a seed with nothing left out.
    pub const fn new(seed: u64, steps: u64) -> Self {
        Self { seed, steps, directors: None, workers: None, reuse: false, only: None }
    }

    fn allows(&self, step: u32) -> bool {
        let within = |only: &Vec<RangeInclusive<u32>>| only.iter().any(|it| it.contains(&step));
        self.only.as_ref().is_none_or(within)
    }
}

impl fmt::Display for Recipe {
    /// The command that runs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sluice-sim cluster --seed {} --steps {}", self.seed, self.steps)?;
        if let Some(directors) = self.directors {
            write!(f, " --directors {directors}")?;
        }
        if let Some(workers) = self.workers {
            write!(f, " --workers {workers}")?;
        }
        if self.reuse {
            write!(f, " --reuse")?;
        }
        if let Some(only) = &self.only {
            let ranges = only.iter().map(|range| match (range.start(), range.end()) {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}-{last}"),
            });
            write!(f, " --only {}", ranges.collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    }
}

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The last step.
    pub steps: u64,
    /// Packets that directors forwarded.
    pub packets: u64,
    /// Connections and exchanges that were opened.
    pub connections: u64,
    /// How often another director became the master.
    pub failovers: u64,
    /// Packets that went on through another director than the one before of their connection.
    pub went_on: u64,
    /// Connections that were lost since they were younger than the lag, or links were cut.
    pub younger: u64,
    /// Sessions that a director kept although it had been told of their end.
    pub ghosts: u64,
    /// Packets of spread flows that helpers rewrote.
    pub dealt: u64,
    /// Datagrams between directors.
    pub datagrams: u64,
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
}

impl Outcome {
    /// Adds another run.
    pub const fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.packets += other.packets;
        self.connections += other.connections;
        self.failovers += other.failovers;
        self.went_on += other.went_on;
        self.younger += other.younger;
        self.ghosts += other.ghosts;
        self.dealt += other.dealt;
        self.datagrams += other.datagrams;
        self.virtual_ms += other.virtual_ms;
    }
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is broken.
    pub what: String,
    /// The run up to then.
    pub outcome: Outcome,
}

/// Runs a cluster to its end.
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
    let failed = |what, outcome| Failure { what, outcome };
    let mut world = match World::new(recipe) {
        Ok(world) => world,
        Err(what) => return (Err(failed(what, Outcome::default())), Vec::new()),
    };
    world.trace = traced.then(Vec::new);
    let result = world.run();
    let lines = world.trace.take().unwrap_or_default();
    (result.map(|()| world.outcome).map_err(|what| failed(what, world.outcome)), lines)
}
