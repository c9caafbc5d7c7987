//! What the steering programs are to take for a plan, on a machine with these addresses.
//!
//! By AF_XDP a packet that is taken cannot be given back to the kernel, so what the plan leaves
//! open is narrowed here: source NAT is for what leaves the networks it is for, and a rule for one
//! port is not for networks that the machine has on other interfaces. Of what arrives in tunnels
//! the kernel keeps what is sent to its own addresses in the tunnel's network, services and pools
//! aside.

use crate::tunnels;
use sluice_config::{Config, Device, Port};
use sluice_director::counters::Counters;
use sluice_director::fib::PortId;
use sluice_director::plan::{Plan, Snat};
use sluice_director::spec::{Network, NetworkId, Protocol};
use sluice_linux::Kernel;
use sluice_steer::{EndpointMatch, InnerMatch, LocalMatch, Matches, SnatMatch, VxlanMatch};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread::JoinHandle;

/// Prepares the loading of BPF programs in a thread of its own: that takes as long as the start of
/// the environment layer, which sleeps for a part of its time. `None` if no port needs it.
pub fn prepare(config: &Config) -> Option<JoinHandle<()>> {
    let wanted =
        |port: &Port| matches!(port.device, Device::AfXdp { .. } | Device::AfPacket { .. });
    config.ports.iter().any(wanted).then_some(())?;
    let thread = std::thread::Builder::new().name("steering".to_owned());
    // Without a thread the first port does the same.
    thread.spawn(sluice_steer::prepare).ok()
}

/// An address of the machine: interface, address, bits of the network around it.
type Own = (u32, IpAddr, u8);

/// A port that is a tunnel: its network, and the name of the kernel's device.
pub type TunnelPort = (PortId, NetworkId, String);

/// What matches are made of. While it is the same they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    epoch: u64,
    own: Vec<Own>,
    /// Real servers that left the configuration and still have sessions.
    leaving: BTreeSet<usize>,
    /// The interfaces, VLANs included, of each port.
    ports: Vec<(PortId, Vec<u32>)>,
    /// The tunnels that can be used.
    tunnels: Vec<VxlanMatch>,
    /// For each tunnel's port the interfaces around its device.
    around: Vec<(PortId, BTreeSet<u32>)>,
}

impl Ground {
    /// Looks at everything that matters. `interfaces` names the kernel interface of each port.
    pub fn of(
        plan: &Plan,
        kernel: &Kernel,
        interfaces: &[(PortId, String)],
        counted: &Counters,
    ) -> Self {
        let active = |id: &usize| counted.reals.get(*id).is_some_and(|real| real.active > 0);
        let gone = plan.reals.iter().enumerate().filter(|(_, real)| !real.live).map(|(id, _)| id);
        let links = |name: &str| -> Vec<u32> {
            let Some(parent) = kernel.link_by_name(name) else { return Vec::new() };
            let vlans = kernel.links().filter(|link| link.parent == Some(parent.index));
            let face = Some(tunnels::face(kernel, parent)).filter(|it| it.index != parent.index);
            std::iter::once(parent).chain(vlans).chain(face).map(|link| link.index).collect()
        };
        Self {
            epoch: plan.epoch,
            own: kernel.addresses().map(|own| (own.ifindex, own.ip, own.prefix_len)).collect(),
            leaving: gone.filter(active).collect(),
            ports: interfaces.iter().map(|(port, name)| (*port, links(name))).collect(),
            ..Self::default()
        }
    }

    /// Looks at tunnels, too.
    pub fn with_tunnels(mut self, kernel: &Kernel, tunnels: &[TunnelPort]) -> Self {
        let steered = |(_, network, name): &TunnelPort| tunnels::steered(kernel, *network, name);
        self.tunnels = tunnels.iter().filter_map(steered).collect();
        let around = |(port, _, name): &TunnelPort| (*port, tunnels::around(kernel, name));
        self.around = tunnels.iter().map(around).collect();
        self
    }

    /// What is to be taken from the underlay for tunnels, as well as what is the default network's
    /// own. `of` tells the ports of each network and what is taken from them.
    pub fn take_tunnels(
        &self,
        matches: &mut Matches,
        of: &BTreeMap<NetworkId, (BTreeSet<PortId>, Matches)>,
    ) {
        let has_tunnels =
            |network: &NetworkId| self.tunnels.iter().any(|it| it.network == network.0);
        let inner = of.iter().filter(|(network, _)| has_tunnels(network));
        let inner = inner.map(|(network, (ports, taken))| InnerMatch {
            network: network.0,
            services: taken.services.clone(),
            locals: taken.locals.clone(),
            tunnels: taken.tunnels.clone(),
            own: self.own_inside(ports),
        });
        matches.inner = inner.collect();
        let inside = of.iter().filter(|(network, _)| has_tunnels(network));
        matches.tunnel_ports.extend(inside.flat_map(|(_, (_, taken))| &taken.tunnel_ports));
        matches.tunnel_ports.sort_unstable();
        matches.tunnel_ports.dedup();
        matches.vxlan.clone_from(&self.tunnels);
    }

