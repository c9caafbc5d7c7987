//! `sluice elephants`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use sluice_api::model::{FlowDirection, FlowPin, Protocol};

use super::Asking;
use crate::complete;

pub const EXAMPLES: &str = "\
Examples:
  sluice elephants
  sluice elephants pin udp 198.51.100.48:4000 198.51.100.200:53
  sluice elephants pin tcp 198.51.100.48:4000 198.51.100.200:80 --direction outbound --workers 3
  sluice elephants unpin udp 198.51.100.48:4000 198.51.100.200:53

A pinned flow is processed by several workers, in order, until it is unpinned or its session ends. \
docs/elephants.md says when that pays.";

/// What to do with a flow.
#[derive(Debug, Subcommand)]
pub enum Doing {
    /// Spreads a flow over several workers, in order
    Pin {
        /// Which.
        #[command(flatten)]
        flow: Flow,
        /// Over how many workers, its owner included; all unless it says otherwise
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
        workers: Option<u16>,
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
    },
    /// Has a flow processed by its owner alone again
    Unpin {
        /// Which.
        #[command(flatten)]
        flow: Flow,
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
    },
}

/// One direction of a session.
#[derive(Debug, Args)]
pub struct Flow {
    /// tcp or udp
    #[arg(value_name = "PROTOCOL")]
    protocol: Protocol,
    /// The client's address and port
    #[arg(value_name = "CLIENT:PORT")]
    client: SocketAddr,
    /// The virtual address and port
    #[arg(value_name = "VIRTUAL:PORT")]
    virtual_: SocketAddr,
    /// Which way: inbound, from the client, or outbound
    #[arg(long, value_name = "DIRECTION", default_value = "inbound")]
    direction: FlowDirection,
    /// The network that the session is in, unless it is the default one
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::networks))]
    network: Option<String>,
}

impl Flow {
    /// As the director is asked.
    pub fn pin(self, workers: Option<u16>) -> FlowPin {
        let Self { protocol, client, virtual_, direction, network } = self;
        FlowPin { protocol, client, virtual_, direction, network, workers }
    }
}
