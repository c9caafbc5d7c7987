//! Every golden case, with bursts of 1, 3 and 64 frames: the right bytes, the right counters, and
//! the same whatever the bursts. Each case is a test of its own: `cargo test -p sluice-golden
//! tcp_open` plays those whose name contains `tcp_open`.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use sluice_director::spec::Scheduling;
use sluice_golden::{Case, Written};
use sluice_testkit::golden;

/// Fewer cases than this mean that some got lost.
const FEWEST: usize = 1300;

fn main() -> ExitCode {
    let cases = match Case::all() {
        Ok(cases) => cases,
        Err(error) => {
            eprintln!("the golden cases cannot be played: {error}");
            return ExitCode::FAILURE;
        }
    };
    let count = cases.len();
    let mut trials = vec![
        Trial::test("all_cases_are_there", move || enough(count)),
        Trial::test("digests_and_list_are_up_to_date", up_to_date),
        Trial::test("each_scheduler_has_rows_and_a_paragraph", {
            let names: Vec<_> = cases.iter().map(|case| case.name.clone()).collect();
            move || schedulers(&names)
        }),
    ];
    let rows = cases.into_iter();
    trials.extend(rows.map(|case| Trial::test(case.name.clone(), move || judge(&case))));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn judge(case: &Case) -> Result<(), Failed> {
    let again = |wrong: String| Failed::from(format!("{wrong}\n  {}", case.command()));
    let mut first: Option<Written> = None;
    for burst in [1, 3, 64] {
        let out = tempfile::tempdir()?;
        let written = case.play(burst, out.path()).map_err(again)?;
        let compared = case.compare(out.path());
        compared.map_err(|wrong| again(format!("bursts of {burst}:\n{wrong}")))?;
        if first.get_or_insert(written.clone()) != &written {
            return Err(again(format!("bursts of {burst} give other files than bursts of 1")));
        }
    }
    Ok(())
}

fn enough(count: usize) -> Result<(), Failed> {
    if count >= FEWEST {
        return Ok(());
    }
    Err(format!("only {count} cases, of {FEWEST} or more").into())
}

/// A scheduler of the registry is shown by rows, and described.
fn schedulers(cases: &[String]) -> Result<(), Failed> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schedulers.md");
    let page = std::fs::read_to_string(page)?;
    for name in Scheduling::ALL.iter().map(|scheduler| scheduler.name()) {
        if !cases.iter().any(|case| case.ends_with(&format!("_stays_{name}"))) {
            return Err(format!("golden/rows/71_schedulers.py has no rows of {name}").into());
        }
        if !page.contains(&format!("| `{name}` |")) {
            return Err(format!("docs/schedulers.md says nothing of {name}").into());
        }
    }
    Ok(())
}

/// The committed digests and `docs/golden.md` are what scapy makes of the rows today.
fn up_to_date() -> Result<(), Failed> {
    Ok(golden::check()?)
}
