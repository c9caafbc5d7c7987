//! Ports: whether their devices are there, and driven as well as they may be.

use sluice_api::model::{Port as Shown, PortState, SteeringMode};
use sluice_config::{Config, Device, Port, XdpDriver};

use super::facts::{Facts, Interface, Underlay};
use super::finding::{Finding, Mark, Section};

/// Offloads of a virtual interface that leave checksums to hardware that is not there.
const CHECKSUMS: [&str; 2] = ["tx-checksum-ip-generic", "tx-checksum-ipv4"];

/// Largest IP packet of an AF_XDP port in bytes: a frame's page less what the kernel keeps of it.
const XDP_MTU: u32 = 3498;
/// The MTU that packet buffers are made for at least.
const USUAL_MTU: u32 = 1500;

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(config) = facts.config() else { return Vec::new() };
    if !facts.network_seen {
        let text = "the kernel would not list interfaces: is netlink allowed here?".to_owned();
        return vec![find("port", Mark::Unseen, text)];
    }
    let mut findings = Vec::new();
    for port in &config.ports {
        let before = findings.len();
        findings.extend(device(facts, config, port));
        findings.extend(running(facts, port));
        if findings.len() == before {
            let text = format!("{} ({}) is well{}", port.name, port.device, way(facts, port));
            findings.push(find("port", Mark::Ok, text));
        }
    }
    findings
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Ports, id, mark, text)
}

fn shown<'f>(facts: &'f Facts, port: &Port) -> Option<&'f Shown> {
    facts.director.as_ref()?.ports.ports.iter().find(|it| it.name == port.name)
}

/// How packets come in, where a director says so.
fn way(facts: &Facts, port: &Port) -> String {
    let steering = shown(facts, port).and_then(|shown| shown.steering);
    match steering.map(|steering| steering.mode) {
        Some(SteeringMode::Native) => ": XDP in the driver".to_owned(),
        _ => String::new(),
    }
}

fn device(facts: &Facts, config: &Config, port: &Port) -> Vec<Finding> {
    match &port.device {
        Device::Pci { address } => pci(facts, port, &address.to_string()),
        Device::AfXdp { interface, .. } | Device::AfPacket { interface } => {
            let Some(seen) = facts.interfaces.get(interface) else {
                return vec![absent(facts, port, interface)];
            };
            let mut findings = link(port, interface, seen);
            findings.extend(mtu(facts, port, interface, seen));
            findings.extend(match &port.device {
                Device::AfXdp { .. } => af_xdp(config, port, interface, seen),
                _ => af_packet(facts, port, interface, seen),
            });
            findings.extend(path_filter(facts, port));
            findings
        }
        Device::Vxlan { interface } if !facts.interfaces.contains_key(interface) => {
            vec![absent(facts, port, interface)]
        }
        Device::Vxlan { interface } => facts
            .interfaces
            .get(interface)
            .and_then(|it| tunnel(port, interface, it))
            .into_iter()
            .collect(),
        Device::Memif(memif) => memif
            .dma
            .as_ref()
            .and_then(|dma| engine(facts, port, &dma.device))
            .into_iter()
            .collect(),
        // Made by the director, or files.
        Device::Tap { .. } | Device::Pcap { .. } | Device::Dpdk { .. } => Vec::new(),
    }
}

/// A VXLAN device whose packets do not fit what carries them: the director answers what is too
/// large, and the kernel, which uses the device too, cuts it or loses it.
fn tunnel(port: &Port, interface: &str, seen: &Interface) -> Option<Finding> {
    let Underlay { interface: below, mtu, overhead } = seen.underlay.as_ref()?;
    let most = mtu.saturating_sub(*overhead);
    let text = format!(
        "port {}: {interface} takes packets of {} bytes; with {overhead} around them they do not \
         fit {below} ({mtu}), and what the kernel sends is fragmented or lost",
        port.name, seen.mtu
    );
    let fix = format!("ip link set {interface} mtu {most}");
    let advice = format!("or give {below}, and all on the way, {} bytes", seen.mtu + overhead);
    (seen.mtu > most).then(|| find("vxlan_mtu", Mark::Warn, text).advise(advice).fix(fix))
}

