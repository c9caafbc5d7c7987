//! Further faults, for `make test-all`: each takes some twenty seconds or more.

mod table;

use std::time::Duration;

use serde_json::Value;
use sluice_e2e::bed::pair::{Kind, Node, Pair};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::web::start_iperf3;
use sluice_e2e::{Family, LabError, wait_until};

use super::{IPERF3_PORT, die, forget, service};
use crate::failover::{arrived, found_ready, master};
use crate::fixture::{PREFIX, SOON, here, turn};
use crate::held::Held;
use crate::sync::{
    KEY, SYNC_PORT, VIPS, held, on_synchronised, on_synchronised_with, sessions, sync,
};

/// iperf3 sends for eight seconds while the primary dies and comes back.
fn bulk(name: &str, reverse: bool) {
    let more = |_: &Pair, _| Ok(service("iperf", IPERF3_PORT));
    on_synchronised_with(Kind::default(), name, more, |pair| {
        for (index, real) in pair.reals.iter().enumerate() {
            pair.peers.push(start_iperf3(real, &format!("iperf{index}"))?);
        }
        let ask = |family: Family| {
            let args = ["-c", Pair::vip(family), "-t", "8", "-i", "0.1", "-b", "50M", "--json"];
            let args = [&args[..], if reverse { &["-R"] } else { &[] }].concat();
            pair.client.start(&format!("iperf3-{family}"), "iperf3", &args)
        };
        let mut running = FAMILIES.into_iter().map(ask).collect::<Result<Vec<_>, _>>()?;
        // A control and a data connection of each.
        wait_until("the other to know all", SOON, || Ok((sessions(pair, 1)? >= 4).then_some(())))?;
        die(pair)?;
        master(pair, 1)?;
        pair.nodes[0].start_director()?;
        master(pair, 0)?;
        for one in &mut running {
            let ended = one.wait(SOON)?;
            let log = one.log();
            expect(ended.success(), || log.clone())?;
            let said: Value = serde_json::from_str(&log)
                .map_err(|_| LabError::Unreadable { what: "iperf3".to_owned(), text: log })?;
            let end = &said["end"];
            let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
            let silent = said["intervals"].as_array().into_iter().flatten();
            let silent = silent.filter(|it| it["sum"]["bytes"] == 0).count();
            eprintln!(
                "iperf3{}: {} MB in 8 s, {silent} of 80 intervals without data, {} sent again",
                if reverse { " -R" } else { "" },
                bytes / 1_000_000,
                end["sum_sent"]["retransmits"],
            );
            expect(bytes > 10_000_000, || end.to_string())?;
        }
        Ok(())
    });
}

#[test]
fn alone_iperf3_goes_on() {
    bulk(here!(alone_iperf3_goes_on), false);
}

#[test]
fn alone_iperf3_goes_on_the_other_way() {
    bulk(here!(alone_iperf3_goes_on_the_other_way), true);
}

/// Both processes of keepalived get a signal.
fn signal_keepalived(node: &Node, signal: &str) -> Result<(), LabError> {
    let Some(running) = &node.keepalived else { return Ok(()) };
    let file = node.lab.dir().join("keepalived-v.pid").display().to_string();
    let pid = running.pid().to_string();
    let both = "kill \"-$1\" \"$2\" $(cat \"$3\")";
    node.space.run("sh", &["-c", both, "sh", signal, &pid, &file])?.ok().map(drop)
}

/// A frozen keepalived sends no adverts, and takes no address away: both machines have them, and
/// connections that are held go on all the while, as they do when it goes on.
#[test]
fn alone_a_frozen_keepalived_leaves_two_masters() {
    on_synchronised(here!(alone_a_frozen_keepalived_leaves_two_masters), |pair| {
        let held = held(pair)?;
        signal_keepalived(&pair.nodes[0], "STOP")?;
        arrived(pair, 1, true)?;
        for index in [0, 1] {
            expect(pair.nodes[index].holds_all()? == Some(true), || {
                format!("{index} has lost its addresses")
            })?;
            // What it is goes by the addresses that it has: it is no backup.
            let role = pair.nodes[index].director()?.ask("ha")?["role"].clone();
            expect(role == "active", || format!("{index} says that it is {role}"))?;
        }
        // Neighbours come to one of them as well as to the other.
        for _ in 0..20 {
            arrived_alone(pair)?;
        }
        signal_keepalived(&pair.nodes[0], "CONT")?;
        master(pair, 0)?;
        held.end()
    });
}

