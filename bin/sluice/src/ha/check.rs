//! Whether this director may be the VRRP master.
//!
//! keepalived starts this program every second and waits for its exit code. A director that hangs
//! must not make it hang: all questions together have [`LIMIT`].

use std::error::Error;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_api::{ApiError, Client, Resource};

use crate::Socket;
use crate::cli::ha::Check;

/// For all answers together.
const LIMIT: Duration = Duration::from_millis(900);
/// How often a director that is watched is asked whether it lives.
const PULSE: Duration = Duration::from_millis(50);

/// What was found.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// A director answers.
    alive: bool,
    /// It may be master; `None` when that was not asked.
    ready: Option<bool>,
    /// Why, or why not.
    why: String,
}

impl Verdict {
    fn dead(why: impl ToString) -> Self {
        Self { alive: false, ready: Some(false), why: why.to_string() }
    }

    fn passed(&self) -> bool {
        self.ready.unwrap_or(self.alive)
    }
}

pub fn run(asked: &Check, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let client = socket.client(&asked.asking);
    let verdict = match (asked.alive, asked.hold_ms) {
        (true, Some(_)) if socket.is_remote() && asked.asking.socket.is_none() => {
            return Err("--hold-ms needs the control socket: leave --url out".into());
        }
        (true, Some(ms)) => {
            let patience = Duration::from_millis(asked.patience_ms);
            held(&client, Duration::from_millis(ms), patience)
        }
        (true, None) => alive(&client, Instant::now() + LIMIT),
        (false, _) => ready(&client, Instant::now() + LIMIT),
    };
    tell(&verdict, asked.asking.json)
}

fn tell(verdict: &Verdict, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let Verdict { alive, ready, why } = verdict;
    let object = json!({ "ready": ready, "alive": alive, "why": why });
    super::tell((verdict.passed(), why), object, json)
}

/// Whether a director answers now, and goes on for so long: it neither ends nor freezes. One that
/// hands over to a new process goes on. Its control loop is asked once, since a reload may keep
/// that busy; its API, which has a thread of its own, meanwhile and all the time.
fn held(client: &Client, hold: Duration, patience: Duration) -> Verdict {
    // Before it is asked, so that no end of the director falls between.
    let stream = UnixStream::connect(client.path());
    let begun = Instant::now();
    let answers = || ask(client, &Resource::Alive, Instant::now() + patience);
    if let Err(error) = answers() {
        return Verdict::dead(error);
    }
    let (sender, loop_answers) = channel();
    let (asked, mut found) = (client.clone(), None);
    // One that is late is not waited for: the program ends before.
    std::thread::spawn(move || sender.send(alive(&asked, begun + LIMIT)));
    let Ok(mut stream) = stream else { return loop_answer(&loop_answers, begun + LIMIT) };
    // What starting took on a busy machine is not watched twice: the next run begins on time.
    let end = begun + hold.saturating_sub(age());
    while Instant::now() < end {
        if !stays(&mut stream, end.min(Instant::now() + PULSE)) {
            // Another process of it may have taken over, and listens already.
            match UnixStream::connect(client.path()) {
                Ok(another) => stream = another,
                Err(_) => return Verdict::dead("the director has ended"),
            }
        }
        if let Err(error) = answers() {
            return Verdict::dead(format!("the director does not answer: {error}"));
        }
        match loop_answers.try_recv() {
            Ok(verdict) if !verdict.alive => return verdict,
            Ok(verdict) => found = Some(verdict),
            Err(_) => {}
        }
    }
    found.unwrap_or_else(|| loop_answer(&loop_answers, begun + LIMIT))
}

/// How long this program has been running, to a hundredth of a second; nothing if nobody knows.
fn age() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
    started(&stat, rustix::param::clock_ticks_per_second())
        .and_then(|started| now.checked_sub(started))
        .unwrap_or_default()
}

/// When a process started, after the machine: field 22 of proc(5), in ticks.
fn started(stat: &str, ticks_per_s: u64) -> Option<Duration> {
    // After the name in parentheses comes field 3.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Some(Duration::from_millis(ticks * 1000 / ticks_per_s.max(1)))
}

/// What the control loop was found to be, once that is known.
fn loop_answer(answers: &Receiver<Verdict>, until: Instant) -> Verdict {
    let left = until.saturating_duration_since(Instant::now());
    let late = |_| Verdict::dead("the director's control loop does not answer");
    answers.recv_timeout(left).unwrap_or_else(late)
}

/// Whether nobody closes a connection until then. The server reads requests from it, and nothing
/// else ends it as early as that.
fn stays(stream: &mut UnixStream, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return true;
    }
    match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut [0])) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// An answer, if it comes in time.
