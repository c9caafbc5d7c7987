//! From what was said to what is asked of the director.

use std::net::IpAddr;

use sluice_ipvs::{Destination, List, Method, Request, ServiceKey, ServiceSpec, Stats};

use crate::gather::{Gathered, Subject};
use crate::options::Opt;
use crate::parse::{Columns, Command, Fault, Listing, Locals, What};
use crate::verb::Verb;

/// The scheduler of those that name none.
pub(crate) const SCHEDULER: &str = "wlc";
/// The interface of daemons that name none.
const INTERFACE: &str = "eth0";

/// The command of a verb, once all options are checked.
pub(crate) fn command(verb: Verb, gathered: &Gathered) -> Result<Command, Fault> {
    let numeric = gathered.has(Opt::Numeric);
    let request = match verb {
        Verb::List => return Ok(Command::List(listing(gathered))),
        Verb::Save => return Ok(Command::Save { numeric }),
        Verb::Restore => return Ok(Command::Restore),
        Verb::GetLocal => return Ok(locals(gathered, None)),
        Verb::GetDenied => return Ok(locals(gathered, Some(List::Deny))),
        Verb::GetAllowed => return Ok(locals(gathered, Some(List::Allow))),
        Verb::Flush => Request::Flush,
        Verb::Zero => Request::Zero(key(gathered)),
        Verb::Set => Request::SetTimeouts(gathered.timeouts),
        Verb::StartDaemon => {
            let mut daemon = gathered.daemon.clone();
            if daemon.interface.is_empty() {
                daemon.interface = INTERFACE.to_owned();
            }
            Request::StartDaemon(daemon)
        }
        Verb::StopDaemon => Request::StopDaemon(gathered.daemon.role),
        verb => about_a_service(verb, gathered)?,
    };
    Ok(Command::Change(verb, request))
}

fn about_a_service(verb: Verb, gathered: &Gathered) -> Result<Request, Fault> {
    // The checks have seen to it that what a command needs is there.
    let missing = |what: &str| Fault::usage(format!("no {what} was given"));
    let key = key(gathered).ok_or_else(|| missing("service-address"))?;
    let place = gathered.server.ok_or_else(|| missing("real-server"));
    let local = gathered.additions.local.ok_or_else(|| missing("laddr"));
    let listed = gathered.additions.listed.clone().ok_or_else(|| missing("address"));
    Ok(match verb {
        Verb::AddService => Request::AddService(spec(key, gathered)),
        Verb::EditService => Request::EditService(spec(key, gathered)),
        Verb::DeleteService => Request::DeleteService(key),
        Verb::AddServer => {
            place.map(|place| Request::AddDestination(key, server(key, place, gathered)))?
        }
        Verb::EditServer => {
            place.map(|place| Request::EditDestination(key, server(key, place, gathered)))?
        }
        Verb::AddLocal => Request::AddLocal(key, local?),
        Verb::DeleteLocal => Request::DeleteLocal(key, local?),
        Verb::AddDenied => Request::AddListed(key, List::Deny, listed?),
        Verb::DeleteDenied => Request::DeleteListed(key, List::Deny, listed?),
        Verb::AddAllowed => Request::AddListed(key, List::Allow, listed?),
        Verb::DeleteAllowed => Request::DeleteListed(key, List::Allow, listed?),
        _ => {
            let place = place?;
            let port = place.port.unwrap_or(0);
            Request::DeleteDestination(key, (place.address, port))
        }
    })
}

fn key(gathered: &Gathered) -> Option<ServiceKey> {
    Some(match gathered.subject? {
        Subject::Mark(mark) => ServiceKey::Mark { mark, family: gathered.family },
        Subject::Address(protocol, place) => {
            let port = place.port.unwrap_or(0);
            ServiceKey::Address { protocol, address: place.address, port }
        }
        Subject::Match(it) => ServiceKey::Match(it),
    })
}

const fn port_of(key: ServiceKey) -> u16 {
    match key {
        ServiceKey::Mark { .. } | ServiceKey::Match(_) => 0,
        ServiceKey::Address { port, .. } => port,
    }
}

fn spec(key: ServiceKey, gathered: &Gathered) -> ServiceSpec {
    ServiceSpec {
        key,
        scheduler: gathered.scheduler().to_owned(),
        flags: gathered.flags,
        timeout_s: gathered.timeout_s,
        netmask: gathered.netmask,
        persistence_engine: gathered.engine.clone().filter(|engine| !engine.is_empty()),
        settings: gathered.additions.settings.clone(),
    }
}

/// With direct routing and tunnels a real server has the service's port, whatever was said: the
/// packets keep it.
fn server(key: ServiceKey, place: crate::address::Place, gathered: &Gathered) -> Destination {
    let keeps = matches!(gathered.method, Method::Route | Method::Tunnel);
    let of_address = matches!(key, ServiceKey::Address { .. });
    let port = match keeps && of_address {
        true => port_of(key),
        false => place.port.unwrap_or(0),
    };
    let address: IpAddr = place.address;
    // A service by match has no other.
    let method = match key {
        ServiceKey::Match(_) if !gathered.has(Opt::Method) => Method::Snat,
        _ => gathered.method,
    };
    Destination {
        address,
        port,
        method,
        tunnel: gathered.tunnel,
        weight: gathered.weight,
        upper: gathered.upper,
        lower: gathered.lower,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    }
}

fn listing(gathered: &Gathered) -> Listing {
    let has = |option| gathered.has(option);
    let what = if has(Opt::Connection) {
        What::Connections(gathered.additions.sockpair)
    } else if has(Opt::Timeout) {
        What::Timeouts
    } else if has(Opt::Daemon) {
        What::Daemons
    } else {
        What::Services(key(gathered))
    };
    // Of several, the first of these counts.
    let kinds = [
        (Opt::Stats, Columns::Stats),
        (Opt::Rate, Columns::Rate),
        (Opt::Thresholds, Columns::Thresholds),
        (Opt::PersistentConn, Columns::Persistent),
        (Opt::TunInfo, Columns::TunnelInfo),
    ];
    let columns = kinds.into_iter().find(|(option, _)| has(*option));
    Listing {
        what,
        columns: columns.map_or(Columns::Plain, |(_, columns)| columns),
        numeric: has(Opt::Numeric),
        exact: has(Opt::Exact),
        sorted: !has(Opt::NoSort),
        engines: has(Opt::PersistentConn),
        local: has(Opt::Local),
    }
}

fn locals(gathered: &Gathered, list: Option<List>) -> Command {
    // DPVS shows numbers here, whatever is asked for.
    Command::Locals(Locals { list, key: key(gathered), numeric: true })
}
