//! What routing daemons are to announce (`[announce]`, and `announce_interface` of networks):
//! addresses on interfaces that vanish with the director, each network's on its own.
//!
//! A routing daemon exports the connected routes of an interface, so that adding and removing an
//! address is all that announcing takes, whichever daemon it is. VIPs go when another director is
//! to take over; pool addresses stay, since real servers answer to them as long as this director
//! forwards.

use crate::daemon::Daemon;
use crate::errors::Error;
use sluice_api::model::HaAnnounce;
use sluice_config::Config;
use sluice_director::plan::{HealthState, LocalId, Plan, Pool, Service};
use sluice_director::spec::NetworkId;
use sluice_dpdk::AddressHolder;
use sluice_linux::{Address, Commands, Kernel};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// When an address that the kernel refused is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is seen that the interfaces are there.
const LOOK: Duration = Duration::from_secs(1);

/// The interfaces of all networks and what they hold.
pub(crate) struct Announcer {
    networks: Vec<Announced>,
    commands: Commands,
    /// What was last looked at, and why no VIP is announced then.
    plan: Arc<Plan>,
    withdrawn: Option<String>,
    /// Whether this director may take over, or could once.
    was_ready: bool,
    /// When something that was refused is tried again.
    retry: Option<Instant>,
    /// When it was last seen that the interfaces are there.
    looked: Instant,
}

/// What is announced of a network.
struct Announced {
    id: NetworkId,
    /// Its name; `None` for the default one.
    name: Option<String>,
    own: Held,
    peers: Option<Held>,
    vips: u64,
    unserved: Vec<IpAddr>,
}

/// An interface.
struct Held {
    holder: AddressHolder,
    /// The VRF device that it is to be in, and whether it is.
    vrf: Option<(String, bool)>,
    addresses: BTreeSet<IpAddr>,
}

/// What is to be announced by a plan.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    vips: BTreeSet<IpAddr>,
    unserved: BTreeSet<IpAddr>,
    locals: BTreeSet<IpAddr>,
    peers: BTreeSet<IpAddr>,
}

impl Wanted {
    /// What of a network is to be announced: others may have the same addresses, and routes of
    /// their own.
    fn of(plan: &Plan, network: NetworkId) -> Self {
        let is_served = |service: &Service| {
            let mut reals = service.reals.iter().filter_map(|id| plan.real(*id));
            reals.any(|real| real.weight > 0 && real.health_state == HealthState::Serves)
        };
        let of_services = |served| {
            let services = plan.live_services().map(|(_, service)| service);
            let services = services.filter(|service| service.network == network);
            let services = services.filter(move |service| is_served(service) == served);
            services.map(|service| service.vip).collect::<BTreeSet<_>>()
        };
        let vips = of_services(true);
        let unserved = of_services(false).difference(&vips).copied().collect();
        let of_pools = |of: fn(&Pool) -> &[Vec<LocalId>; 2]| {
            let pools = plan.pools.iter().filter(|pool| pool.network == network);
            let ids = pools.flat_map(move |pool| of(pool).iter().flatten());
            ids.filter_map(|id| plan.locals.get(usize::from(id.0)).copied()).collect()
        };
        let (locals, peers) = (of_pools(|pool| &pool.locals), of_pools(|pool| &pool.peers));
        Self { vips, unserved, locals, peers }
    }
}

impl Announcer {
    /// Makes the interfaces, if any are configured. They hold nothing yet.
    pub fn open(config: &Config, plan: &Arc<Plan>) -> Result<Option<Self>, Error> {
        let made = Announced::all(config, |name| {
            info!(interface = name, "holds what routing daemons are to announce");
            Ok((AddressHolder::open(name)?, BTreeSet::new()))
        });
        Self::of(made?, plan, false)
    }

