//! Virtual and local addresses: whether this machine answers for them, and nobody else does.

use std::net::IpAddr;

use sluice_config::{Config, Mode};

use super::facts::Facts;
use super::finding::{Finding, Mark, Section};

/// Most addresses that are told of one by one.
const LISTED: usize = 8;
/// Most addresses that commands are printed for; after them one looks again.
const MENDED: usize = 256;
/// Most addresses of a pool that are looked at: a prefix of IPv6 has more than anybody adds.
const LOOKED_AT: usize = 4096;

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(config) = facts.config().filter(|_| facts.network_seen) else { return Vec::new() };
    let mut findings = Vec::new();
    findings.extend(virtual_addresses(facts, config));
    findings.extend(local_addresses(facts, config));
    findings.extend(duplicates(facts));
    findings.extend(tentative(facts, config));
    findings.extend(forwarding(facts, config));
    findings.extend(keepalived(facts, config));
    if findings.iter().all(|finding| finding.mark == Mark::Ok) {
        let text = "this machine answers for its virtual and local addresses".to_owned();
        findings.push(find("addresses", Mark::Ok, text));
    }
    findings.extend(direct_return(config));
    findings
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Addresses, id, mark, text)
}

/// Each virtual address once, in the order of the configuration.
pub fn vips(config: &Config) -> Vec<IpAddr> {
    let mut vips: Vec<IpAddr> = Vec::new();
    for service in &config.services {
        if !vips.contains(&service.vip) {
            vips.push(service.vip);
        }
    }
    vips
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Where an address would go: the link it is on, or the first port's.
fn home(facts: &Facts, config: &Config, address: IpAddr) -> Option<String> {
    let sides: Vec<&str> = config.ports.iter().filter_map(|port| facts.kernel_side(port)).collect();
    let on_link = facts.on_link(address);
    let found = on_link.iter().find(|name| sides.contains(name)).or(sides.first());
    found.map(|name| (*name).to_owned())
}

fn add(facts: &Facts, config: &Config, address: IpAddr) -> Option<String> {
    let home = home(facts, config, address)?;
    Some(format!("ip address add {address}/{} dev {home}", width(address)))
}

fn virtual_addresses(facts: &Facts, config: &Config) -> Vec<Finding> {
    let moves = |vip: &IpAddr| {
        let text = facts.keepalived.as_deref().unwrap_or_default();
        facts.keepalived_runs && names(text, *vip)
    };
    let mut findings = Vec::new();
    for vip in vips(config) {
        match &*facts.holders(vip) {
            [] if moves(&vip) => {
                let text = format!("{vip} is not here now: keepalived moves it");
                findings.push(find("vip_elsewhere", Mark::Ok, text));
            }
            [] => findings.push(homeless(facts, config, vip)),
            [_] => {}
            several => {
                let text = format!(
                    "{vip} is on several interfaces ({}): the kernel answers for it on each",
                    several.join(", ")
                );
                let home = home(facts, config, vip);
                let surplus = several.iter().find(|name| home.as_deref() != Some(**name));
                let mut finding = find("vip_twice", Mark::Warn, text);
                if let Some(surplus) = surplus {
                    let width = width(vip);
                    finding = finding.fix(format!("ip address del {vip}/{width} dev {surplus}"));
                }
                findings.push(finding);
            }
        }
    }
    findings
}

/// A virtual address that nobody here answers for.
fn homeless(facts: &Facts, config: &Config, vip: IpAddr) -> Finding {
    let on_link = facts.on_link(vip);
    let (mark, text) = match on_link.first() {
        Some(link) => {
            (Mark::Fail, format!("{vip} is on no interface: nobody answers for it on {link}"))
        }
        None => {
            (Mark::Warn, format!("{vip} is on no interface: it must be routed to this machine"))
        }
    };
    let finding = find("vip_absent", mark, text).advise(
        "add it to the port's interface (its twin, where it has one), or have keepalived do so",
    );
    match add(facts, config, vip) {
        Some(command) => finding.fix(command),
        None => finding,
    }
}

fn local_addresses(facts: &Facts, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pool in &config.pools {
        let all = pool.addresses.iter().flat_map(sluice_config::AddressRange::iter).take(LOOKED_AT);
        // Where they are routed here nobody need answer for them.
        let asked = all.filter(|&address| !facts.on_link(address).is_empty());
        let absent: Vec<IpAddr> = asked.filter(|&it| facts.holders(it).is_empty()).collect();
        if absent.is_empty() {
            continue;
        }
        let named: Vec<String> = absent.iter().take(LISTED).map(IpAddr::to_string).collect();
        let more = match absent.len().saturating_sub(LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "local addresses of pool {} are on no interface: real servers find nobody to answer \
             to at {}{more}",
            pool.name,
            named.join(", ")
        );
        let mut finding = find("pool_absent", Mark::Fail, text);
        for command in absent.iter().take(MENDED).filter_map(|&it| add(facts, config, it)) {
            finding = finding.fix(command);
        }
        findings.push(finding);
    }
    findings
}

fn duplicates(facts: &Facts) -> Vec<Finding> {
    let said = |(address, interface, mac): &(IpAddr, String, String)| {
        let text = format!(
            "{address} is somebody else's, too: {mac} answers for it on {interface}, and clients \
             go to whoever is faster"
        );
        find("duplicate", Mark::Fail, text).advise(format!(
            "find that machine (`ip neigh`, the switch's table) and take {address} away from \
                 it; if it is a real server of mode dr, see `direct_return`"
        ))
    };
    let mut findings: Vec<_> = facts.duplicates.iter().map(said).collect();
    if !facts.probed {
        let text = "whether others have this machine's addresses was not asked: that needs root \
                    (CAP_NET_ADMIN)";
        findings.push(find("duplicate", Mark::Unseen, text.to_owned()));
    }
    findings
}

fn tentative(facts: &Facts, config: &Config) -> Vec<Finding> {
    let vips = vips(config);
    let mut findings = Vec::new();
    for (name, interface) in &facts.interfaces {
        let stuck =
            interface.addresses.iter().filter(|(ip, _, tentative)| *tentative && vips.contains(ip));
        for (ip, length, _) in stuck {
            let text = format!("the kernel does not answer for {ip} yet: it looks for duplicates");
            findings.push(
                find("tentative", Mark::Warn, text)
                    .advise("if that lasts, somebody else has it; `nodad` skips the search")
                    .fix(format!("ip address replace {ip}/{length} dev {name} nodad")),
            );
        }
    }
    findings
}

/// Source NAT and NAT need a kernel that forwards what the director leaves to it.
fn forwarding(facts: &Facts, config: &Config) -> Vec<Finding> {
    let mut v4 =
        config.snat.iter().any(|rule| rule.sources.iter().any(|it| it.address().is_ipv4()));
    let mut v6 =
        config.snat.iter().any(|rule| rule.sources.iter().any(|it| it.address().is_ipv6()));
    for service in &config.services {
        for real in &service.reals {
            let nat = real.mode.unwrap_or(service.mode) == Mode::Nat;
            v4 |= nat && real.address.is_ipv4();
            v6 |= nat && real.address.is_ipv6();
        }
    }
    let text = |family: &str| {
        format!(
            "the kernel does not forward {family}: what real servers behind this machine send on \
             their own gets no further"
        )
    };
    let mut findings = Vec::new();
    if v4 && facts.forwards_v4 == Some(false) {
        let finding = find("forwarding", Mark::Warn, text("IPv4"));
        findings.push(finding.fix("sysctl -w net.ipv4.ip_forward=1"));
    }
    if v6 && facts.forwards_v6 == Some(false) {
        let finding = find("forwarding", Mark::Warn, text("IPv6"));
        findings.push(finding.fix("sysctl -w net.ipv6.conf.all.forwarding=1"));
    }
    if let Some((entries, limit)) = facts.tracking
        && limit > 0
        && entries * 10 > limit * 8
    {
        let text = format!(
            "connection tracking holds {entries} of {limit} entries: when it is full the kernel \
             drops what it forwards; the director's own packets do not pass it"
        );
        let finding = find("conntrack", Mark::Warn, text);
        findings
            .push(finding.fix(format!("sysctl -w net.netfilter.nf_conntrack_max={}", limit * 4)));
    }
    findings
}

fn keepalived(facts: &Facts, config: &Config) -> Vec<Finding> {
    let Some(text) = &facts.keepalived else { return Vec::new() };
    let moved: Vec<IpAddr> = vips(config).into_iter().filter(|&vip| names(text, vip)).collect();
    let Some(first) = moved.first().filter(|_| !facts.keepalived_runs) else { return Vec::new() };
    let text = format!("keepalived is to move {first}, and does not run");
    vec![
        find("keepalived", Mark::Fail, text)
            .advise("look why it ended: `journalctl -u keepalived`")
            .fix("systemctl restart keepalived"),
    ]
}

/// Whether a configuration text names an address as a word of its own.
fn names(text: &str, address: IpAddr) -> bool {
    let lines = text.lines().map(|line| line.split(['#', '!']).next().unwrap_or_default());
    let mut words = lines.flat_map(|line| line.split([' ', '\t', '/', '{', '}', '"']));
    words.any(|word| word.parse() == Ok(address))
}

/// What cannot be seen from here: real servers of direct return must have the VIP and keep quiet.
fn direct_return(config: &Config) -> Vec<Finding> {
    let direct = config.services.iter().filter(|service| {
        service.reals.iter().any(|real| real.mode.unwrap_or(service.mode) == Mode::Dr)
    });
    let mut vips: Vec<IpAddr> = direct.map(|service| service.vip).collect();
    vips.dedup();
    let Some(vip) = vips.first() else { return Vec::new() };
    let text = "real servers of mode dr must have the virtual address and not answer ARP for it; \
                that cannot be seen from here";
    vec![find("direct_return", Mark::Ok, text.to_owned()).advise(format!(
        "on each of them: ip address add {vip}/{} dev lo; sysctl -w net.ipv4.conf.all.arp_ignore=1 \
         net.ipv4.conf.all.arp_announce=2",
        width(*vip)
    ))]
}
