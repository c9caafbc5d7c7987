//! `--json`, of every subcommand that has it: what a program reads is JSON, also when it failed.
//!
//! Which subcommands those are is read from the manual pages, which come from the command's own
//! definition: one that gets `--json` must get a line here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A line for each that fails where there is no director and no file, without `--json`.
const LINES: &[&str] = &[
    "status",
    "services",
    "sessions",
    "sessions kill --service web",
    "ports",
    "networks",
    "drops",
    "health",
    "ha",
    "ha check",
    "ha drain",
    "ha notify GROUP sluice MASTER 0",
    "ha upgrade",
    "events",
    "stages",
    "elephants",
    "elephants pin udp 198.51.100.48:4000 198.51.100.200:53",
    "elephants unpin udp 198.51.100.48:4000 198.51.100.200:53",
    "config check missing.toml",
    "config show",
    "config diff missing.toml",
    "config apply missing.toml",
    "config history",
    "config rollback 1",
    "config reload",
    "service add web --protocol tcp --vip 198.51.100.200",
    "service delete web",
    "service show",
    "pool add lan 192.0.2.10",
    "pool delete lan",
    "pool show",
    "real show web",
    "real add web 192.0.2.11:80",
    "real delete web 192.0.2.11:80",
    "real set web 192.0.2.11:80 --weight 2",
    "real drain web 192.0.2.11:80",
    "real disable web 192.0.2.11:80",
    "real enable web 192.0.2.11:80",
    "real reset web 192.0.2.11:80",
    "token new two\twords --role read",
    "trace",
    "replay --config missing.toml --in front=missing.pcap --out-dir out",
    "top --batch 1",
    "doctor --config missing.toml",
    "capacity --sessions none --connections 1",
    "import keepalived missing.conf",
    "import ipvsadm-save missing",
];

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn run(folder: &Path, words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.env("SLUICE_SOCKET", folder.join("no.sock")).current_dir(folder);
    let ran = command.args(words).stdin(Stdio::null()).output().expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Subcommands that have `--json`, such as `real drain`.
fn with_json(folder: &Path) -> BTreeSet<String> {
    assert_eq!(run(folder, &["man", "pages"]).code, 0);
    let page = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("a page").path();
        let text = fs::read_to_string(&path).expect("a page");
        let name = path.file_name()?.to_str()?.strip_prefix("sluice-")?.strip_suffix(".1")?;
        text.contains("\\fB\\-\\-json\\fR").then(|| name.to_owned())
    };
    fs::read_dir(folder.join("pages")).expect("pages").filter_map(page).collect()
}

#[test]
fn every_failure_is_an_object_on_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut left = with_json(folder.path());
    assert!(left.len() > 30, "{left:?}");
    for line in LINES {
        let first = words(line);
        // The page's name: as many words as there are subcommands.
        let name = |count: usize| first[..count.min(first.len())].join("-");
        assert!(left.remove(&name(2)) || left.remove(&name(1)), "{line} has no --json");
        let ran = run(folder.path(), &[&first[..], &["--json"]].concat());
        let what = format!("sluice {line} --json: {}\n{}{}", ran.code, ran.out, ran.err);
        let last: Value = ran
            .out
            .lines()
            .last()
            .and_then(|it| serde_json::from_str(it).ok())
            .unwrap_or_else(|| panic!("no JSON: {what}"));
        let message = last["error"]["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty() && ran.code != 0, "{what}");
        assert!(ran.err.contains(message.lines().next().unwrap_or("?")), "{what}");
        let plain = run(folder.path(), &first);
        assert_eq!((plain.code, &*plain.out), (ran.code, ""), "{line}");
    }
    assert!(left.is_empty(), "which command line of these fails? {left:?}");
}

#[test]
fn a_wrong_command_line_is_told_as_json_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = run(folder.path(), &["statsu", "--json"]);
    let said: Value = serde_json::from_str(&ran.out).expect("JSON");
    let message = said["error"]["message"].as_str().expect("a message");
    assert!(ran.code == 2 && message.contains("statsu"), "{message}");
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    // Help is no failure.
    let ran = run(folder.path(), &["status", "--json", "--help"]);
    assert!(ran.code == 0 && !ran.out.contains("\"error\""), "{}", ran.out);
}

#[test]
fn a_token_is_made_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = run(folder.path(), &["token", "new", "grafana", "--role", "read", "--json"]);
    let made: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!((ran.code, &*ran.err), (0, ""));
    assert_eq!((&made["name"], &made["role"]), (&"grafana".into(), &"read".into()));
    assert!(made["token"].as_str().is_some_and(|it| it.starts_with("sluice_")));
    assert!(made["line"].as_str().is_some_and(|it| it.starts_with("grafana read sha256:")));
}
