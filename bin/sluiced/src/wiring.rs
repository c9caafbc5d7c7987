//! From a configuration to what the parts of the process are started with.

use crate::errors::Error;
use sluice_config::{Config, HugePages};
use sluice_director::path::{PagePolicy, Parking};
use sluice_director::plan::{Plan, Retired};
use sluice_dpdk::{Device, DmaCopies, EalConfig, Memif, MemifRole, PortConfig, XdpDriver};

/// Packets that a worker may have in its hands, besides those in ports: bursts, rings, caches.
const FRAMES_PER_WORKER: u32 = 4096;
/// Ethernet header with two VLAN tags.
const LINK_HEADER: u16 = 22;
/// The MTU that is assumed where the configuration names none.
const USUAL_MTU: u16 = 1500;

/// Compiles the packet path's part of a configuration.
pub fn compile(config: &Config, before: Option<&Plan>, retired: &Retired) -> Result<Plan, Error> {
    Ok(Plan::compile(&config.spec(), before, retired)?)
}

/// Pages of the session tables.
pub const fn table_pages(config: &Config) -> PagePolicy {
    match config.director.huge_pages {
        HugePages::Auto => PagePolicy::Auto,
        HugePages::Required => PagePolicy::HugeOnly,
        HugePages::Off => PagePolicy::Ordinary,
    }
}

/// A port's device in DPDK's terms; none for a tunnel, which has no device of its own.
pub fn device(from: &sluice_config::Device) -> Option<Device> {
    use sluice_config::Device as From;
    Some(match from.clone() {
        From::Vxlan { .. } => return None,
        From::AfXdp { interface, driver } => {
            let driver = match driver {
                sluice_config::XdpDriver::Own { busy_poll } => XdpDriver::Own { busy_poll },
                sluice_config::XdpDriver::Dpdk => XdpDriver::Dpdk,
            };
            Device::AfXdp { interface, driver }
        }
        From::AfPacket { interface } => Device::AfPacket { interface },
        From::Pci { address } => Device::Pci { address: address.to_string() },
        From::Memif(memif) => {
            let role = match memif.role {
                sluice_config::MemifRole::Client => MemifRole::Client,
                sluice_config::MemifRole::Server => MemifRole::Server,
            };
            Device::Memif(Memif {
                socket: memif.socket,
                id: memif.id,
                role,
                ip: memif.mode == sluice_config::MemifMode::Ip,
                secret_file: memif.secret_file.map(Into::into),
                ring: memif.ring,
                buffer: memif.buffer,
                copies: memif.dma.map(|dma| DmaCopies { device: dma.device, from: dma.from }),
            })
        }
        From::Tap { name } => Device::Tap { name },
        From::Pcap { rx: Some(rx), tx: Some(tx) } => Device::Pcap { rx: rx.into(), tx: tx.into() },
        From::Pcap { rx, tx } => Device::Dpdk { devargs: one_way_pcap(rx, tx) },
        From::Dpdk { devargs } => Device::Dpdk { devargs },
    })
}

/// Capture files for one direction only: the driver does nothing in the other. Its name tells
/// devices apart, so it is made from the file's.
fn one_way_pcap(rx: Option<String>, tx: Option<String>) -> String {
    let file = rx.as_ref().or(tx.as_ref()).map_or("", String::as_str);
    let name: String = file.chars().filter(char::is_ascii_alphanumeric).collect();
    let way = if rx.is_some() { "rx" } else { "tx" };
    let tail = &name[name.len().saturating_sub(40)..];
    format!("net_pcap_{way}{tail},{way}_pcap={file}")
}

/// Packets that may wait at a worker, for neighbours in each network and for other fragments: what
/// one network has waiting is not to leave another without buffers.
fn waiting(config: &Config) -> u32 {
    let isolated = config.networks.len() as u32;
    (isolated + 1) * config.limits.held_frames + isolated * Parking::<()>::PLACES as u32
}

/// How the environment layer is started: enough frames for every port, each with as many queues
/// as `queues` says.
pub fn eal(config: &Config, queues: impl Fn(&sluice_config::Port) -> u16) -> EalConfig {
    let workers = config.workers() as u32;
    let of_ports: u32 = config
        .ports
        .iter()
        .filter_map(|port| Some((port, device(&port.device)?)))
        .map(|(port, device)| {
            let queues = queues(port);
            let line = PortConfig { queues, ..PortConfig::new("", device) };
            let twin =
                PortConfig { queues, ..PortConfig::new("", Device::Tap { name: String::new() }) };
            line.frames() + if port.twin.is_some() { twin.frames() } else { 0 }
        })
        .sum();
    let large_frames = config.ports.iter().filter_map(|port| {
        let line = PortConfig::new("", device(&port.device)?);
        Some(PortConfig { queues: queues(port), ..line }.large_frames())
    });
    // Large frames of AF_PACKET ports have large buffers.
    let small = |port: &&sluice_config::Port| {
        !matches!(port.device, sluice_config::Device::AfPacket { .. })
    };
    let largest = config.ports.iter().filter(small).filter_map(|port| port.mtu).max();
    let largest = largest.unwrap_or(USUAL_MTU);
    let pci = config.ports.iter().filter_map(|port| match &port.device {
        sluice_config::Device::Pci { address } => Some(address.to_string()),
        // Other engines have names: work queues of the kernel's driver, and virtual devices.
        sluice_config::Device::Memif(memif) => {
            let engine = memif.dma.as_ref().map(|dma| dma.device.clone());
            engine.filter(|engine| engine.contains(':'))
        }
        _ => None,
    });
    EalConfig {
        huge_pages: match config.director.huge_pages {
            HugePages::Auto => sluice_dpdk::HugePages::Auto,
            HugePages::Required => sluice_dpdk::HugePages::Required,
            HugePages::Off => sluice_dpdk::HugePages::Off,
        },
        frames: of_ports + workers * (FRAMES_PER_WORKER + waiting(config)),
        large_frames: large_frames.sum(),
        max_frame: largest.max(USUAL_MTU) + LINK_HEADER,
        pci_allow: pci.collect(),
        ..EalConfig::default()
    }
}
