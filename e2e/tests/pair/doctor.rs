//! `sluice doctor` at one of two synchronised directors: what would break connections at a failover
//! is found, and nothing of it once it is mended.

use super::service;
use crate::fixture::{PREFIX, SOON, here, turn};
use crate::sync::{KEY, section};
use serde_json::Value;
use sluice_e2e::bed::pair::Pair;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::{LabError, wait_until};

/// What the doctor at the first director says of synchronisation: ids that are not well, with their
/// marks, and the commands that are to mend them.
fn findings(pair: &mut Pair) -> Result<Vec<(String, String, Vec<String>)>, LabError> {
    let sluice = program("sluice")?;
    let socket = pair.nodes[0].director()?.socket().display().to_string();
    let args = ["--socket", &socket, "doctor", "--json"];
    let ran = pair.nodes[0].space.run(&sluice.to_string_lossy(), &args)?;
    let unreadable =
        |_| LabError::Unreadable { what: "doctor".to_owned(), text: ran.stdout.clone() };
    let all: Vec<Value> = serde_json::from_str(&ran.stdout).map_err(unreadable)?;
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let of = |it: &Value| {
        let fixes = it["fix"].as_array().into_iter().flatten().map(text).collect();
        (text(&it["id"]), text(&it["mark"]), fixes)
    };
    let ours = all.iter().filter(|it| text(&it["id"]).starts_with("sync"));
    Ok(ours.filter(|it| it["mark"] != "ok").map(of).collect())
}

/// Waits until the doctor finds these, by id and mark, and nothing else.
fn finds(pair: &mut Pair, expected: &[(&str, &str)]) -> Result<Vec<String>, LabError> {
    let mut last = Vec::new();
    let found = wait_until(&format!("the doctor to find {expected:?}"), SOON, || {
        last = findings(pair)?;
        let found = last.iter().map(|(id, mark, _)| (&**id, &**mark));
        let right = found.eq(expected.iter().copied());
        Ok(right.then(|| last.iter().flat_map(|it| it.2.clone()).collect()))
    });
    found.map_err(|error| LabError::Wrong(format!("{error}: {last:?}")))
}

/// Starts the second director anew with this key and with this beside it.
fn start_other(pair: &mut Pair, key: &str, more: &str) -> Result<(), LabError> {
    if pair.nodes[1].director.is_some() {
        pair.nodes[1].kill_director()?;
    }
    pair.nodes[1].more = section(pair, 1, key)? + more;
    pair.nodes[1].start_director()
}

#[test]
fn what_a_failover_would_break_is_found() {
    let name = here!(what_a_failover_would_break_is_found);
    let Some(_turn) = turn(name) else { return };
    let run = |pair: &mut Pair| {
        pair.nodes[0].more = section(pair, 0, KEY)?;
        pair.nodes[0].start_director()?;
        start_other(pair, KEY, "")?;
        finds(pair, &[])?;
        // The wire between them takes less than a datagram.
        pair.nodes[0].space.ip(&["link", "set", "ha", "mtu", "1280"])?;
        for command in finds(pair, &[("sync_mtu", "warn")])? {
            pair.nodes[0].space.run("sh", &["-c", &command])?.ok()?;
        }
        finds(pair, &[])?;
        // The other one has a service more.
        start_other(pair, KEY, &service("more", 4000))?;
        finds(pair, &[("sync_differs", "warn")])?;
        // And a local address more.
        let pool = "[[pool]]\nname = \"more\"\naddresses = [\"192.0.2.77\"]\n";
        start_other(pair, KEY, pool)?;
        finds(pair, &[("sync_differs", "warn")])?;
        start_other(pair, KEY, "")?;
        finds(pair, &[])?;
        // It has another key: it is not heard, and what comes in its name is not believed.
        start_other(pair, &KEY.replace('6', "7"), "")?;
        finds(pair, &[("sync_peer", "fail"), ("sync_forged", "warn")])?;
        start_other(pair, KEY, "")?;
        // What has been refused is counted since the start.
        finds(pair, &[("sync_forged", "warn")])?;
        let said = pair.nodes[0].director()?.sluice(&["ha"])?;
        expect(said.contains("up"), || said.clone())
    };
    let mut pair = Pair::new(PREFIX, ["", ""]).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = run(&mut pair) {
        let said: String = pair.nodes.iter().map(|node| node.said()).collect();
        panic!("{name}: {error}\n{said}");
    }
}
