//! Services by match, DPVS's source NAT, as rules of `[[snat]]`.
//!
//! A destination is an address that sources are translated to: those with a weight are the rule's
//! pool (`local.rs`). What was said is kept in labels, since a rule has neither ranges nor weights.
//! Without a pool a rule is part of the state, but of no plan: its packets stay with the kernel.

use std::net::IpAddr;

use serde_json::Value;
use sluice_config::{AddressRange, Device, Prefix};
use sluice_ipvs::{
    Addresses, Destination, Errno, Family, Match, MatchProtocol, Method, Request, Service,
    ServiceKey, ServiceSpec, Stats, Tunnel, flags,
};
use sluice_state::{Edit, Key, Kind, Refusal, Source, State};

use crate::local;
use crate::name::{service_name, shown};
use crate::refused::Refused;
use crate::seen::text;
use crate::write::{self, Table, endpoint};

/// What is matched, in DPVS's words.
const MATCH: &str = "ipvs.match";
/// The scheduler that was named.
const SCHEDULER: &str = "ipvs.scheduler";
/// Destinations with their weights: `198.51.100.10=100 198.51.100.11=0`.
const ADDRESSES: &str = "ipvs.addresses";

/// A rule that is a service by match.
struct Rule<'s> {
    name: &'s str,
    value: &'s Value,
    is: Match,
}

fn rules(state: &State) -> impl Iterator<Item = Rule<'_>> {
    let objects = state.in_order().into_iter();
    objects.filter_map(|(key, object)| {
        let own = key.kind == Kind::Snat && object.owner.source == Source::Ipvsadm;
        let value = &*object.value;
        let is = write::label(value, MATCH).filter(|_| own)?.parse().ok()?;
        Some(Rule { name: &key.name, value, is })
    })
}

/// The services by match, in the order in which they are tried.
pub fn matches(state: &State) -> Vec<Service> {
    rules(state).map(|rule| seen(&rule)).collect()
}

fn seen(rule: &Rule<'_>) -> Service {
    let destinations = weights(rule.value).map(|(address, weight)| Destination {
        address,
        port: 0,
        method: Method::Snat,
        tunnel: Tunnel::IPIP,
        weight: weight.into(),
        upper: 0,
        lower: 0,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    });
    let key = ServiceKey::Match(rule.is);
    Service {
        spec: ServiceSpec {
            key,
            scheduler: write::label(rule.value, SCHEDULER).unwrap_or("rr").to_owned(),
            flags: flags::HASHED,
            timeout_s: 0,
            netmask: every_bit(key.family()),
            persistence_engine: None,
            settings: None,
        },
        owner: Source::Ipvsadm.name().to_owned(),
        name: rule.name.to_owned(),
        stats: Stats::default(),
        destinations: destinations.collect(),
    }
}

const fn every_bit(family: Family) -> u32 {
    match family {
        Family::Ipv4 => u32::MAX,
        Family::Ipv6 => 128,
    }
}

/// A rule's destinations and their weights.
fn weights(rule: &Value) -> impl Iterator<Item = (IpAddr, u16)> {
    let list = write::label(rule, ADDRESSES).unwrap_or_default();
    list.split_whitespace().filter_map(|text| {
        let (address, weight) = text.split_once('=')?;
        Some((address.parse().ok()?, weight.parse().ok()?))
    })
}

/// The addresses that a rule's pool is to have.
pub(crate) fn used(rule: &Value) -> impl Iterator<Item = IpAddr> {
    weights(rule).filter(|(_, weight)| *weight > 0).map(|(address, _)| address)
}

/// Commands about a service by match.
pub(crate) fn change(state: &State, it: Match, request: &Request) -> Result<Vec<Edit>, Refused> {
    let key = ServiceKey::Match(it);
    let rule = rules(state).find(|rule| rule.is == it);
    if let Request::AddService(spec) = request {
        return match rule {
            Some(rule) => {
                let detail = format!("{} is rule {:?} already", shown(&key), rule.name);
                Err(Refused::new(Errno::Exist, detail))
            }
            None => add(state, it, spec),
        };
    }
    let rule = rule.ok_or_else(|| Refused::no_service(&key))?;
    let object = Key::new(Kind::Snat, rule.name);
    let Some(mut value) = rule.value.as_object().cloned() else {
        return Err(Refused::no_service(&key));
    };
    match request {
        Request::DeleteService(_) => {
            let mut edits = vec![Edit::Delete(object.clone())];
            edits.extend(local::settle(state, &object, None));
            return Ok(edits);
        }
        Request::EditService(spec) => {
            write::set_label(&mut value, SCHEDULER, Some(scheduler(spec)?.to_owned()));
        }
        Request::AddDestination(_, to) => weigh(state, &rule, &mut value, Step::Add(to))?,
        Request::EditDestination(_, to) => weigh(state, &rule, &mut value, Step::Edit(to))?,
        Request::DeleteDestination(_, at) => weigh(state, &rule, &mut value, Step::Delete(*at))?,
        Request::AddLocal(..) | Request::DeleteLocal(..) => {
            let detail = "a service by match (-H) has no local addresses: its destinations are \
                          what sources become (-a -H … -r ADDRESS:0 -J)";
            return Err(Refused::invalid(detail));
        }
        _ => {
            let detail = "a service by match (-H) has no lists of clients: src-range says who \
                          goes out by it";
            return Err(Refused::invalid(detail));
        }
    }
    Ok(local::settle(state, &object, Some(value.into())))
}

