//! `sed`, `nq`, `fo`, `ovf`, `dh`, `lblc` and `lblcr`, held against their rules written out: a walk
//! through all real servers for each session.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Sessions of three kinds of traffic: opened, ended, ended all of one real server.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Close(prop::sample::Index),
    Leave(prop::sample::Index),
    Weigh(prop::sample::Index, u16),
    After(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Open),
        5 => any::<prop::sample::Index>().prop_map(Step::Close),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (any::<prop::sample::Index>(), 0u16..9)
            .prop_map(|(at, weight)| Step::Weigh(at, weight)),
        1 => prop_oneof![Just(1000), Just(local::EXPIRES_MS + 1)].prop_map(Step::After),
    ]
}

/// A service that is looked through.
struct Oracle {
    weights: Vec<u16>,
    active: Vec<u64>,
    members: BTreeSet<usize>,
    changed: u64,
    used: u64,
}

impl Oracle {
    fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.weights.len()).filter(|at| self.weights[*at] > 0)
    }

    /// Those of some that nobody of them has less of: sessions, counted so, by weight.
    fn least(&self, of: &[usize], count: impl Fn(u64) -> u64) -> BTreeSet<usize> {
        let less = |a: usize, b: usize| {
            count(self.active[a]) * u64::from(self.weights[b])
                < count(self.active[b]) * u64::from(self.weights[a])
        };
        of.iter().copied().filter(|a| !of.iter().any(|b| less(*b, *a))).collect()
    }

    fn highest(&self, of: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        of.max_by_key(|at| (self.weights[*at], std::cmp::Reverse(*at))).into_iter().collect()
    }

    fn is_overloaded(&self, at: usize) -> bool {
        let weight = |at: usize| u64::from(self.weights[at]);
        self.active[at] > weight(at) && self.open().any(|d| 2 * self.active[d] < weight(d))
    }

    /// Who may get the next session.
    fn right(&mut self, scheduler: Scheduling, now: u64) -> BTreeSet<usize> {
        let all: Vec<usize> = self.open().collect();
        match scheduler {
            Scheduling::Sed => self.least(&all, |active| active + 1),
            Scheduling::Nq => {
                let idle: BTreeSet<_> =
                    all.iter().copied().filter(|at| self.active[*at] == 0).collect();
                if idle.is_empty() { self.least(&all, |active| active + 1) } else { idle }
            }
            Scheduling::Fo => self.highest(self.open()),
            Scheduling::Ovf => {
                let room = |at: &usize| self.active[*at] < u64::from(self.weights[*at]);
                self.highest(self.open().filter(room))
            }
            _ => self.of_set(&all, now),
        }
    }

    fn of_set(&mut self, all: &[usize], now: u64) -> BTreeSet<usize> {
        if now - self.used > local::EXPIRES_MS {
            self.members.clear();
        }
        let members: Vec<_> = self.members.iter().copied().filter(|at| all.contains(at)).collect();
        let best = self.least(&members, |active| active);
        let good: BTreeSet<_> = best.into_iter().filter(|at| !self.is_overloaded(*at)).collect();
        if good.is_empty() { self.least(all, |active| active) } else { good }
    }

    /// What is known after the choice.
    fn chosen(&mut self, scheduler: Scheduling, at: usize, now: u64) {
        self.used = now;
        self.active[at] += 1;
        if scheduler == Scheduling::Lblc && !self.members.contains(&at) {
            self.members.clear();
        }
        if self.members.insert(at) {
            self.changed = now;
        }
    }
}

const CHOOSING: [Scheduling; 6] = [
    Scheduling::Sed,
    Scheduling::Nq,
    Scheduling::Fo,
    Scheduling::Ovf,
    Scheduling::Lblc,
    Scheduling::Lblcr,
];

