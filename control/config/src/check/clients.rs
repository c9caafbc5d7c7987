//! What the lists of clients of a service say that cannot be meant.

use sluice_director::spec::Network;

use super::addresses::family;
use crate::VirtualService;
use crate::path::Path;
use crate::report::Report;

pub(super) fn check(service: &VirtualService, path: Path, report: &mut Report) {
    for (key, list) in [("deny", &service.deny), ("allow", &service.allow)] {
        let whole = (0..list.len()).filter(|item| !report.is_broken(path.key(key).item(*item)));
        let mut listed: Vec<(usize, Network)> = whole.map(|item| (item, list[item])).collect();
        if !report.is_broken(path.key("vip")) {
            check_family(service, &listed, path.key(key), report);
        }
        listed.sort_by_key(|(item, network)| (network.address, network.prefix, *item));
        check_overlap(&listed, path.key(key), report);
    }
}

/// Reports networks that no client of the service can be in.
fn check_family(
    service: &VirtualService,
    listed: &[(usize, Network)],
    path: Path,
    report: &mut Report,
) {
    let (of, vip) = (family(service.vip), service.vip.is_ipv4());
    for (item, network) in listed.iter().filter(|(_, net)| net.address.is_ipv4() != vip) {
        let found = format!("{} never matches: clients of this VIP have {of}", name(*network));
        report.error(path.item(*item), found, format!("use networks of {of}, or leave it out"));
    }
}

/// Reports networks that are there twice, and warns of those within another. In order of their
/// addresses a network comes behind all that it is in, and one of them was the last that was in no
/// other.
fn check_overlap(listed: &[(usize, Network)], path: Path, report: &mut Report) {
    let mut around: Option<Network> = None;
    for (at, (item, network)) in listed.iter().enumerate() {
        let is_twice = at > 0 && listed[at - 1].1 == *network;
        let outer = around.filter(|around| around.contains(network.address));
        if is_twice {
            let found = format!("{} is listed twice", name(*network));
            report.error(path.item(*item), found, "take one of them out");
        } else if let Some(outer) = outer {
            let found = format!("{} is part of {}", name(*network), name(outer));
            report.warn(path.item(*item), found, "leave it out: it changes nothing");
        } else {
            around = Some(*network);
        }
    }
}

fn name(Network { address, prefix }: Network) -> String {
    format!("{address}/{prefix}")
}
