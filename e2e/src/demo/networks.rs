//! The steps of `make demo-networks`: two nodes, two isolated networks with the same addresses.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{PREFIX, step};
use crate::bed::Driver;
use crate::bed::nodes::{Kind, NETWORKS, NODES, Nodes, VIP};
use crate::error::{LabError, expect};
use crate::load::curl;
use crate::process::wait_until;

const CURLS: usize = 4;
/// How long the first answer may take: addresses are resolved, and blue's tunnel learns.
const SOON: Duration = Duration::from_secs(20);

const DRAWING: &str = "\
  blue pod   red pod                                   blue pod   red pod
  10.0.1.2   10.0.1.2                                  10.0.2.2   10.0.2.2
  ┌──┴──────────┴──┐      VXLAN 100 blue, 200 red     ┌──┴──────────┴──┐
  │  node 1        ├──────────────────────────────────┤        node 2  │
  │  a director    │192.0.2.1                192.0.2.2│    a director  │
  └────────────────┘                                  └────────────────┘";

/// Shows that each network has its own service at the same address, over both nodes, and that
/// nothing of one is in the other.
///
/// # Errors
/// When something does not start, or an answer is wrong.
pub fn show() -> Result<(), LabError> {
    println!(
        "Two nodes and four pods (network namespaces). Blue and red use the same addresses:\n"
    );
    println!("{DRAWING}\n");
    println!("Each network has http://{VIP}/, balanced over its pods of both nodes.");
    step("Two directors start");
    let mut nodes = Nodes::start(PREFIX, Kind::of(Driver::AfPacket))?;
    for node in 1..=NODES {
        for (network, _) in NETWORKS {
            ask(&nodes, node, network)?;
        }
    }
    for (at, node) in nodes.nodes.iter().enumerate() {
        println!("\n  node {}$ sluice networks", at + 1);
        node.director.sluice(&["networks"])?.lines().for_each(|line| println!("  {line}"));
    }
    step("Red's web servers end: blue goes on, and red gets no answer from blue");
    stop_red(&nodes)?;
    for node in 1..=NODES {
        ask(&nodes, node, "blue")?;
        let red = curl(&nodes.pod(node, "red").space, &format!("http://{VIP}/"));
        println!("  red pod of node {node}$ curl http://{VIP}/");
        expect(red.is_err(), || format!("red was answered: {red:?}"))?;
        println!("    no answer");
    }
    step("The directors end");
    for node in &mut nodes.nodes {
        let ended = node.director.stop()?;
        expect(ended.success(), || format!("{ended}: {}", node.director.said(20)))?;
    }
    drop(nodes);
    println!("\nAll answers were right. Everything is removed again.");
    Ok(())
}

/// Has a pod ask until both real servers of its network have answered in turn.
fn ask(nodes: &Nodes, node: usize, network: &str) -> Result<(), LabError> {
    let (pod, url) = (&nodes.pod(node, network).space, format!("http://{VIP}/"));
    wait_until("an answer", SOON, || Ok(curl(pod, &url).ok()))?;
    println!("\n  {network} pod of node {node}$ curl {url}");
    let mut all = BTreeSet::new();
    for _ in 0..CURLS {
        let answer = curl(pod, &url)?.trim().to_owned();
        println!("    {answer}");
        all.insert(answer);
    }
    let expected = (1..=NODES).map(|at| nodes.pod(at, network).number);
    let expected: BTreeSet<_> = expected.map(|number| format!("Real Server {number:02}")).collect();
    expect(all == expected, || format!("{all:?} instead of {expected:?}"))
}

fn stop_red(nodes: &Nodes) -> Result<(), LabError> {
    for node in 1..=NODES {
        let pod = nodes.pod(node, "red");
        let file = format!("{}/nginx{}.pid", pod.space.dir().display(), pod.number);
        pod.space.run("sh", &["-c", &format!("kill $(cat {file})")])?.ok()?;
    }
    Ok(())
}
