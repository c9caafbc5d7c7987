//! What was seen of the machine, as plain data. `None` is what could not be seen or is not there,
//! as each field says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use crate::advice::Reached;
use sluice_api::model::{Ha, Ports, Status};
use sluice_config::Config;
use sluice_linux::survey::{Clock, Cpus, HugePages, Memory, Process};

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What is configured, and where that is said; an error in words when nothing is known.
    pub wanted: Option<Config>,
    /// Where `wanted` comes from, or why there is none.
    pub origin: String,
    /// The file that was named.
    pub file: Option<PathBuf>,
    /// How the director was asked, as advised commands ask it.
    pub reached: Reached,
    /// The director that answers, or why none does.
    pub director: Option<Running>,
    /// Why no director answers.
    pub silence: String,
    /// Whether this is root.
    pub root: bool,
    /// The kernel's release; empty where unknown.
    pub kernel: String,
    /// Memory.
    pub memory: Option<Memory>,
    /// Huge pages of all nodes and sizes.
    pub huge_pages: Vec<HugePages>,
    /// Processors.
    pub cpus: Cpus,
    /// The clock source.
    pub clock: Option<Clock>,
    /// Who keeps the clock right: names of programs that run.
    pub time_keepers: Vec<String>,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, Interface>,
    /// Whether there could be interfaces: the kernel was asked and answered.
    pub network_seen: bool,
    /// PCI devices that are ports: bound to this driver, to none, or not there.
    pub pci: BTreeMap<String, Option<Option<String>>>,
    /// Work queues of copy engines that ports name, `wq0.0`; `None` for one that is not there.
    pub work_queues: BTreeMap<String, Option<WorkQueue>>,
    /// `net.ipv4.ip_forward`.
    pub forwards_v4: Option<bool>,
    /// `net.ipv6.conf.all.forwarding`.
    pub forwards_v6: Option<bool>,
    /// Entries of connection tracking and their limit, where it is loaded.
    pub tracking: Option<(u64, u64)>,
    /// Ways to real servers and to the peers of session synchronisation.
    pub ways: BTreeMap<IpAddr, Way>,
    /// Own addresses that somebody else answered for, with their MAC address.
    pub duplicates: Vec<(IpAddr, String, String)>,
    /// Whether somebody was asked about duplicates.
    pub probed: bool,
    /// Whether `keepalived` runs.
    pub keepalived_runs: bool,
    /// The text of its configuration, if it has one that can be read.
    pub keepalived: Option<String>,
    /// The folder of the state.
    pub state_dir: Option<Folder>,
}

/// A director that answers.
#[derive(Clone, Debug)]
pub struct Running {
    /// What it says of itself.
    pub status: Status,
    /// Its ports.
    pub ports: Ports,
    /// High availability; `None` when it does not say.
    pub ha: Option<Ha>,
    /// What it may do; `None` when that is hidden from us.
    pub process: Option<Process>,
    /// Whether it is in another network namespace than this command.
    pub elsewhere: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Set up by the administrator.
    pub up: bool,
    /// With a carrier.
    pub carrier: bool,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// `veth`, `bridge`…; `None` for hardware.
    pub kind: Option<String>,
    /// Its device's driver.
    pub driver: Option<String>,
    /// NUMA node of its device.
    pub node: Option<u16>,
    /// Receive queues in use.
    pub queues: Option<u32>,
    /// Offloads that are on, by the kernel's names; `None` where the kernel does not tell.
    pub offloads: Option<BTreeSet<String>>,
    /// Its addresses, with the length of the prefix and whether it is tentative.
    pub addresses: Vec<(IpAddr, u8, bool)>,
    /// `rp_filter` of the interface or of all, whichever is greater, as the kernel takes it.
    pub rp_filter: Option<u8>,
    /// What carries its packets, for a VXLAN device.
    pub underlay: Option<Underlay>,
}

/// The interface by which a VXLAN device's packets leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// Its name.
    pub interface: String,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Bytes that are added to an inner IP packet.
    pub overhead: u32,
}

/// A work queue of the kernel's `idxd` driver, by the words of its files in
/// `/sys/bus/dsa/devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQueue {
    /// `enabled`, `disabled`.
    pub state: String,
    /// `user`, `kernel`, `none`.
    pub kind: String,
    /// `dedicated`, `shared`.
    pub mode: String,
    /// What the administrator calls it.
    pub name: String,
}

/// How a real server or a peer is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By these: interface, next hop, and what is known of the neighbour.
    Hops(Vec<Hop>),
    /// It is this machine itself.
    Local,
    /// A route forbids it.
    Forbidden,
    /// Only the kernel can go there.
    Foreign,
    /// There is no route.
    None,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// By this interface.
    pub interface: String,
    /// To this neighbour.
    pub neighbour: IpAddr,
    /// Whether it answered: `None` when it was not asked.
    pub answers: Option<bool>,
}

/// A folder for files that must last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// Whether it is there.
    pub exists: bool,
    /// Whether the file system takes changes.
    pub read_only: bool,
    /// Type of the file system.
    pub kind: String,
    /// Bytes that are free.
    pub free_bytes: Option<u64>,
}

impl Facts {
    /// The configuration, or an empty list's worth of nothing to say.
    pub fn config(&self) -> Option<&Config> {
        self.wanted.as_ref()
    }

    /// The kernel's interface on which it sees a port's traffic: the device itself or its twin.
    pub fn kernel_side<'f>(&self, port: &'f sluice_config::Port) -> Option<&'f str> {
        port.twin.as_deref().or_else(|| port.device.interface())
    }

    /// Interfaces that have an address.
    pub fn holders(&self, address: IpAddr) -> Vec<&str> {
        let has = |it: &&Interface| it.addresses.iter().any(|(ip, ..)| *ip == address);
        let all = self.interfaces.iter().filter(|(_, it)| has(it));
        all.map(|(name, _)| name.as_str()).collect()
    }

    /// Interfaces on whose link an address would be, if somebody had it.
    pub fn on_link(&self, address: IpAddr) -> Vec<&str> {
        let covers = |it: &&Interface| {
            it.addresses.iter().any(|(ip, length, _)| {
                let full = if ip.is_ipv4() { 32 } else { 128 };
                *length < full && *ip != address && covers(*ip, *length, address)
            })
        };
        let all = self.interfaces.iter().filter(|(_, it)| covers(it));
        all.map(|(name, _)| name.as_str()).collect()
    }
}

/// Whether two addresses share a prefix of that length.
pub fn covers(network: IpAddr, length: u8, address: IpAddr) -> bool {
    let prefix = sluice_config::Prefix::new(masked(network, length), length);
    prefix.is_some_and(|prefix| prefix.range().contains(address))
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & kept).into())
        }
        IpAddr::V6(ip) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & kept).into())
        }
    }
}
