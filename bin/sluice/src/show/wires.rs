//! `sluice ports`.

use sluice_api::model::{Port, PortState, Ports, SteeringMode};

use super::figures::{count, traffic};
use super::networks::network_of;
use super::table::{Align, Cell, Table};
use super::{BAD, NOTE, Shown};

/// What stands for nothing.
const NONE: &str = "-";

/// Ports: what they are, why one is down, what passed through them, and what steering did.
pub fn ports(ports: &Ports) -> Shown {
    let mut text = what_they_are(&ports.ports);
    for port in &ports.ports {
        if let Some(trouble) = &port.trouble {
            text.push_str(&format!("{}: {trouble}\n", port.name));
        }
    }
    text.push('\n');
    text.push_str(&traffic_of(&ports.ports));
    if let Some(steering) = steering_of(&ports.ports) {
        text.push('\n');
        text.push_str(&steering);
    }
    if let Some(copies) = copies_of(&ports.ports) {
        text.push('\n');
        text.push_str(&copies);
    }
    Shown::new(text)
}

fn what_they_are(ports: &[Port]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PORT", Left),
        ("STATE", Left),
        ("NETWORK", Left),
        ("DEVICE", Left),
        ("DRIVER", Left),
        ("INTERFACE", Left),
        ("TWIN", Left),
        ("MAC", Left),
        ("MTU", Right),
        ("QUEUES", Right),
    ]);
    let or_none =
        |text: Option<&str>| Cell::from(text.filter(|text| !text.is_empty()).unwrap_or(NONE));
    for port in ports {
        let state = match port.state {
            PortState::Up => Cell::from("up"),
            PortState::Down => Cell::from("down").style(NOTE),
            PortState::Gone => Cell::from("gone").style(BAD),
        };
        table.row([
            port.name.as_str().into(),
            state,
            network_of(&port.network).into(),
            port.device.as_str().into(),
            or_none(Some(&port.driver)),
            or_none(port.interface.as_deref()),
            or_none(port.twin.as_deref()),
            or_none(port.mac.as_deref()),
            or_none(port.mtu.map(|mtu| mtu.to_string()).as_deref()),
            port.queues.to_string().into(),
        ]);
    }
    table.without("NETWORK", ports.iter().all(|port| port.network.is_none())).text()
}

fn traffic_of(ports: &[Port]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PORT", Left),
        ("RX PACKETS", Right),
        ("RX BYTES", Right),
        ("MISSED", Right),
        ("ERRORS", Right),
        ("TX PACKETS", Right),
        ("TX BYTES", Right),
        ("ERRORS", Right),
    ]);
    let lost = |number: u64| Cell::from(count(number)).style_if(number > 0, NOTE);
    for port in ports {
        table.row([
            port.name.as_str().into(),
            count(port.rx.packets).into(),
            traffic(port.rx.bytes).into(),
            lost(port.rx.missed),
            lost(port.rx.errors),
            count(port.tx.packets).into(),
            traffic(port.tx.bytes).into(),
            lost(port.tx.errors),
        ]);
    }
    table.text()
}

/// `None` when no port is steered.
fn steering_of(ports: &[Port]) -> Option<String> {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PORT", Left),
        ("XDP", Left),
        ("TAKEN", Right),
        ("PASSED TO KERNEL", Right),
        ("UNOWNED", Right),
    ]);
    let mut steered = false;
    for port in ports {
        let Some(steering) = &port.steering else { continue };
        steered = true;
        let mode = match steering.mode {
            SteeringMode::Native => "native",
            SteeringMode::Generic => "generic",
        };
        table.row([
            port.name.as_str().into(),
            mode.into(),
            count(steering.taken).into(),
            count(steering.passed).into(),
            Cell::from(count(steering.unowned)).style_if(steering.unowned > 0, NOTE),
        ]);
    }
    steered.then(|| table.text())
}

/// `None` when no port has a copy engine.
fn copies_of(ports: &[Port]) -> Option<String> {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PORT", Left),
        ("COPIES BY DMA", Right),
        ("ENGINE FULL", Right),
        ("FAILED", Right),
    ]);
    let mut any = false;
    for port in ports {
        let Some(copies) = &port.copies else { continue };
        any = true;
        table.row([
            port.name.as_str().into(),
            count(copies.offloaded).into(),
            Cell::from(count(copies.full)).style_if(copies.full > 0, NOTE),
            Cell::from(count(copies.failed)).style_if(copies.failed > 0, BAD),
        ]);
    }
    any.then(|| table.text())
}
