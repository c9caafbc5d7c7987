//! `sluice ha`.

use std::time::{SystemTime, UNIX_EPOCH};

use sluice_api::model::{
    Ha, HaAnnounce, HaDatagrams, HaNotify, HaPeer, HaReports, HaRole, HaStanding, HaSync,
    HaTransition, HaUpgrade, HaUpgradeState, HaUpgradeTold,
};

use super::figures::{count, span};
use super::table::{Align, Cell, Table};
use super::{BAD, NOTE, Shown};

/// So many addresses are listed in a line.
const LISTED: usize = 5;

/// Virtual addresses, and what role they make.
pub fn ha(ha: &Ha) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("VIP", Left),
        ("HERE", Left),
        ("INTERFACE", Left),
        ("FOR", Right),
        ("CHANGES", Right),
        ("SERVICES", Right),
    ]);
    for address in &ha.addresses {
        let here = address.interface.is_some();
        table.row([
            address.vip.to_string().into(),
            if here { Cell::from("yes") } else { Cell::from("no").style(NOTE) },
            address.interface.clone().unwrap_or_else(|| "-".to_owned()).into(),
            span(address.for_s).into(),
            address.changes.to_string().into(),
            address.services.to_string().into(),
        ]);
    }
    let remark = match ha.role {
        HaRole::Idle => "there are no services",
        HaRole::Active => "active: this machine has every virtual address",
        HaRole::Standby => {
            "standby: another machine has the virtual addresses, or none has; what comes for them \
             all the same is served (routes, say)"
        }
        HaRole::Partial => "partial: this machine has some of the virtual addresses",
    };
    let mut text = if ha.addresses.is_empty() { String::new() } else { table.text() };
    let mut remark = remark.to_owned();
    if ha.draining {
        remark += "\ndraining: another director is to take over (`sluice ha drain --undo` ends it)";
    }
    for told in &ha.transitions {
        remark += &format!("\n{}", transition(told));
    }
    if let Some(disagreement) = &ha.disagreement {
        remark += &format!("\nthey disagree: {disagreement}");
    }
    for announce in &ha.announce {
        remark += &format!("\n{}", announced(announce));
    }
    if let Some(sync) = &ha.sync {
        text += &peers(sync);
        remark += &format!("\n{}", synchronisation(sync));
    }
    if let Some(upgrade) = &ha.upgrade {
        remark += &format!("\n{}", upgraded(upgrade));
    }
    Shown { text, remark: Some(remark) }
}

/// What a group became last, and by whom.
fn transition(told: &HaTransition) -> String {
    let HaNotify { program, name, state, .. } = &told.last;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let ago = span(now.saturating_sub(told.at_unix_s) as f64);
    let changes = told.changes;
    format!("{program}: {name} became {} {ago} ago ({changes} transitions)", state.name())
}

/// What came of the last handover to a new process.
fn upgraded(upgrade: &HaUpgrade) -> String {
    let HaUpgrade { state, pid, from_pid, from_version, gap_ms, told, reopened, why, .. } = upgrade;
    match state {
        HaUpgradeState::Running => format!("process {pid} is being started, to take over"),
        HaUpgradeState::Failed => {
            let why = why.as_deref().unwrap_or("the new one did not come up");
            format!("the last upgrade failed, process {from_pid} goes on: {why}")
        }
        HaUpgradeState::Done => {
            let gap = gap_ms.map(|gap_ms| format!(": {gap_ms:.1} ms without forwarding"));
            let again = match reopened.is_empty() {
                true => String::new(),
                false => format!("; opened again: {}", reopened.join(", ")),
            };
            let gap = gap.unwrap_or_default();
            let told = told.as_ref().map(by_addresses).unwrap_or_default();
            let before = format!("{from_pid} (version {from_version})");
            format!("process {pid} took over from {before}{gap}{told}{again}")
        }
    }
}

/// How sessions came that the new process could not read.
pub fn by_addresses(told: &HaUpgradeTold) -> String {
    let HaUpgradeTold { why, sessions, took_ms, .. } = told;
    format!("; {} sessions by addresses, {took_ms:.1} ms ({why})", count(*sessions))
}

