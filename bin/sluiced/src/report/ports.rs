//! Ports as they are shown: those that are open, and VXLAN ports, whose devices are the kernel's.

use super::named;
use crate::ports::{Open, PortSlot, Ports};
use crate::tunnels;
use sluice_api::model;
use sluice_director::fib::PortId;
use sluice_dpdk::PortState;
use sluice_linux::Kernel;
use sluice_worker::{Carried, Report};

/// Name and device of each port, by its id.
pub fn port_names(ports: &Ports) -> Vec<(String, String)> {
    let named = |slot: &PortSlot| (slot.config.name.clone(), slot.config.device.to_string());
    ports.slots.iter().map(named).collect()
}

/// Ports as they are shown, with what workers say that VXLAN ports have carried.
pub fn ports(ports: &Ports, kernel: &Kernel, reports: &[Report]) -> model::Ports {
    let shown = |(id, slot): (PortId, &PortSlot)| match slot.is_tunnel() {
        true => tunnel(kernel, closed(slot), carried(reports, id)),
        false => port(slot),
    };
    model::Ports { ports: (0..).map(PortId).zip(&ports.slots).map(shown).collect() }
}

/// What all workers have carried by a VXLAN port.
fn carried(reports: &[Report], port: PortId) -> Carried {
    let all = reports.iter().flat_map(|report| &report.tunnels);
    all.filter(|(of, _)| *of == port).fold(Carried::default(), |sum, (_, one)| Carried {
        rx_frames: sum.rx_frames + one.rx_frames,
        rx_bytes: sum.rx_bytes + one.rx_bytes,
        tx_frames: sum.tx_frames + one.tx_frames,
        tx_bytes: sum.tx_bytes + one.tx_bytes,
    })
}

/// A VXLAN port: its device is the kernel's.
fn tunnel(kernel: &Kernel, closed: model::Port, carried: Carried) -> model::Port {
    let name = closed.interface.as_deref().unwrap_or_default();
    let (trouble, link) = (tunnels::trouble(kernel, name), kernel.link_by_name(name));
    let state = match (&trouble, link) {
        (None, _) => model::PortState::Up,
        (Some(_), Some(_)) => model::PortState::Down,
        (Some(_), None) => model::PortState::Gone,
    };
    model::Port {
        driver: link.map_or_else(String::new, |_| "vxlan".to_owned()),
        mac: link.and_then(|link| link.mac).map(written),
        mtu: link.and_then(|link| u16::try_from(link.mtu).ok()),
        state,
        trouble,
        rx: model::Received {
            packets: carried.rx_frames,
            bytes: carried.rx_bytes,
            ..model::Received::default()
        },
        tx: model::Sent {
            packets: carried.tx_frames,
            bytes: carried.tx_bytes,
            ..model::Sent::default()
        },
        ..closed
    }
}

fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A port as far as the configuration says it.
fn closed(slot: &PortSlot) -> model::Port {
    let config = &slot.config;
    model::Port {
        name: config.name.clone(),
        device: config.device.to_string(),
        network: named(&config.network),
        driver: String::new(),
        interface: config.device.interface().map(str::to_owned),
        mac: None,
        mtu: None,
        state: model::PortState::Gone,
        trouble: None,
        queues: 0,
        twin: config.twin.clone(),
        rx: model::Received::default(),
        tx: model::Sent::default(),
        steering: None,
        copies: None,
    }
}

fn port(slot: &PortSlot) -> model::Port {
    let closed = closed(slot);
    let Some(Open { port, twin, steer, .. }) = &slot.open else { return closed };
    let stats = port.stats();
    let control = twin.as_ref().unwrap_or(port).interface();
    model::Port {
        driver: port.driver().to_owned(),
        interface: control.map(|(name, _)| name.to_owned()),
        mac: Some(written(port.mac())),
        mtu: Some(port.mtu()),
        state: match port.state() {
            PortState::Up => model::PortState::Up,
            PortState::Down => model::PortState::Down,
            PortState::Gone => model::PortState::Gone,
        },
        trouble: port.trouble(),
        queues: port.queues(),
        rx: model::Received {
            packets: stats.rx_frames,
            bytes: stats.rx_bytes,
            missed: stats.rx_missed + stats.rx_no_buffer,
            errors: stats.rx_errors,
        },
        tx: model::Sent {
            packets: stats.tx_frames,
            bytes: stats.tx_bytes,
            errors: stats.tx_errors,
        },
        steering: steer.as_ref().and_then(steering),
        copies: port.copies().map(|copies| model::Copies {
            offloaded: copies.offloaded,
            full: copies.full,
            failed: copies.failed,
        }),
        ..closed
    }
}

