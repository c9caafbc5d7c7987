//! A NIC's rule for a flow is made and removed while packets wait in queues and rings: none
//! overtakes another.
//!
//! The NIC of these tests puts what arrives into worker 1's queue by its hash, and into the
//! owner's, worker 0's, where it has a rule.

use crate::memory::{BACK, CLIENT, FRONT, Kit, LOCAL, MemFrame, REAL, VIP, addresses, udp};
use proptest::prelude::*;
use sluice_director::counters::Direction;
use sluice_director::dealing::{LONGEST_HELD_MS, MOST_HELD};
use sluice_director::path::FlowName;
use sluice_director::spec::NetworkId;
use sluice_director::{Frame, Reason};
use sluice_worker::spread::{FenceOrder, SpreadOrder, Way};

const CLIENT_PORT: u16 = 4000;
/// Where the payload ends that tells packets apart.
const NUMBER: usize = 46;

/// The flow towards the client.
const FLOW: FlowName = {
    let client = std::net::IpAddr::V4(std::net::Ipv4Addr::from_octets(CLIENT));
    let vip = std::net::IpAddr::V4(std::net::Ipv4Addr::from_octets(VIP));
    let direction = Direction::Outbound;
    FlowName { protocol: 17, client: (client, CLIENT_PORT), virtual_: (vip, 53), direction }
};

/// Whether the director puts up fences, or is one that forgets them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fences {
    Up,
    Forgotten,
}

struct Nic {
    kit: Kit,
    fences: Fences,
    local: u16,
    has_rule: bool,
    last_fence: u32,
    sent: u32,
    came: Vec<u32>,
}

impl Nic {
    /// A session of worker 0's, whose answers come to worker 1.
    fn new(workers: u16, fences: Fences) -> Self {
        let mut kit = Kit::new(workers, &[workers, workers], true);
        kit.put(0, FRONT, udp((CLIENT, CLIENT_PORT), (VIP, 53)));
        kit.turn(0);
        let (local, _) = addresses(&kit.sent(0, BACK)[0]);
        kit.put(0, BACK, udp((REAL, 53), local));
        kit.turn(0);
        assert_eq!(kit.sent(0, FRONT).len(), 1);
        let (has_rule, last_fence, sent, came) = (false, 0, 0, Vec::new());
        Self { kit, fences, local: local.1, has_rule, last_fence, sent, came }
    }

    fn spread(&mut self) {
        let (network, flow) = (NetworkId::DEFAULT, FLOW);
        let order = SpreadOrder { network, flow, workers: 0, pinned: true };
        assert_eq!(self.kit.workers[0].spread(self.kit.now, &order), Ok(()));
    }

    /// So many packets arrive.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let mut frame = udp((REAL, 53), (LOCAL, self.local));
            frame.bytes_mut()[NUMBER - 4..NUMBER].copy_from_slice(&self.sent.to_be_bytes());
            self.kit.put(if self.has_rule { 0 } else { 1 }, BACK, frame);
            self.sent += 1;
        }
    }

    fn turn(&mut self, worker: u16) {
        self.kit.turn(worker);
        let number = |frame: &MemFrame| frame.bytes()[NUMBER - 4..NUMBER].try_into().unwrap();
        let left = self.kit.sent(0, FRONT);
        self.came.extend(left.iter().map(|frame| u32::from_be_bytes(number(frame))));
    }

    fn turn_all(&mut self, times: usize) {
        for _ in 0..times {
            (0..self.kit.workers.len() as u16).for_each(|worker| self.turn(worker));
        }
    }

    /// The fence that a change of the rule begins with.
    fn begin(&mut self) -> bool {
        self.last_fence += 1;
        let order = FenceOrder {
            id: self.last_fence,
            network: NetworkId::DEFAULT,
            protocol: 17,
            from: (REAL.into(), 53),
            to: (LOCAL.into(), self.local),
            to_way: if self.has_rule { Way::Handed } else { Way::Direct },
        };
        self.fences == Fences::Forgotten || self.kit.workers[0].fence(&order)
    }

    /// The rule changes, and whoever may have something of the flow is asked for a mark.
    fn change(&mut self) {
        let asked = if self.has_rule { 0..1 } else { 1..self.kit.workers.len() };
        self.has_rule = !self.has_rule;
        if self.fences == Fences::Up {
            self.kit.workers[asked]
                .iter_mut()
                .for_each(|worker| worker.owe_mark(self.last_fence, 0));
        }
    }

    /// Packets that were dropped and counted.
    fn counted(&self) -> u64 {
        let workers = 0..self.kit.workers.len() as u16;
        let reasons = [Reason::SpreadLate, Reason::HandOffFull];
        workers.flat_map(|worker| reasons.map(|reason| self.kit.counted(worker, reason))).sum()
    }
}

/// What happens in a turn of a worker's.
#[derive(Clone, Copy, Debug)]
struct Step {
    worker: u16,
    arrive: usize,
    /// Whether the next thing to be done about the rule is done.
    goes_on: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = (0u16..4, 0usize..400, 0u8..8);
    kinds.prop_map(|(worker, arrive, goes_on)| Step { worker, arrive, goes_on: goes_on == 0 })
}

