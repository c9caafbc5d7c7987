//! Whole files: what becomes of them, that nothing of them is passed over, that the configuration's
//! own checks take the result, and that stock keepalived reads the same out of them.
#![forbid(unsafe_code)]

mod around;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_config::Config;
use sluice_import::{Files, Imported, Kind, Names, Source, ipvsadm_save, keepalived};

const SAMPLES: &str = "/usr/share/doc/keepalived/samples";

/// Files below the tests' folder.
struct Disk;

impl Files for Disk {
    fn include(&mut self, pattern: &str, from: &str) -> Result<Vec<Source>, String> {
        let whole = Path::new(from).parent().expect("a folder").join(pattern);
        let folder = whole.parent().expect("a folder");
        let name = whole.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let (before, after) = name.split_once('*').unwrap_or((&name, ""));
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
            let file = entry.file_name().into_string().expect("text");
            if file == name
                || name.contains('*') && file.starts_with(before) && file.ends_with(after)
            {
                found.push(read(&entry.path()));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let missing = found.is_empty() && !name.contains('*');
        if missing { Err("it is not there".to_owned()) } else { Ok(found) }
    }
}

/// Two hosts and two ports.
struct Few;

impl Names for Few {
    fn resolves(&self) -> bool {
        true
    }

    fn host(&mut self, name: &str) -> Option<IpAddr> {
        let address = match name {
            "www.example.com" => "198.51.100.7",
            "web1.example.com" => "192.0.2.7",
            _ => return None,
        };
        address.parse().ok()
    }

    fn port(&mut self, name: &str, _: &str) -> Option<u16> {
        [("http", 80), ("http-alt", 8080)].iter().find(|(it, _)| *it == name).map(|(_, port)| *port)
    }
}

fn read(path: &Path) -> Source {
    let bytes = fs::read(path).expect("readable");
    let name = path.strip_prefix(folder()).unwrap_or(path).display().to_string();
    Source { name, text: String::from_utf8_lossy(&bytes).into_owned() }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn files(of: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder().join(of)).expect("a folder").flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && path.display().to_string().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn convert(path: &Path) -> Imported {
    std::env::set_current_dir(folder()).expect("the tests' folder");
    keepalived(&read(path), "main", &mut Disk)
}

/// The configuration's own reading of the result.
#[track_caller]
fn checked(imported: &Imported, name: &str) -> Config {
    let text = around::base(imported) + &imported.toml("a title");
    match Config::parse(name, &text) {
        Ok(loaded) => loaded.config,
        Err(wrong) => panic!("{name}: {wrong}\n{text}"),
    }
}

/// Lines with something on them that were neither converted nor spoken of.
fn passed_over(imported: &Imported, source: &Source) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let text = line.split(['#', '!']).next().unwrap_or_default().trim();
        if !text.is_empty() && !imported.is_accounted(&source.name, index + 1) {
            lines.push(format!("{}:{}: {line}", source.name, index + 1));
        }
    }
    lines
}

/// What somebody sees: the result and its remarks.
fn picture(imported: &Imported, title: &str) -> String {
    let kinds = [(Kind::Lost, "lost"), (Kind::Differs, "differs"), (Kind::Kept, "kept")];
    let mut text = imported.toml(title) + "\n--- remarks ---\n";
    for note in imported.notes() {
        let kind = kinds.iter().find(|(kind, _)| *kind == note.kind).map_or("", |(_, name)| name);
        text.push_str(&format!("[{kind}] {note}\n"));
    }
    text
}

#[test]
fn files_of_keepalived() {
    let paths = files("keepalived", ".conf");
    assert!(paths.len() >= 12, "{paths:?}");
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let imported = convert(&path);
        checked(&imported, &name);
        assert_eq!(passed_over(&imported, &read(&path)), [""; 0], "{name}");
        insta::assert_snapshot!(format!("keepalived_{name}"), picture(&imported, &name));
    }
    for path in files("keepalived/include.d", "") {
        let imported = convert(&folder().join("keepalived/include.conf"));
        assert_eq!(passed_over(&imported, &read(&path)), [""; 0]);
    }
}

#[test]
fn lists_of_ipvsadm_save() {
    for path in files("saved", ".rules") {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let source = read(&path);
        let imported = ipvsadm_save(&source, &mut Few);
        checked(&imported, &name);
        assert_eq!(passed_over(&imported, &source), [""; 0], "{name}");
        insta::assert_snapshot!(format!("saved_{name}"), picture(&imported, &name));
    }
}

