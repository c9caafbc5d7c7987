//! `sluice-race`: the director beside the kernel and other load balancers, on one bed, in one run.
//!
//! Contenders take turns in every round, each with the machine to itself, so that what disturbs the
//! machine disturbs all of them. A turn counts only when it is sure that the answers came through
//! the contender: all real servers answered, the contender's own counters hold at least what the
//! clients did, the kernel has not done its work instead, and nothing went wrong.

mod apart;
pub mod contender;
mod proof;
mod report;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Driver, REALS, Shape};
use crate::error::{LabError, expect};
use crate::lab::Netns;
use crate::load::{self, Until};
use crate::process::wait_until;

use apart::{Apart, Watch};
use contender::Stand;

pub use contender::Contender;
pub use report::{Machine, json, table};

/// How the labs of the race are called.
pub const PREFIX: &str = "sl-race";
/// Connections of `wrk` for the rates.
pub const CONNECTIONS: u32 = 32;
/// Connections of `wrk` for the latency: few, so that it is not only queueing that is measured.
pub const CALM: u32 = 8;
/// How often the real servers' names are asked for until all were seen.
const ASKED: u64 = 40;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What the command line asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who takes part, in this order; the first round's.
    pub contenders: Vec<Contender>,
    /// Rounds; a contender has one turn in each.
    pub rounds: u32,
    /// Seconds of each load.
    pub seconds: u32,
    /// MTU of all wires; the kernel's usual 1500 otherwise.
    pub mtu: Option<u16>,
    /// Whether the kernel joins received segments (GRO), as it does behind a NIC.
    pub gro: bool,
    /// Whether transmit checksums and segmentation are left to the other end of each wire, as to a
    /// NIC: nobody pays for them then.
    pub offloads: bool,
    /// Whether the kernel spreads received packets over all cores by flow (RPS), wherever they
    /// arrive; otherwise the core that sends one also does the work of those who receive it.
    pub rps: bool,
    /// Whether the contender has a processor of its own, and all else shares the others.
    pub apart: bool,
}

/// What one turn measured.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// HTTP requests answered each second over [`CONNECTIONS`] connections that stay open.
    pub requests_per_s: f64,
    /// Connections opened, used for one request and closed, each second.
    pub connections_per_s: f64,
    /// Median latency of requests over [`CALM`] connections, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of it.
    pub p99_us: f64,
    /// Payload of one TCP stream of `iperf3` from the client to a real server, in bits a second.
    pub bits_per_s: f64,
    /// Segments of it that were sent again.
    pub retransmits: u64,
    /// The share of a processor that the contender took meanwhile, what the kernel did in its name
    /// included; `None` if it is the kernel alone.
    pub share: Option<f64>,
}

/// All turns of a contender, round by round.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Whose.
    pub contender: Contender,
    /// One for each round.
    pub turns: Vec<Figures>,
}

/// What clients did in a turn, to be found again in the contender's counters.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    connections: u64,
    requests: u64,
}

/// Runs the race and returns the lanes in the options' order.
///
/// # Errors
/// When something fails, or a turn cannot be shown to have gone through its contender.
pub fn run(options: &Options) -> Result<Vec<Lane>, LabError> {
    let apart = if options.apart { Some(Apart::look()?) } else { None };
    apart.map_or(Ok(()), |apart| apart.others())?;
    let mut bed = bed(options)?;
    let mut lanes: Vec<Lane> = Vec::new();
    for contender in &options.contenders {
        lanes.push(Lane { contender: *contender, turns: Vec::new() });
    }
    for round in 0..options.rounds {
        let started = Instant::now();
        // Another one begins each round: whoever follows the same one always may inherit from it.
        let first = round as usize % lanes.len().max(1);
        for index in (first..lanes.len()).chain(0..first) {
            let contender = lanes[index].contender;
            let number = round as usize * lanes.len() + index;
            let asked = (options, apart.as_ref());
            let figures = turn(&mut bed, contender, number, asked).map_err(|error| {
                LabError::Wrong(format!("{}, round {}: {error}", contender.name(), round + 1))
            })?;
            lanes[index].turns.push(figures);
        }
        let took = started.elapsed().as_secs();
        eprintln!("round {} of {} done in {took} s", round + 1, options.rounds);
    }
    Ok(lanes)
}

fn bed(options: &Options) -> Result<Bed, LabError> {
    let mut bed = Bed::new(PREFIX, Shape::TwoArm, Driver::AfXdp, 1)?;
    for (space, device) in wires(&bed) {
        if options.rps && device != "sw" {
            receive_everywhere(space, device)?;
        }
        if let Some(mtu) = options.mtu {
            space.ip(&["link", "set", "dev", device, "mtu", &mtu.to_string()])?;
        }
        if options.offloads && device != "sw" {
            space.offloading_wire(device)?;
        }
        if options.gro && device != "sw" {
            space.run("ethtool", &["-K", device, "gro", "on"])?.ok()?;
        }
    }
    // A switch has no firewall; where the kernel's has none either, there is nothing to switch off.
    let quiet = bed.lan.sysctl("net.bridge.bridge-nf-call-iptables", "0");
    quiet.or_else(|error| {
        match bed.lan.run("ls", &["/proc/sys/net/bridge"])?.status.success() {
            true => Err(error),
            false => Ok(()),
        }
    })?;
    bed.start_reals()?;
    bed.route_directly()?;
    contender::lay_equal_routes(&bed)?;
    // More ports than usual for short connections, of the client and of proxies alike.
    for space in [&bed.client, &bed.director] {
        space.sysctl("net.ipv4.ip_local_port_range", "1024 65535")?;
    }
    Ok(bed)
}

