//! Which flows the director spreads by itself: those whose rate has stayed above a threshold, as
//! long as it does not stay below half of it.
//!
//! A flow enters after two windows above and leaves after a number of windows below half, so that
//! one whose rate is about the threshold does neither all the time. A flow that cannot be spread is
//! not asked about again for a while.

use sluice_config::Elephants;
use sluice_director::path::FlowName;
use sluice_director::spec::NetworkId;

/// Windows above the threshold, of a second each.
const ENTER: u32 = 2;
/// Windows before a refused flow is tried again.
const AGAIN: u32 = 60;

/// A flow, and the network that it is in.
pub type Flow = (NetworkId, FlowName);

/// What a flow came to in the last second.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub flow: Flow,
    pub packets_per_s: u64,
    pub bits_per_s: u64,
    /// Packets a second that its worker can process; 0 if nobody knows.
    pub capacity: u64,
}

/// What is to be done about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Spread(Flow),
    GatherIn(Flow),
}

#[derive(Clone, Copy, Debug)]
struct Known {
    flow: Flow,
    spread: bool,
    /// Windows above the threshold, or, of one that is spread, below half of it.
    windows: u32,
    /// Windows until it may be tried again.
    rest: u32,
    /// What its worker could process when it came above the threshold: once others help, that
    /// tells nothing.
    capacity: u64,
}

/// What is remembered of flows.
#[derive(Debug, Default)]
pub struct Policy {
    known: Vec<Known>,
}

impl Policy {
    /// A window is over: what came of it, the largest flow first, and which flows the policy has
    /// spread that still are.
    pub fn window(&mut self, config: &Elephants, rates: &[Rate], spread: &[Flow]) -> Vec<Step> {
        self.known.retain(|known| !known.spread || spread.contains(&known.flow));
        let strangers = spread.iter().filter(|flow| self.known.iter().all(|k| k.flow != **flow));
        let strangers: Vec<Flow> = strangers.copied().collect();
        let known = |flow, spread, capacity| Known { flow, spread, windows: 0, rest: 0, capacity };
        self.known.extend(strangers.into_iter().map(|flow| known(flow, true, 0)));
        let above = |rate: &&Rate| exceeds(config, rate, rate.capacity, 1);
        for rate in rates.iter().filter(above) {
            if self.known.iter().all(|known| known.flow != rate.flow) {
                self.known.push(known(rate.flow, false, rate.capacity));
            }
        }
        let mut steps = Vec::new();
        for known in &mut self.known {
            let rate = rates.iter().find(|rate| rate.flow == known.flow);
            known.rest = known.rest.saturating_sub(1);
            let counts = match known.spread {
                true => !rate.is_some_and(|rate| exceeds(config, rate, known.capacity, 2)),
                false => rate.is_some_and(|rate| exceeds(config, rate, rate.capacity, 1)),
            };
            known.windows = if counts { known.windows + 1 } else { 0 };
            if known.spread && known.windows >= config.leave_after_s {
                known.windows = 0;
                steps.push(Step::GatherIn(known.flow));
            }
        }
        self.known.retain(|known| known.spread || known.windows > 0 || known.rest > 0);
        let mut room = config.max_flows.saturating_sub(spread.len());
        for rate in rates {
            let known = self.known.iter().find(|known| known.flow == rate.flow);
            let is_due =
                |known: &&Known| !known.spread && known.windows >= ENTER && known.rest == 0;
            if room > 0 && known.filter(is_due).is_some() {
                steps.push(Step::Spread(rate.flow));
                room -= 1;
            }
        }
        steps
    }

    /// A flow is spread now, or could not be.
    pub fn tried(&mut self, flow: Flow, spread: bool) {
        if let Some(known) = self.known.iter_mut().find(|known| known.flow == flow) {
            (known.spread, known.windows) = (spread, 0);
            known.rest = if spread { 0 } else { AGAIN };
        }
    }

    /// Whether it has spread nothing.
    pub fn is_idle(&self) -> bool {
        self.known.iter().all(|known| !known.spread)
    }

    /// Whether a flow's refusal is new.
    pub fn is_new(&self, flow: Flow) -> bool {
        self.known.iter().all(|known| known.flow != flow || known.rest == 0)
    }
}

