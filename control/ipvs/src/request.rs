//! What one can ask.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Daemon, Destination, List, Role, ServiceKey, ServiceSpec, Timeouts};

/// What one can ask. Each is a command of IPVS's `setsockopt` and generic netlink interfaces, but
/// for those about local addresses, lists and matches, which are DPVS's, and `Many`, which is ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "IpvsRequest")]
pub enum Request {
    /// Version and sizes.
    Info,
    /// All services with their destinations, but for those by match.
    Services,
    /// One service with its destinations.
    Service(ServiceKey),
    /// A new one. `EEXIST` when it is there, `ENOENT` for an unknown scheduler or engine.
    AddService(ServiceSpec),
    /// Another scheduler, other flags. `ESRCH` when there is none.
    EditService(ServiceSpec),
    /// `ESRCH` when there is none.
    DeleteService(ServiceKey),
    /// Deletes every service of the owner `ipvsadm`.
    Flush,
    /// Counters begin at 0 again, of one service or all.
    Zero(Option<ServiceKey>),
    /// `ESRCH` when there is no such service, `EEXIST` when the destination is there.
    AddDestination(ServiceKey, Destination),
    /// `ESRCH` when there is no such service, `ENOENT` no such destination.
    EditDestination(ServiceKey, Destination),
    /// The same. The connections that it has go on.
    DeleteDestination(ServiceKey, (IpAddr, u16)),
    /// What they are.
    Timeouts,
    /// Sets them.
    SetTimeouts(Timeouts),
    /// Those that run.
    Daemons,
    /// Starts one. `EEXIST` when it runs.
    StartDaemon(Daemon),
    /// Stops one. `ESRCH` when it does not run.
    StopDaemon(Role),
    /// Connections, by a cursor; the answer has the next one while there are more.
    Connections {
        /// What the answer before gave.
        #[serde(default)]
        cursor: Option<String>,
    },
    /// A local address for a service's full NAT. `EEXIST` when it has it.
    AddLocal(ServiceKey, IpAddr),
    /// `ENOENT` when it does not have it.
    DeleteLocal(ServiceKey, IpAddr),
    /// Of one service, or of all.
    LocalAddresses(Option<ServiceKey>),
    /// A client address or prefix (`192.0.2.0/24`) for a list of a service.
    AddListed(ServiceKey, List, String),
    /// Takes it from the list.
    DeleteListed(ServiceKey, List, String),
    /// A list of one service, or of all.
    Listed(List, Option<ServiceKey>),
    /// All services by match, in the order in which they are tried. Apart from the others, since
    /// programs that know the kernel's IPVS alone have no such key.
    Matches,
    /// Changes one after the other, as if each were asked for by itself, with an answer for each:
    /// what a restore asks for. They are put in force together. Questions are refused here.
    Many(Vec<Request>),
}

impl Request {
    /// Whether it changes something, and is not only a question.
    pub fn changes(&self) -> bool {
        if let Self::Many(all) = self {
            return all.iter().any(Self::changes);
        }
        !matches!(
            self,
            Self::Info
                | Self::Services
                | Self::Service(_)
                | Self::Timeouts
                | Self::Daemons
                | Self::Connections { .. }
                | Self::LocalAddresses(_)
                | Self::Listed(..)
                | Self::Matches
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Request;
    use crate::{Family, ServiceKey};

    #[test]
    fn a_request_is_the_json_that_the_docs_show() {
        let key = ServiceKey::Mark { mark: 7, family: Family::Ipv6 };
        let text = serde_json::to_string(&Request::DeleteService(key)).unwrap();
        assert_eq!(text, r#"{"delete_service":{"mark":{"mark":7,"family":"ipv6"}}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), Request::DeleteService(key));
        assert_eq!(serde_json::to_string(&Request::Info).unwrap(), r#""info""#);
        assert!(serde_json::from_str::<Request>(r#"{"delete_everything":1}"#).is_err());
    }
}
