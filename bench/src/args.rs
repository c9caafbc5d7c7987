//! The command line.

mod matrix;
mod memif;
mod mix;
mod rfc2544;
mod suite;

use crate::choice::scheduler;
pub use crate::choice::{Family, Mapping, Mode, Pages, Protocol};
use crate::clients::ENDPOINTS;
use crate::error::BenchError;
use crate::template::Template;
use crate::traffic::TRIES;
use clap::{Args, Parser, Subcommand};
pub use matrix::Matrix;
pub use memif::{Copies, Memif, Network};
pub use mix::{Mix, SETTLED_S as MIX_SETTLED_S};
pub use rfc2544::{Directions, Rfc2544};
use sluice_director::path::BURST;
use sluice_director::spec::Scheduling;
pub use suite::{
    Arrivals, Churn, Conditions, Elephant, Latency, Memory, Plot, Scaling, Stage, Work, word,
};

/// How fast the director is.
#[derive(Debug, Parser)]
#[command(name = "sluice-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cycles a packet of the mix that users have: sizes, first packets, TCP and UDP
    #[command(long_about = mix::ABOUT)]
    Mix(Mix),
    /// Cycles a packet and Mpps of the worker loop on a port in memory
    #[command(long_about = ABOUT)]
    Throughput(Throughput),
    /// Every mode, family and a choice of schedulers, in runs that take turns
    #[command(long_about = MATRIX)]
    Matrix(Matrix),
    /// TCP connections a second, from the first SYN to the deleted session
    #[command(long_about = CPS)]
    Cps(Cps),
    /// Shares, moved clients and cycles a new session of each scheduler
    Schedulers(Schedulers),
    /// Resident bytes a session, time to open, and Mpps over all of them, by number of sessions
    #[command(long_about = MEMORY)]
    Memory(Memory),
    /// Cycles a packet when one flow has a share of all packets
    Elephant(Elephant),
    /// One worker, two, ...: Mpps, the ratio to one, and what a hand-off costs
    #[command(long_about = SCALING)]
    Scaling(Scaling),
    /// Percentiles of the time that a frame spends in the worker's loop, below its highest rate
    #[command(long_about = LATENCY)]
    Latency(Latency),
    /// What sessions that open and end cost established traffic
    #[command(long_about = CHURN)]
    Churn(Churn),
    /// Gbit/s of one core between shared-memory ports, plain and in an isolated network
    #[command(long_about = memif::ABOUT)]
    Memif(Memif),
    /// MAX, PDR and NDR of a whole director: RFC 2544's throughput by RFC 9971's search
    #[command(name = "rfc2544", long_about = rfc2544::ABOUT)]
    Rfc2544(Box<Rfc2544>),
    /// Renders results as SVG
    Plot(Plot),
}

const ABOUT: &str = "\
Cycles a packet and Mpps of the worker loop on a port in memory.

Sessions are opened by real first packets; then rounds of random flows over all of them, half \
inbound (from the clients) and half outbound (what answers them), go through the worker; of dr and \
ipip the director sees only the inbound direction, and of snat the clients are the hosts inside. \
Frames are written before a round is timed; every frame must come out again, some are checked \
byte by byte, and a run that drops anything fails.

`cycles_per_packet` counts ticks of the time stamp counter (TSC), which has its own frequency: \
`tsc_ghz`. `core_ghz` is what the core really ran at. The median over the rounds counts; \
`memory_floor` is what a random cache line of a region as large as the tables costs on this \
machine in the same minute.

On a machine that does other work too, give the benchmark priority (`--nice=-20`) and compare \
several short runs.";

const MATRIX: &str = "\
Every mode, family and a choice of schedulers, in runs that take turns.

Each cell is `throughput` in a process of its own, `--repeats` times; all cells run once before \
any runs again, so that what disturbs the machine hits all alike. A cell's figure is the median of \
its runs' medians.";

const CPS: &str = "\
TCP connections a second, from the first SYN to the deleted session, on one worker.

SYN, SYN+ACK, ACK, request, answer, and a FIN of each side with its acknowledgement: five segments \
of the client and three of the server, of connections that are at different points of their lives. \
Of dr and ipip the director sees the client's five alone, and deletes the session when FIN_WAIT is \
over, which is a second here. Meanwhile `--sessions` other connections are open.";

const MEMORY: &str = "\
Resident bytes a session, time to open, and Mpps over all of them, by number of sessions.

Each run is `throughput` in a process of its own. Bytes are what the process's resident memory \
(RSS, and reserved huge pages in use) grew by from before the tables were made until all sessions \
were open. The generator's own memory, six bytes a session, is there before and not counted.";

const SCALING: &str = "\
One worker, two, ...: Mpps, the ratio to one, and what a hand-off costs.

Each worker has as many sessions as the single one, so that no table gets smaller by dividing. \
With misdirected packets, a share of the outbound ones arrives at a worker that does not own their \
session and is handed over; what that costs is the difference of all workers' cycles divided by \
the number of such packets.";

const LATENCY: &str = "\
Percentiles of the time that a frame spends in the worker's loop, below its highest rate.

