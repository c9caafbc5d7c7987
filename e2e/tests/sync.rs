//! Two directors with keepalived that synchronise their sessions: connections go on whichever of
//! them has the addresses.
//!
//! Busy connections and a download are held over each event, by IPv4 and IPv6; then each must go
//! on, and the kernels of both ends must have seen no reset.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::bed::Driver;
use sluice_e2e::bed::pair::{Kind, PORT, Pair};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, endpoint};
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Director, Family, LabError, wait_until};

use crate::dns::{query_list, start_nsd};
use crate::failover::{found_ready, master};
use crate::fixture::{PREFIX, SOON, here, turn};
use crate::held::Held;

/// Connections that are held, of each family.
const CONNECTIONS: usize = 4;
pub const VIPS: [&str; 2] = [Pair::vip(Family::V4), Pair::vip(Family::V6)];
const SECOND_VIPS: [&str; 2] = [Pair::second_vip(Family::V4), Pair::second_vip(Family::V6)];
pub const SYNC_PORT: u16 = 8848;
pub const KEY: &str = "6f1f6c4e5b7a8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70";

/// Runs a test on two synchronised directors, the primary of which is the master.
pub fn on_synchronised(name: &str, test: impl FnOnce(&mut Pair) -> Result<(), LabError>) {
    on_synchronised_of(Kind::default(), name, test);
}

pub fn on_synchronised_of(
    kind: Kind,
    name: &str,
    test: impl FnOnce(&mut Pair) -> Result<(), LabError>,
) {
    on_synchronised_with(kind, name, |_, _| Ok(String::new()), test);
}

/// The same with more in the configuration file of each.
pub fn on_synchronised_with(
    kind: Kind,
    name: &str,
    more: impl Fn(&Pair, usize) -> Result<String, LabError>,
    test: impl FnOnce(&mut Pair) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let pair = Pair::of(kind, PREFIX, ["", ""]);
    let mut pair = pair.unwrap_or_else(|error| panic!("{name}: {error}"));
    let done = start(&mut pair, more).and_then(|()| test(&mut pair));
    if let Err(error) = done {
        let said: String = pair.nodes.iter().map(|node| node.said()).collect();
        panic!("{name}: {error}\n{said}");
    }
}

fn start(
    pair: &mut Pair,
    more: impl Fn(&Pair, usize) -> Result<String, LabError>,
) -> Result<(), LabError> {
    for index in [0, 1] {
        pair.nodes[index].more = section(pair, index, KEY)? + &more(pair, index)?;
        pair.nodes[index].start_director()?;
    }
    for index in [0, 1] {
        pair.nodes[index].start_keepalived(&[])?;
    }
    for index in [0, 1] {
        wait_until("both to be synchronised", SOON, || {
            let sync = sync(pair, index)?;
            let done = sync["synchronised"] == true && sync["peers"][0]["up"] == true;
            Ok(done.then_some(()))
        })?;
    }
    found_ready(pair)?;
    match pair.nodes[0].kind.both_active {
        true => each_has_its_own(pair),
        false => master(pair, 0),
    }
}

/// Waits until each director has its own addresses, and none of the other's.
fn each_has_its_own(pair: &Pair) -> Result<(), LabError> {
    for (index, node) in pair.nodes.iter().enumerate() {
        for (owner, address) in addresses() {
            wait_until(&format!("{address} at {owner} alone"), SOON, || {
                Ok((node.holds(&address)? == (owner == index)).then_some(()))
            })?;
        }
    }
    Ok(())
}

/// All addresses that move, and whose they are when both directors are active.
fn addresses() -> Vec<(usize, String)> {
    let of = |family| {
        let vips = [(0, Pair::vip(family)), (1, Pair::second_vip(family))];
        let vips = vips.map(|(owner, vip)| (owner, vip.to_owned()));
        [0, 1].map(|owner| (owner, Pair::local_of(family, owner))).into_iter().chain(vips)
    };
    FAMILIES.into_iter().flat_map(of).collect()
}

