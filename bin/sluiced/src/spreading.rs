//! Flows that several workers process, as an operator has them: pinned, unpinned, shown, and told
//! of in the events.

mod capacity;
mod gains;
mod policy;
mod redirects;

use crate::crew::Crew;
use crate::daemon::Daemon;
use crate::lister::network_id;
use crate::ports::Ports;
use crate::rules::Redirected;
use capacity::Capacities;
use gains::Gains;
use policy::{Flow, Policy, Rate, Step};
use redirects::{Hands, Redirects, Wish};
use sluice_api::model::{
    Event, EventKind, FlowDirection, FlowLoad, FlowPin, Protocol, Redirect, SpreadFlow, SpreadFlows,
};
use sluice_director::counters::Direction;
use sluice_director::path::Elephant;
use sluice_director::path::FlowName;
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;
use sluice_rules::Rule;
use sluice_state::Author;
use sluice_worker::Report;
use sluice_worker::spread::{Ended, FenceOrder, Refused, SpreadOrder, Spreading};
use std::net::SocketAddr;
use std::time::Duration;
use tracing::info;

/// Flows that the policy looks at.
const LOOKED_AT: usize = 64;
/// How long after a rule was made a NIC may still put packets into a queue that it chose before.
const SORTED: Duration = Duration::from_micros(200);

/// What is remembered from second to second.
#[derive(Default)]
pub(crate) struct State {
    policy: Policy,
    redirects: Redirects,
    capacities: Capacities,
    gains: Gains,
}

/// Ports and workers, as redirecting flows needs them.
struct Machine<'a> {
    ports: &'a mut Ports,
    crew: &'a Crew,
}

impl Hands for Machine<'_> {
    fn has_table(&self, network: NetworkId) -> bool {
        self.ports.has_flow_rules(network)
    }
    fn want(&mut self, network: NetworkId, rule: &Rule, wanted: bool) {
        self.ports.redirect(network, rule, wanted);
    }
    fn work(&mut self) {
        self.ports.work_on_rules();
    }
    fn is_settled(&self, network: NetworkId, rule: &Rule, wanted: bool) -> bool {
        self.ports.is_settled(network, rule, wanted)
    }
    fn redirected(&self, network: NetworkId, rule: &Rule) -> Redirected {
        self.ports.redirected(network, rule)
    }
    fn fence(&mut self, owner: u16, order: &FenceOrder) -> bool {
        self.crew.fence(owner, *order)
    }
    fn ask_for_marks(&mut self, owner: u16, order: &FenceOrder) {
        std::thread::sleep(SORTED);
        self.crew.ask_for_marks(owner, order);
    }
    fn take_down(&mut self, owner: u16, fence: u32) {
        self.crew.take_down(owner, fence);
    }
}

impl Daemon {
    /// Has a flow spread, or spread no more; gives those that are.
    pub fn pin(&mut self, flow: &FlowPin, pinned: bool, by: Author) -> Result<SpreadFlows, String> {
        let plan = &self.dataplane.plan;
        let name = flow_name(flow)?;
        let network = match &flow.network {
            Some(name) => network_id(plan, name).ok_or(format!("there is no network {name:?}"))?,
            None => NetworkId::DEFAULT,
        };
        if pinned && self.configured.config.elephants.mode == sluice_config::Spreading::Off {
            return Err("mode = \"off\" of [elephants] forbids it".to_owned());
        }
        if pinned {
            let workers = flow.workers.unwrap_or(0);
            if workers == 1 {
                return Err("one worker is the same as none: give 2 or more".to_owned());
            }
            let order = SpreadOrder { network, flow: name, workers, pinned };
            let worker = self.spread(order).map_err(|why| why.text().to_owned())?;
            self.tell_spreading(format!("{} is spread by worker {worker}", told(&name)), Some(by));
        } else if !self.dataplane.crew.gather_in(network, name) {
            return Err("it is not spread".to_owned());
        }
        Ok(SpreadFlows { spread: self.spread_flows() })
    }

    /// Has a flow spread that an operator wants to be, and notes what it came to before.
    fn spread(&mut self, order: SpreadOrder) -> Result<u16, Refused> {
        let flow = (order.network, order.flow);
        let spread = self.dataplane.crew.spreading();
        let known = spread.iter().any(|(_, spread)| (spread.network, spread.flow) == flow);
        let rates = self.rates(usize::MAX);
        let worker = self.dataplane.crew.spread(order)?;
        // The policy may have spread it long ago.
        if !known {
            let State { gains, capacities, .. } = &mut self.operator.spreading;
            gains.begin(flow, gains::load(&rates, flow, capacities.busy_share(worker)));
        }
        Ok(worker)
    }

