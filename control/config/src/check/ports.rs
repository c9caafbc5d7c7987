//! Ports: each device and each interface name is used once, and twins make sense.

use super::{Bounds, unique, unique_names};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Config, Device, Memif, Port};

pub(super) fn check(config: &Config, bounds: &Bounds, report: &mut Report) {
    let path = |index| Path::table(Place::Port, index);
    if config.ports.is_empty() && !report.is_broken(Path::FILE.key("port")) {
        let hint = "add a [[port]] section with a name and a device, such as \"af_xdp:eth0\"";
        report.error(Path::FILE, "there is no port", hint);
    }
    if config.ports.len() > bounds.ports {
        let found = format!("{} ports are defined", config.ports.len());
        report.error(path(bounds.ports), found, format!("define at most {}", bounds.ports));
    }
    let names = config.ports.iter().enumerate();
    let names = names.map(|(index, port)| (port.name.as_str(), path(index).key("name")));
    unique_names("port", names, report);
    check_devices(config, report);
    for (index, port) in config.ports.iter().enumerate() {
        check_twin(port, path(index).key("twin"), report);
    }
}

/// Reports devices, interfaces and output files that are used twice.
fn check_devices(config: &Config, report: &mut Report) {
    let mut uses = Vec::new();
    for (index, port) in config.ports.iter().enumerate() {
        let path = Path::table(Place::Port, index);
        let device = path.key("device");
        if !report.is_broken(device) {
            uses.extend(what_it_uses(&port.device).map(|what| (what, device)));
        }
        if let Some(twin) = &port.twin {
            uses.push((interface(twin), path.key("twin")));
        }
    }
    unique(uses, report, |what, line| {
        let found = format!("{what} is used already (line {line})");
        (found, "name each device, interface and output file once".to_owned())
    });
    let macs =
        config.ports.iter().enumerate().filter_map(|(index, port)| {
            Some((port.mac?, Path::table(Place::Port, index).key("mac")))
        });
    unique(macs, report, |mac, line| {
        let found = format!("another port has the MAC address {mac} already (line {line})");
        (found, "give each port a MAC address of its own".to_owned())
    });
}

fn interface(name: &str) -> String {
    format!("interface {name:?}")
}

/// What of the machine a device takes for itself; nothing when it only reads a file.
fn what_it_uses(device: &Device) -> Option<String> {
    match device {
        Device::AfXdp { interface: name, .. }
        | Device::AfPacket { interface: name }
        | Device::Vxlan { interface: name }
        | Device::Tap { name } => Some(interface(name)),
        Device::Pci { address } => Some(format!("PCI device {address}")),
        Device::Memif(Memif { socket, id, .. }) => Some(format!("memif {socket:?} with id {id}")),
        Device::Pcap { tx, .. } => tx.as_ref().map(|tx| format!("output file {tx:?}")),
        Device::Dpdk { devargs } => Some(format!("DPDK device {devargs:?}")),
    }
}

fn check_twin(port: &Port, path: Path, report: &mut Report) {
    if port.twin.is_some() && !port.device.may_have_twin() {
        let (kind, why) = match port.device {
            Device::AfXdp { .. } => ("af_xdp", "the kernel keeps the interface itself"),
            Device::Vxlan { .. } => ("vxlan", "the kernel has the interface"),
            Device::Tap { .. } => ("tap", "the kernel is at its other end already"),
            _ => (port.device.kind(), "it has no kernel behind it"),
        };
        let found = format!("a port by {kind} cannot have a twin");
        report.error(path, found, format!("leave `twin` out: {why}"));
    }
}
