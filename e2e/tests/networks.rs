//! Isolated networks over VXLAN: two nodes with a director each, and the same addresses in two
//! networks (`e2e/src/bed/nodes.rs` draws them).

use serde_json::Value;
use sluice_e2e::bed::nodes::{Kind, NARROW, NETWORKS, Nodes, VIP, far_vip};
use sluice_e2e::capture::{Capture, count};
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256, upload_sha256};
use sluice_e2e::web::{SINK_PORT, make_blob_of};
use sluice_e2e::{Director, Driver, Family, LabError, Netns, Running, wait_until};
use std::collections::BTreeSet;

use crate::fixture::{PREFIX, SOON, here, turn};

const PACKET: Kind = Kind::of(Driver::AfPacket);
const XDP: Kind = Kind::of(Driver::AfXdp);

/// Runs a test on two nodes; `name` is the test's path.
pub fn on(name: &str, kind: Kind, test: impl FnOnce(&mut Nodes) -> Result<(), LabError>) {
    let Some(_turn) = turn(name) else { return };
    let mut nodes = Nodes::start(PREFIX, kind).unwrap_or_else(|error| panic!("{name}: {error}"));
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

pub fn all_answer(nodes: &Nodes) -> Result<(), LabError> {
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
    on(name, PACKET, |nodes| {
        all_answer(nodes)?;
        // What the tunnels have carried shows, both ways.
        for (node, network) in nodes.nodes.iter().zip(["blue", "red"]) {
            let said = node.director.ask("ports")?;
            let all = said["ports"].as_array().into_iter().flatten();
            let name = format!("{network}-vxlan");
            let port = all.into_iter().find(|port| port["name"] == *name);
            let counted = |way: &str, what: &str| port.and_then(|it| it[way][what].as_u64());
            let (rx, tx) = (counted("rx", "packets"), counted("tx", "packets"));
            let bytes = counted("rx", "bytes") > rx && counted("tx", "bytes") > tx;
            expect(rx > Some(0) && tx > Some(0) && bytes, || format!("{name}: {said}"))?;
        }
        Ok(())
    });
}

#[test]
fn each_network_has_its_own_service_by_af_xdp() {
    let name = here!(each_network_has_its_own_service_by_af_xdp);
    on(name, XDP, |nodes| all_answer(nodes));
}

/// Over IPv6 the outer datagrams have checksums, which the kernel at the other end verifies.
#[test]
fn tunnels_go_over_ipv6() {
    let kind = Kind { underlay: Family::V6, ..PACKET };
    on(here!(tunnels_go_over_ipv6), kind, |nodes| all_answer(nodes));
}

#[test]
fn tunnels_go_over_ipv6_by_af_xdp() {
    let kind = Kind { underlay: Family::V6, ..XDP };
    on(here!(tunnels_go_over_ipv6_by_af_xdp), kind, |nodes| all_answer(nodes));
}

#[test]
fn two_workers_carry_networks() {
    on(here!(two_workers_carry_networks), Kind { workers: 2, ..PACKET }, |nodes| all_answer(nodes));
}

/// A pod of blue by memif, and one of red by a TAP as a virtual machine has it; both are clients
/// and real servers, beside pods by veth on the other node.
#[test]
fn pods_on_memif_and_tap() {
    let kind = Kind { memif_and_tap: true, ..PACKET };
    on(here!(pods_on_memif_and_tap), kind, |nodes| all_answer(nodes));
}

/// By IPIP within each network, to real servers with the same address: the outer packets go by the
/// network's routes, here in VXLAN, and the answers come back past the director.
#[test]
fn real_servers_behind_tunnels_are_of_their_network() {
    let name = here!(real_servers_behind_tunnels_are_of_their_network);
    for driver in [Driver::AfPacket, Driver::AfXdp] {
        on(name, Kind { tunnelled: true, ..Kind::of(driver) }, |nodes| {
            for (node, other) in [(1, 2), (2, 1)] {
                for (network, _) in NETWORKS {
                    let pod = &nodes.pod(node, network).space;
                    let url = format!("http://{}/", far_vip(node));
                    let got = wait_until("an answer", SOON, || Ok(curl(pod, &url).ok()))?;
                    let right = format!("Real Server {:02}", nodes.pod(other, network).number);
                    expect(got.trim() == right, || format!("{network} {node}: {got}"))?;
                }
            }
            for node in &nodes.nodes {
                let said = node.director.ask("services")?;
                let all = said["services"].as_array().into_iter().flatten();
                let far =
                    all.filter(|it| it["name"].as_str().is_some_and(|it| it.ends_with("-far")));
                let carried: Vec<_> = far.map(|it| it["packets"]["inbound"].as_u64()).collect();
                let all = carried.len() == 2 && carried.iter().all(|it| *it > Some(3));
                expect(all, || format!("{carried:?}"))?;
            }
            all_answer(nodes)
        });
    }
}

/// What a pod downloads from the other node arrives whole.
#[test]
fn a_large_download_fits_the_tunnel() {
    on(here!(a_large_download_fits_the_tunnel), PACKET, |nodes| {
        answers(nodes, 1, "blue")?;
        let sums = [1, 2].map(|node| make_blob_of(&nodes.pod(node, "blue").space, 20_000_000));
        let sums = sums.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
        let client = &nodes.pod(1, "blue").space;
        let before = packets(nodes, "blue-web")?;
        let url = format!("http://{VIP}/blob");
        let got = (0..2).map(|_| download_sha256(client, &url, ""));
        let got = got.collect::<Result<BTreeSet<_>, _>>()?;
        expect(got == sums, || format!("got {got:?}, not {sums:?}"))?;
        let carried = packets(nodes, "blue-web")? - before;
        expect(carried > 1000, || format!("{carried} packets"))
    });
}

/// Packets of a service at node 1.
fn packets(nodes: &Nodes, service: &str) -> Result<u64, LabError> {
    let said = nodes.nodes[0].director.ask("services")?;
    let all = said["services"].as_array().into_iter().flatten();
    let of = all.filter(|one| one["name"] == service);
    Ok(of.filter_map(|one| one["packets"]["outbound"].as_u64()).sum())
}

/// While blue's pods are busy nothing of theirs is on red's wires, and without its servers red has
/// no answer, though blue's are at the same addresses.
#[test]
fn blue_is_not_in_red() {
    on(here!(blue_is_not_in_red), PACKET, |nodes| {
        all_answer(nodes)?;
        for (node, network) in [(1, "red"), (2, "red")] {
            nodes.end_nginx(node, network)?;
        }
        let captures: Vec<_> = [1, 2]
            .into_iter()
            .map(|node| {
                let pod = &nodes.pod(node, "red").space;
                Capture::start(pod, "eth0", &format!("red{node}"))
            })
            .collect::<Result<_, _>>()?;
        for node in [1, 2] {
            expect(answers(nodes, node, "blue")?.len() == 2, || "blue has lost one".to_owned())?;
        }
        for capture in captures {
            let seen = count(&capture.stop()?, "ip")?;
            expect(seen == 0, || format!("{seen} packets in red"))?;
        }
        let red = curl(&nodes.pod(1, "red").space, &format!("http://{VIP}/"));
        expect(red.is_err(), || format!("red was answered: {red:?}"))
    });
}

/// A forwarding entry that goes, and comes back: the director follows, and says why meanwhile.
#[test]
fn the_director_follows_forwarding_entries() {
    on(here!(the_director_follows_forwarding_entries), PACKET, |nodes| {
        answers(nodes, 1, "red")?;
        nodes.tell_red(1, false)?;
        let pod = &nodes.pod(1, "red").space;
        let url = format!("http://{VIP}/");
        let args = ["-sS", "--max-time", "1", &url];
        wait_until("a packet without a remote", SOON, || {
            // One of two real servers is beyond.
            pod.run("curl", &args)?;
            let drops = nodes.nodes[0].director.ask("drops")?;
            let all = drops["drops"].as_array().into_iter().flatten();
            Ok(all.into_iter().any(|one| one["reason"] == "vxlan_no_remote").then_some(()))
        })?;
        nodes.tell_red(1, true)?;
        let expected: BTreeSet<_> = ["Real Server 21", "Real Server 22"].map(str::to_owned).into();
        wait_until("both real servers", SOON, || {
            Ok((answers(nodes, 1, "red").ok().as_ref() == Some(&expected)).then_some(()))
        })
    });
}

/// Connections of both networks, through the tunnel and not, outlive a director that is killed.
#[test]
fn sessions_of_networks_survive_kill_9() {
    on(here!(sessions_of_networks_survive_kill_9), XDP, |nodes| {
        all_answer(nodes)?;
        // A node's pods serve the same file.
        let sums = [1, 2].map(|node| make_blob_of(&nodes.pod(node, "blue").space, 60_000_000));
        let sums = sums.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
        let mut downloads = Vec::new();
        for (network, _) in NETWORKS {
            for _ in 0..2 {
                let client = nodes.pod(1, network).space.clone();
                let url = format!("http://{VIP}/blob");
                // Slow enough to last over the restart.
                let download = std::thread::spawn(move || download_sha256(&client, &url, "10M"));
                downloads.push((network, download));
            }
        }
        for (network, _) in NETWORKS {
            wait_until("downloads on both ways", SOON, || {
                let reals = reals_of(&nodes.nodes[0].director, network)?;
                Ok((reals.len() == 2).then_some(()))
            })?;
        }
        nodes.kill_and_start(1)?;
        let log = nodes.nodes[0].director.log();
        expect(log.contains("sessions go on from before"), || format!("none did:\n{log}"))?;
        for (network, download) in downloads {
            let got = download.join().expect("the download does not panic")?;
            expect(sums.contains(&got), || format!("{network}: got {got}, not {sums:?}"))?;
        }
        all_answer(nodes)
    });
}

/// The real servers that a network's connections which go on are at.
pub fn reals_of(director: &Director, network: &str) -> Result<BTreeSet<String>, LabError> {
    let text = director.sluice(&["sessions", "--network", network, "--json"])?;
    let said: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "sessions".to_owned(), text })?;
    let all = said["sessions"].as_array().into_iter().flatten();
    let open = all.filter(|one| one["state"] == "ESTABLISHED");
    Ok(open.filter_map(|one| one["real"].as_str().map(str::to_owned)).collect())
}

