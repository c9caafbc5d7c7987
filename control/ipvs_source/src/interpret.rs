//! Commands as edits of the desired state.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use sluice_ipvs::{Destination, Errno, Request, ServiceKey, ServiceSpec};
use sluice_state::{
    Edit, Key, Kind, Object, OverridePatch, RealState, Refusal, Source, State, real_key,
};

use crate::name::{service_name, shown};
use crate::refused::Refused;
use crate::write::{self, endpoint};
use crate::{listed, local, matches, seen, whole};

/// The edits that a command stands for; none where it changes nothing of the desired state.
///
/// # Errors
///
/// What the kernel would refuse, and what belongs to another source.
pub fn edits(state: &State, request: &Request) -> Result<Vec<Edit>, Refused> {
    let key = match request {
        Request::AddService(spec) | Request::EditService(spec) => Some(&spec.key),
        Request::DeleteService(key)
        | Request::AddDestination(key, _)
        | Request::EditDestination(key, _)
        | Request::DeleteDestination(key, _)
        | Request::AddLocal(key, _)
        | Request::DeleteLocal(key, _)
        | Request::AddListed(key, ..)
        | Request::DeleteListed(key, ..) => Some(key),
        _ => None,
    };
    match key {
        Some(key @ ServiceKey::Mark { .. }) => return whole::mark(state, key, request),
        Some(ServiceKey::Match(it)) => return matches::change(state, *it, request),
        _ => {}
    }
    match request {
        Request::AddService(spec) => add_service(state, spec),
        Request::EditService(spec) => edit_service(state, spec),
        Request::DeleteService(key) => delete_service(state, key),
        Request::Flush => Ok(flush(state)),
        Request::AddDestination(key, it) => add_destination(state, key, it),
        Request::EditDestination(key, it) => edit_destination(state, key, it),
        Request::DeleteDestination(key, at) => delete_destination(state, key, *at),
        Request::AddLocal(key, address) => local::add(state, key, *address),
        Request::DeleteLocal(key, address) => local::delete(state, key, *address),
        Request::AddListed(key, list, who) => listed::change(state, key, (*list, who), true),
        Request::DeleteListed(key, list, who) => listed::change(state, key, (*list, who), false),
        Request::SetTimeouts(timeouts) => whole::set_timeouts(state, timeouts),
        Request::StartDaemon(daemon) => whole::start(state, daemon),
        Request::StopDaemon(role) => whole::stop(state, *role),
        // It is about figures.
        Request::Zero(Some(key)) => seen::service(state, key).map(|_| Vec::new()),
        _ => Ok(Vec::new()),
    }
}

fn the<'s>(state: &'s State, key: &ServiceKey) -> Result<(&'s str, &'s Arc<Object>), Refused> {
    seen::find(state, key).ok_or_else(|| Refused::no_service(key))
}

/// A service that this source may change.
pub(crate) fn own<'s>(
    state: &'s State,
    key: &ServiceKey,
) -> Result<(&'s str, &'s Arc<Object>), Refused> {
    let (name, object) = the(state, key)?;
    match object.owner.source {
        Source::Ipvsadm => Ok((name, object)),
        _ => Err(Refusal::owned(&format!("service {name:?}"), &object.owner).into()),
    }
}

pub(crate) fn put(kind: Kind, name: &str, value: Value) -> Edit {
    Edit::Put { key: Key::new(kind, name), value, pointer: String::new() }
}

fn add_service(state: &State, spec: &ServiceSpec) -> Result<Vec<Edit>, Refused> {
    if let Some((name, object)) = seen::find(state, &spec.key) {
        let (at, owner) = (shown(&spec.key), &object.owner);
        let detail = format!("{at} is service {name:?} already, which belongs to {owner}");
        return Err(Refused::new(Errno::Exist, detail));
    }
    let address = whole::address_of(&spec.key).ok_or_else(|| Refused::no_service(&spec.key))?;
    let value = write::service(spec, address, None)?;
    Ok(vec![put(Kind::Service, &service_name(&spec.key), Value::Object(value))])
}

