//! What a configuration says of real servers' health.

use std::net::IpAddr;

/// What becomes of new sessions when every real server of a service is down, and no fallback is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AllDown {
    /// They are refused.
    #[default]
    Drop,
    /// They go to those that were found down last, as if they were up.
    Keep,
    /// They go to all, as if all were up.
    FailOpen,
}

impl AllDown {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Keep => "keep",
            Self::FailOpen => "fail_open",
        }
    }
}

/// Where health checks find a real server. The packet path makes nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckAt {
    /// Another address than the real server's own.
    pub address: Option<IpAddr>,
    /// Another port than the check's own or the real server's.
    pub port: Option<u16>,
}
