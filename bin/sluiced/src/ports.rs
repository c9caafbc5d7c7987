//! Ports over their life: opened, steered, lost with their interface, opened again, handed over.

mod handover;

use crate::crew::Crew;
use crate::errors::Error;
use crate::guard::{Guard, Part};
use crate::queues::PortQueue;
use crate::rules::{PortRules, Redirected};
use crate::steering::{Ground, TunnelPort};
use crate::{networks, rules, tunnels, wiring};
use handover::Coming;
pub use handover::{Given, LeftBehind, Wanted};
use sluice_config::Config;
use sluice_director::counters::Counters;
use sluice_director::fib::PortId;
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;
use sluice_dpdk::{Device, Eal, Port, PortConfig, PortState, QueuePair};
use sluice_linux::{Kernel, Mirror};
use sluice_rules::{Rule, rules_of};
use sluice_steer::{Matches, Steer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How long the control loop works on rules of NICs in a turn, which there are ten of in a second.
const RULES_TIME: Duration = Duration::from_millis(20);

/// A configured port and what is open of it.
pub struct PortSlot {
    /// Its configuration.
    pub config: sluice_config::Port,
    /// Its network.
    pub network: NetworkId,
    /// What is open, if anything.
    pub open: Option<Open>,
    /// What another process has open and this one is to go on with.
    coming: Option<Coming>,
    /// Its twin while the port itself is not open: so the addresses remain.
    twin: Option<Port>,
}

/// An open port.
pub struct Open {
    /// The port.
    pub port: Port,
    /// Its TAP twin.
    pub twin: Option<Port>,
    /// Its steering program.
    pub steer: Option<Steer>,
    /// What is taken from it, rule by rule.
    pub rules: PortRules,
}

impl PortSlot {
    /// One that is not open.
    pub const fn new(config: sluice_config::Port, network: NetworkId) -> Self {
        Self { config, network, open: None, coming: None, twin: None }
    }

    /// Whether it is a tunnel, whose frames leave and arrive by other ports.
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.config.device, sluice_config::Device::Vxlan { .. })
    }
}

/// All ports, by their id.
pub struct Ports {
    /// The slots.
    pub slots: Vec<PortSlot>,
    eal: Eal,
    workers: u16,
    /// What the steering programs follow, once they all do.
    ground: Option<Ground>,
    guard: Option<Guard>,
}

impl Ports {
    /// Opens every configured port and hands its queues to the workers; any failure is final.
    pub fn open_all(&mut self, kernel: &Kernel, crew: &Crew) -> Result<(), Error> {
        for at in 0..self.slots.len() {
            self.open_one(at, kernel, crew)?;
        }
        Ok(())
    }

    /// Every configured port, none of them open.
    pub fn new(config: &Config, eal: &Eal, crew: &Crew) -> Self {
        let slot = |(port, network): (&sluice_config::Port, NetworkId)| {
            PortSlot::new(port.clone(), network)
        };
        let networks = networks::of_ports(config);
        let slots = config.ports.iter().zip(networks).map(slot).collect();
        let workers = crew.size() as u16;
        let guard = Guard::start(config);
        Self { slots, eal: eal.clone(), workers, ground: None, guard }
    }

    /// Opens a port. Its steering program takes nothing before [`Self::steer`].
    fn open_one(&mut self, at: usize, kernel: &Kernel, crew: &Crew) -> Result<(), Error> {
        let config = &self.slots[at].config;
        let Some(line) = self.line_config(config, kernel) else { return Ok(()) };
        let (port, queues) = Port::open(&self.eal, &line)?;
        let twin = config.twin.as_ref().map(|name| twin_config(name, &line, &port));
        let (twin, twin_queues) = match twin {
            Some(twin) => {
                let (twin, queues) = self.open_twin(at, &twin)?;
                (Some(twin), queues)
            }
            None => (None, Vec::new()),
        };
        let config = &self.slots[at].config;
        let steer = match (&line.device, port.interface()) {
            (Device::AfXdp { .. }, Some((_, index))) => {
                let port = config.name.clone();
                Some(
                    Steer::for_interface(index)
                        .map_err(|source| Error::Steer { port, source: Box::new(source) })?,
                )
            }
            _ => None,
        };
        let flow_rules = config.flow_rules;
        hand_out(crew, PortId(at as u16), queues, twin_queues);
        // Whatever the device had before: all rules are made again.
        let rules = PortRules::new(&port, steer.is_some(), flow_rules);
        self.slots[at].open = Some(Open { port, twin, steer, rules });
        self.ground = None;
        Ok(())
    }