    /// The flows that are spread.
    pub fn spread_flows(&self) -> Vec<SpreadFlow> {
        let (data, state) = (&self.dataplane, &self.operator.spreading);
        let spread = data.crew.spreading();
        let rates = if spread.is_empty() { Vec::new() } else { self.rates(usize::MAX) };
        let shown = |(worker, flow): (u16, Spreading)| {
            let (named, busy) = ((flow.network, flow.flow), state.capacities.busy_share(worker));
            let loads = (state.gains.before(named), gains::load(&rates, named, busy));
            let wish = Wish::of(worker, &flow);
            let redirected = data.ports.redirected(flow.network, &wish.rule());
            let redirected = match redirected {
                Redirected::No(why) => Redirected::No(self.why_not(&flow, &wish).unwrap_or(why)),
                known => known,
            };
            shown((&data.plan, worker), flow, redirected, loads)
        };
        spread.into_iter().map(shown).collect()
    }

    /// Has NICs bring flows that are spread to the queues of their owners, so that they need no
    /// handoff, and no others. Without `any` nobody is to be asked.
    pub fn redirect(&mut self, any: bool) {
        let spread = if any { self.dataplane.crew.spreading() } else { Vec::new() };
        let named: Vec<Flow> = spread.iter().map(|(_, it)| (it.network, it.flow)).collect();
        self.operator.spreading.gains.keep(&named);
        let spread = spread.iter().filter(|(_, flow)| !flow.goes_round);
        let wanted = spread.map(|(worker, flow)| Wish::of(*worker, flow)).collect();
        let data = &mut self.dataplane;
        let mut machine = Machine { ports: &mut data.ports, crew: &data.crew };
        self.operator.spreading.redirects.want(wanted, &mut machine);
    }

    /// Goes on with that. Costs nothing where nothing is to be done.
    pub fn go_on_redirecting(&mut self) {
        let data = &mut self.dataplane;
        let mut machine = Machine { ports: &mut data.ports, crew: &data.crew };
        self.operator.spreading.redirects.go_on(&mut machine);
    }

    /// Why no NIC is asked to bring a flow to its owner.
    fn why_not(&self, flow: &Spreading, wish: &Wish) -> Option<String> {
        let round = "its packets go through several workers: order could not be kept";
        let goes_round = flow.goes_round.then(|| round.to_owned());
        goes_round.or_else(|| self.operator.spreading.redirects.why_not(wish))
    }

    /// Spreads and gathers in flows as the policy says; once a second.
    pub fn spread_elephants(&mut self, reports: &[Report]) {
        use sluice_config::Spreading;
        self.operator.spreading.capacities.window(reports);
        let elephants = self.configured.config.elephants;
        if elephants.mode != Spreading::Spread {
            return self.gather_in_all(elephants.mode == Spreading::Off);
        }
        let crew = &self.dataplane.crew;
        let spread: Vec<Flow> = unpinned(crew.spreading()).collect();
        let rates = self.rates(LOOKED_AT);
        for step in self.operator.spreading.policy.window(&elephants, &rates, &spread) {
            match step {
                Step::Spread(flow) => self.spread_by_policy(elephants.workers, flow, &rates),
                Step::GatherIn((network, name)) => {
                    self.dataplane.crew.gather_in(network, name);
                }
            }
        }
    }

    fn spread_by_policy(&mut self, workers: u16, flow: Flow, rates: &[Rate]) {
        let (network, name) = flow;
        let order = SpreadOrder { network, flow: name, workers, pinned: false };
        let answer = self.dataplane.crew.spread(order);
        match answer {
            Ok(worker) => {
                let State { gains, capacities, .. } = &mut self.operator.spreading;
                gains.begin(flow, gains::load(rates, flow, capacities.busy_share(worker)));
                self.tell_spreading(format!("{} is spread by worker {worker}", told(&name)), None);
            }
            Err(why) if self.operator.spreading.policy.is_new(flow) => {
                info!("{} is not spread: {}", told(&name), why.text());
            }
            Err(_) => {}
        }
        self.operator.spreading.policy.tried(flow, answer.is_ok());
    }

