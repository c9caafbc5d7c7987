//! What the stock program did, line by line, against what this crate does.
//!
//! `tests/observed/lines.jsonl` was recorded from Debian's ipvsadm 1.31 in front of an IPVS that
//! answers from the `.state` files beside it and writes down what it is asked for. Each line holds
//! arguments, standard input, the errno that every command but the first is answered with, and
//! what came of it: exit code, both streams, and the questions asked.

use crate::stage::Stage;
use serde::Deserialize;

/// A recorded run.
#[derive(Debug, Deserialize)]
struct Line {
    args: Vec<String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    errno: i32,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    conn: Option<String>,
    code: u8,
    out: String,
    err: String,
    calls: Vec<String>,
}

/// Compares all lines of a file; how many differ is said, and the first of them shown.
fn compare(text: &str) -> usize {
    let lines: Vec<Line> =
        text.lines().map(|line| serde_json::from_str(line).expect("a recorded line")).collect();
    let mut wrong = Vec::new();
    for line in &lines {
        let mut stage = Stage::new(line.errno, line.state.as_deref(), line.conn.is_some());
        stage.stdin = line.stdin.lines().map(str::to_owned).rev().collect();
        let code = sluice_ipvsadm::run("ipvsadm", &line.args, &mut stage);
        // What is added to the stock help stands behind it.
        let help = line.out == "HELP" && stage.out.contains("Daemon Options:");
        // Nothing is asked of the director on the way to a usage error, and only once for a list.
        // Thresholds are saved here, which the stock program forgets.
        if line.args[..].first().is_some_and(|first| first.starts_with("-S")) {
            stage.out = stage.out.replace(" -x 5 -y 2", "");
        }
        let same = code == line.code
            && (help || stage.out == line.out)
            && stage.err == line.err
            && stage.calls == line.calls;
        if !same {
            let Stage { out, err, calls, .. } = stage;
            wrong.push(format!("{line:?}\n  but here: {code} {out:?} {err:?} {calls:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
    lines.len()
}

#[test]
fn every_line_that_was_recorded_comes_out_the_same() {
    let count = compare(include_str!("observed/lines.jsonl"));
    println!("{count} recorded lines compared");
    assert!(count >= 1000);
}

/// More of them, for those who have just recorded some: `OBSERVED=FILE`.
#[test]
fn every_line_of_another_recording_comes_out_the_same() {
    let Some(path) = std::env::var_os("OBSERVED") else { return };
    let text = std::fs::read_to_string(path).expect("the recording");
    println!("{} recorded lines compared", compare(&text));
}
