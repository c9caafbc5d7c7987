//! From the configuration to the packet path's view of it.

use sluice_director::spec::{LocalPool, Network, SnatRule, Spec, TunnelSources};

use std::net::IpAddr;

use crate::{Config, Ipip, Prefix, Snat, Through, VirtualService};

impl Config {
    /// What the packet path needs to know: ranges of local addresses written out in the file's
    /// order, ports by their place in the file, and nothing about cores, devices or sockets.
    ///
    /// A checked configuration has at most 65,535 local addresses in all; one made by hand with
    /// larger ranges takes as much memory as its author asked for.
    pub fn spec(&self) -> Spec {
        let pools = self.pools.iter().map(|pool| LocalPool {
            network: pool.network.clone(),
            name: pool.name.clone(),
            addresses: pool.addresses.iter().flat_map(|range| range.iter()).collect(),
            ports: pool.ports.clone(),
            peer_addresses: pool.peer_addresses.iter().flat_map(|range| range.iter()).collect(),
        });
        Spec {
            networks: self.networks.iter().map(|network| network.name.clone()).collect(),
            services: self.services.iter().map(|service| self.service(service)).collect(),
            pools: pools.collect(),
            snat: self.snat.iter().map(|rule| self.snat_rule(rule)).collect(),
            tunnel: self.ipip.into(),
            network_tunnels: self.networks.iter().map(|network| network.tunnel.into()).collect(),
            icmp_errors_per_s: self.icmp.errors_per_s,
            hash_seed: self.director.hash_seed,
            timeouts: self.ipvs.onto(self.timeouts),
            no_session: self.tcp.no_session,
            refused: self.icmp.refused,
            gives_way: true,
            accept_mid_stream: self.tcp.accept_mid_stream,
            probes_from: by_family(&self.director.probe_addresses),
            network_probes: self.networks.iter().map(|it| by_family(&it.probe_addresses)).collect(),
        }
    }

    fn service(&self, service: &VirtualService) -> VirtualService {
        let check = self.checks.iter().find(|check| check.name == service.check);
        let probed = check.is_some_and(|check| check.through == Through::Service);
        VirtualService { probed, ..service.clone() }
    }

    fn snat_rule(&self, rule: &Snat) -> SnatRule {
        let networks = |prefixes: &[Prefix]| prefixes.iter().copied().map(Network::from).collect();
        SnatRule {
            network: rule.network.clone(),
            name: rule.name.clone(),
            sources: networks(&rule.sources),
            destinations: networks(rule.destinations.as_deref().unwrap_or_default()),
            protocols: rule.protocols.clone().unwrap_or_default(),
            egress: rule.egress.as_deref().and_then(|port| self.port_id(port)),
            pool: rule.pool.clone(),
            mapping: rule.mapping,
            hairpinning: rule.hairpinning,
            tcp_established_s: rule.tcp_established_s,
        }
    }
}

/// The first address of each family.
fn by_family(addresses: &[IpAddr]) -> [Option<IpAddr>; 2] {
    [false, true].map(|six| addresses.iter().copied().find(|it| it.is_ipv6() == six))
}

impl From<Prefix> for Network {
    fn from(prefix: Prefix) -> Self {
        Self { address: prefix.address(), prefix: prefix.length() }
    }
}

impl From<Ipip> for TunnelSources {
    fn from(Ipip { source_v4, source_v6 }: Ipip) -> Self {
        Self { v4: source_v4.map(Network::from), v6: source_v6.map(Network::from) }
    }
}