fn ask(client: &Client, resource: &Resource, until: Instant) -> Result<Value, ApiError> {
    let left_ms = until.saturating_duration_since(Instant::now()).as_millis().max(1);
    let left = Duration::from_millis(left_ms.try_into().unwrap_or(1));
    let client = client.clone().with_patience(left);
    // What is no JSON has no field that is looked for, which is told below.
    Ok(serde_json::from_str(&client.text(resource)?).unwrap_or_default())
}

fn alive(client: &Client, until: Instant) -> Verdict {
    match ask(client, &Resource::Ha, until) {
        Ok(_) => Verdict { alive: true, ready: None, why: "a director answers".to_owned() },
        Err(error) => Verdict::dead(error),
    }
}

fn ready(client: &Client, until: Instant) -> Verdict {
    let answers = [Resource::Ha, Resource::Status, Resource::Ports].map(|resource| {
        // Those after one that is late have no time left, and say so as well.
        ask(client, &resource, until)
    });
    match answers {
        [Ok(ha), Ok(status), Ok(ports)] => judge(&ha, &status, &ports),
        [Ok(_), Err(error), _] | [Ok(_), _, Err(error)] => {
            Verdict { alive: true, ready: Some(false), why: error.to_string() }
        }
        [Err(error), ..] => Verdict::dead(error),
    }
}

/// What the answers mean. They are read as JSON and not as types, so that a director of another
/// version than this program is judged by what it does say.
fn judge(ha: &Value, status: &Value, ports: &Value) -> Verdict {
    let verdict = |ready, why: String| Verdict { alive: true, ready: Some(ready), why };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let workers = list(&status["workers"]).len();
    if workers == 0 {
        return verdict(false, "no worker runs".to_owned());
    }
    let ports = list(&ports["ports"]);
    if let Some(port) = ports.iter().find(|port| port["state"] != "up") {
        let text = |key| port[key].as_str().unwrap_or("?");
        return verdict(false, format!("port {} is {}", text("name"), text("state")));
    }
    if ports.is_empty() {
        return verdict(false, "there is no port".to_owned());
    }
    if ha["draining"] == true {
        return verdict(false, "draining: another director is to take over".to_owned());
    }
    if ha["sync"]["synchronised"] == false {
        return verdict(false, "sessions are not synchronised yet".to_owned());
    }
    verdict(true, format!("ready: workers {workers}, ports {}", ports.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_director_ready() {
        let workers = json!({ "workers": [{ "worker": 0 }, { "worker": 1 }] });
        let up = json!({ "ports": [{ "name": "front", "state": "up" }] });
        let down = json!({ "ports": [{ "name": "front", "state": "gone" }] });
        let synchronised = |is: bool| json!({ "role": "standby", "sync": { "synchronised": is } });
        let none = json!({});
        for (ha, status, ports, ready, why) in [
            (&none, &workers, &up, true, "ready: workers 2, ports 1"),
            (&synchronised(true), &workers, &up, true, "ready: workers 2, ports 1"),
            (&json!({ "sync": null }), &workers, &up, true, "ready: workers 2, ports 1"),
            (&synchronised(false), &workers, &up, false, "sessions are not synchronised yet"),
            (
                &json!({ "draining": true, "sync": { "synchronised": true } }),
                &workers,
                &up,
                false,
                "draining: another director is to take over",
            ),
            (&json!({ "draining": false }), &workers, &up, true, "ready: workers 2, ports 1"),
            (&none, &workers, &down, false, "port front is gone"),
            (&none, &workers, &none, false, "there is no port"),
            (&none, &none, &up, false, "no worker runs"),
        ] {
            let expected = Verdict { alive: true, ready: Some(ready), why: why.to_owned() };
            assert_eq!(judge(ha, status, ports), expected, "{why}");
        }
    }

    #[test]
    fn the_time_since_the_start_is_read() {
        let rest = (3..22).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("7 (a name) 2)) {rest} 12345 0 0");
        assert_eq!(started(&stat, 100), Some(Duration::from_millis(123_450)));
        assert_eq!(started("7 (sluice) S 1", 100), None);
        assert_eq!(started("", 100), None);
        let before = age();
        std::thread::sleep(Duration::from_millis(50));
        let more = age().checked_sub(before).expect("time goes on");
        assert!(
            more >= Duration::from_millis(40) && age() < Duration::from_secs(86_400),
            "{more:?}"
        );
    }

    #[test]
    fn the_end_of_a_director_is_seen_at_once() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        assert!(stays(&mut here, Instant::now()));
        assert!(stays(&mut here, Instant::now() + Duration::from_millis(30)));
        drop(there);
        assert!(!stays(&mut here, Instant::now() + Duration::from_secs(60)));
    }
}