/// `[sync]` of a director, with its key in a file.
pub fn section(pair: &Pair, index: usize, key: &str) -> Result<String, LabError> {
    let file = pair.nodes[index].lab.dir().join("sync.key");
    std::fs::write(&file, key).map_err(LabError::file("writing a key"))?;
    pair.nodes[index].space.run("chmod", &["600", &file.display().to_string()])?.ok()?;
    let at = |index| format!("{}:{SYNC_PORT}", Pair::between(index));
    Ok(format!(
        "[sync]\nlisten = \"{}\"\npeers = [\"{}\"]\nkey_files = [{file:?}]\n",
        at(index),
        at(1 - index),
    ))
}

/// Waits until a director says what the other one is.
fn other_is(pair: &mut Pair, index: usize, role: &str) -> Result<(), LabError> {
    wait_until(&format!("director {index} to say that the other is {role}"), SOON, || {
        let standing = &sync(pair, index)?["peers"][0]["standing"];
        Ok((standing["role"] == role).then_some(()))
    })
}

/// What `sluice ha` says of a director's synchronisation.
pub fn sync(pair: &mut Pair, index: usize) -> Result<Value, LabError> {
    Ok(pair.nodes[index].director()?.ask("ha")?["sync"].clone())
}

pub fn sessions(pair: &mut Pair, index: usize) -> Result<u64, LabError> {
    let status = pair.nodes[index].director()?.ask("status")?;
    Ok(status["sessions"]["live"].as_u64().unwrap_or(0))
}

/// Opens connections, and waits until both directors know them.
pub fn held(pair: &mut Pair) -> Result<Held, LabError> {
    let vips: &[&str] = match pair.nodes[0].kind.both_active {
        true => &[VIPS, SECOND_VIPS].concat(),
        false => &VIPS,
    };
    let held = Held::begin(&pair.client, &pair.reals, vips, CONNECTIONS)?;
    wait_until("the other director to know all", SOON, || {
        let all = held.count();
        Ok((sessions(pair, 0)? >= all && sessions(pair, 1)? >= all).then_some(()))
    })?;
    Ok(held)
}

#[test]
fn alone_connections_go_on_at_the_other_director_and_back() {
    let name = here!(alone_connections_go_on_at_the_other_director_and_back);
    there_and_back(Kind::default(), name);
}

fn there_and_back(kind: Kind, name: &str) {
    on_synchronised_of(kind, name, |pair| {
        let held = held(pair)?;
        for (index, role) in ["standby", "active"].into_iter().enumerate() {
            other_is(pair, index, if kind.both_active { "partial" } else { role })?;
        }
        pair.nodes[0].kill_director()?;
        // As a machine that has lost its memory too.
        let kept = Director::kept_in(pair.nodes[0].lab.dir());
        std::fs::remove_dir_all(&kept).map_err(LabError::file("removing kept sessions"))?;
        let begun = Instant::now();
        master(pair, 1)?;
        eprintln!("killed: at the other after {} ms", begun.elapsed().as_millis());
        let begun = Instant::now();
        pair.nodes[0].start_director()?;
        master(pair, 0)?;
        eprintln!("started again: back after {} ms", begun.elapsed().as_millis());
        let sync = sync(pair, 0)?;
        let new = sync["reports_received"]["new"].as_u64().unwrap_or(0);
        expect(new >= (CONNECTIONS * FAMILIES.len()) as u64, || format!("taken over: {sync}"))?;
        held.end()
    });
}

/// `sluice ha drain --stop`: the other takes over, the director ends, and nothing breaks.
#[test]
fn alone_a_drained_director_hands_over() {
    let name = here!(alone_a_drained_director_hands_over);
    on_synchronised(name, |pair| {
        let held = held(pair)?;
        let said = pair.nodes[0].director()?.sluice(&["ha", "drain", "--deadline", "40"])?;
        expect(said.contains("drained"), || said.clone())?;
        let ha = pair.nodes[0].director()?.ask("ha")?;
        expect(ha["role"] == "standby" && ha["draining"] == true, || ha.to_string())?;
        master(pair, 1)?;
        let stopped = ["ha", "drain", "--deadline", "5", "--stop"];
        let said = pair.nodes[0].director()?.sluice(&stopped)?;
        expect(said.contains("the director has ended"), || said.clone())?;
        held.end()
    });
}

