//! What the schedulers do and cost: shares against weights, clients that move when a real server
//! leaves, several workers against one that knows all, and ticks a new session.
//!
//! Only the schedulers run here, over plans that were compiled like any other; what the rest of
//! a new session costs is the throughput benchmark's. What is timed is pick, open and close, in
//! batches, with as many sessions open as before each batch.

use crate::args::Schedulers as Args;
use crate::clients::Random;
use crate::clock::{self, ticks};
use crate::error::BenchError;
use crate::report::quantile;
use serde_json::{Value, json};
use sluice_director::Time;
use sluice_director::counters::RealCounters;
use sluice_director::plan::{Plan, RealId, Retired, ServiceId};
use sluice_director::schedule::mh::{Recipe, Table};
use sluice_director::schedule::{Schedulers, stable_hash};
use sluice_director::spec::{Mode, Ports, RealServer, Scheduling, Spec, VirtualService};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Whether a scheduler gives each real server its share; the others choose one, or few, on purpose.
fn shares(scheduler: Scheduling) -> bool {
    use Scheduling::{Dh, Fo, Lblc, Lblcr, Ovf};
    !matches!(scheduler, Fo | Ovf | Lblc | Lblcr | Dh)
}

/// Those that give shares.
fn sharing() -> impl Iterator<Item = Scheduling> {
    Scheduling::ALL.iter().copied().filter(|scheduler| shares(*scheduler))
}
const SERVICE: ServiceId = ServiceId(0);
/// Real servers of what is not about their number, with weights 1 to 100.
const REALS: u32 = 100;
/// New sessions that are timed together, and how often.
const BATCH: usize = 256;
const BATCHES: usize = 2001;
/// Sessions that are open for each real server while new ones are timed.
const OPEN: usize = 4;

/// What was found.
pub struct Report {
    shares: Vec<(Scheduling, f64, f64)>,
    moved: (f64, f64),
    workers: Vec<(u16, f64, f64)>,
    costs: Vec<Cost>,
    args: Args,
}

/// One scheduler with so many real servers.
struct Cost {
    scheduler: Scheduling,
    reals: u32,
    ticks: f64,
    adopt_ms: f64,
    compile_ms: f64,
}

/// Does it all.
pub fn run(args: &Args) -> Result<Report, BenchError> {
    let mut costs = Vec::new();
    for scheduler in Scheduling::ALL.iter().copied() {
        for reals in &args.reals {
            costs.push(cost(scheduler, *reals, args.seed)?);
        }
    }
    let shares = sharing().map(|scheduler| share(scheduler, args.sessions));
    Ok(Report {
        shares: shares.collect::<Result<_, _>>()?,
        moved: moved(),
        workers: [1, 2, 4, 8].map(|n| gap(n, args)).into_iter().collect::<Result<_, _>>()?,
        costs,
        args: args.clone(),
    })
}

fn address(number: u32) -> IpAddr {
    // The range for benchmarks (RFC 2544).
    IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 + number))
}

fn compile(scheduler: Scheduling, weights: &[u16]) -> Result<Plan, BenchError> {
    let real = |(number, weight): (u32, &u16)| RealServer {
        address: address(number),
        port: 80,
        weight: *weight,
        ..RealServer::default()
    };
    let service = VirtualService {
        name: "bench".into(),
        vip: [198, 51, 100, 200].into(),
        ports: Ports::one(80),
        mode: Mode::Dr,
        scheduler,
        // More than a hundred entries for each real server, as a configuration must have.
        mh_table: 65_537.max(101 * weights.len() as u32),
        reals: (0..).zip(weights).map(real).collect(),
        ..VirtualService::default()
    };
    let spec = Spec { services: vec![service], ..Spec::default() };
    Plan::compile(&spec, None, &Retired::default()).map_err(BenchError::Plan)
}

fn refused(why: impl std::fmt::Debug) -> BenchError {
    BenchError::Usage(format!("a session was refused: {why:?}"))
}

/// A worker's schedulers with nothing open.
fn begin(plan: &Plan, worker: u16, workers: u16, seed: u64) -> Schedulers {
    let mut schedulers = Schedulers::new(worker, workers, seed);
    schedulers.adopt(plan, Time(0), &vec![RealCounters::default(); plan.reals.len()]);
    schedulers
}

