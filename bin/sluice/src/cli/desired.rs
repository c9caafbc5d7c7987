//! What changes the desired state, and what shows it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use sluice_api::model::HistoryLine;
use sluice_api::{Endpoint, parse_limit};
use sluice_config::{Mode, Scheduling};

use super::Asking;
use crate::complete;

/// A help text that lists what there is.
fn listed<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
    format!("{text}: {}", names.join(", "))
}

pub const CONFIG_EXAMPLES: &str = "\
Examples:
  sluice config check /etc/sluice/sluice.toml
  sluice config show --origin
  sluice config diff /etc/sluice/sluice.toml
  sluice config apply services.toml --dry-run
  sluice config history
  sluice config rollback 12

What the file says is changed in the file and reloaded; services, checks, pools and rules of
source NAT that come by `apply`, `service` and `pool` are the API's and survive a restart.";

pub const SERVICE_EXAMPLES: &str = "\
Examples:
  sluice service add web --protocol tcp --vip 198.51.100.200 --port 80 --pool lan \\
      --real 192.0.2.11:8080 --real 192.0.2.12:8080
  sluice service add dns --protocol udp --vip 198.51.100.200 --port 53 --pool lan \\
      --set scheduler='\"wlc\"' --set one_packet=true
  sluice service show web
  sluice service delete web";

pub const REAL_EXAMPLES: &str = "\
Examples:
  sluice real show web
  sluice real drain web 192.0.2.11:80      no new sessions; live ones continue
  sluice real enable web 192.0.2.11:80
  sluice real set web 192.0.2.11:80 --weight 5
  sluice real reset web 192.0.2.11:80      removes the override
  sluice real add web 192.0.2.14:80 --weight 2

`set`, `drain`, `disable` and `enable` override what is configured, whoever owns the service, until
`reset` or until the owner changes that real server.";

/// `sluice config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Checks a configuration file, without a director
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print errors and warnings as JSON
        #[arg(long)]
        json: bool,
    },
    /// The desired state, as a configuration file would express it
    Show {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Show the owner of each object
        #[arg(long)]
        origin: bool,
    },
    /// What a reload with this file would change; exit code 0: nothing, 1: something
    Diff {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Creates or replaces the services, checks, pools and source NAT rules of a file
    Apply {
        /// How to change.
        #[command(flatten)]
        changing: Changing,
        /// A file with [[service]], [[pool]] and [[snat]] sections
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// What was changed, when and by whom; with a number one change in full
    History {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// At most this many, up to 1000
        #[arg(
            long,
            value_name = "N",
            default_value_t = HistoryLine::DEFAULT_LIMIT,
            value_parser = |text: &str| parse_limit(text, HistoryLine::MAX_LIMIT)
        )]
        limit: u32,
        /// This epoch only
        #[arg(value_name = "EPOCH")]
        epoch: Option<u64>,
    },
    /// Restores the state of an earlier epoch as a new epoch
    Rollback {
        /// How to change.
        #[command(flatten)]
        changing: Changing,
        /// The epoch to go back to
        #[arg(value_name = "EPOCH")]
        epoch: u64,
    },
    /// Makes the director reread its configuration file
    Reload(Changing),
}

/// `sluice service`.
#[derive(Debug, Subcommand)]
pub enum Service {
    /// Creates a service
    Add(Box<NewService>),
    /// Deletes a service; its `on_removed` decides about its sessions
    Delete {
        /// How to change.
        #[command(flatten)]
        changing: Changing,
        /// Its name
        #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
        name: String,
    },
    /// One service or all, as they are configured
    Show(ShowObjects),
}

/// `sluice pool`.
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Creates a local pool
    Add {
        /// How to change.
        #[command(flatten)]
        changing: Changing,
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// Its addresses: single ones, ranges or prefixes
        #[arg(value_name = "ADDRESSES", required = true)]
        addresses: Vec<String>,
        /// Its ports, such as 1024-65535
        #[arg(long, value_name = "FIRST-LAST")]
        ports: Option<String>,
    },
    /// Deletes a pool that nothing uses
    Delete {
        /// How to change.
        #[command(flatten)]
        changing: Changing,
        /// Its name
        #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::pools))]
        name: String,
    },
    /// One pool or all, as they are configured
    Show(ShowObjects),
}

/// `sluice real`.
#[derive(Debug, Subcommand)]
pub enum Real {
    /// The real servers of a service: configured and overridden weight and state
    Show {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// The service
        #[arg(value_name = "SERVICE", add = ArgValueCompleter::new(complete::services))]
        service: String,
    },
    /// Adds a real server to a service of the API
    Add {
        /// Which.
        #[command(flatten)]
        which: Which,
        /// Its weight, 0 to 65535
        #[arg(long, value_name = "N")]
        weight: Option<u16>,
        /// Any other key of [[service.real]], such as mode='"dr"'
        #[arg(long = "set", value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Deletes a real server of a service of the API
    Delete(Which),
    /// Overrides the weight
    Set {
        /// Which.
        #[command(flatten)]
        which: Which,
        /// The weight, 0 to 65535; 0 drains
        #[arg(long, value_name = "N")]
        weight: u16,
    },
    /// No new sessions; existing ones continue
    Drain(Which),
    /// No new sessions; the service's `on_down` decides about existing ones
    Disable(Which),
    /// It gets new sessions again
    Enable(Which),
    /// Removes all overrides: the configured values apply
    Reset(Which),
}

/// Which real server, and how to change it.
#[derive(Debug, Args)]
pub struct Which {
    /// How to change.
    #[command(flatten)]
    pub changing: Changing,
    /// The service
    #[arg(value_name = "SERVICE", add = ArgValueCompleter::new(complete::services))]
    pub service: String,
    /// The real server
    #[arg(value_name = "ADDRESS[:PORT]", add = ArgValueCompleter::new(complete::reals))]
    pub real: Endpoint,
}

/// Objects to show.
#[derive(Debug, Args)]
pub struct ShowObjects {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Only this one
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::objects))]
    pub name: Option<String>,
}

/// A service to make.
#[derive(Debug, Args)]
pub struct NewService {
    /// How to change.
    #[command(flatten)]
    pub changing: Changing,
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Its protocol: tcp, udp, sctp, any
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: String,
    /// Its virtual address
    #[arg(long, value_name = "ADDRESS")]
    pub vip: String,
    /// Its port, or a range such as 8000-8099; all ports without it
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// Its local pool, for fnat
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    #[arg(long, value_name = "MODE",
          help = listed("How packets reach its real servers", &Mode::OF_REALS, Mode::name))]
    pub mode: Option<String>,
    #[arg(long, value_name = "SCHEDULER",
          help = listed("How real servers are chosen", Scheduling::ALL, Scheduling::name))]
    pub scheduler: Option<String>,
    /// A real server; may be repeated
    #[arg(long = "real", value_name = "ADDRESS[:PORT]")]
    pub reals: Vec<Endpoint>,
    /// Any other key of [[service]], such as persistence_s=300
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub keys: Vec<String>,
}

/// How to change.
#[derive(Debug, Args)]
pub struct Changing {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Let services take ports on which this machine itself listens
    #[arg(long)]
    pub force: bool,
    /// Only if this epoch is in force
    #[arg(long, value_name = "EPOCH")]
    pub if_epoch: Option<u64>,
}
