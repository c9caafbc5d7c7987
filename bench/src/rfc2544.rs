//! MAX, PDR and NDR of a whole director: RFC 2544's throughput, by RFC 9971's search for several
//! loss ratios at once (MLRsearch), with RFC 4814's random addresses and ports.
//!
//! The director is another process, as it is; this one is generator and receiver, over DPDK ports
//! that are opened as the director's are. What decides is apart from what sends: [`search`] and
//! [`goal`] are pure, [`trial`] runs what they ask for. Whatever the generator could not do is
//! told beside what the director did.

mod device;
pub mod frame;
mod goal;
mod opening;
mod pace;
mod report;
mod search;
pub mod traffic;
mod trial;
mod window;

use crate::args::{Directions, Rfc2544};
use crate::clients::Random;
use crate::clock;
use crate::error::BenchError;
use crate::machine::{self, Machine, Priority};
use crate::runs;
use device::Ports;
pub use device::parse as device;
use frame::Way;
pub use frame::{Mix, mac};
pub use goal::Goal;
use indicatif::ProgressBar;
use opening::Manner;
use report::{Report, Size};
pub use search::Limits;
use search::{Ask, Search};
pub use sluice_dpdk::Device;
use traffic::Traffic;
use trial::{Bench, Done};

/// Seconds after which sessions are opened again, so that none times out where few packets go.
const REFRESH_S: f64 = 20.0;

/// Measures.
pub fn run(args: &Rfc2544) -> Result<Report, BenchError> {
    args.check()?;
    let usable = machine::usable_cores()?;
    let cores = if args.cores.is_empty() { vec![usable[0]] } else { args.cores.clone() };
    let machine = Machine::look(cores[0]);
    let _priority = Priority::set(args.nice)?;
    let ports = Ports::open(&args.ports)?;
    machine::pin(cores[0])?;
    let ticks_per_s = clock::ticks_per_s();
    let traffic = Traffic::new(args.seed, args.vip_endpoint(), args.sessions as u32);
    let bench = Bench {
        ticks_per_s,
        drain_s: args.drain,
        receiver_core: cores.get(1).copied(),
        trial: 0,
        random: Random::new(args.seed),
    };
    let mut runner = Runner { args, ports, traffic, bench, opened: None };
    let bar = runs::bar(args.sizes.len() as u64, "sizes");
    let mut sizes = Vec::new();
    for mix in &args.sizes {
        sizes.push(runner.size(mix, &bar)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let stats = runner.ports.stats();
    Ok(Report { args: args.clone(), machine, tsc_hz: ticks_per_s, cores, stats, sizes })
}

struct Runner<'a> {
    args: &'a Rfc2544,
    ports: Ports,
    traffic: Traffic,
    bench: Bench,
    /// When sessions were opened.
    opened: Option<u64>,
}

impl Runner<'_> {
    /// The whole search for one size.
    fn size(&mut self, mix: &Mix, bar: &ProgressBar) -> Result<Size, BenchError> {
        let mut search = Search::new(self.args.goals(), self.args.limits());
        let mut trials: Vec<Done> = Vec::new();
        while let Some(ask) = search.next() {
            let mpps = ask.load_pps as f64 / 1e6;
            bar.set_message(format!(
                "{} trial {}: {mpps:.3} Mpps for {:.2} s",
                mix.name,
                trials.len() + 1,
                ask.duration_s
            ));
            let mut done = self.trial(mix, ask)?;
            // The first trial asks for more than can be done. Of any other it may have been the
            // machine's fault, so that it is asked once more.
            if done.fell_short && !trials.is_empty() {
                trials.push(done);
                let again = self.trial(mix, ask)?;
                let better = again.outcome().offered_pps() > done.outcome().offered_pps();
                if better || !again.fell_short {
                    done = again;
                }
            }
            search.report(done.outcome());
            trials.push(done);
        }
        Ok(Size { mix: mix.clone(), search, trials })
    }

    fn trial(&mut self, mix: &Mix, ask: Ask) -> Result<Done, BenchError> {
        let stale = |at: u64| (clock::ticks() - at) as f64 > REFRESH_S * self.bench.ticks_per_s;
        if self.opened.is_none_or(stale) || self.traffic.mix != *mix {
            self.open(mix)?;
        }
        self.bench.run(&mut self.ports, &self.traffic, ask)
    }

    /// Opens all sessions, and makes the frames of this size.
    fn open(&mut self, mix: &Mix) -> Result<(), BenchError> {
        let client_macs = [self.ports.macs[0], self.args.director_mac];
        self.traffic.ways = &[Way::Inbound];
        self.traffic.shape(&opening::smallest()?, Way::Inbound, client_macs);
        let trial = self.bench.number();
        let manner = Manner {
            trial,
            ticks_per_s: self.bench.ticks_per_s,
            rate: self.args.opening_rate,
            answers: self.args.directions == Directions::Both,
        };
        let [director, real] = opening::open(&mut self.ports, &mut self.traffic, manner)?;
        self.traffic.shape(mix, Way::Inbound, client_macs);
        // Answers come from where inbound frames went.
        self.traffic.shape(mix, Way::Outbound, [real, director]);
        self.traffic.ways = match self.args.directions {
            Directions::Inbound => &[Way::Inbound],
            Directions::Both => &Way::BOTH,
        };
        self.opened = Some(clock::ticks());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    /// The whole of it on DPDK's software ring, which gives back what was sent: every frame comes,
    /// and what a session became is what it was. So the generator's own limit is what is found.
    #[test]
    fn a_ring_loses_nothing() {
        let line = "sluice-bench rfc2544 --port dpdk:net_ring0 --vip 198.51.100.200:9 \
                    --director-mac 02:00:00:00:00:01 --size 64,imix --directions both \
                    --sessions 500 --duration 0.02 --duration-sum 0.04 --first-duration 0.01 \
                    --phases 2 --trials 30 --most-load 40M";
        let Command::Rfc2544(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!()
        };
        let report = super::run(&args).unwrap();
        let json = report.json();
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(6), "{json}");
        for size in json["sizes"].as_array().unwrap() {
            assert!(size["generator_limit_pps"].is_u64(), "{size}");
            for trial in size["trials"].as_array().unwrap() {
                let count = |key: &str| trial[key].as_u64().unwrap();
                assert!(count("sent") > 0 && count("lost") == 0, "{trial}");
                let ways = [count("received_inbound"), count("received_outbound")];
                assert!(ways[0].abs_diff(ways[1]) <= 64, "{trial}");
                let others = ["late", "duplicates", "too_late_to_tell", "foreign"];
                assert_eq!(others.map(count), [0; 4], "{trial}");
            }
        }
        assert_eq!(json["ports"][0]["tx_frames"], json["ports"][0]["rx_frames"]);
        let text = report.text();
        assert!(text.contains("the generator's limit") || text.contains("not finished"), "{text}");
    }
}