    /// Gathers in what the policy has spread, and what an operator has, too.
    fn gather_in_all(&mut self, pinned: bool) {
        // As a rule nothing is: then nobody is to be asked.
        if self.operator.spreading.policy.is_idle() && !pinned {
            return;
        }
        for (_, flow) in self.dataplane.crew.spreading() {
            if pinned || !flow.pinned {
                self.dataplane.crew.gather_in(flow.network, flow.flow);
            }
        }
        self.operator.spreading.policy = Policy::default();
    }

    /// Rates of the largest flows, at most so many sessions of each worker, either direction by
    /// itself, the largest first.
    fn rates(&self, limit: usize) -> Vec<Rate> {
        let plan = &self.dataplane.plan;
        let found = self.dataplane.crew.elephants(limit);
        let each = |(worker, elephant): &(u16, Elephant)| {
            let capacity = self.operator.spreading.capacities.of(*worker);
            let session = &elephant.session;
            let service = plan.service(session.service);
            let network = service.map_or(NetworkId::DEFAULT, |service| service.network);
            let (protocol, packets) = (session.protocol, elephant.packets_per_s);
            let (bytes, client, virtual_) =
                (elephant.bytes_per_s, session.client, session.virtual_);
            [Direction::Inbound, Direction::Outbound].map(|direction| {
                let flow = FlowName { protocol, client, virtual_, direction };
                let at = direction as usize;
                let (packets_per_s, bits_per_s) = (packets[at], bytes[at].saturating_mul(8));
                Rate { flow: (network, flow), packets_per_s, bits_per_s, capacity }
            })
        };
        let mut rates: Vec<Rate> = found.iter().flat_map(each).collect();
        rates.sort_by_key(|rate| std::cmp::Reverse(rate.packets_per_s));
        rates
    }

    /// A worker spreads a flow no more.
    pub fn spread_ended(&self, _network: NetworkId, flow: &FlowName, why: Ended) {
        self.tell_spreading(format!("{} is not spread any more: {}", told(flow), why.text()), None);
    }

    fn tell_spreading(&self, text: String, by: Option<Author>) {
        info!("{text}");
        let event = Event { author: by, ..Event::new(EventKind::Elephants, text) };
        self.operator.server.note_all([event]);
    }
}

/// Those that the policy has spread.
fn unpinned(all: Vec<(u16, Spreading)>) -> impl Iterator<Item = Flow> {
    all.into_iter().filter(|(_, flow)| !flow.pinned).map(|(_, flow)| (flow.network, flow.flow))
}

/// A flow as a line of the log names it.
fn told(flow: &FlowName) -> String {
    let (client, vip) = (SocketAddr::from(flow.client), SocketAddr::from(flow.virtual_));
    let (from, to) = match flow.direction {
        Direction::Inbound => (client, vip),
        Direction::Outbound => (vip, client),
    };
    format!("the flow {} {from} > {to}", Protocol::of(flow.protocol).name())
}

/// The flow that an operator means.
fn flow_name(flow: &FlowPin) -> Result<FlowName, String> {
    let protocol = match flow.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        _ => return Err("only TCP and UDP flows are spread".to_owned()),
    };
    let direction = match flow.direction {
        FlowDirection::Inbound => Direction::Inbound,
        FlowDirection::Outbound => Direction::Outbound,
    };
    let ends = |address: SocketAddr| (address.ip(), address.port());
    let (client, virtual_) = (ends(flow.client), ends(flow.virtual_));
    Ok(FlowName { protocol, client, virtual_, direction })
}

fn shown(
    (plan, worker): (&Plan, u16),
    flow: Spreading,
    redirected: Redirected,
    (before, now): (Option<FlowLoad>, Option<FlowLoad>),
) -> SpreadFlow {
    let (redirect, redirect_reason) = match redirected {
        Redirected::Yes => (Redirect::Hardware, None),
        Redirected::No(why) => (Redirect::Software, Some(why)),
        Redirected::Never(why) => (Redirect::Software, Some(why.to_owned())),
    };
    SpreadFlow {
        redirect,
        redirect_reason,
        protocol: Protocol::of(flow.flow.protocol),
        client: flow.flow.client.into(),
        virtual_: flow.flow.virtual_.into(),
        direction: match flow.flow.direction {
            Direction::Inbound => FlowDirection::Inbound,
            Direction::Outbound => FlowDirection::Outbound,
        },
        network: plan.network_name(flow.network).map(str::to_owned),
        worker,
        helpers: flow.helpers,
        pinned: flow.pinned,
        for_s: flow.age_ms as f64 / 1000.0,
        dealt: flow.dealt,
        own: flow.own,
        kept: flow.kept,
        late: flow.late,
        before,
        now,
    }
}
