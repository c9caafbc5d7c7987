//! Why something is not done: the one place where errnos come from.

use std::net::{IpAddr, SocketAddr};

use sluice_ipvs::{Answer, Errno, ServiceKey};
use sluice_state::{Refusal, RefusalKind};

/// What the kernel would say, and what the director says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kernel's number.
    pub errno: Errno,
    /// What was found, and what would be right.
    pub detail: String,
}

impl Refused {
    pub(crate) fn new(errno: Errno, detail: impl Into<String>) -> Self {
        Self { errno, detail: detail.into() }
    }

    pub(crate) fn no_service(key: &ServiceKey) -> Self {
        Self::new(Errno::Srch, format!("there is no service {}", crate::name::shown(key)))
    }

    pub(crate) fn no_destination(key: &ServiceKey, (address, port): (IpAddr, u16)) -> Self {
        let at = SocketAddr::new(address, port);
        Self::new(Errno::NoEnt, format!("{at} is no destination of {}", crate::name::shown(key)))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Errno::Inval, detail)
    }
}

impl From<Refusal> for Refused {
    /// What the state refuses. That something is not there was found before, and told apart.
    fn from(refusal: Refusal) -> Self {
        let errno = match refusal.kind {
            RefusalKind::Conflict => Errno::Perm,
            RefusalKind::NotFound => Errno::NoEnt,
            RefusalKind::Invalid | RefusalKind::Stale => Errno::Inval,
            RefusalKind::Storage => Errno::Io,
        };
        Self { errno, detail: refusal.detail }
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Self::Refused { errno: refused.errno, detail: refused.detail }
    }
}
