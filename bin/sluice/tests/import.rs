//! `sluice import` as it is run: exit codes, where what goes, and that `sluice config check` takes
//! the result behind a file with ports.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const PORTS: &str = "[[port]]\nname = \"front\"\ndevice = \"af_packet:front\"\n\n";

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("sluice-import-").tempdir().expect("made"))
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).expect(name)
    }

    /// Exit code, output, errors.
    fn sluice(&self, line: &str, input: &str) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(line.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        // A program that does not read it has ended.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }
}

const WHOLE: &str = "virtual_server 198.51.100.200 80 {\n    protocol TCP\n    lb_algo rr\n    \
                     lb_kind NAT\n    delay_loop 5\n    real_server 192.0.2.11 80 {\n        \
                     TCP_CHECK {\n            connect_timeout 2\n        }\n    }\n}\n";

#[test]
fn a_file_that_is_converted_whole_needs_no_words() {
    let place = Place::new();
    place.put("keepalived.conf", WHOLE);
    let (code, out, told) = place.sluice("import keepalived keepalived.conf", "");
    assert_eq!((code, told.as_str()), (0, ""), "{out}");
    place.put("sluice.toml", &format!("{PORTS}{out}"));
    let (code, right, told) = place.sluice("config check sluice.toml", "");
    assert!(code == 0 && right.contains("right"), "{right}{told}");
}

#[test]
fn what_has_no_equivalent_is_told_by_file_and_line_and_by_the_exit_code() {
    let place = Place::new();
    let text = WHOLE.replace("    delay_loop 5\n", "    delay_loop 5\n    quorum_up /bin/true\n");
    place.put("conf.d/web.conf", &text);
    place.put("keepalived.conf", "include conf.d/*.conf\n@other include x\n");
    let line = "import keepalived --config-id main --output out.toml keepalived.conf";
    let (code, out, told) = place.sluice(line, "");
    assert_eq!((code, out.as_str()), (3, ""), "{told}");
    let quorum = "conf.d/web.conf:6: quorum_up: runs a program at each change; follow";
    assert!(told.lines().any(|line| line.starts_with(quorum)), "{told}");
    assert!(told.contains("keepalived.conf:2: @other: "), "{told}");
    let written = place.read("out.toml");
    assert!(written.contains(&format!("# {quorum}")), "{written}");
    place.put("sluice.toml", &format!("{PORTS}{written}"));
    let (code, _, told) = place.sluice("config check sluice.toml", "");
    assert_eq!(code, 0, "{told}");

    let (code, out, told) = place.sluice("import keepalived --json keepalived.conf", "");
    assert_eq!((code, told.as_str()), (3, ""));
    let all: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(all["config"]["service"][0]["vip"], "198.51.100.200");
    assert_eq!(all["complete"], false);
    let lost = all["notes"].as_array().expect("notes").iter().find(|it| it["kind"] == "lost");
    let lost = lost.expect("one");
    assert_eq!((&lost["file"], &lost["line"]), (&"conf.d/web.conf".into(), &6.into()));
    assert_eq!(lost["word"], "quorum_up");
}

#[test]
fn hosts_are_looked_up_when_it_is_asked_for() {
    let place = Place::new();
    let saved = "-A -t localhost:http -s rr\n-a -t localhost:http -r no.such.invalid:80 -m\n";
    let (code, out, told) = place.sluice("import ipvsadm-save -", saved);
    assert_eq!(code, 3, "{out}{told}");
    assert_eq!(told.matches("was not looked up").count(), 2, "{told}");
    assert!(told.contains("--resolve") && !out.contains("[[service]]"), "{told}{out}");
    let (code, out, told) = place.sluice("import ipvsadm-save --resolve -", saved);
    assert_eq!(code, 3, "{out}{told}");
    assert!(told.contains("nobody knows the host \"no.such.invalid\""), "{told}");
    // It was found, and is no address for a service.
    assert!(told.contains("vip: 127.0.0.1 is loopback"), "{told}");
}

#[test]
fn what_ipvsadm_saved_comes_by_a_pipe_with_or_without_names() {
    let place = Place::new();
    let saved =
        "-A -t localhost:http -s wlc -p 300\n-a -t localhost:http -r 192.0.2.11:domain -m\n";
    let saved = saved.replace("localhost", "198.51.100.200");
    let (code, out, told) = place.sluice("import ipvsadm-save -", &saved);
    assert_eq!((code, told.as_str()), (0, ""), "{out}");
    assert!(out.contains("port = 80\n") && out.contains("port = 53\n"), "{out}");
    assert!(out.contains("persistence_s = 300\n"), "{out}");
    place.put("sluice.toml", &format!("{PORTS}{out}"));
    assert_eq!(place.sluice("config check sluice.toml", "").0, 0);
    let (code, _, told) = place.sluice("import ipvsadm-save -", "-A -f 7 -s rr\n");
    assert!(code == 3 && told.starts_with("stdin:1: -f: "), "{told}");
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let place = Place::new();
    let (code, out, told) = place.sluice("import keepalived nowhere.conf", "");
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(told.contains("nowhere.conf: No such file"), "{told}");
    place.put("a.conf", "include b.conf\n");
    let (code, _, told) = place.sluice("import keepalived a.conf", "");
    assert!(code == 3 && told.starts_with("a.conf:1: include: "), "{told}");
    assert_eq!(place.sluice("import", "").0, 2);
}