/// A copy engine that DPDK would not take: its driver looks for dedicated queues of users whose
/// names begin with `dpdk_` (dma_idxd's guide).
fn engine(facts: &Facts, port: &Port, device: &str) -> Option<Finding> {
    let queue = facts.work_queues.get(device)?;
    let name = &port.name;
    let Some(queue) = queue else {
        let text = format!("port {name}: there is no work queue {device}");
        let advice =
            "`accel-config list` shows those that there are; the kernel's driver is `idxd`";
        return Some(find("dma_absent", Mark::Fail, text).advise(advice));
    };
    let (group, _) = device.trim_start_matches("wq").split_once('.')?;
    let mut wrong = Vec::new();
    if queue.state != "enabled" {
        wrong.push(format!("is {}", queue.state));
    }
    if queue.kind != "user" {
        wrong.push(format!("is of type `{}`, not `user`", queue.kind));
    }
    if queue.mode != "dedicated" {
        wrong.push(format!("is {}, not dedicated", queue.mode));
    }
    if !queue.name.starts_with("dpdk_") {
        wrong.push(format!("is named `{}`, not `dpdk_…`", queue.name));
    }
    let engine = format!("dsa{group}");
    let text = format!("port {name}: work queue {device} {}", wrong.join(", and "));
    let finding = find("dma_queue", Mark::Fail, text)
        .advise("DPDK takes dedicated queues of type `user` whose names begin with `dpdk_`")
        .fix(format!("accel-config disable-wq {engine}/{device}"))
        .fix(format!(
            "accel-config config-wq {engine}/{device} --mode=dedicated --type=user \
             --name=dpdk_{device} --group-id=0 --priority=10 --wq-size=128"
        ))
        .fix(format!("accel-config enable-device {engine}"))
        .fix(format!("accel-config enable-wq {engine}/{device}"));
    (!wrong.is_empty()).then_some(finding)
}

fn absent(facts: &Facts, port: &Port, interface: &str) -> Finding {
    let text = format!("port {}: there is no interface {interface}", port.name);
    let known: Vec<&str> =
        facts.interfaces.keys().map(String::as_str).filter(|&name| name != "lo").collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    find("port_absent", Mark::Fail, text).advise(format!(
        "name one that there is ({known}) as its `device`, or run this in the director's network \
         namespace"
    ))
}

fn pci(facts: &Facts, port: &Port, address: &str) -> Vec<Finding> {
    let bind = format!("dpdk-devbind.py -b vfio-pci {address}");
    match facts.pci.get(address) {
        None | Some(None) => {
            let text = format!("port {}: there is no PCI device {address}", port.name);
            let advice = "look for its address with `dpdk-devbind.py -s` or `lspci -D`";
            vec![find("pci_absent", Mark::Fail, text).advise(advice)]
        }
        Some(Some(Some(driver))) if driver == "vfio-pci" => Vec::new(),
        // Bifurcated drivers share their device with the kernel.
        Some(Some(Some(driver))) if driver == "mlx5_core" || driver == "mlx4_core" => Vec::new(),
        Some(Some(driver)) => {
            let by = driver.as_deref().unwrap_or("no driver");
            let text = format!("port {}: {address} is bound to {by}, not to vfio-pci", port.name);
            let advice = "the kernel loses the interface then: not the one you are logged in by";
            let finding = find("pci_driver", Mark::Fail, text).advise(advice);
            vec![finding.fix("modprobe vfio-pci").fix(bind)]
        }
    }
}

fn link(port: &Port, interface: &str, seen: &Interface) -> Vec<Finding> {
    let name = &port.name;
    if !seen.up {
        let text = format!("port {name}: {interface} is set down");
        return vec![
            find("port_down", Mark::Fail, text).fix(format!("ip link set {interface} up")),
        ];
    }
    if !seen.carrier {
        let text = format!("port {name}: {interface} has no carrier");
        let advice = "look at the cable and at the far end: it is not up";
        return vec![find("port_carrier", Mark::Fail, text).advise(advice)];
    }
    Vec::new()
}

