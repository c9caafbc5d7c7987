//! Why a command was not done: the first line is what DPVS says, since scripts go by that; the
//! second says what was wrong here and what would be right.

use std::fmt;
use std::io;

/// Why a command was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    /// In DPVS's words.
    pub text: &'static str,
    /// In ours.
    pub detail: String,
}

impl Failure {
    /// The command line makes no sense.
    pub fn parameter(detail: impl Into<String>) -> Self {
        Self { text: "invalid parameter", detail: detail.into() }
    }

    /// There is nothing like it here.
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self { text: "not support", detail: detail.into() }
    }

    /// There is no such device.
    pub fn device(detail: impl Into<String>) -> Self {
        Self { text: "no such device", detail: detail.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n      {}", self.text, self.detail)
    }
}

impl From<sluice_linux::Error> for Failure {
    fn from(error: sluice_linux::Error) -> Self {
        use rustix::io::Errno;
        let errno = error.errno().map(Errno::from_raw_os_error);
        let text = match errno {
            Some(Errno::EXIST) => "already exist",
            Some(Errno::NOENT | Errno::SRCH | Errno::ADDRNOTAVAIL) => "not exist",
            Some(Errno::NODEV | Errno::NXIO) => "no such device",
            Some(Errno::OPNOTSUPP) => "not support",
            Some(Errno::NOMEM | Errno::NOBUFS) => "no memory",
            Some(Errno::PERM | Errno::ACCESS) => "no permission",
            _ => "invalid parameter",
        };
        Self { text, detail: error.to_string() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { text: "failed", detail: error.to_string() }
    }
}