/// The rule comes and goes, with a fence, a change, and a while each time.
fn play(nic: &mut Nic, steps: &[Step], gathers: bool) {
    let mut is_begun = false;
    for Step { worker, arrive, goes_on } in steps {
        if *goes_on && is_begun {
            nic.change();
            is_begun = false;
        } else if *goes_on {
            // Not before the last fence is down.
            is_begun = nic.begin();
            if is_begun && nic.has_rule && gathers {
                nic.kit.workers[0].gather_in(NetworkId::DEFAULT, &FLOW);
            }
        }
        nic.arrive(*arrive);
        nic.turn(worker % nic.kit.workers.len() as u16);
    }
    if is_begun {
        nic.change();
    }
    nic.turn_all(60);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whoever is slow, and whether or not the flow is spread: it leaves in order, and what does
    /// not leave is counted.
    #[test]
    fn no_packet_overtakes_when_a_rule_comes_or_goes(
        workers in 2u16..=4,
        spreads in any::<bool>(),
        gathers in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut nic = Nic::new(workers, Fences::Up);
        if spreads {
            nic.spread();
        }
        play(&mut nic, &steps, gathers);
        prop_assert!(nic.came.is_sorted(), "{:?}", nic.came);
        prop_assert_eq!(nic.came.len() as u64 + nic.counted(), u64::from(nic.sent));
    }
}

/// The same steps with a director that forgets its fences: the test above would see it.
#[test]
fn without_fences_packets_overtake() {
    let step = |worker, goes_on| Step { worker, arrive: 40, goes_on };
    // The owner has its turns, worker 1 does not.
    let made = [step(1, false), step(0, true), step(0, true), step(0, false), step(0, false)];
    let mut nic = Nic::new(2, Fences::Forgotten);
    nic.spread();
    play(&mut nic, &made, false);
    assert!(!nic.came.is_sorted(), "made without a fence");
    // The other way round: worker 1 has its turns, and more waits at the owner than a turn takes.
    for (fences, is_sorted) in [(Fences::Forgotten, false), (Fences::Up, true)] {
        let mut nic = Nic::new(2, fences);
        nic.begin();
        nic.change();
        nic.turn_all(4);
        nic.arrive(600);
        assert!(nic.begin());
        nic.change();
        nic.arrive(200);
        nic.turn(1);
        nic.turn_all(20);
        assert_eq!(nic.came.is_sorted(), is_sorted);
        assert_eq!((nic.came.len(), nic.counted()), (800, 0));
    }
}

/// What is held waits for the marks of all others, and for no longer.
#[test]
fn held_packets_go_on_with_the_last_mark() {
    let mut nic = Nic::new(3, Fences::Up);
    nic.arrive(300);
    assert!(nic.begin());
    assert!(!nic.begin(), "one at a time");
    nic.last_fence -= 1;
    nic.change();
    nic.arrive(10);
    nic.turn(0);
    nic.turn(2);
    nic.turn(0);
    assert!(nic.came.is_empty(), "worker 1 has the first 300");
    nic.turn(1);
    nic.turn(0);
    assert_eq!(nic.came, (0..256).collect::<Vec<_>>(), "a full burst says nothing of the queue");
    nic.turn(1);
    nic.turn_all(2);
    assert_eq!(nic.came, (0..310).collect::<Vec<_>>());
    assert_eq!(nic.counted(), 0);
    nic.arrive(1);
    nic.turn(0);
    assert_eq!(nic.came.len(), 311);
}

/// A worker that stands still delays the flow for some milliseconds. What it has of the flow is
/// lost then, and counted.
#[test]
fn a_worker_that_stalls_costs_its_packets_and_not_the_order() {
    for by_time in [true, false] {
        let mut nic = Nic::new(2, Fences::Up);
        nic.arrive(300);
        assert!(nic.begin());
        nic.change();
        let held = if by_time { 100 } else { MOST_HELD };
        for _ in 0..held / 100 {
            nic.arrive(100);
            nic.turn(0);
        }
        assert!(nic.came.is_empty());
        if by_time {
            nic.kit.now.0 += LONGEST_HELD_MS;
        }
        nic.arrive(100);
        nic.turn(0);
        let first = nic.came.len();
        assert!(first > held, "{first}");
        nic.turn_all(10);
        assert_eq!(nic.came, (300..nic.sent).collect::<Vec<_>>());
        assert_eq!(nic.kit.counted(0, Reason::SpreadLate), 300);
        // The fence is down: what comes in the other way is processed again.
        nic.has_rule = false;
        nic.arrive(1);
        nic.turn_all(2);
        assert_eq!(nic.counted(), 300);
        assert_eq!(nic.came.last(), Some(&(nic.sent - 1)));
    }
}

/// A rule that the NIC refuses: what was held goes on, without a mark.
#[test]
fn a_refused_rule_leaves_nothing_behind() {
    let mut nic = Nic::new(2, Fences::Up);
    assert!(nic.begin());
    // As where the hash brings the flow to its owner.
    nic.has_rule = true;
    nic.arrive(50);
    nic.turn_all(3);
    assert!(nic.came.is_empty());
    nic.kit.workers[0].take_down(nic.last_fence);
    nic.turn_all(1);
    assert_eq!(nic.came, (0..50).collect::<Vec<_>>());
}