    /// Opens a port's twin, or takes the one that is there still.
    fn open_twin(
        &mut self,
        at: usize,
        config: &PortConfig,
    ) -> Result<(Port, Vec<QueuePair>), Error> {
        if let Some(twin) = self.slots[at].twin.take() {
            let same = twin.queues() == config.queues
                && (config.mac, config.mtu) == (Some(twin.mac()), Some(twin.mtu()));
            if let Some(queues) = same.then(|| twin.queues_again(&self.eal)).flatten() {
                return Ok((twin, queues));
            }
        }
        Ok(Port::open(&self.eal, config)?)
    }

    /// How a port's device is opened; none for a tunnel.
    fn line_config(&self, config: &sluice_config::Port, kernel: &Kernel) -> Option<PortConfig> {
        Some(PortConfig {
            queues: queues(config, kernel, self.workers),
            mtu: config.mtu,
            mac: config.mac.map(|mac| mac.bytes()),
            ..PortConfig::new(config.name.clone(), wiring::device(&config.device)?)
        })
    }

    /// Makes the steering programs take what is a plan's, on a machine with these addresses.
    /// `counted` tells of sessions of real servers that left it. Costs little while nothing
    /// changes; what failed is tried again by the next call.
    pub fn steer(&mut self, plan: &Arc<Plan>, kernel: &Kernel, counted: &Counters) {
        let ground = Ground::of(plan, kernel, &self.interfaces(), counted);
        let ground = ground.with_tunnels(kernel, &self.tunnels());
        if self.ground.as_ref() == Some(&ground) {
            return;
        }
        let mut by_network = BTreeMap::new();
        for network in self.slots.iter().map(|slot| slot.network).chain([NetworkId::DEFAULT]) {
            let ports = self.slots.iter().zip(0..).filter(|(slot, _)| slot.network == network);
            let ports: BTreeSet<PortId> = ports.map(|(_, id)| PortId(id)).collect();
            by_network.entry(network).or_insert_with(|| {
                let matches = ground.matches(&networks::part(plan, network), &ports);
                (ports, matches)
            });
        }
        if let Some(guard) = &self.guard {
            let parts = by_network.iter().map(|(network, (_, matches))| Part {
                network: *network,
                matches: matches.clone(),
                interfaces: self.guarded(kernel, *network),
            });
            guard.set(parts.collect());
        }
        if let Some((ports, mut matches)) = by_network.remove(&NetworkId::DEFAULT) {
            ground.take_tunnels(&mut matches, &by_network);
            by_network.insert(NetworkId::DEFAULT, (ports, matches));
        }
        let by_rule = self.rules(plan, &by_network);
        let mut all = true;
        for slot in &mut self.slots {
            let Some((_, matches)) = by_network.get(&slot.network) else { continue };
            let Some(Open { steer, rules, .. }) = &mut slot.open else { continue };
            let failure = steer.as_mut().and_then(|steer| steer.set(matches).err());
            if let Some(failure) = &failure {
                error!(port = slot.config.name, %failure, "cannot steer as configured");
                all = false;
            }
            let trouble = failure.map(|failure| failure.to_string());
            rules.follow(&by_rule[&slot.network], trouble);
        }
        self.ground = all.then_some(ground);
    }

    /// The rules of each network's ports.
    fn rules(
        &self,
        plan: &Arc<Plan>,
        by_network: &BTreeMap<NetworkId, (BTreeSet<PortId>, Matches)>,
    ) -> BTreeMap<NetworkId, Vec<Rule>> {
        let of = |(network, (_, matches)): (&NetworkId, &(BTreeSet<PortId>, Matches))| {
            let owners = rules::owners(&networks::part(plan, *network), self.workers);
            let owned = |address| owners.get(&address).cloned().unwrap_or_default();
            (*network, rules_of(matches, network.0, owned))
        };
        by_network.iter().map(of).collect()
    }