First as many frames as the loop takes, for the highest rate; then arrivals on a schedule, at a \
share of that rate, whether the loop is ready or not (open loop). The time of a frame is from the \
moment it was scheduled for until the loop handed it to the queue that it leaves by, so that a \
frame that waits because an earlier one was slow counts its waiting (no coordinated omission). \
The clock stands still while frames are written; whatever else interrupts the worker counts. \
Beside the percentiles of all frames stand those of quiet rounds, in which the kernel ran \
nothing else on the core and no remains of that waited: they are the loop's own.";

const CHURN: &str = "\
What sessions that open and end cost established traffic.

Two workers on one core, with tables of one size, take turns round by round: both have the same \
established TCP sessions and traffic; one also gets first segments of new sessions among it, \
`--rate` in a second of its own time, each of which times out a second later. Measuring begins \
when as many go as come.";

#[derive(Clone, Debug, Args)]
pub struct Throughput {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// Scheduler
    #[arg(long, value_parser = scheduler(), default_value = "rr")]
    pub scheduler: Scheduling,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Protocol of the service
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub protocol: Protocol,
    /// Bytes of a frame, with the four of the frame check sequence (as RFC 2544 counts)
    /// [default: 64; of IPv6 80, with TCP 84]
    #[arg(long, value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub size: Option<u16>,
    /// What shares a pool address and port in snat
    #[arg(long, value_enum, default_value_t = Mapping::EndpointIndependent)]
    pub mapping: Mapping,
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
    pub misdirected: f64,
    /// Share of the packets that belong to one flow, 0 to 1; all packets are inbound then
    #[arg(long, default_value_t = 0.0, value_parser = whole_share)]
    pub elephant: f64,
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
    /// Draw no bar while many sessions are opened
    #[arg(long)]
    pub no_bar: bool,
    /// The traffic of `mix`; protocol and size are not asked for then
    #[arg(long, hide = true)]
    pub mix: bool,
    /// Slots of each table beyond those of the sessions
    #[arg(skip)]
    pub spare: u32,
    /// Sessions beyond those that the pool must have room for
    #[arg(skip)]
    pub to_come: u64,
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

#[derive(Clone, Debug, Args)]
pub struct Cps {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// Scheduler
    #[arg(long, value_parser = scheduler(), default_value = "rr")]
    pub scheduler: Scheduling,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Other connections that are open meanwhile; 10_000 or 10k or 10M
    #[arg(long, default_value = "100k", value_parser = count)]
    pub sessions: u64,
    /// Connections at each point of their lives: so many begin, and end, in a round
    #[arg(long, default_value = "512", value_parser = count)]
    pub group: u64,
    /// Tell which sessions change, as for other directors; who takes it up is not timed
    #[arg(long)]
    pub sync: bool,
    /// One full pull follows the other: the worker tells all of its sessions all the time
    #[arg(long, requires = "sync")]
    pub pull: bool,
    /// How long to measure
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Real servers of the service
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub reals: u16,
    /// Pages of the session tables
    #[arg(long, value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// The worker's core [default: the last one that the process may use]
    #[arg(long)]
    pub core: Option<usize>,
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

/// Most hand-offs of one round between two workers: the ring between them holds 1,024 frames, and
/// the receiver may be held up by the machine for a whole round.
const HAND_OFFS: u64 = 1024;

impl Throughput {
    /// Sessions of one worker.
    pub fn sessions_each(&self) -> u32 {
        (self.sessions / u64::from(self.workers)) as u32
    }

    /// Outbound packets of a round that one worker gets for each other worker.
    pub fn misdirected_each(&self) -> usize {
        let others = f64::from(self.workers - 1).max(1.0);
        (self.frames as f64 / 2.0 * self.misdirected / others) as usize
    }

    /// Slots of one worker's table: a template of each inside endpoint takes one too.
    pub fn capacity_each(&self) -> u32 {
        let shares = self.mapping == Mapping::EndpointIndependent;
        let slots = if self.mode == Mode::Snat && shares { 2 } else { 1 };
        // A session of source NAT wants room for a template whether it makes one or not.
        self.sessions_each() * slots + self.spare + u32::from(self.mode == Mode::Snat)
    }

    /// Bytes of a frame, frame check sequence included.
    pub fn frame_size(&self) -> u16 {
        let usual = match (self.family, self.protocol) {
            (Family::V4, _) => 64,
            (Family::V6, Protocol::Udp) => 80,
            (Family::V6, Protocol::Tcp) => 84,
        };
        self.size.unwrap_or(usual)
    }

    /// Packets of a round by their way: inbound, outbound.
    pub fn frames_by_way(&self) -> [usize; 2] {
        let frames = self.frames as usize;
        if self.mode.answers() && self.elephant == 0.0 { [frames / 2; 2] } else { [frames, 0] }
    }

    /// Whether a hash of the client says which of several workers has its sessions.
    pub fn clients_have_owners(&self) -> bool {
        self.workers > 1 && matches!(self.mode, Mode::Nat | Mode::Snat)
    }

