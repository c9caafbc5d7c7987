//! What looks at the director and at its machine for longer than one answer: `top` and `doctor`.

use std::path::PathBuf;

use clap::Args;

use super::interval;

pub const TOP_ABOUT: &str = "\
A dashboard in the terminal that refreshes: rates, services, real servers, workers, drops, \
elephants, ports.

Keys: Tab and 1 to 6 change the view, arrows select a line, Enter shows its details, Esc goes \
back, `s` and `S` sort by the next or the previous column, `r` reverses, `/` filters, space \
pauses, `+` and `-` change the interval, `?` shows help, `q` quits.

With --batch it prints plain text N times and ends, as `top -b` does.";

pub const DOCTOR_ABOUT: &str = "\
Checks this machine and the configuration, and prints remedies.

Without --config it asks the director for its configuration and inspects its process; without a \
director it reads /etc/sluice/sluice.toml if it exists. It changes nothing and needs no \
privileges; it reports what it may not inspect. As root it makes the kernel send ARP requests for \
real servers, and to find out whether another host has this machine's virtual addresses.

Exit codes: 0 all in order, 1 something could be better, 2 something is wrong.";

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  sluice completions bash > /etc/bash_completion.d/sluice
  sluice completions zsh > /usr/share/zsh/site-functions/_sluice
  sluice completions fish > ~/.config/fish/completions/sluice.fish

Names of services, pools and real servers come from the director, if it answers.";

/// `sluice top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two samples, 0.1 to 3600
    #[arg(
        long,
        short = 'd',
        value_name = "SECONDS",
        default_value_t = 1.0,
        value_parser = interval
    )]
    pub interval: f64,
    /// Print this many samples as plain text and end
    #[arg(long, short = 'b', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// With --batch: print each sample as a line of JSON
    #[arg(long, requires = "batch")]
    pub json: bool,
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `sluice doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Check for this configuration, whether a director runs or not
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Also show what is in order
    #[arg(long, short = 'a')]
    pub all: bool,
    /// Print only the commands that fix the findings
    #[arg(long, conflicts_with = "json")]
    pub fix_script: bool,
    /// Print findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}
