//! Two directors and keepalived from `sluice ha config keepalived`: whatever dies on the primary,
//! the addresses go to the secondary, and clients are served.
//!
//! A client opens one connection after the other all the time; the gap is the time between the
//! last one that was answered before an event and the first one after it.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::bed::Driver;
use sluice_e2e::bed::pair::{Kind, Node, Pair};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::load::curl;
use sluice_e2e::web::start_script;
use sluice_e2e::{Family, LabError, Running, wait_until};

use crate::fixture::{PREFIX, SOON, here, turn};

/// The longest gap that is right on a machine that has other work, too. Usual ones are in
/// docs/high-availability.md.
const GAP_LIMIT: Duration = Duration::from_secs(3);
/// Between two connections of the client, and how long each may take.
const PAUSE_MS: &str = "10";
const PATIENCE_MS: &str = "100";

/// Runs a test on two directors, the primary of which is the master.
pub fn on_pair(name: &str, more: [&str; 2], test: impl FnOnce(&mut Pair) -> Result<(), LabError>) {
    on_pair_of(Kind::default(), name, more, test);
}

fn on_pair_of(
    kind: Kind,
    name: &str,
    more: [&str; 2],
    test: impl FnOnce(&mut Pair) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let pair = Pair::started(kind, PREFIX, more);
    let mut pair = pair.unwrap_or_else(|error| panic!("{name}: {error}"));
    let done = found_ready(&pair).and_then(|()| master(&pair, 0));
    let done = done.and_then(|()| test(&mut pair));
    if let Err(error) = done {
        let said: String = pair.nodes.iter().map(Node::said).collect();
        panic!("{name}: {error}\n{said}");
    }
}

/// Waits until a node has all the addresses and the other one, unless it may keep them, none; then
/// until clients are served.
pub fn arrived(pair: &Pair, index: usize, other_may_keep: bool) -> Result<(), LabError> {
    let other = &pair.nodes[1 - index];
    wait_until(&format!("the addresses to be at {index}"), SOON, || {
        let here = pair.nodes[index].holds_all()? == Some(true);
        Ok((here && (other_may_keep || other.holds_all()? == Some(false))).then_some(()))
    })?;
    for family in FAMILIES {
        wait_until(&format!("{family} to be served"), SOON, || {
            let args = ["-sS", "--fail", "--max-time", "1", &Pair::url(family)];
            Ok(pair.client.run("curl", &args)?.status.success().then_some(()))
        })?;
    }
    Ok(())
}

/// Waits until a node is the master, alone.
pub fn master(pair: &Pair, index: usize) -> Result<(), LabError> {
    arrived(pair, index, false)
}

/// Waits until keepalived has found both directors ready, so that each has the priority that it
/// keeps. Before, whichever is found ready first takes the role, and gives it back a moment later.
pub fn found_ready(pair: &Pair) -> Result<(), LabError> {
    for (index, node) in pair.nodes.iter().enumerate() {
        wait_until(&format!("keepalived to find director {index} ready"), SOON, || {
            Ok(node.is_found_ready().then_some(()))
        })?;
    }
    Ok(())
}

/// The client's connections, one program for each family.
pub struct Knocking {
    running: Vec<(Family, Running)>,
}

impl Knocking {
    /// Begins, and waits until both are served.
    pub fn start(pair: &Pair) -> Result<Self, LabError> {
        let start = |family: Family| {
            let (name, vip) = (format!("knock{}", family.bits()), Pair::vip(family));
            let args = [vip, "80", "300", PAUSE_MS, PATIENCE_MS];
            Ok((family, start_script(&pair.client, &name, "knock.py", &args)?))
        };
        let running = FAMILIES.into_iter().map(start).collect::<Result<Vec<_>, LabError>>()?;
        let knocking = Self { running };
        knocking.more(10)?;
        Ok(knocking)
    }

