//! Edits become steps, if whoever asks may do that: ownership, names, and what two services may
//! not both take. Whether all of it fits together is checked later, on the whole.

mod value;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use sluice_config::{Config, Document, Loaded, document};

use crate::change::Change;
use crate::diff;
use crate::object::{
    Author, Key, Kind, Object, OverridePatch, RealState, Source, real_key, reals_of,
};
use crate::refusal::{Refusal, RefusalKind};
use crate::state::State;
use value::{configured_weight, find, named_real, of_real, read};

/// One thing to change. A `pointer` says where in the request's body a value stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Makes or replaces an object.
    Put {
        /// Which.
        key: Key,
        /// What it becomes.
        value: Value,
        /// Where that stands.
        pointer: String,
    },
    /// Takes an object away.
    Delete(Key),
    /// Makes or replaces a real server of a service.
    PutReal {
        /// The service.
        service: String,
        /// Its address, and its port where one is named.
        real: (IpAddr, Option<u16>),
        /// What it becomes.
        value: Value,
    },
    /// Takes a real server away.
    DeleteReal {
        /// The service.
        service: String,
        /// Its address, and its port where one is named.
        real: (IpAddr, Option<u16>),
    },
    /// Says something of a real server that holds in place of what is configured.
    Override {
        /// The service.
        service: String,
        /// Its address, and its port where one is named.
        real: (IpAddr, Option<u16>),
        /// What.
        patch: OverridePatch,
    },
}

/// What a file says, as it replaces what the file said before.
#[derive(Clone, Debug, PartialEq)]
pub struct FileContent {
    objects: Vec<(Key, Value)>,
    digest: String,
    /// The same as it was read.
    config: Option<Arc<Config>>,
}

impl FileContent {
    /// The objects of a checked file.
    pub fn of(document: &Document) -> Self {
        let digest = digest(document);
        let mut objects = Vec::new();
        for (section, value) in document {
            let kind = Kind::NAMED.into_iter().find(|kind| kind.name() == section);
            match (kind, value) {
                (Some(kind), Value::Array(items)) => objects.extend(items.iter().map(|item| {
                    let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
                    (Key::new(kind, name), item.clone())
                })),
                _ => objects.push((Key::new(Kind::Section, section), value.clone())),
            }
        }
        Self { objects, digest, config: None }
    }

    /// The same with the configuration that was made of it, which then need not be read again.
    pub fn loaded(loaded: &Loaded) -> Self {
        let config = Some(Arc::new(loaded.config.clone()));
        Self { config, ..Self::of(&loaded.document) }
    }

    /// Its objects, and the configuration that was made of them.
    pub(crate) fn read(&self) -> Option<(&[(Key, Value)], &Config)> {
        Some((&self.objects, self.config.as_deref()?))
    }

    /// What tells it from another.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// What tells one content of a file from another. The order of checks, services and pools is not
/// part of it, since it means nothing.
pub(crate) fn digest(document: &Document) -> String {
    let mut sorted = document.clone();
    for kind in [Kind::Check, Kind::Service, Kind::Pool] {
        if let Some(Value::Array(items)) = sorted.get_mut(kind.name()) {
            let name = |item: &Value| item.get("name").map(Value::to_string);
            items.sort_by_cached_key(name);
        }
    }
    let text = document::to_toml(&sorted, &|_, _| None);
    format!("{:08x}-{:x}", crc32c::crc32c(text.as_bytes()), text.len())
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// These edits, all of them or none.
    Edits(Vec<Edit>),
    /// The state of that epoch again.
    Rollback(u64),
    /// The file was read.
    File(FileContent),
}

/// Somebody's wish.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Whose.
    pub by: Author,
    /// The epoch that must be in force for it to hold.
    pub if_epoch: Option<u64>,
    /// Whether it is only asked what would change.
    pub dry_run: bool,
    /// Whether a service may take what the machine itself listens on. Judged by who compiles.
    pub force: bool,
    /// What.
    pub what: What,
}

