//! Processors: which are on, who shares a core or a NUMA node with whom, and how fast they may go.

use std::collections::BTreeMap;

use super::Survey;

/// All processors that are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// By the kernel's number.
    pub by_number: BTreeMap<u16, Cpu>,
    /// Those that the scheduler leaves alone (`isolcpus=`).
    pub isolated: Vec<u16>,
}

/// One processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its NUMA node.
    pub node: u16,
    /// The processors of its core (SMT), itself among them.
    pub siblings: Vec<u16>,
    /// What governs its frequency; `None` where the kernel does not, as in most guests.
    pub governor: Option<String>,
}

/// A list as the kernel writes it: `0-3,8`.
pub fn list(text: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u16>().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

impl Survey {
    /// Processors.
    pub fn cpus(&self) -> Cpus {
        let folder = "sys/devices/system/cpu";
        let read = |path: &str| self.text(&format!("{folder}/{path}")).unwrap_or_default();
        let mut nodes = BTreeMap::new();
        for node in self.names("sys/devices/system/node") {
            let Some(number) = node.strip_prefix("node").and_then(|it| it.parse().ok()) else {
                continue;
            };
            let path = format!("sys/devices/system/node/{node}/cpulist");
            let cpus = list(&self.text(&path).unwrap_or_default());
            nodes.extend(cpus.into_iter().map(|cpu| (cpu, number)));
        }
        let cpu = |number: u16| {
            let governor = self.text(&format!("{folder}/cpu{number}/cpufreq/scaling_governor"));
            let cpu = Cpu {
                node: nodes.get(&number).copied().unwrap_or(0),
                siblings: list(&read(&format!("cpu{number}/topology/thread_siblings_list"))),
                governor: governor.ok(),
            };
            (number, cpu)
        };
        Cpus {
            by_number: list(&read("online")).into_iter().map(cpu).collect(),
            isolated: list(&read("isolated")),
        }
    }
}
