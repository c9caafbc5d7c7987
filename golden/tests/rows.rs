//! Every golden case, with bursts of 1, 3 and 64 frames: the right bytes, the right counters, and
//! the same whatever the bursts. Each case is a test of its own: `cargo test -p sluice-golden
//! tcp_open` plays those whose name contains `tcp_open`.

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use sluice_golden::{Case, Written};

/// Fewer cases than this mean that some got lost.
const FEWEST: usize = 1300;

/// The interpreter that Debian's python3-scapy belongs to.
const PYTHON: &str = "/usr/bin/python3";

fn main() -> ExitCode {
    let cases = Case::all().expect("golden/cases can be read");
    let count = cases.len();
    let mut trials = vec![
        Trial::test("all_cases_are_there", move || enough(count)),
        Trial::test("cases_are_what_their_rows_make", made_anew).with_ignored_flag(!has_scapy()),
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
    Err(format!("only {count} cases, of {FEWEST} or more: run golden/make.py").into())
}

fn has_scapy() -> bool {
    let import = Command::new(PYTHON).args(["-c", "import scapy"]).output();
    import.is_ok_and(|output| output.status.success())
}

/// The committed cases and `docs/golden.md` are what scapy makes of the rows today.
fn made_anew() -> Result<(), Failed> {
    let make = Path::new(env!("CARGO_MANIFEST_DIR")).join("make.py");
    let output = Command::new(PYTHON).arg(make).arg("--check").output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{}\n  golden/make.py", String::from_utf8_lossy(&text)).into())
}
