//! From the objects to the configuration that is checked and compiled: values read by the file's
//! reader, once each, with what operators say of real servers put on top.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use sluice_config::{Check, Config, ConfigErrors, Mode, Pool, RealServer, Snat, VirtualService};

use crate::edit::FileContent;
use crate::object::{Key, Kind, Object, Override, RealState, Source};
use crate::state::State;
use crate::view;

/// What was read already. An object that is the same as before need not be read again.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    known: HashMap<Key, (Arc<Object>, Value)>,
    sections: Option<(Vec<Arc<Object>>, Config)>,
}

#[derive(Clone, Debug)]
enum Value {
    Check(Box<Check>),
    Pool(Pool),
    Service(VirtualService),
    Snat(Snat),
}

impl Typed {
    /// The whole configuration, not checked yet.
    ///
    /// # Errors
    ///
    /// When a value cannot be read. Edits and files were read before they came into the state, so
    /// this is about what another version wrote.
    pub fn config(&mut self, state: &State) -> Result<Config, ConfigErrors> {
        let objects = state.in_order();
        self.read(&objects)?;
        let mut config = self.sections(&objects)?;
        for (key, _) in &objects {
            match self.known.get(*key).map(|(_, value)| value) {
                Some(Value::Check(check)) => config.checks.push(Check::clone(check)),
                Some(Value::Pool(pool)) => config.pools.push(pool.clone()),
                Some(Value::Snat(rule)) => config.snat.push(rule.clone()),
                Some(Value::Service(service)) => {
                    let mut service = service.clone();
                    for (real, over) in state.overrides_of(&key.name) {
                        put_over(&mut service.reals, real, over);
                    }
                    config.services.push(service);
                }
                None => {}
            }
        }
        leave_out_who_waits(&objects, &mut config);
        if self.known.len() > objects.len() {
            self.known.retain(|key, _| state.object(key).is_some());
        }
        Ok(config)
    }

    /// The weight of a real server with what operators say of it on top; `None` if more than its
    /// weight is another with `before` in the place of that.
    pub fn weight(
        &self,
        state: &State,
        (service, real): (&str, SocketAddr),
        before: Option<Override>,
    ) -> Option<u16> {
        let key = Key::new(Kind::Service, service);
        let (known, Value::Service(value)) = self.known.get(&key)? else { return None };
        if !Arc::ptr_eq(known, state.object(&key)?) {
            return None;
        }
        let is_it = |it: &&RealServer| it.address == real.ip() && it.port == real.port();
        let plain = value.reals.iter().find(is_it)?;
        let with = |over: Option<Override>| {
            let mut it = plain.clone();
            put_over(std::slice::from_mut(&mut it), real, over.unwrap_or_default());
            it
        };
        let (was, is) = (with(before), with(state.over(service, real)));
        (was.down == is.down).then_some(is.weight)
    }

    /// Takes over what was read of a file whose objects are in the state.
    pub fn learn(&mut self, state: &State, file: &FileContent) {
        let Some((objects, config)) = file.read() else { return };
        let mut checks = config.checks.iter().map(|it| Value::Check(Box::new(it.clone())));
        let mut pools = config.pools.iter().cloned().map(Value::Pool);
        let mut services = config.services.iter().cloned().map(Value::Service);
        let mut rules = config.snat.iter().cloned().map(Value::Snat);
        // Sections and objects of a kind are in the file's order in both.
        for (key, written) in objects {
            let read = match key.kind {
                Kind::Section => continue,
                Kind::Check => checks.next(),
                Kind::Pool => pools.next(),
                Kind::Service => services.next(),
                Kind::Snat => rules.next(),
            };
            let known = self.known.get(key).map(|(known, _)| known);
            if let (Some(read), Some(object)) = (read, state.object(key))
                && !known.is_some_and(|known| Arc::ptr_eq(known, object))
                && *object.value == *written
            {
                self.known.insert(key.clone(), (Arc::clone(object), read));
            }
        }
    }

