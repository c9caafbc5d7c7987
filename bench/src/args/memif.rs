//! The command line of shared-memory ports.

use super::Conditions;
use super::count;
use clap::{Args, ValueEnum};

pub const ABOUT: &str = "\
Gbit/s of one core between shared-memory ports (memif), by frame size: plain, and in an isolated \
network whose real servers are behind VXLAN.

One worker, as the director runs it, over two memif ports of its own driver; at the other ends is \
the generator, a client of memif on another core. Sessions are Full NAT of UDP over IPv4; half of \
the packets go inbound, half outbound. All that the two share is the memory of memif, so frames \
come from another core's caches as those of a container do. The generator writes a round, the \
worker is timed while it forwards it, then the generator reads what came: no cycle of the \
generator counts. Each frame must come out, and some are judged by a parser that is not the \
director's.

With `--copy dma` a copy engine of DPDK's rte_dmadev copies frames of --dma-from bytes or more. \
Turns in which there was nothing to do but to wait for it do not count as cycles; they do as \
elapsed time. `dma_skeleton`, a thread that copies, shows that it works, not how fast hardware is.

All settings take turns, some rounds each, so that what disturbs the machine hits all alike; the \
median of the rounds counts.";

/// What is around the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Ports of the default network
    None,
    /// Clients' port in an isolated network, real servers behind a VXLAN port of it
    Vxlan,
}

/// Who copies frames out of shared memory and into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Copies {
    /// The worker
    Cpu,
    /// A copy engine
    Dma,
}

#[derive(Clone, Debug, Args)]
pub struct Memif {
    /// Bytes of a frame, with the four of the frame check sequence (as RFC 2544 counts); in a
    /// tunnel those of the frame inside
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 1500],
          value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub sizes: Vec<u16>,
    /// Networks to compare
    #[arg(long = "network", value_enum, value_delimiter = ',',
          default_values_t = [Network::None, Network::Vxlan])]
    pub networks: Vec<Network>,
    /// Who copies, to compare
    #[arg(long = "copy", value_enum, value_delimiter = ',', default_values_t = [Copies::Cpu])]
    pub copies: Vec<Copies>,
    /// The copy engine: a PCI address, a work queue's name (wq0.0), or dma_skeleton
    #[arg(long, default_value = "dma_skeleton")]
    pub dma_device: String,
    /// Bytes from which on it copies
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub dma_from: u32,
    /// Sessions of each network; 10_000 or 10k or 10M
    #[arg(long, default_value = "100k", value_parser = count)]
    pub sessions: u64,
    /// Rounds of each size and setting that count
    #[arg(long, default_value_t = 480, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Packets of a round in each direction
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub frames: u16,
    /// Core of the worker, then of the generator [default: the last ones]
    #[arg(long, value_delimiter = ',', num_args = 2)]
    pub cores: Vec<usize>,
    #[command(flatten)]
    pub conditions: Conditions,
}