    fn check_mode(&self) -> Result<(), BenchError> {
        let mode = self.mode.name();
        if self.clients_have_owners() && self.sessions * u64::from(TRIES) > ENDPOINTS {
            return Err(BenchError::Usage(format!(
                "--mode {mode} with {} workers and --sessions {}: a hash of the client gives each \
                 session its worker, and for more than {} there are not enough clients of each",
                self.workers,
                self.sessions,
                ENDPOINTS / u64::from(TRIES)
            )));
        }
        if self.misdirected > 0.0 && self.mode != Mode::Fnat {
            return Err(BenchError::Usage(format!("--misdirected is for fnat, not {mode}")));
        }
        if self.misdirected > 0.0 && self.elephant > 0.0 {
            let text =
                "--misdirected is for outbound packets, of which there are none with --elephant";
            return Err(BenchError::Usage(text.into()));
        }
        let least = Template::least_size(self.family, self.protocol);
        if self.frame_size() < least {
            let text = format!("--size {}: such frames have {least} or more", self.frame_size());
            return Err(BenchError::Usage(text));
        }
        Ok(())
    }

    /// Refuses what each option alone allows but all together do not.
    pub fn check(&self) -> Result<(), BenchError> {
        self.check_mode()?;
        let workers = u64::from(self.workers);
        if self.sessions < workers || self.sessions / workers > 1 << 28 {
            return Err(BenchError::Usage(format!(
                "--sessions {}: each of {workers} workers needs 1 to {}",
                self.sessions,
                1 << 28
            )));
        }
        if !(256..=1 << 20).contains(&self.frames) || !self.frames.is_multiple_of(2) {
            let text = "--frames takes an even number from 256 to 1048576";
            return Err(BenchError::Usage(text.into()));
        }
        if self.misdirected > 0.0 && self.workers == 1 {
            return Err(BenchError::Usage("--misdirected needs two --workers or more".into()));
        }
        if self.misdirected > 0.0 && !(1..=HAND_OFFS).contains(&(self.misdirected_each() as u64)) {
            return Err(BenchError::Usage(format!(
                "--misdirected {} of {} frames is {} packets a round between two workers: 1 to \
                 {HAND_OFFS} fit into a hand-off ring",
                self.misdirected,
                self.frames,
                self.misdirected_each()
            )));
        }
        if !self.cores.is_empty() && self.cores.len() != usize::from(self.workers) {
            let text = format!("--cores names {} cores for {workers} workers", self.cores.len());
            return Err(BenchError::Usage(text));
        }
        Ok(())
    }
}

impl Cps {
    /// The connections that are open meanwhile, as a measurement of throughput would have them.
    pub fn others(&self, spare: u32) -> Throughput {
        let conditions =
            Conditions { pages: self.pages, nice: self.nice, seed: self.seed, json: self.json };
        Throughput {
            scheduler: self.scheduler,
            protocol: Protocol::Tcp,
            sessions: self.sessions,
            seconds: self.seconds,
            frames: self.group * 8,
            reals: self.reals,
            cores: self.core.into_iter().collect(),
            spare,
            // The walk through the pool ends where it began, among the others' ports, only after
            // so many; how it fares there is for a test of its own.
            to_come: (self.seconds.max(1.0) * 3e6) as u64,
            ..Throughput::usual(self.mode, self.family, &conditions)
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

/// A share of everything.
fn whole_share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number")?;
    (0.0..=1.0).contains(&number).then_some(number).ok_or("0 to 1".into())
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
        assert!(args.json && args.misdirected_each() == 0);
        for (line, size) in [("", 64), ("--family 6", 80), ("--family 6 --protocol tcp", 84)] {
            assert_eq!(parse(line).unwrap().frame_size(), size, "{line}");
        }
        let snat = parse("--mode snat --family 6 --sessions 10").unwrap();
        assert_eq!((snat.capacity_each(), snat.frames_by_way()), (21, [2048, 2048]));
        assert_eq!(parse("--mode dr --scheduler p2c").unwrap().frames_by_way(), [4096, 0]);
        assert_eq!(parse("--sessions 1_500k --nice -20").unwrap().sessions, 1_500_000);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (line, why) in [
            ("--sessions 1 --workers 2", "--sessions 1"),
            ("--sessions many", "10_000"),
            ("--size 63", "64..=1518"),
            ("--misdirected 0.1", "two --workers"),
            ("--misdirected 0.6 --workers 2", "0 to 0.5"),
            ("--elephant 1.1", "0 to 1"),
            ("--misdirected 0.1 --workers 2 --elephant 0.5", "outbound packets"),
            ("--misdirected 0.5 --workers 2 --frames 8192", "hand-off ring"),
            ("--cores 0,1", "2 cores for 1 workers"),
            ("--frames 257", "even number"),
            ("--burst 257", "1..=256"),
            ("--seconds 0", "0.01 to 3600"),
            ("--mode nat --workers 2 --sessions 100M", "hash of the client"),
            ("--mode dr --workers 2 --misdirected 0.1", "for fnat"),
            ("--family 6 --size 68", "70 or more"),
            ("--family 5", "4, 6"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
