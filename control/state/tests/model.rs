//! Random edits, files, rollbacks and restarts beside a model that keeps whole copies of every
//! state and knows the rules of ownership in the plainest form.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_config::Config;
use sluice_state::{
    Author, Desired, Edit, FileContent, Key, Kind, Override, OverridePatch, RealState, Request,
    Source, What,
};

/// A service: its port, and the weights of its real servers by the last byte of their address.
type Service = (Source, u16, BTreeMap<u8, u16>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    services: BTreeMap<String, Service>,
    overrides: BTreeMap<(String, u8), Override>,
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16, BTreeMap<u8, u16>),
    Delete(u8),
    PutReal(u8, u8, u16),
    DeleteReal(u8, u8),
    Override(u8, u8, OverridePatch),
    File(BTreeMap<u8, (u16, BTreeMap<u8, u16>)>),
    Rollback(u8),
    Restart,
}

fn reals() -> impl Strategy<Value = BTreeMap<u8, u16>> {
    proptest::collection::btree_map(1..5_u8, 2..5_u16, 0..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..4_u8;
    let port = 80..84_u16;
    let state = prop_oneof![
        Just(None),
        Just(Some(None)),
        Just(Some(Some(RealState::Drain))),
        Just(Some(Some(RealState::Up))),
    ];
    let weight = proptest::option::of(proptest::option::of(2..5_u16));
    let patch = (weight, state).prop_map(|(weight, state)| OverridePatch { weight, state });
    let file = proptest::collection::btree_map(name.clone(), (port.clone(), reals()), 0..3);
    let step = prop_oneof![
        3 => (name.clone(), port, reals())
            .prop_map(|(name, port, reals)| Step::Put(name, port, reals)),
        1 => name.clone().prop_map(Step::Delete),
        2 => (name.clone(), 1..5_u8, 2..5_u16)
            .prop_map(|(name, real, weight)| Step::PutReal(name, real, weight)),
        1 => (name.clone(), 1..5_u8).prop_map(|(name, real)| Step::DeleteReal(name, real)),
        3 => (name, 1..5_u8, patch)
            .prop_map(|(name, real, patch)| Step::Override(name, real, patch)),
        2 => file.prop_map(Step::File),
        1 => (0..20_u8).prop_map(Step::Rollback),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

fn address(real: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 10 + real).into()
}

fn called(name: u8) -> String {
    format!("s{name}")
}

fn value(port: u16, reals: &BTreeMap<u8, u16>) -> Value {
    let list: Vec<Value> = reals
        .iter()
        .map(|(real, weight)| json!({ "address": address(*real).to_string(), "weight": weight }))
        .collect();
    json!({ "protocol": "udp", "vip": "198.51.100.200", "port": port, "mode": "nat", "real": list })
}

impl Model {
    /// Overrides whose real server is not what it was before are gone.
    fn forget(&mut self, before: &Self) {
        let real = |model: &Self, (name, real): &(String, u8)| {
            let (_, port, reals) = model.services.get(name)?;
            Some((*port, *reals.get(real)?))
        };
        let weight = |it: Option<(u16, u16)>| it.map(|(_, weight)| weight);
        let port = |it: Option<(u16, u16)>| it.map(|(port, _)| port);
        let now = self.clone();
        self.overrides.retain(|key, _| {
            let (was, is) = (real(before, key), real(&now, key));
            weight(was) == weight(is) && port(was) == port(is)
        });
    }

    fn put(&mut self, by: Source, name: u8, port: u16, reals: &BTreeMap<u8, u16>) -> bool {
        let name = called(name);
        if self.services.get(&name).is_some_and(|(owner, ..)| *owner != by) {
            return false;
        }
        self.services.insert(name, (by, port, reals.clone()));
        true
    }

    fn has_clash(&self) -> bool {
        let mut ports: Vec<u16> = self.services.values().map(|(_, port, _)| *port).collect();
        ports.sort_unstable();
        ports.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// What a step makes of it; `None` when it is refused.
    fn after(&self, step: &Step, past: &[Self]) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Put(name, port, reals) => {
                next.put(Source::Api, *name, *port, reals).then_some(())?;
            }
            Step::Delete(name) => {
                let (owner, ..) = next.services.remove(&called(*name))?;
                (owner == Source::Api).then_some(())?;
            }
            Step::PutReal(name, real, weight) => {
                let (owner, _, reals) = next.services.get_mut(&called(*name))?;
                (*owner == Source::Api).then_some(())?;
                reals.insert(*real, *weight);
            }
            Step::DeleteReal(name, real) => {
                let (owner, _, reals) = next.services.get_mut(&called(*name))?;
                (*owner == Source::Api).then_some(())?;
                reals.remove(real)?;
            }
            Step::Override(name, real, patch) => {
                let weight = *self.services.get(&called(*name))?.2.get(real)?;
                let key = (called(*name), *real);
                let before = self.overrides.get(&key).copied().unwrap_or_default();
                let over = Override {
                    weight: patch.weight.unwrap_or(before.weight).filter(|it| *it != weight),
                    state: patch.state.unwrap_or(before.state).filter(|it| *it != RealState::Up),
                };
                next.overrides.remove(&key);
                if !over.is_empty() {
                    next.overrides.insert(key, over);
                }
                return Some(next);
            }
            Step::File(services) => {
                next.services.retain(|_, (owner, ..)| *owner != Source::File);
                for (name, (port, reals)) in services {
                    next.put(Source::File, *name, *port, reals).then_some(())?;
                }
            }
            // Before the first file there was no port, and nothing was right.
            Step::Rollback(0) => return None,
            Step::Rollback(number) => return past.get(usize::from(*number)).cloned(),
            Step::Restart => return Some(next),
        }
        (!next.has_clash()).then_some(())?;
        next.forget(self);
        Some(next)
    }
}

fn what(step: &Step) -> Option<What> {
    let service = |name: &u8| called(*name);
    let real = |real: &u8| (address(*real), None);
    let edit = match step {
        Step::Put(name, port, reals) => {
            let key = Key::new(Kind::Service, service(name));
            Edit::Put { key, value: value(*port, reals), pointer: String::new() }
        }
        Step::Delete(name) => Edit::Delete(Key::new(Kind::Service, service(name))),
        Step::PutReal(name, which, weight) => Edit::PutReal {
            service: service(name),
            real: real(which),
            value: json!({ "weight": weight }),
        },
        Step::DeleteReal(name, which) => {
            Edit::DeleteReal { service: service(name), real: real(which) }
        }
        Step::Override(name, which, patch) => {
            Edit::Override { service: service(name), real: real(which), patch: *patch }
        }
        Step::File(services) => {
            let list = services.iter().map(|(name, (port, reals))| {
                let mut value = value(*port, reals);
                value["name"] = service(name).into();
                value
            });
            let Value::Object(mut document) = json!({
                "port": [{ "name": "front", "device": "tap:a" }],
                "service": list.collect::<Vec<_>>(),
            }) else {
                return None;
            };
            sluice_config::document::normalise(&mut document);
            return Some(What::File(FileContent::of(&document)));
        }
        Step::Rollback(number) => return Some(What::Rollback((*number).into())),
        Step::Restart => return None,
    };
    Some(What::Edits(vec![edit]))
}

/// The desired state as the model has it.
fn seen(desired: &Desired) -> Model {
    let state = desired.state();
    let of = |value: &Value| -> BTreeMap<u8, u16> {
        let list = value.get("real").and_then(Value::as_array).cloned().unwrap_or_default();
        let real = |real: &Value| {
            let address: Ipv4Addr = real["address"].as_str()?.parse().ok()?;
            let weight = real.get("weight").and_then(Value::as_u64).unwrap_or(1);
            Some((address.octets()[3] - 10, weight as u16))
        };
        list.iter().filter_map(real).collect()
    };
    let all = state.objects().iter().filter(|(key, _)| key.kind == Kind::Service);
    let services = all.map(|(key, object)| {
        let port = object.value["port"].as_u64().unwrap_or_default() as u16;
        (key.name.clone(), (object.owner.source, port, of(&object.value)))
    });
    let overrides = state.overrides().iter().map(|((name, real), over)| {
        let SocketAddr::V4(real) = real else { panic!("{real}") };
        ((name.clone(), real.ip().octets()[3] - 10), *over)
    });
    Model { services: services.collect(), overrides: overrides.collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does(steps in steps()) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut desired = Desired::open(folder.path()).expect("empty");
        let mut model = Model::default();
        let mut past = vec![model.clone()];
        let first = Step::File(BTreeMap::new());
        for step in std::iter::once(&first).chain(&steps) {
            let expected = model.after(step, &past);
            let Some(what) = what(step) else {
                desired = Desired::default();
                prop_assert_eq!(desired.epoch(), 0);
                desired = Desired::open(folder.path()).expect("what was kept");
                prop_assert_eq!(&seen(&desired), &model);
                continue;
            };
            let by = if matches!(what, What::File(_)) { Source::File } else { Source::Api };
            let by = Author::of(by);
            let request = Request { by, if_epoch: None, dry_run: false, force: false, what };
            let answer = desired.commit(&[request], 7, &mut |_: &Config| Ok(())).answers.remove(0);
            match (answer, expected) {
                (Ok(applied), Some(next)) => {
                    // A step that changes nothing may still say which file was read.
                    if applied.epoch as usize == past.len() {
                        past.push(next.clone());
                    }
                    model = next;
                }
                (Err(_), None) => {}
                (answer, expected) => {
                    return Err(TestCaseError::fail(format!("{step:?}: {answer:?}, {expected:?}")));
                }
            }
            prop_assert_eq!(&seen(&desired), &model, "after {:?}", step);
            prop_assert_eq!(desired.epoch() as usize + 1, past.len());
        }
    }
}
