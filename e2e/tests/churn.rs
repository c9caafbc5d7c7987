//! Thousands of changes while traffic runs: none of them harms a session, or sends a packet where
//! it does not belong.

use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::load::{download_sha256, wrk_with};
use sluice_e2e::web::make_blob_of;
use sluice_e2e::{Bed, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// Clients of the API at a time.
const OPERATORS: usize = 16;
/// Changes that each of them makes.
const CHANGES: usize = 400;

fn real(index: usize) -> SocketAddr {
    SocketAddr::new(Bed::real_address(index).parse().expect("an address"), 80)
}

/// What one client does, as curl's configuration: weights of real servers that are busy, and a
/// service of its own that comes, is changed, drained and goes.
fn work(fixture: &Fixture, operator: usize) -> String {
    let (vip, port) = (fixture.bed.vip(), 7000 + operator);
    let own = format!("services/own{operator}");
    let mut text = String::new();
    for number in 0..CHANGES {
        let busy = real(number / 5 % REALS);
        let (method, path, body) = match number % 5 {
            0 => {
                let weight = 1 + (number + operator) % 50;
                ("PATCH", format!("services/web/reals/{busy}"), format!("{{\"weight\": {weight}}}"))
            }
            1 => {
                let service = format!(
                    "{{\"protocol\": \"tcp\", \"vip\": \"{vip}\", \"port\": {port}, \"pool\": \
                     \"lan\", \"real\": [{{\"address\": \"{}\", \"port\": 80}}]}}",
                    busy.ip()
                );
                ("PUT", own.clone(), service)
            }
            2 => {
                let more = format!("{{\"weight\": {}}}", 2 + number % 9);
                ("PUT", format!("{own}/reals/{busy}"), more)
            }
            3 => {
                let drain = "{\"state\": \"drain\"}".to_owned();
                ("PATCH", format!("{own}/reals/{busy}"), drain)
            }
            _ => ("DELETE", own.clone(), String::new()),
        };
        let next = if number == 0 { "" } else { "next\n" };
        let data = if body.is_empty() { String::new() } else { format!("json = {body:?}\n") };
        text += &format!(
            "{next}unix-socket = {:?}\nurl = \"http://d/v1/config/{path}\"\nrequest = {method}\n\
             {data}output = /dev/null\nwrite-out = \"%{{http_code}}\\n\"\nsilent\n",
            fixture.director.socket().display().to_string()
        );
    }
    text
}

fn thousands(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.reals[0], 6_000_000)?;
    fixture.director.sluice(&["real", "set", "web", &real(0).to_string(), "--weight", "60000"])?;
    let (client, url) = (fixture.bed.client.clone(), fixture.url());
    let (page, blob) = (format!("{url}/"), format!("{url}/blob"));
    let slow = {
        let client = client.clone();
        std::thread::spawn(move || download_sha256(&client, &blob, "1M"))
    };
    wait_until("the download to run", SOON, || {
        let sessions = fixture.sessions(&["--service", "web", "--state", "ESTABLISHED"])?;
        Ok((!sessions.is_empty()).then_some(()))
    })?;
    let load = |header: &'static str| {
        let (client, page) = (client.clone(), page.clone());
        std::thread::spawn(move || wrk_with(&client, &page, 4, 8, &["-H", header]))
    };
    let loads = [load("Connection: keep-alive"), load("Connection: close")];
    let begun = Instant::now();
    let operators = (0..OPERATORS).map(|operator| {
        let file = fixture.bed.lab.dir().join(format!("operator{operator}.curl"));
        fs::write(&file, work(fixture, operator)).map_err(LabError::file("writing curl's work"))?;
        let (space, file) = (fixture.bed.director.clone(), file.display().to_string());
        Ok(std::thread::spawn(move || space.run("curl", &["-K", &file])))
    });
    let operators = operators.collect::<Result<Vec<_>, LabError>>()?;
    let panicked = |_| LabError::Wrong("a thread panicked".into());
    for operator in operators {
        let said = operator.join().map_err(panicked)??.ok()?.stdout;
        let bad: Vec<_> = said.lines().filter(|code| *code != "200").collect();
        expect(said.lines().count() == CHANGES && bad.is_empty(), || format!("{bad:?}"))?;
    }
    let took = begun.elapsed().as_secs_f64();
    eprintln!("{} changes in {took:.2} s", OPERATORS * CHANGES);
    for load in loads {
        let wrk = load.join().map_err(panicked)??;
        let clean = wrk.requests > 500 && wrk.socket_errors == 0 && wrk.bad_answers == 0;
        expect(clean, || format!("{wrk:?}"))?;
    }
    let got = slow.join().map_err(panicked)??;
    expect(got == sum, || format!("the download broke: sent {sum}, got {got}"))?;
    fixture.answers(6).map(drop)
}

#[test]
fn thousands_of_changes_under_load_one_worker() {
    let name = here!(thousands_of_changes_under_load_one_worker);
    on(name, Setup::usual(), thousands);
}

#[test]
fn thousands_of_changes_under_load_two_workers() {
    let name = here!(thousands_of_changes_under_load_two_workers);
    let setup = Setup { workers: 2, ..Setup::usual() };
    on(name, setup, thousands);
}
