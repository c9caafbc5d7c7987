//! What leads from one state to another, in as small steps as history should tell.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::change::Change;
use crate::object::{Key, Kind, Object, real_key, reals_of};
use crate::state::State;

/// Steps from `from` to `to`, but for which file was read.
pub(crate) fn between(from: &State, to: &State) -> Vec<Change> {
    let mut changes = Vec::new();
    let keys: BTreeSet<&Key> = from.objects().keys().chain(to.objects().keys()).collect();
    for key in keys {
        changes.extend(object(key, from.object(key), to.object(key)));
    }
    let places: BTreeSet<_> = from.overrides().keys().chain(to.overrides().keys()).collect();
    for place in places {
        let before = from.overrides().get(place).copied();
        let after = to.overrides().get(place).copied();
        if before != after {
            let (service, real) = (place.0.clone(), place.1);
            changes.push(Change::Override { service, real, before, after });
        }
    }
    changes
}

/// Steps that make one object of another. The place of services and pools in the file means
/// nothing, so that alone it is no change.
pub(crate) fn object(
    key: &Key,
    before: Option<&Arc<Object>>,
    after: Option<&Arc<Object>>,
) -> Vec<Change> {
    if let (Some(before), Some(after)) = (before, after) {
        let in_place = key.kind != Kind::Snat || before.rank == after.rank;
        if in_place && before.owner == after.owner {
            if before.value == after.value {
                return Vec::new();
            }
            if let Some(changes) = reals(key, &before.value, &after.value) {
                return changes;
            }
        }
    } else if before.is_none() && after.is_none() {
        return Vec::new();
    }
    vec![Change::Object { key: key.clone(), before: before.cloned(), after: after.cloned() }]
}

/// Steps between two values of a service that differ in real servers only, and not in the order
/// of those that both have.
fn reals(key: &Key, before: &Value, after: &Value) -> Option<Vec<Change>> {
    if key.kind != Kind::Service || !alike_but_for_reals(before, after) {
        return None;
    }
    let (old, new) = (keyed(before)?, keyed(after)?);
    let place = |all: &[(SocketAddr, &Value)]| -> HashMap<SocketAddr, usize> {
        all.iter().enumerate().map(|(at, (real, _))| (*real, at)).collect()
    };
    let (was, is) = (place(&old), place(&new));
    if was.len() != old.len() || is.len() != new.len() {
        return None;
    }
    let kept = old.iter().filter(|(real, _)| is.contains_key(real)).map(|(real, _)| real);
    let still = new.iter().filter(|(real, _)| was.contains_key(real)).map(|(real, _)| real);
    if !kept.eq(still) {
        return None;
    }
    let step = |real: SocketAddr, at, before: Option<&Value>, after: Option<&Value>| {
        let (before, after) = (before.cloned(), after.cloned());
        Change::Real { service: key.name.clone(), real, at, before, after }
    };
    let gone = old.iter().enumerate().rev().filter(|(_, (real, _))| !is.contains_key(real));
    let mut changes: Vec<Change> =
        gone.map(|(at, (real, value))| step(*real, at, Some(value), None)).collect();
    for (at, (real, value)) in new.iter().enumerate() {
        match was.get(real).map(|place| old[*place].1) {
            None => changes.push(step(*real, at, None, Some(value))),
            Some(former) if former != *value => {
                changes.push(step(*real, at, Some(former), Some(value)));
            }
            Some(_) => {}
        }
    }
    Some(changes)
}

fn alike_but_for_reals(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return false };
    let names: HashSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().all(|name| name == "real" || before.get(name) == after.get(name))
}

fn keyed(service: &Value) -> Option<Vec<(SocketAddr, &Value)>> {
    reals_of(service).iter().map(|real| Some((real_key(service, real)?, real))).collect()
}
