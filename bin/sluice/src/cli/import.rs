//! What takes over the files of other balancers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub const EXAMPLES: &str = "\
Examples:
  sluice import keepalived /etc/keepalived/keepalived.conf > services.toml
  sluice import keepalived --config-id main --output services.toml keepalived.conf
  ipvsadm-save -n | sluice import ipvsadm-save -
  sluice config apply services.toml

Services, checks and pools go to standard output or --output. Remarks on lines without an equivalent
go to standard error and, as comments, into the result. Append the sections to the director's file,
after its ports, or apply them with `sluice config apply`.

Exit codes: 0 all was converted, 3 something has no equivalent, 1 failure, 2 the command line is
wrong.";

/// `sluice import`.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// Converts keepalived.conf, also that of DPVS's fork
    Keepalived {
        /// The ID for `@` lines; default: the first part of this host's name
        #[arg(long, value_name = "ID")]
        config_id: Option<String>,
        /// From where to where.
        #[command(flatten)]
        way: Way,
    },
    /// Converts what ipvsadm-save or `ipvsadm -S` wrote, also that of DPVS
    IpvsadmSave {
        /// Resolve host names, which may take seconds each; otherwise they become remarks
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
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print sections and remarks as JSON
    #[arg(long)]
    pub json: bool,
}
