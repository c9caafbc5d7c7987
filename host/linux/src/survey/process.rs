//! Processes: who runs, and what one may do.

use super::Survey;

/// What a process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Bytes it may lock in memory; `None`: no limit.
    pub locked_bytes: Option<u64>,
    /// Its effective capabilities, as the kernel's bit set.
    pub capabilities: u64,
    /// Whether system calls are filtered (seccomp).
    pub filtered: bool,
}

/// A capability, by its bit (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Links, addresses, XDP.
    NetAdmin = 12,
    /// Packet and AF_XDP sockets.
    NetRaw = 13,
    /// Locked memory beyond the limit.
    IpcLock = 14,
    /// Much else, and BPF before Linux 5.8.
    SysAdmin = 21,
    /// BPF programs.
    Bpf = 39,
}

impl Capability {
    /// Its name: `CAP_NET_ADMIN`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Bpf => "CAP_BPF",
        }
    }
}

impl Process {
    /// Whether it has a capability.
    pub fn may(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u8 & 1 == 1
    }
}

impl Survey {
    /// What a process may do; `None` when it is gone, or hidden from us.
    pub fn process(&self, pid: u32) -> Option<Process> {
        let status = self.text(&format!("proc/{pid}/status")).ok()?;
        let limits = self.text(&format!("proc/{pid}/limits")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        Some(Process {
            locked_bytes: locked.split_whitespace().next()?.parse().ok(),
            capabilities: u64::from_str_radix(field("CapEff")?, 16).ok()?,
            filtered: field("Seccomp").is_some_and(|mode| mode != "0"),
        })
    }

    /// Processes with this name (at most 15 bytes of it are known), by their ids.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let ids = self.names("proc").into_iter().filter_map(|name| name.parse().ok());
        let named = |id: &u32| self.text(&format!("proc/{id}/comm")).is_ok_and(|it| it == name);
        ids.filter(named).collect()
    }

    /// The network namespace of a process, as a name that is the same for those in one namespace.
    pub fn network_of(&self, pid: &str) -> Option<String> {
        let link = std::fs::read_link(self.root.join(format!("proc/{pid}/ns/net"))).ok()?;
        link.to_str().map(str::to_owned)
    }
}