/// What is open in blue at one director, the other one learns of in blue.
#[test]
fn sessions_of_networks_are_told_to_the_other_director() {
    let kind = Kind { synchronised: true, ..XDP };
    on(here!(sessions_of_networks_are_told_to_the_other_director), kind, |nodes| {
        answers(nodes, 1, "blue")?;
        let client = nodes.pod(1, "blue").space.clone();
        make_blob_of(&client, 60_000_000)?;
        let url = format!("http://{VIP}/blob");
        let download = std::thread::spawn(move || download_sha256(&client, &url, "10M"));
        wait_until("the other director to know", SOON, || {
            Ok((!reals_of(&nodes.nodes[1].director, "blue")?.is_empty()).then_some(()))
        })?;
        let red = reals_of(&nodes.nodes[1].director, "red")?;
        expect(red.is_empty(), || format!("it knows of {red:?} in red"))?;
        let told = nodes.nodes[1].director.ask("ha")?["sync"]["reports_received"].clone();
        expect(told["unknown"] == 0, || format!("some are nobody's: {told}"))?;
        download.join().expect("the download does not panic").map(drop)
    });
}

/// A router of the underlay takes less than the nodes' links. Its error about an outer packet is
/// believed, and the pod is told what fits the tunnel.
#[test]
fn an_upload_fits_a_narrow_underlay() {
    let name = here!(an_upload_fits_a_narrow_underlay);
    for driver in [Driver::AfPacket, Driver::AfXdp] {
        on(name, Kind { narrow: true, ..Kind::of(driver) }, |nodes| {
            all_answer(nodes)?;
            let pod = nodes.pod(1, "blue").space.clone();
            let blob = pod.dir().join("blob").display().to_string();
            let sent = make_blob_of(&pod, 3_000_000)?;
            let got = upload_sha256(&pod, &format!("http://{VIP}:{SINK_PORT}/"), &blob)?;
            expect(got == sent, || format!("got {got}, not {sent}"))?;
            let fits = format!("mtu {}", NARROW - 50);
            let route = pod.ip(&["route", "get", VIP])?.stdout;
            expect(route.contains(&fits), || format!("the pod was told: {route}"))?;
            let log = nodes.nodes[0].director.log();
            expect(log.contains("takes less than its first link"), || log)
        });
    }
}

