//! The forwarding entries of VXLAN devices: behind which hosts an Ethernet address is.
//!
//! The kernel tells one row for each destination of an entry, as a neighbour of the bridge
//! family. Rows with `NTF_MASTER` are a bridge's own table, and rows with `NTF_SELF` that lead
//! nowhere are addresses that some other device listens to: neither is kept.
//!
//! Invariants: 00:00:00:00:00:00 (what is flooded) and multicast addresses collect destinations,
//! any other address has one, which a new one replaces without an announcement of the old one's
//! end; an entry without a destination is gone, unless it refers to a next-hop object.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::apply::Effect;
use crate::attributes::{Message, attributes_after, ip, mac, u8_at, u16_be_at, u32_at};
use crate::event::{Event, NEIGHBOUR_HEADER_LEN};
use crate::nexthop;
use crate::state::{Changed, Kernel};
use crate::uapi;

/// A forwarding entry of a VXLAN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdbEntry {
    /// The device.
    pub ifindex: u32,
    /// The Ethernet address; all zeros: every address without an entry of its own, broadcast and
    /// multicast too.
    pub mac: [u8; 6],
    /// The network that it belongs to, on a device that has several (`external`).
    pub vni: Option<u32>,
    /// Where frames to it go: to all of them, but to one of them (by the flow, in proportion to
    /// their weights) when [`Self::nexthop_id`] is given.
    pub destinations: BTreeSet<FdbDestination>,
    /// The next-hop object it refers to; `destinations` is what that object says: nothing if it
    /// is none that forwarding entries can use.
    pub nexthop_id: Option<u32>,
}

/// A host that a forwarding entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbDestination {
    /// The host, or a multicast group.
    pub ip: IpAddr,
    /// The UDP port, if it is not the device's.
    pub port: Option<u16>,
    /// The network identifier to send, if it is not the device's.
    pub vni: Option<u32>,
    /// The link to send out of, if it is not left to the route.
    pub ifindex: Option<u32>,
    /// Its share among the members of a next-hop group; 1 without one.
    pub weight: u32,
}

impl FdbDestination {
    /// A host that is reached as the device says.
    pub fn new(ip: IpAddr) -> Self {
        Self { ip, port: None, vni: None, ifindex: None, weight: 1 }
    }
}

/// What tells entries apart: device, address, network.
pub(crate) type FdbKey = (u32, [u8; 6], Option<u32>);

/// One row of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FdbRow {
    key: FdbKey,
    to: To,
}

/// Where a row leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Host(FdbDestination),
    NextHop(u32),
}

/// Reads a neighbour of the bridge family. The outer `None` is a malformed message, the inner one
/// nothing to keep.
pub(crate) fn fdb_event(message: &Message<'_>) -> Option<Option<Event>> {
    let body = message.body;
    let device = u32_at(body, 4)?;
    if u8_at(body, 10)? & libc::NTF_SELF == 0 {
        return Some(None);
    }
    let (mut address, mut source_vni, mut nexthop_id, mut host) = (None, None, None, None);
    let (mut port, mut vni, mut ifindex) = (None, None, None);
    for (kind, value) in attributes_after(body, NEIGHBOUR_HEADER_LEN) {
        match kind {
            libc::NDA_LLADDR => address = mac(value),
            libc::NDA_DST => host = Some(ip(value)?),
            libc::NDA_PORT => port = Some(u16_be_at(value, 0)?),
            libc::NDA_VNI => vni = Some(u32_at(value, 0)?),
            libc::NDA_IFINDEX => ifindex = Some(u32_at(value, 0)?),
            uapi::NDA_SRC_VNI => source_vni = Some(u32_at(value, 0)?),
            uapi::NDA_NH_ID => nexthop_id = Some(u32_at(value, 0)?),
            _ => {}
        }
    }
    let host = host.map(|ip| To::Host(FdbDestination { ip, port, vni, ifindex, weight: 1 }));
    let Some((address, to)) = address.zip(nexthop_id.map(To::NextHop).or(host)) else {
        return Some(None);
    };
    let row = FdbRow { key: (device, address, source_vni), to };
    Some(Some(match message.kind {
        libc::RTM_NEWNEIGH => Event::Fdb(row),
        _ => Event::FdbGone(row),
    }))
}

