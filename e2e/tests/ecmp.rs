//! Directors that are all active behind a router with ECMP: they announce their addresses by BGP,
//! and connections go on when one dies, drains or joins, though flows of the others move as well.

use std::time::Instant;

use sluice_e2e::bed::ecmp::{Ecmp, Speaker, Sync};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::{Family, LabError, wait_until};

use crate::fixture::{PREFIX, SOON, here, turn};
use crate::held::Held;

/// Connections that are held, of each family.
const CONNECTIONS: usize = 8;

fn on_ecmp(
    name: &str,
    (count, speaker, sync): (usize, Speaker, Sync),
    test: impl FnOnce(&mut Ecmp) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let bed = Ecmp::start(PREFIX, count, speaker, sync);
    let mut bed = bed.unwrap_or_else(|error| panic!("{name}: {error}"));
    let all: Vec<_> = (0..count).collect();
    let done = spread_over(&bed, &all).and_then(|()| test(&mut bed));
    if let Err(error) = done {
        let nodes: String = bed.nodes.iter().map(|node| node.said()).collect();
        let router: String = bed.peers.iter().take(3).map(|it| it.log_tail(10)).collect();
        panic!("{name}: {error}\n{nodes}--- router:\n{router}");
    }
}

/// Waits until the router sends clients to these directors, and answers of real servers to each of
/// them for its own local addresses.
fn spread_over(bed: &Ecmp, directors: &[usize]) -> Result<(), LabError> {
    for family in FAMILIES {
        wait_until(&format!("{family} to be spread over {directors:?}"), SOON, || {
            Ok((bed.next_hops(Ecmp::vip(family))? == directors).then_some(()))
        })?;
        for director in directors {
            let local = Ecmp::local(family, *director);
            wait_until(&format!("{local} to be at {director}"), SOON, || {
                Ok((bed.next_hops(&local)? == [*director]).then_some(()))
            })?;
        }
    }
    Ok(())
}

fn sessions(bed: &mut Ecmp, index: usize) -> Result<u64, LabError> {
    let status = bed.nodes[index].director()?.ask("status")?;
    Ok(status["sessions"]["live"].as_u64().unwrap_or(0))
}

/// Opens connections, and waits until all directors know them.
fn held(bed: &mut Ecmp) -> Result<Held, LabError> {
    let held = Held::begin(&bed.client, &bed.reals, &FAMILIES.map(Ecmp::vip), CONNECTIONS)?;
    for index in 0..bed.nodes.len() {
        wait_until(&format!("director {index} to know all connections"), SOON, || {
            Ok((sessions(bed, index)? >= held.count()).then_some(()))
        })?;
    }
    Ok(held)
}

/// A director dies, and its sessions that outlive the process are removed as well; it joins again;
/// another one is drained and stopped.
fn one_dies_joins_and_another_drains(bed: &mut Ecmp) -> Result<(), LabError> {
    let all: Vec<_> = (0..bed.nodes.len()).collect();
    let without = |gone: usize| all.iter().copied().filter(|it| *it != gone).collect::<Vec<_>>();
    let begun = Instant::now();
    bed.nodes[1].kill()?;
    spread_over(bed, &without(1))?;
    // Answers to the local addresses of the one that died come to another.
    for family in FAMILIES {
        let local = Ecmp::local(family, 1);
        wait_until(&format!("{local} to be at the others"), SOON, || {
            Ok((bed.next_hops(&local)? == without(1)).then_some(()))
        })?;
    }
    eprintln!("killed: at the others after {} ms", begun.elapsed().as_millis());
    let begun = Instant::now();
    bed.nodes[1].start_director()?;
    spread_over(bed, &all)?;
    eprintln!("started: joined after {} ms", begun.elapsed().as_millis());
    let drain = ["ha", "drain", "--deadline", "5", "--stop"];
    let said = bed.nodes[0].director()?.sluice(&drain)?;
    expect(said.contains("the director has ended"), || said.clone())?;
    spread_over(bed, &without(0))
}

/// Three directors with BIRD.
#[test]
fn alone_connections_go_on_when_directors_come_and_go() {
    let name = here!(alone_connections_go_on_when_directors_come_and_go);
    on_ecmp(name, (3, Speaker::Bird, Sync::Routed), |bed| {
        let held = held(bed)?;
        one_dies_joins_and_another_drains(bed)?;
        held.end()
    });
}

/// Three directors tell each other by multicast: what both others are to have is sent once.
#[test]
fn alone_connections_go_on_with_sessions_told_by_multicast() {
    let name = here!(alone_connections_go_on_with_sessions_told_by_multicast);
    told_by_multicast(name, Family::V4);
}

fn told_by_multicast(name: &str, family: Family) {
    on_ecmp(name, (3, Speaker::Bird, Sync::Group(family)), |bed| {
        let held = held(bed)?;
        let datagrams = bed.nodes[0].director()?.ask("ha")?["sync"]["datagrams"].clone();
        let of = |what: &str| datagrams[what].as_u64().unwrap_or(0);
        expect(of("to_group") > 0 && of("lost") == 0, || datagrams.to_string())?;
        bed.nodes[1].kill()?;
        spread_over(bed, &[0, 2])?;
        bed.nodes[1].start_director()?;
        spread_over(bed, &[0, 1, 2])?;
        held.end()
    });
}

