//! Addresses: which may be used at all, and that no two uses of one collide.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Bounds;
use super::networks::{self, Networks};
use crate::address::number;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{AddressRange, Config, Pool, Prefix};

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    Ipv4Addr::new(a, b, c, d).to_bits() as u128
}

/// Addresses that no host has, from the first to the last, of IPv4 and of IPv6. As numbers: every
/// change of the desired state looks at all addresses there are.
const SPECIAL: [&[(u128, u128, &str)]; 2] = [
    &[
        (v4(0, 0, 0, 0), v4(0, 255, 255, 255), "unspecified (0.0.0.0/8)"),
        (v4(127, 0, 0, 0), v4(127, 255, 255, 255), "loopback (127.0.0.0/8)"),
        (v4(224, 0, 0, 0), v4(239, 255, 255, 255), "multicast (224.0.0.0/4)"),
        (v4(255, 255, 255, 255), v4(255, 255, 255, 255), "the broadcast address"),
    ],
    &[
        (0, 0, "unspecified (::)"),
        (1, 1, "loopback (::1)"),
        (0xffff << 32, (0xffff << 32) + 0xffff_ffff, "IPv4 in disguise (::ffff:0:0/96)"),
        (0xff << 120, u128::MAX, "multicast (ff00::/8)"),
    ],
];

/// What is wrong with a range as the address of a host, if anything.
pub(super) fn not_a_host(range: AddressRange) -> Option<&'static str> {
    let (begin, end) = (number(range.first()), number(range.last()));
    let special = SPECIAL[usize::from(range.first().is_ipv6())].iter();
    special.copied().find_map(|(first, last, what)| (begin <= last && first <= end).then_some(what))
}

/// Reports an address that no host may have.
pub(super) fn check_host(address: IpAddr, path: Path, report: &mut Report) {
    if let Some(what) = not_a_host(address.into()) {
        let found = format!("{address} is {what}");
        let example = if address.is_ipv4() { "192.0.2.10" } else { "2001:db8::10" };
        report.error(path, found, format!("use the unicast address of a host, such as {example}"));
    }
}

/// Reports an address that only means something together with a link.
pub(super) fn check_scope(address: IpAddr, path: Path, report: &mut Report) {
    if let Some(found) = link_local(address.into()) {
        report.error(path, format!("{address} {found}"), NO_SCOPE);
    }
}

/// What to do about an address that is link-local.
const NO_SCOPE: &str = "use a global or unique local address (RFC 4193)";

fn link_local(range: AddressRange) -> Option<&'static str> {
    let within = Prefix::new(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10)?.range();
    let meets = range.first() <= within.last() && within.first() <= range.last();
    meets.then_some("is link-local (fe80::/10), which does not say on which link")
}

/// The family of an address, as messages call it.
pub(super) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// An address and what stands for its port, as they are written together.
pub(super) fn endpoint(address: IpAddr, port: impl Display) -> String {
    if address.is_ipv4() { format!("{address}:{port}") } else { format!("[{address}]:{port}") }
}

/// The families that each pool has addresses of: IPv4, IPv6. A pool of which something could not
/// be read might have had either.
pub(super) fn pool_families<'c>(
    config: &'c Config,
    report: &Report,
) -> HashMap<&'c str, [bool; 2]> {
    let families = |(index, pool): (usize, &'c Pool)| {
        let path = Path::table(Place::Pool, index).key("addresses");
        let broken = (0..pool.addresses.len()).any(|item| report.is_broken(path.item(item)));
        let unknown = broken || report.is_broken(path);
        let has = |v4| pool.addresses.iter().any(|range| range.first().is_ipv4() == v4);
        (pool.name.as_str(), [unknown || has(true), unknown || has(false)])
    };
    config.pools.iter().enumerate().map(families).collect()
}

/// All local addresses, for questions about single ones.
pub(super) struct Local<'c> {
    /// By network, in ascending order; without overlaps if none were reported.
    ranges: BTreeMap<&'c str, Vec<(AddressRange, Path)>>,
}