fn edit_service(state: &State, spec: &ServiceSpec) -> Result<Vec<Edit>, Refused> {
    let (name, object) = own(state, &spec.key)?;
    let address = whole::address_of(&spec.key).ok_or_else(|| Refused::no_service(&spec.key))?;
    let value = write::service(spec, address, Some(&object.value))?;
    Ok(vec![put(Kind::Service, name, Value::Object(value))])
}

fn delete_service(state: &State, key: &ServiceKey) -> Result<Vec<Edit>, Refused> {
    let (name, object) = own(state, key)?;
    let gone = Key::new(Kind::Service, name);
    let mut edits = vec![Edit::Delete(gone.clone())];
    if write::label(&object.value, write::LOCAL).is_some() {
        edits.extend(local::settle(state, &gone, None));
    }
    Ok(edits)
}

fn flush(state: &State) -> Vec<Edit> {
    let own = state.objects().iter().filter(|(key, object)| {
        object.owner.source == Source::Ipvsadm && key.kind != Kind::Section
    });
    let own = own.map(|(key, _)| Edit::Delete(key.clone()));
    own.chain(whole::flush_marks(state)).collect()
}

fn add_destination(
    state: &State,
    key: &ServiceKey,
    it: &Destination,
) -> Result<Vec<Edit>, Refused> {
    let (_, object) = the(state, key)?;
    let value = write::real(key, it)?;
    let at = (it.address, it.port);
    if seen::real(&object.value, at).is_some() {
        let detail = format!("{} is a destination of {} already", endpoint(at.0, at.1), shown(key));
        return Err(Refused::new(Errno::Exist, detail));
    }
    let (name, _) = own(state, key)?;
    Ok(vec![Edit::PutReal { service: name.to_owned(), real: (at.0, Some(at.1)), value }])
}

fn edit_destination(
    state: &State,
    key: &ServiceKey,
    it: &Destination,
) -> Result<Vec<Edit>, Refused> {
    let (name, object) = the(state, key)?;
    let value = write::real(key, it)?;
    let at = (it.address, it.port);
    let found = seen::real(&object.value, at).and_then(|real| {
        let found = real_key(&object.value, real)?;
        Some(seen::destination(&object.value, real, found, state.over(name, found)))
    });
    let now = found.ok_or_else(|| Refused::no_destination(key, at))?;
    let service = name.to_owned();
    let named = (at.0, Some(at.1));
    if object.owner.source == Source::Ipvsadm {
        return Ok(vec![Edit::PutReal { service, real: named, value }]);
    }
    let only_weight = (now.method, now.tunnel, now.upper, now.lower)
        == (it.method, it.tunnel, it.upper, it.lower);
    if !only_weight {
        let mut refusal = Refusal::owned(&format!("service {name:?}"), &object.owner);
        refusal.detail += "; the weight of its destinations can be changed here, together with \
                           the forwarding method and the thresholds that they have";
        return Err(refusal.into());
    }
    // Whatever state somebody gave it: the weight says it all here, and 0 drains.
    let weight = u16::try_from(it.weight).ok();
    let patch = OverridePatch { weight: Some(weight), state: Some(Some(RealState::Up)) };
    Ok(vec![Edit::Override { service, real: named, patch }])
}

fn delete_destination(
    state: &State,
    key: &ServiceKey,
    at: (IpAddr, u16),
) -> Result<Vec<Edit>, Refused> {
    let (_, object) = the(state, key)?;
    if seen::real(&object.value, at).is_none() {
        return Err(Refused::no_destination(key, at));
    }
    let (name, _) = own(state, key)?;
    Ok(vec![Edit::DeleteReal { service: name.to_owned(), real: (at.0, Some(at.1)) }])
}