/// Who has another key gets nothing in, and is counted.
#[test]
fn a_peer_with_another_key_gets_nothing_in() {
    let name = here!(a_peer_with_another_key_gets_nothing_in);
    let Some(_turn) = turn(name) else { return };
    let run = || {
        let mut pair = Pair::new(PREFIX, ["", ""])?;
        for (index, key) in [(0, KEY.to_owned()), (1, KEY.replace('6', "7"))] {
            pair.nodes[index].more = section(&pair, index, &key)?;
            pair.nodes[index].start_director()?;
        }
        wait_until("both to have refused datagrams", SOON, || {
            let refused = |sync: Value| sync["datagrams"]["forged"].as_u64().unwrap_or(0) > 3;
            Ok((refused(sync(&mut pair, 0)?) && refused(sync(&mut pair, 1)?)).then_some(()))
        })?;
        let shown = sync(&mut pair, 0)?;
        expect(shown["peers"][0]["up"] == false, || shown.to_string())?;
        let text = pair.nodes[0].director()?.sluice(&["ha"])?;
        expect(text.contains("down") && text.contains(" forged"), || text.clone())?;
        let listens = pair.nodes[0].space.run("ss", &["-Hlun"])?.ok()?.stdout;
        expect(listens.contains(&SYNC_PORT.to_string()), || format!("{PORT}: {listens}"))
    };
    run().unwrap_or_else(|error: LabError| panic!("{name}: {error}"));
}

/// Further faults, for `make test-all`: each takes some twenty seconds.
mod faults {
    use super::*;

    #[test]
    fn alone_there_and_back_with_two_workers() {
        let kind = Kind { workers: 2, ..Kind::default() };
        there_and_back(kind, here!(alone_there_and_back_with_two_workers));
    }

    #[test]
    fn alone_there_and_back_by_af_packet() {
        let kind = Kind { driver: Driver::AfPacket, ..Kind::default() };
        there_and_back(kind, here!(alone_there_and_back_by_af_packet));
    }

    #[test]
    fn alone_there_and_back_by_af_packet_with_two_workers() {
        let kind = Kind { driver: Driver::AfPacket, workers: 2, ..Kind::default() };
        there_and_back(kind, here!(alone_there_and_back_by_af_packet_with_two_workers));
    }

    /// dnsperf asks 100 times a second by one socket while the primary dies and comes back: what is
    /// asked in the gaps is lost, and no more.
    #[test]
    fn alone_queries_go_on() {
        let name = here!(alone_queries_go_on);
        on_synchronised(name, |pair| {
            for index in 0..pair.reals.len() {
                let addresses = FAMILIES.map(|family| Pair::host(family, 11 + index));
                let name = format!("nsd{}", 1 + index);
                let nsd = start_nsd(&pair.reals[index], &name, &addresses)?;
                pair.peers.push(nsd);
            }
            let list = query_list(&pair.lab)?.display().to_string();
            let ask = |family: Family| {
                let of = if family == Family::V4 { "inet" } else { "inet6" };
                let args =
                    ["-s", Pair::vip(family), "-d", &list, "-l", "10", "-Q", "100", "-f", of];
                let args = [&args[..], &["-c", "1", "-T", "1", "-q", "200", "-t", "1"]].concat();
                pair.client.start(&format!("dnsperf{}", family.bits()), "dnsperf", &args)
            };
            let mut asking = FAMILIES.into_iter().map(ask).collect::<Result<Vec<_>, _>>()?;
            wait_until("both to ask", SOON, || Ok((sessions(pair, 0)? >= 2).then_some(())))?;
            pair.nodes[0].kill_director()?;
            master(pair, 1)?;
            pair.nodes[0].start_director()?;
            master(pair, 0)?;
            for one in &mut asking {
                one.wait(SOON)?;
                let log = one.log();
                let lost = log.lines().find_map(|line| {
                    let rest = line.trim().strip_prefix("Queries lost:")?;
                    rest.split_whitespace().next()?.parse::<u32>().ok()
                });
                eprintln!("queries lost: {lost:?} of some 1,000");
                // Two gaps, on a machine that has other work, too.
                expect(lost.is_some_and(|lost| lost < 300), || log)?;
            }
            Ok(())
        });
    }