fn steering(steer: &sluice_steer::Steer) -> Option<model::Steering> {
    let counters = steer.counters().ok()?;
    Some(model::Steering {
        mode: match steer.mode() {
            sluice_steer::Mode::Native => model::SteeringMode::Native,
            sluice_steer::Mode::Generic => model::SteeringMode::Generic,
        },
        taken: counters.taken,
        passed: counters.passed,
        unowned: counters.unowned,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::Config;
    use sluice_linux::{Link, Vxlan};

    /// A kernel with a VXLAN device, up or not.
    fn kernel(up: bool) -> Kernel {
        let local = Some([203, 0, 113, 1].into());
        let mut kernel = Kernel::default();
        kernel.insert_link(Link {
            index: 7,
            name: "vx42".to_owned(),
            mac: Some([2, 0, 0, 0, 0, 0x2a]),
            mtu: 1450,
            admin_up: up,
            vxlan: Some(Vxlan { vni: 42, local, port: 4789, ..Vxlan::default() }),
            ..Link::default()
        });
        kernel
    }

    /// As the configuration has it, with no kernel seen yet.
    fn slot() -> PortSlot {
        let text = "[[network]]\nname = \"blue\"\ntable = 1001\nsessions = 1000\n\
                    [[port]]\nname = \"front\"\ndevice = \"af_xdp:eth0\"\n\
                    [[port]]\nname = \"inside\"\ndevice = \"vxlan:vx42\"\nnetwork = \"blue\"\n";
        let config = Config::parse("file", text).expect("a configuration").config;
        let network = config.network_id("blue").expect("a network");
        PortSlot::new(config.ports[1].clone(), network)
    }

    #[test]
    fn what_workers_have_carried_is_added_up() {
        let one = Carried { rx_frames: 1, rx_bytes: 60, tx_frames: 2, tx_bytes: 200 };
        let report = |ports: &[u16]| Report {
            tunnels: ports.iter().map(|port| (PortId(*port), one)).collect(),
            ..Report::default()
        };
        let reports = [report(&[3, 4]), report(&[3]), report(&[])];
        let sum = Carried { rx_frames: 2, rx_bytes: 120, tx_frames: 4, tx_bytes: 400 };
        assert_eq!(carried(&reports, PortId(3)), sum);
        assert_eq!(carried(&reports, PortId(4)), one);
        assert_eq!(carried(&reports, PortId(0)), Carried::default());
    }

    #[test]
    fn a_vxlan_port_is_as_its_device_is() {
        let slot = slot();
        let state = |kernel: &Kernel| {
            let shown = tunnel(kernel, closed(&slot), Carried::default());
            let other = (shown.driver, shown.mac, shown.mtu);
            assert_eq!(shown.interface.as_deref(), Some("vx42"));
            assert_eq!(shown.network.as_deref(), Some("blue"));
            (shown.state, shown.trouble, other)
        };
        let mac = Some("02:00:00:00:00:2a".to_owned());
        let there = ("vxlan".to_owned(), mac, Some(1450));
        let up = state(&kernel(true));
        assert_eq!(up, (model::PortState::Up, None, there.clone()));
        let trouble = Some("vx42 is set down".to_owned());
        let down = state(&kernel(false));
        assert_eq!(down, (model::PortState::Down, trouble, there));
        let trouble = Some("there is no interface vx42".to_owned());
        let gone = state(&Kernel::default());
        assert_eq!(gone, (model::PortState::Gone, trouble, (String::new(), None, None)));
    }
}
