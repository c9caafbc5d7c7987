//! The desired state as IPVS would have it: its services, whoever owns them, without figures.
//!
//! What IPVS has no key for is not seen: services of a range of ports, of any protocol, and of
//! networks other than the default one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use sluice_ipvs::{
    Destination, Family, Method, Protocol, Service, ServiceKey, ServiceSpec, Settings, Stats,
    Tunnel, flags,
};
use sluice_state::{Key, Kind, Object, Override, RealState, State, real_key};

use crate::refused::Refused;
use crate::{matches, tunnel, whole, write};

/// The service with this key, as an object of the state.
pub fn find<'s>(state: &'s State, key: &ServiceKey) -> Option<(&'s str, &'s Arc<Object>)> {
    let ServiceKey::Address { protocol, address, port } = *key else { return None };
    let ports = if port == 0 { String::new() } else { port.to_string() };
    let name = state.claimant(crate::name::protocol_name(protocol), address, &ports)?;
    let object = state.object(&Key::new(Kind::Service, name))?;
    Some((name, object))
}

/// All services but those by match, those of the file first; those by firewall marks last.
pub fn services(state: &State) -> Vec<Service> {
    let objects = state.in_order().into_iter().filter(|(key, _)| key.kind == Kind::Service);
    let services = objects.filter_map(|(key, object)| seen(state, &key.name, object));
    services.chain(whole::marks(state)).collect()
}

/// One service.
///
/// # Errors
///
/// `ESRCH` when there is none.
pub fn service(state: &State, key: &ServiceKey) -> Result<Service, Refused> {
    let found = match key {
        ServiceKey::Mark { .. } => whole::marks(state).into_iter().find(|it| it.spec.key == *key),
        ServiceKey::Match(_) => matches::matches(state).into_iter().find(|it| it.spec.key == *key),
        _ => find(state, key).and_then(|(name, object)| seen(state, name, object)),
    };
    found.ok_or_else(|| Refused::no_service(key))
}

fn seen(state: &State, name: &str, object: &Object) -> Option<Service> {
    let value = &*object.value;
    let destinations = reals(value).filter_map(|real| {
        let at = real_key(value, real)?;
        Some(destination(value, real, at, state.over(name, at)))
    });
    Some(Service {
        spec: spec(value)?,
        owner: object.owner.source.name().to_owned(),
        name: name.to_owned(),
        stats: Stats::default(),
        destinations: destinations.collect(),
    })
}

/// The key of a service.
pub(crate) fn key(service: &Value) -> Option<ServiceKey> {
    if service.get("network").is_some() {
        return None;
    }
    let protocol = match text(service, "protocol")? {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    let address = text(service, "vip")?.parse().ok()?;
    let port = match service.get("port") {
        None => 0,
        Some(Value::Number(port)) => port.as_u64()?.try_into().ok()?,
        Some(_) => return None,
    };
    Some(ServiceKey::Address { protocol, address, port })
}

/// What a service is.
fn spec(service: &Value) -> Option<ServiceSpec> {
    Some(ServiceSpec { settings: settings(service), ..balancing(key(service)?, service) })
}

/// What services by address and by mark have in common.
pub(crate) fn balancing(key: ServiceKey, service: &Value) -> ServiceSpec {
    let scheduler = text(service, "scheduler").unwrap_or("rr");
    let label = |name: &str| write::label(service, name);
    let kept = label(write::FLAGS).and_then(|text| text.strip_prefix("0x"));
    let kept = kept.and_then(|text| u32::from_str_radix(text, 16).ok());
    let mut bits = flags::HASHED | kept.unwrap_or(0);
    if service.get("one_packet") == Some(&Value::Bool(true)) {
        bits |= flags::ONE_PACKET;
    }
    if text(service, "hash") == Some("client_port") {
        bits |= flags::SCHEDULER_2;
    }
    let held_s = number(service, "persistence_s");
    if held_s > 0 {
        bits |= flags::PERSISTENT;
    }
    let said_s = label(write::TIMEOUT).and_then(|text| text.parse().ok());
    let prefix = service.get("persistence_prefix").map(|_| number(service, "persistence_prefix"));
    let netmask = match key.family() {
        Family::Ipv4 => u32::MAX.checked_shl(32 - prefix.unwrap_or(32).min(32)).unwrap_or(0),
        Family::Ipv6 => prefix.unwrap_or(128),
    };
    ServiceSpec {
        key,
        scheduler: scheduler.to_owned(),
        flags: bits,
        timeout_s: if held_s > 0 { said_s.unwrap_or(held_s) } else { 0 },
        netmask,
        persistence_engine: label(write::ENGINE).map(str::to_owned),
        settings: None,
    }
}

/// What of a service only DPVS's words say; none where all of it is as always.
fn settings(service: &Value) -> Option<Settings> {
    let settings = Settings {
        client_address: text(service, "client_address").map(str::to_owned),
        connection_timeout_s: Some(number(service, "idle_timeout_s")).filter(|it| *it > 0),
        expire_quiescent: text(service, "on_removed") == Some("reset"),
    };
    (settings != Settings::default()).then_some(settings)
}

/// A real server, with what an operator says of it on top.
pub(crate) fn destination(
    service: &Value,
    real: &Value,
    at: SocketAddr,
    over: Option<Override>,
) -> Destination {
    let over = over.unwrap_or_default();
    let configured = real.get("weight").map_or(1, |_| number(real, "weight"));
    let weight = match over.state {
        Some(RealState::Drain | RealState::Down) => 0,
        _ => over.weight.map_or(configured, u32::from),
    };
    let down = real.get("down") == Some(&Value::Bool(true)) && over.state != Some(RealState::Up);
    let mode = text(real, "mode").or_else(|| text(service, "mode"));
    let tunnel = mode.and_then(|mode| tunnel::of_real(mode, service, real));
    Destination {
        address: at.ip(),
        port: at.port(),
        method: match mode {
            Some("nat") => Method::Masq,
            Some("dr") => Method::Route,
            _ if tunnel.is_some() => Method::Tunnel,
            _ => Method::FullNat,
        },
        tunnel: tunnel.unwrap_or(Tunnel::IPIP),
        weight: if down { 0 } else { weight },
        upper: number(real, "upper_sessions"),
        lower: number(real, "lower_sessions"),
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    }
}

/// A real server of a service, by its address and port.
pub(crate) fn real(service: &Value, (address, port): (IpAddr, u16)) -> Option<&Value> {
    let wanted = SocketAddr::new(address, port);
    reals(service).find(|real| real_key(service, real) == Some(wanted))
}

pub(crate) fn reals(service: &Value) -> impl Iterator<Item = &Value> {
    service.get("real").and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn text<'v>(table: &'v Value, key: &str) -> Option<&'v str> {
    table.get(key)?.as_str()
}

pub(crate) fn number(table: &Value, key: &str) -> u32 {
    table.get(key).and_then(Value::as_u64).and_then(|it| it.try_into().ok()).unwrap_or(0)
}
