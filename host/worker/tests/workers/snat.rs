//! Flows of source NAT that are spread, in a small world that a sequence of steps drives: hosts
//! inside and one outside, a NIC that hashes, workers that are late, routes and configurations
//! that change, restarts with another number of workers that go on with the sessions.
//!
//! The judge knows nothing of the director: it reads what leaves with `etherparse`.

use crate::memory::{BACK, CLIENT, FRONT, Kit, MemFrame, REAL, udp_with};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sluice_director::counters::Direction;
use sluice_director::path::{FlowName, NotSpreadable};
use sluice_director::spec::{LocalPool, Mapping, Network, NetworkId, SnatRule, Spec};
use sluice_director::{Frame, Reason};
use sluice_worker::spread::{Refused, SpreadOrder};
use std::collections::BTreeMap;

const POOL: [u8; 4] = [198, 51, 100, 9];
const FLOWS: u16 = 3;
const INSIDE_PORT: u16 = 700;
const OUTSIDE_PORT: u16 = 53;

/// Source NAT of the hosts behind the back; `more` is another rule before it, so that all has other
/// ids.
fn spec(more: bool) -> Spec {
    let rule = |name: &str, address: [u8; 4]| SnatRule {
        network: String::new(),
        name: name.into(),
        sources: vec![Network { address: address.into(), prefix: 24 }],
        pool: "wan".into(),
        mapping: Mapping::EndpointIndependent,
        ..SnatRule::default()
    };
    let first = more.then(|| rule("first", [203, 0, 113, 0]));
    let pool = LocalPool {
        network: String::new(),
        name: "wan".into(),
        addresses: vec![POOL.into()],
        ports: 2000..=2999,
        peer_addresses: Vec::new(),
    };
    let snat = first.into_iter().chain([rule("out", [192, 0, 2, 0])]).collect();
    Spec { snat, pools: vec![pool], ..Spec::default() }
}

/// One way of a flow: which, and whether it leaves the inside.
type Way = (u16, bool);

/// What the judge knows.
#[derive(Default)]
struct Judge {
    /// Ports of the pool, by flow.
    mapped: BTreeMap<u16, u16>,
    /// The number after the last that left, by way.
    next: BTreeMap<Way, u32>,
    left: u64,
    bytes: [u64; 2],
}

impl Judge {
    /// A frame left by a port.
    fn see(&mut self, frame: &MemFrame, front: bool) -> Result<(), String> {
        let packet = SlicedPacket::from_ethernet(frame.bytes()).map_err(|e| e.to_string())?;
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) =
            (packet.net, packet.transport)
        else {
            return Err("no datagram".to_owned());
        };
        let header = ip.header().to_header();
        let sums = (header.calc_header_checksum(), udp.to_header());
        let sum = sums.1.calc_checksum_ipv4(&header, udp.payload()).map_err(|e| e.to_string())?;
        if (header.header_checksum, udp.checksum()) != (sums.0, sum) {
            return Err("a wrong checksum".to_owned());
        }
        let from = (header.source, udp.source_port());
        let to = (header.destination, udp.destination_port());
        let word = |at: usize| {
            let word = udp.payload().get(at..at + 4).and_then(|word| word.first_chunk());
            word.map(|word| u32::from_be_bytes(*word)).ok_or("no number".to_owned())
        };
        let (flow, number) = (word(0)? as u16, word(4)?);
        if front {
            let port = *self.mapped.entry(flow).or_insert(from.1);
            if (from, to) != ((POOL, port), (CLIENT, OUTSIDE_PORT)) {
                return Err(format!("flow {flow} leaves from {from:?} to {to:?}, not by {port}"));
            }
        } else if (from, to) != ((CLIENT, OUTSIDE_PORT), (REAL, INSIDE_PORT + flow)) {
            return Err(format!("flow {flow} comes in from {from:?} to {to:?}"));
        }
        let next = self.next.entry((flow, front)).or_default();
        if number < *next {
            return Err(format!("number {number} of {:?} behind {next}", (flow, front)));
        }
        *next = number + 1;
        self.left += 1;
        self.bytes[usize::from(!front)] += u64::from(header.total_len);
        Ok(())
    }
}

struct World {
    kit: Kit,
    judge: Judge,
    sent: BTreeMap<Way, u32>,
    arrived: u64,
    /// What directors that are over have counted: drops, and packets and bytes by direction.
    before: (u64, [(u64, u64); 2]),
    spread: u64,
    more: bool,
}

impl World {
    /// With open sessions, answered.
    fn new(workers: u16) -> Result<Self, String> {
        let mut world = Self {
            kit: Kit::kept(&spec(false), workers),
            judge: Judge::default(),
            sent: BTreeMap::new(),
            arrived: 0,
            before: Default::default(),
            spread: 0,
            more: false,
        };
        for flow in 0..FLOWS {
            for front in [true, false] {
                world.arrive((flow, front), 1);
                world.rest()?;
            }
        }
        if world.judge.left != u64::from(FLOWS) * 2 {
            return Err("sessions do not open".to_owned());
        }
        Ok(world)
    }

