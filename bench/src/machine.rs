//! What machine this is, and whether it is quiet enough to measure on.

use crate::error::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

/// A load average above this, without the benchmark, disturbs it.
const BUSY: f64 = 0.5;

fn machine_error(what: &str, source: impl Into<std::io::Error>) -> BenchError {
    BenchError::Machine { what: what.into(), source: source.into() }
}

/// Cores that the process may use.
pub fn usable_cores() -> Result<Vec<usize>, BenchError> {
    let set = sched_getaffinity(None).map_err(|e| machine_error("sched_getaffinity", e))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Binds the calling thread to a core.
pub fn pin(core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|e| machine_error(&format!("core {core}"), e))
}

/// Seconds that the calling thread ran, and that it was ready but something else ran.
pub fn ran_and_waited_s() -> Option<(f64, f64)> {
    let text = read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten().map(|ns| ns as f64 / 1e9);
    Some((next()?, next()?))
}

/// How long the calling thread was ready but something else ran, for many readings.
pub struct Waits(Option<File>);

impl Waits {
    pub fn open() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Nanoseconds so far, where the kernel tells.
    pub fn read(&self) -> Option<u64> {
        let mut text = [0; 64];
        let len = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.split_whitespace().nth(1)?.parse().ok()
    }
}

/// The nice value of the scheduling group, given back when this is dropped.
pub struct Priority(Option<String>);

const AUTOGROUP: &str = "/proc/self/autogroup";

impl Priority {
    /// Gives the group of this process the nice value, if one is wanted. Without groups, or
    /// without the right to, it is an error.
    pub fn set(nice: Option<i8>) -> Result<Self, BenchError> {
        let Some(nice) = nice else { return Ok(Self(None)) };
        let text = read_to_string(AUTOGROUP).map_err(|e| machine_error(AUTOGROUP, e))?;
        let before = text.rsplit(' ').next().unwrap_or("0").trim().to_owned();
        std::fs::write(AUTOGROUP, nice.to_string())
            .map_err(|e| machine_error(&format!("{AUTOGROUP} (--nice)"), e))?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The kernel allows changes back some times a second only to the privileged.
            let _ = std::fs::write(AUTOGROUP, before);
        }
    }
}

/// Bytes of the caches of a core, by level, from the first data cache on.
fn caches(core: usize) -> Vec<(u8, u64)> {
    let of = |index: usize| {
        let read = |name: &str| {
            let at = format!("/sys/devices/system/cpu/cpu{core}/cache/index{index}/{name}");
            read_to_string(at).ok().map(|text| text.trim().to_owned())
        };
        let level = read("level")?.parse().ok()?;
        let size: u64 = read("size")?.strip_suffix('K')?.parse().ok()?;
        (read("type")? != "Instruction").then_some((level, size * 1024))
    };
    (0..8).filter_map(of).collect()
}

/// The cache level that `bytes` that were just written lie in, for the most part.
pub fn level_of(core: usize, bytes: u64) -> String {
    let found = caches(core).into_iter().find(|(_, size)| bytes <= *size);
    found.map_or_else(|| "memory".into(), |(level, _)| format!("L{level}"))
}

/// The commit that the working directory is at, if it is one of this project; with a mark if the
/// tree has changes.
pub fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + " with changes" })
}

fn load_average() -> Option<f64> {
    read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The machine before the benchmark began.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cpu_model: String,
    pub cpus: usize,
    pub kernel: String,
    pub load_average: Option<f64>,
    governor: Option<String>,
    pub l2_bytes: Option<u64>,
    pub l3_bytes: Option<u64>,
}

impl Machine {
    /// What there is to be known; `core` stands for all cores.
    pub fn look(core: usize) -> Self {
        let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let read = |path: &str| read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cache = |wanted| caches(core).into_iter().find(|(l, _)| *l == wanted).map(|(_, s)| s);
        Self {
            cpu_model: model_of(&info),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            load_average: load_average(),
            governor: read(&format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")),
            l2_bytes: cache(2),
            l3_bytes: cache(3),
        }
    }

    /// Reasons to mistrust a figure from this machine.
    pub fn warnings(&self, workers: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(load) = self.load_average.filter(|load| *load > BUSY) {
            warnings.push(format!("the load average is {load}: others use the machine"));
        }
        if workers >= self.cpus {
            let text = format!("{workers} workers on {} cores: none is left for others", self.cpus);
            warnings.push(text);
        }
        if self.governor.as_deref().is_some_and(|governor| governor != "performance") {
            warnings.push("the frequency governor is not \"performance\"".into());
        }
        warnings
    }

    pub fn json(&self) -> Value {
        json!({
            "cpu_model": self.cpu_model,
            "cpus": self.cpus,
            "kernel": self.kernel,
            "load_average": self.load_average,
            "governor": self.governor,
            "kernels": sluice_lanes::level::Level::detect().name(),
            "l2_bytes": self.l2_bytes,
            "l3_bytes": self.l3_bytes,
        })
    }
}

/// The processor, by what the kernel says of the first. Its family and model are told too, since a
/// hypervisor may hide the rest.
fn model_of(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let name = field("model name").unwrap_or("unknown");
    match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_by_its_name_family_and_model() {
        let info = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(model_of(info), "AMD EPYC (family 26, model 2)");
        assert_eq!(model_of("model name\t: Neoverse\n"), "Neoverse");
        assert_eq!(model_of(""), "unknown");
    }

    #[test]
    fn this_machine_can_be_described() {
        let cores = usable_cores().unwrap();
        assert!(!cores.is_empty());
        let machine = Machine::look(cores[0]);
        assert!(machine.cpus >= 1 && !machine.kernel.is_empty());
        let crowded = machine.warnings(machine.cpus);
        assert!(crowded.iter().any(|text| text.contains("none is left")), "{crowded:?}");
    }

    #[test]
    fn waits_only_grow() {
        let waits = Waits::open();
        let before = waits.read();
        std::thread::yield_now();
        assert!(waits.read() >= before);
    }

    #[test]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let core = *usable_cores().unwrap().last().unwrap();
            pin(core).unwrap();
            assert_eq!(usable_cores().unwrap(), [core]);
        })
        .join()
        .unwrap();
    }
}