/// Ticks a new session, with one that ends for each.
fn cost(scheduler: Scheduling, reals: u32, seed: u64) -> Result<Cost, BenchError> {
    let mut random = Random::new(seed);
    let weights: Vec<u16> = (0..reals).map(|_| 1 + random.below(10) as u16).collect();
    let hz = clock::ticks_per_s();
    let before = ticks();
    let plan = compile(scheduler, &weights)?;
    let compile_ms = (ticks() - before) as f64 / hz * 1e3;
    let mut schedulers = begin(&plan, 0, 1, seed);
    let counters = vec![RealCounters::default(); plan.reals.len()];
    let adopts = (0..9).map(|_| {
        let before = ticks();
        schedulers.adopt(&plan, Time(0), &counters);
        (ticks() - before) as f64 / hz * 1e3
    });
    let adopt_ms = quantile(&adopts.collect::<Vec<_>>(), 0.5);

    let mut open = vec![RealId(0); OPEN * reals as usize];
    for (client, slot) in (0u32..).zip(&mut open) {
        let key = stable_hash(address(client), 0, seed);
        *slot = schedulers.pick(&plan, SERVICE, key, Time(0)).map_err(refused)?;
        schedulers.opened(*slot);
    }
    let slots = open.len() as u32;
    let mut samples = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let batch: [(u64, usize); BATCH] = std::array::from_fn(|_| {
            let client = u64::from(random.below(u32::MAX));
            (client.wrapping_mul(0x9e37_79b9_7f4a_7c15), random.below(slots) as usize)
        });
        let before = ticks();
        for (key, slot) in batch {
            let real = schedulers.pick(&plan, SERVICE, key, Time(0)).map_err(refused)?;
            schedulers.opened(real);
            schedulers.closed(std::mem::replace(&mut open[slot], real));
        }
        samples.push((ticks() - before) as f64 / BATCH as f64);
    }
    Ok(Cost { scheduler, reals, ticks: quantile(&samples, 0.5), adopt_ms, compile_ms })
}

/// How far the sessions of each real server are from its share at most: in sessions, and as a
/// part of the share. Sessions stay open.
fn share(scheduler: Scheduling, sessions: u64) -> Result<(Scheduling, f64, f64), BenchError> {
    let weights: Vec<u16> = (1..=REALS as u16).collect();
    let plan = compile(scheduler, &weights)?;
    let mut schedulers = begin(&plan, 0, 1, 1);
    let mut counts = vec![0u64; plan.reals.len()];
    for client in 0..sessions {
        let key = stable_hash(address(client as u32), (client >> 32) as u16, 0);
        let real = schedulers.pick(&plan, SERVICE, key, Time(0)).map_err(refused)?;
        schedulers.opened(real);
        counts[real.0 as usize] += 1;
    }
    let even = matches!(scheduler, Scheduling::Rr | Scheduling::Lc);
    let weights = weights.iter().map(|weight| if even { 1.0 } else { f64::from(*weight) });
    let total: f64 = weights.clone().sum();
    let (mut most, mut part) = (0.0f64, 0.0f64);
    for (count, weight) in counts.iter().zip(weights) {
        let share = sessions as f64 * weight / total;
        most = most.max((*count as f64 - share).abs());
        part = part.max((*count as f64 / share - 1.0).abs());
    }
    Ok((scheduler, most, part))
}

/// Cells of the table of `mh` that change when one of a hundred leaves, for each of its own: the
/// mean over all that may leave, and the worst.
fn moved() -> (f64, f64) {
    let owners = |without: Option<u32>| -> Vec<u32> {
        let stay: Vec<u32> = (0..REALS).filter(|number| Some(*number) != without).collect();
        let reals = stay.iter().map(|number| (address(*number), 80, 1));
        let table = Table::build(Recipe::new(Scheduling::Mh, reals, 65_537, 0));
        table.cells().iter().map(|position| stay[*position as usize]).collect()
    };
    let before = owners(None);
    let ratios = (0..REALS).map(|gone| {
        let moved = before.iter().zip(owners(Some(gone))).filter(|(a, b)| *a != b).count();
        let own = before.iter().filter(|owner| **owner == gone).count();
        moved as f64 / own as f64
    });
    let ratios: Vec<f64> = ratios.collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    (mean, ratios.into_iter().fold(0.0, f64::max))
}

