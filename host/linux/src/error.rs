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
    #[error("the kernel refused to {action}: {source}{detail}")]
    Refused {
        /// What was asked for.
        action: String,
        /// The kernel's errno.
        source: io::Error,
        /// The kernel's own words in brackets, if it gave any.
        detail: String,
    },
    /// The kernel did not answer a request.
    #[error("the kernel gave no whole answer when asked to {action}")]
    NoAnswer {
        /// What was asked for.
        action: String,
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
