//! The command line of the search for what a whole director forwards.

use super::{count, seconds, share};
use crate::clients::Endpoint;
use crate::error::BenchError;
use crate::rfc2544::{Device, Goal, Limits, Mix, device, mac};
use clap::{Args, ValueEnum};
use std::net::SocketAddrV4;

/// What `--help` says.
pub const ABOUT: &str = "\
MAX, PDR and NDR of a whole director: RFC 2544's throughput by RFC 9971's search.

A generator and receiver of our own, on a core of its own, over DPDK ports to a director that \
runs elsewhere: frames of open sessions, clients' addresses and ports random (RFC 4814, from \
198.18.0.0/16, which the director must have a route to). A trial offers so many frames a second, \
by the clock and whether they are taken or not, and counts those that come out: each carries its \
trial, session and number, and counts once.

MAX is the most that was forwarded at any load, PDR the rate at which at most --pdr-loss is lost, \
NDR that of no loss: conditional throughput of the highest load that fulfils the goal below the \
lowest that does not. Loads count the frames of both directions together.";

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Directions {
    /// From clients to real servers
    Inbound,
    /// Half of them back
    Both,
}

#[derive(Clone, Debug, Args)]
pub struct Rfc2544 {
    /// A port of the generator: first the one that clients are behind, then the real servers';
    /// one alone is both. As in the configuration: memif:, pci:, af_packet: or dpdk:
    #[arg(long = "port", value_name = "DEVICE", required = true, value_parser = device)]
    pub ports: Vec<Device>,
    /// MAC address of the director's port that clients reach
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub director_mac: [u8; 6],
    /// The service: UDP, by fnat
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub vip: SocketAddrV4,
    /// Bytes of a frame, with the four of the frame check sequence (RFC 2544, 9.1), and imix
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = Mix::parse,
          default_value = "64,128,256,512,1024,1280,1518,imix")]
    pub sizes: Vec<Mix>,
    /// Which way packets go; loads and rates are those of all together
    #[arg(long, value_enum, default_value_t = Directions::Inbound)]
    pub directions: Directions,
    /// Clients, each with a session that is open before trials; 10_000 or 10k or 10M
    #[arg(long, default_value = "100k", value_parser = count)]
    pub sessions: u64,
    /// Sessions that are opened in a second, at most [default: as many as come to real servers]
    #[arg(long, value_name = "N", value_parser = count)]
    pub opening_rate: Option<u64>,
    /// Seconds of a full-length trial
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub duration: f64,
    /// Seconds that full-length trials at a load that decides take together
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub duration_sum: f64,
    /// Seconds of a trial of the first phase
    #[arg(long, default_value_t = 0.1, value_parser = seconds)]
    pub first_duration: f64,
    /// Phases, each with half the width and longer trials
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub phases: u8,
    /// Share of a load's trials, by time, that may lose more than the goal allows: 0 to 0.5
    #[arg(long, default_value_t = 0.5, value_parser = share)]
    pub exceed_ratio: f64,
    /// Share of the packets that a trial may lose at the partial drop rate
    #[arg(long, default_value_t = 1e-5, value_parser = share)]
    pub pdr_loss: f64,
    /// How far bounds may be apart, as a share of the upper one
    #[arg(long, default_value_t = 0.005, value_parser = width)]
    pub width: f64,
    /// The lowest load, packets a second
    #[arg(long, default_value = "1k", value_parser = count)]
    pub least_load: u64,
    /// The highest load, packets a second: more than there can be finds the generator's own limit
    #[arg(long, default_value = "100M", value_parser = count)]
    pub most_load: u64,
    /// Trials of a size, at most
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub trials: u32,
    /// Seconds to wait for frames after the last one that came
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub drain: f64,
    /// Cores: of sender and receiver in turns, or of one each (`1` or `2,3`)
    /// [default: the first one that the process may use]
    #[arg(long, value_delimiter = ',')]
    pub cores: Vec<usize>,
    /// What is measured, for the report: the director's configuration and machine
    #[arg(long, value_name = "TEXT", default_value = "a director over DPDK ports")]
    pub about: String,
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

