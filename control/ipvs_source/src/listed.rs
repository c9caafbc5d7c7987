//! Lists of clients, DPVS's deny and allow lists, as the keys `deny` and `allow` of a service.

use std::net::IpAddr;

use serde_json::Value;
use sluice_ipvs::{Errno, List, ServiceKey};
use sluice_state::{Edit, Kind, State};

use crate::interpret::{own, put};
use crate::name::shown;
use crate::refused::Refused;
use crate::seen;

/// The key of the configuration.
const fn name(list: List) -> &'static str {
    match list {
        List::Deny => "deny",
        List::Allow => "allow",
    }
}

/// A client or a network of clients as the configuration writes it, with host bits cleared.
fn network(text: &str) -> Result<String, Refused> {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let parsed = address.parse::<IpAddr>().ok().and_then(|address| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = if length.is_empty() { most } else { length.parse().ok()? };
        sluice_config::Prefix::new(address, length)
    });
    let wrong = || format!("{text:?} is no address and no prefix such as 203.0.113.0/24");
    parsed.map(|prefix| prefix.to_string()).ok_or_else(|| Refused::invalid(wrong()))
}

fn listed(service: &Value, list: List) -> Vec<String> {
    let items = service.get(name(list)).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A client more on a list, or one less.
pub(crate) fn change(
    state: &State,
    key: &ServiceKey,
    (list, who): (List, &str),
    adds: bool,
) -> Result<Vec<Edit>, Refused> {
    let (service, object) = own(state, key)?;
    let (who, mut all) = (network(who)?, listed(&object.value, list));
    let at = all.iter().position(|known| network(known).as_ref() == Ok(&who));
    let list = name(list);
    match (at, adds) {
        (None, true) => all.push(who),
        (Some(at), false) => drop(all.remove(at)),
        (Some(_), true) => {
            let detail = format!("{who} is on the {list} list of {} already", shown(key));
            return Err(Refused::new(Errno::Exist, detail));
        }
        (None, false) => {
            let detail = format!("{who} is not on the {list} list of {}", shown(key));
            return Err(Refused::new(Errno::NoEnt, detail));
        }
    }
    let mut value = (*object.value).clone();
    if let Some(table) = value.as_object_mut() {
        match all.is_empty() {
            true => drop(table.remove(list)),
            false => drop(table.insert(list.to_owned(), all.into())),
        }
    }
    Ok(vec![put(Kind::Service, service, value)])
}

/// A list of one service, or of all that have any.
///
/// # Errors
///
/// `ESRCH` when there is no such service.
pub fn lists(
    state: &State,
    list: List,
    key: Option<&ServiceKey>,
) -> Result<Vec<(ServiceKey, Vec<String>)>, Refused> {
    // A single client without its length, as it was named.
    let plain = |text: String| match text.split_once('/') {
        Some((address, "32")) if address.contains('.') => address.to_owned(),
        Some((address, "128")) => address.to_owned(),
        _ => text,
    };
    let of = |value: &Value| listed(value, list).into_iter().map(plain).collect::<Vec<_>>();
    if let Some(key) = key {
        let listed = match seen::find(state, key) {
            Some((_, object)) => of(&object.value),
            // Others have none.
            None => seen::service(state, key).map(|_| Vec::new())?,
        };
        return Ok(vec![(*key, listed)]);
    }
    let objects = state.in_order().into_iter().filter(|(key, _)| key.kind == Kind::Service);
    let all = objects.filter_map(|(_, object)| {
        let found = of(&object.value);
        if found.is_empty() { None } else { Some((seen::key(&object.value)?, found)) }
    });
    Ok(all.collect())
}
