//! The isolated networks of a worker: each has a packet path, tables and waiting frames of its
//! own, and nothing in common with another but the worker's time.
//!
//! A worker is at one network at a time ([`Worker::enter`]): the one that the port at hand belongs
//! to. Everything that it does with a frame uses that network's path, plan and routes, and these
//! name no port of another network. So a frame cannot get from one network to another, whatever is
//! in it. Between turns the worker is at the default network.
//!
//! Why a path for each and not a table for all: the vector path needs no field and no instruction
//! for networks, a network's flood fills its own table only, and where there is no network there is
//! next to no cost.

use super::{LISTED_SLOTS, Worker, WorkerConfig};
use crate::held::HeldFrames;
use crate::mailbox::NetworkReport;
use crate::queue::Queue;
use sluice_director::fib::{Fib, PortId};
use sluice_director::path::{
    Batch, Elephant, Imported, Imports, Parking, Path, PathConfig, RegionError, Restored,
    SessionFilter, SessionInfo,
};
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;
use sluice_director::vxlan::Tunnels;
use sluice_director::{Reason, Time};
use std::sync::Arc;

/// What is published to the workers of one network.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The compiled configuration: [`Plan::of_network`].
    pub plan: Arc<Plan>,
    /// Routes and neighbours.
    pub fib: Arc<Fib>,
}

/// What is published to the workers as a whole.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The default network.
    pub default: Snapshot,
    /// The isolated networks, from number 1 on.
    pub isolated: Vec<Snapshot>,
    /// Virtual ports, and the tunnels behind them.
    pub tunnels: Arc<Tunnels>,
}

impl From<Snapshot> for Published {
    fn from(default: Snapshot) -> Self {
        Self { default, ..Self::default() }
    }
}

/// The isolated networks that a worker is made with.
#[derive(Clone, Debug, Default)]
pub struct NetworksConfig {
    /// Capacity of the session table of each, from number 1 on.
    pub sessions: Vec<u32>,
    /// Whether the default network's ports reach the kernel by twins.
    pub twins: bool,
    /// The network of each port; ports beyond the end belong to the default one.
    pub of_port: Vec<NetworkId>,
}

/// A network as a worker has it.
pub(crate) struct Net<F> {
    pub id: NetworkId,
    pub path: Path,
    pub snapshot: Snapshot,
    pub held: HeldFrames<F>,
    pub parking: Parking<F>,
}

/// The default network, and all by their numbers, without that one.
type Nets<F> = (Box<Net<F>>, Vec<Option<Box<Net<F>>>>);

/// Makes a worker's networks.
///
/// # Panics
/// When a port belongs to a network that is not there: its frames must not get into another.
pub(super) fn make<F: sluice_director::Frame>(
    config: &mut WorkerConfig,
    published: &Published,
) -> Result<Nets<F>, RegionError> {
    let mut files = std::mem::take(&mut config.files).into_iter();
    let config = &*config;
    let net = |id: NetworkId, path: PathConfig, files, snapshot: &Snapshot| {
        let mut path = Path::in_files(&path, files)?;
        path.begin_ports_at(config.ports_from);
        path.adopt(&snapshot.plan);
        let (snapshot, held) = (snapshot.clone(), HeldFrames::new(config.held_frames));
        Ok(Box::new(Net { id, path, snapshot, held, parking: Parking::new() }))
    };
    let default = net(NetworkId::DEFAULT, config.path, files.next(), &published.default)?;
    let mut resting = vec![None];
    for (at, sessions) in config.networks.sessions.iter().enumerate() {
        let sessions = (*sessions).max(1);
        let fragments = config.path.fragments.min(sessions);
        let path = PathConfig { sessions, fragments, ..config.path };
        let snapshot = published.isolated.get(at).cloned().unwrap_or_default();
        let id = NetworkId(at as u16 + 1);
        resting.push(Some(net(id, path, files.next(), &snapshot)?));
    }
    let is_there = |id: &NetworkId| usize::from(id.0) < resting.len();
    assert!(config.networks.of_port.iter().all(is_there), "a port of no network");
    Ok((default, resting))
}

