//! Schedulers over compiled plans: how sessions are distributed, and what changes do to it. The
//! structures' own tests are beside them.

mod change;
mod choosing;
mod distribution;
mod limits;
mod mh;
mod workers;

use super::*;
use crate::plan::Retired;
use crate::spec::{Mode, Ports, RealServer, Scheduling, Spec, VirtualService};
use std::net::IpAddr;

/// Those that choose one, or few, on purpose, and have no bound of their own.
const FEW: [Scheduling; 4] = [Scheduling::Fo, Scheduling::Lblc, Scheduling::Lblcr, Scheduling::Dh];

/// All that give each its share: those that do not say otherwise.
fn sharing() -> impl Iterator<Item = Scheduling> {
    let all = Scheduling::ALL.iter().copied();
    all.filter(|scheduler| !FEW.contains(scheduler) && *scheduler != Scheduling::Ovf)
}

/// The n-th real server, with a weight.
fn real(number: u32, weight: u16) -> RealServer {
    RealServer { address: address(number), port: 80, weight, ..RealServer::default() }
}

fn address(number: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0xc000_0200 + number).into()
}

fn reals(weights: impl IntoIterator<Item = u16>) -> Vec<RealServer> {
    (0..).zip(weights).map(|(number, weight)| real(number, weight)).collect()
}

fn service(scheduler: Scheduling, reals: Vec<RealServer>) -> VirtualService {
    VirtualService {
        name: "web".into(),
        vip: [198, 51, 100, 1].into(),
        ports: Ports::one(80),
        mode: Mode::Dr,
        scheduler,
        reals,
        ..VirtualService::default()
    }
}

/// One worker, its plan, and the sessions that it has open.
struct Desk {
    plan: Plan,
    schedulers: Schedulers,
    counters: Vec<RealCounters>,
    now: Time,
    clients: u64,
}

impl Desk {
    fn new(service: VirtualService) -> Self {
        Self::of_worker(service, 0, 1)
    }

    fn of_worker(service: VirtualService, worker: u16, workers: u16) -> Self {
        let mut desk = Self {
            plan: Plan::default(),
            schedulers: Schedulers::new(worker, workers, 1),
            counters: Vec::new(),
            now: Time(1000),
            clients: u64::from(worker) << 32,
        };
        desk.change(service);
        desk
    }

    /// Puts a changed configuration into effect.
    fn change(&mut self, service: VirtualService) {
        self.change_all(vec![service], &Retired::default());
    }

    fn change_all(&mut self, services: Vec<VirtualService>, retired: &Retired) {
        let spec = Spec { services, ..Spec::default() };
        let before = (!self.plan.services.is_empty()).then_some(&self.plan);
        self.plan = Plan::compile(&spec, before, retired).unwrap();
        self.counters.resize(self.plan.reals.len(), RealCounters::default());
        self.schedulers.adopt(&self.plan, self.now, &self.counters);
    }

    fn pick_for(&mut self, key: u64) -> Result<RealId, Refused> {
        self.schedulers.pick(&self.plan, ServiceId(0), key, self.now)
    }

    /// Picks for a client that was never seen before.
    fn pick(&mut self) -> Result<RealId, Refused> {
        self.clients += 1;
        let client = std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(self.clients));
        self.pick_for(stable_hash(client.into(), 0, 0))
    }

    /// Opens a session and says with whom.
    fn open(&mut self) -> Result<RealId, Refused> {
        let real = self.pick()?;
        self.opened(real);
        Ok(real)
    }

    fn opened(&mut self, real: RealId) {
        self.schedulers.opened(real);
        self.counters[real.0 as usize].active += 1;
        self.counters[real.0 as usize].sessions += 1;
    }

    fn close(&mut self, real: RealId) {
        self.schedulers.closed(real);
        self.counters[real.0 as usize].active -= 1;
    }

    /// Sessions that were opened with each, by real server's id.
    fn opened_with(&self) -> Vec<u64> {
        self.counters.iter().map(|counts| counts.sessions).collect()
    }

    fn active(&self) -> Vec<u64> {
        self.counters.iter().map(|counts| counts.active).collect()
    }

    /// The numbers of the next so many real servers, each with a session that ends at once.
    fn next(&mut self, count: usize) -> Vec<u32> {
        let one = |_| {
            let real = self.open().unwrap();
            self.close(real);
            real.0
        };
        (0..count).map(one).collect()
    }
}

/// A small generator of test cases that repeats itself (SplitMix64).
struct Cases(u64);

impl Cases {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(hash::GOLDEN);
        hash::scale(hash::mix(self.0), limit as u64) as usize
    }
}
