//! `[announce]`: interfaces of names that nothing else uses.

use super::unique;
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

pub(super) fn check(config: &Config, report: &mut Report) {
    let path = Path::table(Place::Announce, 0);
    let (own, peer) = (path.key("interface"), path.key("peer_interface"));
    let announce = &config.announce;
    if announce.peer_interface.is_some() && announce.interface.is_none() && !report.is_broken(own) {
        report.error(peer, "it needs `interface` beside it", "add interface = \"sluice\"");
    }
    let ports = config.ports.iter().enumerate().flat_map(|(index, port)| {
        let path = Path::table(Place::Port, index);
        let device = port.device.interface().map(|name| (name, path.key("device")));
        device.into_iter().chain(port.twin.as_deref().map(|name| (name, path.key("twin"))))
    });
    let own = announce.interface.as_deref().map(|name| (name, own));
    let peer = announce.peer_interface.as_deref().map(|name| (name, peer));
    // Ports among themselves are checked with the ports.
    let mut seen = std::collections::HashSet::new();
    let ports = ports.filter(|(name, _)| seen.insert(*name)).collect::<Vec<_>>();
    unique(ports.into_iter().chain(own).chain(peer), report, |name, line| {
        let found = format!("interface {name:?} is used already (line {line})");
        (found, "use another name: the director makes this interface".to_owned())
    });
}