    /// Reads what is not known yet, all in one document.
    fn read(&mut self, objects: &[(&Key, &Arc<Object>)]) -> Result<(), ConfigErrors> {
        let is_known = |key: &Key, object: &Arc<Object>| {
            self.known.get(key).is_some_and(|(known, _)| Arc::ptr_eq(known, object))
        };
        let unknown = |kind| {
            let of_kind = objects.iter().filter(move |(key, _)| key.kind == kind);
            of_kind.filter(|(key, object)| !is_known(key, object)).copied().collect::<Vec<_>>()
        };
        let (checks, pools) = (unknown(Kind::Check), unknown(Kind::Pool));
        let (services, rules) = (unknown(Kind::Service), unknown(Kind::Snat));
        let all = checks.iter().chain(&pools).chain(&services).chain(&rules);
        let document = view::document(all.map(|(key, object)| (*key, &*object.value)));
        if document.is_empty() {
            return Ok(());
        }
        let read = Config::read_document(&document)?;
        let checks =
            checks.into_iter().zip(read.checks.into_iter().map(|it| Value::Check(Box::new(it))));
        let pools = pools.into_iter().zip(read.pools.into_iter().map(Value::Pool));
        let services = services.into_iter().zip(read.services.into_iter().map(Value::Service));
        let rules = rules.into_iter().zip(read.snat.into_iter().map(Value::Snat));
        for ((key, object), value) in checks.chain(pools).chain(services).chain(rules) {
            self.known.insert(key.clone(), (Arc::clone(object), value));
        }
        Ok(())
    }

    /// A configuration of the other sections alone.
    fn sections(&mut self, objects: &[(&Key, &Arc<Object>)]) -> Result<Config, ConfigErrors> {
        let sections: Vec<_> =
            objects.iter().filter(|(key, _)| key.kind == Kind::Section).collect();
        if let Some((known, config)) = &self.sections {
            let same =
                |(known, (_, now)): (&Arc<Object>, &&(&Key, &Arc<Object>))| Arc::ptr_eq(known, now);
            if known.len() == sections.len() && known.iter().zip(&sections).all(same) {
                return Ok(config.clone());
            }
        }
        let document = view::document(sections.iter().map(|(key, object)| (*key, &*object.value)));
        let config = Config::read_document(&document)?;
        let objects = sections.iter().map(|(_, object)| Arc::clone(object)).collect();
        self.sections = Some((objects, config.clone()));
        Ok(config)
    }
}

/// By IPVS's source real servers of Full NAT come before their first local address, and rules of
/// source NAT before their pool. Until there is one they are part of the state, and not of what is
/// checked and compiled.
fn leave_out_who_waits(objects: &[(&Key, &Arc<Object>)], config: &mut Config) {
    let of_door = |kind| -> HashSet<&str> {
        let own = objects.iter().filter(|(_, object)| object.owner.source == Source::Ipvsadm);
        own.filter(|(key, _)| key.kind == kind).map(|(key, _)| &*key.name).collect()
    };
    let rules = of_door(Kind::Snat);
    config.snat.retain(|rule| !rule.pool.is_empty() || !rules.contains(&*rule.name));
    let of_door = of_door(Kind::Service);
    if of_door.is_empty() {
        return;
    }
    let families = config.pools.iter().map(|pool| {
        let has = |v4| pool.addresses.iter().any(|range| range.first().is_ipv4() == v4);
        (pool.name.as_str(), [has(true), has(false)])
    });
    let families: HashMap<&str, [bool; 2]> = families.collect();
    for service in config.services.iter_mut().filter(|it| of_door.contains(&*it.name)) {
        let [v4, v6] = families.get(&*service.pool).copied().unwrap_or_default();
        let mode = service.mode;
        service.reals.retain(|real| {
            let has = if real.address.is_ipv4() { v4 } else { v6 };
            has || real.mode.unwrap_or(mode) != Mode::Fnat
        });
    }
}

fn put_over(reals: &mut [RealServer], at: SocketAddr, over: Override) {
    let is_it = |real: &&mut RealServer| real.address == at.ip() && real.port == at.port();
    let Some(real) = reals.iter_mut().find(is_it) else { return };
    real.weight = over.weight.unwrap_or(real.weight);
    match over.state {
        Some(RealState::Up) => real.down = false,
        // One that is down already stays what it is: it gets no sessions either way.
        Some(RealState::Drain) => real.weight = 0,
        Some(RealState::Down) => real.down = true,
        None => {}
    }
}
