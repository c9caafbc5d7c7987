//! IPVS's services and destinations as values of the configuration.
//!
//! What the configuration has no key for is kept in labels, so that it is there when IPVS asks, in
//! every history and after every restart, and for people to see.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};
use sluice_ipvs::{
    Destination, Errno, Family, Method, Protocol, ServiceKey, ServiceSpec, Settings, flags,
};

use crate::name::{protocol_name, service_name, shown};
use crate::refused::Refused;
use crate::tunnel;

/// Flags that no key says, in hexadecimal.
pub(crate) const FLAGS: &str = "ipvs.flags";
/// The persistence engine.
pub(crate) const ENGINE: &str = "ipvs.pe";
/// A persistence in seconds that is longer than ours may be.
pub(crate) const TIMEOUT: &str = "ipvs.timeout_s";
/// Local addresses that were named for the service.
pub(crate) const LOCAL: &str = "ipvs.local";

/// The longest persistence in seconds.
const MOST_PERSISTENCE_S: u32 = 31 * 86_400;
/// Schedulers that hash, of which a flag says what.
const HASHING: [&str; 2] = ["sh", "mh"];
/// Engines that the kernel has; here they mean nothing.
const ENGINES: [&str; 1] = ["sip"];
/// The flags of schedulers.
const OF_SCHEDULERS: u32 = flags::SCHEDULER_1 | flags::SCHEDULER_2 | flags::SCHEDULER_3;

/// A table of the configuration.
pub(crate) type Table = Map<String, Value>;

/// A service by what clients connect to, without real servers. `before` is what it was.
pub(crate) fn service(
    spec: &ServiceSpec,
    (protocol, address, port): (Protocol, IpAddr, u16),
    before: Option<&Value>,
) -> Result<Table, Refused> {
    let mut value = Table::new();
    value.insert("name".to_owned(), service_name(&spec.key).into());
    value.insert("protocol".to_owned(), protocol_name(protocol).into());
    value.insert("vip".to_owned(), address.to_string().into());
    if port != 0 {
        value.insert("port".to_owned(), port.into());
    }
    if protocol == Protocol::Sctp {
        // What real servers without a mode would have; the default is none of SCTP's.
        value.insert("mode".to_owned(), "nat".into());
    }
    balancing(spec, &mut value, before)?;
    match &spec.settings {
        Some(settings) => set(settings, &mut value)?,
        None => {
            keep(&["client_address", "on_removed", "on_down", "idle_timeout_s"], before, &mut value)
        }
    }
    keep(&["name", "pool", "real", "deny", "allow"], before, &mut value);
    Ok(value)
}

fn keep(names: &[&str], before: Option<&Value>, value: &mut Table) {
    for name in names {
        if let Some(before) = before.and_then(|before| before.get(*name)) {
            value.insert((*name).to_owned(), before.clone());
        }
    }
}

/// What DPVS's words say.
fn set(settings: &Settings, value: &mut Table) -> Result<(), Refused> {
    if let Some(told) = &settings.client_address {
        value.insert("client_address".to_owned(), told.as_str().into());
    }
    if let Some(seconds) = settings.connection_timeout_s.filter(|seconds| *seconds > 0) {
        value.insert("idle_timeout_s".to_owned(), seconds.into());
    }
    if settings.expire_quiescent {
        value.insert("on_removed".to_owned(), "reset".into());
        value.insert("on_down".to_owned(), "reset".into());
    }
    Ok(())
}

/// How a service chooses: what services by address and by mark have in common.
pub(crate) fn balancing(
    spec: &ServiceSpec,
    value: &mut Table,
    before: Option<&Value>,
) -> Result<(), Refused> {
    let scheduler = known_scheduler(&spec.scheduler)?;
    let engine = spec.persistence_engine.as_deref().filter(|engine| !engine.is_empty());
    if let Some(engine) = engine.filter(|engine| !ENGINES.contains(engine)) {
        let detail = format!("there is no persistence engine {engine:?}; there is sip");
        return Err(Refused::new(Errno::NoEnt, detail));
    }
    value.insert("scheduler".to_owned(), scheduler.into());
    let mut rest = spec.flags & OF_SCHEDULERS;
    if rest & flags::SCHEDULER_2 != 0 && HASHING.contains(&scheduler) {
        rest &= !flags::SCHEDULER_2;
        value.insert("hash".to_owned(), "client_port".into());
    }
    if spec.flags & flags::ONE_PACKET != 0 {
        value.insert("one_packet".to_owned(), true.into());
    }
    let too_long = persistence(spec, value)?;
    let labels = [
        (FLAGS, (rest != 0).then(|| format!("{rest:#04x}"))),
        (ENGINE, engine.map(str::to_owned)),
        (TIMEOUT, too_long.map(|seconds| seconds.to_string())),
    ];
    let mut table = labels_of(before).cloned().unwrap_or_default();
    for (name, text) in labels {
        match text {
            Some(text) => drop(table.insert(name.to_owned(), text.into())),
            None => drop(table.shift_remove(name)),
        }
    }
    if !table.is_empty() {
        value.insert("labels".to_owned(), table.into());
    }
    Ok(())
}