/// The primary's machine is gone: every process in it, and its links, at once. It boots again with
/// nothing.
fn vanish(pair: &mut Pair) -> Result<(), LabError> {
    let node = &mut pair.nodes[0];
    let all = "kill -KILL $(ip netns pids \"$1\")";
    let cut = format!("ip -n {} link set p1 down; {all}", pair.lan.name());
    node.space.ip(&["link", "set", "ha", "down"])?;
    // From outside: the shell must not be among them.
    std::process::Command::new("sh")
        .args(["-c", &cut, "sh", node.space.name()])
        .status()
        .map_err(LabError::file("killing all"))?;
    node.kill_director()?;
    if let Some(mut running) = node.keepalived.take() {
        running.kill()?;
    }
    let _ = std::fs::remove_file(node.lab.dir().join("keepalived-v.pid"));
    if node.space.has_device(&node.device()) {
        for family in FAMILIES {
            for address in [Pair::vip(family), Pair::local(family)] {
                let device = node.device();
                let prefix = if family == Family::V4 { 32 } else { 128 };
                let address = format!("{address}/{prefix}");
                // Some are there in one state, some in another.
                node.space.run("ip", &["address", "del", &address, "dev", &device])?;
            }
        }
    }
    forget(pair)
}

fn boot(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].space.ip(&["link", "set", "ha", "up"])?;
    pair.set_wire(0, "up")?;
    pair.nodes[0].start_director()?;
    pair.nodes[0].start_keepalived(&[])
}

#[test]
fn alone_a_machine_that_is_gone_at_once() {
    on_synchronised(here!(alone_a_machine_that_is_gone_at_once), |pair| {
        let held = held(pair)?;
        vanish(pair)?;
        arrived(pair, 1, true)?;
        boot(pair)?;
        master(pair, 0)?;
        held.end()
    });
}

/// A pair whose directors have `[sync]` by this address of each, and these keys; they are not
/// started.
fn sync_section(at: [&str; 2], index: usize, keys: &[String]) -> String {
    format!(
        "[sync]\nlisten = \"{}:{SYNC_PORT}\"\npeers = [\"{}:{SYNC_PORT}\"]\nkey_files = {keys:?}\n",
        at[index],
        at[1 - index],
    )
}

fn key_file(node: &Node, name: &str, key: &str) -> Result<String, LabError> {
    let file = node.lab.dir().join(name);
    std::fs::write(&file, key).map_err(LabError::file("writing a key"))?;
    let file = file.display().to_string();
    node.space.run("chmod", &["600", &file])?.ok()?;
    Ok(file)
}

/// Runs a test on two directors that synchronise by these addresses, with a key of one file each.
fn on_pair_by(
    name: &str,
    at: [&str; 2],
    test: impl FnOnce(&mut Pair, [String; 2]) -> Result<(), LabError>,
) {
    let Some(_turn) = turn(name) else { return };
    let run = |pair: &mut Pair| {
        let mut files = Vec::new();
        for (index, node) in pair.nodes.iter_mut().enumerate() {
            if at[index].starts_with('[') {
                let address = at[index].trim_matches(['[', ']']);
                node.space.address("ha", &format!("{address}/64"))?;
            }
            files.push(key_file(node, "old.key", KEY)?);
            node.more = sync_section(at, index, &files[index..]);
            node.start_director()?;
        }
        for node in &mut pair.nodes {
            node.start_keepalived(&[])?;
        }
        both_synchronised(pair)?;
        found_ready(pair)?;
        master(pair, 0)?;
        let [first, second] = [files[0].clone(), files[1].clone()];
        test(pair, [first, second])
    };
    let mut pair = Pair::new(PREFIX, ["", ""]).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = run(&mut pair) {
        let said: String = pair.nodes.iter().map(Node::said).collect();
        panic!("{name}: {error}\n{said}");
    }
}

fn both_synchronised(pair: &mut Pair) -> Result<(), LabError> {
    for index in [0, 1] {
        wait_until("both to be synchronised", SOON, || {
            let sync = sync(pair, index)?;
            let done = sync["synchronised"] == true && sync["peers"][0]["up"] == true;
            Ok(done.then_some(()))
        })?;
    }
    Ok(())
}

const BY_IPV6: [&str; 2] = ["[2001:db8:3::1]", "[2001:db8:3::2]"];
const BY_IPV4: [&str; 2] = ["203.0.113.1", "203.0.113.2"];

/// What directors tell each other goes by IPv6, to one address.
#[test]
fn alone_sessions_told_by_ipv6_go_on() {
    on_pair_by(here!(alone_sessions_told_by_ipv6_go_on), BY_IPV6, |pair, _| {
        let listens = pair.nodes[0].space.run("ss", &["-Hlun"])?.ok()?.stdout;
        let own = format!("{}:{SYNC_PORT}", BY_IPV6[0]);
        expect(listens.contains(&own), || format!("no {own}: {listens}"))?;
        let held = held(pair)?;
        die(pair)?;
        master(pair, 1)?;
        pair.nodes[0].start_director()?;
        master(pair, 0)?;
        held.end()
    });
}

/// The key that a director uses towards the other, as `sluice ha` shows it.
fn key_in_use(pair: &mut Pair, index: usize) -> Result<String, LabError> {
    let key = sync(pair, index)?["peers"][0]["key"].clone();
    Ok(key.as_str().unwrap_or_default().to_owned())
}

