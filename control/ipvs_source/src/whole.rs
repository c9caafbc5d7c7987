//! What belongs to no service of ours: `[ipvs]` of the desired state, with services by firewall
//! marks, timeouts and the daemons of the synchronisation.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use sluice_config::{MarkDestination, Mode};
use sluice_ipvs::{
    Daemon, Destination, Errno, Family, Method, Protocol, Request, Role, Service, ServiceKey,
    ServiceSpec, Stats, Timeouts, Tunnel,
};
use sluice_state::{Author, Edit, IPVS, Key, Kind, Refusal, Source, State};

use crate::name::{service_name, shown};
use crate::refused::Refused;
use crate::seen::{self, number, text};
use crate::tunnel;
use crate::write::{self, Table, endpoint};

/// The longest timeout in seconds.
const LONGEST_S: u32 = 86_400;

/// The section, and a source of its own that may change it.
struct Section {
    table: Table,
    owner: Option<Author>,
}

fn section(state: &State) -> Section {
    let object = state.object(&Key::new(Kind::Section, IPVS));
    let table = object.and_then(|object| object.value.as_object().cloned());
    Section { table: table.unwrap_or_default(), owner: object.map(|object| object.owner.clone()) }
}

impl Section {
    /// The section, if this source may change it.
    fn own(self) -> Result<Self, Refused> {
        match &self.owner {
            Some(owner) if owner.source != Source::Ipvsadm => {
                Err(Refusal::owned("[ipvs]", owner).into())
            }
            _ => Ok(self),
        }
    }

    fn list(&self, name: &str) -> &[Value] {
        self.table.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The section with another list.
    fn with(mut self, name: &str, list: Vec<Value>) -> Vec<Edit> {
        self.table.shift_remove(name);
        if !list.is_empty() {
            self.table.insert(name.to_owned(), list.into());
        }
        self.put()
    }

    /// What makes the state's section this one.
    fn put(self) -> Vec<Edit> {
        let key = Key::new(Kind::Section, IPVS);
        match (self.table.is_empty(), self.owner.is_some()) {
            (true, true) => vec![Edit::Delete(key)],
            (true, false) => Vec::new(),
            (false, _) => {
                let value = Value::Object(self.table);
                vec![Edit::Put { key, value, pointer: String::new() }]
            }
        }
    }
}

fn family_of(mark: &Value) -> Family {
    if text(mark, "family") == Some("ipv6") { Family::Ipv6 } else { Family::Ipv4 }
}

fn is(mark: &Value, key: &ServiceKey) -> bool {
    *key == ServiceKey::Mark { mark: number(mark, "mark"), family: family_of(mark) }
}

/// The services by firewall marks.
pub(crate) fn marks(state: &State) -> Vec<Service> {
    let section = section(state);
    let owner = section.owner.as_ref().map_or("", |owner| owner.source.name());
    section.list("mark").iter().map(|mark| of_mark(mark, owner)).collect()
}

fn of_mark(mark: &Value, owner: &str) -> Service {
    let key = ServiceKey::Mark { mark: number(mark, "mark"), family: family_of(mark) };
    Service {
        spec: seen::balancing(key, mark),
        owner: owner.to_owned(),
        name: service_name(&key),
        stats: Stats::default(),
        destinations: destinations(mark).map(|it| shown_destination(&it)).collect(),
    }
}

fn destinations(mark: &Value) -> impl Iterator<Item = MarkDestination> {
    let list = mark.get("destinations").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|it| it.as_str()?.parse().ok())
}

fn shown_destination(it: &MarkDestination) -> Destination {
    Destination {
        address: it.at.ip(),
        port: it.at.port(),
        method: method(it.mode),
        tunnel: tunnel::of_mode(it.mode.name()).unwrap_or(Tunnel::IPIP),
        weight: it.weight.into(),
        upper: it.upper,
        lower: it.lower,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    }
}

const fn method(mode: Mode) -> Method {
    match mode {
        Mode::Fnat => Method::FullNat,
        Mode::Nat => Method::Masq,
        Mode::Dr => Method::Route,
        Mode::Snat => Method::Snat,
        _ => Method::Tunnel,
    }
}