/// What is announced follows the health of real servers and the drain of the director.
#[test]
fn what_is_announced_follows_health_and_drain() {
    let name = here!(what_is_announced_follows_health_and_drain);
    on_ecmp(name, (2, Speaker::Bird, Sync::Routed), |bed| {
        let shown = bed.nodes[0].director()?.ask("ha")?;
        expect(shown["sync"]["peers"][0]["differs"] == false, || shown.to_string())?;
        let announce = &shown["announce"][0];
        expect(announce["vips"] == 2 && announce["pool_addresses"] == 4, || shown.to_string())?;
        for service in ["web32", "lines32"] {
            for real in ["192.0.2.11", "192.0.2.12"] {
                bed.nodes[0].director()?.sluice(&["real", "drain", service, real])?;
            }
        }
        wait_until("IPv4 to be at the other", SOON, || {
            Ok((bed.next_hops(Ecmp::vip(Family::V4))? == [1]).then_some(()))
        })?;
        let both = bed.next_hops(Ecmp::vip(Family::V6))?;
        expect(both == [0, 1], || format!("IPv6 is at {both:?}"))?;
        let shown = bed.nodes[0].director()?.ask("ha")?;
        expect(shown["announce"][0]["unserved"][0] == Ecmp::vip(Family::V4), || shown.to_string())?;
        bed.nodes[0].director()?.sluice(&["ha", "drain", "--deadline", "20"])?;
        wait_until("IPv6 to be at the other", SOON, || {
            Ok((bed.next_hops(Ecmp::vip(Family::V6))? == [1]).then_some(()))
        })?;
        // Real servers still answer to it.
        for family in FAMILIES {
            let at = bed.next_hops(&Ecmp::local(family, 0))?;
            expect(at == [0], || format!("{family}: its local address is at {at:?}"))?;
        }
        bed.nodes[0].director()?.sluice(&["ha", "drain", "--undo"])?;
        wait_until("IPv6 to be at both", SOON, || {
            Ok((bed.next_hops(Ecmp::vip(Family::V6))? == [0, 1]).then_some(()))
        })?;
        // An interface that somebody deletes is made anew.
        let space = bed.nodes[0].space.clone();
        let shown = || space.run("ip", &["-o", "link", "show", "sluice"]);
        let before = shown()?.ok()?.stdout;
        space.ip(&["link", "delete", "sluice"])?;
        wait_until("another interface, and IPv6 to be at both", SOON, || {
            let now = shown()?.stdout;
            let is_another = !now.is_empty() && now.split(':').next() != before.split(':').next();
            Ok((is_another && bed.next_hops(Ecmp::vip(Family::V6))? == [0, 1]).then_some(()))
        })?;
        // What the other one does not have is told.
        let more = ["service", "add", "more", "--protocol", "udp", "--vip", "198.51.100.201"];
        let more = [&more[..], &["--port", "53", "--mode", "nat"]].concat();
        bed.nodes[0].director()?.sluice(&more)?;
        wait_until("the other one to see a difference", SOON, || {
            let shown = bed.nodes[1].director()?.ask("ha")?;
            Ok((shown["sync"]["peers"][0]["differs"] == true).then_some(()))
        })
    });
}

/// Clients of each family.
const CLIENTS: usize = 16;

/// The real server that each client's flow comes to, when a director has all flows; the same
/// clients have the same ports each time.
fn chosen_by(bed: &mut Ecmp, director: usize) -> Result<Vec<String>, LabError> {
    let other = 1 - director;
    bed.nodes[director].director()?.sluice(&["ha", "drain", "--undo"])?;
    spread_over(bed, &[0, 1])?;
    // It withdraws at once; whether its sessions go along is not the question.
    let _ = bed.nodes[other].director()?.sluice(&["ha", "drain", "--deadline", "0"]);
    let mut chosen = Vec::new();
    for family in FAMILIES {
        wait_until("the other one to be withdrawn", SOON, || {
            Ok((bed.next_hops(Ecmp::vip(family))? == [director]).then_some(()))
        })?;
        let url = sluice_e2e::family::url(Ecmp::vip(family), 80);
        for client in 0..CLIENTS {
            let (from, port) = (client_address(family, client), (40_000 + client).to_string());
            let args = ["-sS", "--fail", "--max-time", "5"];
            let args = [&args[..], &["--interface", &from, "--local-port", &port, &url]].concat();
            chosen.push(bed.client.run("curl", &args)?.ok()?.stdout);
        }
    }
    bed.nodes[other].director()?.sluice(&["ha", "drain", "--undo"])?;
    Ok(chosen)
}