    /// So many packets of a way arrive, at the worker that the NIC's hash says.
    fn arrive(&mut self, (flow, front): Way, count: usize) {
        let workers = self.kit.workers.len() as u16;
        let queue = (flow * 5 + u16::from(front) * 3 + 1) % workers;
        for _ in 0..count {
            let number = self.sent.entry((flow, front)).or_default();
            let mut data = [u32::from(flow).to_be_bytes(), number.to_be_bytes()].concat();
            data.resize(8 + *number as usize % 40, 0x5a);
            *number += 1;
            self.arrived += 1;
            let (inside, outside) = ((REAL, INSIDE_PORT + flow), (CLIENT, OUTSIDE_PORT));
            let mapped = self.judge.mapped.get(&flow).copied().unwrap_or_default();
            if front {
                self.kit.put(queue, BACK, udp_with(inside, outside, &data));
            } else {
                self.kit.put(queue, FRONT, udp_with(outside, (POOL, mapped), &data));
            }
        }
    }

    fn turn(&mut self, worker: u16) -> Result<(), String> {
        self.kit.turn(worker);
        for at in 0..self.kit.workers.len() as u16 {
            for (port, front) in [(FRONT, true), (BACK, false)] {
                for frame in self.kit.sent(at, port) {
                    self.judge.see(&frame, front)?;
                }
            }
        }
        Ok(())
    }

    /// Until nothing is under way.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            (0..self.kit.workers.len() as u16).try_for_each(|worker| self.turn(worker))?;
        }
        Ok(())
    }

    /// Spreads a way, or spreads it no more.
    fn spread(&mut self, (flow, front): Way, begin: bool) -> Result<(), String> {
        let name = FlowName {
            protocol: 17,
            client: (REAL.into(), INSIDE_PORT + flow),
            virtual_: (CLIENT.into(), OUTSIDE_PORT),
            direction: if front { Direction::Inbound } else { Direction::Outbound },
        };
        let (network, pinned) = (NetworkId::DEFAULT, true);
        let now = self.kit.now;
        for worker in &mut self.kit.workers {
            if !begin {
                worker.gather_in(network, &name);
                continue;
            }
            let order = SpreadOrder { network, flow: name, workers: 0, pinned };
            match worker.spread(now, &order) {
                Ok(()) => self.spread += 1,
                Err(Refused::Already | Refused::OneWorker) => {}
                Err(Refused::Flow(NotSpreadable::NoSession)) => {}
                Err(why) => return Err(format!("{name:?} is not spread: {why:?}")),
            }
        }
        Ok(())
    }

    /// What the director counts: drops, and packets and bytes to the outside and back.
    fn counted(&self) -> (u64, [(u64, u64); 2]) {
        let (mut drops, mut carried) = self.before;
        let lost = [Reason::SpreadLate, Reason::HandOffFull];
        for worker in &self.kit.workers {
            let counters = worker.path().counters();
            drops += lost.map(|reason| counters.of(reason)).iter().sum::<u64>();
            for real in &counters.reals {
                for (at, (packets, bytes)) in carried.iter_mut().enumerate() {
                    *packets += real.packets[at];
                    *bytes += real.bytes[at];
                }
            }
        }
        (drops, carried)
    }

    /// The director ends and another takes up its sessions.
    fn restart(&mut self, workers: u16) -> Result<(), String> {
        self.rest()?;
        self.check()?;
        self.before = self.counted();
        self.more = !self.more;
        let restored = self.kit.restart(&spec(self.more), workers);
        let sessions = u64::from(FLOWS);
        if restored.sessions != sessions {
            return Err(format!("{restored:?}"));
        }
        Ok(())
    }

    fn reload(&mut self) {
        self.more = !self.more;
        self.kit.reload(&spec(self.more), |_| true);
    }

    /// Nothing is under way: all that arrived has left, or was dropped and counted.
    fn check(&self) -> Result<(), String> {
        let (drops, carried) = self.counted();
        if self.judge.left + drops != self.arrived {
            let left = self.judge.left;
            return Err(format!("{} arrived, {left} left, {drops} dropped", self.arrived));
        }
        let packets = carried.map(|(packets, _)| packets).iter().sum::<u64>();
        let bytes = carried.map(|(_, bytes)| bytes);
        // What is dropped as late was counted before, as in any queue that overflows.
        if drops == 0 && (packets, bytes) != (self.arrived, self.judge.bytes) {
            return Err(format!("{packets} packets, {bytes:?} bytes are counted"));
        }
        Ok(())
    }
}

