//! Which sessions are asked for: the parameters of `GET /v1/sessions`, and the options of
//! `sluice sessions`, which are the same.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::model::{EventKind, Network, Protocol, Session, SessionState};

/// Which sessions to list. What is `None` does not restrict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionQuery {
    /// Of the virtual service with this name.
    pub service: Option<String>,
    /// In the network with this name; [`Network::DEFAULT`] for the default one.
    pub network: Option<String>,
    /// From this client.
    pub client: Option<Endpoint>,
    /// To this real server.
    pub real: Option<Endpoint>,
    /// In this state.
    pub state: Option<SessionState>,
    /// Of this protocol.
    pub protocol: Option<Protocol>,
    /// At most this many, 1 to [`Self::MAX_LIMIT`].
    pub limit: u32,
    /// From here on. `None`: from the first.
    pub cursor: Option<Cursor>,
}

/// A place in the list of all sessions. It stays the same place while sessions come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The worker.
    pub worker: u16,
    /// Its slot; above 32 bits the number of the network whose table it is in.
    pub slot: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.worker, self.slot)
    }
}

impl FromStr for Cursor {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let parts = text.split_once('.');
        let parsed = parts.and_then(|(worker, slot)| {
            Some(Self { worker: worker.parse().ok()?, slot: slot.parse().ok()? })
        });
        parsed.ok_or_else(|| WrongValue::new(text, "the `next` of the page before"))
    }
}

/// Reads a limit of 1 to `most`.
///
/// # Errors
/// When it is not a number in this range.
pub fn parse_limit(text: &str, most: u32) -> Result<u32, WrongValue> {
    match text.parse() {
        Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(WrongValue::new(text, format!("a number from 1 to {most}"))),
    }
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            service: None,
            network: None,
            client: None,
            real: None,
            state: None,
            protocol: None,
            limit: Self::DEFAULT_LIMIT,
            cursor: None,
        }
    }
}

impl SessionQuery {
    /// The limit when none is given.
    pub const DEFAULT_LIMIT: u32 = 100;
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 100_000;

    /// Whether a session is one of those that are asked for; the limit aside.
    pub fn matches(&self, session: &Session) -> bool {
        self.service.as_ref().is_none_or(|service| *service == session.service)
            && self.network.as_ref().is_none_or(|network| Network::is(network, &session.network))
            && self.client.is_none_or(|client| client.is_at(session.client))
            && self.real.is_none_or(|real| real.is_at(session.real))
            && self.state.is_none_or(|state| state == session.state)
            && self.protocol.is_none_or(|protocol| protocol == session.protocol)
    }

    /// Whether it admits every session; limit and cursor aside.
    pub fn is_all(&self) -> bool {
        let Self { service, network, client, real, state, protocol, limit: _, cursor: _ } = self;
        service.is_none()
            && network.is_none()
            && client.is_none()
            && real.is_none()
            && state.is_none()
            && protocol.is_none()
    }

    /// Reads a limit.
    ///
    /// # Errors
    /// When it is not a number from 1 to [`Self::MAX_LIMIT`].
    pub fn parse_limit(text: &str) -> Result<u32, WrongValue> {
        parse_limit(text, Self::MAX_LIMIT)
    }

    /// The parameters that are not at their default, in a fixed order.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let limit = (self.limit != Self::DEFAULT_LIMIT).then(|| self.limit.to_string());
        let all = [
            ("service", self.service.clone()),
            ("network", self.network.clone()),
            ("client", self.client.map(|client| client.to_string())),
            ("real", self.real.map(|real| real.to_string())),
            ("state", self.state.map(|state| state.name().to_owned())),
            ("protocol", self.protocol.map(|protocol| protocol.name().to_owned())),
            ("limit", limit),
            ("cursor", self.cursor.map(|cursor| cursor.to_string())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// An address, with or without a port: `198.51.100.48`, `198.51.100.48:40000`, `[2001:db8::1]:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; `None` for any.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether `at` is this address, and this port if one is named.
    pub fn is_at(self, at: SocketAddr) -> bool {
        self.address == at.ip() && self.port.is_none_or(|port| port == at.port())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

impl FromStr for Endpoint {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        if let Ok(address) = text.parse() {
            return Ok(Self { address, port: None });
        }
        let at: SocketAddr = text.parse().map_err(|_| {
            WrongValue::new(text, "an address, or an address and a port: 192.0.2.11, 192.0.2.11:80")
        })?;
        Ok(Self { address: at.ip(), port: Some(at.port()) })
    }
}

impl FromStr for SessionState {
    type Err = WrongValue;

    /// Capitals or not, `-` or `_`.
    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let word = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(&word));
        found.ok_or_else(|| WrongValue::one_of(text, &Self::ALL.map(Self::name)))
    }
}

impl FromStr for EventKind {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| WrongValue::one_of(text, &Self::ALL.map(Self::name)))
    }
}

impl FromStr for Protocol {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let found = Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| WrongValue::one_of(text, &Self::ALL.map(Self::name)))
    }
}

/// A value that cannot be used, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be {expected}")]
pub struct WrongValue {
    /// What was given.
    pub found: String,
    /// What would be valid.
    pub expected: String,
}

impl WrongValue {
    /// `found` where `expected` would be right.
    pub(crate) fn new(found: &str, expected: impl Into<String>) -> Self {
        Self { found: found.to_owned(), expected: expected.into() }
    }

    /// `found` where one of a few words would be right.
    pub(crate) fn one_of(found: &str, words: &[&str]) -> Self {
        Self::new(found, format!("one of {}", words.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_it_is_written() {
        for text in ["198.51.100.48", "198.51.100.48:40000", "2001:db8::1", "[2001:db8::1]:80"] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), text);
        }
        for text in ["", "198.51.100", "web", "198.51.100.48:", "198.51.100.48:70000"] {
            assert_eq!(text.parse::<Endpoint>().expect_err(text).found, text);
        }
    }

    #[test]
    fn an_endpoint_without_a_port_is_at_every_port() {
        let at = "192.0.2.11:80".parse().expect("an endpoint");
        let is_at = |text: &str| text.parse::<Endpoint>().expect("an endpoint").is_at(at);
        assert!(is_at("192.0.2.11") && is_at("192.0.2.11:80"));
        assert!(!is_at("192.0.2.11:81") && !is_at("192.0.2.12") && !is_at("192.0.2.12:80"));
    }

    #[test]
    fn words_are_taken_in_any_case() {
        assert_eq!("syn-recv".parse(), Ok(SessionState::SynRecv));
        assert_eq!("TIME_WAIT".parse(), Ok(SessionState::TimeWait));
        assert_eq!("TCP".parse(), Ok(Protocol::Tcp));
        let wrong = "open".parse::<SessionState>().expect_err("no such state");
        assert!(wrong.expected.starts_with("one of SYN_RECV, ESTABLISHED, "));
        assert!("gre".parse::<Protocol>().is_err());
    }

    #[test]
    fn limits_have_limits() {
        for text in ["0", "100001", "-1", "1e3", "ten", ""] {
            assert!(SessionQuery::parse_limit(text).is_err(), "{text}");
        }
        assert_eq!(SessionQuery::parse_limit("100000"), Ok(100_000));
    }
}
