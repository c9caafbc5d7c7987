//! What actions do.

use super::{Event, Sim};
use crate::actions::{Act, Action};
use crate::check::Violation;
use crate::wire::Tuple;

/// Of the busiest sessions one of so many is spread.
const BUSIEST: usize = 6;

impl Sim {
    /// An action begins, if it is not left out.
    pub(super) fn start(&mut self, action: &Action) -> Result<(), Violation> {
        self.outcome.actions = action.number;
        if !self.recipe.allows(action.number) {
            return Ok(());
        }
        self.trace.action(self.now, action);
        if let (Some(opposite), Some(until)) =
            (action.act.opposite(&self.universe), action.until_ms)
        {
            self.wheel.put(until, Event::Undo(Box::new(opposite)));
        }
        self.act(action.act)
    }

    pub(super) fn act(&mut self, act: Act) -> Result<(), Violation> {
        let status = &mut self.status;
        match act {
            Act::Flow { node, tuple, token } => {
                self.peers.start(self.now, node, tuple, token);
                return Ok(());
            }
            Act::Misdirected { node, packet } => {
                self.send(node, &packet);
                return Ok(());
            }
            Act::Silence(node, on) => {
                self.silent[node] = on;
                return Ok(());
            }
            Act::Spread { flow, pick, outbound, workers } => {
                self.spread((flow, pick), outbound, workers);
                return Ok(());
            }
            Act::GatherIn { worker, pick } => {
                self.machine.gather_in(worker, pick);
                return Ok(());
            }
            Act::Service(service, on) => status.services[service].set(on),
            Act::Real(service, real, on) => status.services[service].reals[real].present = on,
            Act::Weight(service, real, weight) => {
                status.services[service].reals[real].weight = weight;
            }
            Act::Down(service, real, on) => status.services[service].reals[real].down = on,
            Act::Local(pool, address, on) => status.locals[pool][address] = on,
            Act::Neighbour(node, on) => status.known[node] = on,
            Act::Mac(node) => status.macs[node] = status.macs[node].wrapping_add(1),
            Act::Route(route, on) => status.routes[route] = on,
        }
        self.changed = true;
        Ok(())
    }

    /// Spreads a direction of a session, or one of the busiest.
    fn spread(&mut self, (flow, pick): (Option<Tuple>, u32), outbound: bool, workers: u16) {
        let busiest = self.checker.busiest(&self.universe, self.now);
        let found = match flow {
            Some(flow) => busiest.iter().find(|(_, tuple)| *tuple == flow),
            None => busiest.get(pick as usize % busiest.len().clamp(1, BUSIEST)),
        };
        let Some((worker, tuple)) = found.copied() else { return };
        let begun = self.machine.spread(self.now, worker, (tuple, outbound, workers));
        self.trace.note(self.now, || format!("worker {worker}: spreads {tuple}: {begun:?}"));
    }
}
