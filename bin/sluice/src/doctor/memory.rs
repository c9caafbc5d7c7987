//! Memory and huge pages against what the configuration sets aside.

use sluice_config::{Config, HugePages as Wish};

use super::facts::Facts;
use super::finding::{Finding, Mark, Section};
use crate::capacity::{SESSION_BYTES, WIDE_SESSION_BYTES};
use crate::show::{count, memory as humane};

/// Packet buffers and the rest of a director with few sessions, in bytes.
const BASE_BYTES: u64 = 96 << 20;
/// Buffers of large frames of a queue of an `af_packet` port, in bytes.
const LARGE_FRAMES_BYTES: u64 = 10 << 20;

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(config) = facts.config() else { return Vec::new() };
    let mut findings = vec![enough(facts, config)];
    findings.extend(huge_pages(facts, config));
    findings
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Memory, id, mark, text)
}

/// What the director takes, in bytes, roughly.
fn needed(config: &Config) -> u64 {
    let wide =
        config.services.iter().any(|service| service.vip.is_ipv6()) || !config.snat.is_empty();
    let of_one = SESSION_BYTES + if wide { WIDE_SESSION_BYTES } else { 0 };
    let packet_queues = config
        .ports
        .iter()
        .filter(|port| port.device.kind() == "af_packet")
        .map(|port| u64::from(port.queues.unwrap_or(1)))
        .sum::<u64>();
    BASE_BYTES + u64::from(config.limits.sessions) * of_one + packet_queues * LARGE_FRAMES_BYTES
}

fn enough(facts: &Facts, config: &Config) -> Finding {
    let needed = needed(config);
    let sessions = config.limits.sessions;
    let sessions = count(sessions.into());
    let needs = format!("{sessions} sessions and packet buffers take some {}", humane(needed));
    if facts.director.is_some() {
        return find("memory", Mark::Ok, format!("{needs}, which the director has"));
    }
    let Some(memory) = facts.memory else {
        return find("memory", Mark::Unseen, "/proc/meminfo cannot be read".to_owned());
    };
    let huge = facts.huge_pages.iter().map(|pages| pages.free * pages.size_kib).sum::<u64>();
    let available = (memory.available_kib + huge) * 1024;
    let text = format!("{needs}; {} are available", humane(available));
    if needed < available {
        return find("memory", Mark::Ok, text);
    }
    find("memory", Mark::Fail, text)
        .advise("lower `sessions` in [limits], or give the machine more memory")
}

fn huge_pages(facts: &Facts, config: &Config) -> Vec<Finding> {
    if config.director.huge_pages == Wish::Off {
        let text = "switched off by `huge_pages = \"off\"`".to_owned();
        return vec![find("huge_pages", Mark::Ok, text)];
    }
    if let Some(running) = &facts.director {
        return in_use(running.status.huge_pages, &running.status.memory.pages, facts, config);
    }
    let free: u64 = facts.huge_pages.iter().map(|pages| pages.free * pages.size_kib * 1024).sum();
    let total: u64 = facts.huge_pages.iter().map(|pages| pages.total).sum();
    let wanted = pages_for(facts, config);
    let enough = free >= needed(config);
    let text = match (total, enough) {
        (0, _) => "no huge pages are set aside".to_owned(),
        (_, true) => format!("{} are free; no mount is needed", humane(free)),
        (_, false) => format!("only {} are free: not enough for all", humane(free)),
    };
    let mark = match (enough, config.director.huge_pages) {
        (true, _) => Mark::Ok,
        (false, Wish::Required) => Mark::Fail,
        (false, _) => Mark::Warn,
    };
    let mut findings = vec![match mark {
        Mark::Ok => find("huge_pages", mark, text),
        _ => lacking(mark, &text, wanted),
    }];
    findings.extend(other_nodes(facts, config));
    findings
}

/// Of a director that runs: what it got.
fn in_use(packets: bool, pages: &str, facts: &Facts, config: &Config) -> Vec<Finding> {
    let text = format!(
        "session tables lie in {pages} pages, packets in {} pages",
        if packets { "huge" } else { "ordinary" }
    );
    if packets && pages != "ordinary" {
        return vec![find("huge_pages", Mark::Ok, text)];
    }
    let more = "; restart the director then: it takes its memory at start";
    let mut finding = lacking(Mark::Warn, &text, pages_for(facts, config));
    finding.advice.push_str(more);
    vec![finding]
}

fn lacking(mark: Mark, text: &str, wanted: u64) -> Finding {
    let text = format!("{text}; ordinary pages cost the packet path address translations");
    find("huge_pages", mark, text)
        .advise(
            "to keep them over a restart of the machine, put `vm.nr_hugepages` into /etc/sysctl.d",
        )
        .fix(format!("sysctl -w vm.nr_hugepages={wanted}"))
}

/// Pages of the usual size that hold all, beside those that others use.
fn pages_for(facts: &Facts, config: &Config) -> u64 {
    let size = facts.memory.map_or(0, |memory| memory.huge_page_kib).max(2048);
    let usual = facts.huge_pages.iter().filter(|pages| pages.size_kib == size);
    let used: u64 = usual.map(|pages| pages.total - pages.free.min(pages.total)).sum();
    used + needed(config).div_ceil(size * 1024)
}

/// Nodes with workers and without huge pages.
fn other_nodes(facts: &Facts, config: &Config) -> Vec<Finding> {
    let cores = config.director.cores.iter().flatten();
    let mut nodes: Vec<u16> =
        cores.filter_map(|core| facts.cpus.by_number.get(core)).map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let has = |node: u16| facts.huge_pages.iter().any(|it| it.node == node && it.total > 0);
    let any = facts.huge_pages.iter().any(|pages| pages.total > 0);
    let without = nodes.into_iter().filter(|&node| any && !has(node));
    without
        .map(|node| {
            let size = facts.memory.map_or(2048, |memory| memory.huge_page_kib).max(2048);
            let folder = format!("/sys/devices/system/node/node{node}/hugepages");
            let wanted = pages_for(facts, config);
            let text = format!("NUMA node {node} has workers and no huge pages");
            find("huge_pages_node", Mark::Warn, text)
                .fix(format!("echo {wanted} > {folder}/hugepages-{size}kB/nr_hugepages"))
        })
        .collect()
}
