//! Whether the process may do what a port needs, asked before it is tried: the drivers' own
//! messages do not name what is missing.

use std::fs;

use crate::device::{Device, PortConfig};
use crate::{Error, Result};

/// A Linux capability: its name and number.
type Capability = (&'static str, u32);

const NET_ADMIN: Capability = ("CAP_NET_ADMIN", 12);
const NET_RAW: Capability = ("CAP_NET_RAW", 13);
const IPC_LOCK: Capability = ("CAP_IPC_LOCK", 14);
const SYS_ADMIN: Capability = ("CAP_SYS_ADMIN", 21);
const BPF: Capability = ("CAP_BPF", 39);

const FIX: &str = "Run as root, or give the program the capability (`setcap`, or \
                   AmbientCapabilities= in a systemd unit)";
const FIX_MEMORY: &str = "Run as root, give the program CAP_IPC_LOCK, or raise the limit \
                          (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a systemd unit)";

/// Fails when a port cannot be opened by this process.
pub(crate) fn check(config: &PortConfig) -> Result<()> {
    let Some(effective) = effective() else { return Ok(()) };
    let has = |(_, number): Capability| effective & (1 << number) != 0;
    let needed: &[Capability] = match config.device {
        Device::AfXdp { .. } => &[NET_ADMIN, NET_RAW, BPF],
        Device::AfPacket { .. } => &[NET_RAW, NET_ADMIN, BPF],
        Device::Tap { .. } => &[NET_ADMIN],
        _ => &[],
    };
    let missing = |missing: String, fix| {
        let (port, device) = (config.name.clone(), config.device.to_string());
        Err(Error::Privilege { port, device, missing, fix })
    };
    // Before there was CAP_BPF, and still, CAP_SYS_ADMIN includes it.
    let may = |needed: Capability| has(needed) || (needed == BPF && has(SYS_ADMIN));
    if let Some((name, _)) = needed.iter().find(|needed| !may(**needed)) {
        return missing((*name).to_owned(), FIX);
    }
    if matches!(config.device, Device::AfXdp { .. }) && !has(IPC_LOCK) {
        let limit = locked_memory_limit();
        if limit != libc::RLIM_INFINITY {
            let limit_mb = limit >> 20;
            return missing(format!("more locked memory than {limit_mb} MB"), FIX_MEMORY);
        }
    }
    Ok(())
}

/// The process's effective capabilities, if they can be read.
fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn locked_memory_limit() -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the answer has the right size.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 => limit.rlim_cur,
        _ => libc::RLIM_INFINITY,
    }
}