    /// Goes on with interfaces of another process that announces as this one is to, and makes those
    /// that it has not. They hold what they hold.
    pub fn adopt(
        config: &Config,
        plan: &Arc<Plan>,
        kernel: &Kernel,
        mut handed: Vec<(String, OwnedFd)>,
    ) -> Result<Option<Self>, Error> {
        let adopted = Announced::all(config, |name| {
            let Some(at) = handed.iter().position(|(found, _)| found == name) else {
                return Ok((AddressHolder::open(name)?, BTreeSet::new()));
            };
            info!(interface = name, "goes on with what routing daemons are to announce");
            let holder = AddressHolder::adopt(name, handed.swap_remove(at).1)?;
            let is_held = |address: &&Address| address.ifindex == holder.ifindex();
            let link_local = |ip: IpAddr| match ip {
                IpAddr::V4(_) => false,
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            let addresses = kernel.addresses().filter(is_held).map(|address| address.ip);
            let addresses = addresses.filter(|ip| !link_local(*ip)).collect();
            Ok((holder, addresses))
        });
        Self::of(adopted?, plan, true)
    }

    /// One with these networks, which has looked at nothing yet; `None` without any.
    fn of(
        networks: Vec<Announced>,
        plan: &Arc<Plan>,
        was_ready: bool,
    ) -> Result<Option<Self>, Error> {
        if networks.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            networks,
            commands: Commands::open()?,
            plan: Arc::clone(plan),
            withdrawn: Some("not looked at yet".to_owned()),
            was_ready,
            retry: None,
            looked: Instant::now(),
        }))
    }

    /// The interfaces, for another process.
    pub fn offer(&self) -> std::io::Result<Vec<(String, OwnedFd)>> {
        let all = self.networks.iter().flat_map(|it| std::iter::once(&it.own).chain(&it.peers));
        all.map(|held| Ok((held.holder.name().to_owned(), held.holder.copy()?))).collect()
    }

    /// Adds and removes addresses for a plan; `withdrawn` is why no VIP is to be announced.
    fn follow(&mut self, plan: &Arc<Plan>, withdrawn: Option<String>) {
        let same = Arc::ptr_eq(&self.plan, plan) && self.withdrawn == withdrawn;
        let waits = self.retry.is_none_or(|retry| Instant::now() < retry);
        if !self.restore() && same && waits {
            return;
        }
        if self.withdrawn != withdrawn {
            match &withdrawn {
                Some(why) => info!(why, "no virtual address is announced"),
                None => info!("virtual addresses are announced"),
            }
        }
        self.was_ready |= withdrawn.is_none();
        let mut whole = true;
        for network in &mut self.networks {
            let wanted = match self.was_ready {
                true => Wanted::of(plan, network.id),
                false => Wanted::default(),
            };
            whole &= network.follow(&mut self.commands, wanted, withdrawn.is_none());
        }
        self.retry = (!whole).then(|| Instant::now() + RETRY);
        (self.plan, self.withdrawn) = (Arc::clone(plan), withdrawn);
    }

    /// Makes interfaces anew that somebody has deleted. Whether there were any.
    fn restore(&mut self) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let all = self.networks.iter_mut();
        let all = all.flat_map(|it| std::iter::once(&mut it.own).chain(&mut it.peers));
        all.filter_map(|held| held.restore().then_some(())).count() > 0
    }

    fn shown(&self) -> Vec<HaAnnounce> {
        self.networks.iter().map(|network| network.shown(self.withdrawn.clone())).collect()
    }
}

impl Announced {
    /// Those of a configuration; `open` gives an interface and what it holds.
    fn all(
        config: &Config,
        mut open: impl FnMut(&str) -> Result<(AddressHolder, BTreeSet<IpAddr>), Error>,
    ) -> Result<Vec<Self>, Error> {
        let isolated = config.networks.iter().map(|it| (Some(&it.name), &it.announce, &it.vrf));
        let all = std::iter::once((None, &config.announce, &None)).chain(isolated);
        let mut networks = Vec::new();
        for (number, (name, announce, vrf)) in (0..).zip(all) {
            let Some(interface) = &announce.interface else { continue };
            let mut held = |name: &str| -> Result<Held, Error> {
                let (holder, addresses) = open(name)?;
                Ok(Held { holder, vrf: vrf.clone().map(|vrf| (vrf, false)), addresses })
            };
            networks.push(Self {
                id: NetworkId(number),
                name: name.cloned(),
                own: held(interface)?,
                peers: announce.peer_interface.as_deref().map(held).transpose()?,
                vips: 0,
                unserved: Vec::new(),
            });
        }
        Ok(networks)
    }