proptest! {
    /// Whatever comes, ends and changes: who is chosen is one of those that the rule allows.
    #[test]
    fn the_rules_hold(
        weights in prop::collection::vec(0u16..9, 1..8),
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        for scheduler in CHOOSING {
            let mut desk = Desk::new(service(scheduler, reals(weights.clone())));
            let now = desk.now.0;
            let mut oracle = Oracle {
                active: vec![0; weights.len()],
                weights: weights.clone(),
                members: BTreeSet::new(),
                changed: now,
                used: now,
            };
            for step in &steps {
                match step {
                    Step::Open => {
                        // A set that shrinks has a test of its own.
                        if oracle.members.len() > 1
                            && desk.now.0 - oracle.changed > local::EXPIRES_MS {
                            break;
                        }
                        let right = oracle.right(scheduler, desk.now.0);
                        let got = desk.open();
                        let Ok(real) = got else {
                            prop_assert!(right.is_empty(), "{scheduler:?}: {right:?}");
                            continue;
                        };
                        let at = real.0 as usize;
                        prop_assert!(right.contains(&at), "{scheduler:?}: {at} of {right:?}");
                        oracle.chosen(scheduler, at, desk.now.0);
                    }
                    Step::Close(at) => {
                        let at = at.index(weights.len());
                        if oracle.active[at] > 0 {
                            oracle.active[at] -= 1;
                            desk.close(RealId(at as u32));
                        }
                    }
                    Step::Leave(at) => {
                        let at = at.index(weights.len());
                        for _ in 0..std::mem::take(&mut oracle.active[at]) {
                            desk.close(RealId(at as u32));
                        }
                    }
                    Step::Weigh(at, weight) => {
                        oracle.weights[at.index(weights.len())] = *weight;
                        desk.change(service(scheduler, reals(oracle.weights.clone())));
                    }
                    Step::After(ms) => desk.now.0 += ms,
                }
            }
        }
    }
}

/// The strongest gets the first session under `sed`, although the weak one has none either.
#[test]
fn the_expected_delay_counts_the_new_one() {
    let order = |scheduler| {
        let mut desk = Desk::new(service(scheduler, reals([1, 3])));
        let of = |desk: &mut Desk| desk.open().unwrap().0;
        [of(&mut desk), of(&mut desk), of(&mut desk)]
    };
    assert_eq!(order(Scheduling::Sed)[..2], [1, 1]);
    let mut both = order(Scheduling::Nq)[..2].to_vec();
    both.sort_unstable();
    assert_eq!(both, [0, 1], "nobody waits while another has nothing to do");
}

/// Each worker lets its part of the weight in, and then nobody.
#[test]
fn overflow_is_shared_by_workers() {
    for worker in 0..4 {
        let mut desk = Desk::of_worker(service(Scheduling::Ovf, reals([5, 10])), worker, 4);
        let got: Vec<_> = (0..5).map(|_| desk.open().unwrap().0).collect();
        assert_eq!(got, [1, 1, 1, 0, 0]);
        assert_eq!(desk.pick(), Err(Refused::AllFull));
        desk.close(RealId(1));
        assert_eq!(desk.open(), Ok(RealId(1)));
    }
}

/// One destination has one real server, whoever the client is, and another one when that is gone.
#[test]
fn a_destination_has_one_real_server() {
    let key = stable_hash([198, 51, 100, 1].into(), 0, 0);
    let mut desk = Desk::new(service(Scheduling::Dh, reals([1; 10])));
    let first = desk.pick_for(key).unwrap();
    let mut all = reals([1; 10]);
    all[first.0 as usize].weight = 0;
    desk.change(service(Scheduling::Dh, all));
    assert_ne!(desk.pick_for(key).unwrap(), first);
}

/// A set that has not changed for a day loses the member with the most sessions for its weight.
#[test]
fn a_set_grows_and_shrinks() {
    let mut desk = Desk::new(service(Scheduling::Lblcr, reals([2, 2, 4])));
    let mut open = Vec::new();
    let mut until = |desk: &mut Desk, count: usize| {
        while open.iter().collect::<BTreeSet<_>>().len() < count {
            open.push(desk.open().unwrap());
        }
        open.clone()
    };
    until(&mut desk, 1);
    let first = until(&mut desk, 2);
    assert!(first.len() > 3, "one is stayed with until it has more than its weight: {first:?}");
    let members = |desk: &mut Desk| desk.next(50).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(members(&mut desk).len(), 1, "the one of two with less sessions");
    for at in 0..3 {
        while desk.active()[at] > 0 {
            desk.close(RealId(at as u32));
        }
    }
    assert_eq!(members(&mut desk).len(), 2, "both by turns");
    // Used all the time, and unchanged.
    desk.now.0 += local::EXPIRES_MS - 1;
    desk.next(1);
    desk.now.0 += 2;
    assert_eq!(members(&mut desk).len(), 1);
}
