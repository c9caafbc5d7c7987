//! What the desired state is made of.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What kind of thing an object is. In the order in which a file has them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A section of the file that is none of the others, by its name; only the file has them, but
    /// for [`IPVS`].
    Section,
    /// A health check that services use.
    Check,
    /// A local pool.
    Pool,
    /// A virtual service with its real servers.
    Service,
    /// A rule of source NAT.
    Snat,
}

impl Kind {
    /// Those that the API may change.
    pub const NAMED: [Self; 4] = [Self::Check, Self::Pool, Self::Service, Self::Snat];

    /// As messages and documents call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Section => "section",
            Self::Check => "check",
            Self::Pool => "pool",
            Self::Service => "service",
            Self::Snat => "snat",
        }
    }
}

/// The section that programs which know IPVS may make and change.
pub const IPVS: &str = "ipvs";

/// Which object.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its name, unique among its kind.
    pub name: String,
}

impl Key {
    /// The object of this kind and name.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Section => write!(out, "[{}]", self.name),
            kind => write!(out, "{} {:?}", kind.name(), self.name),
        }
    }
}

/// By which way a change comes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The configuration file.
    File,
    /// The API, and the `sluice` command that uses it.
    Api,
    /// The `ipvsadm` command and programs that speak its language.
    Ipvsadm,
}

impl Source {
    /// As messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Ipvsadm => "ipvsadm",
        }
    }

    /// What to do about an object that this source owns.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::File => "change it in the configuration file and reload (`sluice config reload`)",
            Self::Api => "change it by `sluice service`, `sluice config apply` or the API",
            Self::Ipvsadm => "change it by `ipvsadm`",
        }
    }
}

/// Who changes something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// The source. State that was kept before it was called so says `door`.
    #[serde(alias = "door")]
    pub source: Source,
    /// Who it is behind that source, where it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Author {
    /// Somebody behind a source that knows no names.
    pub const fn of(source: Source) -> Self {
        Self { source, name: None }
    }
}

impl fmt::Display for Author {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(out, "{}:{name}", self.source.name()),
            None => out.write_str(self.source.name()),
        }
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Object {
    /// Who put it there.
    pub owner: Author,
    /// Its place among its owner's objects of this kind.
    pub rank: u32,
    /// What it is, with the keys of the configuration file.
    pub value: Arc<Value>,
}

/// What an operator says a real server's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RealState {
    /// It gets sessions, also when the configuration says that it is down.
    Up,
    /// It gets no new sessions; those that it has go on.
    Drain,
    /// It gets no new sessions; the service's `on_down` rules those that it has.
    Down,
}

impl RealState {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Drain => "drain",
            Self::Down => "down",
        }
    }
}

/// What holds of a real server in place of what is configured, until it is taken back or its
/// owner changes the real server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Its weight, 0 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// Its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RealState>,
}

impl Override {
    /// Whether it says nothing.
    pub const fn is_empty(&self) -> bool {
        self.weight.is_none() && self.state.is_none()
    }
}

/// A change of an [`Override`]: `None` leaves a part as it is, `Some(None)` takes it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverridePatch {
    /// Of the weight.
    pub weight: Option<Option<u16>>,
    /// Of the state.
    pub state: Option<Option<RealState>>,
}

impl OverridePatch {
    /// Takes everything back.
    pub const RESET: Self = Self { weight: Some(None), state: Some(None) };

    /// What the override becomes.
    pub(crate) fn onto(self, before: Override) -> Override {
        Override {
            weight: self.weight.unwrap_or(before.weight),
            state: self.state.unwrap_or(before.state),
        }
    }
}

/// What a real server is called within its service: address and port. The port is the service's
/// where it has none of its own, and 0 where that is not a single one. `None` for a value that
/// is no real server.
pub fn real_key(service: &Value, real: &Value) -> Option<SocketAddr> {
    let address: IpAddr = real.get("address")?.as_str()?.parse().ok()?;
    let own = real.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    Some(SocketAddr::new(address, own.unwrap_or_else(|| single_port(service))))
}

fn single_port(service: &Value) -> u16 {
    let range = |text: &str| {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?);
        (first == last).then_some(first)
    };
    match service.get("port") {
        Some(Value::Number(port)) => port.as_u64().and_then(|port| port.try_into().ok()),
        Some(Value::String(text)) => range(text),
        _ => None,
    }
    .unwrap_or(0)
}

/// The real servers of a service, as its value has them.
pub(crate) fn reals_of(service: &Value) -> &[Value] {
    service.get("real").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state directory of an earlier version is read as it is.
    #[test]
    fn a_source_may_be_called_by_its_former_name() {
        let kept: Author = serde_json::from_str(r#"{"door": "api", "name": "ops"}"#).unwrap();
        assert_eq!(kept, Author { source: Source::Api, name: Some("ops".to_owned()) });
        let json = serde_json::to_value(&kept).unwrap();
        assert_eq!(json, serde_json::json!({"source": "api", "name": "ops"}));
    }
}
