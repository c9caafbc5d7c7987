//! The set-ups of docs/high-availability.md by its own commands and configuration, as they stand
//! there, on machines whose `/etc` is a folder of the test, and whose systemd is a function.
//!
//! Active directors behind a router run what the page has in every test of `ecmp`: the bed's
//! configuration of the director and of BIRD is the page's ([`sluice_e2e::page`]).

use std::fs;
use std::path::PathBuf;

use sluice_e2e::bed::pair::{Kind, Node, Pair};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::page::{HIGH_AVAILABILITY, block, replaced};
use sluice_e2e::{LabError, wait_until};

use crate::failover::master;
use crate::fixture::{PREFIX, SOON, here, turn};
use crate::sync::{held, sync};

const TWO_DIRECTORS: &str = "## Two directors with keepalived";
const SYNCHRONISATION: &str = "## Session synchronisation";

/// A machine's `/etc`.
fn etc(node: &Node) -> PathBuf {
    node.lab.dir().join("etc")
}

/// Runs commands of the page on one of the two machines, and gives what they say. What systemd is
/// asked for is noted in a file; the log of keepalived is what it has.
fn run(node: &mut Node, commands: &str) -> Result<String, LabError> {
    let (etc, device) = (etc(node).display().to_string(), node.device());
    let keepalived = node.lab.dir().join("keepalived.log").display().to_string();
    let sluice = program("sluice")?.display().to_string();
    let director = node.director()?;
    let (socket, pid) = (director.socket().display().to_string(), director.pid());
    let commands = commands.replace("/etc/", &format!("{etc}/")).replace("eth0", &device);
    let text = format!(
        r#"set -e
mkdir -p {etc}/default {etc}/keepalived {etc}/sluice
sluice() {{ "{sluice}" --socket "{socket}" "$@"; }}
apt-get() {{ command -v "$2" > /dev/null; }}
systemctl() {{ echo "$*" >> {etc}/asked; }}
keepalived() {{ command keepalived --use-file {etc}/keepalived/keepalived.conf "$@"; }}
pidof() {{ [ "$1" = sluiced ] && echo {pid}; }}
journalctl() {{ [ "$*" = "-u keepalived" ] && cat {keepalived}; }}
{commands}"#
    );
    Ok(node.space.run("bash", &["-c", &text])?.ok()?.stdout)
}

fn read(node: &Node, file: &str) -> Result<String, LabError> {
    fs::read_to_string(etc(node).join(file)).map_err(LabError::file(file))
}

/// The lines of a block, without their comments.
fn lines(words: &str, language: &str) -> Result<Vec<String>, LabError> {
    let block = block(HIGH_AVAILABILITY, words, language)?;
    let command = |line: &str| line.split_once("  #").map_or(line, |(it, _)| it).trim().to_owned();
    Ok(block.lines().map(command).filter(|line| !line.is_empty()).collect())
}

/// Installs keepalived on both machines.
fn install_keepalived(pair: &mut Pair) -> Result<(), LabError> {
    let first = block(HIGH_AVAILABILITY, TWO_DIRECTORS, "sh")?;
    let second =
        block(HIGH_AVAILABILITY, "On the second machine, the same with another role", "sh")?;
    let makes = |line: &&str| line.contains("ha config keepalived");
    let (own, other) = (first.lines().find(makes), second.lines().find(makes));
    let (Some(own), Some(other)) = (own, other) else {
        return Err(LabError::Wrong(format!("nothing makes the file: {first}\n{second}")));
    };
    let second = replaced(&first, [(own, other.to_owned())])?;
    for (node, commands) in pair.nodes.iter_mut().zip([first, second]) {
        let said = run(node, &commands)?;
        expect(said.is_empty(), || format!("it is not silent: {said}"))?;
        let asked = read(node, "asked")?;
        expect(asked == "daemon-reload\nrestart keepalived\n", || asked.clone())?;
        let options = read(node, "default/keepalived")?;
        expect(options == "DAEMON_ARGS=\"--vrrp\"\n", || options.clone())?;
        let unit = read(node, "systemd/system/keepalived.service.d/restart.conf")?;
        expect(unit == "[Service]\nRestart=always\nRestartSec=1\n", || unit.clone())?;
        let text = read(node, "keepalived/keepalived.conf")?;
        node.start_keepalived_with(&text)?;
    }
    master(pair, 0)
}

