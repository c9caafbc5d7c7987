//! Ten upgrades in a row leave nothing behind: what the tenth process has open, mapped and running
//! is what the second one had, and the machine keeps nothing of the others.

use std::collections::BTreeMap;
use std::path::Path;

use sluice_e2e::error::expect;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Director, Driver, LabError, wait_until};

use super::{Last, is_alive, pid, upgrade};
use crate::fixture::{Fixture, SOON, Setup, here, on};

const UPGRADES: usize = 10;

/// For `make test-all`.
mod faults {
    use super::*;

    #[test]
    fn ten_upgrades_leave_nothing_behind() {
        on(here!(ten_upgrades_leave_nothing_behind), Setup::usual(), leave_nothing);
    }

    #[test]
    fn ten_upgrades_leave_nothing_behind_by_af_packet() {
        let name = here!(ten_upgrades_leave_nothing_behind_by_af_packet);
        on(name, Setup::new(Driver::AfPacket, 2), leave_nothing);
    }
}

type Counts = BTreeMap<String, usize>;

fn leave_nothing(fixture: &mut Fixture) -> Result<(), LabError> {
    let fixture = &*fixture;
    let mut held = fixture.hold(&fixture.server(LINES_PORT), 40)?;
    let _last = Last(&fixture.director);
    let mut before: Option<Counts> = None;
    for round in 1..=UPGRADES {
        let former = pid(&fixture.director)?;
        upgrade(&fixture.director)?;
        wait_until("its end", SOON, || Ok((!is_alive(former)).then_some(())))?;
        // The first successor differs from a director that was started: it has no former one.
        if round == 2 {
            before = Some(settled(fixture)?);
        }
    }
    let before = before.unwrap_or_default();
    let mut now = Counts::new();
    let same = wait_until("as much as before", SOON, || {
        now = counts(fixture)?;
        let more = now.iter().any(|(what, count)| count > before.get(what).unwrap_or(&0));
        Ok((!more).then_some(()))
    });
    same.map_err(|error| {
        let more = now.iter().filter(|(what, count)| *count > before.get(*what).unwrap_or(&0));
        let more: Vec<_> = more.map(|(what, now)| (what, before.get(what), now)).collect();
        LabError::Wrong(format!("{error}: after two and after ten upgrades: {more:?}"))
    })?;
    println!("after {UPGRADES} upgrades: {} kinds of things, none more than before", now.len());
    fixture.answers(3)?;
    expect(held.ended()?.is_none(), || format!("the connection broke: {}", held.log_tail(3)))?;
    held.kill().map(drop)
}

/// The counts, once two looks in a row agree.
fn settled(fixture: &Fixture) -> Result<Counts, LabError> {
    let mut before = Counts::new();
    wait_until("counts that stay", SOON, || {
        let now = counts(fixture)?;
        let same = now == before;
        before = now;
        Ok(same.then(|| before.clone()))
    })
}

/// What the process has, and what the machine has of it, by kind.
fn counts(fixture: &Fixture) -> Result<Counts, LabError> {
    let pid = pid(&fixture.director)?;
    let mut counts = Counts::new();
    let mut count =
        |kind: &str, number: usize| *counts.entry(kind.to_owned()).or_default() += number;
    let here = format!("/proc/{pid}");
    for target in listed(&format!("{here}/fd")) {
        let target = std::fs::read_link(target).unwrap_or_default().display().to_string();
        count(&format!("descriptor {}", kind_of(&target)), 1);
    }
    count("threads", listed(&format!("{here}/task")).len());
    let maps = std::fs::read_to_string(format!("{here}/maps")).unwrap_or_default();
    for line in maps.lines() {
        // Memory of the allocator comes and goes; what has a file, or pages of its own size, does
        // not.
        let name = line.split_whitespace().nth(5).unwrap_or_default();
        if name.starts_with('/') || name.contains("anon_hugepage") {
            count(&format!("mapping {}", kind_of(name)), 1);
        }
    }
    let kept = Director::kept_in(fixture.bed.director.dir());
    let name = kept.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let places = listed("/dev/shm/sluice").into_iter().chain(listed("/dev/hugepages/sluice"));
    for place in places.filter(|place| last_of(place).starts_with(&name)) {
        count("places of kept sessions", 1);
        count("kept files", listed(&place.display().to_string()).len());
    }
    count("sockets of the API", sockets(fixture.director.socket()));
    let zombies = std::fs::read_to_string(format!("{here}/task/{pid}/children"));
    count("children", zombies.unwrap_or_default().split_whitespace().count());
    for (kind, script) in KERNEL {
        let ran = fixture.bed.director.run("sh", &["-c", script])?;
        count(kind, ran.stdout.trim().parse().unwrap_or(usize::MAX));
    }
    Ok(counts)
}

/// What the kernel has in the director's namespace.
const KERNEL: [(&str, &str); 4] = [
    ("links", "ip -o link | wc -l"),
    ("tables of nftables", "nft list tables | wc -l"),
    ("filters", "for it in front back; do tc filter show dev $it ingress; done | wc -l"),
    ("programs on links", "ip -o link | grep -c xdp || true"),
];

fn listed(folder: &str) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

fn last_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Files beside the control socket that begin as it does.
fn sockets(socket: &Path) -> usize {
    let beside = socket.parent().unwrap_or(Path::new("/")).display().to_string();
    let name = last_of(socket);
    listed(&beside).iter().filter(|it| last_of(it).starts_with(&name)).count()
}

/// A name without what differs from one process to the next.
fn kind_of(target: &str) -> String {
    let text = target.strip_suffix(" (deleted)").unwrap_or(target);
    let text = text.split_once(":[").map_or(text, |(kind, _)| kind);
    let plain = |part: &str| part.chars().filter(|it| !it.is_ascii_digit()).collect::<String>();
    // The two places of kept sessions differ by a sign.
    plain(text).replace('+', "")
}