    /// Goes on with the rules of NICs for a short while. Costs nothing where none are to be made.
    pub fn work_on_rules(&mut self) {
        let until = Instant::now() + RULES_TIME;
        for Open { port, rules, .. } in self.slots.iter_mut().filter_map(|it| it.open.as_mut()) {
            rules.work(port, until);
        }
    }

    /// Has the NICs of a network bring a flow to the queue of its owner, or not any more.
    pub fn redirect(&mut self, network: NetworkId, flow: &Rule, wanted: bool) {
        let slots = self.slots.iter_mut().filter(|slot| slot.network == network);
        let open = slots.filter_map(|slot| slot.open.as_mut());
        open.for_each(|open| open.rules.redirect(flow, wanted));
    }

    /// Whether they have done so, or refused it.
    pub fn is_settled(&self, network: NetworkId, flow: &Rule, wanted: bool) -> bool {
        self.rules_of(network).all(|rules| rules.is_settled(flow, wanted))
    }

    /// Whether a port of a network has flow rules.
    pub fn has_flow_rules(&self, network: NetworkId) -> bool {
        self.rules_of(network).any(PortRules::is_of_nic)
    }

    fn rules_of(&self, network: NetworkId) -> impl Iterator<Item = &PortRules> {
        let slots = self.slots.iter().filter(move |slot| slot.network == network);
        slots.filter_map(|slot| slot.open.as_ref()).map(|open| &open.rules)
    }

    /// Whether a port of the network brings a flow to its owner's queue.
    pub fn redirected(&self, network: NetworkId, flow: &Rule) -> Redirected {
        let best = self.rules_of(network).map(|rules| rules.redirected(flow)).max();
        best.unwrap_or(Redirected::Never("no port is open"))
    }

    /// The interfaces by which the kernel gets what comes to a network's ports while no director
    /// runs, with their VLANs.
    fn guarded(&self, kernel: &Kernel, network: NetworkId) -> BTreeSet<String> {
        let slots = self.slots.iter().filter(|slot| slot.network == network);
        let names = slots.filter_map(|slot| slot.config.device.interface());
        let links = names.filter_map(|name| kernel.link_by_name(name));
        let with_vlans = links.flat_map(|link| {
            let vlans = kernel.links().filter(|vlan| vlan.parent == Some(link.index));
            std::iter::once(link).chain(vlans)
        });
        with_vlans.map(|link| link.name.clone()).collect()
    }

    /// Sets the twins' links up: their addresses are the operator's business.
    pub fn raise_twins(&self, mirror: &mut Mirror) {
        for Open { twin, .. } in self.slots.iter().filter_map(|slot| slot.open.as_ref()) {
            let Some((name, index)) = twin.as_ref().and_then(Port::interface) else { continue };
            if let Err(failure) = mirror.commands().set_up(index, true) {
                warn!(twin = name, %failure, "cannot set the twin up");
            }
        }
    }

    /// A port that cannot carry frames, if there is one.
    pub fn not_up(&self, kernel: &Kernel) -> Option<&str> {
        let is_up = |slot: &&PortSlot| match slot.config.device.interface() {
            Some(name) if slot.is_tunnel() => tunnels::trouble(kernel, name).is_none(),
            _ => slot.open.as_ref().is_some_and(|open| open.port.state() == PortState::Up),
        };
        self.slots.iter().find(|slot| !is_up(slot)).map(|slot| &*slot.config.name)
    }

    /// The kernel interface of each open port that carries its addresses: the twin or its own.
    pub fn interfaces(&self) -> Vec<(PortId, String)> {
        let of = |(at, slot): (usize, &PortSlot)| {
            let id = PortId(at as u16);
            if slot.is_tunnel() {
                return Some((id, slot.config.device.interface()?.to_owned()));
            }
            if let Some(coming) = &slot.coming {
                return Some((id, coming.interface()?.to_owned()));
            }
            let open = slot.open.as_ref();
            let twin = open.map_or(slot.twin.as_ref(), |open| open.twin.as_ref());
            let (name, _) = twin.or(open.map(|open| &open.port))?.interface()?;
            Some((id, name.to_owned()))
        };
        self.slots.iter().enumerate().filter_map(of).collect()
    }

