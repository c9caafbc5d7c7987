//! From the kernel's VXLAN devices to the path's tunnels: the device tells network identifier, own
//! address and UDP port, its forwarding entries where each MAC address is, and the routes of the
//! default network how to get there. Whoever programs the kernel (an operator by `bridge fdb`, FRR
//! by EVPN, a container network) programs the director by that.

use crate::path_mtus::PathMtus;
use sluice_director::fib::{Fib, Hop, PortId};
use sluice_director::spec::NetworkId;
use sluice_director::vxlan::{self, Dscp, Remote, Tunnel, Tunnels};
use sluice_linux::{FdbDestination, Kernel, Link, Vxlan};
use sluice_steer::VxlanMatch;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The tunnels of VXLAN ports, by the names of their devices. What a device lacks to be used is
/// [`trouble`].
pub(crate) fn compile(
    kernel: &Kernel,
    (fib, paths): (&Fib, &PathMtus),
    ports: &[(PortId, String)],
) -> Tunnels {
    let of = |(port, name): &(PortId, String)| {
        let link = kernel.link_by_name(name)?;
        tunnel(kernel, (fib, paths), (*port, link))
    };
    let tunnels: Vec<Tunnel> = ports.iter().filter_map(of).collect();
    if tunnels.is_empty() {
        return Tunnels::default();
    }
    Tunnels::new(&tunnels, &fib.all_own_macs())
}

/// The hosts at the other ends.
pub(crate) fn remotes(kernel: &Kernel, ports: &[(PortId, String)]) -> BTreeSet<IpAddr> {
    let links = ports.iter().filter_map(|(_, name)| kernel.link_by_name(name));
    let indexes: BTreeSet<u32> = links.map(|link| link.index).collect();
    let entries = kernel.fdb().filter(|entry| indexes.contains(&entry.ifindex));
    entries.flat_map(|entry| entry.destinations.iter().map(|to| to.ip)).collect()
}

/// What the steering programs of the underlay are to take for a VXLAN port of a network.
pub(crate) fn steered(kernel: &Kernel, network: NetworkId, name: &str) -> Option<VxlanMatch> {
    if trouble(kernel, name).is_some() {
        return None;
    }
    let Vxlan { vni, local, port, .. } = kernel.link_by_name(name)?.vxlan?;
    Some(VxlanMatch { local: local?, port, vni, network: network.0 })
}

/// The link with the addresses, routes and neighbours of what a port's own link leads to: of a
/// VXLAN device in a bridge, which is how FRR's EVPN wants it, the bridge; of any other the link
/// itself.
pub(crate) fn face<'a>(kernel: &'a Kernel, link: &'a Link) -> &'a Link {
    let above = link.vxlan.as_ref().and(link.master).and_then(|index| kernel.link(index));
    above.filter(|above| above.kind.as_deref() == Some("bridge")).unwrap_or(link)
}

/// The links whose addresses the kernel answers for on a device, itself aside: what it is enslaved
/// to, and all of the VRF that is among these.
pub(crate) fn around(kernel: &Kernel, name: &str) -> BTreeSet<u32> {
    let mut links = BTreeSet::new();
    let mut above = kernel.link_by_name(name).and_then(|link| link.master);
    while let Some(index) = above.filter(|index| links.insert(*index)) {
        let Some(master) = kernel.link(index) else { break };
        if master.vrf_table.is_some() {
            let members = kernel.links().filter(|link| link.master == Some(index));
            links.extend(members.map(|link| link.index));
        }
        above = master.master;
    }
    links
}

/// The largest IP packet in a tunnel, in bytes: what its device allows, and the ways to its remotes
/// with all headers. The kernel's device may know nothing of the underlay's MTU.
pub(crate) fn mtu(kernel: &Kernel, (fib, paths): (&Fib, &PathMtus), link: &Link) -> u16 {
    let device = u16::try_from(link.mtu).unwrap_or(u16::MAX);
    let Some(local) = link.vxlan.as_ref().and_then(|vxlan| vxlan.local) else { return device };
    let overhead = vxlan::overhead(local) as u16;
    let entries = kernel.fdb().filter(|entry| entry.ifindex == link.index);
    let remotes = entries.flat_map(|entry| &entry.destinations);
    let ways = remotes.filter_map(|to| hop_to(fib, paths, to.ip));
    ways.map(|hop| hop.mtu.saturating_sub(overhead)).fold(device, u16::min)
}

/// Why a VXLAN port cannot carry frames, if it cannot.
pub(crate) fn trouble(kernel: &Kernel, name: &str) -> Option<String> {
    let Some(link) = kernel.link_by_name(name) else {
        return Some(format!("there is no interface {name}"));
    };
    match &link.vxlan {
        None => Some(format!("{name} is no VXLAN device")),
        Some(vxlan) if vxlan.collect_metadata || vxlan.gpe || vxlan.gbp => {
            Some(format!("{name} is of a kind that is not supported: `external`, `gpe` or `gbp`"))
        }
        Some(vxlan) if vxlan.local.is_none() => {
            Some(format!("{name} has no address of its own: make it with `local ADDRESS`"))
        }
        Some(_) if !link.admin_up => Some(format!("{name} is set down")),
        Some(_) => None,
    }
}

fn tunnel(
    kernel: &Kernel,
    (fib, paths): (&Fib, &PathMtus),
    (port, link): (PortId, &Link),
) -> Option<Tunnel> {
    if trouble(kernel, &link.name).is_some() {
        return None;
    }
    let vxlan = link.vxlan.as_ref()?;
    let mut tunnel = Tunnel::new(port, vxlan.vni, vxlan.local?);
    tunnel.udp_port = vxlan.port;
    tunnel.udp_checksum = vxlan.udp_checksum;
    tunnel.udp6_zero = vxlan.udp6_zero_tx;
    tunnel.accepts_zero_v6 = vxlan.udp6_zero_rx;
    if let Some((first, beyond)) = vxlan.source_ports {
        tunnel.source_ports = (first, beyond.saturating_sub(1).max(first));
    }
    if vxlan.ttl != 0 {
        tunnel.ttl = vxlan.ttl;
    }
    tunnel.dscp = match vxlan.tos {
        // The kernel's word for the inner one.
        1 => Dscp::Copy,
        tos => Dscp::Set(tos >> 2),
    };
    for entry in kernel.fdb().filter(|entry| entry.ifindex == link.index) {
        // The flood list has no frames of the path, but its hosts are believed.
        let to = |to: &FdbDestination| (entry.mac, remote((fib, paths), vxlan, to));
        tunnel.remotes.extend(entry.destinations.iter().map(to));
    }
    Some(tunnel)
}

fn remote((fib, paths): (&Fib, &PathMtus), vxlan: &Vxlan, to: &FdbDestination) -> Remote {
    Remote {
        address: to.ip,
        udp_port: to.port.unwrap_or(vxlan.port),
        vni: to.vni.unwrap_or(vxlan.vni),
        hop: hop_to(fib, paths, to.ip),
    }
}

/// The next hop to a remote, with the MTU of the whole way as far as that is known.
fn hop_to(fib: &Fib, paths: &PathMtus, remote: IpAddr) -> Option<Hop> {
    let mut hop = *fib.hop(fib.lookup(remote).ok()?)?;
    hop.mtu = paths.limit(remote, hop.mtu);
    Some(hop)
}
