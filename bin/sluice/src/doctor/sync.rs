//! Session synchronisation: whether the other directors are heard and have what this one has.

use std::net::SocketAddr;

use sluice_api::model::{HaPeer, HaRole, HaSync};
use sluice_config::{Config, SessionSync};

use crate::advice::word;
use crate::show::{count, span};

use super::addresses::vips;
use super::facts::{Facts, Way};
use super::finding::{Finding, Mark, Section};

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let configured = facts.config().and_then(|config| Some((config, config.sync.listen?)));
    if let Some((config, listen)) = configured.filter(|_| facts.network_seen) {
        findings.extend(address(facts, config, listen));
        findings.extend(mtu(facts, &config.sync, listen));
    }
    let Some(running) = &facts.director else { return findings };
    match running.ha.as_ref().map(|ha| &ha.sync) {
        Some(Some(sync)) => {
            findings.extend(sync.peers.iter().filter_map(|peer| lost(facts, sync, peer)));
            findings.extend(sync.peers.iter().filter_map(|peer| behind(sync, peer)));
            findings.extend(sync.peers.iter().filter_map(|peer| differs(facts, peer)));
            findings.extend(sync.peers.iter().filter_map(|peer| rival(facts, peer)));
            findings.extend(pending(facts, sync));
            findings.extend(reports(facts, sync));
            findings.extend(forged(facts, sync));
            if findings.is_empty() {
                let peers = sync.peers.len();
                let text = format!("sessions are synchronised; peers that are up: {peers}");
                findings.push(find("sync", Mark::Ok, text));
            }
        }
        Some(None) if configured.is_some() => {
            let text = "[sync] is configured, and the director does not synchronise sessions: it \
                        takes effect at a start";
            let finding = find("sync_restart", Mark::Warn, text.to_owned());
            findings.push(finding.fix("systemctl restart sluiced"));
        }
        None if configured.is_some() => {
            let text = "the director does not say how session synchronisation stands";
            findings.push(find("sync", Mark::Unseen, text.to_owned()));
        }
        _ => {}
    }
    findings
}

/// Two directors that both have all virtual addresses.
fn rival(facts: &Facts, peer: &HaPeer) -> Option<Finding> {
    let own = facts.director.as_ref()?.ha.as_ref()?.role;
    let is_rival = own == HaRole::Active && peer.standing?.role == HaRole::Active;
    let text = format!(
        "{} has all virtual addresses too: a split brain, in which clients reach either",
        peer.address
    );
    let advice = "look at what moves the addresses on both machines: for keepalived \
               `journalctl -u keepalived`, and whether adverts get from one to the other";
    is_rival.then(|| find("sync_rival", Mark::Fail, text).advise(advice))
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Sync, id, mark, text)
}

/// `listen` must be an address that this machine has and keeps.
fn address(facts: &Facts, config: &Config, listen: SocketAddr) -> Option<Finding> {
    let ip = listen.ip();
    if vips(config).contains(&ip) {
        let text = format!("`listen` in [sync] is the virtual address {ip}, which moves away");
        return Some(find("sync_listen", Mark::Warn, text).advise(
            "name an address that stays with this machine, and the same in `peers` of the others; \
             then restart the director",
        ));
    }
    if !facts.holders(ip).is_empty() {
        return None;
    }
    let text = format!("`listen` in [sync] is {ip}, which is on no interface");
    let finding = find("sync_listen", Mark::Fail, text)
        .advise("add it to the interface by which the peers are reached, or name another one");
    Some(match facts.on_link(ip).first() {
        Some(link) => {
            let width = if ip.is_ipv4() { 32 } else { 128 };
            finding.fix(format!("ip address add {ip}/{width} dev {link}"))
        }
        None => finding,
    })
}

/// Datagrams that are larger than the MTU are sent in fragments: one that is lost costs all.
fn mtu(facts: &Facts, sync: &SessionSync, listen: SocketAddr) -> Option<Finding> {
    let headers: u16 = if listen.is_ipv4() { 28 } else { 48 };
    let needed = u32::from(sync.datagram) + u32::from(headers);
    let holders = facts.holders(listen.ip());
    let mut seen = holders.iter().map(|name| (name, facts.interfaces[*name].mtu));
    let (interface, mtu) = seen.find(|(_, mtu)| *mtu < needed)?;
    let text = format!(
        "{interface} takes packets of {mtu} bytes, and `datagram` in [sync] makes packets of \
         {needed}: they are sent in fragments"
    );
    let fits = mtu.saturating_sub(headers.into());
    Some(
        find("sync_mtu", Mark::Warn, text)
            .advise(format!(
                "the switches and the peers must take them, too; or set `datagram` to {fits} and \
                 restart the director"
            ))
            .fix(format!("ip link set {interface} mtu {needed}")),
    )
}

