//! The command line.

use crate::error::BenchError;
use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_director::blueprint;
use sluice_director::path::{BURST, PagePolicy};

/// How fast the director is.
#[derive(Debug, Parser)]
#[command(name = "sluice-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cycles a packet and Mpps of the worker loop on a port in memory
    #[command(long_about = ABOUT)]
    Throughput(Throughput),
    /// Shares, moved clients and cycles a new session of each scheduler
    Schedulers(Schedulers),
}

const ABOUT: &str = "\
Cycles a packet and Mpps of the worker loop on a port in memory.

Sessions are opened by real first packets; then rounds of random flows over all of them, half \
inbound (client to VIP) and half outbound (real server to local address), go through the worker. \
Frames are written before a round is timed; every frame must come out again, some are checked \
byte by byte, and a run that drops anything fails.

`cycles_per_packet` counts ticks of the time stamp counter (TSC), which has its own frequency: \
`tsc_ghz`. `core_ghz` is what the core really ran at. The median over the rounds counts; \
`memory_floor` is what a random cache line of a region as large as the tables costs on this \
machine in the same minute.

On a machine that does other work too, give the benchmark priority (`--nice=-20`) and compare \
several short runs.";

#[derive(Clone, Debug, Args)]
pub struct Throughput {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// Scheduler
    #[arg(long, value_enum, default_value_t = Scheduler::Rr)]
    pub scheduler: Scheduler,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Protocol of the service
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub protocol: Protocol,
    /// Bytes of a frame, with the four of the frame check sequence (as RFC 2544 counts)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub size: u16,
    /// Sessions of the whole director, split evenly between the workers; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Workers, each on a core of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// How long to measure
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Frames that a queue gives at a time, at most
    #[arg(long, default_value_t = BURST as u16,
          value_parser = clap::value_parser!(u16).range(1..=BURST as i64))]
    pub burst: u16,
    /// Frames in flight at each worker: the packets of a round
    #[arg(long, default_value = "4096", value_parser = count)]
    pub frames: u64,
    /// Share of the outbound packets that reach a worker that does not own their session: 0 to 0.5
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub stray: f64,
    /// Real servers of the service
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub reals: u16,
    /// Pages of the session tables
    #[arg(long, value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// Cores of the workers (`1` or `2,3`) [default: the last ones that the process may use]
    #[arg(long, value_delimiter = ',')]
    pub cores: Vec<usize>,
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

#[derive(Clone, Debug, Args)]
pub struct Schedulers {
    /// Numbers of real servers to measure the cost with
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub reals: Vec<u32>,
    /// Sessions to distribute; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// Full NAT
    Fnat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Scheduler {
    /// Round robin
    Rr,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Family {
    /// IPv4
    #[value(name = "4")]
    V4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Sessions that are open with their first packet
    Udp,
    /// Sessions whose handshake is complete
    Tcp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Pages {
    /// Reserved huge pages where there are enough, else ordinary ones
    Auto,
    /// Reserved huge pages or an error
    Huge,
    /// Ordinary pages, merged by the kernel where it can
    Ordinary,
}

/// Most hand-offs of one round between two workers: the ring between them holds 1,024 frames, and
/// the receiver may be held up by the machine for a whole round.
const HAND_OFFS: u64 = 1024;

impl Throughput {
    /// Sessions of one worker.
    pub fn sessions_each(&self) -> u32 {
        (self.sessions / u64::from(self.workers)) as u32
    }

    /// Outbound packets of a round that one worker gets for each other worker.
    pub fn strays_each(&self) -> usize {
        let others = f64::from(self.workers - 1).max(1.0);
        (self.frames as f64 / 2.0 * self.stray / others) as usize
    }

    /// Refuses what each option alone allows but all together do not.
    pub fn check(&self) -> Result<(), BenchError> {
        let workers = u64::from(self.workers);
        if self.sessions < workers || self.sessions / workers > 1 << 29 {
            return Err(BenchError::Usage(format!(
                "--sessions {}: each of {workers} workers needs 1 to {}",
                self.sessions,
                1 << 29
            )));
        }
        if !(256..=1 << 20).contains(&self.frames) || !self.frames.is_multiple_of(2) {
            let text = "--frames takes an even number from 256 to 1048576";
            return Err(BenchError::Usage(text.into()));
        }
        if self.stray > 0.0 && self.workers == 1 {
            return Err(BenchError::Usage("--stray needs two --workers or more".into()));
        }
        if self.stray > 0.0 && !(1..=HAND_OFFS).contains(&(self.strays_each() as u64)) {
            return Err(BenchError::Usage(format!(
                "--stray {} of {} frames is {} packets a round between two workers: 1 to \
                 {HAND_OFFS} fit into a hand-off ring",
                self.stray,
                self.frames,
                self.strays_each()
            )));
        }
        if !self.cores.is_empty() && self.cores.len() != usize::from(self.workers) {
            let text = format!("--cores names {} cores for {workers} workers", self.cores.len());
            return Err(BenchError::Usage(text));
        }
        Ok(())
    }
}

impl Protocol {
    pub const fn of_blueprint(self) -> blueprint::Protocol {
        match self {
            Self::Udp => blueprint::Protocol::Udp,
            Self::Tcp => blueprint::Protocol::Tcp,
        }
    }
}

impl Pages {
    pub const fn policy(self) -> PagePolicy {
        match self {
            Self::Auto => PagePolicy::Auto,
            Self::Huge => PagePolicy::HugeOnly,
            Self::Ordinary => PagePolicy::Ordinary,
        }
    }
}

/// A number that may have underscores and end in k or M.
fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (digits, unit) = match plain.strip_suffix(['k', 'M']) {
        Some(digits) if plain.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (plain.as_str(), 1),
    };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(|| "not like 10_000, 10k or 10M".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    (0.01..=3600.0).contains(&number).then_some(number).ok_or("0.01 to 3600 seconds".into())
}

fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number")?;
    (0.0..=0.5).contains(&number).then_some(number).ok_or("0 to 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Throughput, String> {
        let words = ["sluice-bench", "throughput"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Throughput(args) = cli.command else { return Err("not throughput".into()) };
        args.check().map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn the_documented_line_is_understood() {
        let args = parse(
            "--mode fnat --scheduler rr --family 4 --protocol udp --size 64 --sessions 10M \
             --workers 2 --seconds 3 --json",
        )
        .unwrap();
        assert_eq!((args.sessions_each(), args.workers), (5_000_000, 2));
        assert!(args.json && args.strays_each() == 0);
        assert_eq!(parse("--sessions 1_500k --nice -20").unwrap().sessions, 1_500_000);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (line, why) in [
            ("--sessions 1 --workers 2", "--sessions 1"),
            ("--sessions many", "10_000"),
            ("--size 63", "64..=1518"),
            ("--stray 0.1", "two --workers"),
            ("--stray 0.6 --workers 2", "0 to 0.5"),
            ("--stray 0.5 --workers 2 --frames 8192", "hand-off ring"),
            ("--cores 0,1", "2 cores for 1 workers"),
            ("--frames 257", "even number"),
            ("--burst 65", "1..=64"),
            ("--seconds 0", "0.01 to 3600"),
            ("--mode dr", "fnat"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