    /// The ports that are tunnels.
    fn tunnels(&self) -> Vec<TunnelPort> {
        let tunnels = self.slots.iter().zip(0..).filter(|(slot, _)| slot.is_tunnel());
        let of = |(slot, id): (&PortSlot, u16)| {
            Some((PortId(id), slot.network, slot.config.device.interface()?.to_owned()))
        };
        tunnels.filter_map(of).collect()
    }

    /// Closes ports whose interface vanished and opens those whose interface is there again.
    /// Says whether anything changed.
    pub fn look_after(&mut self, kernel: &Kernel, crew: &Crew) -> bool {
        let mut changed = false;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            match &slot.open {
                Some(open) if open.port.state() == PortState::Gone => {
                    warn!(port = slot.config.name, "the interface vanished: the port is closed");
                    changed |= close(slot, at, crew);
                }
                Some(_) => {}
                None if slot.is_tunnel() => {}
                None => {
                    // What has no interface can be opened at any time.
                    let interface = slot.config.device.interface();
                    if interface.is_some_and(|name| kernel.link_by_name(name).is_none()) {
                        continue;
                    }
                    match self.open_one(at, kernel, crew) {
                        Ok(()) => changed = true,
                        // It may vanish again at any moment; the next look tries again.
                        Err(failure) => {
                            warn!(port = self.slots[at].config.name, %failure,
                                "cannot open the port again yet");
                        }
                    }
                }
            }
        }
        changed
    }

    /// Closes every port, after the workers have ended. What comes from now on is held for as long
    /// as the configuration says.
    pub fn close_all(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.end();
        }
        for slot in &mut self.slots {
            let Some(Open { port, twin, steer, .. }) = slot.open.take() else { continue };
            drop(steer);
            for port in [Some(port), twin].into_iter().flatten() {
                if port.close().is_err() {
                    warn!(port = slot.config.name, "a queue is still held; the port stays open");
                }
            }
        }
    }
}

/// How many queues a port is opened with. By AF_XDP it must be all that the interface receives by:
/// frames of a queue without a socket would go to the kernel.
pub fn queues(config: &sluice_config::Port, kernel: &Kernel, workers: u16) -> u16 {
    let link = config.device.interface().and_then(|name| kernel.link_by_name(name));
    let of_device = match (&config.device, link) {
        (sluice_config::Device::AfXdp { .. }, Some(link)) => {
            u16::try_from(sluice_linux::rx_queue_count(link).unwrap_or(1)).unwrap_or(u16::MAX)
        }
        _ => workers,
    };
    config.queues.unwrap_or(of_device)
}

fn twin_config(name: &str, line: &PortConfig, port: &Port) -> PortConfig {
    PortConfig {
        queues: line.queues,
        mac: Some(port.mac()),
        mtu: Some(port.mtu()),
        unfinished: matches!(line.device, Device::AfPacket { .. }),
        ..PortConfig::new(format!("{} twin", line.name), Device::Tap { name: name.to_owned() })
    }
}

/// Queues go round the workers, so that worker 0 has one of every port: workers without one send
/// by it.
fn hand_out(crew: &Crew, port: PortId, queues: Vec<QueuePair>, twins: Vec<QueuePair>) {
    for (worker, line, twin) in dealt(crew, queues, twins) {
        crew.attach(worker, port, line, twin);
    }
}

/// The worker of each queue.
fn dealt(
    crew: &Crew,
    queues: Vec<QueuePair>,
    twins: Vec<QueuePair>,
) -> impl Iterator<Item = (usize, PortQueue, Option<PortQueue>)> {
    let (size, mut twins) = (crew.size().max(1), twins.into_iter());
    let queues = queues.into_iter().enumerate();
    queues.map(move |(at, line)| (at % size, PortQueue(line), twins.next().map(PortQueue)))
}

fn close(slot: &mut PortSlot, at: usize, crew: &Crew) -> bool {
    if !crew.detach(PortId(at as u16)) {
        return false;
    }
    let Some(Open { port, twin, steer, .. }) = slot.open.take() else { return false };
    drop(steer);
    for port in [Some(port), twin].into_iter().flatten() {
        if let Err(port) = port.close() {
            error!(port = port.name(), "a queue is still held; the port cannot be closed");
        }
    }
    info!(port = slot.config.name, "closed; it is opened again when the interface is back");
    true
}