    /// Waits until so many more were served of each family.
    fn more(&self, count: usize) -> Result<(), LabError> {
        for (family, running) in &self.running {
            let before = served(&running.log()).len();
            wait_until(&format!("more traffic of {family}"), SOON, || {
                Ok((served(&running.log()).len() >= before + count).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Ends, and says the longest gap of each family.
    pub fn gaps(mut self) -> Result<Vec<(Family, Duration)>, LabError> {
        self.more(10)?;
        let mut gaps = Vec::new();
        for (family, running) in &mut self.running {
            running.kill()?;
            let at = served(&running.log());
            let longest = at.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
            gaps.push((*family, Duration::from_secs_f64(longest)));
        }
        Ok(gaps)
    }
}

/// When each connection that was served began, in seconds.
fn served(log: &str) -> Vec<f64> {
    let read = |line: &str| {
        let (at, rest) = line.split_once(' ')?;
        rest.starts_with("ok ").then(|| at.parse().ok())?
    };
    log.lines().filter_map(read).collect()
}

/// Does something while the client goes on, and gives the longest gap that it made.
fn measured(
    what: &str,
    pair: &mut Pair,
    event: impl FnOnce(&mut Pair) -> Result<(), LabError>,
) -> Result<Duration, LabError> {
    let knocking = Knocking::start(pair)?;
    let begun = Instant::now();
    event(pair)?;
    let took = begun.elapsed();
    let gaps = knocking.gaps()?;
    let told: Vec<_> =
        gaps.iter().map(|(family, gap)| format!("{family} {} ms", gap.as_millis())).collect();
    eprintln!("{what}: gap {}, after {} ms all was as expected", told.join(", "), took.as_millis());
    expect(gaps.iter().all(|(_, gap)| *gap < GAP_LIMIT), || format!("{what}: {told:?}"))?;
    Ok(gaps.into_iter().map(|(_, gap)| gap).max().unwrap_or_default())
}

#[test]
fn alone_a_director_that_is_killed_is_replaced_and_takes_back() {
    let name = here!(alone_a_director_that_is_killed_is_replaced_and_takes_back);
    on_pair(name, ["", ""], |pair| {
        measured("primary's director killed", pair, |pair| {
            pair.nodes[0].kill_director()?;
            master(pair, 1)
        })?;
        measured("primary's director started again", pair, |pair| {
            pair.nodes[0].start_director()?;
            master(pair, 0)
        })?;
        // The other way round nothing moves.
        measured("secondary's director killed", pair, |pair| {
            pair.nodes[1].kill_director()?;
            master(pair, 0)
        })
        .map(drop)
    });
}

/// keepalived says what it does, by its FIFO: it is an event and a line of `sluice ha`.
#[test]
fn alone_what_keepalived_says_is_told() {
    on_pair(here!(alone_what_keepalived_says_is_told), ["", ""], |pair| {
        let says = |pair: &mut Pair, index: usize, state: &str| {
            wait_until(&format!("{state} to be told"), SOON, || {
                let ha = pair.nodes[index].director()?.ask("ha")?;
                let told = ha["transitions"].as_array().cloned().unwrap_or_default();
                let is_it = |it: &&serde_json::Value| it["kind"] == "group";
                let group = told.iter().find(is_it).is_some_and(|it| it["state"] == state);
                Ok((group && ha.get("disagreement").is_none()).then_some(()))
            })
        };
        says(pair, 0, "master")?;
        says(pair, 1, "backup")?;
        pair.nodes[0].kill_director()?;
        says(pair, 1, "master")?;
        pair.nodes[0].start_director()?;
        master(pair, 0)?;
        says(pair, 0, "master")?;
        says(pair, 1, "backup")?;
        let director = pair.nodes[1].director()?;
        let events = director.sluice(&["events", "--kind", "ha"])?;
        expect(events.contains("group sluice became MASTER by keepalived"), || events)?;
        // What is forged moves nothing, and is seen to disagree.
        director.sluice(&["ha", "notify", "GROUP", "sluice", "MASTER", "0"])?;
        let ha = director.ask("ha")?;
        let differs = ha["disagreement"].as_str().unwrap_or_default();
        expect(differs.contains("no virtual address") && ha["role"] == "standby", || {
            format!("{ha}")
        })
    });
}

/// The primary comes back whole.
fn back(pair: &mut Pair) -> Result<(), LabError> {
    measured("primary's director and keepalived started again", pair, |pair| {
        pair.nodes[0].start_director()?;
        pair.nodes[0].start_keepalived(&[])?;
        master(pair, 0)
    })
    .map(drop)
}

/// Readiness is what a file says here, in place of `sluice ha check`.
#[test]
fn a_director_that_is_not_ready_loses_to_one_that_is() {
    let name = here!(a_director_that_is_not_ready_loses_to_one_that_is);
    let Some(_turn) = turn(name) else { return };
    let run = || {
        let mut pair = Pair::new(PREFIX, ["", ""])?;
        for node in &mut pair.nodes {
            node.start_director()?;
            set_ready(node, true)?;
            start_by_file(node)?;
        }
        let done = readiness_moves(&mut pair);
        let said: String = pair.nodes.iter().map(Node::said).collect();
        done.map_err(|error| LabError::Wrong(format!("{error}\n{said}")))
    };
    run().unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn set_ready(node: &Node, ready: bool) -> Result<(), LabError> {
    let file = node.lab.dir().join("ready");
    let done = if ready { std::fs::write(&file, "") } else { std::fs::remove_file(&file) };
    done.map_err(LabError::file("the file that says ready"))
}

fn start_by_file(node: &mut Node) -> Result<(), LabError> {
    let text = node.keepalived_text(&[])?;
    let line = text.lines().find(|line| line.ends_with(" ha check\""));
    let line = line.ok_or_else(|| LabError::Wrong(format!("no check in {text}")))?;
    let by_file = format!("script \"/usr/bin/test -e {}/ready\"", node.lab.dir().display());
    node.start_keepalived_with(&text.replace(line.trim_start(), &by_file))
}

fn readiness_moves(pair: &mut Pair) -> Result<(), LabError> {
    master(pair, 0)?;
    set_ready(&pair.nodes[0], false)?;
    master(pair, 1)?;
    // Alone it serves all the same.
    if let Some(mut running) = pair.nodes[1].keepalived.take() {
        running.stop()?;
    }
    master(pair, 0)?;
    start_by_file(&mut pair.nodes[1])?;
    master(pair, 1)?;
    set_ready(&pair.nodes[0], true)?;
    master(pair, 0)
}

/// Adverts by unicast, and what `sluice ha check` says of each state.
#[test]
fn unicast_and_what_check_says() {
    let name = here!(unicast_and_what_check_says);
    let Some(_turn) = turn(name) else { return };
    let run = || {
        let mut pair = Pair::new(PREFIX, ["", ""])?;
        for index in [0, 1] {
            let node = &mut pair.nodes[index];
            node.start_director()?;
            let [from, to] = [1 + index, 2 - index]
                .map(|number| FAMILIES.map(|family| Pair::host(family, number)));
            let options = ["--source", &from[0], "--source", &from[1], "--peer", &to[0], &to[1]];
            node.start_keepalived(&options)?;
        }
        let done = checked(&mut pair);
        let said: String = pair.nodes.iter().map(Node::said).collect();
        done.map_err(|error| LabError::Wrong(format!("{error}\n{said}")))
    };
    run().unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn checked(pair: &mut Pair) -> Result<(), LabError> {
    master(pair, 0)?;
    let answer = curl(&pair.client, &Pair::url(Family::V6))?;
    expect(answer.starts_with("Real Server 0"), || answer.clone())?;
    let space = pair.nodes[0].space.clone();
    let sluice = sluice_e2e::director::program("sluice")?.display().to_string();
    let director = pair.nodes[0].director()?;
    let socket = director.socket().display().to_string();
    let check = |more: &[&str]| {
        let begun = Instant::now();
        let usual = ["--socket", &socket, "ha", "check", "--json"];
        let ran = space.run(&sluice, &[&usual[..], more].concat())?;
        let took = begun.elapsed();
        let said: Value = serde_json::from_str(&ran.stdout)
            .map_err(|_| LabError::Unreadable { what: "check".to_owned(), text: ran.stdout })?;
        eprintln!("`sluice ha check {more:?}`: {} ms, {said}", took.as_millis());
        expect(took < Duration::from_secs(5), || format!("it took {took:?}"))?;
        Ok::<_, LabError>((ran.status.success(), said))
    };
    let (passed, said) = check(&[])?;
    expect(passed && said["ready"] == true && said["alive"] == true, || said.to_string())?;
    let (passed, said) = check(&["--alive"])?;
    expect(passed && said["alive"] == true, || said.to_string())?;
    // A director that hangs: it keeps its socket, and does not answer.
    let pid = director.pid().to_string();
    space.run("kill", &["-STOP", &pid])?.ok()?;
    for more in [&[][..], &["--alive"], &["--alive", "--hold-ms", "800"]] {
        let (passed, said) = check(more)?;
        expect(!passed && said["alive"] == false, || said.to_string())?;
    }
    master(pair, 1)?;
    space.run("kill", &["-CONT", &pid])?.ok()?;
    master(pair, 0)?;
    let knocking = Knocking::start(pair)?;
    space.run("kill", &["-STOP", &pid])?.ok()?;
    master(pair, 1)?;
    // It takes a second until its silence counts, so this is no failover that is judged.
    eprintln!("primary's director frozen: {:?}", knocking.gaps()?);
    space.run("kill", &["-CONT", &pid])?.ok()?;
    master(pair, 0)?;
    pair.nodes[0].kill_director()?;
    let (passed, said) = check(&[])?;
    expect(!passed && said["alive"] == false, || said.to_string())
}

/// Further faults, for `make test-all`: each takes some twenty seconds.
mod faults {
    use super::*;

    #[test]
    fn alone_a_keepalived_that_stops_gives_the_addresses_away() {
        let name = here!(alone_a_keepalived_that_stops_gives_the_addresses_away);
        on_pair(name, ["", ""], |pair| {
            measured("primary's keepalived stopped", pair, |pair| {
                if let Some(mut running) = pair.nodes[0].keepalived.take() {
                    running.stop()?;
                }
                master(pair, 1)
            })?;
            measured("primary's keepalived started again", pair, |pair| {
                pair.nodes[0].start_keepalived(&[])?;
                master(pair, 0)
            })?;
            measured("primary's wire cut", pair, |pair| {
                pair.set_wire(0, "down")?;
                master(pair, 1)
            })?;
            measured("primary's wire laid again", pair, |pair| {
                pair.set_wire(0, "up")?;
                master(pair, 0)
            })
            .map(drop)
        });
    }

    /// A director of other ports and workers is killed and comes back, and freezes and goes on.
    fn others(name: &str, kind: Kind) {
        on_pair_of(kind, name, ["", ""], |pair| {
            measured(&format!("{kind:?}: primary's director killed"), pair, |pair| {
                pair.nodes[0].kill_director()?;
                master(pair, 1)
            })?;
            measured(&format!("{kind:?}: started again"), pair, |pair| {
                pair.nodes[0].start_director()?;
                master(pair, 0)
            })?;
            let pid = pair.nodes[0].director()?.pid().to_string();
            measured(&format!("{kind:?}: frozen"), pair, |pair| {
                pair.nodes[0].space.run("kill", &["-STOP", &pid])?.ok()?;
                master(pair, 1)
            })?;
            measured(&format!("{kind:?}: going on"), pair, |pair| {
                pair.nodes[0].space.run("kill", &["-CONT", &pid])?.ok()?;
                master(pair, 0)
            })
            .map(drop)
        });
    }

    /// At ten different moments between two runs of the script that watches it.
    #[test]
    fn alone_a_director_that_freezes_ten_times() {
        let name = here!(alone_a_director_that_freezes_ten_times);
        on_pair_of(Kind { workers: 2, ..Kind::default() }, name, ["", ""], |pair| {
            let pid = pair.nodes[0].director()?.pid().to_string();
            let mut gaps = Vec::new();
            for round in 1..=10 {
                gaps.push(measured(&format!("frozen {round}"), pair, |pair| {
                    pair.nodes[0].space.run("kill", &["-STOP", &pid])?.ok()?;
                    master(pair, 1)
                })?);
                pair.nodes[0].space.run("kill", &["-CONT", &pid])?.ok()?;
                master(pair, 0)?;
            }
            // One may meet other work of the machine.
            gaps.sort_unstable();
            let almost_all = gaps[gaps.len() - 2];
            expect(almost_all < Duration::from_millis(500), || format!("{gaps:?}"))
        });
    }

    #[test]
    fn alone_by_af_xdp() {
        others(here!(alone_by_af_xdp), Kind::default());
    }

    #[test]
    fn alone_by_af_xdp_with_two_workers() {
        let kind = Kind { workers: 2, ..Kind::default() };
        others(here!(alone_by_af_xdp_with_two_workers), kind);
    }

    #[test]
    fn alone_by_af_packet() {
        let kind = Kind { driver: Driver::AfPacket, ..Kind::default() };
        others(here!(alone_by_af_packet), kind);
    }

    #[test]
    fn alone_by_af_packet_with_two_workers() {
        let kind = Kind { driver: Driver::AfPacket, workers: 2, ..Kind::default() };
        others(here!(alone_by_af_packet_with_two_workers), kind);
    }

    #[test]
    fn alone_director_then_keepalived_killed() {
        on_pair(here!(alone_director_then_keepalived_killed), ["", ""], |pair| {
            measured("primary's director killed, then keepalived", pair, |pair| {
                pair.nodes[0].kill_director()?;
                pair.nodes[0].kill_keepalived()?;
                arrived(pair, 1, true)
            })?;
            back(pair)
        });
    }

    #[test]
    fn alone_keepalived_then_director_killed() {
        on_pair(here!(alone_keepalived_then_director_killed), ["", ""], |pair| {
            measured("primary's keepalived killed, then the director", pair, |pair| {
                pair.nodes[0].kill_keepalived()?;
                // Nobody takes them away: both have them.
                arrived(pair, 1, true)?;
                expect(pair.nodes[0].holds_all()? == Some(true), || "they went away".to_owned())?;
                pair.nodes[0].kill_director()?;
                arrived(pair, 1, true)
            })?;
            back(pair)
        });
    }
}
