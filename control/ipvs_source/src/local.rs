//! Local addresses of single services, as DPVS has them, over pools, of which an address is in one.
//!
//! A service remembers in a label which addresses were named for it. Services that share an address
//! share a pool, and with it all addresses of either: what is a pool follows from the labels alone,
//! so that the order of commands does not matter. Rules of source NAT by this source (`matches.rs`)
//! have their addresses in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use sluice_config::AddressRange;
use sluice_ipvs::{Errno, LocalAddress, LocalAddresses, ServiceKey};
use sluice_state::{Edit, Key, Kind, Refusal, Source, State};

use crate::interpret::{own, put};
use crate::matches;
use crate::name::{address_name, shown};
use crate::refused::Refused;
use crate::seen::{self, text};
use crate::write::{self, Table};

/// What pools of this source are called begins so.
const POOL: &str = "ipvs-";
/// The most addresses of one service that are listed.
const LISTED: usize = 65_535;

fn named(service: &Value) -> BTreeSet<IpAddr> {
    let list = write::label(service, write::LOCAL).unwrap_or_default();
    list.split_whitespace().filter_map(|text| text.parse().ok()).collect()
}

/// The addresses that an object's pool is to have.
fn wanted(kind: Kind, value: &Value) -> BTreeSet<IpAddr> {
    match kind {
        Kind::Snat => matches::used(value).collect(),
        _ => named(value),
    }
}

/// One address more for a service.
pub(crate) fn add(state: &State, key: &ServiceKey, it: IpAddr) -> Result<Vec<Edit>, Refused> {
    let (name, object) = own(state, key)?;
    let mut all = named(&object.value);
    if !all.insert(it) {
        let detail = format!("{it} is a local address of {} already", shown(key));
        return Err(Refused::new(Errno::Exist, detail));
    }
    free(state, it)?;
    Ok(settle(state, &Key::new(Kind::Service, name), Some(with(&object.value, &all))))
}

/// Refuses an address that is in a pool of another source; pools of networks other than the default
/// one do not matter.
pub(crate) fn free(state: &State, it: IpAddr) -> Result<(), Refused> {
    let strangers = state
        .objects()
        .iter()
        .filter(|(key, object)| key.kind == Kind::Pool && object.owner.source != Source::Ipvsadm);
    let strangers = strangers.filter(|(_, object)| object.value.get("network").is_none());
    for (pool, object) in strangers {
        if ranges(&object.value).any(|range| range.contains(it)) {
            let what = format!("{it} is in {pool}, which");
            return Err(Refusal::owned(&what, &object.owner).into());
        }
    }
    Ok(())
}

/// One address less.
pub(crate) fn delete(state: &State, key: &ServiceKey, it: IpAddr) -> Result<Vec<Edit>, Refused> {
    let (name, object) = own(state, key)?;
    let mut all = named(&object.value);
    if !all.remove(&it) {
        let detail = format!("{it} is no local address of {}", shown(key));
        return Err(Refused::new(Errno::NoEnt, detail));
    }
    Ok(settle(state, &Key::new(Kind::Service, name), Some(with(&object.value, &all))))
}

/// A service with other addresses of its own.
fn with(service: &Value, addresses: &BTreeSet<IpAddr>) -> Value {
    let mut value = service.as_object().cloned().unwrap_or_default();
    let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    write::set_label(&mut value, write::LOCAL, (!list.is_empty()).then(|| list.join(" ")));
    value.into()
}