    /// Holds what is wanted, VIPs only if they are to be announced. Whether the kernel agreed.
    fn follow(&mut self, commands: &mut Commands, wanted: Wanted, announce: bool) -> bool {
        let Wanted { vips, unserved, locals, peers } = wanted;
        let vips = if announce { vips } else { BTreeSet::new() };
        (self.vips, self.unserved) = (vips.len() as u64, unserved.into_iter().collect());
        let mut whole = self.own.hold(commands, &vips.union(&locals).copied().collect());
        if let Some(held) = &mut self.peers {
            whole &= held.hold(commands, &peers);
        }
        whole
    }

    fn shown(&self, withdrawn: Option<String>) -> HaAnnounce {
        let peers = self.peers.as_ref();
        let all = self.own.addresses.len() + peers.map_or(0, |held| held.addresses.len());
        HaAnnounce {
            network: self.name.clone(),
            interface: self.own.holder.name().to_owned(),
            peer_interface: peers.map(|held| held.holder.name().to_owned()),
            vips: self.vips,
            unserved: self.unserved.clone(),
            pool_addresses: (all as u64).saturating_sub(self.vips),
            withdrawn,
        }
    }
}

impl Held {
    /// Makes the interface anew if somebody has deleted it. Whether it was done; it holds nothing
    /// then.
    fn restore(&mut self) -> bool {
        if self.holder.is_there() {
            return false;
        }
        let interface = self.holder.name().to_owned();
        match AddressHolder::open(&interface) {
            Ok(holder) => {
                warn!(interface, "somebody has deleted the interface: it was made anew");
                (self.holder, self.addresses) = (holder, BTreeSet::new());
                self.vrf = self.vrf.take().map(|(vrf, _)| (vrf, false));
                true
            }
            Err(error) => {
                warn!(interface, %error, "somebody has deleted the interface");
                false
            }
        }
    }

    /// Makes the interface hold these, and says whether it does.
    fn hold(&mut self, commands: &mut Commands, wanted: &BTreeSet<IpAddr>) -> bool {
        let (index, width) =
            (self.holder.ifindex(), |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 });
        // The kernel moves addresses into a VRF's table only as they are added.
        let mut whole = self.join(commands);
        if !whole {
            return false;
        }
        // First what another director is to have.
        for ip in self.addresses.difference(wanted).copied().collect::<Vec<_>>() {
            match commands.remove_address(index, ip, width(ip)) {
                Ok(()) => drop(self.addresses.remove(&ip)),
                Err(error) => whole = self.refused(ip, &error),
            }
        }
        for ip in wanted.difference(&self.addresses).copied().collect::<Vec<_>>() {
            match commands.add_address(index, ip, width(ip)) {
                Ok(()) => drop(self.addresses.insert(ip)),
                Err(error) => whole = self.refused(ip, &error),
            }
        }
        whole
    }

    /// Puts the interface into the VRF device that it is to be in, and says whether it is.
    fn join(&mut self, commands: &mut Commands) -> bool {
        let Some((vrf, joined @ false)) = &mut self.vrf else { return true };
        let interface = self.holder.name();
        match commands.set_master(self.holder.ifindex(), vrf) {
            Ok(()) => *joined = true,
            Err(error) => warn!(interface, vrf, %error, "cannot be put into its VRF device"),
        }
        *joined
    }

    fn refused(&self, address: IpAddr, error: &sluice_linux::Error) -> bool {
        warn!(interface = self.holder.name(), %address, %error, "cannot announce as wanted");
        false
    }
}

