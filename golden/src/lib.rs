//! The golden cases: what the data path does, as captures in and captures out, with counters.
//!
//! A case is a folder of `target/golden`, which `golden/make.py` makes with scapy. It is
//! played through `sluice replay`'s own code, the same as an operator's. What comes out is compared
//! byte by byte, and what differs is told packet by packet with the command that shows it again.
#![forbid(unsafe_code)]

mod loose;

use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice::replay::{Capture, Input, Job, Record, run};
use sluice_testkit::{describe, golden};

use loose::Rules;

/// What an expected counter says that may be anything.
const ANY: &str = "any";

/// One golden case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The row's name.
    pub name: String,
    folder: PathBuf,
}

/// What a replay wrote: the bytes of each file, in the order of their names.
pub type Written = Vec<(String, Vec<u8>)>;

impl Case {
    /// Every case, by name: of the folder that `GOLDEN_CASES` names, if it is set (to play the rows
    /// of another version).
    ///
    /// # Errors
    /// When the cases cannot be made, or the folder not be read.
    pub fn all() -> io::Result<Vec<Self>> {
        let folder = match env::var_os("GOLDEN_CASES") {
            Some(other) => PathBuf::from(other),
            None => golden::cases()?,
        };
        let mut cases = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            cases.push(Self { name, folder: entry.path() });
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(cases)
    }

    /// The case's configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("config.toml")
    }

    /// What enters which port.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn inputs(&self) -> io::Result<Vec<Input>> {
        let inputs = self.files(".in.pcap")?.into_iter();
        Ok(inputs.map(|(port, file)| Input { port, file }).collect())
    }

    /// (port, file) of the files with this ending.
    fn files(&self, ending: &str) -> io::Result<Vec<(String, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(port) = name.strip_suffix(ending) {
                files.push((port.to_owned(), entry.path()));
            }
        }
        files.sort();
        Ok(files)
    }

    /// Plays the case with bursts of up to `burst` frames into `out_dir`; gives what was written.
    ///
    /// # Errors
    /// What kept it from being played.
    pub fn play(&self, burst: usize, out_dir: &Path) -> Result<Written, String> {
        let inputs = self.inputs().map_err(|e| e.to_string())?;
        let (config, folder) = (self.config(), out_dir.to_owned());
        let job = Job { config, inputs, out_dir: folder, burst, rules: false };
        run(&job).map_err(|e| e.to_string())?;
        let mut written = Vec::new();
        for entry in fs::read_dir(out_dir).map_err(|e| e.to_string())? {
            let entry = entry.map_err(|e| e.to_string())?;
            let bytes = fs::read(entry.path()).map_err(|e| e.to_string())?;
            written.push((entry.file_name().to_string_lossy().into_owned(), bytes));
        }
        written.sort();
        Ok(written)
    }

    /// Compares what was written to `out_dir` with what the row demands.
    ///
    /// # Errors
    /// Everything that differs, one line each.
    pub fn compare(&self, out_dir: &Path) -> Result<(), String> {
        let mut wrong = String::new();
        let mut rules = match fs::read_to_string(self.folder.join("loose.json")) {
            Ok(text) => Rules::parse(&text)?,
            Err(_) => Rules::default(),
        };
        for (port, expected) in self.files(".out.pcap").map_err(|e| e.to_string())? {
            let got = records(&out_dir.join(format!("{port}.pcap")))?;
            compare_records(&port, (&records(&expected)?, &got), &mut rules, &mut wrong);
        }
        rules.close(&mut wrong);
        let expected = json(&self.folder.join("expected.json"))?;
        let got = json(&out_dir.join("counters.json"))?;
        compare_values("", &expected, &got, &mut wrong);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The command that plays this case by hand.
    pub fn command(&self) -> String {
        let mut command = format!(
            "cargo run -q -p sluice -- replay --config target/golden/{}/config.toml",
            self.name
        );
        for input in self.inputs().unwrap_or_default() {
            let file = input.file.file_name().unwrap_or_default().to_string_lossy();
            let _ = write!(command, " --in {}=target/golden/{}/{file}", input.port, self.name);
        }
        command + " --out-dir target/replayed"
    }
}

fn records(path: &Path) -> Result<Vec<Record>, String> {
    let mut capture = Capture::open(path).map_err(|e| e.to_string())?;
    let mut records = Vec::new();
    while let Some(record) = capture.next_record().map_err(|e| e.to_string())? {
        records.push(record);
    }
    Ok(records)
}

fn json(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn compare_records(
    port: &str,
    (expected, got): (&[Record], &[Record]),
    rules: &mut Rules,
    wrong: &mut String,
) {
    for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
        if expected.at != got.at {
            let (wanted, is) = (expected.at, got.at);
            let _ = writeln!(wrong, "{port} packet {}: sent at {is:?}, not {wanted:?}", at + 1);
        }
        let wanted = rules.open(port, at + 1, (&expected.bytes, &got.bytes), wrong);
        if wanted != got.bytes {
            let _ = writeln!(
                wrong,
                "{port} packet {}:\n  expected {}\n  sent     {}\n  {}",
                at + 1,
                describe(&wanted),
                describe(&got.bytes),
                first_difference(&wanted, &got.bytes)
            );
        }
    }
    for missing in expected.iter().skip(got.len()) {
        let _ = writeln!(wrong, "{port}: not sent: {}", describe(&missing.bytes));
    }
    for more in got.iter().skip(expected.len()) {
        let _ = writeln!(wrong, "{port}: sent, but not expected: {}", describe(&more.bytes));
    }
}

fn first_difference(expected: &[u8], got: &[u8]) -> String {
    let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| -> String {
        let shown = bytes.iter().skip(at).take(8);
        shown.map(|byte| format!("{byte:02x}")).collect()
    };
    format!("from byte {at}: expected {}, sent {}", around(expected), around(got))
}

fn compare_values(place: &str, expected: &Value, got: &Value, wrong: &mut String) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            let more = got.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(more) {
                let side = |object: &serde_json::Map<String, Value>| object.get(key).cloned();
                let (expected, got) = (side(expected), side(got));
                let place = format!("{place}/{key}");
                compare_values(
                    &place,
                    &expected.unwrap_or_default(),
                    &got.unwrap_or_default(),
                    wrong,
                );
            }
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
                compare_values(&format!("{place}/{at}"), expected, got, wrong);
            }
        }
        _ if expected == got => {}
        (Value::String(any), _) if any == ANY => {}
        _ => {
            let _ = writeln!(wrong, "counters.json {place}: expected {expected}, counted {got}");
        }
    }
}
