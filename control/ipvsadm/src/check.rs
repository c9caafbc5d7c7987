//! Which options go together.

use sluice_ipvs::{Method, Protocol, TunnelKind, flags};

use crate::gather::{Gathered, Subject};
use crate::options::{OPTIONS, Opt};
use crate::parse::Fault;
use crate::verb::Verb;

/// What the command needs, and what it does not take.
pub(crate) fn options(verb: Verb, gathered: &Gathered) -> Result<(), Fault> {
    let mut only: Option<Opt> = None;
    for (option, name) in OPTIONS {
        let verb_name = verb.name();
        if !gathered.has(option) {
            if verb.needs().contains(&option) {
                return Err(Fault::usage(format!(
                    "You need to supply the '{name}' option for the '{verb_name}' command"
                )));
            }
            continue;
        }
        if !verb.takes(option) {
            return Err(Fault::usage(format!(
                "Illegal '{name}' option with the '{verb_name}' command"
            )));
        }
        if verb.excludes(option) {
            if let Some(other) = only {
                return Err(Fault::usage(format!(
                    "The option '{name}' conflicts with the '{}' option in the '{verb_name}' \
                     command",
                    other.name()
                )));
            }
            only = Some(option);
        }
    }
    Ok(())
}

/// What DPVS has and the director has nothing like.
pub(crate) fn refused(gathered: &Gathered) -> Result<(), Fault> {
    match &gathered.additions.refused {
        Some(why) => Err(Fault::usage(why.clone())),
        None => Ok(()),
    }
}

/// What makes a service.
pub(crate) fn service(gathered: &Gathered) -> Result<(), Fault> {
    let Some(Subject::Address(protocol, place)) = gathered.subject else { return Ok(()) };
    let persistent = gathered.flags & flags::PERSISTENT != 0;
    if place.port.unwrap_or(0) == 0 && !persistent {
        return Err(Fault::usage("Zero port specified for non-persistent service"));
    }
    if gathered.flags & flags::ONE_PACKET != 0 && protocol != Protocol::Udp {
        return Err(Fault::usage("One-Packet Scheduling is only for UDP virtual services"));
    }
    Ok(())
}

/// What makes a real server.
pub(crate) fn server(gathered: &mut Gathered) -> Result<(), Fault> {
    let crosses = matches!(gathered.method, Method::Tunnel | Method::FullNat);
    let families = |place: crate::address::Place| sluice_ipvs::Family::of(place.address);
    if !crosses && gathered.server.is_some_and(|place| families(place) != gathered.family) {
        let complaint = "Different address family is allowed only for tunneling servers";
        return Err(Fault::usage(complaint));
    }
    tunnel(gathered)
}

/// What a kind of tunnel needs, takes once, or does not take, by the order of these.
const OF_TUNNELS: [Opt; 4] = [Opt::TunPort, Opt::TunNoCsum, Opt::TunCsum, Opt::TunRemCsum];

fn tunnel(gathered: &Gathered) -> Result<(), Fault> {
    let any = gathered.has(Opt::TunType) || OF_TUNNELS.iter().any(|option| gathered.has(*option));
    if gathered.method != Method::Tunnel {
        return match any {
            true => Err(Fault::usage("Tunnel options conflict with forward method")),
            false => Ok(()),
        };
    }
    let (kind, takes) = match gathered.tunnel.kind {
        TunnelKind::Ipip => ("ipip", [false; 4]),
        TunnelKind::Gue => ("gue", [true; 4]),
        TunnelKind::Gre => ("gre", [false, true, true, false]),
    };
    let mut only: Option<Opt> = None;
    for (option, taken) in OF_TUNNELS.into_iter().zip(takes) {
        let name = option.name();
        if !gathered.has(option) {
            if option == Opt::TunPort && taken {
                return Err(Fault::usage(format!(
                    "You need to supply the '{name}' option for the '{kind}' tunnel type"
                )));
            }
            continue;
        }
        if !taken {
            return Err(Fault::usage(format!(
                "Illegal '{name}' option with the '{kind}' tunnel type"
            )));
        }
        if option != Opt::TunPort {
            if let Some(other) = only {
                return Err(Fault::usage(format!(
                    "The option '{name}' conflicts with the '{}' option in the '{kind}' tunnel \
                     type",
                    other.name()
                )));
            }
            only = Some(option);
        }
    }
    Ok(())
}

/// What of a list goes together.
pub(crate) fn list(gathered: &Gathered) -> Result<(), Fault> {
    let has = |option| gathered.has(option);
    let counters = has(Opt::Stats) || has(Opt::Rate) || has(Opt::Thresholds);
    let other = has(Opt::Timeout) || has(Opt::Daemon);
    let both =
        (has(Opt::Connection) && counters) || (other && (counters || has(Opt::PersistentConn)));
    if both {
        return Err(Fault::usage("options conflicts in the list command"));
    }
    for option in [Opt::SockPair, Opt::Local] {
        if has(option) && !has(Opt::Connection) {
            let name = option.name();
            return Err(Fault::usage(format!("--{name} is for connections: give -c, too")));
        }
    }
    Ok(())
}