/// Commands about a service by a firewall mark.
pub(crate) fn mark(
    state: &State,
    key: &ServiceKey,
    request: &Request,
) -> Result<Vec<Edit>, Refused> {
    let section = section(state);
    let mut marks = section.list("mark").to_vec();
    let at = marks.iter().position(|mark| is(mark, key));
    if let Request::AddService(spec) = request {
        if at.is_some() {
            let detail = format!("there is a service {} already", shown(key));
            return Err(Refused::new(Errno::Exist, detail));
        }
        marks.push(new_mark(spec, None)?);
        return Ok(section.own()?.with("mark", marks));
    }
    let at = at.ok_or_else(|| Refused::no_service(key))?;
    match request {
        Request::EditService(spec) => marks[at] = new_mark(spec, Some(&marks[at]))?,
        Request::DeleteService(_) => drop(marks.remove(at)),
        Request::AddDestination(_, it) => change(&mut marks[at], key, Step::Add(it))?,
        Request::EditDestination(_, it) => change(&mut marks[at], key, Step::Edit(it))?,
        Request::DeleteDestination(_, at_real) => {
            change(&mut marks[at], key, Step::Delete(*at_real))?;
        }
        _ => {
            let detail = format!("{} takes no packets, so it needs none", shown(key));
            return Err(Refused::invalid(detail));
        }
    }
    Ok(section.own()?.with("mark", marks))
}

fn new_mark(spec: &ServiceSpec, before: Option<&Value>) -> Result<Value, Refused> {
    let ServiceKey::Mark { mark, family } = spec.key else {
        return Err(Refused::no_service(&spec.key));
    };
    if mark == 0 {
        return Err(Refused::invalid("0 is no firewall mark"));
    }
    let mut value = Table::new();
    value.insert("mark".to_owned(), mark.into());
    if family == Family::Ipv6 {
        value.insert("family".to_owned(), "ipv6".into());
    }
    write::balancing(spec, &mut value, before)?;
    if let Some(list) = before.and_then(|before| before.get("destinations")) {
        value.insert("destinations".to_owned(), list.clone());
    }
    Ok(value.into())
}

