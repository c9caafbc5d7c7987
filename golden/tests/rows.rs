//! Every golden case, with bursts of 1, 3 and 64 frames: the right bytes, the right counters, and
//! the same whatever the bursts.

use std::fmt::Write;

use sluice_golden::{Case, Written};

/// The issue asks for as many at least; fewer means that cases got lost.
const FEWEST: usize = 100;

fn judge(case: &Case) -> Result<(), String> {
    let mut first: Option<Written> = None;
    for burst in [1, 3, 64] {
        let out = tempfile::tempdir().map_err(|e| e.to_string())?;
        let written = case.play(burst, out.path())?;
        case.compare(out.path()).map_err(|wrong| format!("bursts of {burst}:\n{wrong}"))?;
        match &first {
            Some(first) if *first != written => {
                return Err(format!("bursts of {burst} give other files than bursts of 1"));
            }
            _ => first = Some(written),
        }
    }
    Ok(())
}

#[test]
fn every_row() {
    let cases = Case::all().expect("golden/cases can be read");
    assert!(cases.len() >= FEWEST, "only {} cases", cases.len());
    let mut report = String::new();
    let mut failed = 0;
    for case in &cases {
        if let Err(wrong) = judge(case) {
            failed += 1;
            let _ = writeln!(report, "{}: {wrong}\n  {}\n", case.name, case.command());
        }
    }
    assert_eq!(failed, 0, "{failed} of {} rows failed:\n\n{report}", cases.len());
    println!("{} golden rows, three ways each", cases.len());
}
