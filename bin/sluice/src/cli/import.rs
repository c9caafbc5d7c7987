//! What takes over the files of other balancers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub const EXAMPLES: &str = "\
Examples:
  sluice import keepalived /etc/keepalived/keepalived.conf > services.toml
  sluice import keepalived --config-id main --output services.toml keepalived.conf
  ipvsadm-save -n | sluice import ipvsadm-save -
  sluice config apply services.toml

Services, checks and pools go to standard output or --output, what has no equivalent line by line to
standard error, and as comments into the result. Put the sections into the director's file, behind
its ports, or hand them over by `sluice config apply`.

Exit codes: 0 all was converted, 3 something has no equivalent, 1 it failed, 2 the command line is
wrong.";

/// `sluice import`.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// Converts keepalived.conf, also that of DPVS's fork
    Keepalived {
        /// What `@` lines ask for; without it the first part of this host's name
        #[arg(long, value_name = "ID")]
        config_id: Option<String>,
        /// From where to where.
        #[command(flatten)]
        way: Way,
    },
    /// Converts what ipvsadm-save or `ipvsadm -S` wrote, also that of DPVS
    IpvsadmSave {
        /// Look up host names, which may take seconds each; without it they are remarks
        #[arg(long)]
        resolve: bool,
        /// From where to where.
        #[command(flatten)]
        way: Way,
    },
}

/// From where to where.
#[derive(Debug, Args)]
pub struct Way {
    /// The file; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write here and not to standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print sections and remarks as JSON
    #[arg(long)]
    pub json: bool,
}