/// Health checks through the data path of each network, by the same source address in both: what is
/// down in red, over the tunnel as well, is up in blue at the same address.
#[test]
fn checks_go_through_the_data_path_of_their_network() {
    let name = here!(checks_go_through_the_data_path_of_their_network);
    for driver in [Driver::AfPacket, Driver::AfXdp] {
        on(name, Kind { checked: true, ..Kind::of(driver) }, |nodes| {
            wait_until("all real servers to be found up", SOON, || {
                Ok((states(nodes)? == [(4, 0), (4, 0)]).then_some(()))
            })?;
            all_answer(nodes)?;
            nodes.end_nginx(2, "red")?;
            wait_until("red's real server on node 2 to be down", SOON, || {
                Ok((states(nodes)? == [(3, 1), (3, 1)]).then_some(()))
            })?;
            for node in &nodes.nodes {
                let said = node.director.ask("health")?;
                let down = checks(&said).find(|check| check["state"] == "down");
                let its = down.map(|check| (check["service"].clone(), check["address"].clone()));
                let expected = ("red-web".into(), "10.0.2.2".into());
                expect(its.as_ref() == Some(&expected), || said.to_string())?;
            }
            let got = answers(nodes, 1, "red")?;
            expect(got == BTreeSet::from(["Real Server 21".to_owned()]), || format!("{got:?}"))?;
            let got = answers(nodes, 1, "blue")?;
            expect(got.len() == 2, || format!("blue: {got:?}"))
        });
    }
}