/// Gives both directors `[sync]`, and starts them again.
fn synchronise(pair: &mut Pair) -> Result<(), LabError> {
    let words = format!("{SYNCHRONISATION}\n");
    let key = block(HIGH_AVAILABILITY, &words, "sh")?;
    run(&mut pair.nodes[0], &key)?;
    let from = etc(&pair.nodes[0]).join("sluice/sync.key");
    let to = etc(&pair.nodes[1]).join("sluice/sync.key");
    // With its mode.
    fs::copy(&from, to).map_err(LabError::file("copying the key"))?;
    let section = block(HIGH_AVAILABILITY, &words, "toml")?;
    let [a, b] = ["192.0.2.1:8848", "192.0.2.2:8848"];
    let swapped = [(a, "other".to_owned()), (b, a.to_owned()), ("\"other\"", format!("{b:?}"))];
    let sections = [section.clone(), replaced(&section, swapped)?];
    for (index, section) in sections.into_iter().enumerate().rev() {
        let node = &mut pair.nodes[index];
        let folder = format!("{}/", etc(node).display());
        node.more = replaced(&section, [("/etc/", folder)])?;
        node.director()?.stop()?;
        node.start_director()?;
    }
    for index in [0, 1] {
        wait_until("both to be synchronised", SOON, || {
            let sync = sync(pair, index)?;
            let done = sync["synchronised"] == true && sync["peers"][0]["up"] == true;
            Ok(done.then_some(()))
        })?;
    }
    master(pair, 0)
}

/// Tries the failover as the page does, line by line; connections are held over all of it.
fn try_failover(pair: &mut Pair) -> Result<(), LabError> {
    let held = held(pair)?;
    let mut done = Vec::new();
    for line in lines("### Testing failover", "sh")? {
        let said = run(&mut pair.nodes[0], &line)?;
        let (what, expected) = match line.split_whitespace().take(3).collect::<Vec<_>>()[..] {
            ["sluice", "ha"] => ("ha", said.contains(" yes ") && !said.contains(" no ")),
            ["sluice", "ha", "check"] => ("check", said.contains("ready")),
            ["systemctl", "stop", "keepalived"] => {
                if let Some(mut keepalived) = pair.nodes[0].keepalived.take() {
                    keepalived.stop()?;
                }
                master(pair, 1)?;
                let text = read(&pair.nodes[0], "keepalived/keepalived.conf")?;
                pair.nodes[0].start_keepalived_with(&text)?;
                master(pair, 0)?;
                ("stop", true)
            }
            ["kill", "-9", _] => {
                pair.nodes[0].kill_director()?;
                master(pair, 1)?;
                ("kill", true)
            }
            ["journalctl", ..] => {
                pair.nodes[0].start_director()?;
                master(pair, 0)?;
                ("journal", said.contains("STATE") && said.contains("sluice_"))
            }
            ["sluice", "events", ..] => ("events", said.contains("is this machine's now")),
            _ => return Err(LabError::Wrong(format!("nobody knows what `{line}` is to do"))),
        };
        expect(expected, || format!("`{line}` says: {said}"))?;
        done.push(what);
    }
    let all = ["ha", "check", "check", "stop", "kill", "journal", "events"];
    expect(done == all, || format!("{done:?}"))?;
    for line in lines("### Planned moves", "sh")? {
        match line.as_str() {
            "sluice ha drain" => {
                run(&mut pair.nodes[0], &line)?;
                master(pair, 1)?;
            }
            "sluice ha drain --undo" => {
                run(&mut pair.nodes[0], &line)?;
                master(pair, 0)?;
            }
            // That the director ends is another test's.
            "sluice ha drain --stop" => {}
            _ => return Err(LabError::Wrong(format!("nobody knows what `{line}` is to do"))),
        }
    }
    held.end()
}

fn on_pair(name: &str, kind: Kind, test: impl FnOnce(&mut Pair) -> Result<(), LabError>) {
    let Some(_turn) = turn(name) else { return };
    let mut pair =
        Pair::of(kind, PREFIX, ["", ""]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let started = pair.nodes.iter_mut().try_for_each(Node::start_director);
    if let Err(error) = started.and_then(|()| test(&mut pair)) {
        let said: String = pair.nodes.iter().map(Node::said).collect();
        panic!("{name}: {error}\n{said}");
    }
}

/// From two directors that nothing moves addresses between to a failover that loses nothing.
#[test]
fn alone_two_directors_by_the_page() {
    on_pair(here!(alone_two_directors_by_the_page), Kind::default(), |pair| {
        install_keepalived(pair)?;
        synchronise(pair)?;
        try_failover(pair)
    });
}

/// When both are active, the page's commands make the files that tests of such pairs run with; and
/// pools are configured as the page has it ([`Pair`]).
#[test]
fn both_active_by_the_page() {
    let kind = Kind { both_active: true, ..Kind::default() };
    on_pair(here!(both_active_by_the_page), kind, |pair| {
        let commands = lines("### Both active", "sh")?;
        expect(commands.len() == 2, || format!("{commands:?}"))?;
        for (node, command) in pair.nodes.iter_mut().zip(commands) {
            let vips = sluice_e2e::family::FAMILIES.map(Pair::second_vip).join(" ");
            let command = replaced(&command, [("198.51.100.201", vips)])?;
            // Each says first what it was made from.
            let plain = |text: &str| {
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                lines.collect::<Vec<_>>().join("\n")
            };
            let (made, used) = (plain(&run(node, &command)?), plain(&node.keepalived_text(&[])?));
            expect(made == used, || format!("the page's:\n{made}\nthe tests':\n{used}"))?;
        }
        Ok(())
    });
}