    /// The machine's own addresses in an isolated network with these ports.
    fn own_inside(&self, ports: &BTreeSet<PortId>) -> Vec<IpAddr> {
        let of_network = |port: &PortId| ports.contains(port);
        let links = self.ports.iter().filter(|(port, _)| of_network(port));
        let links = links.flat_map(|(_, links)| links);
        let around = self.around.iter().filter(|(port, _)| of_network(port));
        let links: BTreeSet<u32> =
            links.chain(around.flat_map(|(_, around)| around)).copied().collect();
        let own = self.own.iter().filter(|(link, ..)| links.contains(link));
        own.map(|(_, address, _)| *address).collect()
    }

    /// What is to be taken from these ports, which are all of a network, by its part of the plan.
    pub fn matches(&self, plan: &Plan, ports: &BTreeSet<PortId>) -> Matches {
        let of_network = |(port, _): &&(PortId, Vec<u32>)| ports.contains(port);
        let links = self.ports.iter().filter(of_network).flat_map(|(_, links)| links);
        let links: BTreeSet<u32> = links.copied().collect();
        let elsewhere = self.ports.iter().filter(|(port, _)| !ports.contains(port));
        let elsewhere: BTreeSet<u32> = elsewhere.flat_map(|(_, links)| links).copied().collect();
        // What is no port's is the default network's.
        let is_own = |(link, ..): &&Own| match plan.network {
            NetworkId::DEFAULT => !elsewhere.contains(link),
            _ => links.contains(link),
        };
        let endpoint = |(protocol, address, ports)| EndpointMatch { protocol, address, ports };
        let local = |(address, ports, echo)| LocalMatch { address, ports, echo };
        let reals = plan.reals.iter().enumerate();
        let reals = reals.filter(|(id, real)| real.live || self.leaving.contains(id));
        let tunnels = [plan.tunnel.v4, plan.tunnel.v6];
        Matches {
            services: plan.taken_for_services().map(endpoint).collect(),
            locals: plan.taken_for_locals().into_iter().map(local).collect(),
            reals: reals.filter_map(|(_, real)| plan.taken_from_real(real)).map(endpoint).collect(),
            snat: plan.snat_rules().map(|(_, _, rule)| self.rule(plan, rule)).collect(),
            tunnels: tunnels.into_iter().flatten().map(network).collect(),
            tunnel_ports: plan.tunnel_ports(),
            own: self.own.iter().filter(is_own).map(|(_, address, _)| *address).collect(),
            ..Matches::default()
        }
    }

    fn rule(&self, plan: &Plan, rule: &Snat) -> SnatMatch {
        let has = |protocol| rule.protocols.is_empty() || rule.protocols.contains(&protocol);
        let mut except: Vec<_> = plan.not_taken_by(rule).into_iter().map(network).collect();
        if let Some(egress) = rule.egress {
            except.extend(self.behind_others(egress));
        }
        except.sort_unstable();
        except.dedup();
        SnatMatch {
            sources: rule.sources.iter().map(|net| network(*net)).collect(),
            destinations: rule.destinations.iter().map(|net| network(*net)).collect(),
            except,
            tcp: has(Protocol::Tcp),
            udp: has(Protocol::Udp),
            icmp: has(Protocol::Icmp),
        }
    }

    /// The networks around the machine's addresses on interfaces other than a port's.
    fn behind_others(&self, port: PortId) -> impl Iterator<Item = sluice_steer::Network> {
        let own = self.ports.iter().find(|(id, _)| *id == port).map(|(_, links)| links);
        let elsewhere =
            self.own.iter().filter(move |(link, _, _)| !own.is_some_and(|own| own.contains(link)));
        elsewhere.map(|(_, address, prefix)| sluice_steer::Network {
            address: *address,
            prefix: *prefix,
        })
    }
}

