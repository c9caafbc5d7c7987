//! Processors and the clock: what workers run on.

use std::collections::BTreeSet;

use sluice_config::Idle;

use super::facts::Facts;
use super::finding::{Finding, Mark, Section};

/// Programs that keep the clock right.
pub const TIME_KEEPERS: [&str; 5] = ["chronyd", "ntpd", "systemd-timesyn", "openntpd", "phc2sys"];

pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cores = facts.config().and_then(|config| config.director.cores.clone());
    let cores = cores.unwrap_or_default();
    if let Some(config) = facts.config() {
        findings.extend(online(facts, &cores));
        findings.extend(shared(facts, &cores));
        findings.extend(governed(facts, &cores));
        findings.extend(alone(facts, &cores, config.director.idle));
        findings.extend(far_from_ports(facts, &cores));
    }
    findings.extend(clock(facts));
    findings.push(time(facts));
    findings
}

fn find(id: &'static str, mark: Mark, text: String) -> Finding {
    Finding::new(Section::Cores, id, mark, text)
}

fn listed(cores: impl IntoIterator<Item = u16>) -> String {
    cores.into_iter().map(|core| core.to_string()).collect::<Vec<_>>().join(", ")
}

fn online(facts: &Facts, cores: &[u16]) -> Vec<Finding> {
    if facts.cpus.by_number.is_empty() {
        return vec![find("cores", Mark::Unseen, "the kernel does not list processors".to_owned())];
    }
    let known = |core: &u16| facts.cpus.by_number.contains_key(core);
    let missing: Vec<u16> = cores.iter().copied().filter(|core| !known(core)).collect();
    let has = listed(facts.cpus.by_number.keys().copied());
    if missing.is_empty() {
        let workers = match cores {
            [] => "one worker on the last core".to_owned(),
            cores => format!("workers on {}", listed(cores.iter().copied())),
        };
        return vec![find("cores", Mark::Ok, format!("{workers}; this machine has {has}"))];
    }
    let text = format!("`cores` names {}, which this machine does not have", listed(missing));
    vec![find("cores", Mark::Fail, text).advise(format!("use some of {has} in [director]"))]
}

/// Workers that are hyper-threads of one core.
fn shared(facts: &Facts, cores: &[u16]) -> Vec<Finding> {
    let mut told = BTreeSet::new();
    let pair = |core: &u16| {
        let cpu = facts.cpus.by_number.get(core)?;
        let both: Vec<u16> = cpu.siblings.iter().copied().filter(|it| cores.contains(it)).collect();
        (both.len() > 1).then_some(both)
    };
    let pairs: Vec<_> =
        cores.iter().filter_map(pair).filter(|it| told.insert(it.clone())).collect();
    let finding = |both: Vec<u16>| {
        let text = format!("workers {} are threads of one core and slow each other", listed(both));
        find("smt", Mark::Warn, text).advise("give each worker a core of its own in [director]")
    };
    pairs.into_iter().map(finding).collect()
}

fn governed(facts: &Facts, cores: &[u16]) -> Vec<Finding> {
    let slow = cores.iter().filter_map(|core| {
        let governor = facts.cpus.by_number.get(core)?.governor.as_deref()?;
        (governor != "performance").then(|| (*core, governor.to_owned()))
    });
    slow.map(|(core, governor)| {
        let folder = format!("/sys/devices/system/cpu/cpu{core}/cpufreq");
        let text = format!(
            "core {core} is governed by {governor}: it slows down while a worker waits for packets"
        );
        find("governor", Mark::Warn, text)
            .fix(format!("echo performance > {folder}/scaling_governor"))
    })
    .collect()
}

/// Polling workers that the scheduler may put other work beside.
fn alone(facts: &Facts, cores: &[u16], idle: Idle) -> Vec<Finding> {
    let beside: Vec<u16> =
        cores.iter().copied().filter(|core| !facts.cpus.isolated.contains(core)).collect();
    if idle != Idle::Busy || beside.is_empty() {
        return Vec::new();
    }
    let all = listed(beside);
    let text = format!("workers on {all} poll all the time, and other work may run there, too");
    let advice = format!(
        "boot with isolcpus={all} nohz_full={all} rcu_nocbs={all}, or use idle = \"adaptive\"",
        all = all.replace(", ", ",")
    );
    vec![find("isolation", Mark::Warn, text).advise(advice)]
}

fn far_from_ports(facts: &Facts, cores: &[u16]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in facts.config().iter().flat_map(|config| &config.ports) {
        let interface = port.device.interface().and_then(|name| facts.interfaces.get(name));
        let Some(node) = interface.and_then(|interface| interface.node) else { continue };
        let of = |core: &u16| facts.cpus.by_number.get(core).map(|cpu| cpu.node);
        let far: Vec<u16> =
            cores.iter().copied().filter(|core| of(core).is_some_and(|it| it != node)).collect();
        if far.is_empty() {
            continue;
        }
        let near = facts.cpus.by_number.iter().filter(|(_, cpu)| cpu.node == node);
        let near = listed(near.map(|(number, _)| *number));
        let text = format!(
            "port {} is on NUMA node {node}, its workers on {} are not: each packet crosses over",
            port.name,
            listed(far)
        );
        findings
            .push(find("numa", Mark::Warn, text).advise(format!("use cores of that node: {near}")));
    }
    findings
}

fn clock(facts: &Facts) -> Vec<Finding> {
    let Some(clock) = &facts.clock else {
        let text = "the kernel does not name its clock source".to_owned();
        return vec![find("clock", Mark::Unseen, text)];
    };
    // kvm-clock and Hyper-V's pages are the TSC with the host's corrections.
    let good = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    if good.contains(&&*clock.current) {
        return vec![find("clock", Mark::Ok, format!("the clock source is {}", clock.current))];
    }
    let text = format!("the clock source is {}, which is slow to read", clock.current);
    let finding = find("clock", Mark::Warn, text);
    let better = good.iter().find(|name| clock.available.iter().any(|it| it == *name));
    vec![match better {
        Some(name) => finding.fix(format!(
            "echo {name} > /sys/devices/system/clocksource/clocksource0/current_clocksource"
        )),
        None => finding.advise(
            "the kernel trusts no better one here: look in its log (`dmesg | grep -i tsc`) why",
        ),
    }]
}

fn time(facts: &Facts) -> Finding {
    match facts.time_keepers.first() {
        Some(name) => find("time", Mark::Ok, format!("{name} keeps the time of day right")),
        None => {
            let text = "nothing seems to keep the time of day right: certificates' dates and the \
                        times of events may be wrong";
            find("time", Mark::Warn, text.to_owned()).fix("apt-get install -y chrony")
        }
    }
}