/// A network's number and a slot of its table, as one place in a worker's sessions.
const fn place(network: NetworkId, slot: u32) -> u64 {
    (network.0 as u64) << 32 | slot as u64
}

/// The network and the slot that a filter's sessions begin at, from a place on; `None` where there
/// are none behind it.
fn begin(filter: &SessionFilter, from: u64) -> Option<(NetworkId, u32)> {
    let (network, slot) = (NetworkId((from >> 32) as u16), from as u32);
    match filter.network {
        Some(only) if network.0 < only.0 => Some((only, 0)),
        Some(only) if network.0 > only.0 => None,
        _ => Some((network, slot)),
    }
}

impl<Q: Queue> Worker<Q> {
    /// Goes to the network of a port.
    #[inline(always)]
    pub(super) fn enter(&mut self, port: PortId) {
        let network = self.of_port.get(usize::from(port.0)).copied().unwrap_or_default();
        if network != self.net.id {
            self.go_to(network);
        }
    }

    /// Goes back to the default network.
    #[inline(always)]
    pub(super) fn leave(&mut self) {
        if self.net.id != NetworkId::DEFAULT {
            self.go_to(NetworkId::DEFAULT);
        }
    }

    /// Goes to a network.
    pub(super) fn enter_network(&mut self, network: NetworkId) {
        if network != self.net.id {
            self.go_to(network);
        }
    }

    #[inline(never)]
    fn go_to(&mut self, network: NetworkId) {
        let Some(next) = self.resting.get_mut(usize::from(network.0)).and_then(Option::take) else {
            debug_assert!(false, "a port of no network");
            return;
        };
        let left = std::mem::replace(&mut self.net, next);
        let place = usize::from(left.id.0);
        self.resting[place] = Some(left);
    }

    /// Does something in each network, the default one first.
    #[inline(always)]
    pub(crate) fn in_each(&mut self, mut what: impl FnMut(&mut Self)) {
        what(self);
        if self.resting.len() > 1 {
            self.in_each_isolated(&mut what);
        }
    }

    fn in_each_isolated(&mut self, what: &mut impl FnMut(&mut Self)) {
        for number in 1..self.resting.len() {
            self.go_to(NetworkId(number as u16));
            what(self);
        }
        self.leave();
    }

    /// How many networks there are, with the default one.
    pub(crate) const fn network_count(&self) -> usize {
        self.resting.len()
    }

    pub(crate) fn nets(&self) -> impl Iterator<Item = &Net<Q::Frame>> {
        std::iter::once(&*self.net).chain(self.resting.iter().flatten().map(|net| &**net))
    }

    pub(crate) fn net_mut(&mut self, network: NetworkId) -> Option<&mut Net<Q::Frame>> {
        if network == self.net.id {
            return Some(&mut self.net);
        }
        self.resting.get_mut(usize::from(network.0))?.as_deref_mut()
    }

    /// Its packet path in a network, if it has that.
    pub fn path_of(&self, network: NetworkId) -> Option<&Path> {
        self.nets().find(|net| net.id == network).map(|net| &net.path)
    }

    /// Runs with these snapshots from now on, and sends what had waited for them.
    pub fn publish(&mut self, published: &Published) {
        self.spreads.renew();
        self.tunnels = Arc::clone(&published.tunnels);
        let mut isolated = published.isolated.iter();
        self.in_each(|worker| {
            let snapshot = match worker.net.id {
                NetworkId::DEFAULT => Some(&published.default),
                _ => isolated.next(),
            };
            let Some(snapshot) = snapshot else { return };
            worker.net.path.adopt(&snapshot.plan);
            worker.net.snapshot = snapshot.clone();
            worker.release_held();
        });
    }

