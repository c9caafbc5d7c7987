//! What spreading a flow gained: its rate, and how busy its owner was, just before it began. They
//! are shown beside those of now.
//!
//! Both are from the same estimate, so that they compare; there are no more of them than flows that
//! are spread.

use super::policy::{Flow, Rate};
use sluice_api::model::FlowLoad;

/// What each flow that is spread came to before.
#[derive(Debug, Default)]
pub struct Gains(Vec<(Flow, FlowLoad)>);

impl Gains {
    /// A flow is spread from now on; `before` is what it came to, if anybody knows.
    pub fn begin(&mut self, flow: Flow, before: Option<FlowLoad>) {
        self.0.retain(|(known, _)| *known != flow);
        self.0.extend(before.map(|before| (flow, before)));
    }

    /// Forgets all but these, which are spread.
    pub fn keep(&mut self, spread: &[Flow]) {
        self.0.retain(|(known, _)| spread.contains(known));
    }

    /// What a flow came to before it was spread.
    pub fn before(&self, flow: Flow) -> Option<FlowLoad> {
        self.0.iter().find(|(known, _)| *known == flow).map(|(_, before)| *before)
    }
}

/// What a flow comes to, with an owner that is so busy. `None` if nothing was seen of it.
pub fn load(rates: &[Rate], flow: Flow, owner_busy_share: f64) -> Option<FlowLoad> {
    let rate = rates.iter().find(|rate| rate.flow == flow && rate.packets_per_s > 0)?;
    let (packets_per_s, bytes_per_s) = (rate.packets_per_s, rate.bits_per_s / 8);
    Some(FlowLoad { packets_per_s, bytes_per_s, owner_busy_share })
}

#[cfg(test)]
mod tests {
    use super::super::policy::tests::{CONFIG, flow, rate};
    use super::super::policy::{Policy, Step};
    use super::*;

    /// Second by second: what was before stays while the flow is spread, and is another one the
    /// next time.
    #[test]
    fn what_was_before_is_that_of_the_second_before() {
        let (mut policy, mut gains, mut spread) = (Policy::default(), Gains::default(), Vec::new());
        let mut shown = Vec::new();
        let seconds = [1500, 1600, 3200, 3000, 400, 300, 200, 100, 2000, 2100, 4000];
        for (second, packets) in seconds.into_iter().enumerate() {
            let (rates, busy) = ([rate(1, packets), rate(2, 5)], second as f64 / 100.0);
            for step in policy.window(&CONFIG, &rates, &spread) {
                match step {
                    Step::Spread(flow) => {
                        gains.begin(flow, load(&rates, flow, busy));
                        policy.tried(flow, true);
                        spread.push(flow);
                    }
                    Step::GatherIn(_) => spread.clear(),
                }
            }
            gains.keep(&spread);
            let before = gains.before(flow(1));
            shown.push(before.map_or((0, 0, 0), |it| {
                let percent = (it.owner_busy_share * 100.0).round() as u64;
                (it.packets_per_s, it.bytes_per_s, percent)
            }));
        }
        let (first, second, none) = ((1600, 160_000, 1), (2100, 210_000, 9), (0, 0, 0));
        let expected = [none, first, first, first, first, first, none, none, none, second, second];
        assert_eq!(shown, expected);
    }

    #[test]
    fn nobody_knows_what_was_not_seen() {
        let rates = [rate(1, 0), rate(2, 10)];
        assert_eq!(load(&rates, flow(1), 0.5), None);
        assert_eq!(load(&rates, flow(3), 0.5), None);
        let mut gains = Gains::default();
        gains.begin(flow(2), load(&rates, flow(2), 0.5));
        gains.begin(flow(2), None);
        assert_eq!(gains.before(flow(2)), None);
    }
}