/// Lets all cores handle what a device receives (Receive Packet Steering).
fn receive_everywhere(space: &Netns, device: &str) -> Result<(), LabError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(32);
    let script = "echo \"$1\" > /sys/class/net/\"$2\"/queues/rx-0/rps_cpus";
    let mask = format!("{:x}", (1_u64 << cores) - 1);
    space.run("sh", &["-c", script, "sh", &mask, device])?.ok().map(drop)
}

/// Every end of every wire, and the switch.
fn wires(bed: &Bed) -> Vec<(&Netns, &'static str)> {
    let sockets = ["p1", "p2", "p3", "director", "sw"].map(|device| (&bed.lan, device));
    let ports = bed.ports().iter().map(|device| (&bed.director, *device));
    let hosts = bed.reals.iter().chain([&bed.client]).map(|space| (space, "eth0"));
    hosts.chain(ports).chain(sockets).collect()
}

fn turn(
    bed: &mut Bed,
    contender: Contender,
    number: usize,
    (options, apart): (&Options, Option<&Apart>),
) -> Result<Figures, LabError> {
    let before = proof::Kernel::look(bed)?;
    let reals = proof::reals_counted(bed)?;
    apart.map_or(Ok(()), Apart::anywhere)?;
    let mut stand = contender.start(bed, number, options.mtu)?;
    if let Some(apart) = apart {
        apart.move_over(&stand);
        apart.others()?;
    }
    let measured = measure(bed, contender, &stand, options.seconds).and_then(|(figures, done)| {
        let kernel = proof::Kernel::look(bed)?.since(before);
        proof::all_answered(bed, &reals, done.requests)?;
        proof::went_through(contender, stand.counted(bed)?, kernel, done.connections)?;
        Ok(figures)
    });
    let measured = measured.map_err(|error| stand.explain(error));
    let ended = stand.stop(bed);
    measured.and_then(|figures| ended.map(|()| figures))
}

fn measure(
    bed: &Bed,
    contender: Contender,
    stand: &Stand,
    seconds: u32,
) -> Result<(Figures, Done), LabError> {
    let (client, url) = (&bed.client, format!("http://{}/", contender.web(bed)));
    let mut done = Done::default();
    see_all(client, &url, &mut done)?;
    let kept = flawless(|| load::wrk(client, &url, CONNECTIONS, seconds))?;
    let close = ["-H", "Connection: close"];
    let new = flawless(|| load::wrk_with(client, &url, CONNECTIONS, seconds, &close))?;
    let calm = flawless(|| load::wrk(client, &url, CALM, seconds))?;
    let watch = Watch::start(stand);
    let stream = load::iperf3_tcp(client, &contender.stream(bed), Until::Seconds(seconds), false)?;
    let share = watch.map(|watch| watch.share());
    expect(stream.bytes > 0, || format!("iperf3 carried nothing: {stream:?}"))?;
    done.requests += kept.requests + new.requests + calm.requests;
    // iperf3 has one connection for its words and one for the stream.
    done.connections += u64::from(CONNECTIONS + CALM) + new.requests + 2;
    let figures = Figures {
        requests_per_s: kept.requests_per_s,
        connections_per_s: new.requests_per_s,
        p50_us: calm.p50_us,
        p99_us: calm.p99_us,
        bits_per_s: stream.bits_per_s,
        retransmits: stream.retransmits,
        share,
    };
    Ok((figures, done))
}

/// Waits for the first answer, then asks until every real server has answered.
fn see_all(client: &Netns, url: &str, done: &mut Done) -> Result<(), LabError> {
    let first = wait_until("the first answer", ANSWER_LIMIT, || Ok(load::curl(client, url).ok()))?;
    let mut names = BTreeSet::from([first]);
    let mut asked = 1;
    while names.len() < REALS && asked < ASKED {
        names.insert(load::curl(client, url)?);
        asked += 1;
    }
    done.connections += asked;
    done.requests += asked;
    let all = (1..=REALS).map(|number| format!("Real Server {number:02}"));
    expect(all.eq(names.iter().cloned()), || format!("{asked} answers came from {names:?}"))
}

/// A run of `wrk` in which all was well. On a machine that others keep busy a short one may end
/// before its first answer: then it runs again.
fn flawless(mut run: impl FnMut() -> Result<load::Wrk, LabError>) -> Result<load::Wrk, LabError> {
    let wrk = wait_until("an answer to wrk before it ends", ANSWER_LIMIT, || {
        let wrk = run()?;
        Ok((wrk.requests + wrk.socket_errors + wrk.bad_answers > 0).then_some(wrk))
    })?;
    let well = wrk.socket_errors + wrk.bad_answers == 0;
    expect(well, || format!("not all requests were answered: {wrk:?}"))?;
    Ok(wrk)
}
