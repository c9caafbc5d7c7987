//! One director between two shared-memory ports: its ports, its worker, its rounds.

use super::scene::{self, BACK, FRONT, MACS};
use crate::args::Network;
use crate::clock::ticks;
use crate::error::BenchError;
use sluice_director::path::{PagePolicy, PathConfig};
use sluice_director::{Reason, Time};
use sluice_dpdk::{Device, DmaCopies, Eal, Mbuf, Memif, MemifRole, Port, PortConfig, QueuePair};
use sluice_worker::{
    Burst, Clock, Event, NetworksConfig, Published, Queue, StageCounts, Wake, Worker, WorkerConfig,
    mesh,
};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Where the worker's clock begins: a while after zero, which sessions store as "never".
const START_MS: u64 = 1000;
/// A round takes some milliseconds; after this long packets must have been lost.
const STUCK: Duration = Duration::from_secs(10);

/// A port's queue pair, used as `sluiced` uses it.
pub struct PortQueue(QueuePair);

impl Queue for PortQueue {
    type Frame = Mbuf;

    #[inline]
    fn receive(&mut self, frames: &mut Burst<Mbuf>) -> usize {
        let came = self.0.rx.rx(frames);
        if came == 0 || self.0.tx.is_busy() {
            self.0.tx.refresh();
        }
        came
    }

    #[inline]
    fn transmit(&mut self, frames: &mut Burst<Mbuf>) -> usize {
        self.0.tx.tx(frames)
    }
}

/// What a round took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Frames that the worker received.
    pub came: usize,
    /// Ticks of turns that did something, and of all.
    pub ticks: u64,
    pub elapsed: u64,
    /// Copies that an engine did, and that it had no room for.
    pub offloaded: u64,
    pub full: u64,
    pub stages: StageCounts,
}

/// The director.
pub struct Bed {
    worker: Worker<PortQueue>,
    worked_ticks: u64,
    ticks_per_ms: u64,
    /// Nobody looks into it, but workers want it.
    _events: Receiver<Event>,
    ports: Vec<Port>,
}

/// The configuration of both ports of a director.
pub fn ports(sockets: [&str; 2], copies: Option<&DmaCopies>) -> [PortConfig; 2] {
    let named = [("front", MACS[0], 1500), ("back", MACS[1], scene::UNDERLAY_MTU)];
    let mut ports = named.into_iter().zip(sockets).map(|((name, mac, mtu), socket)| PortConfig {
        mac: Some(mac),
        mtu: Some(mtu),
        ..PortConfig::new(
            name,
            Device::Memif(Memif {
                copies: copies.cloned(),
                ..Memif::new(format!("@{socket}"), 0, MemifRole::Server)
            }),
        )
    });
    [(); 2].map(|()| ports.next().unwrap_or_else(|| unreachable!("there are two")))
}

impl Bed {
    pub fn new(
        eal: &Eal,
        configs: &[PortConfig; 2],
        network: Network,
        (sessions, seed): (u64, u64),
        (pages, ticks_per_s): (PagePolicy, f64),
    ) -> Result<Self, BenchError> {
        let capacity = (sessions + sessions / 8).max(1024) as u32;
        let (published, networks) = scene::published(network, sessions, capacity)?;
        let mut worker = worker(&published, networks, (capacity, seed), (pages, ticks_per_s))?;
        let mut ports = Vec::new();
        for (config, port) in configs.iter().zip([FRONT, BACK]) {
            let (opened, queues) = Port::open(eal, config)?;
            ports.push(opened);
            queues.into_iter().for_each(|pair| worker.0.attach(port, PortQueue(pair), None));
        }
        Ok(Self {
            worker: worker.0,
            worked_ticks: 0,
            ticks_per_ms: (ticks_per_s / 1000.0) as u64,
            _events: worker.1,
            ports,
        })
    }

    /// Turns until so many frames have come, and all have gone.
    pub fn run(&mut self, expected: usize) -> Done {
        let before = *self.worker.stages();
        let (begin, deadline) = (self.activity(), Instant::now() + STUCK);
        let (mut done, mut seen) = (Done::default(), begin);
        while (done.came < expected || self.is_busy()) && Instant::now() < deadline {
            let now = Time(START_MS + self.worked_ticks / self.ticks_per_ms);
            let begin = ticks();
            let came = self.worker.turn(now);
            let took = ticks() - begin;
            self.worked_ticks += took;
            let after = self.activity();
            // Frames came or were begun to be copied, or have gone.
            if came > 0 || after != seen {
                done.ticks += took;
            }
            seen = after;
            done.elapsed += took;
            done.came += came;
        }
        let [offloaded, full, _] = seen;
        (done.offloaded, done.full) = (offloaded - begin[0], full - begin[1]);
        done.stages = self.worker.stages().since(&before);
        done
    }

    /// Whether frames that were sent are still being copied.
    fn is_busy(&mut self) -> bool {
        [FRONT, BACK]
            .into_iter()
            .any(|port| self.worker.queue_mut(port).is_some_and(|queue| queue.0.tx.is_busy()))
    }

    /// Copies that an engine has begun and that it had no room for, and frames that have gone.
    fn activity(&self) -> [u64; 3] {
        let of = |port: &Port| {
            let copies = port.copies().unwrap_or_default();
            [copies.offloaded, copies.full, port.stats().tx_frames]
        };
        let all = self.ports.iter().map(of);
        all.fold([0; 3], |[a, b, c], [x, y, z]| [a + x, b + y, c + z])
    }

    /// What was dropped or given away, as text; `None` if nothing was.
    pub fn reasons(&self) -> Option<String> {
        let networks = [0, 1].map(sluice_director::spec::NetworkId);
        let paths = networks.iter().filter_map(|network| self.worker.path_of(*network));
        let some = paths.flat_map(|path| {
            let counters = path.counters();
            let counted = Reason::ALL.iter().map(move |reason| (counters.of(*reason), reason));
            counted.filter(|(count, _)| *count > 0)
        });
        let texts: Vec<_> =
            some.map(|(count, reason)| format!("{count} {}", reason.name())).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

fn worker(
    published: &Published,
    networks: NetworksConfig,
    (sessions, seed): (u32, u64),
    (pages, ticks_per_s): (PagePolicy, f64),
) -> Result<(Worker<PortQueue>, Receiver<Event>), BenchError> {
    let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
    let (sender, events) = channel();
    let wake = Wake::new().map_err(eventfd)?;
    let path = PathConfig { worker: 0, workers: 1, sessions, fragments: 4096, seed, pages };
    let clock = Some(Clock { ticks, ticks_per_s: ticks_per_s as u64 });
    let config = WorkerConfig { clock, networks, ..WorkerConfig::of(path) };
    let rings = mesh(1).pop().unwrap_or_else(|| unreachable!("one worker has rings"));
    let worker = Worker::new(config, published, rings, vec![wake.clone()], (sender, wake))?;
    Ok((worker, events))
}