/// A routing daemon finds the same virtual address in both networks, each by the network's own
/// interface; it goes from red alone when red has no real server left.
#[test]
fn each_network_announces_its_own_addresses() {
    let name = here!(each_network_announces_its_own_addresses);
    on(name, Kind { checked: true, announced: true, ..PACKET }, |nodes| {
        wait_until("all real servers to be found up", SOON, || {
            Ok((states(nodes)? == [(4, 0), (4, 0)]).then_some(()))
        })?;
        let bird = Bird::start(&nodes.nodes[0].space)?;
        let both = [VIP.to_owned(), "10.0.0.101".to_owned()];
        for (network, _) in NETWORKS {
            bird.wait_routes(network, &both)?;
        }
        all_answer(nodes)?;
        for node in [1, 2] {
            nodes.end_nginx(node, "red")?;
        }
        bird.wait_routes("red", &both[1..])?;
        bird.wait_routes("blue", &both)?;
        let announced = nodes.nodes[0].director.ask("ha")?["announce"].clone();
        let [blue, red] = [&announced[0], &announced[1]];
        let right = blue["network"] == "blue" && blue["vips"] == 1 && red["unserved"][0] == VIP;
        expect(right && red["vips"] == 0, || announced.to_string())?;
        expect(answers(nodes, 1, "blue")?.len() == 2, || "blue has lost one".to_owned())
    });
}

/// BIRD at a node, with a table for each network.
struct Bird<'a> {
    space: &'a Netns,
    socket: String,
    _running: Running,
}

impl<'a> Bird<'a> {
    fn start(space: &'a Netns) -> Result<Self, LabError> {
        let mut text = "router id 192.0.2.1;\nprotocol device { scan time 1; }\n".to_owned();
        for (network, _) in NETWORKS {
            text += &format!(
                "ipv4 table {network}4;\nprotocol direct {network} {{\n  interface \
                 \"up{network}\";\n  ipv4 {{ table {network}4; }};\n}}\n"
            );
        }
        let [file, socket] = ["bird.conf", "bird.ctl"].map(|it| space.dir().join(it));
        std::fs::write(&file, text).map_err(LabError::file("BIRD's configuration"))?;
        let [file, socket] = [file, socket].map(|it| it.display().to_string());
        let running = space.start("bird", "bird", &["-f", "-c", &file, "-s", &socket])?;
        Ok(Self { space, socket, _running: running })
    }

    /// Waits until a network's table has routes to these addresses alone.
    fn wait_routes(&self, network: &str, addresses: &[String]) -> Result<(), LabError> {
        let expected: BTreeSet<_> = addresses.iter().map(|it| format!("{it}/32")).collect();
        wait_until(&format!("{network}'s {expected:?} in BIRD"), SOON, || {
            let show = ["-s", &self.socket, "show", "route", "table", &format!("{network}4")];
            let shown = self.space.run("birdc", &show)?.stdout;
            let words = shown.lines().filter_map(|line| line.split_whitespace().next());
            let routes = words.filter(|word| word.ends_with("/32")).map(str::to_owned);
            Ok((routes.collect::<BTreeSet<_>>() == expected).then_some(()))
        })
    }
}

fn checks(said: &Value) -> impl Iterator<Item = &Value> {
    said["checks"].as_array().into_iter().flatten()
}

/// How many real servers are up and down at each director.
fn states(nodes: &Nodes) -> Result<Vec<(usize, usize)>, LabError> {
    let of = |node: &sluice_e2e::bed::nodes::Node| {
        let said = node.director.ask("health")?;
        let count = |state: &str| checks(&said).filter(|check| check["state"] == state).count();
        Ok((count("up"), count("down")))
    };
    nodes.nodes.iter().map(of).collect()
}
