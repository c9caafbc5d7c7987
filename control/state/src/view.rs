//! The desired state as it is shown.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_config::Document;

use crate::object::{Author, Key, Kind, Object, Override};
use crate::state::State;
use std::sync::Arc;

/// All of it: `GET /v1/config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct View {
    /// The epoch that is in force; 0 before the first.
    pub epoch: u64,
    /// Whether changes survive a restart.
    pub durable: bool,
    /// Whether what the file's objects are is not what the file said when it was last read: the
    /// director went back to an earlier epoch, and has not read the file since.
    pub differs_from_file: bool,
    /// The objects, in the order in which they count.
    pub objects: Vec<Entry>,
}

/// One object: `GET /v1/config/services/{name}` and the like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Its kind and name.
    #[serde(flatten)]
    pub key: Key,
    /// Who owns it.
    pub owner: Author,
    /// What is configured, with the keys of the configuration file.
    pub value: Arc<Value>,
    /// What an operator says of its real servers in place of what is configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Placed>,
}

/// An override and the real server that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placed {
    /// The real server.
    pub real: SocketAddr,
    /// What is said of it.
    #[serde(flatten)]
    pub over: Override,
}

impl Entry {
    /// An object as it is shown.
    pub fn of(state: &State, key: &Key, object: &Object) -> Self {
        let overrides = match key.kind {
            Kind::Service => state.overrides_of(&key.name).collect(),
            _ => Vec::new(),
        };
        Self {
            key: key.clone(),
            owner: object.owner.clone(),
            value: Arc::clone(&object.value),
            overrides: overrides.into_iter().map(|(real, over)| Placed { real, over }).collect(),
        }
    }
}

impl View {
    /// The state that is shown.
    pub fn state(&self) -> State {
        let mut ranks = std::collections::HashMap::new();
        let objects = self.objects.iter().map(|entry| {
            let rank = ranks.entry((entry.key.kind, entry.owner.source)).or_insert(0);
            *rank += 1;
            let (owner, value) = (entry.owner.clone(), Arc::clone(&entry.value));
            (entry.key.clone(), Arc::new(Object { owner, rank: *rank - 1, value }))
        });
        let objects: Vec<_> = objects.collect();
        let overrides = self.objects.iter().flat_map(|entry| {
            let of = |placed: &Placed| ((entry.key.name.clone(), placed.real), placed.over);
            entry.overrides.iter().map(of).collect::<Vec<_>>()
        });
        State::of(objects, overrides, None)
    }

    /// All configured values as one document, as a file would have them.
    pub fn document(&self) -> Document {
        document(self.objects.iter().map(|entry| (&entry.key, &*entry.value)))
    }
}

/// Objects as one document, in the order that they are given in.
pub(crate) fn document<'a>(objects: impl Iterator<Item = (&'a Key, &'a Value)>) -> Document {
    let mut document = Document::new();
    for (key, value) in objects {
        if key.kind == Kind::Section {
            document.insert(key.name.clone(), value.clone());
            continue;
        }
        let list = document.entry(key.kind.name()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(value.clone());
        }
    }
    document
}
