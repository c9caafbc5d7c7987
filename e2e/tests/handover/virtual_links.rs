//! Upgrades where frames do not come from a wire: networks over VXLAN, and a memif whose other end
//! is DPDK's.

use sluice_e2e::Driver;
use sluice_e2e::LabError;
use sluice_e2e::bed::nodes::{Kind, NETWORKS, Nodes, VIP};
use sluice_e2e::error::expect;
use sluice_e2e::load::download_sha256;
use sluice_e2e::wait_until;
use sluice_e2e::web::make_blob_of;
use std::collections::BTreeSet;

use super::{Last, upgrade};
use crate::fixture::{SOON, here};
use crate::memif::ground::{Ground, Role, Shape, on};
use crate::memif::testpmd::{BACK, Game, Testpmd};
use crate::networks::{all_answer, on as on_nodes, reals_of};
use crate::restart::resets_of;

#[test]
fn networks_go_over_by_af_xdp() {
    on_nodes(here!(networks_go_over_by_af_xdp), Kind::of(Driver::AfXdp), networks_go_over);
}

/// Downloads of both networks, from pods of this node and through the tunnel, while the director of
/// the clients' node changes, and then the other one.
fn networks_go_over(nodes: &mut Nodes) -> Result<(), LabError> {
    let nodes = &*nodes;
    all_answer(nodes)?;
    let sums = [1, 2].map(|node| make_blob_of(&nodes.pod(node, "blue").space, 40_000_000));
    let sums = sums.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
    let resets = |nodes: &Nodes| {
        let each = NETWORKS.map(|(network, _)| resets_of(&nodes.pod(1, network).space));
        each.into_iter().collect::<Result<Vec<_>, LabError>>()
    };
    let before = resets(nodes)?;
    let mut downloads = Vec::new();
    for (network, _) in NETWORKS {
        for _ in 0..2 {
            let (client, url) = (nodes.pod(1, network).space.clone(), format!("http://{VIP}/blob"));
            let download = std::thread::spawn(move || download_sha256(&client, &url, "8M"));
            downloads.push((network, download));
        }
    }
    for (network, _) in NETWORKS {
        wait_until("downloads on both ways", SOON, || {
            let reals = reals_of(&nodes.nodes[0].director, network)?;
            Ok((reals.len() == 2).then_some(()))
        })?;
    }
    let directors = [&nodes.nodes[0].director, &nodes.nodes[1].director];
    let _last = directors.map(Last);
    for director in directors {
        let said = upgrade(director)?;
        println!("upgrade: {said}");
        expect(said["reopened"].as_array().is_some_and(Vec::is_empty), || said.to_string())?;
    }
    for (network, download) in downloads {
        let got = download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
        expect(sums.contains(&got), || format!("{network}: got {got}, not {sums:?}"))?;
    }
    let now = resets(nodes)?;
    expect(now == before, || format!("resets: {before:?}, {now:?}"))?;
    all_answer(nodes)
}

/// Alone: testpmd polls all the time, and an upgrade is refused where a worker gets no core to
/// answer in.
#[test]
fn alone_a_memif_connects_again_as_server() {
    on(here!(alone_a_memif_connects_again_as_server), Shape::of(Role::Server), memif_goes_over);
}

/// For `make test-all`.
mod faults {
    use super::*;

    #[test]
    fn networks_go_over_by_af_packet() {
        let name = here!(networks_go_over_by_af_packet);
        on_nodes(name, Kind { workers: 2, ..Kind::of(Driver::AfPacket) }, networks_go_over);
    }

    #[test]
    fn a_memif_connects_again_as_client() {
        on(here!(a_memif_connects_again_as_client), Shape::of(Role::Client), memif_goes_over);
    }
}

/// The peer goes on sending while the director changes: it connects again by itself, sessions are
/// those from before, and the twins keep addresses and neighbours, which nobody gives them again.
fn memif_goes_over(ground: &mut Ground) -> Result<(), LabError> {
    const FLOWS: u32 = 500;
    let file = ground.flows(FLOWS)?;
    let mut testpmd = Testpmd::start(ground, Game::Endless(&file))?;
    ground.wait_links(&["front", "back"], true)?;
    testpmd.say("start");
    let flows = |ground: &Ground| {
        let before = ground.count("back", "tx")?;
        wait_until("traffic", SOON, || {
            Ok((ground.count("back", "tx")? > before + 5_000).then_some(()))
        })
    };
    flows(ground)?;
    let places = |ground: &Ground| {
        let text = ground.director.sluice(&["sessions", "--limit", "10000", "--json"])?;
        let said: serde_json::Value = serde_json::from_str(&text)
            .map_err(|_| LabError::Unreadable { what: "sessions".to_owned(), text })?;
        let all = said["sessions"].as_array().into_iter().flatten();
        let place =
            |it: &serde_json::Value| format!("{} {} {}", it["client"], it["local"], it["real"]);
        Ok::<_, LabError>(all.map(place).collect::<BTreeSet<_>>())
    };
    let kernel = |ground: &Ground| {
        let shown = ground.space.run("sh", &["-c", KERNEL])?.ok()?.stdout;
        Ok::<_, LabError>(shown)
    };
    let (sessions, twins) = (places(ground)?, kernel(ground)?);
    expect(sessions.len() == FLOWS as usize, || format!("{} sessions", sessions.len()))?;
    let _last = Last(&ground.director);
    for round in 1..=2 {
        let said = upgrade(&ground.director)?;
        println!("upgrade {round}: {said}");
        let reopened: BTreeSet<_> = said["reopened"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it.as_str())
            .collect();
        expect(reopened == BTreeSet::from(["front", "back"]), || said.to_string())?;
        if ground.shape.director == Role::Server {
            // DPDK's client does not connect again by itself.
            testpmd.connect(ground, Game::Endless(&file))?;
        }
        ground.wait_links(&["front", "back"], true)?;
        flows(ground)?;
        let now = places(ground)?;
        expect(now == sessions, || {
            format!("{} sessions are others", sessions.symmetric_difference(&now).count())
        })?;
        let now = kernel(ground)?;
        expect(now == twins, || format!("the twins were:\n{twins}\nand are:\n{now}"))?;
    }
    let received = testpmd.counters(BACK)?.0;
    // By the one that is left, if another one crashed.
    expect(received > 1_000, || format!("testpmd got {received}"))?;
    testpmd.quit()
}

/// Addresses, neighbours and routes.
const KERNEL: &str = "ip -o address show scope global | sed 's/ valid_lft.*//' && \
                      ip neigh show nud permanent | sort && ip route";
