//! Keeping the kernel's stack from the frames of an interface that a port reads by AF_PACKET.
//!
//! Both the port and the kernel would otherwise answer: the kernel takes a packet to any of the
//! host's addresses on any interface, so a SYN to a VIP on the port's TAP twin would be reset from
//! the interface below. The program sits behind the packet sockets and drops everything.
//!
//! On Linux 6.6 and later the program goes with the process, however it ends. Before, it is a
//! filter of the traffic control layer and stays after a kill; the next [`Seal`] replaces it. While
//! a process takes over from another each has a filter: neither removes the other's before it is
//! known which of them goes on.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use aya::Ebpf;
use aya::programs::tc::{NlOptions, TcAttachOptions, qdisc_add_clsact, qdisc_detach_program};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};

use crate::{Error, Result, loader};

const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/seal.bpf.o"));
const PROGRAM: &str = "sluice_seal";

/// As long as it lives, an interface receives for packet sockets alone.
pub struct Seal {
    /// Detaches the program when dropped.
    #[allow(dead_code, reason = "holds the attached program")]
    program: Ebpf,
    /// Whether no other process has sealed the interface: what filters it has go with this one.
    sole: AtomicBool,
    /// The interface, if it has a filter rather than a link.
    filtered: Option<String>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("sole", &self.sole).finish_non_exhaustive()
    }
}

impl Seal {
    /// Seals an interface, given by its name, in place of what a killed process has left.
    pub fn attach(interface: &str) -> Result<Self> {
        Self::of(interface, true, true)
    }

    /// Seals an interface beside a process that has sealed it, and may go on.
    pub fn beside(interface: &str) -> Result<Self> {
        Self::of(interface, false, true)
    }

    /// The other process has ended: what it left goes with this one.
    pub fn settle(&self) {
        self.sole.store(true, Ordering::Relaxed);
    }

    fn of(interface: &str, sole: bool, has_links: bool) -> Result<Self> {
        let mut program = loader::load(OBJECT).map_err(|error| Error::Seal {
            interface: interface.to_owned(),
            problem: error.to_string(),
        })?;
        let context = "seal an interface";
        let attached = match program.program_mut(PROGRAM) {
            Some(found) => attach(found, interface, sole, has_links),
            None => Err(ProgramError::NotLoaded),
        };
        let is_filter = attached.map_err(|source| Error::Program { context, source })?;
        let sole = AtomicBool::new(sole);
        Ok(Self { program, sole, filtered: is_filter.then(|| interface.to_owned()) })
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        if let Some(interface) =
            self.filtered.as_ref().filter(|_| self.sole.load(Ordering::Relaxed))
        {
            // With the interface they have gone.
            let _ = qdisc_detach_program(interface, TcAttachType::Ingress, PROGRAM);
        }
    }
}

/// Attaches the program, and says whether it is a filter.
fn attach(
    program: &mut aya::programs::Program,
    interface: &str,
    sole: bool,
    has_links: bool,
) -> Result<bool, ProgramError> {
    let program: &mut SchedClassifier = program.try_into()?;
    let ingress = TcAttachType::Ingress;
    program.load()?;
    let link = TcAttachOptions::TcxOrder(LinkOrder::default());
    if has_links && program.attach_with_options(interface, ingress, link).is_ok() {
        return Ok(false);
    }
    // Traffic control needs a place to hang the filter, and may have one with an old filter; both
    // calls fail when there is nothing to do.
    let _ = qdisc_add_clsact(interface);
    if sole {
        let _ = qdisc_detach_program(interface, ingress, PROGRAM);
    }
    // The kernel puts it before those that are there.
    let filter = TcAttachOptions::Netlink(NlOptions::default());
    program.attach_with_options(interface, ingress, filter).map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// In a network namespace of its own, as root, where that is possible.
    const INSIDE: &str = "SLUICE_TEST_INSIDE";

    fn filters() -> usize {
        let shown = Command::new("tc").args(["filter", "show", "dev", "lo", "ingress"]).output();
        let shown = String::from_utf8(shown.expect("tc runs").stdout).expect("text");
        shown.lines().filter(|line| line.contains(PROGRAM)).count()
    }

    /// Before Linux 6.6.
    fn filter(sole: bool) -> Seal {
        Seal::of("lo", sole, false).expect("a filter")
    }

    #[test]
    fn a_filter_survives_a_process_that_does_not_take_over() {
        let name = "seal::tests::a_filter_survives_a_process_that_does_not_take_over";
        if std::env::var_os(INSIDE).is_none() {
            let me = std::env::current_exe().expect("this program");
            let mut command = Command::new("unshare");
            command.arg("-n").arg(me).args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
            let is_root = Command::new("id").arg("-u").output().is_ok_and(|it| it.stdout == b"0\n");
            assert!(!is_root || command.status().expect("unshare runs").success());
            return;
        }
        let old = filter(true);
        assert_eq!(filters(), 1);
        // It fails, and is dropped; or is killed, which leaves its filter.
        drop(filter(false));
        assert_eq!(filters(), 1, "the running one's is left");
        std::mem::forget(filter(false));
        assert_eq!(filters(), 2);
        // The next one takes over, and the former process ends without undoing anything.
        let new = filter(false);
        std::mem::forget(old);
        assert_eq!(filters(), 3);
        new.settle();
        drop(new);
        assert_eq!(filters(), 0, "a director that is stopped leaves none");
        // What a killed one has left goes with the next start.
        std::mem::forget(filter(true));
        let started = filter(true);
        assert_eq!(filters(), 1);
        drop(started);
        assert_eq!(filters(), 0);
    }
}
