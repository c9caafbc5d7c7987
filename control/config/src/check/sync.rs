//! `[sync]`: who synchronises needs peers of its own family, and a secret.

use super::unique;
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

/// The most other directors.
const PEERS: usize = 7;
/// The most keys: two while one follows another, and some to spare.
const KEYS: usize = 4;

pub(super) fn check(config: &Config, report: &mut Report) {
    let (sync, path) = (&config.sync, Path::table(Place::Sync, 0));
    let (listen, peers, keys) = (path.key("listen"), path.key("peers"), path.key("key_files"));
    let Some(own) = sync.listen else {
        let alone = sync.peers.is_empty() && sync.key_files.is_empty() && sync.group.is_none();
        if !alone && !report.is_broken(listen) {
            let hint = "add listen = \"192.0.2.1:8848\", with an address of this machine";
            let at = if !sync.peers.is_empty() {
                peers
            } else if !sync.key_files.is_empty() {
                keys
            } else {
                path.key("group")
            };
            report.error(at, "it needs `listen` beside it", hint);
        }
        return;
    };
    if sync.peers.is_empty() && !report.is_broken(peers) {
        let hint = "add peers = [\"192.0.2.2:8848\"]: what the other director has as `listen`";
        report.error(listen, "it needs `peers` beside it", hint);
    }
    if sync.key_files.is_empty() && !report.is_broken(keys) {
        let hint = "add key_files = [\"/etc/sluice/sync.key\"], and write to that file what \
                    `openssl rand -hex 32` prints";
        report.error(listen, "it needs `key_files` beside it", hint);
    }
    for (at, count, most) in [(peers, sync.peers.len(), PEERS), (keys, sync.key_files.len(), KEYS)]
    {
        if count > most {
            report.error(at, format!("{count} are too many"), format!("name at most {most}"));
        }
    }
    let sound: Vec<usize> =
        (0..sync.peers.len()).filter(|at| !report.is_broken(peers.item(*at))).collect();
    for &index in &sound {
        let peer = sync.peers[index];
        if peer == own {
            let hint = "name the other directors only";
            report.error(peers.item(index), format!("{peer} is this director's `listen`"), hint);
        } else if peer.is_ipv4() != own.is_ipv4() {
            let found = format!("{peer} is not of the family of `listen`, {own}");
            report.error(peers.item(index), found, "use IPv4 for both, or IPv6 for both");
        }
    }
    if let Some(group) = sync.group.filter(|group| group.is_ipv4() != own.is_ipv4()) {
        let found = format!("{group} is not of the family of `listen`, {own}");
        report.error(path.key("group"), found, "use IPv4 for both, or IPv6 for both");
    }
    unique(sound.into_iter().map(|i| (sync.peers[i], peers.item(i))), report, |at, line| {
        (format!("{at} is there already (line {line})"), "name each once".to_owned())
    });
}