    /// wrk and SIPp load the pair while the primary dies, without the sessions that outlive it, and
    /// comes back: no connection of wrk's that was open breaks, and no call fails.
    #[test]
    fn alone_requests_and_calls_go_on() {
        let name = here!(alone_requests_and_calls_go_on);
        on_synchronised(name, |pair| {
            for index in 0..pair.reals.len() {
                for family in FAMILIES {
                    let (host, name) =
                        (Pair::host(family, 11 + index), format!("uas{}", 1 + index));
                    let args = ["-sn", "uas", "-i", &host, "-p", "5060", "-nostdin"];
                    let name = format!("{name}-{}", family.bits());
                    pair.peers.push(pair.reals[index].start(&name, "sipp", &args)?);
                }
            }
            let mut running = Vec::new();
            for family in FAMILIES {
                let (vip, bits) = (Pair::vip(family), family.bits());
                let url = format!("http://{}/", endpoint(vip, 80));
                let args = ["-t", "1", "-c", "8", "-d", "10s", &url];
                running.push(pair.client.start(&format!("wrk{bits}"), "wrk", &args)?);
                let (at, from) = (endpoint(vip, 5060), Pair::host(family, 48));
                let args = ["-sn", "uac", &at, "-i", &from, "-nostdin"];
                // Long enough for the called one to repeat an answer whose acknowledgement was
                // lost: it does not expect a BYE before, and answers that only once.
                let args = [&args[..], &["-r", "20", "-m", "160", "-d", "2000"]].concat();
                running.push(pair.client.start(&format!("uac{bits}"), "sipp", &args)?);
            }
            // Eight connections and one flow of each family, and those of nobody else.
            wait_until("all to be known", SOON, || Ok((sessions(pair, 1)? >= 18).then_some(())))?;
            pair.nodes[0].kill_director()?;
            let kept = Director::kept_in(pair.nodes[0].lab.dir());
            std::fs::remove_dir_all(&kept).map_err(LabError::file("removing kept sessions"))?;
            master(pair, 1)?;
            pair.nodes[0].start_director()?;
            master(pair, 0)?;
            for one in &mut running {
                let ended = one.wait(SOON)?;
                let log = one.log();
                let told = ["Requests/sec", "Socket errors", "Failed call ", "Successful call "];
                for line in log.lines().filter(|line| told.iter().any(|it| line.contains(it))) {
                    eprintln!("{}", line.trim());
                }
                expect(ended.success(), || log.clone())?;
                expect(!log.contains("Socket errors"), || log)?;
            }
            Ok(())
        });
    }

    /// A service comes to the primary first: what was told of its sessions means nothing to the
    /// other, which asks for it as soon as it has the service too.
    #[test]
    fn alone_sessions_of_a_service_that_comes_later_go_on() {
        let name = here!(alone_sessions_of_a_service_that_comes_later_go_on);
        on_synchronised(name, |pair| {
            let real = format!("{}:{LINES_PORT}", Pair::host(Family::V4, 11));
            let add = ["service", "add", "late", "--protocol", "tcp", "--vip"];
            let more = ["--port", "2001", "--mode", "fnat", "--pool", "lan", "--real", &real];
            let add = [&add[..], &[Pair::vip(Family::V4)], &more].concat();
            pair.nodes[0].director()?.sluice(&add)?;
            let peer = program("sluice-peer")?;
            let args = ["hold", &format!("{}:2001", Pair::vip(Family::V4)), "10"];
            let mut held = pair.client.start("hold", &peer.to_string_lossy(), &args)?;
            held.wait_for_words("line 1", SOON)?;
            wait_until("its session to be told", SOON, || {
                let unknown = sync(pair, 1)?["reports_received"]["unknown"].as_u64();
                Ok(unknown.is_some_and(|unknown| unknown > 0).then_some(()))
            })?;
            let before = sessions(pair, 1)?;
            pair.nodes[1].director()?.sluice(&add)?;
            // A session in use is told again after eight seconds at the earliest.
            wait_until("the other to have it", Duration::from_secs(4), || {
                Ok((sessions(pair, 1)? > before).then_some(()))
            })?;
            pair.nodes[0].kill_director()?;
            let kept = Director::kept_in(pair.nodes[0].lab.dir());
            std::fs::remove_dir_all(&kept).map_err(LabError::file("removing kept sessions"))?;
            master(pair, 1)?;
            let ended = held.wait(Duration::from_secs(60))?;
            expect(ended.success(), || format!("it broke: {}", held.log_tail(3)))
        });
    }