impl Daemon {
    /// Announces what is to be announced now. Costs little while nothing changes.
    pub fn announce(&mut self) {
        // Ports are opened still that the process before could not hand over. What it announced
        // stays.
        if self.upgrades.waits() {
            return;
        }
        let withdrawn = self.may_not_take_over();
        if let Some(announcer) = &mut self.kernel.announcer {
            announcer.follow(&self.dataplane.plan, withdrawn);
        }
    }

    /// How announcing stands.
    pub fn announced(&self) -> Vec<HaAnnounce> {
        self.kernel.announcer.as_ref().map_or_else(Vec::new, Announcer::shown)
    }

    /// What keeps this director from taking over, as `sluice ha check` has it.
    fn may_not_take_over(&self) -> Option<String> {
        if self.kernel.addresses.is_draining() {
            return Some("draining: another director is to take over".to_owned());
        }
        if let Some(port) = self.dataplane.ports.not_up(self.kernel.mirror.state()) {
            return Some(format!("port {port} is not up"));
        }
        let sync = self.dataplane.sync.as_ref();
        let waits = sync.is_some_and(|sync| !sync.is_synchronised());
        waits.then(|| "sessions are not synchronised yet".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::Retired;
    use sluice_director::spec::{LocalPool, RealServer, Spec, VirtualService};

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_vip_is_announced_while_a_service_has_somebody() {
        let service = |name: &str, vip, weights: &[u16]| VirtualService {
            name: name.to_owned(),
            vip: ip(vip),
            ports: sluice_director::spec::Ports::one(80 + name.len() as u16),
            pool: "lan".to_owned(),
            reals: (11..)
                .zip(weights)
                .map(|(host, weight)| RealServer {
                    address: ip(&format!("192.0.2.{host}")),
                    weight: *weight,
                    ..RealServer::default()
                })
                .collect(),
            ..VirtualService::default()
        };
        let pool = LocalPool {
            network: String::new(),
            name: "lan".to_owned(),
            addresses: vec![ip("192.0.2.10"), ip("2001:db8::10")],
            ports: 1024..=65535,
            peer_addresses: vec![ip("192.0.2.20")],
        };
        let mut blue = service("blue", "198.51.100.9", &[1]);
        (blue.network, blue.pool) = ("blue".to_owned(), "blue-lan".to_owned());
        let addresses = vec![ip("192.0.2.77")];
        let of_blue = LocalPool {
            network: "blue".to_owned(),
            name: "blue-lan".to_owned(),
            addresses,
            ..pool.clone()
        };
        let spec = Spec {
            networks: vec!["blue".to_owned()],
            services: vec![
                blue,
                service("a", "198.51.100.1", &[1, 0]),
                service("bb", "198.51.100.1", &[0]),
                service("c", "198.51.100.2", &[0]),
                service("d", "198.51.100.3", &[]),
            ],
            pools: vec![pool, of_blue],
            ..Spec::default()
        };
        let plan = Plan::compile(&spec, None, &Retired::default()).expect("a plan");
        let set = |all: &[&str]| all.iter().map(|text| ip(text)).collect::<BTreeSet<_>>();
        let wanted = Wanted::of(&plan, NetworkId::DEFAULT);
        assert_eq!(wanted.vips, set(&["198.51.100.1"]));
        assert_eq!(wanted.unserved, set(&["198.51.100.2", "198.51.100.3"]));
        assert_eq!(wanted.locals, set(&["192.0.2.10", "2001:db8::10"]));
        assert_eq!(wanted.peers, set(&["192.0.2.20"]));
        let down: Vec<_> = plan.services[1].reals.iter().map(|id| (*id, true)).collect();
        assert_eq!(Wanted::of(&plan.with_health(&down), NetworkId::DEFAULT).vips, set(&[]));
        let of_blue = Wanted::of(&plan, NetworkId(1));
        assert_eq!(of_blue.vips, set(&["198.51.100.9"]));
        assert_eq!((of_blue.locals, of_blue.unserved), (set(&["192.0.2.77"]), set(&[])));
    }
}
