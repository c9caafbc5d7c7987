//! `sluice-bench rfc2544` against a director over memif: that a search comes to its end, that its
//! results fit each other and its trials, and that the director counted the same packets; and
//! `bench/scale.py`. How fast anything is, no test may judge: the machine is shared.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use sluice_e2e::LabError;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::process::run;

use crate::fixture::{here, turn};

const FULL_S: f64 = 0.15;

#[test]
fn alone_a_search() {
    let name = here!(alone_a_search);
    let Some(_turn) = turn(name) else { return };
    for directions in ["inbound", "both"] {
        if let Err(error) = searched(directions) {
            panic!("{name}, {directions}: {error}");
        }
    }
}

#[test]
fn alone_a_large_configuration() {
    let name = here!(alone_a_large_configuration);
    let Some(_turn) = turn(name) else { return };
    if let Err(error) = scaled() {
        panic!("{name}: {error}");
    }
}

/// The script ends with an error when any step fails.
fn scaled() -> Result<(), LabError> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut scale = Command::new("timeout");
    scale.current_dir(&root).args(["150", "bench/scale.py", "--json"]);
    scale.args(["--services", "200", "--reals", "5", "--seconds", "0.3", "--clients", "1,4"]);
    let folder = program("sluiced")?.parent().map(PathBuf::from).unwrap_or_default();
    scale.env("SLUICE_BIN_DIR", folder);
    let text = run(&mut scale)?.ok()?.stdout;
    let said: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "what it measured".to_owned(), text })?;
    let spans = ["start_s", "reload_s", "start_again_s", "resident_mb"];
    expect(spans.iter().all(|key| number(&said, key) > 0.0), || said.to_string())?;
    let changes = said["changes"].as_array().map_or(&[][..], Vec::as_slice);
    expect(changes.len() == 4, || said.to_string())?;
    expect(changes.iter().all(|it| number(it, "changes_per_s") > 0.0), || said.to_string())
}

/// The script compares the director's counters with the generator's (`--check`).
fn searched(directions: &str) -> Result<(), LabError> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut search = Command::new("timeout");
    search.current_dir(&root).arg("150").arg("bench/rfc2544.sh");
    search.args(["--check", "--json", "--size", "64,imix", "--sessions", "2000"]);
    search.args(["--directions", directions, "--duration", "0.15", "--duration-sum", "0.3"]);
    search.args(["--first-duration", "0.05", "--phases", "2", "--width", "0.05"]);
    let folder = program("sluiced")?.parent().map(PathBuf::from).unwrap_or_default();
    search.env("SLUICE_BIN_DIR", folder);
    let text = run(&mut search)?.ok()?.stdout;
    let said: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "the search's report".to_owned(), text })?;
    let sizes = said["sizes"].as_array().map_or(&[][..], Vec::as_slice);
    expect(sizes.len() == 2, || format!("{said}"))?;
    for size in sizes {
        trials(size, directions)?;
        rates(&said, size)?;
    }
    Ok(())
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or(f64::NAN)
}

/// Counts of each trial add up, and frames came out in the directions that were asked for.
fn trials(size: &Value, directions: &str) -> Result<(), LabError> {
    let trials = size["trials"].as_array().map_or(&[][..], Vec::as_slice);
    // One may be enough, where the generator cannot offer what the director cannot take.
    expect(!trials.is_empty(), || format!("no trial: {size}"))?;
    for trial in trials {
        let of = |key: &str| trial[key].as_u64().unwrap_or(u64::MAX / 4);
        let sent = of("received") + of("lost");
        let ways = of("received_inbound") + of("received_outbound");
        let nobody = of("duplicates") + of("too_late_to_tell") + of("foreign");
        expect(sent == of("sent") && ways == of("received") && nobody == 0, || trial.to_string())?;
        let asked = number(trial, "load_pps") * number(trial, "duration_s");
        let whole = trial["generator_fell_short"] == true || of("sent") as f64 >= asked - 1.0;
        expect(whole, || format!("{asked} packets were due: {trial}"))?;
    }
    let sum = |key: &str| trials.iter().map(|trial| number(trial, key)).sum::<f64>();
    let back = sum("received_outbound") > 0.0;
    expect(back == (directions == "both"), || format!("{directions}: {size}"))?;
    expect(sum("judged") > 0.0 && sum("received_inbound") > 0.0, || size.to_string())
}

/// NDR ≤ PDR ≤ MAX, and at the bound of no loss half of the trials and more lost nothing.
fn rates(said: &Value, size: &Value) -> Result<(), LabError> {
    let row = |rate: &str| {
        let rows = said["rows"].as_array().into_iter().flatten();
        rows.clone().find(|row| row["size"] == size["size"] && row["rate"] == rate)
    };
    let (Some(most), Some(partial), Some(none)) = (row("MAX"), row("PDR"), row("NDR")) else {
        return expect(false, || format!("{said}"));
    };
    // A machine that is never quiet may have no load without loss.
    let rate = |row: &Value| row["mpps"].as_f64().unwrap_or(0.0);
    let ordered = rate(none) <= rate(partial) && rate(partial) <= rate(most) && rate(most) > 0.0;
    expect(ordered, || format!("{most} {partial} {none}"))?;
    let finished = [partial, none].iter().all(|row| row["finished"] == true);
    expect(finished, || format!("{partial} {none}"))?;
    let Some(lower) = none["lower_mpps"].as_f64() else { return Ok(()) };
    let trials = size["trials"].as_array().into_iter().flatten();
    let there = trials.filter(|trial| {
        let near = (number(trial, "load_pps") - lower * 1e6).abs() < 1.0;
        near && number(trial, "duration_s") >= FULL_S - 1e-6
    });
    let losses: Vec<u64> = there.filter_map(|trial| trial["lost"].as_u64()).collect();
    let clean = losses.iter().filter(|lost| **lost == 0).count();
    // The bound may be what the generator could offer when it was asked for more.
    let limited = losses.is_empty() && size["generator_limit_pps"].is_u64();
    expect(limited || (clean > 0 && 2 * clean >= losses.len()), || {
        format!("no loss at {lower} Mpps, but {losses:?} were lost")
    })
}