fn add(state: &State, it: Match, spec: &ServiceSpec) -> Result<Vec<Edit>, Refused> {
    let scheduler = scheduler(spec)?;
    let key = Key::new(Kind::Snat, service_name(&spec.key));
    if let Some(other) = state.object(&key) {
        let what = format!("there is a {key} already, which");
        return Err(match other.owner.source {
            Source::Ipvsadm => Refused::new(Errno::Exist, what + " matches something else"),
            _ => Refusal::owned(&what, &other.owner).into(),
        });
    }
    let mut value = Table::new();
    let mut put = |key: &str, it: Value| drop(value.insert(key.to_owned(), it));
    put("name", key.name.as_str().into());
    put("sources", networks(it.family(), it.sources()));
    if it.destinations().is_some() {
        put("destinations", networks(it.family(), it.destinations()));
    }
    let protocol = match it.protocol() {
        MatchProtocol::Tcp => "tcp",
        MatchProtocol::Udp => "udp",
        MatchProtocol::Icmp | MatchProtocol::Icmpv6 => "icmp",
    };
    put("protocols", vec![Value::from(protocol)].into());
    if let Some(name) = it.egress() {
        put("egress", port(state, name)?.into());
    }
    write::set_label(&mut value, MATCH, Some(it.to_string()));
    write::set_label(&mut value, SCHEDULER, Some(scheduler.to_owned()));
    let value = value.into();
    // Those of other sources are tried first.
    let before = state.objects().iter().find(|(key, object)| {
        key.kind == Kind::Snat
            && object.owner.source != Source::Ipvsadm
            && covers(&object.value, &value)
    });
    if let Some((rule, object)) = before {
        let what = format!("{} would never match: {rule} takes all of it, which", shown(&spec.key));
        return Err(Refusal::owned(&what, &object.owner).into());
    }
    Ok(local::settle(state, &key, Some(value)))
}

/// The scheduler of a service that says no more than a rule can have.
fn scheduler(spec: &ServiceSpec) -> Result<&str, Refused> {
    let of_scheduler = flags::SCHEDULER_1 | flags::SCHEDULER_2 | flags::SCHEDULER_3;
    let more = [
        (
            spec.flags & flags::PERSISTENT != 0,
            "-p: what one inside address and port opens keeps \
                                               its source while any of it is open",
        ),
        (spec.flags & flags::ONE_PACKET != 0, "-o: datagrams have sessions"),
        (spec.flags & of_scheduler != 0, "-b: addresses take turns, whatever the scheduler"),
        (spec.persistence_engine.is_some(), "--pe: there is no persistence"),
        (spec.settings.is_some(), "settings of connections to real servers: it has none"),
    ];
    if let Some((_, why)) = more.iter().find(|(said, _)| *said) {
        return Err(Refused::invalid(format!("a service by match (-H) does not take {why}")));
    }
    write::known_scheduler(&spec.scheduler)
}

fn networks(family: Family, range: Option<Addresses>) -> Value {
    let Some(range) = range.and_then(|(first, last)| AddressRange::new(first, last)) else {
        let all = if family == Family::Ipv4 { "0.0.0.0/0" } else { "::/0" };
        return vec![Value::from(all)].into();
    };
    let list: Vec<Value> = range.prefixes().iter().map(|it| it.to_string().into()).collect();
    list.into()
}

