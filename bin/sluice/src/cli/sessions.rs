//! `sluice sessions`.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use sluice_api::model::{Protocol, SessionState};
use sluice_api::{Cursor, Endpoint, SessionQuery};

use super::Asking;
use crate::complete;

pub const KILL_EXAMPLES: &str = "\
Examples:
  sluice sessions kill --service web --dry-run
  sluice sessions kill --client 198.51.100.48
  sluice sessions kill --real 192.0.2.11:80 --protocol tcp
  sluice sessions kill --all

Neither side is notified. The next packet of either side finds no session: by default it is \
dropped, and the sides time out; with no_session = \"reset\" of [tcp] they get a reset. A SYN or a \
first datagram opens a new session.";

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum Doing {
    /// Ends sessions: those of a filter, or all
    #[command(after_help = KILL_EXAMPLES)]
    Kill {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Which.
        #[command(flatten)]
        filter: Filter,
        /// All sessions of the director, in place of a filter
        #[arg(long)]
        all: bool,
        /// Only count them
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which sessions.
#[derive(Debug, Args)]
pub struct Filter {
    /// Of this virtual service
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
    service: Option<String>,
    /// In this network; `default` for the default one
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::networks))]
    network: Option<String>,
    /// From this client
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    client: Option<Endpoint>,
    /// To this real server
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        add = ArgValueCompleter::new(complete::reals)
    )]
    real: Option<Endpoint>,
    /// In this state: syn_recv, established, fin_wait, close_wait, last_ack, time_wait, close,
    /// udp, one_packet, sctp, icmp, other
    #[arg(long, value_name = "STATE")]
    state: Option<SessionState>,
    /// Of this protocol: tcp, udp, sctp, icmp, any (another one)
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
}

impl Filter {
    /// As the director is asked.
    pub fn query(self) -> SessionQuery {
        let Self { service, network, client, real, state, protocol } = self;
        let all = SessionQuery::default();
        SessionQuery { service, network, client, real, state, protocol, ..all }
    }
}

/// Which part of them.
#[derive(Debug, Args)]
pub struct Page {
    /// At most this many, up to 100000
    #[arg(
        long,
        value_name = "N",
        default_value_t = SessionQuery::DEFAULT_LIMIT,
        value_parser = SessionQuery::parse_limit
    )]
    limit: u32,
    /// From where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<Cursor>,
}

impl Page {
    /// This part of what a query asks for.
    pub fn of(self, query: SessionQuery) -> SessionQuery {
        SessionQuery { limit: self.limit, cursor: self.cursor, ..query }
    }
}