/// `wlc` on several workers, where sessions come and end at random, beside one that knows all of
/// them: the load of the fullest real server over the mean load, at the worst moment; ours and
/// the ideal.
fn gap(workers: u16, args: &Args) -> Result<(u16, f64, f64), BenchError> {
    let weights: Vec<u16> = (1..=REALS as u16).collect();
    let plan = compile(Scheduling::Wlc, &weights)?;
    let mut each: Vec<_> = (0..workers).map(|w| begin(&plan, w, workers, args.seed)).collect();
    let mut ideal = begin(&plan, 0, 1, args.seed);
    let mut random = Random::new(args.seed);
    let mut counts = [vec![0i64; weights.len()], vec![0i64; weights.len()]];
    let mut open = Vec::new();
    let level = (args.sessions / 10) as usize;
    let (mut ours, mut best) = (0.0f64, 0.0f64);
    for step in 0..2 * args.sessions as usize {
        if open.len() < level || random.below(2) == 0 {
            let worker = random.below(workers.into()) as usize;
            let real = each[worker].pick(&plan, SERVICE, 0, Time(0)).map_err(refused)?;
            let same = ideal.pick(&plan, SERVICE, 0, Time(0)).map_err(refused)?;
            each[worker].opened(real);
            ideal.opened(same);
            counts[0][real.0 as usize] += 1;
            counts[1][same.0 as usize] += 1;
            open.push((worker, real, same));
        } else {
            let (worker, real, same) = open.swap_remove(random.below(open.len() as u32) as usize);
            each[worker].closed(real);
            ideal.closed(same);
            counts[0][real.0 as usize] -= 1;
            counts[1][same.0 as usize] -= 1;
        }
        if step % 5000 == 0 && step > args.sessions as usize {
            ours = ours.max(fullest(&counts[0], &weights));
            best = best.max(fullest(&counts[1], &weights));
        }
    }
    Ok((workers, ours, best))
}

/// The highest load over the mean; a load is sessions for the weight.
fn fullest(counts: &[i64], weights: &[u16]) -> f64 {
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let mean = counts.iter().sum::<i64>() as f64 / total;
    let loads = counts.iter().zip(weights).map(|(count, w)| *count as f64 / f64::from(*w));
    loads.fold(0.0, f64::max) / mean
}

impl Report {
    /// One JSON object.
    pub fn json(&self) -> Value {
        let shares = self.shares.iter().map(|(scheduler, most, part)| {
            json!({"scheduler": scheduler.name(), "sessions_off": most, "part_off": part})
        });
        let workers = self.workers.iter().map(|(workers, ours, ideal)| {
            json!({"workers": workers, "fullest": ours, "fullest_ideal": ideal})
        });
        let costs = self.costs.iter().map(|cost| {
            json!({
                "scheduler": cost.scheduler.name(),
                "real_servers": cost.reals,
                "cycles_per_session": cost.ticks,
                "adopt_ms": cost.adopt_ms,
                "compile_ms": cost.compile_ms,
            })
        });
        json!({
            "benchmark": "schedulers",
            "clock": clock::NAME,
            "sessions": self.args.sessions,
            "seed": self.args.seed,
            "shares": shares.collect::<Vec<_>>(),
            "mh_moved": {"mean": self.moved.0, "worst": self.moved.1},
            "wlc_workers": workers.collect::<Vec<_>>(),
            "costs": costs.collect::<Vec<_>>(),
        })
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{} sessions, {REALS} real servers of weights 1 to {REALS}: the farthest from its \
             share\n",
            self.args.sessions
        );
        // Writing to a string cannot fail.
        for (scheduler, most, part) in &self.shares {
            let name = scheduler.name();
            let _ = writeln!(out, "  {name:<5} {most:>9.2} sessions {:>8.3} %", part * 100.0);
        }
        let (mean, worst) = self.moved;
        let _ = writeln!(out, "mh, one of {REALS} leaves: cells that move for each of its own");
        let _ = writeln!(out, "  {mean:.3} on average, {worst:.3} at worst");
        let _ = writeln!(out, "wlc, the fullest real server over the mean, at the worst moment");
        for (workers, ours, ideal) in &self.workers {
            let _ =
                writeln!(out, "  {workers} workers {ours:>8.4}   one that knows all {ideal:.4}");
        }
        let _ = writeln!(out, "{} cycles a session: pick, open and close", clock::NAME);
        for cost in &self.costs {
            let Cost { scheduler, reals, ticks, adopt_ms, compile_ms } = cost;
            let _ = writeln!(
                out,
                "  {:<5} {reals:>7} real servers {ticks:>8.1}   adopt {adopt_ms:>8.3} ms, \
                 compile {compile_ms:>8.2} ms",
                scheduler.name()
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_and_says_what_it_found() {
        let args = Args { reals: vec![3, 70], sessions: 10_100, seed: 1, json: false };
        let report = run(&args).unwrap();
        let json = report.json();
        assert_eq!(json["costs"].as_array().unwrap().len(), 2 * Scheduling::ALL.len());
        assert!(json["costs"][0]["cycles_per_session"].as_f64().unwrap() > 0.0);
        let wrr = json["shares"][1]["sessions_off"].as_f64().unwrap();
        assert!(wrr < 1e-6, "two cycles of wrr are exact: {wrr}");
        assert!(report.text().contains("p2c"));
    }
}