/// By the three steps of docs/high-availability.md, a restart of each director in each. Connections
/// are held over all of it, and over a failover at the end: what was told by either key counts.
#[test]
fn alone_keys_are_exchanged_without_a_gap() {
    on_pair_by(here!(alone_keys_are_exchanged_without_a_gap), BY_IPV4, |pair, old| {
        let new = KEY.replace('6', "7");
        let new = [
            key_file(&pair.nodes[0], "new.key", &new)?,
            key_file(&pair.nodes[1], "new.key", &new)?,
        ];
        let held = Held::begin(&pair.client, &pair.reals, &VIPS, 4)?;
        let count = held.count();
        let first = key_in_use(pair, 0)?;
        let steps: [fn(&str, &str) -> Vec<String>; 3] = [
            |old, new| vec![old.to_owned(), new.to_owned()],
            |old, new| vec![new.to_owned(), old.to_owned()],
            |_, new| vec![new.to_owned()],
        ];
        for (step, keys) in steps.into_iter().enumerate() {
            // The standby first, as one would.
            for index in [1, 0] {
                let node = &mut pair.nodes[index];
                node.more = sync_section(BY_IPV4, index, &keys(&old[index], &new[index]));
                node.director()?.stop()?;
                node.start_director()?;
                both_synchronised(pair)?;
                master(pair, 0)?;
                wait_until("both to have what lasts", SOON, || {
                    let lines = count - VIPS.len() as u64;
                    Ok((sessions(pair, 0)? >= lines && sessions(pair, 1)? >= lines).then_some(()))
                })?;
            }
            let used = [key_in_use(pair, 0)?, key_in_use(pair, 1)?];
            eprintln!("step {}: in use {used:?}, at first {first}", 1 + step);
            let is_old = used.iter().all(|key| *key == first);
            let is_new = used.iter().all(|key| *key != first);
            expect(if step == 0 { is_old } else { is_new }, || format!("{step}: {used:?}"))?;
            for index in [0, 1] {
                let forged = sync(pair, index)?["datagrams"]["forged"].clone();
                expect(forged == 0, || format!("{forged} were refused by {index}"))?;
            }
        }
        die(pair)?;
        master(pair, 1)?;
        held.end()
    });
}

/// Without a director that could take them, sessions are left when the deadline comes: the command
/// says how many and fails, the director goes on forwarding, and nothing is reset. `--undo` makes
/// it ready again.
#[test]
fn alone_a_drain_whose_deadline_runs_out_breaks_nothing() {
    const DEADLINE_S: u64 = 3;
    let name = here!(alone_a_drain_whose_deadline_runs_out_breaks_nothing);
    let Some(_turn) = turn(name) else { return };
    let run = |pair: &mut Pair| {
        // The other machine is there, its director is not.
        pair.nodes[0].start_director()?;
        pair.nodes[0].start_keepalived(&[])?;
        wait_until("the addresses", SOON, || {
            Ok((pair.nodes[0].holds_all()? == Some(true)).then_some(()))
        })?;
        let held = Held::begin(&pair.client, &pair.reals, &VIPS, 4)?;
        let socket = pair.nodes[0].director()?.socket().display().to_string();
        let sluice = sluice_e2e::director::program("sluice")?.display().to_string();
        let deadline = DEADLINE_S.to_string();
        let drain = |pair: &Pair, more: &[&str]| {
            let usual = ["--socket", &socket, "ha", "drain"];
            pair.nodes[0].space.run(&sluice, &[&usual[..], more].concat())
        };
        let begun = std::time::Instant::now();
        let ran = drain(pair, &["--deadline", &deadline])?;
        let took = begun.elapsed();
        let said = format!("{}{}", ran.stdout, ran.stderr);
        eprintln!("after {} ms: {}", took.as_millis(), said.trim());
        expect(ran.status.code() == Some(1), || format!("{:?}: {said}", ran.status))?;
        expect(said.contains("not drained at the deadline: "), || said.clone())?;
        let late = took.saturating_sub(Duration::from_secs(DEADLINE_S));
        expect(late < Duration::from_secs(2), || format!("it took {took:?}"))?;
        let ha = pair.nodes[0].director()?.ask("ha")?;
        expect(ha["draining"] == true, || ha.to_string())?;
        // New ones are served as well: nobody else does.
        arrived_alone(pair)?;
        drain(pair, &["--undo"])?.ok()?;
        let ha = pair.nodes[0].director()?.ask("ha")?;
        expect(ha["draining"] == false, || ha.to_string())?;
        held.end()
    };
    let mut pair = Pair::new(PREFIX, ["", ""]).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = run(&mut pair) {
        panic!("{name}: {error}\n{}", pair.nodes[0].said());
    }
}

fn arrived_alone(pair: &Pair) -> Result<(), LabError> {
    for family in FAMILIES {
        sluice_e2e::load::curl(&pair.client, &Pair::url(family))?;
    }
    Ok(())
}