fn mtu(facts: &Facts, port: &Port, interface: &str, seen: &Interface) -> Vec<Finding> {
    let Some(wanted) = port.mtu.filter(|&wanted| u32::from(wanted) > seen.mtu) else {
        return Vec::new();
    };
    // A director that runs has set it if it could.
    let mark = if facts.director.is_some() { Mark::Fail } else { Mark::Warn };
    let text = format!(
        "port {}: `mtu` is {wanted}, and {interface} takes packets of {} bytes",
        port.name, seen.mtu
    );
    vec![find("port_mtu", mark, text).fix(format!("ip link set {interface} mtu {wanted}"))]
}

fn af_xdp(config: &Config, port: &Port, interface: &str, seen: &Interface) -> Vec<Finding> {
    let mut findings = queues(config, port, interface, seen);
    let on = |name: &str| seen.offloads.as_ref().is_some_and(|on| on.contains(name));
    if on("rx-lro") {
        let text = format!(
            "port {}: {interface} joins segments in hardware (LRO): drivers refuse XDP then",
            port.name
        );
        findings.push(find("lro", Mark::Fail, text).fix(format!("ethtool -K {interface} lro off")));
    }
    let virtual_pair = seen.kind.as_deref() == Some("veth");
    if virtual_pair && CHECKSUMS.iter().any(|name| on(name)) {
        let text = format!(
            "port {}: {interface} is one end of a virtual pair that leaves checksums open; XDP \
             hands such packets over as they are, and the far end finds them wrong",
            port.name
        );
        let advice = "do the same at the other end of the pair, where packets are made";
        findings.push(
            find("checksums", Mark::Warn, text)
                .advise(advice)
                .fix(format!("ethtool -K {interface} tx off")),
        );
    }
    findings.extend(xdp_mtu(config, port, interface, seen));
    findings
}

/// The MTU of an AF_XDP port's interface: the director refuses one whose packets would not fit.
fn xdp_mtu(config: &Config, port: &Port, interface: &str, seen: &Interface) -> Option<Finding> {
    let by_dpdk = matches!(port.device, Device::AfXdp { driver: XdpDriver::Dpdk, .. });
    let configured = config.ports.iter().filter_map(|port| port.mtu).max().unwrap_or(0);
    let (most, why, advice) = if by_dpdk {
        let why = format!("DPDK's AF_XDP driver carries {XDP_MTU} at most");
        (XDP_MTU, why, "or leave `driver=dpdk` out".to_owned())
    } else {
        let most = USUAL_MTU.max(u32::from(configured));
        let why = format!("packet buffers are made for {most}");
        (most, why, format!("or write `mtu = {}` in the port's section", seen.mtu))
    };
    let text = format!(
        "port {}: {interface} takes packets of {} bytes; {why}, and the director refuses the port",
        port.name, seen.mtu
    );
    (seen.mtu > most).then(|| {
        let fix = format!("ip link set {interface} mtu {most}");
        find("xdp_mtu", Mark::Fail, text).advise(advice).fix(fix)
    })
}

/// Queues of an AF_XDP port: what comes in by one that has no socket goes past the director.
fn queues(config: &Config, port: &Port, interface: &str, seen: &Interface) -> Vec<Finding> {
    let Some(there) = seen.queues else { return Vec::new() };
    let workers = u32::try_from(config.workers()).unwrap_or(u32::MAX);
    let taken = port.queues.map_or(workers, u32::from).min(there.max(1));
    let fix = |count: u32| match seen.kind.as_deref() {
        Some("veth") => format!("ethtool -L {interface} rx {count} tx {count}"),
        _ => format!("ethtool -L {interface} combined {count}"),
    };
    if there > taken {
        let text = format!(
            "port {}: {interface} receives by {there} queues and the director takes {taken}: what \
             comes in by the others passes it by",
            port.name
        );
        return vec![find("queues", Mark::Fail, text).fix(fix(taken))];
    }
    if taken < workers {
        let text = format!(
            "port {}: {there} receive queues for {workers} workers: the others get its packets \
             from hand to hand",
            port.name
        );
        return vec![find("queues_few", Mark::Warn, text).fix(fix(workers))];
    }
    Vec::new()
}

