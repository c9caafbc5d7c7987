//! What can go wrong between the director and the kernel, in one type.

use std::io;

/// An error of the kernel mirror.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A netlink socket could not be made or used.
    #[error("netlink: cannot {action}: {source}")]
    Socket {
        /// What was being done.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused a request; `source` carries its errno.
    #[error("the kernel refused to {action}: {source}")]
    Refused {
        /// What was asked for.
        action: String,
        /// The kernel's errno.
        source: io::Error,
    },
    /// The kernel did not answer a request in time.
    #[error("the kernel did not answer within {timeout_ms} ms when asked to {action}")]
    NoAnswer {
        /// What was asked for.
        action: String,
        /// How long was waited, in milliseconds.
        timeout_ms: u32,
    },
    /// The kernel's tables changed so fast that no consistent copy could be read.
    #[error("the kernel's {what} kept changing: {attempts} dumps were all interrupted")]
    Unsettled {
        /// Which table.
        what: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// A value that cannot be put into a request.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// The kernel's errno, when the kernel refused a request.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
