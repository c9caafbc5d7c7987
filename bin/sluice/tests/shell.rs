//! Completion by real shells, and manual pages as `man` reads them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sluice_api::model::{Network, Networks, Protocol, Real, RealState, Service, Services};
use sluice_api::{Call, Server};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

fn run(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.success(), text(stdout), text(stderr))
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn services() -> Services {
    let real = Real {
        address: [192, 0, 2, 11].into(),
        port: 8080,
        mode: "fnat".to_owned(),
        weight: 1,
        state: RealState::Up,
        full_at: Vec::new(),
        upper_sessions: 0,
        lower_sessions: 0,
        counted: Default::default(),
    };
    let service = |name: &str| Service {
        name: name.to_owned(),
        network: None,
        protocol: Protocol::Tcp,
        vip: [198, 51, 100, 200].into(),
        ports: "80".to_owned(),
        mode: "fnat".to_owned(),
        scheduler: "rr".to_owned(),
        pool: None,
        persistence: None,
        one_packet: false,
        client_address: "hidden".to_owned(),
        counted: Default::default(),
        reals: vec![real.clone()],
    };
    Services {
        services: vec![service("web"), service("webmail"), service("dns")],
        snat: Vec::new(),
    }
}

fn answer(call: Call) {
    match call {
        Call::Services(reply) => drop(reply.send(services())),
        Call::Networks(reply) => {
            let network = |name: &str| Network { name: name.to_owned(), ..Network::default() };
            let networks = vec![network(Network::DEFAULT), network("blue")];
            drop(reply.send(Networks { networks }));
        }
        other => panic!("{other:?}"),
    }
}

/// What bash would offer for the last word of a line.
fn offered(folder: &Path, socket: &Path, words: &[&str]) -> Vec<String> {
    let script = folder.join("sluice.bash");
    let (worked, text, told) = run(Command::new(SLUICE).args(["completions", "bash"]));
    assert!(worked, "{told}");
    fs::write(&script, text).expect("written");
    let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    // As bash does for the Tab key: the function that `complete` named, with these variables.
    let program = format!(
        "source '{}'; COMP_WORDS=({line}); COMP_CWORD={}; COMP_TYPE=9; \
         COMP_LINE='{}'; COMP_POINT=${{#COMP_LINE}}; \
         f=$(complete -p sluice | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
         $f sluice '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.len() - 1,
        words.join(" "),
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let path = format!(
        "{}:{}",
        Path::new(SLUICE).parent().expect("a folder").display(),
        std::env::var("PATH").expect("PATH")
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &program]).env("PATH", path).env("SLUICE_SOCKET", socket);
    let (worked, out, told) = run(&mut bash);
    assert!(worked && told.is_empty(), "{told}");
    out.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_commands_options_and_names_of_a_running_director() {
    let folder = tempfile::Builder::new().prefix("sluice-shell-").tempdir().expect("made");
    let socket = folder.path().join("sluice.sock");
    let _server = Server::start(&socket, Box::new(answer)).expect("a server");
    let offered = |words: &[&str]| offered(folder.path(), &socket, words);
    assert_eq!(offered(&["sluice", "ele"]), ["elephants"]);
    assert_eq!(offered(&["sluice", "drops", "--al"]), ["--all"]);
    assert_eq!(offered(&["sluice", "services", "we"]), ["web", "webmail"]);
    assert_eq!(offered(&["sluice", "real", "drain", "d"]), ["dns"]);
    assert_eq!(offered(&["sluice", "sessions", "--network", "b"]), ["blue"]);
    let reals = offered(&["sluice", "real", "drain", "web", "192"]);
    assert_eq!(reals, ["192.0.2.11:8080"]);
    let away = folder.path().join("nobody.sock");
    let line = ["sluice", "--socket", away.to_str().expect("text"), "services", "we"];
    assert!(offered(&line).join("").is_empty(), "no director, no names, no message");
}

#[test]
fn scripts_are_accepted_by_their_shells() {
    let folder = tempfile::Builder::new().prefix("sluice-shell-").tempdir().expect("made");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (worked, text, told) = run(Command::new(SLUICE).args(["completions", shell]));
        assert!(worked && text.contains("sluice"), "{shell}: {told}");
        if !["bash", "zsh", "fish"].contains(&shell) || !has(shell) {
            continue;
        }
        let script = folder.path().join(shell);
        fs::write(&script, text).expect("written");
        let (worked, _, told) = run(Command::new(shell).arg("-n").arg(&script));
        assert!(worked, "{shell}: {told}");
    }
    let (worked, _, told) = run(Command::new(SLUICE).args(["completions", "bsh"]));
    assert!(!worked && told.contains("bash"), "{told}");
}

#[test]
fn manual_pages_are_whole_and_man_has_no_complaints() {
    let folder = tempfile::Builder::new().prefix("sluice-man-").tempdir().expect("made");
    let place = folder.path().join("man");
    let (worked, _, told) = run(Command::new(SLUICE).arg("man").arg(&place));
    assert!(worked, "{told}");
    let pages: Vec<_> = fs::read_dir(&place).expect("a folder").flatten().collect();
    let names: Vec<_> =
        pages.iter().filter_map(|page| page.file_name().into_string().ok()).collect();
    for name in
        ["sluice.1", "sluice-doctor.1", "sluice-config-diff.1", "sluiced.8", "sluice.toml.5"]
    {
        assert!(names.iter().any(|it| it == name), "no {name} in {names:?}");
    }
    for page in pages.iter().filter(|_| has("groff")) {
        let mut groff = Command::new("groff");
        // Plain text: neither overstruck nor coloured.
        groff.args(["-man", "-ww", "-Tutf8", "-P-cbou"]).arg(page.path());
        let (worked, text, told) = run(&mut groff);
        let name = page.path();
        assert!(worked && told.is_empty(), "{}: {told}", name.display());
        assert!(text.contains("\nDESCRIPTION\n"), "{}: {text}", name.display());
    }
    if has("man") {
        let mut man = Command::new("man");
        let (worked, text, told) =
            run(man.args(["--warnings", "-l"]).arg(place.join("sluice.toml.5")));
        assert!(worked && told.is_empty() && text.contains("control_socket"), "{told}");
    }
}
