//! What is answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Connection, Daemon, Info, LocalAddresses, Service, ServiceKey, Timeouts};

/// Why the kernel would refuse, by `errno.h`'s names and Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IpvsErrno")]
pub enum Errno {
    /// 1: the object belongs to another source.
    #[serde(rename = "EPERM")]
    Perm,
    /// 2: no such destination, scheduler or engine.
    #[serde(rename = "ENOENT")]
    NoEnt,
    /// 3: no such service, no such daemon.
    #[serde(rename = "ESRCH")]
    Srch,
    /// 5: the change could not be kept.
    #[serde(rename = "EIO")]
    Io,
    /// 12: a limit is reached.
    #[serde(rename = "ENOMEM")]
    NoMem,
    /// 17: it is there already.
    #[serde(rename = "EEXIST")]
    Exist,
    /// 22: what is asked for makes no sense, or the director has nothing like it.
    #[serde(rename = "EINVAL")]
    Inval,
    /// 34: a number is out of range.
    #[serde(rename = "ERANGE")]
    Range,
    /// 95: families that do not go together.
    #[serde(rename = "EOPNOTSUPP")]
    OpNotSupp,
}

impl Errno {
    /// Its number on Linux.
    pub const fn number(self) -> i32 {
        match self {
            Self::Perm => 1,
            Self::NoEnt => 2,
            Self::Srch => 3,
            Self::Io => 5,
            Self::NoMem => 12,
            Self::Exist => 17,
            Self::Inval => 22,
            Self::Range => 34,
            Self::OpNotSupp => 95,
        }
    }
}

/// What a request is answered with, where it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "IpvsReply")]
pub enum Reply {
    /// It was done.
    Done,
    /// Of `Info`.
    Info(Info),
    /// Of `Services` and `Matches`, and of `Service` with one.
    Services(Vec<Service>),
    /// Of `Timeouts`.
    Timeouts(Timeouts),
    /// Of `Daemons`.
    Daemons(Vec<Daemon>),
    /// Of `Connections`.
    Connections {
        /// Some of them.
        connections: Vec<Connection>,
        /// What to ask for the next with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// Of `LocalAddresses`.
    LocalAddresses(Vec<LocalAddresses>),
    /// Of `Listed`.
    Listed(Vec<(ServiceKey, Vec<String>)>),
    /// Of `Many`, in its order.
    Many(Vec<Answer>),
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "IpvsAnswer")]
pub enum Answer {
    /// It was done.
    Ok(Reply),
    /// It was not.
    Refused {
        /// What the kernel would say.
        errno: Errno,
        /// What the director says: the owner, the key, what would be right.
        detail: String,
    },
}
