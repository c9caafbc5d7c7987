//! Ordinary pages where the kernel refuses huge ones.
//!
//! `huge_pages = "auto"` takes huge pages if enough are free. Others may take them first, and a
//! limit on them (the hugetlb cgroup of a container) is not seen in how many are free. DPDK's
//! environment layer fails then, and a process can start it only once. So the program starts anew
//! in this process, and does without.

use crate::errors::Error;
use crate::handover::Successor;
use sluice_config::{Config, HugePages};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tracing::warn;

/// The environment variable that says so to the program that starts anew, and to those that follow
/// it in an upgrade.
const VARIABLE: &str = "SLUICED_ORDINARY_PAGES";

/// Which pages are to be tried: no huge ones where they were refused, and those that the process
/// has from which this one takes over.
pub(crate) fn choose(config: &mut Config, from: Option<&Successor>) {
    if config.director.huge_pages == HugePages::Auto && std::env::var_os(VARIABLE).is_some() {
        config.director.huge_pages = HugePages::Off;
    }
    if let Some(from) = from {
        from.demand(config);
    }
}

/// Starts the program anew if that helps against this failure of a start. Comes back if it does
/// not, or cannot be done.
pub(crate) fn start_anew(failure: &Error, policy: HugePages) {
    let refused = matches!(failure, Error::Dpdk(sluice_dpdk::Error::HugePagesRefused { .. }));
    if !refused || policy != HugePages::Auto {
        return;
    }
    warn!("using ordinary pages, which is slower: {failure}");
    sluice_dpdk::close_on_exec();
    let started = std::env::current_exe().map(|program| {
        let mut arguments = std::env::args_os();
        let mut command = Command::new(&program);
        command.arg0(arguments.next().unwrap_or(program.into()));
        command.args(arguments).env(VARIABLE, "1").exec()
    });
    let (Ok(error) | Err(error)) = started;
    warn!(%error, "cannot start anew");
}
