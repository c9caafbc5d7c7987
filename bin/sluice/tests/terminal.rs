//! The command on a terminal: a real pseudo-terminal of a given size, keys written to it, and what
//! comes out of it. The director is played by the API's server with fixed answers.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use sluice_api::model::{
    Drops, Elephants, IdleMode, Memory, Ports, Protocol, Service, Services, SessionCounts, Stages,
    Status,
};
use sluice_api::{Call, Server};
use sluice_director::Reason;

const LIMIT: Duration = Duration::from_secs(20);

fn status() -> Status {
    Status {
        version: "9.8.7".to_owned(),
        pid: 4711,
        uptime_s: 12.5,
        config: "/etc/sluice/sluice.toml".into(),
        plan_epoch: 1,
        config_epoch: 1,
        durable: true,
        differs_from_file: false,
        last_reload: None,
        idle: IdleMode::Adaptive,
        huge_pages: false,
        memory: Memory { bytes: 1 << 20, pages: "ordinary".to_owned(), kept: true },
        sessions: SessionCounts::default(),
        handed_off: 0,
        workers: Vec::new(),
    }
}

fn services() -> Services {
    let service = |number: u16| Service {
        name: format!("service-{number}"),
        network: None,
        protocol: Protocol::Tcp,
        vip: "198.51.100.200".parse().expect("an address"),
        ports: number.to_string(),
        mode: "fnat".to_owned(),
        scheduler: "rr".to_owned(),
        pool: None,
        persistence: None,
        one_packet: false,
        client_address: "hidden".to_owned(),
        counted: Default::default(),
        reals: Vec::new(),
    };
    Services { services: (1..=60).map(service).collect(), snat: Vec::new() }
}

fn answer(call: Call) {
    // Nobody may be left to hear the answer: a command that is ended while it asks.
    match call {
        Call::Status(reply) => drop(reply.send(status())),
        Call::Services(reply) => drop(reply.send(services())),
        Call::Ports(reply) => drop(reply.send(Ports::default())),
        Call::Drops(reply) => drop(reply.send(Drops::from_counts(&[0; Reason::COUNT]))),
        Call::Stages(reply) => drop(reply.send(Stages::default())),
        Call::Elephants(_, reply) => drop(reply.send(Elephants::default())),
        other => panic!("{other:?}"),
    }
}

/// What a terminal shows of what is written to it: text, and as much of ECMA-48 as places and
/// erases it.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// A control sequence that has begun.
    sequence: Option<String>,
}

impl Screen {
    fn write(&mut self, text: &str) {
        for letter in text.chars() {
            match (&mut self.sequence, letter) {
                (Some(sequence), _) => {
                    sequence.push(letter);
                    if sequence.len() > 1 && letter.is_ascii_alphabetic() || letter == '~' {
                        let sequence = self.sequence.take().unwrap_or_default();
                        self.control(&sequence);
                    }
                }
                (None, '\u{1b}') => self.sequence = Some(String::new()),
                (None, '\r') => self.column = 0,
                (None, '\n') => self.row += 1,
                (None, letter) => {
                    self.put(letter);
                    self.column += 1;
                }
            }
        }
    }

    fn put(&mut self, letter: char) {
        while self.lines.len() <= self.row {
            self.lines.push(Vec::new());
        }
        let line = &mut self.lines[self.row];
        line.resize(line.len().max(self.column + 1), ' ');
        line[self.column] = letter;
    }

