//! The pods of a node, and what joins them to it.

use super::{Kind, NETWORKS, Pod, SOON};
use crate::error::LabError;
use crate::lab::{End, Lab, Netns};
use crate::process::{Running, wait_until};
use std::process::ChildStdin;

/// What carries frames between a pod's kernel and its port, where that is no wire. The input is
/// what it would be told by: it ends with that.
pub type Carrier = (Running, ChildStdin);

/// The pods of a node, their wires laid, and what carries their frames.
pub fn pods(
    lab: &mut Lab,
    node: &Netns,
    number: usize,
    kind: Kind,
) -> Result<(Vec<Pod>, Vec<Carrier>), LabError> {
    let (mut pods, mut carriers) = (Vec::new(), Vec::new());
    for (at, (name, _)) in NETWORKS.into_iter().enumerate() {
        let space = lab.space(name)?;
        if kind.memif_and_tap && number == 1 {
            carriers.push(carried(lab, node, &space, name)?);
        } else {
            let inside = End { space: &space, device: "eth0", mac: None };
            let outside = End { space: node, device: name, mac: None };
            lab.veth(inside, outside, kind.workers as u32)?;
        }
        space.address("eth0", &format!("10.0.{number}.2/24"))?;
        let gateway = format!("10.0.{number}.1");
        // By rules alone Linux knows no way back for its own errors: pods send what fits.
        space.ip(&["route", "add", "default", "via", &gateway, "mtu", kind.mtu()])?;
        pods.push(Pod { space, number: 10 * (at + 1) + number });
    }
    Ok((pods, carriers))
}

/// The device of a pod's port at a node, where it is no interface.
pub fn memif(lab: &Lab, number: usize, network: &str, kind: Kind) -> Option<String> {
    let is_memif = kind.memif_and_tap && (number, network) == (1, "blue");
    is_memif.then(|| format!("memif:{},id=0,role=client", socket(lab)))
}

fn socket(lab: &Lab) -> String {
    lab.dir().join("pod.memif").display().to_string()
}

/// Joins a pod by `dpdk-testpmd` in it, which carries frames between the pod's kernel and the
/// node: over a memif in blue, and in red into a TAP as that of a virtual machine, whose interface
/// is the node's.
fn carried(lab: &Lab, node: &Netns, pod: &Netns, network: &str) -> Result<Carrier, LabError> {
    let name = format!("{}-{network}", lab.name());
    let outside = if network == "blue" {
        format!("net_memif0,id=0,role=server,socket={},socket-abstract=no", socket(lab))
    } else {
        format!("net_tap1,iface={network}")
    };
    let mut command = pod.command("dpdk-testpmd");
    command.args(["--no-huge", "--no-shconf", "-m", "64", "--no-pci", "--no-telemetry"]);
    command.args([&*format!("--file-prefix={name}"), "--lcores=0@0,1@1"]);
    command.args(["--vdev=net_tap0,iface=eth0", &format!("--vdev={outside}")]);
    command.args(["--", "--interactive", "--auto-start", "--disable-link-check"]);
    command.args(["--no-flush-rx", "--forward-mode=io", "--total-num-mbufs=4096"]);
    let log = lab.dir().join(format!("{network}-testpmd.log"));
    let (mut running, input) = Running::start_told("testpmd", &mut command, &log)?;
    running.wait_for_words("testpmd> ", SOON)?;
    if network != "blue" {
        pod.ip(&["link", "set", network, "netns", node.name()])?;
        node.ip(&["link", "set", network, "up"])?;
    }
    wait_until("the pod's interface", SOON, || Ok(pod.has_device("eth0").then_some(())))?;
    pod.ip(&["link", "set", "eth0", "up"])?;
    Ok((running, input))
}
