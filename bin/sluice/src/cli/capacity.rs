//! `sluice capacity`.

use clap::{Args, ValueEnum};

pub const ABOUT: &str = "\
Computes what a load needs: sessions, memory, workers, local addresses, synchronisation.

No director is asked. Figures a core are what the benchmarks of docs/benchmarks.md gave on virtual \
machines, at half of the core's time; those of a network card are an estimate. Measure your own \
(`make memif`, `make af-packet`) and give them with --packets-per-core.";

pub const EXAMPLES: &str = "\
Examples:
  sluice capacity --connections 50k --duration 40 --packets 4M --real-servers 20
  sluice capacity --sessions 10M --connections 100k --packets 8M --port nic --ipv6
  sluice capacity --sessions 2M --connections 20k --mode dr --json";

/// `sluice capacity`.
#[derive(Debug, Clone, Args)]
pub struct Capacity {
    /// Sessions at the same time, at the peak; default: --connections times --duration
    #[arg(long, value_name = "N", value_parser = number, required_unless_present = "duration")]
    pub sessions: Option<u64>,
    /// New connections (or flows of UDP) per second, at the peak
    #[arg(long, value_name = "N", value_parser = number)]
    pub connections: u64,
    /// Seconds that a session lasts on average, its timeout after the last packet included
    #[arg(long, value_name = "SECONDS", value_parser = number)]
    pub duration: Option<u64>,
    /// Packets per second at the peak, of both directions that the director forwards; default: ten
    /// for each new connection
    #[arg(long, value_name = "N", value_parser = number)]
    pub packets: Option<u64>,
    /// Endpoints (address and port) of real servers that share the sessions
    #[arg(long, value_name = "N", value_parser = number, default_value = "1")]
    pub real_servers: u64,
    /// Forwarding: only fnat takes local addresses
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// Ports of each local address, as `ports` of a [[pool]] has them
    #[arg(long, value_name = "N", value_parser = number, default_value = "64512")]
    pub ports: u64,
    /// Sessions are in the extended table: IPv6, source NAT, or the client's address by TOA
    #[arg(long)]
    pub ipv6: bool,
    /// How packets come and go
    #[arg(long, value_enum, default_value_t = Port::AfXdp)]
    pub port: Port,
    /// Packets per second that a core forwards by these ports; default: by --port
    #[arg(long, value_name = "N", value_parser = number)]
    pub packets_per_core: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A forwarding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Full NAT, or source NAT.
    Fnat,
    /// NAT.
    Nat,
    /// Direct routing.
    Dr,
    /// Any tunnel.
    Tunnel,
}

/// A kind of port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Port {
    /// AF_XDP in copy mode.
    AfXdp,
    /// Packet sockets.
    AfPacket,
    /// Shared memory.
    Memif,
    /// A network card that DPDK drives.
    Nic,
}

/// A whole number above 0, with `k`, `M` or `G` for thousands, millions and thousands of millions.
fn number(text: &str) -> Result<u64, String> {
    let wrong = || "a whole number of 1 or more, such as 500, 50k, 4M or 1G".to_owned();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let value = digits.parse::<u64>().ok().and_then(|it| it.checked_mul(unit));
    // What is far beyond any machine would only overflow later.
    value.filter(|it| (1..=1_000_000_000_000).contains(it)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_units() {
        for (text, value) in
            [("1", 1), ("50k", 50_000), ("50K", 50_000), ("4M", 4_000_000), ("2G", 2_000_000_000)]
        {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "0", "-1", "k", "1.5M", "4m", "1000000G", "99999999999999999999", "µ"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
