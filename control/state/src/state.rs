//! The desired state as a value: what there is, and how single steps change it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;

use crate::change::Change;
use crate::object::{Key, Kind, Object, Override, reals_of};

/// Everything that the director is to do.
#[derive(Clone, Debug, Default)]
pub struct State {
    objects: BTreeMap<Key, Arc<Object>>,
    overrides: BTreeMap<(String, SocketAddr), Override>,
    file: Option<String>,
    /// Which services take packets of the same network, protocol, address and ports.
    claims: HashMap<Claim, Vec<String>>,
}

/// What two services may not both have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    /// Empty for the default one.
    network: String,
    protocol: String,
    vip: IpAddr,
    ports: String,
}

/// A step that does not fit the state that it was applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change does not fit what was there: {0}")]
pub struct Mismatch(String);

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.objects == other.objects
            && self.overrides == other.overrides
            && self.file == other.file
    }
}

impl State {
    /// A state of these parts.
    pub(crate) fn of(
        objects: impl IntoIterator<Item = (Key, Arc<Object>)>,
        overrides: impl IntoIterator<Item = ((String, SocketAddr), Override)>,
        file: Option<String>,
    ) -> Self {
        let mut state =
            Self { overrides: overrides.into_iter().collect(), file, ..Self::default() };
        for (key, object) in objects {
            state.set(&key, Some(object));
        }
        state
    }

    /// An object.
    pub fn object(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// All objects, by kind and name.
    pub fn objects(&self) -> &BTreeMap<Key, Arc<Object>> {
        &self.objects
    }

    /// All objects in the order in which they count: by kind; those of the file first, in its
    /// order.
    pub fn in_order(&self) -> Vec<(&Key, &Arc<Object>)> {
        let mut all: Vec<_> = self.objects.iter().collect();
        all.sort_by_key(|(key, object)| (key.kind, object.owner.source, object.rank));
        all
    }

    /// All overrides, by service and real server.
    pub fn overrides(&self) -> &BTreeMap<(String, SocketAddr), Override> {
        &self.overrides
    }

    /// The overrides of a service's real servers.
    pub fn overrides_of(&self, service: &str) -> impl Iterator<Item = (SocketAddr, Override)> {
        // The least address there is: IPv4 sorts before IPv6.
        let first = (service.to_owned(), SocketAddr::from(([0, 0, 0, 0], 0)));
        let name = service.to_owned();
        let from = self.overrides.range(first..).take_while(move |((at, _), _)| *at == name);
        from.map(|((_, real), over)| (*real, *over))
    }

    /// What an operator says of a real server.
    pub fn over(&self, service: &str, real: SocketAddr) -> Option<Override> {
        self.overrides.get(&(service.to_owned(), real)).copied()
    }

    /// Digest of the file that was read last.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Another service that takes the same packets as this one.
    pub fn rival(&self, service: &str) -> Option<&str> {
        let object = self.objects.get(&Key::new(Kind::Service, service))?;
        let claimants = self.claims.get(&claim(&object.value)?)?;
        claimants.iter().map(String::as_str).find(|name| *name != service)
    }

    /// The service that takes just these packets of the default network: protocol, virtual address
    /// and ports, a number, a range such as `8000-8099`, or nothing for all.
    pub fn claimant(&self, protocol: &str, vip: IpAddr, ports: &str) -> Option<&str> {
        let (protocol, ports) = (protocol.to_owned(), ports.to_owned());
        let claim = Claim { network: String::new(), protocol, vip, ports };
        self.claims.get(&claim)?.first().map(String::as_str)
    }

    /// Takes a step, and gives it back with what was there before.
    ///
    /// # Errors
    ///
    /// When it does not fit what is there; nothing has changed then.
    pub fn apply(&mut self, change: &Change) -> Result<Change, Mismatch> {
        Ok(match change {
            Change::Object { key, after, .. } => {
                let before = self.set(key, after.clone());
                Change::Object { key: key.clone(), before, after: after.clone() }
            }
            Change::Real { service, real, at, before, after } => {
                let before = self.set_real(service, *at, before.is_some(), after.as_ref())?;
                let (service, after) = (service.clone(), after.clone());
                Change::Real { service, real: *real, at: *at, before, after }
            }
            Change::Override { service, real, after, .. } => {
                let place = (service.clone(), *real);
                let before = match after {
                    Some(over) => self.overrides.insert(place, *over),
                    None => self.overrides.remove(&place),
                };
                Change::Override { service: service.clone(), real: *real, before, after: *after }
            }
            Change::File { after, .. } => {
                let before = std::mem::replace(&mut self.file, after.clone());
                Change::File { before, after: after.clone() }
            }
        })
    }

    /// Takes steps back, the last one first.
    pub(crate) fn undo(&mut self, changes: &[Change]) {
        for change in changes.iter().rev() {
            let undone = self.apply(&change.inverse());
            debug_assert!(undone.is_ok(), "{undone:?}");
        }
    }

    fn set(&mut self, key: &Key, object: Option<Arc<Object>>) -> Option<Arc<Object>> {
        let claimed = object.as_ref().and_then(|object| claim(&object.value));
        let before = match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        };
        if key.kind == Kind::Service {
            let former = before.as_ref().and_then(|object| claim(&object.value));
            if former != claimed {
                self.unclaim(former, &key.name);
                if let Some(claim) = claimed {
                    self.claims.entry(claim).or_default().push(key.name.clone());
                }
            }
        }
        before
    }