/// Debian's own examples, where they are installed.
#[test]
fn examples_that_come_with_keepalived() {
    let Ok(entries) = fs::read_dir(SAMPLES) else {
        println!("{SAMPLES} is not there: install keepalived");
        return;
    };
    let (mut seen, mut services) = (0, 0);
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.display().to_string();
        if !name.contains("keepalived.conf") {
            continue;
        }
        let source = read(&path);
        let imported = keepalived(&source, "high", &mut Disk);
        services += checked(&imported, &name).services.len();
        assert_eq!(passed_over(&imported, &source), [""; 0], "{name}");
        seen += 1;
    }
    assert!(seen >= 20 && services >= 20, "{seen} files, {services} services");
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Files that stock keepalived is to understand.
fn stock() -> Vec<PathBuf> {
    let is_stock = |path: &PathBuf| {
        let name = path.display().to_string();
        !["dpvs-", "broken", "no-protocol"].iter().any(|other| name.contains(other))
    };
    files("keepalived", ".conf").into_iter().filter(is_stock).collect()
}

#[test]
fn stock_keepalived_takes_the_files() {
    if !has("keepalived") || !is_root() {
        println!("needs keepalived and root");
        return;
    }
    let setting = "ip link add front type veth peer name back && ip link set front up && \
                   exec keepalived --config-test --config-id main --use-file \"$1\"";
    for path in stock() {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", setting, "sh"]).arg(&path);
        let output = command.output().expect("keepalived runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", path.display());
    }
}

/// Virtual and real servers as `ADDRESS PROTOCOL PORT ADDRESS PORT`.
type Pairs = BTreeSet<String>;

/// Stock keepalived's own reading: without IPVS it takes down at once what it was about to put up,
/// and says each pair.
fn pairs_of_keepalived(path: &Path, folder: &Path) -> Pairs {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new("unshare");
    command.args(["--net", "timeout", "20", "keepalived", "--check", "--log-console"]);
    command.args(["--no-syslog", "--dont-fork", "--log-detail", "--config-id", "main"]);
    command.args(["--pid", &file("k.pid"), "--checkers_pid", &file("c.pid"), "--use-file"]);
    let output = command.arg(path).output().expect("keepalived runs");
    let said = [output.stdout, output.stderr].concat();
    let mut pairs = Pairs::new();
    for line in String::from_utf8_lossy(&said).lines() {
        let Some((_, rest)) = line.split_once("Shutting down service ") else { continue };
        let Some((real, server)) = rest.split_once(" from VS ") else { continue };
        let parts = |text: &str| {
            let (address, rest) = text.trim_start_matches('[').split_once(']')?;
            let (protocol, port) = rest.trim_start_matches(':').split_once(':')?;
            Some((address.to_owned(), protocol.to_owned(), port.to_owned()))
        };
        if let (Some((real, _, to)), Some((vip, protocol, port))) = (parts(real), parts(server)) {
            pairs.insert(format!("{vip} {protocol} {port} {real} {to}"));
        }
    }
    pairs
}

fn pairs_of_ours(config: &Config) -> Pairs {
    let mut pairs = Pairs::new();
    for service in &config.services {
        let (vip, protocol) = (service.vip, service.protocol.name());
        let port = service.ports.single().unwrap_or(0);
        for real in service.reals.iter().filter(|real| !real.fallback) {
            let to = if real.port == 0 { port } else { real.port };
            pairs.insert(format!("{vip} {protocol} {port} {} {to}", real.address));
        }
    }
    pairs
}

#[test]
fn stock_keepalived_reads_the_same_servers() {
    let root = is_root();
    if !has("keepalived") || !root || fs::exists("/proc/net/ip_vs").unwrap_or(false) {
        println!("needs keepalived, root, and a kernel without IPVS");
        return;
    }
    let place = std::env::temp_dir().join(format!("sluice-import-{}", std::process::id()));
    fs::create_dir_all(&place).expect("made");
    let mut compared = 0;
    for path in stock() {
        let text = fs::read_to_string(&path).expect("text");
        // It says groups (which the file that includes has, too) and marks by name.
        // Those that are inhibited it does not take down.
        let by_name =
            ["virtual_server group", "virtual_server fwmark", "include ", "inhibit_on_failure"];
        if by_name.iter().any(|words| text.contains(words)) {
            continue;
        }
        let ours = pairs_of_ours(&checked(&convert(&path), "compared"));
        assert_eq!(ours, pairs_of_keepalived(&path, &place), "{}", path.display());
        compared += ours.len();
    }
    let _ = fs::remove_dir_all(&place);
    assert!(compared >= 20, "only {compared} pairs were compared");
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}