/// A script check runs a program with the director's rights. Who may write the file may do that
/// anyway; who has a token of the API may not.
fn only_the_file_runs_programs(
    by: &Author,
    key: &Key,
    value: &Value,
    pointer: &str,
) -> Result<(), Refusal> {
    let is_script = || value.get("kind").and_then(Value::as_str) == Some("script");
    if by.source == Source::File || key.kind != Kind::Check || !is_script() {
        return Ok(());
    }
    let detail = format!("{key} would run a program, and only the configuration file may say so");
    Err(Refusal::field(format!("{pointer}/kind"), detail, "put it in the file and reload"))
}

/// A state that is being changed, and the steps so far.
struct Draft<'s> {
    state: &'s mut State,
    steps: Vec<Change>,
    /// Services whose endpoints may have changed, with where the request speaks of them.
    touched: HashMap<String, String>,
    /// The places behind the last objects, once they have been looked for.
    ends: HashMap<(Source, Kind), u32>,
}

/// Changes the state by edits, and gives the steps that were taken.
///
/// # Errors
///
/// When one of the edits may not be made; the state is as it was then.
pub fn stage(state: &mut State, by: &Author, edits: &[Edit]) -> Result<Vec<Change>, Refusal> {
    drafted(state, |draft| edits.iter().try_for_each(|edit| draft.edit(by, edit)))
}

/// Puts what a file says in the place of what the file said before.
///
/// # Errors
///
/// When it wants what belongs to another source; the state is as it was then.
pub(crate) fn stage_file(state: &mut State, file: &FileContent) -> Result<Vec<Change>, Refusal> {
    drafted(state, |draft| draft.replace_file(file))
}

/// What a reload with this file would change.
///
/// # Errors
///
/// When it wants what belongs to another source.
pub fn file_changes(state: &State, file: &FileContent) -> Result<Vec<Change>, Refusal> {
    let mut steps = stage_file(&mut state.clone(), file)?;
    steps.retain(|step| !matches!(step, Change::File { .. }));
    Ok(steps)
}

/// Makes the state that of another one, but for which file was read.
pub(crate) fn stage_rollback(state: &mut State, to: &State) -> Result<Vec<Change>, Refusal> {
    let steps = diff::between(state, to);
    drafted(state, |draft| steps.iter().try_for_each(|step| draft.take(step)))
}