/// Whether a rate exceeds a part of a threshold, at a worker that can process so many packets a
/// second.
const fn exceeds(config: &Elephants, rate: &Rate, capacity: u64, part: u64) -> bool {
    let (packets, bits) = (config.packets_per_s, config.bits_per_s);
    let share = capacity / 100 * config.worker_percent as u64;
    packets > 0 && rate.packets_per_s * part > packets
        || bits > 0 && rate.bits_per_s * part > bits
        || share > 0 && rate.packets_per_s * part > share
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use sluice_config::Spreading;
    use sluice_director::counters::Direction;

    pub const CONFIG: Elephants = Elephants {
        mode: Spreading::Spread,
        packets_per_s: 1000,
        bits_per_s: 0,
        worker_percent: 0,
        leave_after_s: 3,
        max_flows: 2,
        workers: 0,
    };

    pub fn flow(port: u16) -> Flow {
        let (client, virtual_) = (([198, 51, 100, 48].into(), port), ([203, 0, 113, 1].into(), 53));
        let direction = Direction::Inbound;
        (NetworkId::DEFAULT, FlowName { protocol: 17, client, virtual_, direction })
    }

    pub fn rate(port: u16, packets_per_s: u64) -> Rate {
        Rate { flow: flow(port), packets_per_s, bits_per_s: packets_per_s * 800, capacity: 0 }
    }

    /// In after two windows above, out after three below half; what is between changes nothing.
    #[test]
    fn rates_about_the_threshold_do_not_flap() {
        let mut policy = Policy::default();
        let mut spread = Vec::new();
        let (begin, end) = (vec![Step::Spread(flow(1))], vec![Step::GatherIn(flow(1))]);
        for (packets, expected) in [
            (1001, vec![]),
            (999, vec![]),
            (1001, vec![]),
            (1001, begin.clone()),
            (501, vec![]),
            (499, vec![]),
            (499, vec![]),
            (501, vec![]),
            (499, vec![]),
            (0, vec![]),
            (499, end),
            (1001, vec![]),
            (5000, begin),
        ] {
            let steps = policy.window(&CONFIG, &[rate(1, packets)], &spread);
            assert_eq!(steps, expected, "{packets}");
            for step in steps {
                match step {
                    Step::Spread(flow) => {
                        policy.tried(flow, true);
                        spread.push(flow);
                    }
                    Step::GatherIn(_) => spread.clear(),
                }
            }
        }
    }

    #[test]
    fn only_so_many_and_the_largest() {
        let mut policy = Policy::default();
        let rates: Vec<Rate> = [(4, 9000), (2, 7000), (1, 5000)].map(|(p, n)| rate(p, n)).to_vec();
        assert!(policy.window(&CONFIG, &rates, &[]).is_empty());
        let steps = policy.window(&CONFIG, &rates, &[]);
        assert_eq!(steps, [Step::Spread(flow(4)), Step::Spread(flow(2))]);
        // One ended with its session: there is room for another.
        [4, 2].into_iter().for_each(|port| policy.tried(flow(port), true));
        let steps = policy.window(&CONFIG, &rates[1..], &[flow(2)]);
        assert_eq!(steps, [Step::Spread(flow(1))]);
    }

    #[test]
    fn a_refused_flow_rests() {
        let mut policy = Policy::default();
        let rates = [rate(1, 5000)];
        policy.window(&CONFIG, &rates, &[]);
        assert_eq!(policy.window(&CONFIG, &rates, &[]), [Step::Spread(flow(1))]);
        assert!(policy.is_new(flow(1)));
        policy.tried(flow(1), false);
        let tried = (0..100).filter(|_| !policy.window(&CONFIG, &rates, &[]).is_empty()).count();
        assert!((30..50).contains(&tried), "{tried}: it rests for sixty windows");
    }

    /// A flow's share counts at the worker that had it alone, also once others help with it.
    #[test]
    fn a_share_of_the_worker_suffices() {
        let config = Elephants { packets_per_s: 0, worker_percent: 50, ..CONFIG };
        let mut policy = Policy::default();
        let at = |packets, capacity| [Rate { capacity, ..rate(1, packets) }];
        assert!(policy.window(&config, &at(4_000, 10_000), &[]).is_empty());
        // Nobody knows what an idle worker can do.
        assert!(policy.window(&config, &at(6_000, 0), &[]).is_empty());
        assert!(policy.window(&config, &at(6_000, 10_000), &[]).is_empty());
        let steps = policy.window(&config, &at(6_000, 10_000), &[]);
        assert_eq!(steps, [Step::Spread(flow(1))]);
        policy.tried(flow(1), true);
        for _ in 0..10 {
            assert!(policy.window(&config, &at(6_000, 90_000), &[flow(1)]).is_empty());
        }
        for _ in 0..2 {
            assert!(policy.window(&config, &at(2_000, 90_000), &[flow(1)]).is_empty());
        }
        let steps = policy.window(&config, &at(2_000, 90_000), &[flow(1)]);
        assert_eq!(steps, [Step::GatherIn(flow(1))]);
    }

    #[test]
    fn bits_suffice() {
        let config = Elephants { packets_per_s: 0, bits_per_s: 800_000, ..CONFIG };
        let mut policy = Policy::default();
        policy.window(&config, &[rate(1, 1001), rate(2, 999)], &[]);
        let steps = policy.window(&config, &[rate(1, 1001), rate(2, 999)], &[]);
        assert_eq!(steps, [Step::Spread(flow(1))]);
    }
}