    fn control(&mut self, sequence: &str) {
        let Some(end) = sequence.chars().last() else { return };
        let body = sequence.trim_start_matches('[').trim_end_matches(end);
        let mut numbers = body.split(';').map(|number| number.parse().unwrap_or(1_usize));
        match end {
            'H' => {
                self.row = numbers.next().unwrap_or(1) - 1;
                self.column = numbers.next().unwrap_or(1) - 1;
            }
            'J' => self.lines.clear(),
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
    }
}

/// A terminal with the command on it.
struct Desk {
    keys: File,
    output: Receiver<Vec<u8>>,
    seen: String,
    screen: Screen,
    rest: Vec<u8>,
    child: Child,
    server: Option<Server>,
    _folder: tempfile::TempDir,
}

fn size(ws_col: u16, ws_row: u16) -> Winsize {
    Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Desk {
    fn new(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-terminal-").tempdir().expect("made");
        let socket = folder.path().join("sluice.sock");
        let server = Server::start(&socket, Box::new(answer)).expect("a server");
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("granted");
        let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
        let theirs = File::options().read(true).write(true).open(name).expect("the other end");
        tcsetwinsize(&theirs, size(80, 24)).expect("a size");
        let stdio = || theirs.try_clone().expect("another handle");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(args).env("SLUICE_SOCKET", &socket).env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR").envs(environment.iter().copied());
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().expect("runs");
        let keys = File::from(ours);
        let mut reader = keys.try_clone().expect("another handle");
        let (send, output) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends when the terminal has no other end any more.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (seen, screen, rest) = (String::new(), Screen::default(), Vec::new());
        Self { keys, output, seen, screen, rest, child, server: Some(server), _folder: folder }
    }

    /// Waits until this comes out, and forgets what came before it.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            assert!(self.reads(until), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Waits until this is on the screen.
    fn wait_to_see(&mut self, text: &str) {
        let until = Instant::now() + LIMIT;
        while !self.screen.text().contains(text) {
            assert!(self.reads(until), "no {text:?} on\n{}", self.screen.text());
        }
    }

    /// Takes what comes out; returns whether anything did in time.
    fn reads(&mut self, until: Instant) -> bool {
        match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                self.rest.extend(bytes);
                // A letter may have been cut in two.
                let whole = match std::str::from_utf8(&self.rest) {
                    Ok(text) => text.len(),
                    Err(error) => error.valid_up_to(),
                };
                let bytes: Vec<u8> = self.rest.drain(..whole).collect();
                let text = String::from_utf8(bytes).expect("checked");
                self.screen.write(&text);
                self.seen.push_str(&text);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("written");
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.keys, size(columns, rows)).expect("a size");
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::WINCH).expect("told");
    }

    fn ends(&mut self) -> Option<i32> {
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("asked") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end: {:?}", self.seen);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_dashboard_is_drawn_answers_keys_and_leaves_the_terminal_as_it_was() {
    let mut desk = Desk::new(&["top", "--interval", "0.2"], &[]);
    let before = tcgetattr(&desk.keys).expect("modes").local_modes;
    desk.wait_for("\u{1b}[?1049h");
    desk.wait_to_see("sluiced 9.8.7");
    desk.wait_to_see("service-1");
    desk.press("?");
    desk.wait_to_see("sort the other way around");
    desk.press("\u{1b}");
    desk.press("4");
    desk.wait_to_see("nothing yet");
    desk.press("1G");
    desk.wait_to_see("service-60");
    assert!(!desk.screen.text().contains("BIT/S OUT"), "{}", desk.screen.text());
    desk.resize(120, 70);
    desk.wait_to_see("BIT/S OUT");
    desk.wait_to_see("service-1 ");
    desk.press("q");
    desk.wait_for("\u{1b}[?1049l");
    assert_eq!(desk.ends(), Some(0));
    let after = tcgetattr(&desk.keys).expect("modes").local_modes;
    assert!(!before.is_empty());
    assert!(
        after.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
    );
}

#[test]
fn what_is_watched_is_shown_again_and_fits() {
    let mut desk = Desk::new(&["services", "--watch=0.1"], &[]);
    desk.wait_for("every 0.1 s: sluice services");
    desk.wait_for("service-1 ");
    desk.wait_for("\u{1b}[H\u{1b}[J");
    assert!(!desk.seen.contains("service-60"), "more than a screen");
    let screen = desk.seen.len();
    desk.wait_for("every 0.1 s");
    assert!(screen < 80 * 24 * 4);
    desk.press("\u{3}");
}

#[test]
fn a_director_that_goes_away_ends_neither() {
    let mut desk = Desk::new(&["top", "--interval", "0.1"], &[]);
    desk.wait_to_see("service-1");
    drop(desk.server.take());
    desk.wait_to_see("no answer: no director listens on");
    desk.press("q");
    assert_eq!(desk.ends(), Some(0));
    let mut desk = Desk::new(&["status", "--watch=0.1"], &[]);
    desk.wait_to_see("sluiced 9.8.7");
    drop(desk.server.take());
    desk.wait_to_see("sluice: no director listens on");
    desk.wait_for("every 0.1 s");
}

#[test]
fn colours_are_for_those_who_want_them() {
    for (args, environment, coloured) in [
        (&["services"][..], &[][..], true),
        (&["services"], &[("NO_COLOR", "1")], false),
        (&["services", "--color", "never"], &[], false),
        (&["--color=always", "services"], &[("NO_COLOR", "1")], true),
    ] {
        let mut desk = Desk::new(args, environment);
        desk.wait_for("SERVICE");
        let begins = desk.seen.starts_with("\u{1b}[0m");
        assert_eq!(begins, coloured, "{args:?}: {:?}", desk.seen);
    }
}
