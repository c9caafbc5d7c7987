//! Values of edits: read as the file's reader would, and found by name.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value};
use sluice_config::{Config, Document, document};

use crate::object::{IPVS, Key, Kind, real_key, reals_of};
use crate::refusal::{Refusal, RefusalKind, pointer_of};

/// The weight that is configured for a real server.
pub(super) fn configured_weight(real: &Value) -> u64 {
    real.get("weight").and_then(Value::as_u64).unwrap_or(1)
}

/// A real server of a service by its address and port; without a port it must be the only one
/// with this address.
pub(super) fn find(
    service: &Value,
    name: &str,
    (address, port): (IpAddr, Option<u16>),
) -> Result<(usize, SocketAddr), Refusal> {
    let all = reals_of(service).iter().enumerate();
    let all = all.filter_map(|(at, real)| Some((at, real_key(service, real)?)));
    let fits = |real: &SocketAddr| real.ip() == address && port.is_none_or(|it| it == real.port());
    let found: Vec<_> = all.clone().filter(|(_, real)| fits(real)).collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            let shown: Vec<_> = all.map(|(_, real)| real.to_string()).take(20).collect();
            let wanted = port.map_or_else(
                || address.to_string(),
                |port| SocketAddr::new(address, port).to_string(),
            );
            let has = match shown.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", shown.join(", ")),
            };
            let detail = format!("service {name:?} has no real server {wanted}; {has}");
            Err(Refusal::new(RefusalKind::NotFound, detail))
        }
        _ => {
            let detail =
                format!("service {name:?} has several real servers at {address}: name the port");
            Err(Refusal::new(RefusalKind::Invalid, detail))
        }
    }
}

/// The value of a real server with the address and port that the request names.
pub(super) fn named_real(
    (address, port): (IpAddr, Option<u16>),
    value: &Value,
) -> Result<Value, Refusal> {
    let Value::Object(given) = value else {
        let hint = "use an object such as {\"weight\": 2}";
        return Err(Refusal::field(String::new(), "this is no object".to_owned(), hint));
    };
    without_nulls(value, "")?;
    let mut named = Map::new();
    named.insert("address".to_owned(), address.to_string().into());
    named.extend(port.filter(|port| *port != 0).map(|port| ("port".to_owned(), port.into())));
    for (key, value) in given {
        let differs = match key.as_str() {
            "address" => value.as_str().and_then(|text| text.parse().ok()) != Some(address),
            "port" => port.is_some_and(|port| value.as_u64() != Some(port.into())),
            _ => false,
        };
        if differs {
            let found = format!("{value} is not what the path names");
            return Err(Refusal::field(format!("/{key}"), found, "leave it out, or use the same"));
        }
        named.insert(key.clone(), value.clone());
    }
    Ok(Value::Object(named))
}

/// Refuses what a file cannot say: a key is there with a value, or it is not.
fn without_nulls(value: &Value, pointer: &str) -> Result<(), Refusal> {
    match value {
        Value::Null => {
            let hint = "leave the key out for what holds without it";
            Err(Refusal::field(pointer.to_owned(), "null is no value".to_owned(), hint))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| without_nulls(item, &format!("{pointer}/{at}"))),
        Value::Object(table) => table.iter().try_for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            without_nulls(value, &format!("{pointer}/{key}"))
        }),
        _ => Ok(()),
    }
}

/// Reads the value of an object as the file's reader would, and takes away what says nothing.
pub(super) fn read(key: &Key, value: &Value, pointer: &str) -> Result<Value, Refusal> {
    let Value::Object(given) = value else {
        let found = format!("a {} must be an object", key.kind.name());
        return Err(Refusal::field(pointer.to_owned(), found, "use its keys as in the file"));
    };
    without_nulls(value, pointer)?;
    if key.kind == Kind::Section {
        return read_section(key, value, pointer);
    }
    let mut table = given.clone();
    let name = table.entry("name").or_insert_with(|| key.name.clone().into());
    if name.as_str() != Some(&key.name) {
        let found = format!("{name} is not {:?}, which is what it is called here", key.name);
        return Err(Refusal::field(format!("{pointer}/name"), found, "leave it out"));
    }
    let section = key.kind.name();
    let mut document = Document::new();
    document.insert(section.to_owned(), Value::Array(vec![Value::Object(table)]));
    document::normalise(&mut document);
    Config::read_document(&document).map_err(|errors| {
        Refusal::of_errors(&errors, |found| {
            let inside = found.key.strip_prefix(&format!("{section}[0]"))?;
            Some(format!("{pointer}{}", pointer_of(inside.trim_start_matches('.'))))
        })
    })?;
    let list = document.get_mut(section).and_then(Value::as_array_mut);
    Ok(list.and_then(Vec::pop).unwrap_or_default())
}

/// The same of a section that is none of the named kinds: only that of IPVS can be changed so.
fn read_section(key: &Key, value: &Value, pointer: &str) -> Result<Value, Refusal> {
    if key.name != IPVS {
        let detail = format!("{key} is changed in the configuration file only");
        return Err(Refusal::new(RefusalKind::Conflict, detail));
    }
    let mut document = Document::new();
    document.insert(key.name.clone(), value.clone());
    document::normalise(&mut document);
    Config::read_document(&document).map_err(|errors| {
        Refusal::of_errors(&errors, |found| {
            let inside = found.key.strip_prefix(IPVS)?;
            Some(format!("{pointer}{}", pointer_of(inside.trim_start_matches('.'))))
        })
    })?;
    Ok(document.remove(IPVS).unwrap_or_default())
}

/// What is wrong with a service, told of the real server that the request is about.
pub(super) fn of_real(mut refusal: Refusal, at: usize) -> Refusal {
    let inside = format!("/real/{at}");
    for fault in &mut refusal.faults {
        fault.pointer = match fault.pointer.strip_prefix(&inside) {
            Some(rest) => rest.to_owned(),
            None => String::new(),
        };
    }
    Refusal { detail: Refusal::invalid(refusal.faults.clone()).detail, ..refusal }
}
