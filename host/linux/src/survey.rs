//! What `/proc` and `/sys` say of the machine: memory, processors, processes, interfaces.
//!
//! For checks that a person asks for, not for the packet path. Nothing is changed and nothing
//! needs a privilege; what cannot be read is absent from the answer, and it is the reader who says
//! what that means. The root folder is a parameter so that tests can bring a machine of their own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

mod cpus;
mod listening;
mod process;

pub use cpus::{Cpu, Cpus, list};
pub use process::{Capability, Process};

/// A place to read from.
#[derive(Clone, Debug)]
pub struct Survey {
    root: PathBuf,
}

/// Huge pages of one size on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The NUMA node.
    pub node: u16,
    /// Size of a page in KiB.
    pub size_kib: u64,
    /// Pages that there are.
    pub total: u64,
    /// Pages that nobody uses.
    pub free: u64,
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total_kib: u64,
    /// What can be had without swapping.
    pub available_kib: u64,
    /// The usual size of a huge page; 0 where the kernel has none.
    pub huge_page_kib: u64,
}

/// A file system that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub place: PathBuf,
    /// Its type: `ext4`, `tmpfs`, `hugetlbfs`.
    pub kind: String,
    /// Its options, parted by commas.
    pub options: String,
}

/// The kernel's clock source, and those it could use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// In use.
    pub current: String,
    /// All that there are.
    pub available: Vec<String>,
}

impl Default for Survey {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Survey {
    /// Reads below `root`, which is `/` but for tests.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The text of a file below the root, without white space around it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text(&self, path: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.root.join(path.trim_start_matches('/')))?;
        Ok(text.trim().to_owned())
    }

    fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path).ok()?.parse().ok()
    }

    /// Names in a folder below the root, in order; none where there is no such folder.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The kernel's release: `6.1.0-18-amd64`.
    pub fn kernel_release(&self) -> Option<String> {
        self.text("proc/sys/kernel/osrelease").ok()
    }

    /// A kernel setting by its name, as `sysctl` has it: `net.ipv4.ip_forward`. An interface's
    /// name may stand in it and hold a dot, as `eth0.10`: then write `/` between the parts.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
        self.text(&format!("proc/sys/{path}")).ok()
    }

    /// Memory.
    pub fn memory(&self) -> Option<Memory> {
        let text = self.text("proc/meminfo").ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Memory {
            total_kib: field("MemTotal")?,
            available_kib: field("MemAvailable")?,
            huge_page_kib: field("Hugepagesize").unwrap_or(0),
        })
    }

    /// Huge pages, by node and size.
    pub fn huge_pages(&self) -> Vec<HugePages> {
        let mut all = Vec::new();
        for node in self.names("sys/devices/system/node") {
            let Some(number) = node.strip_prefix("node").and_then(|it| it.parse().ok()) else {
                continue;
            };
            let folder = format!("sys/devices/system/node/{node}/hugepages");
            for size in self.names(&folder) {
                let kib = size.strip_prefix("hugepages-").and_then(|it| it.strip_suffix("kB"));
                let Some(size_kib) = kib.and_then(|kib| kib.parse().ok()) else { continue };
                let count = |what: &str| self.number(&format!("{folder}/{size}/{what}"));
                let (Some(total), Some(free)) = (count("nr_hugepages"), count("free_hugepages"))
                else {
                    continue;
                };
                all.push(HugePages { node: number, size_kib, total, free });
            }
        }
        all
    }

    /// Mounted file systems, in the order in which they were mounted.
    pub fn mounts(&self) -> Vec<Mount> {
        let text = self.text("proc/self/mounts").unwrap_or_default();
        let mount = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let place = PathBuf::from(unescaped(words.next()?));
            Some(Mount { place, kind: words.next()?.to_owned(), options: words.next()?.to_owned() })
        };
        text.lines().filter_map(mount).collect()
    }

    /// The clock source.
    pub fn clock(&self) -> Option<Clock> {
        let folder = "sys/devices/system/clocksource/clocksource0";
        let available = self.text(&format!("{folder}/available_clocksource")).ok()?;
        Some(Clock {
            current: self.text(&format!("{folder}/current_clocksource")).ok()?,
            available: available.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// The driver of a network interface's device; `None` for virtual ones.
    pub fn driver(&self, interface: &str) -> Option<String> {
        let link = self.root.join(format!("sys/class/net/{interface}/device/driver"));
        Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// The driver that a PCI device is bound to, if any; an error when there is no such device.
    ///
    /// # Errors
    /// When the device is not there.
    pub fn pci_driver(&self, address: &str) -> io::Result<Option<String>> {
        let device = self.root.join(format!("sys/bus/pci/devices/{address}"));
        fs::metadata(&device)?;
        let link = fs::read_link(device.join("driver")).ok();
        Ok(link.and_then(|link| Some(link.file_name()?.to_str()?.to_owned())))
    }

    /// The NUMA node of a network interface's device; `None` where it is unknown.
    pub fn node_of(&self, interface: &str) -> Option<u16> {
        self.number(&format!("sys/class/net/{interface}/device/numa_node"))
    }
}

/// A path of `/proc/mounts`, whose blanks are written as three octal digits (proc(5)).
fn unescaped(text: &str) -> String {
    let blanks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    blanks.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The mount that a path is on: the longest that it begins with, and of those the last.
pub fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let on = mounts.iter().filter(|mount| path.starts_with(&mount.place));
    on.max_by_key(|mount| mount.place.as_os_str().len())
}

#[cfg(test)]
mod tests;