/// The port that a name stands for: its own, or that of the interface behind it.
fn port(state: &State, name: &str) -> Result<String, Refused> {
    let section = state.object(&Key::new(Kind::Section, "port"));
    let list = section.and_then(|object| object.value.as_array()).into_iter().flatten();
    let ports: Vec<(&str, Vec<String>)> =
        list.filter_map(|port| Some((text(port, "name")?, interfaces(port)))).collect();
    let by_name = ports.iter().find(|(port, _)| *port == name);
    let behind = || ports.iter().find(|(_, interfaces)| interfaces.iter().any(|it| it == name));
    if let Some((port, _)) = by_name.or_else(behind) {
        return Ok((*port).to_owned());
    }
    let known = ports.iter().map(|(port, interfaces)| match interfaces.first() {
        Some(interface) => format!("{port} ({interface})"),
        None => (*port).to_owned(),
    });
    let known = known.collect::<Vec<_>>().join(", ");
    let detail = format!("no port is called {name:?}, and none has that interface; ports: {known}");
    Err(Refused::invalid(detail))
}

/// The interfaces of a port: that on which Linux sees its traffic first.
fn interfaces(port: &Value) -> Vec<String> {
    let twin = text(port, "twin").map(str::to_owned);
    let device = text(port, "device").and_then(|device| device.parse::<Device>().ok());
    let own = device.and_then(|device| device.interface().map(str::to_owned));
    twin.into_iter().chain(own).collect()
}

/// Whether everything that one rule matches another does, too.
fn covers(whole: &Value, part: &Value) -> bool {
    let list = |rule: &Value, key: &str| -> Option<Vec<String>> {
        let items = rule.get(key)?.as_array()?.iter();
        Some(items.filter_map(|item| item.as_str().map(str::to_owned)).collect())
    };
    let within = |key: &str| {
        let Some(wide) = list(whole, key) else { return true };
        let read = |all: Vec<String>| -> Vec<Prefix> {
            all.iter().filter_map(|text| text.parse().ok()).collect()
        };
        let (wide, narrow) = (read(wide), read(list(part, key).unwrap_or_default()));
        let inside = |it: &Prefix| {
            let range = it.range();
            let has = |wide: &Prefix| {
                wide.range().contains(range.first()) && wide.range().contains(range.last())
            };
            wide.iter().any(has)
        };
        !narrow.is_empty() && narrow.iter().all(inside)
    };
    let protocols = list(whole, "protocols").is_none_or(|wide| {
        list(part, "protocols").unwrap_or_default().iter().all(|it| wide.contains(it))
    });
    let egress = text(whole, "egress").is_none_or(|egress| text(part, "egress") == Some(egress));
    protocols && egress && within("sources") && within("destinations")
}

enum Step<'r> {
    Add(&'r Destination),
    Edit(&'r Destination),
    Delete((IpAddr, u16)),
}

/// Puts a destination and its weight among those of a rule, or takes it away.
fn weigh(state: &State, rule: &Rule<'_>, value: &mut Table, step: Step<'_>) -> Result<(), Refused> {
    let key = ServiceKey::Match(rule.is);
    let (at, weight) = match step {
        Step::Add(to) | Step::Edit(to) => ((to.address, to.port), Some(sound(state, &key, to)?)),
        Step::Delete(at) => (at, None),
    };
    let mut all: Vec<(IpAddr, u16)> = weights(rule.value).collect();
    let place = all.iter().position(|(address, _)| (*address, 0) == at);
    match (&step, place, weight) {
        (Step::Add(_), Some(_), _) => {
            let detail =
                format!("{} is a destination of {} already", endpoint(at.0, at.1), shown(&key));
            return Err(Refused::new(Errno::Exist, detail));
        }
        (Step::Add(_), None, Some(weight)) => all.push((at.0, weight)),
        (_, Some(place), Some(weight)) => all[place].1 = weight,
        (_, Some(place), None) => drop(all.remove(place)),
        (_, None, _) => return Err(Refused::no_destination(&key, at)),
    }
    let list: Vec<String> =
        all.iter().map(|(address, weight)| format!("{address}={weight}")).collect();
    write::set_label(value, ADDRESSES, (!list.is_empty()).then(|| list.join(" ")));
    Ok(())
}

/// The weight of a destination that may be one.
fn sound(state: &State, key: &ServiceKey, to: &Destination) -> Result<u16, Refused> {
    let at = endpoint(to.address, to.port);
    let refuse = |detail: String| Err(Refused::invalid(detail));
    if to.method != Method::Snat {
        return refuse(format!(
            "{at}: the destinations of a service by match (-H) are source addresses: use -J"
        ));
    }
    if to.port != 0 {
        return refuse(format!("{at}: a source address has all ports: use port 0"));
    }
    if Family::of(to.address) != key.family() {
        return refuse(format!("{} and {} are of different families", to.address, shown(key)));
    }
    if to.upper != 0 || to.lower != 0 {
        return refuse(format!("{at}: a source address has no thresholds (-x, -y)"));
    }
    let weight = write::weight(to)?;
    if weight > 0 {
        local::free(state, to.address)?;
    }
    Ok(weight)
}
