//! The ways to real servers: routes, neighbours, and room for tunnels' headers.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use sluice_config::Config;

use super::facts::{Facts, Hop, Way};
use super::finding::{Finding, Mark, Section};

/// Most findings of a kind that are told one by one.
const LISTED: usize = 16;

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(config) = facts.config().filter(|_| facts.network_seen) else { return Vec::new() };
    let overheads = overheads(config);
    let mut findings = Vec::new();
    for (address, overhead) in &overheads {
        match facts.ways.get(address) {
            Some(way) => findings.extend(reached(facts, config, *address, way)),
            None => continue,
        }
        findings.extend(room(facts, config, *address, *overhead));
    }
    if findings.is_empty() && !overheads.is_empty() {
        let text = format!("there is a way to each of {} real servers", overheads.len());
        findings.push(find("reals", Mark::Ok, text));
    }
    once(findings)
}

/// Each mended by the same commands only once, and of many of a kind only the first.
fn once(findings: Vec<Finding>) -> Vec<Finding> {
    let mut mended: HashSet<(&str, Vec<String>)> = HashSet::new();
    let mut kinds: BTreeMap<&'static str, (Mark, usize)> = BTreeMap::new();
    let mut kept = Vec::new();
    for finding in findings {
        if !finding.fix.is_empty() && !mended.insert((finding.id, finding.fix.clone())) {
            continue;
        }
        let (_, of_kind) = kinds.entry(finding.id).or_insert((finding.mark, 0));
        *of_kind += 1;
        if *of_kind <= LISTED {
            kept.push(finding);
        }
    }
    for (id, (mark, of_kind)) in kinds.into_iter().filter(|(_, (_, of_kind))| *of_kind > LISTED) {
        let text = format!("and {} more real servers like these", of_kind - LISTED);
        kept.push(find(id, mark, text).advise("mend those above, and look again"));
    }
    kept
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Reals, id, mark, text)
}

/// Each real server's address with the most bytes that a tunnel puts before packets to it.
fn overheads(config: &Config) -> BTreeMap<IpAddr, u32> {
    let mut all: BTreeMap<IpAddr, u32> = BTreeMap::new();
    for service in &config.services {
        for real in &service.reals {
            let mode = real.mode.unwrap_or(service.mode);
            let overhead = real.tunnel.or(service.tunnel).overhead(mode, real.address);
            let most = all.entry(real.address).or_default();
            *most = (*most).max(overhead.into());
        }
    }
    all
}

fn reached(facts: &Facts, config: &Config, address: IpAddr, way: &Way) -> Vec<Finding> {
    let mark = Mark::Fail;
    match way {
        Way::Hops(hops) => by_hops(facts, config, address, hops),
        Way::Local => {
            let text = format!("{address} is this machine's own address, not a real server's");
            let advice = "the director sends to other machines only: use another address for it";
            vec![find("real_local", mark, text).advise(advice)]
        }
        Way::Forbidden => {
            let text = format!("a route forbids to send to {address}");
            let advice =
                format!("`ip route get {address}` names it: delete it, or add a better one");
            vec![find("real_forbidden", mark, text).advise(advice)]
        }
        Way::Foreign => {
            let text = format!("only the kernel can send to {address}: its route is a tunnel's");
            let advice = "give it a plain route; the director makes its tunnels itself, by `mode`";
            vec![find("real_foreign", mark, text).advise(advice)]
        }
        Way::None => {
            let text = format!("there is no route to {address}");
            let side = config.ports.last().and_then(|port| facts.kernel_side(port));
            let width = if address.is_ipv4() { 32 } else { 128 };
            let finding = find("real_route", mark, text);
            vec![match side {
                Some(side) => finding
                    .advise("with a gateway, if it is not on the link: `via GATEWAY`")
                    .fix(format!("ip route add {address}/{width} dev {side}")),
                None => finding.advise("add a route: `ip route add`"),
            }]
        }
    }
}

fn by_hops(facts: &Facts, config: &Config, address: IpAddr, hops: &[Hop]) -> Vec<Finding> {
    let sides: Vec<&str> = config.ports.iter().filter_map(|port| facts.kernel_side(port)).collect();
    let mut findings = Vec::new();
    for hop in hops {
        if !sides.is_empty() && !sides.contains(&&*hop.interface) {
            let text = format!(
                "the way to {address} leads out of {}, which is no port of the director",
                hop.interface
            );
            let advice = format!("route it by one of {}", sides.join(", "));
            findings.push(find("real_port", Mark::Fail, text).advise(advice));
        } else if hop.answers == Some(false) {
            let text = match hop.neighbour == address {
                true => format!("{address} does not answer on {}", hop.interface),
                false => format!(
                    "{}, the gateway to {address}, does not answer on {}",
                    hop.neighbour, hop.interface
                ),
            };
            let advice = "look whether that machine is up and in this network (VLAN)";
            findings.push(find("real_silent", Mark::Fail, text).advise(advice));
        }
    }
    findings
}

/// Room for what comes in at any port, with an outer header where a tunnel leads there.
fn room(facts: &Facts, config: &Config, address: IpAddr, outer: u32) -> Vec<Finding> {
    let Some(Way::Hops(hops)) = facts.ways.get(&address) else { return Vec::new() };
    let largest = |hop: &Hop| {
        let others = config.ports.iter().filter_map(|port| facts.kernel_side(port));
        let others = others.filter(|side| config.ports.len() == 1 || *side != hop.interface);
        others.filter_map(|side| facts.interfaces.get(side)).map(|seen| seen.mtu).max()
    };
    let mut findings = Vec::new();
    for hop in hops {
        let Some(seen) = facts.interfaces.get(&hop.interface) else { continue };
        let here = seen.mtu;
        let needed = largest(hop).unwrap_or(here) + outer;
        if here >= needed {
            continue;
        }
        let interface = &hop.interface;
        let text = match outer {
            0 => format!(
                "{interface} takes packets of {here} bytes on the way to {address}, and clients \
                 may send {needed}: what may not be cut is refused with \"packet too big\""
            ),
            outer => format!(
                "{interface} takes packets of {here} bytes on the way to {address}; a tunnel adds \
                 {outer} to the {} that clients may send",
                needed - outer
            ),
        };
        let advice = "every switch and the real server must take them, too; or clients' MTU (MSS) \
                      must be smaller";
        let mut finding = find("mtu", Mark::Warn, text).advise(advice);
        if let Some(below) = &seen.underlay {
            let carrier = (&below.interface, needed + below.overhead);
            finding = finding.fix(format!("ip link set {} mtu {}", carrier.0, carrier.1));
        }
        findings.push(finding.fix(format!("ip link set {interface} mtu {needed}")));
    }
    findings
}