fn drafted(
    state: &mut State,
    work: impl FnOnce(&mut Draft<'_>) -> Result<(), Refusal>,
) -> Result<Vec<Change>, Refusal> {
    let mut draft =
        Draft { state, steps: Vec::new(), touched: HashMap::new(), ends: HashMap::new() };
    match work(&mut draft).and_then(|()| draft.check_rivals()) {
        Ok(()) => Ok(draft.steps),
        Err(refusal) => {
            let steps = std::mem::take(&mut draft.steps);
            draft.state.undo(&steps);
            Err(refusal)
        }
    }
}

impl Draft<'_> {
    fn take(&mut self, step: &Change) -> Result<(), Refusal> {
        let taken = self.state.apply(step);
        let taken = taken.map_err(|it| Refusal::new(RefusalKind::Invalid, it.to_string()))?;
        self.steps.push(taken);
        Ok(())
    }

    fn edit(&mut self, by: &Author, edit: &Edit) -> Result<(), Refusal> {
        match edit {
            Edit::Put { key, value, pointer } => {
                let value = read(key, value, pointer)?;
                only_the_file_runs_programs(by, key, &value, pointer)?;
                self.put(by, key, value, None, pointer)
            }
            Edit::Delete(key) => self.delete(by, key),
            Edit::PutReal { service, real, value } => self.put_real(by, service, *real, value),
            Edit::DeleteReal { service, real } => {
                let object = self.owned_service(by, service)?;
                let (at, _) = find(&object.value, service, *real)?;
                self.replace_real(by, service, &object, at, None)
            }
            Edit::Override { service, real, patch } => self.say(service, *real, *patch),
        }
    }

    /// Makes or replaces an object. `rank` is its place; without one it keeps its own, or comes
    /// last.
    fn put(
        &mut self,
        by: &Author,
        key: &Key,
        value: Value,
        rank: Option<u32>,
        pointer: &str,
    ) -> Result<(), Refusal> {
        let before = self.state.object(key).cloned();
        if let Some(before) = before.as_ref().filter(|it| it.owner.source != by.source) {
            return Err(Refusal::owned(&key.to_string(), &before.owner));
        }
        let own = before.as_ref().map(|object| object.rank);
        let rank = rank.or(own).unwrap_or_else(|| self.next_rank(by.source, key.kind));
        let owner = before.as_ref().map_or_else(|| by.clone(), |before| before.owner.clone());
        let after = Arc::new(Object { owner, rank, value: Arc::new(value) });
        if key.kind == Kind::Service {
            self.touched.insert(key.name.clone(), pointer.to_owned());
        }
        self.become_(key, before.as_ref(), Some(&after))
    }

    fn delete(&mut self, by: &Author, key: &Key) -> Result<(), Refusal> {
        let before = self.state.object(key).cloned().ok_or_else(|| Refusal::not_found(key))?;
        if before.owner.source != by.source {
            return Err(Refusal::owned(&key.to_string(), &before.owner));
        }
        self.become_(key, Some(&before), None)
    }

    /// Takes the steps between two objects, and takes overrides back that have lost their ground.
    fn become_(
        &mut self,
        key: &Key,
        before: Option<&Arc<Object>>,
        after: Option<&Arc<Object>>,
    ) -> Result<(), Refusal> {
        for step in diff::object(key, before, after) {
            self.take(&step)?;
        }
        if key.kind != Kind::Service {
            return Ok(());
        }
        let real_of = |object: Option<&Arc<Object>>, wanted: SocketAddr| {
            let service = &object?.value;
            reals_of(service).iter().find(|it| real_key(service, it) == Some(wanted)).cloned()
        };
        let groundless: Vec<_> = self
            .state
            .overrides_of(&key.name)
            .filter(|(real, _)| {
                let now = real_of(after, *real);
                now.is_none() || now != real_of(before, *real)
            })
            .collect();
        for (real, over) in groundless {
            let service = key.name.clone();
            self.take(&Change::Override { service, real, before: Some(over), after: None })?;
        }
        Ok(())
    }

    fn next_rank(&mut self, source: Source, kind: Kind) -> u32 {
        let state = &*self.state;
        let end = self.ends.entry((source, kind)).or_insert_with(|| {
            let alike = state.objects().iter();
            let alike = alike.filter(|(key, it)| key.kind == kind && it.owner.source == source);
            alike.map(|(_, object)| object.rank + 1).max().unwrap_or(0)
        });
        *end += 1;
        *end - 1
    }

    fn service(&self, name: &str) -> Result<Arc<Object>, Refusal> {
        let key = Key::new(Kind::Service, name);
        self.state.object(&key).cloned().ok_or_else(|| Refusal::not_found(&key))
    }

    fn owned_service(&self, by: &Author, name: &str) -> Result<Arc<Object>, Refusal> {
        let object = self.service(name)?;
        if object.owner.source == by.source {
            return Ok(object);
        }
        let mut refusal = Refusal::owned(&format!("service {name:?}"), &object.owner);
        refusal.detail += "; the weight and the state of its real servers can be overridden \
                           (`sluice real set`, `drain`, `enable`)";
        Err(refusal)
    }

    fn put_real(
        &mut self,
        by: &Author,
        service: &str,
        real: (IpAddr, Option<u16>),
        value: &Value,
    ) -> Result<(), Refusal> {
        let object = self.owned_service(by, service)?;
        let value = named_real(real, value)?;
        match find(&object.value, service, real) {
            Ok((at, _)) => self.replace_real(by, service, &object, at, Some(value)),
            Err(refusal) if refusal.kind != RefusalKind::NotFound => Err(refusal),
            Err(_) => {
                let at = reals_of(&object.value).len();
                self.replace_real(by, service, &object, at, Some(value))
            }
        }
    }

    /// Puts `value` in the place of the real server at `at`, behind the last one, or takes it away.
    fn replace_real(
        &mut self,
        by: &Author,
        service: &str,
        object: &Arc<Object>,
        at: usize,
        value: Option<Value>,
    ) -> Result<(), Refusal> {
        let mut whole = Value::clone(&object.value);
        let mut reals = reals_of(&whole).to_vec();
        match value {
            Some(value) if at < reals.len() => reals[at] = value,
            Some(value) => reals.push(value),
            None => drop(reals.remove(at)),
        }
        if let Value::Object(table) = &mut whole {
            table.insert("real".to_owned(), Value::Array(reals));
            if table.get("real").is_some_and(|list| list.as_array().is_some_and(Vec::is_empty)) {
                table.remove("real");
            }
        }
        let key = Key::new(Kind::Service, service);
        let whole = read(&key, &whole, "").map_err(|refusal| of_real(refusal, at))?;
        self.put(by, &key, whole, None, "")
    }

    fn say(
        &mut self,
        service: &str,
        real: (IpAddr, Option<u16>),
        patch: OverridePatch,
    ) -> Result<(), Refusal> {
        let object = self.service(service)?;
        let (at, real) = find(&object.value, service, real)?;
        let value = &reals_of(&object.value)[at];
        let before = self.state.over(service, real);
        let mut after = patch.onto(before.unwrap_or_default());
        let is_down = value.get("down").and_then(Value::as_bool).unwrap_or(false);
        if after.state == Some(RealState::Up) && !is_down {
            after.state = None;
        }
        if after.weight.map(u64::from) == Some(configured_weight(value)) {
            after.weight = None;
        }
        let after = Some(after).filter(|after| !after.is_empty());
        if before == after {
            return Ok(());
        }
        self.take(&Change::Override { service: service.to_owned(), real, before, after })
    }

    fn replace_file(&mut self, file: &FileContent) -> Result<(), Refusal> {
        let by = Author::of(Source::File);
        let wanted: BTreeSet<&Key> = file.objects.iter().map(|(key, _)| key).collect();
        let former =
            self.state.objects().iter().filter(|(key, object)| {
                object.owner.source == Source::File && !wanted.contains(key)
            });
        let former: Vec<Key> = former.map(|(key, _)| key.clone()).collect();
        for key in &former {
            self.delete(&by, key)?;
        }
        let mut ranks: HashMap<Kind, u32> = HashMap::new();
        for (key, value) in &file.objects {
            let rank = ranks.entry(key.kind).or_insert(0);
            self.put(&by, key, value.clone(), Some(*rank), "")?;
            *rank += 1;
        }
        let digest = Some(file.digest.clone());
        if self.state.file() != digest.as_deref() {
            self.take(&Change::File { before: None, after: digest })?;
        }
        Ok(())
    }

    /// Refuses services that take what another owner's service takes already. What two services
    /// of one owner have in common is found by the check of the whole.
    fn check_rivals(&self) -> Result<(), Refusal> {
        for (name, pointer) in &self.touched {
            let own = self.state.object(&Key::new(Kind::Service, name));
            let Some(rival) = self.state.rival(name) else { continue };
            let other = self.state.object(&Key::new(Kind::Service, rival));
            let (Some(own), Some(other)) = (own, other) else { continue };
            if own.owner.source == other.owner.source {
                continue;
            }
            let what = format!(
                "what service {name:?} wants (protocol, vip and port) is taken by service \
                 {rival:?}, which"
            );
            let mut refusal = Refusal::owned(&what, &other.owner);
            if !pointer.is_empty() {
                let (detail, hint) = (refusal.detail.clone(), "use another vip or port".to_owned());
                let pointer = format!("{pointer}/port");
                refusal.faults = vec![crate::FieldFault { pointer, detail, hint }];
            }
            return Err(refusal);
        }
        Ok(())
    }
}
