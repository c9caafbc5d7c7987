//! The networks that this machine is in: whose ports are whose, which of the kernel's routes each
//! goes by, and what its workers have of the plan.
//!
//! A network's next hops are made of the links of its own ports alone. A route that leads to
//! another network's interface leads nowhere, whatever table it is in.

use crate::next_hops::{NextHops, Scope};
use crate::path_mtus::PathMtus;
use crate::tunnels;
use sluice_checks::Exit;
use sluice_config::{Config, Device};
use sluice_director::fib::{Fib, LinkId, PortId};
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;
use sluice_director::vxlan::Tunnels;
use sluice_linux::{Kernel, RouteResult, Table};
use sluice_worker::{NetworksConfig, Published, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tracing::info;

/// Where a network's routes are.
#[derive(Clone, Debug, Default)]
enum Routes {
    /// In the kernel's main and default tables.
    #[default]
    Main,
    /// In the table with this number.
    Table(u32),
    /// In the table of the VRF device with this name.
    Vrf(String),
}

/// A network as the control loop has it.
#[derive(Debug, Default)]
struct Network {
    routes: Routes,
    next_hops: NextHops,
    fib: Arc<Fib>,
}

/// All networks, by their numbers.
#[derive(Debug)]
pub(crate) struct Networks {
    all: Vec<Network>,
    /// The network of each port.
    of_port: Vec<NetworkId>,
    /// VXLAN ports, with the kernel's devices.
    virtual_ports: Vec<(PortId, String)>,
    /// Interfaces that hold what is announced of isolated networks.
    announced: Vec<String>,
    tunnels: Arc<Tunnels>,
    /// Of the ways to the tunnels' far ends.
    paths: PathMtus,
}

impl Networks {
    /// Those of a configuration.
    pub fn new(config: &Config) -> Self {
        let isolated = config.networks.iter().map(|network| Network {
            routes: match (network.table, &network.vrf) {
                (Some(table), _) => Routes::Table(table),
                (None, Some(vrf)) => Routes::Vrf(vrf.clone()),
                (None, None) => Routes::Main,
            },
            ..Network::default()
        });
        let all = std::iter::once(Network::default()).chain(isolated).collect();
        let virtual_ports =
            config.ports.iter().zip(0..).filter_map(|(port, id)| match &port.device {
                Device::Vxlan { interface } => Some((PortId(id), interface.clone())),
                _ => None,
            });
        let (of_port, virtual_ports) = (of_ports(config), virtual_ports.collect());
        let announced = config.networks.iter().map(|network| &network.announce);
        let announced = announced.flat_map(|it| it.interface.iter().chain(&it.peer_interface));
        let announced = announced.cloned().collect();
        let (tunnels, paths) = (Arc::default(), PathMtus::default());
        Self { all, of_port, virtual_ports, announced, tunnels, paths }
    }

    /// The numbers of the kernel's tables that networks go by, as far as they are known.
    pub fn tables(&self, kernel: &Kernel) -> BTreeSet<u32> {
        self.all.iter().filter_map(|network| network.table(kernel)).collect()
    }

    /// Compiles the kernel's tables for a plan.
    pub fn follow(
        &mut self,
        kernel: &Kernel,
        plan: &Arc<Plan>,
        interfaces: &[(PortId, String)],
    ) -> Published {
        let of_port = &self.of_port;
        let of = |port: PortId| of_port.get(usize::from(port.0)).copied().unwrap_or_default();
        let own = |id: NetworkId| {
            interfaces.iter().filter(move |(port, _)| of(*port) == id).cloned().collect::<Vec<_>>()
        };
        let foreign = interfaces.iter().filter(|(port, _)| of(*port) != NetworkId::DEFAULT);
        let foreign = foreign.map(|(_, name)| name).chain(&self.announced);
        let foreign = foreign.filter_map(|name| kernel.link_by_name(name));
        let foreign = foreign.flat_map(|it| [it.index, tunnels::face(kernel, it).index]);
        let foreign: BTreeSet<u32> = foreign.collect();
        let (mut snapshots, mut mtus) = (Vec::new(), BTreeMap::new());
        for (number, network) in (0..).zip(&mut self.all) {
            let id = NetworkId(number);
            let plan = part(plan, id);
            let scope = match id {
                NetworkId::DEFAULT => Scope::Default { foreign: foreign.clone() },
                // A VRF that is not there has no routes.
                _ => Scope::Table(network.table(kernel).unwrap_or(0)),
            };
            let Network { next_hops, fib, .. } = network;
            next_hops.limit(&mtus);
            *fib = Arc::new(next_hops.build((kernel, &scope), &plan, &own(id), fib));
            if id == NetworkId::DEFAULT {
                // The underlay's: what is in tunnels must fit it.
                next_hops.want(kernel, tunnels::remotes(kernel, &self.virtual_ports));
                let links = self.virtual_ports.iter();
                let links = links.filter_map(|(_, name)| kernel.link_by_name(name));
                let mtu = |link| tunnels::mtu(kernel, (fib, &self.paths), link);
                mtus = links.map(|link| (link.index, mtu(link))).collect();
            }
            snapshots.push(Snapshot { plan, fib: Arc::clone(fib) });
        }
        let ways = (&*snapshots[0].fib, &self.paths);
        self.tunnels = Arc::new(tunnels::compile(kernel, ways, &self.virtual_ports));
        self.published(snapshots)
    }

    /// Believes that a packet of so many bytes is the longest that gets to a tunnel's far end.
    /// Whether the kernel's tables are to be compiled anew for it.
    pub fn learn(&mut self, remote: IpAddr, mtu: u16, now: Instant) -> bool {
        let learned = self.paths.learn(remote, mtu, now);
        if learned {
            info!(%remote, mtu, "the way to a VXLAN remote takes less than its first link");
        }
        learned
    }

    /// Forgets such things after a while. Whether there was any.
    pub fn forget(&mut self, now: Instant) -> bool {
        self.paths.forget(now)
    }

    /// What is published of a plan that differs from the last in no route.
    pub fn revised(&self, plan: &Arc<Plan>) -> Published {
        let snapshots = self.all.iter().zip(0..).map(|(network, number)| Snapshot {
            plan: part(plan, NetworkId(number)),
            fib: Arc::clone(&network.fib),
        });
        self.published(snapshots.collect())
    }

    fn published(&self, snapshots: Vec<Snapshot>) -> Published {
        let mut snapshots = snapshots.into_iter();
        Published {
            default: snapshots.next().unwrap_or_default(),
            isolated: snapshots.collect(),
            tunnels: Arc::clone(&self.tunnels),
        }
    }

    /// The kernel's interface of a link.
    pub fn ifindex(&self, network: NetworkId, link: LinkId) -> Option<u32> {
        self.all.get(usize::from(network.0))?.next_hops.ifindex(link)
    }

    /// Neighbours that the paths need, by the kernel's interface.
    pub fn wanted(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.all.iter().flat_map(|network| network.next_hops.wanted())
    }

    /// What the machine may say in place of a network's balanced addresses.
    pub fn stand_ins(&self, network: NetworkId) -> HashMap<IpAddr, IpAddr> {
        let network = self.all.get(usize::from(network.0));
        network.map(|network| network.next_hops.stand_ins().clone()).unwrap_or_default()
    }

    /// By which of the kernel's devices the machine itself reaches an address of an isolated
    /// network; `None` if the network has no route to it by a port of its own.
    pub fn exit(&self, kernel: &Kernel, network: NetworkId, address: IpAddr) -> Option<Exit> {
        let network = self.all.get(usize::from(network.0))?;
        let table = Table::Other(network.table(kernel)?);
        let is_own = |ifindex| network.next_hops.has(ifindex);
        let found = sluice_linux::lookup_in(kernel, table, address, is_own);
        let RouteResult::NextHops(targets) = found else { return None };
        let target = targets.iter().find(|target| is_own(target.ifindex))?;
        Some(match &network.routes {
            // The kernel goes by the VRF's table for what is bound to it.
            Routes::Vrf(name) => Exit { device: name.clone(), table: None },
            routes => {
                let device = kernel.link(target.ifindex)?.name.clone();
                Exit { device, table: routes.table() }
            }
        })
    }
}

impl Routes {
    /// The table that the configuration names.
    const fn table(&self) -> Option<u32> {
        match self {
            Self::Table(table) => Some(*table),
            Self::Main | Self::Vrf(_) => None,
        }
    }
}

impl Network {
    fn table(&self, kernel: &Kernel) -> Option<u32> {
        match &self.routes {
            Routes::Main => None,
            Routes::Table(table) => Some(*table),
            Routes::Vrf(name) => kernel.link_by_name(name)?.vrf_table,
        }
    }
}

/// The network of each port of a configuration.
pub(crate) fn of_ports(config: &Config) -> Vec<NetworkId> {
    let of = |port: &sluice_config::Port| config.network_id(&port.network).unwrap_or_default();
    config.ports.iter().map(of).collect()
}

/// The networks of each of so many workers.
pub(crate) fn of_worker(config: &Config, workers: usize) -> NetworksConfig {
    let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
    let sessions = config.networks.iter().map(|network| network.sessions.div_ceil(workers));
    let twins = config.ports.iter().any(|port| port.network.is_empty() && port.twin.is_some());
    NetworksConfig { sessions: sessions.collect(), twins, of_port: of_ports(config) }
}

/// A network's part of a plan.
pub(crate) fn part(plan: &Arc<Plan>, network: NetworkId) -> Arc<Plan> {
    if plan.networks.is_empty() { Arc::clone(plan) } else { Arc::new(plan.of_network(network)) }
}

#[cfg(test)]
mod tests;