fn af_packet(facts: &Facts, port: &Port, interface: &str, seen: &Interface) -> Vec<Finding> {
    let off = seen.offloads.as_ref().is_some_and(|on| !on.contains("rx-gro"));
    // A director that runs switches it on by itself, where the driver can.
    if !off || facts.director.is_some() {
        return Vec::new();
    }
    let text = format!(
        "port {}: {interface} does not join segments (GRO): TCP costs more a byte",
        port.name
    );
    let advice = "the director switches it on while it runs; this is for a driver that cannot";
    vec![find("gro", Mark::Ok, text).advise(advice).fix(format!("ethtool -K {interface} gro on"))]
}

/// Strict reverse-path filtering drops what the kernel should get: health checks' answers, pings,
/// what it routes.
fn path_filter(facts: &Facts, port: &Port) -> Vec<Finding> {
    let Some(interface) = facts.kernel_side(port) else { return Vec::new() };
    let strict = facts.interfaces.get(interface).is_some_and(|seen| seen.rp_filter == Some(1));
    if !strict {
        return Vec::new();
    }
    let text = format!(
        "port {}: the kernel drops what comes in by {interface} if its way back is another \
         (rp_filter = 1): health checks and pings fail where routes are not symmetric",
        port.name
    );
    let key = format!("net/ipv4/conf/{interface}/rp_filter");
    vec![
        find("rp_filter", Mark::Warn, text)
            .advise(
                "2 asks only that there is a way back by any interface; keep it in /etc/sysctl.d",
            )
            .fix(format!("sysctl -w {key}=2")),
    ]
}

/// A port that is there and carries nothing.
fn down(port: &Port, shown: &Shown) -> Finding {
    let name = &port.name;
    let find = |text: &str| find("port_state", Mark::Fail, format!("port {name}: {text}"));
    match (&shown.trouble, &port.device) {
        (Some(trouble), Device::Vxlan { interface }) => find(trouble).advise(format!(
            "`ip -d link show {interface}` must show a VXLAN device that is up and has `local`"
        )),
        (Some(trouble), _) => find(trouble).advise(
            "start the peer; `id`, `mode`, the secret and the socket must be the same on both \
             sides, and the roles different",
        ),
        (None, _) => {
            let interface = shown.interface.as_deref().unwrap_or(name);
            find("the director sees no link").fix(format!("ip link set {interface} up"))
        }
    }
}

/// What a director that runs says of its port.
fn running(facts: &Facts, port: &Port) -> Vec<Finding> {
    let Some(shown) = shown(facts, port) else { return Vec::new() };
    let mut findings = Vec::new();
    let name = &port.name;
    match shown.state {
        PortState::Up => {}
        PortState::Down => findings.push(down(port, shown)),
        PortState::Gone => {
            let text = format!("port {name}: its device went away; the director waits for it");
            let advice = "bring the device back, or take the port out of the configuration";
            findings.push(find("port_state", Mark::Fail, text).advise(advice));
        }
    }
    let Some(steering) = shown.steering else { return findings };
    if steering.mode == SteeringMode::Generic {
        let text = format!(
            "port {name}: XDP runs in the kernel's generic path: each packet is copied, several \
             times slower than in a driver that knows XDP"
        );
        let advice = "use a NIC whose driver has native XDP, or an `af_packet` port for TCP";
        findings.push(find("xdp_generic", Mark::Warn, text).advise(advice));
    }
    if steering.unowned > 0 {
        let text = format!(
            "port {name}: {} packets of services came in by queues that the director does not take",
            steering.unowned
        );
        let interface = shown.interface.as_deref().unwrap_or(name);
        findings.push(
            find("unowned", Mark::Warn, text)
                .advise("they count since the start; look whether there are more of them")
                .fix(format!("ethtool -L {interface} combined {}", shown.queues)),
        );
    }
    findings
}