/// What makes pools, services and rules what they are when `changed` becomes `value`; `None` when
/// it goes, which is not among the edits.
pub(crate) fn settle(state: &State, changed: &Key, value: Option<Value>) -> Vec<Edit> {
    let own = || state.objects().iter().filter(|(_, it)| it.owner.source == Source::Ipvsadm);
    let others = own().filter(|(key, _)| *key != changed).map(|(key, it)| (key, &*it.value));
    let users: BTreeMap<&Key, (&Value, BTreeSet<IpAddr>)> = others
        .chain(value.as_ref().map(|value| (changed, value)))
        .filter(|(key, _)| [Kind::Service, Kind::Snat].contains(&key.kind))
        .map(|(key, value)| (key, (value, wanted(key.kind, value))))
        .collect();
    let shared = shared(users.values().map(|(_, addresses)| addresses));
    let pool_of = |addresses: &BTreeSet<IpAddr>| {
        let first = addresses.first()?;
        shared.iter().find(|pool| pool.contains(first)).and_then(pool_name)
    };
    let mut edits = Vec::new();
    for pool in &shared {
        let Some(name) = pool_name(pool) else { continue };
        let list: Vec<String> = pool.iter().map(IpAddr::to_string).collect();
        edits.push(put(Kind::Pool, &name, json!({ "name": name, "addresses": list })));
    }
    for (key, (value, addresses)) in &users {
        let pool = pool_of(addresses);
        if text(value, "pool") == pool.as_deref() && *key != changed {
            continue;
        }
        let Some(mut value) = value.as_object().cloned() else { continue };
        set(&mut value, "pool", pool);
        edits.push(put(key.kind, &key.name, value.into()));
    }
    let names: BTreeSet<String> = shared.iter().filter_map(pool_name).collect();
    let idle = own().filter(|(key, _)| key.kind == Kind::Pool && !names.contains(&key.name));
    edits.extend(idle.map(|(key, _)| Edit::Delete(key.clone())));
    edits
}

fn set(table: &mut Table, key: &str, text: Option<String>) {
    table.shift_remove(key);
    table.extend(text.map(|text| (key.to_owned(), text.into())));
}

/// Sets that share an address made one, until none do.
fn shared<'a>(sets: impl Iterator<Item = &'a BTreeSet<IpAddr>>) -> Vec<BTreeSet<IpAddr>> {
    let mut shared: Vec<BTreeSet<IpAddr>> = Vec::new();
    for set in sets.filter(|set| !set.is_empty()) {
        let (meets, mut apart): (Vec<_>, Vec<_>) =
            shared.into_iter().partition(|other| !other.is_disjoint(set));
        apart.push(meets.into_iter().flatten().chain(set.iter().copied()).collect());
        shared = apart;
    }
    shared
}

fn pool_name(pool: &BTreeSet<IpAddr>) -> Option<String> {
    Some(format!("{POOL}{}", address_name(*pool.first()?)))
}

fn ranges(pool: &Value) -> impl Iterator<Item = AddressRange> {
    let list = pool.get("addresses").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|range| range.as_str()?.parse().ok())
}

/// The local addresses of a service, or of all that have any: those that were named for it by this
/// source, or those of the pool that another source gave it.
///
/// # Errors
///
/// `ESRCH` when there is no such service.
pub fn local_addresses(
    state: &State,
    key: Option<&ServiceKey>,
) -> Result<Vec<LocalAddresses>, Refused> {
    if let Some(key) = key {
        seen::service(state, key)?;
    }
    let services = state.in_order().into_iter().filter(|(key, _)| key.kind == Kind::Service);
    let found = services.filter_map(|(_, object)| {
        let of = seen::key(&object.value)?;
        if key.is_some_and(|key| *key != of) {
            return None;
        }
        let mut addresses: Vec<IpAddr> = named(&object.value).into_iter().collect();
        if let (true, Some(pool)) = (addresses.is_empty(), text(&object.value, "pool")) {
            let pool = state.object(&Key::new(Kind::Pool, pool))?;
            addresses = ranges(&pool.value).flat_map(|it| it.iter()).take(LISTED).collect();
        }
        let local = |address| LocalAddress { address, conflicts: 0, connections: 0 };
        let addresses: Vec<_> = addresses.into_iter().map(local).collect();
        (!addresses.is_empty()).then_some(LocalAddresses { key: of, addresses })
    });
    Ok(found.collect())
}
