//! `[announce]`, and what networks announce: interfaces of names that nothing else uses.

use super::unique;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::schema::keys::network;
use crate::{Announce, Config};

pub(super) fn check(config: &Config, report: &mut Report) {
    let path = Path::table(Place::Announce, 0);
    let default = (&config.announce, path.key("interface"), path.key("peer_interface"));
    let of_networks = config.networks.iter().enumerate().map(|(index, network)| {
        let path = Path::table(Place::Network, index);
        let [own, peers] = [&network::ANNOUNCE, &network::ANNOUNCE_PEERS].map(|it| it.name);
        (&network.announce, path.key(own), path.key(peers))
    });
    let all: Vec<_> = std::iter::once(default).chain(of_networks).collect();
    for (announce, own, peers) in &all {
        let alone = announce.peer_interface.is_some() && announce.interface.is_none();
        if alone && !report.is_broken(*own) {
            let key = own.key.unwrap_or_default();
            let found = format!("it needs `{key}` beside it");
            report.error(*peers, found, format!("add {key} = \"sluice\""));
        }
    }
    let ports = config.ports.iter().enumerate().flat_map(|(index, port)| {
        let path = Path::table(Place::Port, index);
        let device = port.device.interface().map(|name| (name, path.key("device")));
        device.into_iter().chain(port.twin.as_deref().map(|name| (name, path.key("twin"))))
    });
    let announced = all.iter().flat_map(|(Announce { interface, peer_interface }, own, peers)| {
        let own = interface.as_deref().map(|name| (name, *own));
        own.into_iter().chain(peer_interface.as_deref().map(|name| (name, *peers)))
    });
    // Ports among themselves are checked with the ports.
    let mut seen = std::collections::HashSet::new();
    let ports = ports.filter(|(name, _)| seen.insert(*name)).collect::<Vec<_>>();
    unique(ports.into_iter().chain(announced), report, |name, line| {
        let found = format!("interface {name:?} is used already (line {line})");
        (found, "use another name: the director makes this interface".to_owned())
    });
}
