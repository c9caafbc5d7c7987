//! The command lines of measurements that are made of several runs or phases.

use super::{Family, Mode, Pages, Protocol, Throughput, count, seconds, whole_share};
use clap::{Args, ValueEnum};
use sluice_director::family::{Ipv4, Ipv6};
use sluice_director::path::BURST;
use sluice_director::session::SessionOf;
use sluice_director::spec::{self, Scheduling};
use std::path::PathBuf;

/// What every one of them takes.
#[derive(Clone, Debug, Args)]
pub struct Conditions {
    /// Pages of the session tables
    #[arg(long, value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// Nice value of the benchmark's scheduling group while it runs (-20 to 19)
    #[arg(long, allow_hyphen_values = true,
          value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Option<i8>,
    /// Where the random numbers begin: the same seed gives the same packets
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs that take turns.
#[derive(Clone, Debug, Args)]
pub struct Turns {
    /// Runs of each setting; all settings run once before any runs again
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub repeats: u16,
    /// How long each run measures
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub conditions: Conditions,
}

#[derive(Clone, Debug, Args)]
pub struct Memory {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP versions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Family::V4, Family::V6])]
    pub families: Vec<Family>,
    /// Numbers of sessions; 10_000 or 10k or 10M
    #[arg(long, value_delimiter = ',', default_value = "10k,100k,1M,10M", value_parser = count)]
    pub sessions: Vec<u64>,
    #[command(flatten)]
    pub turns: Turns,
}

#[derive(Clone, Debug, Args)]
pub struct Elephant {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Shares of the packets that are of one flow
    #[arg(long, value_delimiter = ',', default_value = "0,0.5,0.9,0.99,1",
          value_parser = whole_share)]
    pub shares: Vec<f64>,
    /// Sessions; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Spread one flow instead: what dealing, rewriting and collecting cost, and the rate that
    /// follows with so many helpers
    #[arg(long, value_name = "HELPERS", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub spread: Vec<u16>,
    /// With --spread: forwarding modes; gue and gre with a checksum over the packet inside; toa and
    /// proxy of TCP, proxy-udp with a header in each datagram
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Work::Fnat, Work::Ipip])]
    pub work: Vec<Work>,
    /// With --spread: bytes of the frames, frame check sequence included
    #[arg(long, value_delimiter = ',', default_value = "64,512,1500",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: Vec<u16>,
    /// With --spread: what carries packets to helpers and back in order: the director's own rings,
    /// or DPDK's event_sw with an event for each packet, or for each chunk of 32
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Stage::Own])]
    pub stage: Vec<Stage>,
    /// With --spread: also run the owner and one helper on two cores at once, and give the rate
    /// beside the one that follows from the cycles
    #[arg(long)]
    pub two_cores: bool,
    #[command(flatten)]
    pub turns: Turns,
}

/// How the packets of a spread flow are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Full NAT
    Fnat,
    /// Destination NAT
    Nat,
    /// Direct routing
    Dr,
    /// IP in IP
    Ipip,
    /// GUE with the checksum of the outer UDP datagram
    Gue,
    /// GRE with its checksum
    Gre,
    /// Full NAT of a TCP connection whose real server learns the client's address by a TCP option
    Toa,
    /// The same by a PROXY header, version 2, at the front of the stream
    Proxy,
    /// Full NAT of datagrams, each with a PROXY header, version 2
    ProxyUdp,
    /// Source NAT
    Snat,
}

impl Work {
    /// The mode that the rest of the scene is as with.
    pub const fn like(self) -> Mode {
        match self {
            Self::Fnat | Self::Toa | Self::Proxy | Self::ProxyUdp => Mode::Fnat,
            Self::Nat => Mode::Nat,
            Self::Dr => Mode::Dr,
            Self::Ipip | Self::Gue | Self::Gre => Mode::Ipip,
            Self::Snat => Mode::Snat,
        }
    }

    /// The mode of the configuration.
    pub const fn mode(self) -> spec::Mode {
        match self {
            Self::Fnat | Self::Toa | Self::Proxy | Self::ProxyUdp => spec::Mode::Fnat,
            Self::Nat => spec::Mode::Nat,
            Self::Dr => spec::Mode::Dr,
            Self::Ipip => spec::Mode::Ipip,
            Self::Gue => spec::Mode::Gue,
            Self::Gre => spec::Mode::Gre,
            Self::Snat => spec::Mode::Snat,
        }
    }

    /// How the real server learns the client's address.
    pub const fn client_address(self) -> spec::ClientAddress {
        match self {
            Self::Toa => spec::ClientAddress::Toa,
            Self::Proxy | Self::ProxyUdp => spec::ClientAddress::ProxyV2,
            _ => spec::ClientAddress::Hidden,
        }
    }

    /// What the flow is of.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Toa | Self::Proxy => Protocol::Tcp,
            _ => Protocol::Udp,
        }
    }
}

/// What carries the packets of a spread flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The director's own rings.
    #[value(name = "own")]
    Own,
    /// DPDK's scheduler in software, an event a packet.
    #[value(name = "event_sw")]
    EventSw,
    /// The same, an event for a chunk.
    #[value(name = "event_sw_chunks")]
    EventSwChunks,
}