impl Local<'_> {
    /// Where `address` is a local address of a network, if it is one.
    pub fn find(&self, network: &str, address: IpAddr) -> Option<Path> {
        let ranges = self.ranges.get(network)?;
        let key = |address: IpAddr| (address.is_ipv6(), number(address));
        let after = ranges.partition_point(|(range, _)| key(range.first()) <= key(address));
        let (range, path) = ranges.get(after.checked_sub(1)?)?;
        range.contains(address).then_some(*path)
    }
}

/// Checks the pools, and gives all their addresses.
pub(super) fn check_pools<'c>(
    config: &'c Config,
    bounds: &Bounds,
    networks: &Networks<'_>,
    report: &mut Report,
) -> Local<'c> {
    let path = |index| Path::table(Place::Pool, index);
    let names = config.pools.iter().enumerate();
    let names = names.map(|(index, pool)| (pool.name.as_str(), path(index).key("name")));
    super::unique_names("pool", names, report);
    let mut ranges: BTreeMap<&str, Vec<(AddressRange, Path)>> = BTreeMap::new();
    let mut total: u128 = 0;
    for (index, pool) in config.pools.iter().enumerate() {
        let network = networks::known(&pool.network, path(index), report);
        let (path, peers) = (path(index).key("addresses"), path(index).key("peer_addresses"));
        if pool.addresses.is_empty() {
            let hint = "give the pool at least one address, such as [\"192.0.2.10\"]";
            report.error(path, "the list is empty", hint);
        }
        let own = pool.addresses.iter().enumerate().map(|(item, range)| (path.item(item), range));
        let theirs = pool.peer_addresses.iter().enumerate();
        let theirs = theirs.map(|(item, range)| (peers.item(item), range));
        for (path, &range) in own.chain(theirs) {
            if report.is_broken(path) {
                continue;
            }
            check_range(range, path, report);
            let before = total;
            total = total.saturating_add(range.count());
            if before <= bounds.local_addresses && total > bounds.local_addresses {
                let found = format!("with {range} there are {total} local addresses in all pools");
                report.error(path, found, format!("keep to {}", bounds.local_addresses));
            }
            if let Some(network) = network {
                networks.check_address(network, range, path, report);
                ranges.entry(network).or_default().push((range, path));
            }
        }
    }
    for ranges in ranges.values_mut() {
        ranges.sort_by_key(|(range, _)| (range.first().is_ipv6(), number(range.first())));
        check_overlaps(ranges, report);
    }
    Local { ranges }
}

fn check_range(range: AddressRange, path: Path, report: &mut Report) {
    if let Some(what) = not_a_host(range) {
        let found = format!("{range} has addresses that are {what}");
        report.error(path, found, "use unicast addresses of this machine");
    } else if let Some(found) = link_local(range) {
        report.error(path, format!("{range} {found}"), NO_SCOPE);
    }
}

/// Reports ranges that share addresses, at the one that is later in the file.
fn check_overlaps(ranges: &[(AddressRange, Path)], report: &mut Report) {
    let Some(mut widest) = ranges.first().copied() else { return };
    for &(range, path) in &ranges[1..] {
        if widest.0.contains(range.first()) {
            let place = |path: Path| (path.index, path.key, path.item);
            let (earlier, later) = if place(widest.1) <= place(path) {
                (widest, (range, path))
            } else {
                ((range, path), widest)
            };
            let shared = range.first();
            let (line, written) = (report.line(earlier.1), report.written(earlier.1));
            let found = if earlier.0 == later.0 {
                format!("{shared} is named already (line {line})")
            } else {
                format!("{shared} is in {written} already (line {line})")
            };
            report.error(later.1, found, "name each local address once, in one pool");
        }
        let farther = number(range.last()) > number(widest.0.last());
        if farther || range.first().is_ipv4() != widest.0.first().is_ipv4() {
            widest = (range, path);
        }
    }
}
