//! Virtual services, their real servers, rules of source NAT, and what was counted of each.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_director::counters::RealCounters;
use sluice_director::spec;

/// What a service's real servers have: their forwarding mode if it is the same of all, `mixed` if
/// not, `default` if there are none.
pub fn mode_of(default: spec::Mode, reals: impl IntoIterator<Item = spec::Mode>) -> &'static str {
    let mut reals = reals.into_iter();
    let Some(first) = reals.next() else { return default.name() };
    if reals.all(|mode| mode == first) { first.name() } else { "mixed" }
}

/// A number for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ways {
    /// Client to real server.
    pub inbound: u64,
    /// Real server to client.
    pub outbound: u64,
}

impl From<[u64; 2]> for Ways {
    fn from([inbound, outbound]: [u64; 2]) -> Self {
        Self { inbound, outbound }
    }
}

/// What was counted of a virtual service or a real server, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balanced {
    /// Sessions opened.
    pub sessions_total: u64,
    /// Sessions open now.
    pub sessions_active: u64,
    /// TCP sessions now whose handshake is complete and that neither side has closed.
    #[serde(default)]
    pub sessions_established: u64,
    /// Sessions that one side has closed, or that a reset has ended: IPVS's inactive ones.
    #[serde(default)]
    pub sessions_closing: u64,
    /// Clients with persistence to it now.
    #[serde(default)]
    pub clients_bound: u64,
    /// Packets forwarded.
    pub packets: Ways,
    /// Bytes of IP packets forwarded.
    pub bytes: Ways,
}

impl From<RealCounters> for Balanced {
    fn from(counters: RealCounters) -> Self {
        Self {
            sessions_total: counters.sessions,
            sessions_active: counters.active,
            sessions_established: counters.established.into(),
            sessions_closing: counters.closing.into(),
            clients_bound: counters.bound.into(),
            packets: counters.packets.into(),
            bytes: counters.bytes.into(),
        }
    }
}

/// All virtual services and rules of source NAT: `GET /v1/services`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Services {
    /// In the configuration's order.
    pub services: Vec<Service>,
    /// Rules of source NAT, in the order they are tried.
    #[serde(default)]
    pub snat: Vec<SnatRule>,
}

impl Services {
    /// The names of services and rules, each kind in its order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.snat.iter().map(|rule| rule.name.as_str());
        self.services.iter().map(|service| service.name.as_str()).chain(rules)
    }
}

/// A virtual service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Name of the network that it is in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// IP protocol.
    pub protocol: Protocol,
    /// Virtual address.
    pub vip: IpAddr,
    /// Virtual ports: `80`, `8000-8099`, or `*` for all.
    pub ports: String,
    /// Forwarding mode of the real servers, by the configuration's word; `mixed` if they differ.
    pub mode: String,
    /// Scheduler, by the configuration's word.
    pub scheduler: String,
    /// Local pool; absent where the modes need none.
    pub pool: Option<String>,
    /// Persistence; absent without.
    pub persistence: Option<Persistence>,
    /// Whether each datagram is scheduled by itself.
    pub one_packet: bool,
    /// How real servers learn the client's address, by the configuration's word.
    pub client_address: String,
    /// What was counted of all its real servers.
    #[serde(flatten)]
    pub counted: Balanced,
    /// Its real servers, in the configuration's order; those that left the configuration and
    /// still have sessions come last.
    pub reals: Vec<Real>,
}

/// Persistence: a client's new sessions go where its earlier ones went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Persistence {
    /// Seconds from the client's last new session.
    pub timeout_s: u32,
    /// Leading bits of the client's address that count.
    pub prefix: u8,
}

impl From<spec::Persistence> for Persistence {
    fn from(persistence: spec::Persistence) -> Self {
        Self { timeout_s: persistence.timeout_s, prefix: persistence.prefix }
    }
}

/// A real server of a virtual service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Real {
    /// Address.
    pub address: IpAddr,
    /// Port; 0 for the one that the client sent to.
    pub port: u16,
    /// Forwarding mode, by the configuration's word.
    pub mode: String,
    /// Its share of new sessions.
    pub weight: u16,
    /// Whether it takes new sessions.
    pub state: RealState,
    /// Workers that give it none because it is full: it reached their part of its upper limit, and
    /// has not come below their part of the lower one since.
    pub full_at: Vec<u16>,
    /// Sessions from which on it is full; 0 for no limit.
    pub upper_sessions: u32,
    /// Sessions below which it is not full any more.
    pub lower_sessions: u32,
    /// What was counted of it.
    #[serde(flatten)]
    pub counted: Balanced,
}

/// Whether a real server takes new sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RealState {
    /// It does.
    Up,
    /// It keeps the sessions it has and gets no new ones: its weight is 0, or it left the
    /// configuration.
    Draining,
    /// It is known to be dead.
    Down,
    /// It is a fallback, and others are up.
    Standby,
    /// It reached its upper limit at every worker, and has not come below the lower one since.
    Full,
}

/// A source NAT rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnatRule {
    /// Its name.
    pub name: String,
    /// Name of the network that it is in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Networks that connections come from, as prefixes.
    pub sources: Vec<String>,
    /// Networks that connections go to, as prefixes; empty for everywhere.
    pub destinations: Vec<String>,
    /// Protocols; empty for TCP, UDP and ICMP echo.
    pub protocols: Vec<Protocol>,
    /// Name of the port that connections leave by; absent for any.
    pub egress: Option<String>,
    /// Local pool.
    pub pool: String,
    /// What shares a pool address and port, by the configuration's word.
    pub mapping: String,
    /// What was counted of it; inbound is from inside to outside.
    #[serde(flatten)]
    pub counted: Balanced,
}

/// An IP protocol that is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
    /// IP protocol 132.
    Sctp,
    /// ICMP or ICMPv6 echo.
    Icmp,
    /// All of them.
    Any,
}

impl From<spec::Protocol> for Protocol {
    fn from(protocol: spec::Protocol) -> Self {
        match protocol {
            spec::Protocol::Tcp => Self::Tcp,
            spec::Protocol::Udp => Self::Udp,
            spec::Protocol::Sctp => Self::Sctp,
            spec::Protocol::Icmp => Self::Icmp,
            spec::Protocol::Any => Self::Any,
        }
    }
}

impl From<Protocol> for spec::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
            Protocol::Icmp => Self::Icmp,
            Protocol::Any => Self::Any,
        }
    }
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Udp, Self::Sctp, Self::Icmp, Self::Any];

    /// The protocol with this number of the IP header; [`Self::Any`] for one without a name here.
    pub fn of(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            132 => Self::Sctp,
            // ICMP and ICMPv6.
            1 | 58 => Self::Icmp,
            _ => Self::Any,
        }
    }

    /// The name used in configuration and output, such as `tcp`.
    pub fn name(self) -> &'static str {
        spec::Protocol::from(self).name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_named_as_the_director_names_them() {
        for protocol in Protocol::ALL {
            let json = serde_json::to_value(protocol).expect("a word");
            assert_eq!(json, protocol.name());
        }
    }

    #[test]
    fn protocols_are_found_by_their_numbers() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::of(spec::Protocol::from(protocol).number()), protocol);
        }
        assert_eq!(Protocol::of(58), Protocol::Icmp);
        assert_eq!(Protocol::of(47), Protocol::Any);
    }
}
