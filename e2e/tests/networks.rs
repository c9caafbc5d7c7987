//! Isolated networks over VXLAN: two nodes with a director each, and the same addresses in two
//! networks (`e2e/src/bed/nodes.rs` draws them).

use sluice_e2e::bed::nodes::{NETWORKS, Nodes, VIP};
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{Driver, LabError, wait_until};
use std::collections::BTreeSet;

use crate::fixture::{PREFIX, SOON, here, turn};

/// Runs a test on two nodes; `name` is the test's path.
fn on(
    name: &str,
    (driver, workers): (Driver, usize),
    test: impl FnOnce(&mut Nodes) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let mut nodes =
        Nodes::start(PREFIX, driver, workers).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = test(&mut nodes) {
        let mut said = String::new();
        for node in &nodes.nodes {
            let ask = |what| node.director.sluice(&[what]).unwrap_or_default();
            said += &format!("--- a node:\n{}\n", node.director.said(30));
            said += &[ask("drops"), ask("ports"), ask("services")].join("\n");
        }
        panic!("{name}: {error}\n{said}");
    }
}

/// The numbers of the real servers that answer a pod, once it was answered.
fn answers(nodes: &Nodes, node: usize, network: &str) -> Result<BTreeSet<String>, LabError> {
    let url = format!("http://{VIP}/");
    let pod = &nodes.pod(node, network).space;
    let first = wait_until("an answer", SOON, || Ok(curl(pod, &url).ok()))?;
    let more = (0..7).map(|_| curl(pod, &url)).collect::<Result<Vec<_>, _>>()?;
    Ok(more.into_iter().chain([first]).map(|text| text.trim().to_owned()).collect())
}

fn all_answer(nodes: &mut Nodes) -> Result<(), LabError> {
    for node in [1, 2] {
        for (network, _) in NETWORKS {
            let expected = [1, 2].map(|at| nodes.pod(at, network).number);
            let expected = expected.map(|number| format!("Real Server {number:02}"));
            let got = answers(nodes, node, network)?;
            expect(got == BTreeSet::from(expected.clone()), || {
                format!("{network} on node {node}: {got:?}, not {expected:?}")
            })?;
        }
    }
    Ok(())
}

#[test]
fn each_network_has_its_own_service_on_both_nodes() {
    let name = here!(each_network_has_its_own_service_on_both_nodes);
    on(name, (Driver::AfPacket, 1), all_answer);
}
