//! The command line of modes, families, schedulers and workers beside each other.

use super::{Family, Mode, Pages, count, seconds};
use crate::choice::scheduler;
use clap::Args;
use sluice_director::spec::Scheduling;

#[derive(Clone, Debug, Args)]
pub struct Matrix {
    /// Modes
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip, Mode::Snat])]
    pub modes: Vec<Mode>,
    /// IP versions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Family::V4, Family::V6])]
    pub families: Vec<Family>,
    /// Schedulers; snat has none
    #[arg(long, value_parser = scheduler(), value_delimiter = ',',
          default_values = ["rr", "wrr", "wlc", "mh"])]
    pub schedulers: Vec<Scheduling>,
    /// Workers, each on a core of its own
    #[arg(long, value_delimiter = ',', default_values_t = [1],
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Vec<u16>,
    /// Runs of each cell
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub repeats: u16,
    /// Sessions of each worker; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// How long each run measures
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Pages of the session tables
    #[arg(long, value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// The worker's core [default: the last one that the process may use]
    #[arg(long)]
    pub core: Option<usize>,
    /// Nice value of the benchmark's scheduling group while it runs (-20 to 19)
    #[arg(long, allow_hyphen_values = true,
          value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Option<i8>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
