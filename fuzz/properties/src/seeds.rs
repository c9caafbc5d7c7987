//! Seeds for the corpora: the golden cases, their frames as scripts and as packets, their
//! configurations as text; and scripts that reach every mode.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use sluice::replay::{Capture, Record};

use crate::turn::{HEAD, encode, scenes};

/// Longest seed in bytes: longer ones slow the fuzzer down.
const LONGEST: usize = 4096;

/// Every seed as (target, name, bytes), from the folder of golden cases.
///
/// # Errors
/// When the cases cannot be read.
pub fn from_cases(cases: &Path) -> io::Result<Vec<(&'static str, String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(cases)? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let config = fs::read(folder.join("config.toml"))?;
        let world = world(&String::from_utf8_lossy(&config));
        seeds.push(("config", name.clone(), config));
        let mut frames = Vec::new();
        for (port, file) in [(0u8, "front.in.pcap"), (1, "back.in.pcap")] {
            let path = folder.join(file);
            if path.exists() {
                frames.extend(records(&path)?.into_iter().map(|record| (port, record)));
            }
        }
        frames.sort_by_key(|(_, record)| record.at);
        if let Some((_, first)) = frames.first() {
            seeds.push(("wire", name.clone(), first.bytes.clone()));
        }
        seeds.push(("turn", name, encode(world, &paced(&frames))));
    }
    seeds.extend(of_turns());
    seeds.retain(|(_, _, bytes)| bytes.len() <= LONGEST);
    seeds.sort();
    Ok(seeds)
}

/// The scripts that reach every mode of the packet path, as seeds.
pub fn of_turns() -> Vec<(&'static str, String, Vec<u8>)> {
    scenes::all().into_iter().map(|(name, bytes)| ("turn", name, bytes)).collect()
}

/// The world that is most like a configuration.
fn world(config: &str) -> [u8; HEAD] {
    let signs = [
        (0, "\"reset\""),
        (1, "accept_mid_stream"),
        (3, "vlan = "),
        (5, "mtu = 1400"),
        (6, "_s = "),
        (7, "ports = "),
    ];
    let switches = signs.iter().map(|(bit, sign)| u8::from(config.contains(sign)) << bit).sum();
    [switches, 0, 63]
}

/// Each frame with the milliseconds until the next.
fn paced(frames: &[(u8, Record)]) -> Vec<(u8, u64, Vec<u8>)> {
    let later = frames.iter().skip(1).map(|(_, record)| record.at);
    let until = later.chain(frames.last().map(|(_, record)| record.at));
    let gap = |from: Duration, to: Duration| to.saturating_sub(from).as_millis() as u64;
    let paired = frames.iter().zip(until);
    paired.map(|((port, r), next)| (*port, gap(r.at, next), r.bytes.clone())).collect()
}

fn records(path: &Path) -> io::Result<Vec<Record>> {
    let mut capture = Capture::open(path).map_err(io::Error::other)?;
    let mut records = Vec::new();
    while let Some(record) = capture.next_record().map_err(io::Error::other)? {
        records.push(record);
    }
    Ok(records)
}
