//! Tells the director what keepalived says it has done: by a FIFO that keepalived writes, line by
//! line, or a transition at a time.
//!
//! The FIFO is better: what comes by it is in order. A director that is away (keepalived's state is
//! then FAULT) is told the last state of each group when it is back.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::json;
use sluice_api::model::{HaGroupKind, HaGroupState, HaNotify};
use sluice_api::{ApiError, Client};

use crate::Socket;
use crate::cli::ha::Notify;
use crate::output;

/// Bytes of a line at most; keepalived's have fewer.
const LONGEST: u64 = 512;
/// Lines that wait.
const WAITING: usize = 64;
/// Groups of which something is still to be told; the director remembers fewer.
const UNTOLD: usize = 64;
/// Until a director that was away is told again.
const AGAIN: Duration = Duration::from_secs(1);

pub fn run(asked: &Notify, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let client = socket.client(&asked.asking);
    let words: Vec<&str> = asked.words.iter().map(String::as_str).collect();
    match words[..] {
        [fifo] => {
            let mut file = File::open(Path::new(fifo)).map_err(|why| format!("{fifo}: {why}"))?;
            let (sender, lines) = sync_channel(WAITING);
            let reader = std::thread::spawn(move || read(&mut file, &sender));
            follow(&lines, |said| client.notify(said).map(drop));
            reader.join().map_err(|_| "the reader of the FIFO panicked")??;
            Ok(ExitCode::SUCCESS)
        }
        [kind, name, state, priority] => {
            let said = transition([kind, name, state, priority])?;
            let told = tell(&client, said.as_ref())?;
            super::tell((true, &told), json!({ "told": told }), asked.asking.json)
        }
        _ => Err("a FIFO, or four words: GROUP or INSTANCE, name, state, priority".into()),
    }
}

fn tell(client: &Client, said: Option<&HaNotify>) -> Result<String, ApiError> {
    let Some(said) = said else { return Ok("this is not for the director".to_owned()) };
    client.notify(said)?;
    Ok(format!("{} is {}", said.name, said.state.name()))
}

/// What keepalived's words say; nothing of states that are of no interest (a lower priority was
/// seen, say).
fn transition([kind, name, state, priority]: [&str; 4]) -> Result<Option<HaNotify>, String> {
    let kind = match kind {
        "GROUP" => HaGroupKind::Group,
        "INSTANCE" => HaGroupKind::Instance,
        // What its checkers say is not by VRRP.
        "VS" | "RS" => return Ok(None),
        _ => return Err(format!("{kind}: this is neither GROUP nor INSTANCE")),
    };
    let states = [
        HaGroupState::Master,
        HaGroupState::Backup,
        HaGroupState::Fault,
        HaGroupState::Stop,
        HaGroupState::Deleted,
    ];
    let Some(state) = states.into_iter().find(|it| it.name() == state) else { return Ok(None) };
    let wrong = |_| format!("{priority}: a priority is a number from 0 to 255");
    let (program, name) = ("keepalived".to_owned(), name.to_owned());
    Ok(Some(HaNotify { program, kind, name, state, priority: priority.parse().map_err(wrong)? }))
}

/// A line of the FIFO: `GROUP "sluice" MASTER 0`.
fn parse(line: &str) -> Result<Option<HaNotify>, String> {
    let wrong = || format!("{:?} is no line of keepalived", line.trim_end());
    let (kind, rest) = line.trim_end().split_once(" \"").ok_or_else(wrong)?;
    let (name, rest) = rest.rsplit_once("\" ").ok_or_else(wrong)?;
    let (state, priority) = rest.split_once(' ').unwrap_or((rest, "0"));
    transition([kind, name, state, priority])
}

/// Reads the FIFO's lines up to its end.
fn read(fifo: &mut impl Read, to: &SyncSender<HaNotify>) -> io::Result<()> {
    let mut from = BufReader::new(fifo);
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        match parse(&String::from_utf8_lossy(&line)) {
            Ok(said) => {
                if said.is_some_and(|said| to.send(said).is_err()) {
                    return Ok(());
                }
            }
            Err(wrong) => output::complain(&wrong),
        }
    }
}

/// Tells what comes, in its order, until no more does. What cannot be told now is told later,
/// unless something newer is known of the group.
fn follow(lines: &Receiver<HaNotify>, mut tell: impl FnMut(&HaNotify) -> Result<(), ApiError>) {
    let mut untold: VecDeque<HaNotify> = VecDeque::new();
    loop {
        let came = match untold.is_empty() {
            true => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => lines.recv_timeout(AGAIN),
        };
        let ended = matches!(came, Err(RecvTimeoutError::Disconnected));
        if let Ok(said) = came {
            untold.retain(|it| (it.kind, &it.name) != (said.kind, &said.name));
            untold.truncate(UNTOLD - 1);
            untold.push_back(said);
        }
        while let Some(said) = untold.front() {
            match tell(said) {
                Ok(()) => {}
                Err(refused @ (ApiError::Refused(_) | ApiError::Denied(_))) => {
                    output::complain(&refused.to_string());
                }
                // It is away, or hangs.
                Err(_) => break,
            }
            untold.pop_front();
        }
        if ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn said(line: &str) -> HaNotify {
        parse(line).expect("a line").expect("a transition")
    }

    #[test]
    fn lines_of_keepalived_are_understood() {
        let master = said("INSTANCE \"V4\" MASTER 250\n");
        assert_eq!((master.kind, &*master.name), (HaGroupKind::Instance, "V4"));
        assert_eq!((master.state, master.priority), (HaGroupState::Master, 250));
        assert_eq!(said("GROUP \"a \"b\" c\" FAULT 0").name, "a \"b\" c");
        assert_eq!(said("GROUP \"sluice\" DELETED").state, HaGroupState::Deleted);
        for of_no_interest in ["INSTANCE \"V4\" MASTER_RX_LOWER_PRI 250", "VS \"[a]:tcp:80\" UP"] {
            assert_eq!(parse(of_no_interest), Ok(None));
        }
        for wrong in [
            "",
            "\n",
            "GROUP",
            "GROUP sluice MASTER 0",
            "X \"a\" MASTER 0",
            "GROUP \"a\" MASTER 256",
            "GROUP \"a\" MASTER -1",
            "\u{fffd}\u{0} \"\" ",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_fifo_of_any_content_ends() {
        let (sender, lines) = sync_channel(WAITING);
        let long = [vec![b'x'; 5000], b"\nGROUP \"a\" MASTER 0\n\xff\xfe".to_vec()].concat();
        read(&mut &*long, &sender).expect("reads");
        drop(sender);
        assert_eq!(lines.iter().map(|it| it.name).collect::<Vec<_>>(), ["a"]);
    }

    /// A director that is away is told the last state of each, and nothing twice.
    #[test]
    fn what_could_not_be_told_is_told_later() {
        let (sender, lines) = sync_channel(WAITING);
        for line in ["GROUP \"a\" MASTER 0", "GROUP \"b\" BACKUP 0", "GROUP \"a\" FAULT 0"] {
            sender.send(said(line)).expect("room");
        }
        let (mut away, mut told) = (3, Vec::new());
        let mut sender = Some(sender);
        follow(&lines, |said| {
            if away > 0 {
                away -= 1;
                return Err(ApiError::Absent(PathBuf::from("no.sock")));
            }
            told.push((said.name.clone(), said.state));
            if told.len() == 2 {
                sender = None;
            }
            Ok(())
        });
        let expected = [("b", HaGroupState::Backup), ("a", HaGroupState::Fault)];
        assert_eq!(told, expected.map(|(name, state)| (name.to_owned(), state)));
    }
}
