//! Looks at the machine: the director, netlink, `/proc`, `/sys`. Judges nothing, changes nothing.
//!
//! As root it also has the kernel ask for neighbours: real servers (or their gateways) that it has
//! not heard of, and virtual addresses of this machine, to find out whether anybody else answers
//! for them (what the kernel learns of those it is made to forget). The latter only where the
//! kernel asks from another address of its own: it would otherwise claim the one in question.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_api::Client;
use sluice_config::{Config, Device, document};
use sluice_linux::survey::{Survey, mount_of};
use sluice_linux::{
    Kernel, Link, Mirror, NeighbourState, RouteResult, active_features, lookup, rx_queue_count,
};

use crate::USUAL_FILE;
use crate::advice::Reached;

use super::addresses::vips;
use super::cores::TIME_KEEPERS;
use super::facts::{Facts, Folder, Hop, Interface, Running, Underlay, Way, WorkQueue, covers};

/// keepalived's configuration.
const KEEPALIVED: &str = "etc/keepalived/keepalived.conf";
/// How long a director may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long neighbours may take to answer: the kernel asks three times, a second apart.
const ANSWERS_IN: Duration = Duration::from_millis(3500);
/// How long one that has our address may take: the kernel asks twice within that.
const OTHERS_IN: Duration = Duration::from_millis(1200);
/// Pause between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Most addresses that the network is asked about.
const ASKED: usize = 256;

/// Looks at everything.
///
/// # Errors
/// When the file that was named cannot be read or is wrong.
pub fn look(file: Option<&Path>, socket: &Path) -> Result<Facts, Box<dyn Error>> {
    let survey = Survey::default();
    let mut facts = Facts {
        file: file.map(Path::to_owned),
        reached: Reached::by_socket(socket),
        root: rustix::process::geteuid().is_root(),
        kernel: survey.kernel_release().unwrap_or_default(),
        memory: survey.memory(),
        huge_pages: survey.huge_pages(),
        cpus: survey.cpus(),
        clock: survey.clock(),
        keepalived_runs: !survey.processes("keepalived").is_empty(),
        keepalived: survey.text(KEEPALIVED).ok(),
        forwards_v4: survey.sysctl("net.ipv4.ip_forward").map(|value| value != "0"),
        forwards_v6: survey.sysctl("net.ipv6.conf.all.forwarding").map(|value| value != "0"),
        tracking: tracking(&survey),
        ..Facts::default()
    };
    let runs = |name: &&&str| !survey.processes(name).is_empty();
    facts.time_keepers = TIME_KEEPERS.iter().filter(runs).map(|&name| name.to_owned()).collect();
    let client = Client::new(socket).with_patience(PATIENCE);
    director(&mut facts, &client, &survey);
    configuration(&mut facts, file, &client)?;
    if let Some(config) = facts.wanted.take() {
        facts.state_dir = Some(folder(&survey, &config.director.state_dir));
        facts.pci = pci(&survey, &config);
        facts.work_queues = work_queues(&survey, &config);
        network(&mut facts, &survey, &config);
        facts.wanted = Some(config);
    }
    Ok(facts)
}

fn tracking(survey: &Survey) -> Option<(u64, u64)> {
    let number = |name: &str| survey.sysctl(&format!("net.netfilter.{name}"))?.parse().ok();
    Some((number("nf_conntrack_count")?, number("nf_conntrack_max")?))
}

fn director(facts: &mut Facts, client: &Client, survey: &Survey) {
    let status = match client.status() {
        Ok(status) => status,
        Err(error) => {
            facts.silence = error.to_string();
            return;
        }
    };
    let theirs = survey.network_of(&status.pid.to_string());
    let ours = survey.network_of("self");
    facts.director = Some(Running {
        process: survey.process(status.pid),
        elsewhere: theirs.is_some() && theirs != ours,
        ports: client.ports().unwrap_or_default(),
        ha: client.ha().ok(),
        status,
    });
}

/// From the file that is named, the director, or the usual file.
fn configuration(
    facts: &mut Facts,
    file: Option<&Path>,
    client: &Client,
) -> Result<(), Box<dyn Error>> {
    if let Some(file) = file {
        let loaded = Config::load(file)?;
        facts.origin = file.display().to_string();
        facts.wanted = Some(loaded.config);
        return Ok(());
    }
    if facts.director.is_some() {
        "the director's configuration".clone_into(&mut facts.origin);
        let text = client.config().map(|view| document::to_toml(&view.document(), &|_, _| None));
        match text.map(|text| Config::parse("the director's", &text)) {
            Ok(Ok(loaded)) => facts.wanted = Some(loaded.config),
            Ok(Err(wrong)) => facts.origin = format!("the director's configuration: {wrong}"),
            Err(error) => facts.origin = error.to_string(),
        }
        return Ok(());
    }
    match Config::load(USUAL_FILE) {
        Ok(loaded) => {
            USUAL_FILE.clone_into(&mut facts.origin);
            facts.wanted = Some(loaded.config);
        }
        Err(error) => facts.origin = format!("nothing is known of a configuration: {error}"),
    }
    Ok(())
}