/// A peer that is not heard.
fn lost(facts: &Facts, sync: &HaSync, peer: &HaPeer) -> Option<Finding> {
    if peer.up {
        return None;
    }
    let (address, listen) = (peer.address, sync.listen);
    let since = span(peer.for_s);
    let text = match peer.name.is_empty() {
        true => format!("peer {address} has not been heard since the start, for {since}"),
        false => format!("peer {address} ({}) has not been heard for {since}", peer.name),
    };
    let finding = find("sync_peer", Mark::Fail, text + ": sessions are not synchronised with it");
    let silent = |way: &Way| match way {
        Way::Hops(hops) => !hops.is_empty() && hops.iter().all(|hop| hop.answers == Some(false)),
        _ => false,
    };
    let (ip, port) = (address.ip(), listen.port());
    Some(match facts.ways.get(&ip) {
        Some(Way::None | Way::Forbidden) => finding.advise(format!(
            "there is no route to it: `ip route get {ip}` says which one is in the way, if any"
        )),
        Some(Way::Local) => finding.advise(format!(
            "{ip} is an address of this machine: name the other director's `listen` in `peers`"
        )),
        Some(way) if silent(way) => finding.advise(
            "nothing answers for it on the link: look whether that machine is up, and at the \
             cable, the VLAN and the address",
        ),
        _ => finding.advise(format!(
            "look whether the director runs there; its `listen` must be {address}, its `peers` \
             must name {listen}, and both need a key in common; firewalls must let UDP port {port} \
             through both ways (`tcpdump -ni any udp port {port}` shows what comes)"
        )),
    })
}

/// A peer that lacks what sessions need to go on there, or has more.
fn differs(facts: &Facts, peer: &HaPeer) -> Option<Finding> {
    if !(peer.up && peer.differs) {
        return None;
    }
    let text = format!(
        "peer {} ({}) has other services, real servers, source NAT or local addresses: connections \
         of what is missing on either side break at a failover",
        peer.address, peer.name
    );
    let command = facts.reached.sluice("config show");
    Some(find("sync_differs", Mark::Warn, text).advise(format!(
        "compare `{command}` here and there; directors that are active at the same time name each \
         other's pool addresses in `peer_addresses`"
    )))
}

fn behind(sync: &HaSync, peer: &HaPeer) -> Option<Finding> {
    if !(peer.up && peer.behind) {
        return None;
    }
    let text = format!(
        "peer {} ({}) acknowledges nothing: {} datagrams wait, the oldest for {:.1} s; it lacks \
         the sessions of that time",
        peer.address,
        peer.name,
        count(peer.unacknowledged),
        peer.lag_ms / 1e3,
    );
    Some(find("sync_behind", Mark::Warn, text).advise(format!(
        "it asks for everything when it is back; on that machine look at its load, at the errors \
         of the link (`ip -s link`) and at full socket buffers (`nstat -az UdpRcvbufErrors`), and \
         here whether its answers come (`tcpdump -ni any udp port {}`)",
        sync.listen.port()
    )))
}

/// Not synchronised yet.
fn pending(facts: &Facts, sync: &HaSync) -> Option<Finding> {
    if sync.synchronised {
        return None;
    }
    let from = match sync.pulling_from {
        Some(peer) => format!("{} reports have come from {peer}", count(sync.pulled)),
        None => "no peer is being asked".to_owned(),
    };
    let text = format!(
        "this director does not have the sessions of the others yet ({from}): connections break \
         if it takes over now"
    );
    let command = facts.reached.sluice("ha");
    Some(find("sync_pending", Mark::Warn, text).advise(format!(
        "wait while `{command}` shows that reports come; if none do, run the doctor on the other \
         director as well"
    )))
}

/// Reports of sessions that could not be used.
fn reports(facts: &Facts, sync: &HaSync) -> Vec<Finding> {
    let received = &sync.reports_received;
    let mut findings = Vec::new();
    if received.unknown > 0 {
        let text = format!(
            "{} reports of sessions were of services, real servers or local addresses that are \
             not configured here: these connections break at a failover",
            count(received.unknown)
        );
        let command = facts.reached.sluice("config diff FILE");
        findings.push(find("sync_unknown", Mark::Warn, text).advise(format!(
            "they count since the start; copy the configuration file of the other director here \
             and compare (`{command}`): services, real servers, source NAT and pools must be the \
             same"
        )));
    }
    if received.refused > 0 {
        let text = format!(
            "{} reports of sessions were refused: the session table is full, other sessions have \
             their endpoints, or their time is over",
            count(received.refused)
        );
        let command = facts.reached.sluice("status");
        findings.push(find("sync_refused", Mark::Warn, text).advise(format!(
            "they count since the start; `{command}` says how full the table is: give `sessions` \
             in [limits] the same value on all directors and restart them; directors that are \
             active at the same time need pools of their own"
        )));
    }
    findings
}

/// Datagrams that no key of this director opens.
fn forged(facts: &Facts, sync: &HaSync) -> Option<Finding> {
    if sync.datagrams.forged == 0 {
        return None;
    }
    let text = format!(
        "{} datagrams in the name of peers are not authentic, or of a key that this director does \
         not have",
        count(sync.datagrams.forged)
    );
    let files = facts.config().map(|config| config.sync.key_files.as_slice()).unwrap_or_default();
    let files: Vec<String> = files.iter().map(|file| word(&file.display().to_string())).collect();
    let sums = match files.is_empty() {
        true => "of the key files".to_owned(),
        false => files.join(" "),
    };
    let command = facts.reached.sluice("ha");
    Some(find("sync_forged", Mark::Warn, text).advise(format!(
        "they count since the start; the directors need a key in common: compare `sha256sum \
         {sums}` on each, and the ids under KEY of `{command}`; if they are the same, another \
         machine sends them: let only the peers reach UDP port {}",
        sync.listen.port()
    )))
}