/// What routing daemons find on the interfaces that are theirs to announce.
fn announced(announce: &HaAnnounce) -> String {
    let HaAnnounce { interface, peer_interface, vips, unserved, pool_addresses, .. } = announce;
    let network = announce.network.iter().map(|name| format!(" of {name}")).collect::<String>();
    let peers = peer_interface.iter().map(|name| format!(" and {name}")).collect::<String>();
    let mut text = format!(
        "to announce{network} on {interface}{peers}: {} virtual addresses, {} pool addresses",
        count(*vips),
        count(*pool_addresses)
    );
    if let Some(why) = &announce.withdrawn {
        text += &format!("\nno virtual address is announced: {why}");
    } else if !unserved.is_empty() {
        let listed = unserved.iter().take(LISTED).map(ToString::to_string).collect::<Vec<_>>();
        let more = match unserved.len().saturating_sub(LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!(
            "\nnot announced, for no real server gets new sessions: {}{more}",
            listed.join(", ")
        );
    }
    text
}

/// What another director is.
fn role_of(standing: &HaStanding) -> Cell {
    let draining = if standing.draining { ", draining" } else { "" };
    Cell::from(format!("{}{draining}", standing.role.name()))
}

/// The other directors, and what has been reported.
fn peers(sync: &HaSync) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PEER", Left),
        ("NAME", Left),
        ("STATE", Left),
        ("ROLE", Left),
        ("SESSIONS", Right),
        ("FOR", Right),
        ("LAG", Right),
        ("UNACKNOWLEDGED", Right),
        ("KEY", Left),
    ]);
    for peer in &sync.peers {
        let state = match peer {
            HaPeer { up: false, .. } => Cell::from("down").style(BAD),
            HaPeer { behind: true, .. } => Cell::from("up, behind").style(BAD),
            HaPeer { differs: true, .. } => Cell::from("up, configuration differs").style(BAD),
            HaPeer { synchronised: false, .. } => Cell::from("up, not synchronised").style(NOTE),
            _ => Cell::from("up"),
        };
        table.row([
            peer.address.to_string().into(),
            if peer.name.is_empty() { "-".to_owned() } else { peer.name.clone() }.into(),
            state,
            peer.standing.as_ref().map_or_else(|| "-".into(), role_of),
            peer.standing.map_or_else(|| "-".to_owned(), |it| count(it.sessions)).into(),
            span(peer.for_s).into(),
            format!("{:.1} ms", peer.lag_ms).into(),
            count(peer.unacknowledged).into(),
            peer.key.clone().into(),
        ]);
    }
    let HaReports { new, newer, ended, older, unknown, refused } = sync.reports_received;
    let taken = new + newer + ended;
    let HaDatagrams {
        sent, to_group, received, repaired, lost, forged, replayed, malformed, ..
    } = sync.datagrams;
    let to_group = match to_group {
        0 => String::new(),
        to_group => format!(" ({} to the group)", count(to_group)),
    };
    format!(
        "\n{}\nreports of sessions: {} waiting at the workers, {} sent; {} received and taken, {} \
         as new here, {} unknown here, {} refused; {} ends not reported\ndatagrams: {} \
         sent{to_group}, {} received, {} sent again, {} lost; rejected: {} forged, {} replayed, {} \
         malformed\n",
        table.text(),
        count(sync.reports_waiting),
        count(sync.reports_sent),
        count(taken),
        count(older),
        count(unknown),
        count(refused),
        count(sync.ends_unreported),
        count(sent),
        count(received),
        count(repaired),
        count(lost),
        count(forged),
        count(replayed),
        count(malformed),
    )
}

/// Whether this director may take over.
fn synchronisation(sync: &HaSync) -> String {
    match (sync.synchronised, sync.pulling_from) {
        (true, _) => "synchronised: this director has the sessions of the others".to_owned(),
        (false, Some(peer)) => format!(
            "not synchronised yet: {} reports of sessions have come from {peer}",
            count(sync.pulled)
        ),
        (false, None) => "not synchronised yet: no peer has been heard".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::model::{Ha, HaUpgrade, HaUpgradeState};

    #[test]
    fn upgrades() {
        let mut upgrade = HaUpgrade {
            state: HaUpgradeState::Done,
            at_unix_s: 0,
            pid: 12,
            from_pid: 11,
            from_version: "0.1.0".to_owned(),
            gap_ms: Some(3.21),
            told: None,
            reopened: vec!["wan".to_owned()],
            why: None,
        };
        let mut remark = |state, why: Option<&str>| {
            (upgrade.state, upgrade.why) = (state, why.map(str::to_owned));
            let ha = Ha { upgrade: Some(upgrade.clone()), ..Ha::default() };
            let remark = crate::show::ha(&ha).remark.unwrap_or_default();
            remark.lines().last().unwrap_or_default().to_owned()
        };
        let done = "process 12 took over from 11 (version 0.1.0): 3.2 ms without forwarding; \
                    opened again: wan";
        assert_eq!(remark(HaUpgradeState::Done, None), done);
        assert!(remark(HaUpgradeState::Running, None).contains("is being started"));
        let failed = remark(HaUpgradeState::Failed, Some("no room"));
        assert_eq!(failed, "the last upgrade failed, process 11 goes on: no room");
    }
}