impl Stage {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::EventSw => "event_sw",
            Self::EventSwChunks => "event_sw_chunks",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct Scaling {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// The most workers [default: the cores that the process may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,
    /// Sessions of each worker; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Shares of the outbound packets that reach a worker that does not own their session; fnat
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.5", value_parser = super::share)]
    pub misdirected: Vec<f64>,
    #[command(flatten)]
    pub turns: Turns,
}

/// When packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// At random moments (a Poisson process)
    Poisson,
    /// At equal distances
    Constant,
}

#[derive(Clone, Debug, Args)]
pub struct Latency {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Sessions; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Shares of the highest rate
    #[arg(long, value_delimiter = ',', default_value = "0.5,0.9", value_parser = load)]
    pub loads: Vec<f64>,
    /// When packets arrive
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    pub arrivals: Arrivals,
    /// Frames that a queue gives at a time, at most
    #[arg(long, default_value_t = BURST as u16,
          value_parser = clap::value_parser!(u16).range(1..=BURST as i64))]
    pub burst: u16,
    /// Frames in flight: the clock stands still whenever so many have gone, for new ones
    #[arg(long, default_value = "4096", value_parser = count)]
    pub frames: u64,
    /// The worker's core [default: the last one that the process may use]
    #[arg(long)]
    pub core: Option<usize>,
    #[command(flatten)]
    pub turns: Turns,
}

#[derive(Clone, Debug, Args)]
pub struct Churn {
    /// Forwarding mode; not snat
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Established sessions; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Sessions that come, and go, in a second of the worker's time
    #[arg(long, default_value = "1M", value_parser = count)]
    pub rate: u64,
    /// How long to measure, after the 3.5 seconds until as many go as come, at most as long as this
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// The worker's core [default: the last one that the process may use]
    #[arg(long)]
    pub core: Option<usize>,
    #[command(flatten)]
    pub conditions: Conditions,
}

#[derive(Clone, Debug, Args)]
pub struct Plot {
    /// Where the results are: what commands printed with --json, in files named *.json
    #[arg(default_value = "bench/results")]
    pub results: PathBuf,
    /// Where the plots go
    #[arg(long, default_value = "docs/plots")]
    pub out: PathBuf,
    /// Where a page with tables and the plots goes
    #[arg(long, default_value = "docs/suite.md")]
    pub page: PathBuf,
}

/// The word that an option takes.
pub fn word<V: ValueEnum>(value: &V) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Turns {
    /// The same for `throughput`.
    pub fn words(&self) -> Vec<String> {
        let conditions = &self.conditions;
        let mut words = vec![
            "--pages".into(),
            word(&conditions.pages),
            format!("--seconds={}", self.seconds),
            format!("--seed={}", conditions.seed),
        ];
        words.extend(conditions.nice.map(|nice| format!("--nice={nice}")));
        words
    }
}

impl Throughput {
    /// What the command line says when it says nothing, of one worker.
    pub fn usual(mode: Mode, family: Family, conditions: &Conditions) -> Self {
        Self {
            mode,
            scheduler: Scheduling::Rr,
            family,
            protocol: Protocol::Udp,
            size: None,
            mapping: super::Mapping::EndpointIndependent,
            sessions: 1,
            workers: 1,
            seconds: 1.0,
            burst: BURST as u16,
            frames: 4096,
            misdirected: 0.0,
            elephant: 0.0,
            reals: 16,
            pages: conditions.pages,
            cores: Vec::new(),
            nice: conditions.nice,
            seed: conditions.seed,
            json: conditions.json,
            no_bar: true,
            mix: false,
            spare: 0,
            to_come: 0,
        }
    }
}

impl Throughput {
    /// Bytes of a session's slot in the table that it is in.
    pub const fn session_bytes(&self) -> usize {
        match (self.family, self.mode) {
            (Family::V4, Mode::Fnat | Mode::Nat | Mode::Dr | Mode::Ipip) => {
                size_of::<SessionOf<Ipv4>>()
            }
            _ => size_of::<SessionOf<Ipv6>>(),
        }
    }
}

fn load(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number")?;
    (0.01..=0.99).contains(&number).then_some(number).ok_or("0.01 to 0.99".into())
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn lists_are_understood() {
        let parse = |line: &str| {
            Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
        };
        let line = "sluice-bench memory --sessions 10k,256M --families 4 --nice -20";
        let Command::Memory(args) = parse(line).unwrap().command else { panic!() };
        assert_eq!((args.sessions, args.families.len()), (vec![10_000, 256_000_000], 1));
        assert!(args.turns.words().contains(&"--nice=-20".to_owned()));
        let Command::Elephant(args) = parse("sluice-bench elephant").unwrap().command else {
            panic!()
        };
        assert_eq!(args.shares, [0.0, 0.5, 0.9, 0.99, 1.0]);
        for (line, why) in [
            ("latency --loads 1", "0.01 to 0.99"),
            ("elephant --shares 2", "0 to 1"),
            ("memory --sessions 10x", "10_000"),
        ] {
            let error = parse(&format!("sluice-bench {line}")).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
