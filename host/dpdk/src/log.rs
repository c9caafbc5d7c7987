//! DPDK's log lines as events of our own log, target `dpdk`.

use std::ffi::c_char;

use sluice_dpdk_sys as sys;
use tracing::{debug, error, info, trace, warn};

/// Sends DPDK's log to `tracing` from now on.
pub(crate) fn redirect() {
    // SAFETY: `receive` has the declared signature and is valid for the life of the process.
    let status = unsafe { sys::sluice_log_to(receive) };
    if status < 0 {
        warn!(status, "DPDK's log goes to the standard error");
    }
}

/// Called by DPDK with one or more lines.
unsafe extern "C" fn receive(severity: u32, text: *const c_char, length: usize) {
    // SAFETY: DPDK passes a buffer of that length, valid for this call.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    for line in String::from_utf8_lossy(bytes).lines().map(str::trim).filter(|l| !l.is_empty()) {
        match severity {
            1..=4 => error!(target: "dpdk", "{line}"),
            5 => warn!(target: "dpdk", "{line}"),
            0 | 6 => info!(target: "dpdk", "{line}"),
            7 => debug!(target: "dpdk", "{line}"),
            _ => trace!(target: "dpdk", "{line}"),
        }
    }
}