    /// Ends some of the sessions that have timed out, in each network.
    pub(super) fn sweep_all(&mut self, now: Time) {
        let Net { path, snapshot, .. } = &mut *self.net;
        path.sweep(&snapshot.plan, now);
        for net in self.resting.iter_mut().flatten() {
            net.path.sweep(&net.snapshot.plan, now);
        }
    }

    /// Drops fragments whose first did not come.
    pub(super) fn drop_parked(&mut self) {
        self.in_each(|worker| {
            let parked = worker.net.parking.clear(None);
            worker.count(parked, Reason::FragmentOrphan);
        });
    }

    /// Sessions from a place on, and where to go on.
    pub(super) fn list(
        &mut self,
        now: Time,
        filter: &SessionFilter,
        from: u64,
    ) -> (Vec<SessionInfo>, Option<u64>) {
        let mut found = Vec::new();
        let Some((network, slot)) = begin(filter, from) else { return (found, None) };
        let Some(net) = self.net_mut(network) else { return (found, None) };
        let part = (slot, LISTED_SLOTS);
        let next = net.path.list(&net.snapshot.plan, now, filter, part, &mut found);
        found.iter_mut().for_each(|info| info.slot |= place(network, 0));
        (found, self.place_after(filter, network, next))
    }

    /// Ends sessions from a place on; how many, and where to go on.
    pub(super) fn kill(
        &mut self,
        now: Time,
        filter: &SessionFilter,
        from: u64,
    ) -> (u32, Option<u64>) {
        let Some((network, slot)) = begin(filter, from) else { return (0, None) };
        let Some(net) = self.net_mut(network) else { return (0, None) };
        let part = (slot, LISTED_SLOTS);
        let (ended, next) = net.path.kill(&net.snapshot.plan, now, filter, part);
        (ended, self.place_after(filter, network, next))
    }

    fn place_after(
        &self,
        filter: &SessionFilter,
        network: NetworkId,
        slot: Option<u32>,
    ) -> Option<u64> {
        let following = NetworkId(network.0.saturating_add(1));
        let more = filter.network.is_none() && usize::from(following.0) < self.resting.len();
        slot.map(|slot| place(network, slot)).or_else(|| more.then(|| place(following, 0)))
    }

    /// Takes up sessions of a director that ran before. In a network that is not there, none.
    pub fn restore(
        &mut self,
        now: Time,
        network: NetworkId,
        (batch, scattered): (&Batch, bool),
    ) -> Restored {
        let restored = self
            .net_mut(network)
            .map(|Net { path, snapshot, .. }| path.restore(&snapshot.plan, now, batch, scattered));
        restored.unwrap_or_default()
    }

    /// Takes up sessions that another director has told.
    pub(super) fn import(&mut self, now: Time, network: NetworkId, batch: &Imports) -> Imported {
        let imported = self
            .net_mut(network)
            .map(|Net { path, snapshot, .. }| path.import(&snapshot.plan, now, batch));
        let unknown = batch.len() as u64;
        imported.unwrap_or(Imported { unknown, ..Imported::default() })
    }

    /// The sessions with the most traffic of all networks, at most `limit` of each.
    pub(super) fn elephants(&mut self, now: Time, limit: usize) -> Vec<Elephant> {
        let mut all = Vec::new();
        self.in_each(|worker| {
            let Net { path, snapshot, .. } = &mut *worker.net;
            all.extend(path.elephants(&snapshot.plan, now, limit));
        });
        all
    }

    /// How each network stands.
    pub(super) fn network_reports(&self) -> Vec<NetworkReport> {
        let isolated = self.nets().filter(|net| net.id != NetworkId::DEFAULT);
        let report = |net: &Net<Q::Frame>| NetworkReport {
            network: net.id,
            sessions: net.path.live_sessions(),
            session_capacity: net.path.session_capacity(),
            half_open: net.path.half_open_sessions(),
            pressed: net.path.is_pressed(),
            reasons: net.path.counters().reasons,
        };
        std::iter::once(&*self.net)
            .chain(isolated)
            .filter(|_| self.resting.len() > 1)
            .map(report)
            .collect()
    }
}