fn network(from: Network) -> sluice_steer::Network {
    sluice_steer::Network { address: from.address, prefix: from.prefix }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::Retired;
    use sluice_director::spec::{
        LocalPool, Mode, Ports, RealServer, SnatRule, Spec, TunnelSources, VirtualService,
    };
    use sluice_linux::{Address, Link, Vxlan};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn net(text: &str, prefix: u8) -> Network {
        Network { address: ip(text), prefix }
    }

    fn real(address: &str, port: u16, mode: Option<Mode>) -> RealServer {
        RealServer { address: ip(address), port, mode, ..RealServer::default() }
    }

    fn service(
        name: &str,
        protocol: Protocol,
        ports: Ports,
        reals: &[RealServer],
    ) -> VirtualService {
        VirtualService {
            name: name.to_owned(),
            protocol,
            vip: ip("198.51.100.200"),
            ports,
            mode: Mode::Nat,
            reals: reals.to_vec(),
            ..VirtualService::default()
        }
    }

    fn pool(name: &str, address: &str) -> LocalPool {
        let (name, addresses) = (name.to_owned(), vec![ip(address)]);
        let (network, peer_addresses) = (String::new(), Vec::new());
        LocalPool { network, name, addresses, ports: 1024..=65535, peer_addresses }
    }

    fn spec() -> Spec {
        let web = [real("192.0.2.11", 8080, None), real("192.0.2.12", 80, Some(Mode::Dr))];
        let range = Ports { first: 8000, last: 8099 };
        let mut gue = real("192.0.2.14", 0, Some(Mode::Gue));
        gue.tunnel.port = Some(6081);
        let rule = |name: &str, sources: &[Network], protocols: &[Protocol]| SnatRule {
            network: String::new(),
            name: name.to_owned(),
            sources: sources.to_vec(),
            protocols: protocols.to_vec(),
            pool: name.to_owned(),
            ..SnatRule::default()
        };
        let servers = net("192.0.2.0", 24);
        Spec {
            services: vec![
                service("web", Protocol::Tcp, Ports::one(80), &web),
                service("range", Protocol::Udp, range, &[real("2001:db8:2::11", 0, None)]),
                service("any", Protocol::Any, Ports::ALL, &[real("192.0.2.13", 0, None), gue]),
            ],
            pools: vec![pool("all", "198.51.100.10"), pool("tcp", "198.51.100.11")],
            snat: vec![
                rule("all", &[servers], &[]),
                SnatRule {
                    network: String::new(),
                    destinations: vec![net("203.0.113.0", 24)],
                    egress: Some(0),
                    ..rule("tcp", &[net("2001:db8:2::", 64)], &[Protocol::Tcp])
                },
            ],
            tunnel: TunnelSources { v4: Some(net("192.0.2.64", 28)), v6: None },
            ..Spec::default()
        }
    }

    fn kernel() -> Kernel {
        let mut kernel = Kernel::default();
        for (index, name, address) in [(1, "front", "198.51.100.1"), (2, "back", "192.0.2.1")] {
            kernel.insert_link(Link { index, name: name.to_owned(), ..Link::default() });
            let address = Address {
                ifindex: index,
                ip: ip(address),
                prefix_len: 24,
                peer: None,
                tentative: false,
            };
            kernel.insert_address(address);
        }
        kernel
    }

    fn matches(plan: &Plan, counted: &Counters) -> Matches {
        let interfaces = [(PortId(0), "front".to_owned()), (PortId(1), "back".to_owned())];
        Ground::of(plan, &kernel(), &interfaces, counted)
            .matches(plan, &interfaces.iter().map(|(port, _)| *port).collect())
    }

    /// The kernel with the device of a VXLAN in a VRF.
    fn kernel_with_vxlan() -> Kernel {
        let mut kernel = kernel();
        let vxlan =
            Vxlan { vni: 100, local: Some(ip("198.51.100.1")), port: 4789, ..Vxlan::default() };
        let link = |index, name: &str, master| Link {
            index,
            name: name.to_owned(),
            master,
            admin_up: true,
            ..Link::default()
        };
        kernel.insert_link(Link { vxlan: Some(vxlan), ..link(3, "vx100", Some(4)) });
        kernel.insert_link(Link { vrf_table: Some(100), ..link(4, "blue", None) });
        kernel.insert_link(link(5, "host", Some(4)));
        kernel.insert_link(link(6, "other", None));
        for (ifindex, address) in
            [(3, "10.0.0.1"), (4, "10.0.4.1"), (5, "10.0.5.1"), (6, "10.0.6.1")]
        {
            let (ip, prefix_len) = (ip(address), 24);
            let (peer, tentative) = (None, false);
            kernel.insert_address(Address { ifindex, ip, prefix_len, peer, tentative });
        }
        kernel
    }

    /// What comes to the underlay for a tunnel is taken by what its network has.
    #[test]
    fn tunnels_are_taken_by_their_networks() {
        let interfaces = [(PortId(0), "front".to_owned()), (PortId(1), "vx100".to_owned())];
        let tunnels = [(PortId(1), NetworkId(1), "vx100".to_owned())];
        let plan = Plan::compile(&spec(), None, &Retired::default()).unwrap();
        let of = |kernel: &Kernel| {
            let ground = Ground::of(&plan, kernel, &interfaces, &Counters::default())
                .with_tunnels(kernel, &tunnels);
            let blue = Matches {
                services: vec![service_match()],
                tunnels: vec![network(net("10.0.0.64", 28))],
                tunnel_ports: vec![6081],
                ..Matches::default()
            };
            let blue = (BTreeSet::from([PortId(1)]), blue);
            let mut matches = Matches::default();
            ground.take_tunnels(&mut matches, &BTreeMap::from([(NetworkId(1), blue)]));
            (ground, matches)
        };
        let kernel = kernel_with_vxlan();
        let (ground, taken) = of(&kernel);
        let local = ip("198.51.100.1");
        assert_eq!(taken.vxlan, [VxlanMatch { local, port: 4789, vni: 100, network: 1 }]);
        let [blue] = &taken.inner[..] else { panic!("{:?}", taken.inner) };
        assert_eq!((blue.network, &blue.services[..]), (1, &[service_match()][..]));
        assert_eq!(blue.tunnels, [network(net("10.0.0.64", 28))]);
        assert_eq!(taken.tunnel_ports, [6081]);
        let own = ["10.0.0.1", "10.0.4.1", "10.0.5.1"].map(ip);
        assert_eq!(blue.own, own, "of the device and of the rest of its VRF");
        let mut down = kernel.link_by_name("vx100").unwrap().clone();
        down.admin_up = false;
        let mut kernel = kernel;
        kernel.insert_link(down);
        let (later, taken) = of(&kernel);
        assert_ne!(later, ground, "the programs are to follow");
        assert_eq!((taken.vxlan, taken.inner), Default::default(), "the director does not read it");
    }

    fn service_match() -> EndpointMatch {
        EndpointMatch::port(6, ip("10.0.0.200"), 80)
    }

    #[test]
    fn a_plan_is_taken_as_narrowly_as_it_can_be() {
        let plan = Plan::compile(&spec(), None, &Retired::default()).unwrap();
        let taken = matches(&plan, &Counters::default());
        let vip = ip("198.51.100.200");
        let of = |protocol, address, ports| EndpointMatch { protocol, address, ports };
        let services = [of(6, vip, 80..=80), of(17, vip, 8000..=8099), of(0, vip, 0..=u16::MAX)];
        assert_eq!(taken.services, services);
        let replies = [
            of(6, ip("192.0.2.11"), 8080..=8080),
            of(17, ip("2001:db8:2::11"), 8000..=8099),
            of(0, ip("192.0.2.13"), 0..=u16::MAX),
        ];
        assert_eq!(taken.reals, replies, "those of NAT mode, by the ports that they answer from");
        let local = |text, echo| LocalMatch { address: ip(text), ports: 1024..=65535, echo };
        assert_eq!(taken.locals, [local("198.51.100.10", true), local("198.51.100.11", false)]);
        assert_eq!(taken.tunnels, [network(net("192.0.2.64", 28))]);
        assert_eq!(taken.tunnel_ports, [6081]);
        assert_eq!(taken.own, [ip("198.51.100.1"), ip("192.0.2.1")]);
        let [all, tcp] = &taken.snat[..] else { panic!("{:?}", taken.snat) };
        assert_eq!((all.tcp, all.udp, all.icmp), (true, true, true));
        let inside = [net("192.0.2.0", 24), net("2001:db8:2::", 64)].map(network);
        assert_eq!(all.except, inside, "nothing between networks that are translated");
        assert_eq!((tcp.tcp, tcp.udp, tcp.icmp), (true, false, false));
        assert_eq!(tcp.destinations, [network(net("203.0.113.0", 24))]);
        // What is behind the other port does not leave by this one.
        assert_eq!(tcp.except, [network(net("192.0.2.1", 24))]);
    }

    /// A real server that left is listened to as long as it has sessions.
    #[test]
    fn real_servers_that_left_are_heard_out() {
        let first = Plan::compile(&spec(), None, &Retired::default()).unwrap();
        let mut less = spec();
        less.services[0].reals.remove(0);
        let plan = Plan::compile(&less, Some(&first), &Retired::default()).unwrap();
        let gone = plan.reals.iter().position(|real| !real.live).unwrap();
        let mut counted = Counters::default();
        let heard = |counted: &Counters| {
            matches(&plan, counted).reals.iter().any(|real| real.address == ip("192.0.2.11"))
        };
        assert!(!heard(&counted));
        counted.reals.resize_with(gone + 1, Default::default);
        counted.reals[gone].active = 1;
        assert!(heard(&counted));
    }
}
