//! `sluice-sim`: runs simulated worlds, and makes a failing one small.
#![forbid(unsafe_code)]

mod command;

use clap::{Parser, Subcommand};
use serde_json::json;
use sluice_sim::{Failure, Feature, Outcome, Recipe, run, run_traced, shrink};
use std::ops::{Range, RangeInclusive};
use std::process::ExitCode;
use std::time::Instant;

/// Runs that shrinking may take.
const SHRINKING: u32 = 400;
/// Lines of a failing run's end that are shown.
const LINES: usize = 60;

/// Runs simulated worlds around the director.
#[derive(Parser)]
#[command(name = "sluice-sim", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The world's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run all seeds from A to below B instead
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// Packets into the director
    #[arg(long, default_value_t = 20_000)]
    steps: u64,
    /// End the run after so many virtual milliseconds
    #[arg(long)]
    ms: Option<u64>,
    /// Workers, 1 to 4; drawn from the seed without a number
    #[arg(long)]
    workers: Option<u16>,
    /// Leave out kinds of trouble: loss, changes, …
    #[arg(long, value_delimiter = ',', value_parser = feature)]
    without: Vec<Feature>,
    /// Let only these actions happen, as 3,7-9
    #[arg(long, value_delimiter = ',', value_parser = range)]
    only: Option<Vec<RangeInclusive<u32>>>,
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

#[derive(Subcommand)]
enum Command {
    /// Runs directors that synchronise their sessions
    Cluster(command::Cluster),
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, last) = text.split_once("..").ok_or("write it as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(first)?..number(last)?)
}

fn feature(name: &str) -> Result<Feature, String> {
    Feature::named(name).ok_or_else(|| {
        let names: Vec<_> = Feature::ALL.iter().map(|feature| feature.name()).collect();
        format!("one of {}", names.join(", "))
    })
}

fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    Ok(number(first)?..=number(last)?)
}

impl Cli {
    fn recipe(&self, seed: u64) -> Recipe {
        let all = Recipe::new(seed, self.steps);
        let without =
            self.without.iter().fold(all.without, |bits, feature| bits | 1 << *feature as u32);
        let only = self.only.clone();
        Recipe { workers: self.workers, ms: self.ms, without, only, ..all }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(Command::Cluster(cluster)) = &cli.command {
        return cluster.run();
    }
    let seeds = cli.seeds.clone().unwrap_or(cli.seed..cli.seed + 1);
    let started = Instant::now();
    let (mut ran, mut total) = (0u64, Outcome::default());
    let mut failed = Vec::new();
    for seed in seeds {
        let recipe = cli.recipe(seed);
        let result = if cli.trace {
            let (result, lines) = run_traced(&recipe);
            lines.iter().for_each(|line| println!("{line}"));
            result
        } else {
            run(&recipe)
        };
        ran += 1;
        match result {
            Ok(outcome) => {
                total.packets += outcome.packets;
                total.sessions += outcome.sessions;
                total.plans += outcome.plans;
                total.virtual_ms += outcome.virtual_ms;
                total.spread += outcome.spread;
                total.redirects += outcome.redirects;
                let counts = total.dealt.iter_mut().zip(outcome.dealt);
                for (sum, more) in counts.chain(total.outward.iter_mut().zip(outcome.outward)) {
                    *sum += more;
                }
            }
            Err(failure) => {
                report(&cli, &recipe, &failure);
                failed.push(seed);
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = total.packets as f64 / seconds;
    if cli.json {
        let failed = &failed;
        let object = json!({
            "seeds": ran, "failed": failed, "packets": total.packets,
            "sessions": total.sessions, "plans": total.plans,
            "spread_flows": total.spread, "spread_packets": total.dealt,
            "redirects": total.redirects, "outward": total.outward,
            "virtual_s": total.virtual_ms / 1000, "seconds": seconds, "packets_per_s": rate,
        });
        println!("{object}");
    } else {
        let Outcome { packets, sessions, plans, virtual_ms, .. } = total;
        println!(
            "{ran} seeds, {} failed; {packets} packets, {sessions} sessions, {plans} plans, \
             {} flows spread with packets {:?}, {} rules of NICs, {:?} sessions outward, \
             {} s of virtual time in {seconds:.1} s: {:.2} M packets/s",
            failed.len(),
            total.spread,
            total.dealt,
            total.redirects,
            total.outward,
            virtual_ms / 1000,
            rate / 1e6,
        );
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says how a run failed, and how to have it again.
fn report(cli: &Cli, recipe: &Recipe, failure: &Failure) {
    eprintln!("seed {}: {}\n  {recipe}", recipe.seed, failure.what);
    if cli.no_shrink || cli.trace {
        return;
    }
    let (small, failure) = shrink(recipe, failure, SHRINKING);
    eprintln!("{}", sluice_sim::describe(&small));
    let (_, lines) = run_traced(&small);
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        eprintln!("  {line}");
    }
    eprintln!("  {}\n  {small} --trace", failure.what);
}