fn folder(survey: &Survey, path: &Path) -> Folder {
    let exists = path.is_dir();
    let there = path.ancestors().find(|it| it.is_dir()).unwrap_or(Path::new("/"));
    let there: PathBuf = there.canonicalize().unwrap_or_else(|_| there.to_path_buf());
    let mounts = survey.mounts();
    let mount = mount_of(&mounts, &there);
    let room = rustix::fs::statvfs(&there).ok();
    Folder {
        path: path.to_path_buf(),
        exists,
        read_only: room
            .as_ref()
            .is_some_and(|it| it.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
        kind: mount.map(|mount| mount.kind.clone()).unwrap_or_default(),
        free_bytes: room.as_ref().map(|it| it.f_bavail.saturating_mul(it.f_frsize)),
    }
}

fn pci(survey: &Survey, config: &Config) -> BTreeMap<String, Option<Option<String>>> {
    let devices = config.ports.iter().filter_map(|port| match &port.device {
        Device::Pci { address } => Some(address.to_string()),
        _ => None,
    });
    devices.map(|address| (address.clone(), survey.pci_driver(&address).ok())).collect()
}

/// Work queues that ports have their frames copied by.
fn work_queues(survey: &Survey, config: &Config) -> BTreeMap<String, Option<WorkQueue>> {
    let engines = config.ports.iter().filter_map(|port| match &port.device {
        Device::Memif(memif) => memif.dma.as_ref(),
        _ => None,
    });
    let names = engines.map(|dma| dma.device.as_str()).filter(|name| name.starts_with("wq"));
    let queue = |name: &str| {
        let word = |file: &str| {
            let text = survey.text(&format!("sys/bus/dsa/devices/{name}/{file}"));
            text.map(|text| text.trim().to_owned())
        };
        let queue = WorkQueue {
            state: word("state").ok()?,
            kind: word("type").unwrap_or_default(),
            mode: word("mode").unwrap_or_default(),
            name: word("name").unwrap_or_default(),
        };
        Some(queue)
    };
    names.map(|name| (name.to_owned(), queue(name))).collect()
}

fn network(facts: &mut Facts, survey: &Survey, config: &Config) {
    let Ok(mut mirror) = Mirror::open() else { return };
    facts.network_seen = true;
    let wanted: BTreeSet<&str> = config
        .ports
        .iter()
        .flat_map(|port| [port.device.interface(), port.twin.as_deref()])
        .flatten()
        .collect();
    for link in mirror.state().links() {
        let deep = wanted.contains(&*link.name);
        let seen = interface(survey, mirror.state(), link, deep);
        facts.interfaces.insert(link.name.clone(), seen);
    }
    let reals: BTreeSet<IpAddr> =
        config.services.iter().flat_map(|it| &it.reals).map(|real| real.address).collect();
    let peers = config.sync.peers.iter().map(std::net::SocketAddr::ip);
    for far in reals.into_iter().chain(peers) {
        facts.ways.insert(far, way(mirror.state(), far));
    }
    if facts.root {
        ask(facts, &mut mirror, config);
    }
}

/// An interface; what takes a question of its own only where it matters.
fn interface(survey: &Survey, kernel: &Kernel, link: &Link, deep: bool) -> Interface {
    let addresses = kernel.addresses().filter(|address| address.ifindex == link.index);
    let filter = |of: &str| {
        survey.sysctl(&format!("net/ipv4/conf/{of}/rp_filter")).and_then(|it| it.parse().ok())
    };
    Interface {
        up: link.admin_up,
        carrier: link.carrier,
        mtu: link.mtu,
        kind: link.kind.clone(),
        driver: survey.driver(&link.name),
        node: survey.node_of(&link.name),
        queues: if deep { rx_queue_count(link).ok() } else { None },
        offloads: if deep { active_features(link).ok() } else { None },
        addresses: addresses.map(|it| (it.ip, it.prefix_len, it.tentative)).collect(),
        // The kernel takes the greater of the two (ip-sysctl: rp_filter).
        rp_filter: filter("all").max(filter(&link.name)),
        underlay: underlay(kernel, link),
    }
}

/// The interface that a VXLAN device sends by: the one it is bound to, the one that has its outer
/// source, or the one on the way to where frames go by default.
fn underlay(kernel: &Kernel, link: &Link) -> Option<Underlay> {
    let vxlan = link.vxlan.as_ref()?;
    let holder = |local: IpAddr| {
        kernel.addresses().find(|address| address.ip == local).map(|address| address.ifindex)
    };
    let towards = |remote: IpAddr| match lookup(kernel, remote) {
        RouteResult::NextHops(targets) => targets.first().map(|target| target.ifindex),
        _ => None,
    };
    let index = vxlan.link.or_else(|| vxlan.local.and_then(holder));
    let below = kernel.link(index.or_else(|| vxlan.remote.and_then(towards))?)?;
    let outer = vxlan.local.or(vxlan.remote);
    // The inner Ethernet header, and outside of it VXLAN, UDP and IP.
    let overhead = 14 + 8 + 8 + if outer.is_some_and(|ip| ip.is_ipv6()) { 40 } else { 20 };
    Some(Underlay { interface: below.name.clone(), mtu: below.mtu, overhead })
}

fn way(kernel: &Kernel, real: IpAddr) -> Way {
    let targets = match lookup(kernel, real) {
        RouteResult::NextHops(targets) => targets,
        RouteResult::Local => return Way::Local,
        RouteResult::Unreachable | RouteResult::Blackhole => return Way::Forbidden,
        RouteResult::Foreign => return Way::Foreign,
        RouteResult::NoRoute => return Way::None,
    };
    let hop = |target: &sluice_linux::Target| {
        let link = kernel.link(target.ifindex);
        Hop {
            interface: link.map(|link| link.name.clone()).unwrap_or_default(),
            neighbour: target.ip,
            answers: answers(kernel, target.ifindex, target.ip),
        }
    };
    Way::Hops(targets.iter().map(hop).collect())
}

/// Whether a neighbour answers; `None` while that is not known.
fn answers(kernel: &Kernel, ifindex: u32, ip: IpAddr) -> Option<bool> {
    match kernel.neighbour(ifindex, ip)?.state {
        NeighbourState::None | NeighbourState::Incomplete => None,
        state => Some(state.is_usable()),
    }
}

/// Asks for what is not known, by the director's ports only, and waits for answers.
fn ask(facts: &mut Facts, mirror: &mut Mirror, config: &Config) {
    let sides = config.ports.iter().filter_map(|port| facts.kernel_side(port));
    let sides: BTreeMap<String, u32> = sides
        .filter_map(|name| Some((name.to_owned(), mirror.state().link_by_name(name)?.index)))
        .collect();
    let hops = facts.ways.values().flat_map(|way| match way {
        Way::Hops(hops) => hops.as_slice(),
        _ => &[],
    });
    let unknown = hops.filter(|hop| hop.answers != Some(true));
    let asked: BTreeSet<(u32, IpAddr)> = unknown
        .filter_map(|hop| Some((*sides.get(&hop.interface)?, hop.neighbour)))
        .take(ASKED)
        .collect();
    let own = own(facts, config, &sides);
    // What was asked for before, by whomever, says nothing of now.
    for (index, vip, _) in &own {
        let _ = mirror.commands().forget_neighbour(*index, *vip);
    }
    let owned: BTreeSet<_> = own.iter().map(|(index, vip, _)| (*index, *vip)).collect();
    facts.probed = asked.iter().chain(&owned).all(|&(index, ip)| mirror.resolve(index, ip).is_ok());
    wait(mirror, &asked, &owned);
    for (index, vip, holder) in own {
        let neighbour = mirror.state().neighbour(index, vip);
        if let Some(mac) = neighbour.and_then(sluice_linux::Neighbour::usable_mac) {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            facts.duplicates.push((vip, holder, mac));
        }
        let _ = mirror.commands().forget_neighbour(index, vip);
    }
    for (real, known) in &mut facts.ways {
        *known = way(mirror.state(), *real);
        let Way::Hops(hops) = known else { continue };
        for hop in hops {
            let index = sides.get(&hop.interface);
            if index.is_some_and(|&index| asked.contains(&(index, hop.neighbour))) {
                // One that was asked and is still being asked does not answer.
                hop.answers = Some(hop.answers.unwrap_or(false));
            }
        }
    }
}

/// Virtual addresses of this machine that the network can be asked about: link, address, interface.
fn own(
    facts: &Facts,
    config: &Config,
    sides: &BTreeMap<String, u32>,
) -> Vec<(u32, IpAddr, String)> {
    let mut own = Vec::new();
    for vip in vips(config).into_iter().filter(IpAddr::is_ipv4).take(ASKED) {
        for holder in facts.holders(vip) {
            if let Some(&index) = sides.get(holder)
                && may_ask(&facts.interfaces[holder], vip)
            {
                own.push((index, vip, holder.to_owned()));
            }
        }
    }
    own
}

/// Whether the kernel would ask from another address than the one in question: one of the same
/// link and network that comes first.
fn may_ask(interface: &Interface, vip: IpAddr) -> bool {
    let first = interface.addresses.iter().find(|(ip, length, _)| covers(*ip, *length, vip));
    interface.up && first.is_some_and(|(ip, ..)| *ip != vip)
}

/// Until all real servers have answered, or no answer will come; and for as long as anybody who has
/// one of our addresses takes to say so.
fn wait(mirror: &mut Mirror, asked: &BTreeSet<(u32, IpAddr)>, owned: &BTreeSet<(u32, IpAddr)>) {
    let begun = Instant::now();
    let known = |mirror: &Mirror, &(index, ip): &(u32, IpAddr)| {
        // One that failed before is still said to have until it answers.
        answers(mirror.state(), index, ip) == Some(true)
    };
    loop {
        let waited = begun.elapsed();
        let reals = waited >= ANSWERS_IN || asked.iter().all(|it| known(mirror, it));
        let others = waited >= OTHERS_IN || owned.iter().all(|it| known(mirror, it));
        if reals && others {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
        if mirror.process().is_err() {
            return;
        }
    }
}
