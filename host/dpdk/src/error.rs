//! What can go wrong with the environment layer or a port, each with what would put it right.

use std::ffi::{CStr, NulError};

use sluice_dpdk_sys as sys;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment layer was started before; a process has one.
    #[error("DPDK's environment layer is already running in this process")]
    AlreadyStarted,
    /// Huge pages are required and there are too few.
    #[error(
        "huge pages are required: {needed_mb} MB wanted, {free_mb} MB free. Reserve them with \
         `sysctl vm.nr_hugepages={suggestion}`, or set huge_pages to \"auto\" or \"off\""
    )]
    HugePages {
        /// MB that are needed.
        needed_mb: u64,
        /// MB in free huge pages.
        free_mb: u64,
        /// A value for vm.nr_hugepages that would do.
        suggestion: u64,
    },
    /// Huge pages are free, and the kernel gives this process too few of them.
    #[error(
        "the kernel gave too few huge pages, though {needed_mb} MB were free: others took them, or \
         a limit forbids it (the hugetlb cgroup)"
    )]
    HugePagesRefused {
        /// MB that are needed.
        needed_mb: u64,
    },
    /// The process may not do what a port needs.
    #[error("{port}: {device} needs {missing}. {fix}")]
    Privilege {
        /// The port's name.
        port: String,
        /// The device, as configured.
        device: String,
        /// What is missing.
        missing: String,
        /// What would put it right.
        fix: &'static str,
    },
    /// A kernel interface that a port is to sit on does not exist.
    #[error("{port}: there is no network interface {interface:?} in this network namespace")]
    NoInterface {
        /// The port's name.
        port: String,
        /// The interface.
        interface: String,
    },
    /// Another XDP program sits on the interface.
    #[error("{port}: {source}")]
    Steer {
        /// The port's name.
        port: String,
        /// What the steering program met.
        source: Box<sluice_steer::Error>,
    },
    /// A part of the port's configuration cannot be.
    #[error("{port}: {problem}")]
    Config {
        /// The port's name.
        port: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// DPDK refused.
    #[error("{context}: {text} (DPDK error {code})")]
    Dpdk {
        /// What was being done, and to what.
        context: String,
        /// DPDK's text for the code.
        text: String,
        /// A positive errno or rte_errno value.
        code: i32,
    },
    /// The operating system refused.
    #[error("{context}: {source}")]
    System {
        /// What was being done, and to what.
        context: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A name with a NUL byte.
    #[error("a name contains a NUL byte: {0}")]
    Nul(#[from] NulError),
}

impl Error {
    /// The last error of the operating system, with what was being done.
    pub(crate) fn last_os(context: impl Into<String>) -> Self {
        Self::System { context: context.into(), source: std::io::Error::last_os_error() }
    }

    /// A DPDK status that is known to be negative.
    pub(crate) fn dpdk(context: impl Into<String>, status: i32) -> Self {
        let code = status.checked_neg().unwrap_or(i32::MAX);
        // SAFETY: the function returns a static or thread-local string, never null, and it is
        // copied before this thread can call it again.
        let text = unsafe { CStr::from_ptr(sys::sluice_error_text(code)) };
        Self::Dpdk { context: context.into(), text: text.to_string_lossy().into_owned(), code }
    }
}

/// Turns a DPDK status into a result: negative is an error, the rest is the value.
pub(crate) fn check(status: i32, context: impl FnOnce() -> String) -> Result<i32, Error> {
    if status < 0 { Err(Error::dpdk(context(), status)) } else { Ok(status) }
}