    /// Each director is master of its own VIPs; one dies, the other has everything, and each has
    /// its own again.
    #[test]
    fn alone_both_are_active() {
        let name = here!(alone_both_are_active);
        let kind = Kind { both_active: true, ..Kind::default() };
        on_synchronised_of(kind, name, |pair| {
            let held = held(pair)?;
            pair.nodes[0].kill_director()?;
            let kept = Director::kept_in(pair.nodes[0].lab.dir());
            std::fs::remove_dir_all(&kept).map_err(LabError::file("removing kept sessions"))?;
            for (_, address) in addresses() {
                wait_until(&format!("{address} at the one that is left"), SOON, || {
                    Ok(pair.nodes[1].holds(&address)?.then_some(()))
                })?;
            }
            pair.nodes[0].start_director()?;
            each_has_its_own(pair)?;
            held.end()
        });
    }

    /// Without synchronisation they break: the test above can fail.
    #[test]
    fn alone_without_synchronisation_connections_break() {
        let name = here!(alone_without_synchronisation_connections_break);
        crate::failover::on_pair(name, ["", ""], |pair| {
            let peer = program("sluice-peer")?;
            let args = ["hold", &format!("{}:{LINES_PORT}", Pair::vip(Family::V4)), "8"];
            let mut held = pair.client.start("hold", &peer.to_string_lossy(), &args)?;
            held.wait_for_words("line 1", SOON)?;
            pair.nodes[0].kill_director()?;
            master(pair, 1)?;
            let ended = held.wait(Duration::from_secs(60))?;
            expect(!ended.success(), || format!("it went on: {}", held.log_tail(3)))
        });
    }

    /// A planned move, by keepalived's stop, and the return.
    #[test]
    fn alone_connections_go_on_over_a_planned_move() {
        let name = here!(alone_connections_go_on_over_a_planned_move);
        on_synchronised(name, |pair| {
            let held = held(pair)?;
            if let Some(mut running) = pair.nodes[0].keepalived.take() {
                running.stop()?;
            }
            master(pair, 1)?;
            pair.nodes[0].start_keepalived(&[])?;
            master(pair, 0)?;
            held.end()
        });
    }

    /// The master's process is replaced by a new one: it stays the master, is synchronised all the
    /// time, and hears its peer again.
    #[test]
    fn alone_an_upgrade_of_the_master_moves_nothing() {
        on_synchronised(here!(alone_an_upgrade_of_the_master_moves_nothing), |pair| {
            let held = held(pair)?;
            let pid = |pair: &mut Pair| -> Result<u64, LabError> {
                Ok(pair.nodes[0].director()?.ask("status")?["pid"].as_u64().unwrap_or(0))
            };
            let moves = |pair: &mut Pair| -> Result<Value, LabError> {
                let ha = pair.nodes[1].director()?.ask("ha")?;
                let all = ha["addresses"].as_array().cloned().unwrap_or_default();
                Ok(all.into_iter().map(|it| it["changes"].clone()).collect())
            };
            let (before, moved) = (pid(pair)?, moves(pair)?);
            println!("{}", pair.nodes[0].director()?.sluice(&["ha", "upgrade"])?);
            let now = pid(pair)?;
            let _last = Last(now);
            expect(now != before, || format!("{now} is the old process"))?;
            expect(sync(pair, 0)?["synchronised"] == true, || "not synchronised".to_owned())?;
            for index in [0, 1] {
                wait_until("the directors to hear each other", SOON, || {
                    Ok((sync(pair, index)?["peers"][0]["up"] == true).then_some(()))
                })?;
            }
            held.end()?;
            master(pair, 0)?;
            let later = moves(pair)?;
            expect(later == moved, || format!("addresses have moved: {moved}, now {later}"))
        });
    }

    struct Last(u64);

    impl Drop for Last {
        fn drop(&mut self) {
            crate::handover::end(self.0);
        }
    }
}
