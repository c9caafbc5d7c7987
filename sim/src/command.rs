//! `sluice-sim cluster`: directors that synchronise their sessions.

use clap::Args;
use serde_json::json;
use sluice_sim::cluster::{Failure, Outcome, Recipe, run, run_traced, shrink};
use std::ops::{Range, RangeInclusive};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What is run.
#[derive(Args)]
pub struct Cluster {
    /// The cluster's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run all seeds from A to below B instead
    #[arg(long, value_name = "A..B", value_parser = super::seeds)]
    seeds: Option<Range<u64>>,
    /// Steps of clients, of trouble and of the operator
    #[arg(long, default_value_t = 600)]
    steps: u64,
    /// Directors, 2 to 4; drawn from the seed without a number
    #[arg(long, value_parser = directors)]
    directors: Option<usize>,
    /// Workers of each director, 1 to 3; drawn from the seed without a number
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=3))]
    workers: Option<u16>,
    /// Let clients use ports again wherever the modes and workers: a known gap
    #[arg(long)]
    reuse: bool,
    /// Take only these steps, as 3,7-9
    #[arg(long, value_delimiter = ',', value_parser = super::range)]
    only: Option<Vec<RangeInclusive<u32>>>,
    /// Threads that run seeds
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Show the run
    #[arg(long)]
    trace: bool,
    /// Do not make a failing run small
    #[arg(long)]
    no_shrink: bool,
    /// One JSON object for all
    #[arg(long)]
    json: bool,
}

/// Of all runs.
#[derive(Default)]
struct Total {
    outcome: Outcome,
    failed: Vec<u64>,
}

fn directors(text: &str) -> Result<usize, String> {
    let number = text.parse().map_err(|_| "a number from 2 to 4".to_owned())?;
    if (2..=4).contains(&number) { Ok(number) } else { Err("2 to 4".to_owned()) }
}

impl Cluster {
    /// Runs the seeds.
    pub fn run(&self) -> ExitCode {
        let seeds = self.seeds.clone().unwrap_or(self.seed..self.seed + 1);
        let started = Instant::now();
        let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Total::default()));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            break;
                        }
                        self.run_one(seed, &total);
                    }
                });
            }
        });
        let Ok(mut total) = total.into_inner() else { return ExitCode::FAILURE };
        total.failed.sort_unstable();
        self.tell(&total, seeds.end - seeds.start, started.elapsed().as_secs_f64());
        if total.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn run_one(&self, seed: u64, total: &Mutex<Total>) {
        let recipe = Recipe {
            directors: self.directors,
            workers: self.workers,
            reuse: self.reuse,
            only: self.only.clone(),
            ..Recipe::new(seed, self.steps)
        };
        let result = if self.trace {
            let (result, lines) = run_traced(&recipe);
            lines.iter().for_each(|line| println!("{line}"));
            result
        } else {
            run(&recipe)
        };
        if let Err(failure) = &result {
            self.report(&recipe, failure);
        }
        let Ok(mut total) = total.lock() else { return };
        match result {
            Ok(outcome) => total.outcome.add(&outcome),
            Err(_) => total.failed.push(seed),
        }
    }

    fn tell(&self, total: &Total, ran: u64, seconds: f64) {
        let Outcome { steps, packets, connections, failovers, went_on, .. } = total.outcome;
        let Outcome { younger, ghosts, dealt, datagrams, virtual_ms, .. } = total.outcome;
        if self.json {
            let object = json!({
                "seeds": ran, "failed": total.failed, "steps": steps, "packets": packets,
                "connections": connections, "failovers": failovers, "went_on": went_on,
                "younger": younger, "ghosts": ghosts, "dealt": dealt, "datagrams": datagrams,
                "virtual_s": virtual_ms / 1000, "seconds": seconds,
            });
            println!("{object}");
            return;
        }
        println!(
            "{ran} seeds, {} failed; {steps} steps, {packets} packets, {connections} connections, \
             {failovers} failovers, {went_on} packets went on elsewhere, {younger} connections \
             lost as younger than the lag, {ghosts} ghosts, {dealt} packets dealt, \
             {datagrams} datagrams, {} s of virtual time in {seconds:.1} s",
            total.failed.len(),
            virtual_ms / 1000,
        );
    }

    /// Says how a run failed, and how to have it again.
    fn report(&self, recipe: &Recipe, failure: &Failure) {
        eprintln!("seed {}, step {}: {}", recipe.seed, failure.outcome.steps, failure.what);
        if self.no_shrink || self.trace {
            return;
        }
        let (small, failure) = shrink(recipe, failure, super::SHRINKING);
        let (_, lines) = run_traced(&small);
        for line in &lines[lines.len().saturating_sub(super::LINES)..] {
            eprintln!("  {line}");
        }
        eprintln!("  {}\n  {small} --trace", failure.what);
    }
}
