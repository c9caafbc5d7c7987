//! Has another director take over, and waits until it has.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::json;
use sluice_api::Client;
use sluice_api::model::{Ha, HaPeer};

use crate::Socket;
use crate::cli::ha::Drain;
use crate::output;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// For the end of a director that was told to stop.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub fn run(asked: &Drain, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    if asked.stop && socket.is_remote() && asked.asking.socket.is_none() {
        return Err("--stop ends the director of this machine: leave --url out".into());
    }
    let client = socket.client(&asked.asking);
    if asked.undo {
        client.drain(false)?;
        return done(true, "not draining any more", asked.asking.json);
    }
    let until = Instant::now() + Duration::from_secs(asked.deadline);
    client.drain(true)?;
    let mut said = String::new();
    let left = loop {
        let left = left(&client.ha()?, client.status()?.sessions.live);
        let Some(why) = &left else { break None };
        if Instant::now() >= until {
            break left;
        }
        if *why != said {
            output::complain(why);
            said.clone_from(why);
        }
        std::thread::sleep(PAUSE);
    };
    if asked.stop {
        stop(&client)?;
    }
    let stopped = if asked.stop { "; the director has ended" } else { "" };
    match left {
        None => done(true, &format!("drained{stopped}"), asked.asking.json),
        Some(why) => {
            done(false, &format!("not drained at the deadline: {why}{stopped}"), asked.asking.json)
        }
    }
}

/// Why a director is not drained yet; `None` when it is.
fn left(ha: &Ha, sessions: u64) -> Option<String> {
    let here = ha.addresses.iter().filter(|address| address.interface.is_some()).count();
    if here > 0 {
        return Some(format!("{here} virtual addresses are here"));
    }
    let has_all = |peer: &&HaPeer| peer.up && !peer.behind && peer.unacknowledged == 0;
    let peers = ha.sync.iter().flat_map(|sync| &sync.peers);
    if sessions == 0 || peers.filter(has_all).count() > 0 {
        return None;
    }
    let why = match ha.sync {
        Some(_) => "no other director has all of them",
        None => "they are not synchronised with another director",
    };
    Some(format!("{sessions} sessions are left, and {why}"))
}

/// Ends the director, and waits until it has ended.
fn stop(client: &Client) -> Result<(), Box<dyn Error>> {
    let pid = i32::try_from(client.status()?.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or("the director does not say which process it is")?;
    rustix::process::kill_process(pid, Signal::TERM)
        .map_err(|error| format!("cannot stop process {}: {error}", pid.as_raw_nonzero()))?;
    let until = Instant::now() + ENDS_WITHIN;
    while client.ha().is_ok() {
        if Instant::now() >= until {
            return Err(format!("process {} goes on", pid.as_raw_nonzero()).into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn done(drained: bool, line: &str, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    super::tell((drained, line), json!({ "drained": drained, "why": line }), json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::HaAddress;

    fn ha(here: bool, peer: Option<serde_json::Value>) -> Ha {
        let address = HaAddress {
            vip: [198, 51, 100, 200].into(),
            interface: here.then(|| "front".to_owned()),
            for_s: 1.0,
            changes: 1,
            services: 1,
        };
        let sync = peer.map(|peer| {
            let counters = json!({ "new": 0, "newer": 0, "ended": 0, "older": 0, "unknown": 0,
                                   "refused": 0 });
            let datagrams = json!({ "sent": 0, "bytes_sent": 0, "received": 0, "bytes_received": 0,
                                    "repaired": 0, "lost": 0, "forged": 0, "replayed": 0,
                                    "malformed": 0 });
            let sync = json!({
                "listen": "192.0.2.1:8848", "synchronised": true, "pulled": 0, "peers": [peer],
                "reports_sent": 0, "reports_received": counters, "ends_unreported": 0,
                "datagrams": datagrams,
            });
            serde_json::from_value(sync).expect("a model")
        });
        Ha { addresses: vec![address], sync, ..Ha::default() }
    }

    fn peer(up: bool, behind: bool, unacknowledged: u64) -> Option<serde_json::Value> {
        Some(json!({
            "address": "192.0.2.2:8848", "name": "lb2", "up": up, "for_s": 1.0,
            "synchronised": true, "behind": behind, "lag_ms": 0.0,
            "unacknowledged": unacknowledged, "key": "00000000",
        }))
    }

    #[test]
    fn a_director_is_drained_when_another_has_what_it_had() {
        for (ha, sessions, expected) in [
            (ha(true, peer(true, false, 0)), 0, Some("1 virtual addresses are here")),
            (ha(false, None), 0, None),
            (ha(false, None), 7, Some("7 sessions are left, and they are not synchronised")),
            (ha(false, peer(true, false, 0)), 7, None),
            (ha(false, peer(true, false, 3)), 7, Some("7 sessions are left, and no other")),
            (ha(false, peer(true, true, 0)), 7, Some("7 sessions are left, and no other")),
            (ha(false, peer(false, false, 0)), 7, Some("7 sessions are left, and no other")),
        ] {
            let left = left(&ha, sessions);
            match expected {
                None => assert_eq!(left, None),
                Some(words) => assert!(left.as_ref().is_some_and(|it| it.starts_with(words))),
            }
        }
    }
}