/// What happens before a worker's turn.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(Way, usize),
    Spread(Way),
    GatherIn(Way),
    Reload,
    Route(u8),
    Restart(u16),
    Nothing,
}

fn step() -> impl Strategy<Value = (u16, Step)> {
    let way = || (0..FLOWS, any::<bool>());
    let what = prop_oneof![
        12 => (way(), 0usize..90).prop_map(|(way, count)| Step::Arrive(way, count)),
        4 => way().prop_map(Step::Spread),
        1 => way().prop_map(Step::GatherIn),
        1 => Just(Step::Reload),
        1 => any::<u8>().prop_map(Step::Route),
        1 => (1u16..=4).prop_map(Step::Restart),
        10 => Just(Step::Nothing),
    ];
    (0u16..4, what)
}

fn play(workers: u16, steps: &[(u16, Step)]) -> Result<World, String> {
    let mut world = World::new(workers)?;
    for (worker, step) in steps {
        match *step {
            Step::Arrive(way, count) => world.arrive(way, count),
            Step::Spread(way) => world.spread(way, true)?,
            Step::GatherIn(way) => world.spread(way, false)?,
            Step::Reload => world.reload(),
            Step::Route(last) => world.kit.publish_mac([2, 0, 0, 0, 7, last]),
            Step::Restart(workers) => world.restart(workers)?,
            Step::Nothing => {}
        }
        let workers = world.kit.workers.len() as u16;
        world.turn(worker % workers)?;
    }
    world.rest()?;
    world.check()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Order, addresses, checksums and counts hold for both ways of each flow, and each keeps its
    /// port of the pool.
    #[test]
    fn spread_flows_of_source_nat_stay_whole(
        workers in 2u16..=4,
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        if let Err(wrong) = play(workers, &steps) {
            prop_assert!(false, "{}", wrong);
        }
    }
}

/// A restart with another number of workers while flows are spread: they are spread again, by
/// whoever has the session now.
#[test]
fn flows_are_spread_again_after_a_restart_with_other_workers() {
    let way = (1, true);
    let burst = [(0, Step::Spread(way)), (1, Step::Arrive(way, 80)), (2, Step::Nothing)];
    for (before, after) in [(2, 3), (3, 2), (4, 3), (2, 4)] {
        let again = [&burst[..], &[(0, Step::Restart(after))], &burst].concat();
        let world = play(before, &again).expect("whole");
        assert_eq!(world.spread, 2, "{before} workers, then {after}");
        let dealt = |worker: &sluice_worker::Worker<_>| {
            let all = worker.spreading(world.kit.now);
            all.iter().map(|flow| flow.dealt + flow.own).sum::<u64>()
        };
        assert_eq!(world.kit.workers.iter().map(dealt).sum::<u64>(), 80);
    }
}

/// A flow whose packets ask several workers for its session, as after a restart with others, is
/// known by that: no fence could tell when the last of them has come.
#[test]
fn flows_that_go_round_are_told() {
    let mut world = World::new(2).expect("sessions");
    for (workers, some_do) in [(None, false), (Some(4), true)] {
        if let Some(workers) = workers {
            world.restart(workers).expect("sessions go on");
        }
        let ways = || (0..FLOWS).flat_map(|flow| [(flow, true), (flow, false)]);
        ways().for_each(|way| world.spread(way, true).expect("spread"));
        ways().for_each(|way| world.arrive(way, 20));
        world.rest().expect("whole");
        let now = world.kit.now;
        let spread: Vec<_> =
            world.kit.workers.iter().flat_map(|worker| worker.spreading(now)).collect();
        assert_eq!(spread.len(), usize::from(FLOWS) * 2);
        assert_eq!(spread.iter().any(|flow| flow.goes_round), some_do);
    }
}

/// The judge sees what it is there for.
#[test]
fn the_judge_sees_what_is_wrong() {
    let data = |number: u32| [0_u32.to_be_bytes(), number.to_be_bytes()].concat();
    let right = |number| udp_with((POOL, 2000), (CLIENT, OUTSIDE_PORT), &data(number));
    let mut judge = Judge::default();
    [0, 1, 2].iter().for_each(|at| judge.see(&right(*at), true).expect("right"));
    assert!(judge.see(&right(1), true).expect_err("late").contains("behind"));
    let other = udp_with((POOL, 2001), (CLIENT, OUTSIDE_PORT), &data(3));
    assert!(judge.see(&other, true).expect_err("another port").contains("leaves from"));
    let mut spoilt = right(4);
    spoilt.bytes_mut()[40] ^= 1;
    assert!(judge.see(&spoilt, true).expect_err("spoilt").contains("checksum"));
    let mut world = World::new(2).expect("sessions");
    world.arrived += 1;
    assert!(world.check().expect_err("one is lost").contains("arrived"));
    world.arrived -= 1;
    world.judge.bytes[0] += 1;
    assert!(world.check().expect_err("a byte more").contains("counted"));
}