enum Step<'r> {
    Add(&'r Destination),
    Edit(&'r Destination),
    Delete((IpAddr, u16)),
}

fn change(mark: &mut Value, key: &ServiceKey, step: Step<'_>) -> Result<(), Refused> {
    let mut all: Vec<_> = destinations(mark).collect();
    let (address, port) = match step {
        Step::Add(it) | Step::Edit(it) => (it.address, it.port),
        Step::Delete(at) => at,
    };
    let wanted = SocketAddr::new(address, port);
    let written = |it: &Destination| -> Result<MarkDestination, Refused> {
        let word = write::mode(key, it)?;
        let modes = [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip];
        let mode = modes.into_iter().find(|mode| mode.name() == word).unwrap_or_default();
        let weight = u16::try_from(it.weight).unwrap_or(u16::MAX);
        Ok(MarkDestination { at: wanted, mode, weight, upper: it.upper, lower: it.lower })
    };
    // As the kernel, which looks at the numbers first.
    let value = match step {
        Step::Add(it) | Step::Edit(it) => Some(written(it)?),
        Step::Delete(_) => None,
    };
    let at = all.iter().position(|it| it.at == wanted);
    match (step, at) {
        (Step::Add(_), None) => all.extend(value),
        (Step::Add(_), Some(_)) => {
            let detail =
                format!("{} is a destination of {} already", endpoint(address, port), shown(key));
            return Err(Refused::new(Errno::Exist, detail));
        }
        (_, Some(at)) => drop(all.splice(at..=at, value)),
        (_, None) => return Err(Refused::no_destination(key, (address, port))),
    }
    let Some(mark) = mark.as_object_mut() else { return Err(Refused::no_service(key)) };
    mark.shift_remove("destinations");
    if !all.is_empty() {
        let list: Vec<Value> = all.iter().map(|it| it.to_string().into()).collect();
        mark.insert("destinations".to_owned(), list.into());
    }
    Ok(())
}

/// The section without services.
pub(crate) fn flush_marks(state: &State) -> Vec<Edit> {
    let section = section(state);
    let is_own = section.owner.as_ref().is_some_and(|owner| owner.source == Source::Ipvsadm);
    if is_own && !section.list("mark").is_empty() {
        return section.with("mark", Vec::new());
    }
    Vec::new()
}

/// Other timeouts; 0 keeps what is.
pub(crate) fn set_timeouts(state: &State, wanted: &Timeouts) -> Result<Vec<Edit>, Refused> {
    let mut section = section(state).own()?;
    for (name, seconds) in
        [("tcp_s", wanted.tcp_s), ("tcp_fin_s", wanted.tcp_fin_s), ("udp_s", wanted.udp_s)]
    {
        if seconds > LONGEST_S {
            let detail = format!("{name} = {seconds} is above {LONGEST_S}");
            return Err(Refused::invalid(detail));
        }
        if seconds != 0 {
            section.table.insert(name.to_owned(), seconds.into());
        }
    }
    Ok(section.put())
}

/// The daemons that were started.
pub fn daemons(state: &State) -> Vec<Daemon> {
    let section = section(state);
    let byte = |it: &Value, key: &str| u8::try_from(number(it, key)).unwrap_or(u8::MAX);
    let daemon = |it: &Value| Daemon {
        role: role_of(it),
        interface: text(it, "interface").unwrap_or_default().to_owned(),
        sync_id: number(it, "sync_id"),
        maximum_length: u16::try_from(number(it, "maximum_length")).unwrap_or(u16::MAX),
        group: text(it, "group").and_then(|group| group.parse().ok()),
        port: u16::try_from(number(it, "port")).unwrap_or(u16::MAX),
        ttl: byte(it, "ttl"),
    };
    let mut all: Vec<Daemon> = section.list("daemon").iter().map(daemon).collect();
    all.sort_by_key(|daemon| daemon.role);
    all
}

fn role_of(daemon: &Value) -> Role {
    if text(daemon, "role") == Some("master") { Role::Master } else { Role::Backup }
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Backup => "backup",
    }
}

/// Another daemon.
pub(crate) fn start(state: &State, it: &Daemon) -> Result<Vec<Edit>, Refused> {
    let section = section(state);
    let mut all = section.list("daemon").to_vec();
    if it.sync_id > 255 {
        return Err(Refused::invalid(format!("the id {} is above 255", it.sync_id)));
    }
    if all.iter().any(|other| role_of(other) == it.role) {
        let detail = format!("there is a {} daemon already", role_name(it.role));
        return Err(Refused::new(Errno::Exist, detail));
    }
    let mut value = json!({
        "role": role_name(it.role),
        "interface": it.interface,
        "sync_id": it.sync_id,
        "maximum_length": it.maximum_length,
        "port": it.port,
        "ttl": it.ttl,
    });
    if let Some(group) = it.group {
        value["group"] = group.to_string().into();
    }
    all.push(value);
    Ok(section.own()?.with("daemon", all))
}

/// One daemon less.
pub(crate) fn stop(state: &State, role: Role) -> Result<Vec<Edit>, Refused> {
    let section = section(state);
    let mut all = section.list("daemon").to_vec();
    let Some(at) = all.iter().position(|it| role_of(it) == role) else {
        let detail = format!("there is no {} daemon", role_name(role));
        return Err(Refused::new(Errno::Srch, detail));
    };
    all.remove(at);
    Ok(section.own()?.with("daemon", all))
}

/// The parts of the key of a service by what clients connect to.
pub(crate) const fn address_of(key: &ServiceKey) -> Option<(Protocol, IpAddr, u16)> {
    match *key {
        ServiceKey::Address { protocol, address, port } => Some((protocol, address, port)),
        ServiceKey::Mark { .. } | ServiceKey::Match(_) => None,
    }
}