/// The name of a scheduler that there is.
pub(crate) fn known_scheduler(name: &str) -> Result<&str, Refused> {
    let known = sluice_config::schedulers();
    if known.contains(&name) {
        return Ok(name);
    }
    let detail = format!("there is no scheduler {name:?}; there are {}", known.join(", "));
    Err(Refused::new(Errno::NoEnt, detail))
}

fn labels_of(value: Option<&Value>) -> Option<&Table> {
    value?.get("labels")?.as_object()
}

/// Gives an object a label, or takes it.
pub(crate) fn set_label(value: &mut Table, name: &str, text: Option<String>) {
    let mut labels = match value.shift_remove("labels") {
        Some(Value::Object(labels)) => labels,
        _ => Table::new(),
    };
    match text {
        Some(text) => drop(labels.insert(name.to_owned(), text.into())),
        None => drop(labels.shift_remove(name)),
    }
    if !labels.is_empty() {
        value.insert("labels".to_owned(), labels.into());
    }
}

/// A label of a service or rule.
pub(crate) fn label<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    labels_of(Some(value))?.get(name)?.as_str()
}

/// Says how long and for whom it is persistent, and gives seconds that are too many for us.
fn persistence(spec: &ServiceSpec, value: &mut Table) -> Result<Option<u32>, Refused> {
    let persists = spec.flags & flags::PERSISTENT != 0;
    let family = spec.key.family();
    if !persists && family == Family::Ipv4 {
        return Ok(None);
    }
    let prefix = prefix(family, spec.netmask)?;
    if !persists {
        return Ok(None);
    }
    let seconds = spec.timeout_s.clamp(1, MOST_PERSISTENCE_S);
    value.insert("persistence_s".to_owned(), seconds.into());
    if prefix != if family == Family::Ipv4 { 32 } else { 128 } {
        value.insert("persistence_prefix".to_owned(), prefix.into());
    }
    Ok((spec.timeout_s > seconds).then_some(spec.timeout_s))
}

/// The leading bits of a client's address that count.
fn prefix(family: Family, mask: u32) -> Result<u32, Refused> {
    match family {
        Family::Ipv4 if mask.count_ones() == mask.leading_ones() && mask != 0 => {
            Ok(mask.leading_ones())
        }
        Family::Ipv4 => {
            let detail = format!(
                "the mask {} cannot be used: its leading bits must be set, at least one of them, \
                 and no other",
                std::net::Ipv4Addr::from(mask)
            );
            Err(Refused::invalid(detail))
        }
        Family::Ipv6 if (1..=128).contains(&mask) => Ok(mask),
        Family::Ipv6 => {
            let detail = format!("a prefix of {mask} bits cannot be used: use 1 to 128");
            Err(Refused::invalid(detail))
        }
    }
}

/// The weight of a destination.
pub(crate) fn weight(it: &Destination) -> Result<u16, Refused> {
    let detail = || format!("the weight {} is above {}", it.weight, u16::MAX);
    u16::try_from(it.weight).map_err(|_| Refused::invalid(detail()))
}

/// A real server: whether one may be so, and its mode.
pub(crate) fn mode(of: &ServiceKey, it: &Destination) -> Result<&'static str, Refused> {
    if it.lower > it.upper {
        let detail = format!("the lower threshold, {}, is above the upper, {}", it.lower, it.upper);
        return Err(Refused::new(Errno::Range, detail));
    }
    weight(it)?;
    let across = Family::of(it.address) != of.family();
    if across && matches!(it.method, Method::Masq | Method::Route) {
        let detail = format!(
            "{} and {} are of different families: use full NAT (-b) or a tunnel (-i)",
            it.address,
            shown(of)
        );
        return Err(Refused::invalid(detail));
    }
    let has_no = |what: &str| {
        let detail = format!("{}: the director has no {what}", endpoint(it.address, it.port));
        Err(Refused::invalid(detail))
    };
    match it.method {
        Method::Masq => Ok("nat"),
        Method::Route => Ok("dr"),
        Method::FullNat => Ok("fnat"),
        Method::Tunnel => tunnel::mode(it),
        Method::Local => has_no("forwarding to itself"),
        Method::Bypass => has_no("bypass"),
        Method::Snat => has_no("source NAT (-J) but in services by match (-H)"),
    }
}

/// A real server of a service by address.
pub(crate) fn real(of: &ServiceKey, it: &Destination) -> Result<Value, Refused> {
    let mode = mode(of, it)?;
    let mut value = json!({ "address": it.address.to_string() });
    let mut put = |key: &str, number: u32| value[key] = number.into();
    if it.port != 0 {
        put("port", it.port.into());
    }
    put("weight", it.weight);
    if it.upper != 0 {
        put("upper_sessions", it.upper);
    }
    if it.lower != 0 {
        put("lower_sessions", it.lower);
    }
    value["mode"] = mode.into();
    if it.method == Method::Tunnel {
        tunnel::write(it.tunnel, &mut value);
    }
    Ok(value)
}

pub(crate) fn endpoint(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}
