//! What a change of health costs with many services: compiling a plan, changing one, adopting it.
//!
//! `cargo run --release -p sluice-director --example health_change -- 10000 10`

use sluice_director::counters::RealCounters;
use sluice_director::plan::{Plan, RealId, Retired};
use sluice_director::schedule::Schedulers;
use sluice_director::spec::{Mode, Ports, RealServer, Scheduling, Spec, VirtualService};
use sluice_director::time::Time;
use std::time::Instant;

fn main() {
    let mut numbers = std::env::args().skip(1).map_while(|text| text.parse::<u32>().ok());
    let (services, reals) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(10));
    let spec = Spec {
        services: (0..services).map(|number| service(number, reals)).collect(),
        ..Spec::default()
    };
    let timed = |what: &str, from: Instant| {
        println!("{what:<34}{:>9.3} ms", from.elapsed().as_secs_f64() * 1e3);
    };
    let begun = Instant::now();
    let plan = Plan::compile(&spec, None, &Retired::default()).expect("a plan");
    timed("compile a plan", begun);
    let begun = Instant::now();
    let mut plan = Plan::compile(&spec, Some(&plan), &Retired::default()).expect("a plan");
    timed("compile the next plan", begun);
    let counters = vec![RealCounters::default(); plan.reals.len()];
    let mut schedulers = Schedulers::new(0, 1, 1);
    let begun = Instant::now();
    schedulers.adopt(&plan, Time(0), &counters);
    timed("a worker's schedulers adopt it", begun);
    for round in 0..3u32 {
        let begun = Instant::now();
        let next = plan.with_health(&[(RealId(round), true)]);
        timed("change one real server's health", begun);
        let begun = Instant::now();
        schedulers.adopt(&next, Time(1), &counters);
        timed("a worker's schedulers adopt that", begun);
        let begun = Instant::now();
        drop(std::mem::replace(&mut plan, next));
        timed("drop the plan before", begun);
    }
    let all: Vec<_> = (0..plan.reals.len() as u32).map(|id| (RealId(id), id % 2 == 0)).collect();
    let begun = Instant::now();
    let next = plan.with_health(&all);
    timed("change half of all", begun);
    let begun = Instant::now();
    schedulers.adopt(&next, Time(2), &counters);
    timed("a worker's schedulers adopt that", begun);
}

fn service(number: u32, reals: u32) -> VirtualService {
    let of = |real: u32| RealServer {
        address: (0x0a00_0000u32 + number * reals + real).to_be_bytes().into(),
        port: 80,
        ..RealServer::default()
    };
    VirtualService {
        name: format!("service-{number}"),
        vip: [198, 51, 100, (number % 200) as u8].into(),
        ports: Ports::one((1 + number / 200) as u16),
        mode: Mode::Nat,
        scheduler: Scheduling::Wlc,
        reals: (0..reals).map(of).collect(),
        ..VirtualService::default()
    }
}
