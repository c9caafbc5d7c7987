//! `sluice ha check` with a director that answers, and with one that does not.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_api::model::{Ha, Ports};
use sluice_api::{Call, Server};

/// Runs a line of the command against a socket: exit code, standard output, time taken.
fn run(socket: &Path, args: &[&str]) -> (Option<i32>, String, Duration) {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("--socket").arg(socket).args(["ha", "check", "--json"]).args(args);
    let ran = command.stdin(Stdio::null()).output().expect("runs");
    let text = String::from_utf8(ran.stdout).expect("text");
    (ran.status.code(), text, begun.elapsed())
}

fn said(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_director_without_ports_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("sluice.sock");
    let (asked, was_asked) = mpsc::channel();
    let answer = move |call: Call| match call {
        Call::Ha(reply) => {
            drop(reply.send(Ha::default()));
            asked.send(()).expect("the test goes on");
        }
        Call::Status(reply) => drop(reply.send(crate::command::status())),
        Call::Ports(reply) => drop(reply.send(Ports::default())),
        other => panic!("{other:?}"),
    };
    let server = Server::start(&socket, Box::new(answer)).expect("a server");
    let (code, text, _) = run(&socket, &[]);
    let found = said(&text);
    assert_eq!((code, &found["alive"], &found["ready"]), (Some(1), &true.into(), &false.into()));
    assert_eq!(found["error"]["message"], found["why"]);
    let (code, text, took) = run(&socket, &["--alive", "--hold-ms", "200", "--patience-ms", "900"]);
    assert_eq!((code, said(&text)["alive"].as_bool()), (Some(0), Some(true)));
    // The time since its start is known to a tick of a hundredth of a second.
    assert!(took >= Duration::from_millis(180), "it stayed only for {took:?}");
    // It ends while it is watched.
    while was_asked.try_recv().is_ok() {}
    let watched = std::thread::scope(|scope| {
        let watching = scope
            .spawn(|| run(&socket, &["--alive", "--hold-ms", "10000", "--patience-ms", "900"]));
        was_asked.recv_timeout(Duration::from_secs(30)).expect("it asked");
        drop(server);
        watching.join().expect("it ran")
    });
    assert_eq!(watched.0, Some(1), "{}", watched.1);
    assert!(watched.2 < Duration::from_secs(9), "it took {:?}", watched.2);
}

#[test]
fn a_director_that_does_not_answer_is_given_a_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("sluice.sock");
    let kept = Mutex::new(Vec::new());
    let keep = move |call: Call| kept.lock().expect("no panic").push(call);
    let _server = Server::start(&socket, Box::new(keep)).expect("a server");
    for args in [&[][..], &["--alive"], &["--alive", "--hold-ms", "100"]] {
        let (code, text, took) = run(&socket, args);
        assert_eq!((code, said(&text)["alive"].as_bool()), (Some(1), Some(false)), "{args:?}");
        // The rest is a machine that has other work.
        assert!(took < Duration::from_secs(20), "{args:?}: {took:?}");
    }
}

/// As one that was stopped: the kernel takes connections for it, and nobody reads them.
#[test]
fn a_director_that_is_frozen_is_given_as_long_as_was_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("sluice.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let args = ["--alive", "--hold-ms", "800", "--patience-ms", "50"];
    let (code, text, took) = run(&socket, &args);
    assert_eq!((code, said(&text)["alive"].as_bool()), (Some(1), Some(false)), "{text}");
    assert!(took < Duration::from_secs(3), "it took {took:?}");
}
