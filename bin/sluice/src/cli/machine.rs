//! What looks at the director and at its machine for longer than one answer: `top` and `doctor`.

use std::path::PathBuf;

use clap::Args;

use super::interval;

pub const TOP_ABOUT: &str = "\
A dashboard in the terminal that refreshes: rates, services, real servers, workers, drops, \
elephants, ports.

Keys: Tab and 1 to 6 change the view, arrows choose a line, Enter shows what it is made of, Esc \
goes back, `s` and `S` sort by the next or the previous column, `r` reverses, `/` filters, \
space holds, `+` and `-` change the interval, `?` explains, `q` ends.

With --batch it prints plain text so many times and ends, as `top -b` does.";

pub const DOCTOR_ABOUT: &str = "\
Looks at this machine and at the configuration, and says how to mend what is wrong.

Without --config it asks the director what is configured, and looks at the process that runs; \
without a director it reads /etc/sluice/sluice.toml if it is there. It changes nothing and needs \
no privilege: what it may not look at it says. As root it has the kernel ask by ARP for real \
servers, and whether anybody else has this machine's virtual addresses.

Exit codes: 0 all is well, 1 something may be better, 2 something is wrong.";

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  sluice completions bash > /etc/bash_completion.d/sluice
  sluice completions zsh > /usr/share/zsh/site-functions/_sluice
  sluice completions fish > ~/.config/fish/completions/sluice.fish

Names of services, pools and real servers come from the director, if it answers.";

/// `sluice top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two looks, 0.1 to 3600
    #[arg(
        long,
        short = 'd',
        value_name = "SECONDS",
        default_value_t = 1.0,
        value_parser = interval
    )]
    pub interval: f64,
    /// Print so many looks as plain text and end
    #[arg(long, short = 'b', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// With --batch: print each look as a line of JSON
    #[arg(long, requires = "batch")]
    pub json: bool,
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `sluice doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look for this configuration, whether a director runs or not
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Also what is well
    #[arg(long, short = 'a')]
    pub all: bool,
    /// Print only the commands that mend what was found
    #[arg(long, conflicts_with = "json")]
    pub fix_script: bool,
    /// Print findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}
