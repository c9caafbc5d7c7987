//! `sluice-race` for one round: that it verifies its turns and says what it promises to. How fast
//! anything is, no test may judge: the machine is shared.

use std::process::Command;

use serde_json::Value;
use sluice_e2e::LabError;
use sluice_e2e::error::expect;
use sluice_e2e::process::run;

use crate::fixture::{here, turn};

/// The kernel's come before the director and after it: it must leave nothing behind.
const CONTENDERS: [&str; 3] = ["direct", "sluice-fnat", "nginx"];
const FIGURES: [&str; 5] =
    ["requests_per_s", "connections_per_s", "p50_us", "p99_us", "throughput_bits_per_s"];

#[test]
fn alone_a_round() {
    let name = here!(alone_a_round);
    let Some(_turn) = turn(name) else { return };
    if let Err(error) = raced() {
        panic!("{name}: {error}");
    }
}

fn raced() -> Result<(), LabError> {
    let mut race = Command::new("timeout");
    race.args(["60", env!("CARGO_BIN_EXE_sluice-race"), "--quick", "--json"]);
    race.arg("--contenders").arg(CONTENDERS.join(","));
    let text = run(&mut race)?.ok()?.stdout;
    let said: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "the race's report".to_owned(), text })?;
    let rows = said["contenders"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["contender"].as_str()).collect();
    expect(names == CONTENDERS, || format!("{names:?} took part"))?;
    for (row, name) in rows.iter().zip(names) {
        for figure in FIGURES {
            let found = &row[figure];
            let positive = |key: &str| found[key].as_f64().is_some_and(|value| value > 0.0);
            let whole = positive("median") && positive("to_direct");
            let rounds = found["rounds"].as_array().map_or(0, Vec::len);
            expect(whole && rounds == 1, || format!("{name}, {figure}: {found}"))?;
        }
    }
    let named = said["machine"]["kernel"].is_string() && said["verified"] == "every turn";
    expect(named, || format!("{said}"))
}
