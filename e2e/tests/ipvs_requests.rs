//! The interface of IPVS's programs, asked as they ask: one JSON request after the other over the
//! socket. That the programs themselves do so is shown with them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::{Value, json};
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{Bed, Director, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// What the director answers.
fn ask(fixture: &Fixture, request: &Value) -> Result<Value, LabError> {
    let failed = |error| LabError::file("asking for IPVS's things")(error);
    let body = request.to_string();
    let head = format!(
        "POST /v1/ipvs HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n",
        body.len()
    );
    let mut stream = UnixStream::connect(fixture.director.socket()).map_err(failed)?;
    write!(stream, "{head}connection: close\r\n\r\n{body}").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let unreadable =
        || LabError::Unreadable { what: format!("the answer to {body}"), text: answer.clone() };
    let (_, json) = answer.split_once("\r\n\r\n").ok_or_else(unreadable)?;
    serde_json::from_str(json).map_err(|_| unreadable())
}

fn done(fixture: &Fixture, request: &Value) -> Result<(), LabError> {
    let said = ask(fixture, request)?;
    expect(said == json!({ "ok": "done" }), || format!("{request}: {said}"))
}

/// The errno and the detail of a refusal.
fn refused(fixture: &Fixture, request: &Value) -> Result<(String, String), LabError> {
    let said = ask(fixture, request)?;
    let text = |key: &str| said["refused"][key].as_str().map(str::to_owned);
    text("errno").zip(text("detail")).ok_or_else(|| LabError::Wrong(format!("{request}: {said}")))
}

fn key(address: &str, port: u16) -> Value {
    json!({ "address": { "protocol": "tcp", "address": address, "port": port } })
}

fn spec(key: &Value) -> Value {
    json!({ "key": key, "scheduler": "rr", "netmask": u32::MAX })
}

fn to(address: &str, port: u16, method: &str, weight: u32) -> Value {
    json!({ "address": address, "port": port, "method": method, "weight": weight })
}

/// The service as it is listed.
fn listed(fixture: &Fixture, key: &Value) -> Result<Value, LabError> {
    let said = ask(fixture, &json!({ "service": key }))?;
    let found = said["ok"]["services"][0].clone();
    expect(found.is_object(), || format!("{key} is not listed: {said}"))?;
    Ok(found)
}

/// The order of DPVS's script: service, destinations, and the local address last.
fn with_full_nat(fixture: &Fixture, key: &Value) -> Result<(), LabError> {
    done(fixture, &json!({ "add_service": spec(key) }))?;
    for index in 0..2 {
        let it = to(&Bed::real_address(index), 80, "fullnat", 1);
        done(fixture, &json!({ "add_destination": [key, it] }))?;
    }
    done(fixture, &json!({ "add_local": [key, "192.0.2.20"] }))
}

fn setup() -> Setup {
    Setup::usual()
}

/// An address of the director's for the pool of the service.
fn address(fixture: &Fixture) -> Result<(), LabError> {
    let device = fixture.bed.kernel_device("back");
    fixture.bed.director.address(&device, "192.0.2.20/32")
}

#[test]
fn a_service_of_this_door_is_served_shown_and_kept() {
    on(here!(a_service_of_this_door_is_served_shown_and_kept), setup(), |fixture| {
        let key = key(fixture.bed.vip(), 8080);
        address(fixture)?;
        with_full_nat(fixture, &key)?;
        let url = format!("http://{}:8080", fixture.bed.vip());
        wait_until("an answer", SOON, || Ok(curl(&fixture.bed.client, &url).ok()))?;
        for _ in 0..9 {
            curl(&fixture.bed.client, &url)?;
        }
        let said = listed(fixture, &key)?;
        let [service, one] = [&said["stats"], &said["destinations"][0]["stats"]];
        expect(service["connections"].as_u64() >= Some(10), || format!("not counted: {said}"))?;
        expect(one["out_bytes"].as_u64() > Some(0), || format!("not counted: {said}"))?;
        let found = ask(fixture, &json!({ "connections": {} }))?;
        let all = found["ok"]["connections"]["connections"].as_array().cloned();
        let ours = |it: &Value| it["virtual"][1] == 8080 && it["local"][0] == "192.0.2.20";
        let all = all.unwrap_or_default();
        // What is closed is gone at once.
        expect(all.iter().all(|it| ours(it) || it["virtual"][1] != 8080), || format!("{all:?}"))?;
        done(fixture, &json!({ "zero": key }))?;
        let zeroed = listed(fixture, &key)?;
        expect(zeroed["stats"]["connections"] == 0, || format!("not zeroed: {zeroed}"))?;
        let shown = fixture.director.sluice(&["config", "show", "--origin"])?;
        for words in ["ipvsadm", "ipvs-192.0.2.20", "labels = { \"ipvs.local\" = \"192.0.2.20\" }"]
        {
            expect(shown.contains(words), || format!("no {words} in:\n{shown}"))?;
        }
        fixture.director.kill()?;
        fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
        wait_until("an answer", SOON, || Ok(curl(&fixture.bed.client, &url).ok()))?;
        let again = listed(fixture, &key)?;
        let same = |part: &str| again[part] == said[part];
        expect(same("spec") && same("owner") && same("name"), || format!("{said}\n{again}"))?;
        done(fixture, &json!("flush"))?;
        let (errno, _) = refused(fixture, &json!({ "service": key }))?;
        expect(errno == "ESRCH", || errno)?;
        let ran = fixture.bed.client.run("curl", &["-sS", "--max-time", "1", &url])?;
        expect(!ran.status.success(), || "it still answers".to_owned())?;
        fixture.answers(3).map(drop)
    });
}

#[test]
fn a_files_real_server_is_drained_and_nothing_else_of_it_changed() {
    let name = here!(a_files_real_server_is_drained_and_nothing_else_of_it_changed);
    on(name, setup(), |fixture| {
        let key = key(fixture.bed.vip(), 80);
        for request in [
            json!({ "delete_service": key }),
            json!({ "add_destination": [key, to("192.0.2.99", 80, "fullnat", 1)] }),
            json!({ "edit_destination": [key, to(&Bed::real_address(0), 80, "masq", 0)] }),
        ] {
            let (errno, detail) = refused(fixture, &request)?;
            let told = detail.contains("\"web\" belongs to file");
            expect(errno == "EPERM" && told, || format!("{request}: {errno}: {detail}"))?;
        }
        let drain = to(&Bed::real_address(0), 80, "fullnat", 0);
        done(fixture, &json!({ "edit_destination": [key, drain] }))?;
        fixture.answers(9)?;
        let said = listed(fixture, &key)?;
        let counts: Vec<_> = (0..3)
            .map(|at| said["destinations"][at]["stats"]["connections"].as_u64().unwrap_or(0))
            .collect();
        let first = said["destinations"][0]["weight"].as_u64();
        expect(first == Some(0), || format!("its weight: {said}"))?;
        // One more connection was made to see that the director is ready.
        expect(counts[0] <= 1 && counts[1] > 1 && counts[2] > 1, || format!("{counts:?}"))?;
        let history = fixture.director.sluice(&["config", "history"])?;
        let told = history.contains("ipvsadm") && history.contains("weight 0");
        expect(told, || format!("not in the history:\n{history}"))
    });
}

/// As `ipvsadm-restore` does: one request after the other.
#[test]
fn hundreds_of_services_are_made_one_request_after_the_other() {
    on(here!(hundreds_of_services_are_made_one_request_after_the_other), setup(), |fixture| {
        let begin = Instant::now();
        for port in 10_000..10_200 {
            let key = key(fixture.bed.vip(), port);
            done(fixture, &json!({ "add_service": spec(&key) }))?;
            for index in 0..2 {
                let it = to(&Bed::real_address(index), 80, "masq", 1);
                done(fixture, &json!({ "add_destination": [key, it] }))?;
            }
        }
        let took = begin.elapsed();
        println!("600 requests took {took:?}");
        let said = ask(fixture, &json!("services"))?;
        let count = said["ok"]["services"].as_array().map_or(0, Vec::len);
        expect(count >= 200, || format!("{count} services"))?;
        done(fixture, &json!("flush"))?;
        fixture.answers(3).map(drop)
    });
}

/// What each would be answered by itself, though they are put in force together.
#[test]
fn many_changes_are_one() {
    on(here!(many_changes_are_one), setup(), |fixture| {
        let key = key(fixture.bed.vip(), 8080);
        address(fixture)?;
        let epoch = |fixture: &Fixture| -> Result<u64, LabError> {
            let status = fixture.director.ask("status")?;
            status["config_epoch"].as_u64().ok_or_else(|| LabError::Wrong(status.to_string()))
        };
        let many = |mut add: Vec<Value>| -> Value {
            let mut all = vec![json!({ "add_service": spec(&key) })];
            for index in 0..2 {
                let it = to(&Bed::real_address(index), 80, "fullnat", 1);
                all.push(json!({ "add_destination": [key, it] }));
            }
            all.append(&mut add);
            all.push(json!({ "add_local": [key, "192.0.2.20"] }));
            json!({ "many": all })
        };
        let errnos = |said: &Value| -> Vec<String> {
            let all = said["ok"]["many"].as_array().cloned().unwrap_or_default();
            let errno = |it: &Value| it["refused"]["errno"].as_str().unwrap_or("").to_owned();
            all.iter().map(errno).collect()
        };
        let before = epoch(fixture)?;
        // Refused by what the state is after those before.
        let twice = json!({ "add_service": spec(&key) });
        let nobody = json!({ "delete_destination": [key, ["192.0.2.99", 80]] });
        let said = ask(fixture, &many(vec![twice, nobody]))?;
        expect(errnos(&said) == ["", "", "", "EEXIST", "ENOENT", ""], || said.to_string())?;
        expect(epoch(fixture)? == before + 1, || "more than one change".to_owned())?;
        let url = format!("http://{}:8080", fixture.bed.vip());
        wait_until("an answer", SOON, || Ok(curl(&fixture.bed.client, &url).ok()))?;
        done(fixture, &json!("flush"))?;
        // Refused by the check of the whole: each is made by itself.
        let other_port = to(&Bed::real_address(2), 81, "route", 1);
        let said = ask(fixture, &many(vec![json!({ "add_destination": [key, other_port] })]))?;
        expect(errnos(&said) == ["", "", "", "EINVAL", ""], || said.to_string())?;
        wait_until("an answer", SOON, || Ok(curl(&fixture.bed.client, &url).ok()))?;
        let said = ask(fixture, &json!({ "many": ["info", { "zero": key }, "flush"] }))?;
        expect(errnos(&said) == ["EINVAL", "", ""], || said.to_string())
    });
}