/// Whether an address may have several destinations.
fn collects(mac: [u8; 6]) -> bool {
    mac == [0; 6] || mac[0] & 1 != 0
}

fn fdb_changed(fdb: bool) -> Effect {
    Effect { changed: Changed { fdb, ..Changed::default() }, ..Effect::default() }
}

impl Kernel {
    /// All forwarding entries of VXLAN devices, by device and address.
    pub fn fdb(&self) -> impl Iterator<Item = &FdbEntry> {
        self.fdb.values()
    }

    /// The forwarding entry of an address on a VXLAN device of one network. (The entries of a
    /// device with several have their network's identifier: [`Self::fdb`] lists them.)
    pub fn fdb_of(&self, ifindex: u32, mac: [u8; 6]) -> Option<&FdbEntry> {
        self.fdb.get(&(ifindex, mac, None))
    }

    /// Adds a forwarding entry, or replaces the one with its device, address and network.
    pub fn insert_fdb(&mut self, entry: FdbEntry) {
        self.fdb.insert((entry.ifindex, entry.mac, entry.vni), entry);
    }

    pub(crate) fn fdb_seen(&mut self, row: FdbRow) -> Effect {
        let (ifindex, mac, vni) = row.key;
        // A row may come before its link does.
        if self.link(ifindex).is_some_and(|link| link.kind.as_deref() != Some("vxlan")) {
            return Effect::default();
        }
        let before = self.fdb.get(&row.key);
        let mut entry = FdbEntry { ifindex, mac, vni, ..FdbEntry::default() };
        match row.to {
            To::Host(host) => {
                let others = before.filter(|it| collects(mac) && it.nexthop_id.is_none());
                entry.destinations = others.map(|it| it.destinations.clone()).unwrap_or_default();
                entry.destinations.insert(host);
            }
            To::NextHop(id) => {
                entry.nexthop_id = Some(id);
                entry.destinations = nexthop::hosts(&self.nexthops, id);
            }
        }
        let changed = before != Some(&entry);
        if changed {
            self.insert_fdb(entry);
        }
        fdb_changed(changed)
    }

    pub(crate) fn fdb_gone(&mut self, row: FdbRow) -> Effect {
        let Some(entry) = self.fdb.get_mut(&row.key) else { return Effect::default() };
        let found = match row.to {
            To::Host(host) => entry.nexthop_id.is_none() && entry.destinations.remove(&host),
            To::NextHop(id) => entry.nexthop_id == Some(id),
        };
        if found && (entry.nexthop_id.is_some() || entry.destinations.is_empty()) {
            self.fdb.remove(&row.key);
        }
        fdb_changed(found)
    }

    /// Takes the destinations of all entries that refer to an object from the objects again.
    /// Returns whether anything changed.
    pub(crate) fn resolve_fdb(&mut self) -> bool {
        let mut changed = false;
        for entry in self.fdb.values_mut() {
            let Some(id) = entry.nexthop_id else { continue };
            let hosts = nexthop::hosts(&self.nexthops, id);
            changed |= entry.destinations != hosts;
            entry.destinations = hosts;
        }
        changed
    }

    /// Removes what refers to a next-hop object that is gone, as the kernel does without an
    /// announcement. Returns whether anything did.
    pub(crate) fn drop_fdb_by_nexthop(&mut self, id: u32) -> bool {
        let before = self.fdb.len();
        self.fdb.retain(|_, entry| entry.nexthop_id != Some(id));
        self.fdb.len() != before
    }
}
