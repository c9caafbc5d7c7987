//! Two directors with keepalived that synchronise their sessions: connections go on whichever of
//! them has the addresses.
//!
//! Busy connections and a download are held over each event, by IPv4 and IPv6; then each must go
//! on, and the kernels of both ends must have seen no reset.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::bed::pair::{PORT, Pair};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::{LINES_PORT, make_blob_of};
use sluice_e2e::{Family, LabError, Netns, Running, wait_until};

use crate::failover::master;
use crate::fixture::{PREFIX, SOON, here, turn};

/// Connections that are held, of each family.
const CONNECTIONS: usize = 4;
/// Some seconds of what one connection may take.
const BLOB: u64 = 100_000_000;
const SYNC_PORT: u16 = 8848;
const KEY: &str = "6f1f6c4e5b7a8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70";

/// Runs a test on two synchronised directors, the primary of which is the master.
fn on_synchronised(name: &str, test: impl FnOnce(&mut Pair) -> Result<(), LabError>) {
    let Some(_turn) = turn(name) else { return };
    let mut pair = Pair::new(PREFIX, ["", ""]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let done = start(&mut pair).and_then(|()| test(&mut pair));
    if let Err(error) = done {
        let said: String = pair.nodes.iter().map(|node| node.said()).collect();
        panic!("{name}: {error}\n{said}");
    }
}

fn start(pair: &mut Pair) -> Result<(), LabError> {
    for index in [0, 1] {
        pair.nodes[index].more = section(pair, index, KEY)?;
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
    master(pair, 0)
}

/// `[sync]` of a director, with its key in a file.
fn section(pair: &Pair, index: usize, key: &str) -> Result<String, LabError> {
    let file = pair.nodes[index].lab.dir().join("sync.key");
    std::fs::write(&file, key).map_err(LabError::file("writing a key"))?;
    pair.nodes[index].space.run("chmod", &["600", &file.display().to_string()])?.ok()?;
    let at = |number| format!("{}:{SYNC_PORT}", Pair::host(Family::V4, number));
    Ok(format!(
        "[sync]\nlisten = \"{}\"\npeers = [\"{}\"]\nkey_files = [{file:?}]\n",
        at(1 + index),
        at(2 - index),
    ))
}

/// What `sluice ha` says of a director's synchronisation.
fn sync(pair: &mut Pair, index: usize) -> Result<Value, LabError> {
    Ok(pair.nodes[index].director()?.ask("ha")?["sync"].clone())
}

fn sessions(pair: &mut Pair, index: usize) -> Result<u64, LabError> {
    let status = pair.nodes[index].director()?.ask("status")?;
    Ok(status["sessions"]["live"].as_u64().unwrap_or(0))
}

/// Connections that last over an event.
struct Held {
    running: Vec<Running>,
    downloads: Vec<std::thread::JoinHandle<Result<String, LabError>>>,
    /// Of what each real server has.
    sums: Vec<String>,
    resets: Vec<(u64, u64)>,
}

impl Held {
    /// Opens them, and waits until the other director knows them.
    fn begin(pair: &mut Pair, seconds: u32) -> Result<Self, LabError> {
        let sums = pair.reals.iter().map(|real| make_blob_of(real, BLOB));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let resets = resets(pair)?;
        let (peer, seconds) = (program("sluice-peer")?, seconds.to_string());
        let (mut running, mut downloads) = (Vec::new(), Vec::new());
        for family in FAMILIES {
            let vip = match family {
                Family::V4 => Pair::vip(family).to_owned(),
                Family::V6 => format!("[{}]", Pair::vip(family)),
            };
            for _ in 0..CONNECTIONS {
                let args = ["hold", &format!("{vip}:{LINES_PORT}"), &seconds];
                let mut held = pair.client.start("hold", &peer.to_string_lossy(), &args)?;
                held.wait_for_words("line 1", SOON)?;
                running.push(held);
            }
            let (client, url) = (pair.client.clone(), format!("http://{vip}/blob"));
            downloads.push(std::thread::spawn(move || download_sha256(&client, &url, "8M")));
        }
        let all = ((CONNECTIONS + 1) * FAMILIES.len()) as u64;
        wait_until("the other director to know all", SOON, || {
            Ok((sessions(pair, 0)? >= all && sessions(pair, 1)? >= all).then_some(()))
        })?;
        Ok(Self { running, downloads, sums, resets })
    }

    /// Waits until all have come to their ends.
    fn end(mut self, pair: &Pair) -> Result<(), LabError> {
        for one in &mut self.running {
            let ended = one.wait(Duration::from_secs(60))?;
            expect(ended.success(), || format!("a connection broke: {}", one.log_tail(3)))?;
        }
        for download in self.downloads {
            let got =
                download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
            expect(self.sums.contains(&got), || format!("{got} is none of {:?}", self.sums))?;
        }
        let now = resets(pair)?;
        expect(now == self.resets, || format!("resets: {:?}, now {now:?}", self.resets))
    }
}

/// Connections that the client's kernel and those of real servers have seen reset, and resets that
/// they have sent.
fn resets(pair: &Pair) -> Result<Vec<(u64, u64)>, LabError> {
    let of = |space: &Netns| {
        let text = space.run("nstat", &["-as", "-j"])?.ok()?.stdout;
        let read: Value = serde_json::from_str(&text)
            .map_err(|_| LabError::Unreadable { what: "nstat".to_owned(), text })?;
        let of = |name: &str| read["kernel"][name].as_u64().unwrap_or(0);
        Ok((of("TcpEstabResets"), of("TcpOutRsts")))
    };
    std::iter::once(&pair.client).chain(&pair.reals).map(of).collect()
}

/// Where the sessions of a director lie that outlive its process.
fn kept(pair: &Pair, index: usize) -> PathBuf {
    let state =
        sluice_e2e::Director::socket_in(pair.nodes[index].lab.dir()).with_file_name("state");
    let flat = state.display().to_string().trim_start_matches('/').replace('/', "-");
    PathBuf::from("/dev/shm/sluice").join(flat)
}

#[test]
fn alone_connections_go_on_at_the_other_director_and_back() {
    let name = here!(alone_connections_go_on_at_the_other_director_and_back);
    on_synchronised(name, |pair| {
        let held = Held::begin(pair, 14)?;
        pair.nodes[0].kill_director()?;
        // As a machine that has lost its memory too.
        let kept = kept(pair, 0);
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
        held.end(pair)
    });
}

/// `sluice ha drain --stop`: the other takes over, the director ends, and nothing breaks.
#[test]
fn alone_a_drained_director_hands_over() {
    let name = here!(alone_a_drained_director_hands_over);
    on_synchronised(name, |pair| {
        let held = Held::begin(pair, 12)?;
        let said = pair.nodes[0].director()?.sluice(&["ha", "drain", "--deadline", "40"])?;
        expect(said.contains("drained"), || said.clone())?;
        let ha = pair.nodes[0].director()?.ask("ha")?;
        expect(ha["role"] == "standby" && ha["draining"] == true, || ha.to_string())?;
        master(pair, 1)?;
        let stopped = ["ha", "drain", "--deadline", "5", "--stop"];
        let said = pair.nodes[0].director()?.sluice(&stopped)?;
        expect(said.contains("the director has ended"), || said.clone())?;
        held.end(pair)
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
            let held = Held::begin(pair, 12)?;
            if let Some(mut running) = pair.nodes[0].keepalived.take() {
                running.stop()?;
            }
            master(pair, 1)?;
            pair.nodes[0].start_keepalived(&[])?;
            master(pair, 0)?;
            held.end(pair)
        });
    }
}