/// Sessions of which the generator keeps 12 bytes each.
const SESSIONS: std::ops::RangeInclusive<u64> = 1..=1 << 24;

impl Rfc2544 {
    /// Refuses what each option alone allows but all together do not.
    pub fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Usage(text));
        if self.ports.len() > 2 {
            return wrong(
                "--port is given once or twice: clients' side, real servers' side".into(),
            );
        }
        if !SESSIONS.contains(&self.sessions) {
            return wrong(format!("--sessions {}: 1 to {}", self.sessions, SESSIONS.end()));
        }
        if self.opening_rate == Some(0) {
            return wrong("--opening-rate must be above 0".into());
        }
        if self.least_load == 0 || self.least_load >= self.most_load {
            let (least, most) = (self.least_load, self.most_load);
            return wrong(format!(
                "--least-load {least} must be above 0 and below --most-load {most}"
            ));
        }
        if self.most_load as f64 * self.duration > f64::from(u32::MAX) {
            return wrong(format!(
                "--most-load {} for {} s is more than {} frames in a trial",
                self.most_load,
                self.duration,
                u32::MAX
            ));
        }
        if self.duration_sum < self.duration || self.first_duration > self.duration {
            return wrong(
                "durations must rise: --first-duration, --duration, --duration-sum".into(),
            );
        }
        if self.cores.len() > 2 {
            return wrong(
                "--cores takes one core, or one of the sender and one of the receiver".into(),
            );
        }
        Ok(())
    }

    /// What is searched for: loss that is allowed first.
    pub fn goals(&self) -> Vec<Goal> {
        let goal = |name, loss_ratio| Goal {
            name,
            loss_ratio,
            exceed_ratio: self.exceed_ratio,
            duration_s: self.duration,
            sum_s: self.duration_sum,
            width: self.width,
        };
        vec![goal("PDR", self.pdr_loss), goal("NDR", 0.0)]
    }

    pub const fn limits(&self) -> Limits {
        Limits {
            least_pps: self.least_load,
            most_pps: self.most_load,
            trials: self.trials,
            phases: self.phases,
            first_s: self.first_duration,
        }
    }

    pub fn vip_endpoint(&self) -> Endpoint {
        Endpoint { address: u32::from(*self.vip.ip()).into(), port: self.vip.port() }
    }
}

fn width(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number")?;
    (1e-5..=0.5).contains(&number).then_some(number).ok_or("0.00001 to 0.5".into())
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<super::Rfc2544, String> {
        let always = "sluice-bench rfc2544 --port memif:/run/front.sock --vip 198.51.100.200:9 \
                      --director-mac 02:00:00:00:00:01";
        let words = always.split_whitespace().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Rfc2544(args) => {
                args.check().map(|()| *args).map_err(|error| error.to_string())
            }
            _ => unreachable!(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let args = parse("--port memif:/run/back.sock,id=1 --size 64,imix --cores 0,1").unwrap();
        let names: Vec<_> = args.sizes.iter().map(|mix| mix.name.as_str()).collect();
        assert_eq!((args.ports.len(), names), (2, vec!["64", "imix"]));
        assert_eq!(parse("").unwrap().sizes.len(), 8);
        for (line, why) in [
            ("--size 65000", "64 to 1518"),
            ("--port tap:x", "memif"),
            ("--port memif:/a --port memif:/b", "once or twice"),
            ("--sessions 0", "1 to 16777216"),
            ("--least-load 2M --most-load 1M", "--most-load 1000000"),
            ("--most-load 100M --duration 60 --duration-sum 60", "frames in a trial"),
            ("--duration 5", "must rise"),
            ("--first-duration 2", "must rise"),
            ("--cores 0,1,2", "one core"),
            ("--width 0.9", "0.00001 to 0.5"),
            ("--exceed-ratio 0.6", "0 to 0.5"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