    fn unclaim(&mut self, former: Option<Claim>, name: &str) {
        let Some(former) = former else { return };
        if let Some(claimants) = self.claims.get_mut(&former) {
            claimants.retain(|claimant| claimant != name);
            if claimants.is_empty() {
                self.claims.remove(&former);
            }
        }
    }

    /// Replaces, inserts or takes away the real server at a place.
    fn set_real(
        &mut self,
        service: &str,
        at: usize,
        is_there: bool,
        after: Option<&Value>,
    ) -> Result<Option<Value>, Mismatch> {
        let misfit = |what: &str| Mismatch(format!("service {service:?}: {what}"));
        let key = Key::new(Kind::Service, service);
        let object = self.objects.get_mut(&key).ok_or_else(|| misfit("there is none"))?;
        let count = reals_of(&object.value).len();
        if at >= count + usize::from(!is_there) {
            return Err(misfit(&format!("there is no place {at} among {count} real servers")));
        }
        // The network, the protocol, the address and the port stay, and so does what it claims.
        let table = Arc::make_mut(&mut Arc::make_mut(object).value).as_object_mut();
        let table = table.ok_or_else(|| misfit("it is no table"))?;
        let list = table.entry("real").or_insert_with(|| Value::Array(Vec::new()));
        let list = list.as_array_mut().ok_or_else(|| misfit("its real servers are no list"))?;
        let before = match (is_there, after) {
            (true, Some(after)) => Some(std::mem::replace(&mut list[at], after.clone())),
            (true, None) => Some(list.remove(at)),
            (false, Some(after)) => {
                list.insert(at, after.clone());
                None
            }
            (false, None) => return Err(misfit("nothing becomes nothing")),
        };
        if list.is_empty() {
            table.remove("real");
        }
        Ok(before)
    }
}

fn claim(service: &Value) -> Option<Claim> {
    let network = service.get("network").map_or(Some(""), Value::as_str)?.to_owned();
    let protocol = service.get("protocol")?.as_str()?.to_owned();
    let vip = service.get("vip")?.as_str()?.parse().ok()?;
    let ports = match service.get("port") {
        None => String::new(),
        Some(Value::String(text)) => match text.split_once('-') {
            Some((first, last)) if first.trim() == last.trim() => first.trim().to_owned(),
            Some((first, last)) => format!("{}-{}", first.trim(), last.trim()),
            None => text.clone(),
        },
        Some(other) => other.to_string(),
    };
    Some(Claim { network, protocol, vip, ports })
}