fn client_address(family: Family, client: usize) -> String {
    match family {
        Family::V4 => format!("203.0.113.{}", 20 + client),
        Family::V6 => format!("2001:db8:9::{:x}", 0x20 + client),
    }
}

/// Without a word to each other two directors send a new flow to the same real server.
#[test]
fn directors_choose_the_same_real_server() {
    let name = here!(directors_choose_the_same_real_server);
    on_ecmp(name, (2, Speaker::Bird, Sync::Off), |bed| {
        for (family, prefix) in FAMILIES.into_iter().zip([24, 64]) {
            for client in 0..CLIENTS {
                let address = format!("{}/{prefix}", client_address(family, client));
                bed.client.address("eth0", &address)?;
            }
        }
        // Clients have their ports again at once.
        bed.client.sysctl("net.ipv4.tcp_max_tw_buckets", "0")?;
        let (first, second) = (chosen_by(bed, 0)?, chosen_by(bed, 1)?);
        eprintln!("chosen: {first:?}");
        expect(first == second, || format!("the other one chose {second:?}"))?;
        let created = |bed: &mut Ecmp, index: usize| -> Result<u64, LabError> {
            let status = bed.nodes[index].director()?.ask("status")?;
            Ok(status["sessions"]["created"].as_u64().unwrap_or(0))
        };
        for index in [0, 1] {
            let opened = created(bed, index)?;
            expect(opened >= 2 * CLIENTS as u64, || format!("{index} opened {opened} sessions"))?;
        }
        for one in ["Real Server 01", "Real Server 02"] {
            expect(first.iter().any(|it| it.starts_with(one)), || format!("none to {one}"))?;
        }
        Ok(())
    });
}

/// Further ones, for `make test-all`.
mod faults {
    use super::*;

    /// Two directors with FRR.
    #[test]
    fn alone_connections_go_on_with_frr() {
        let name = here!(alone_connections_go_on_with_frr);
        on_ecmp(name, (2, Speaker::Frr, Sync::Routed), |bed| {
            let held = held(bed)?;
            one_dies_joins_and_another_drains(bed)?;
            held.end()
        });
    }

    #[test]
    fn alone_connections_go_on_with_sessions_told_by_ipv6_multicast() {
        let name = here!(alone_connections_go_on_with_sessions_told_by_ipv6_multicast);
        told_by_multicast(name, Family::V6);
    }

    /// Without synchronisation some break: the test above can fail.
    #[test]
    fn alone_without_synchronisation_connections_break() {
        let name = here!(alone_without_synchronisation_connections_break);
        on_ecmp(name, (3, Speaker::Bird, Sync::Off), |bed| {
            let held = Held::begin(&bed.client, &bed.reals, &FAMILIES.map(Ecmp::vip), CONNECTIONS)?;
            let all = held.count();
            bed.nodes[1].kill()?;
            spread_over(bed, &[0, 2])?;
            let broken = held.broken()?;
            eprintln!("{broken} of {all} broke");
            expect(broken > 0, || "none broke".to_owned())
        });
    }

    /// A router with resilient groups moves only the flows of the director that died.
    fn dies_behind_resilient_groups(bed: &mut Ecmp) -> Result<(), LabError> {
        bed.nodes[1].kill()?;
        spread_over(bed, &[0, 2])?;
        for family in FAMILIES {
            bed.set_members(family, &[0, 2])?;
        }
        Ok(())
    }

    #[test]
    fn alone_connections_go_on_behind_resilient_groups() {
        let name = here!(alone_connections_go_on_behind_resilient_groups);
        on_ecmp(name, (3, Speaker::Bird, Sync::Routed), |bed| {
            bed.use_resilient_groups(&[0, 1, 2])?;
            let held = held(bed)?;
            dies_behind_resilient_groups(bed)?;
            bed.nodes[1].start_director()?;
            spread_over(bed, &[0, 1, 2])?;
            for family in FAMILIES {
                bed.set_members(family, &[0, 1, 2])?;
            }
            let drain = ["ha", "drain", "--deadline", "5"];
            bed.nodes[0].director()?.sluice(&drain)?;
            for family in FAMILIES {
                bed.set_members(family, &[1, 2])?;
            }
            held.end()
        });
    }

    /// Without synchronisation those break that the dead director had, and no others.
    #[test]
    fn alone_without_synchronisation_resilient_groups_lose_only_the_dead_ones() {
        let name = here!(alone_without_synchronisation_resilient_groups_lose_only_the_dead_ones);
        on_ecmp(name, (3, Speaker::Bird, Sync::Off), |bed| {
            bed.use_resilient_groups(&[0, 1, 2])?;
            let held = Held::begin(&bed.client, &bed.reals, &FAMILIES.map(Ecmp::vip), CONNECTIONS)?;
            let (all, of_dead) = (held.count(), sessions(bed, 1)?);
            dies_behind_resilient_groups(bed)?;
            let broken = held.broken()? as u64;
            eprintln!("{broken} of {all} broke; the dead director had {of_dead}");
            expect(broken == of_dead && broken > 0, || format!("{broken}, {of_dead}"))
        });
    }
}
