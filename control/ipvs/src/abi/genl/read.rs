//! Commands as requests.
//!
//! What must be there for which command is what the kernel wants to be there.

use std::net::{IpAddr, Ipv6Addr};

use super::{attribute, command, daemon, dest, svc};
use crate::abi::netlink::{Attributes, Message};
use crate::abi::{self, AF_INET, AF_INET6, NAME_BYTES, Number};
use crate::model::flags;
use crate::{
    Daemon, Destination, Family, Protocol, Request, Role, ServiceKey, ServiceSpec, Stats, Timeouts,
    Tunnel, TunnelKind,
};

/// A command that changes something.
pub fn request(message: &Message) -> Result<Request, Number> {
    Ok(match message.command {
        command::NEW_SERVICE => Request::AddService(spec(message)?),
        command::SET_SERVICE => Request::EditService(spec(message)?),
        command::DEL_SERVICE => Request::DeleteService(key(message)?),
        command::FLUSH => Request::Flush,
        command::ZERO => match message.attributes.get(attribute::SERVICE) {
            Some(_) => Request::Zero(Some(key(message)?)),
            None => Request::Zero(None),
        },
        command::NEW_DEST => {
            let key = key(message)?;
            Request::AddDestination(key, destination(message, key)?)
        }
        command::SET_DEST => {
            let key = key(message)?;
            Request::EditDestination(key, destination(message, key)?)
        }
        command::DEL_DEST => {
            let key = key(message)?;
            Request::DeleteDestination(key, endpoint(message, key)?.1)
        }
        command::SET_CONFIG => {
            let seconds = |kind| message.attributes.u32(kind).unwrap_or(0);
            Request::SetTimeouts(Timeouts {
                tcp_s: seconds(attribute::TIMEOUT_TCP),
                tcp_fin_s: seconds(attribute::TIMEOUT_TCP_FIN),
                udp_s: seconds(attribute::TIMEOUT_UDP),
            })
        }
        command::NEW_DAEMON => Request::StartDaemon(started(message)?),
        command::DEL_DAEMON => Request::StopDaemon(role(message)?.1),
        _ => return Err(Number::OPNOTSUPP),
    })
}

fn service<'a>(message: &Message<'a>) -> Result<Attributes<'a>, Number> {
    message.attributes.nested(attribute::SERVICE).ok_or(Number::INVAL)
}

/// Which service a command is about.
pub fn key(message: &Message) -> Result<ServiceKey, Number> {
    let service = service(message)?;
    let family = family(service.u16(svc::AF).ok_or(Number::INVAL)?)?;
    if let Some(mark) = service.u32(svc::FWMARK).filter(|&mark| mark != 0) {
        return Ok(ServiceKey::Mark { mark, family });
    }
    let protocol = service.u16(svc::PROTOCOL).and_then(|number| u8::try_from(number).ok());
    let address = service.get(svc::ADDR).and_then(|bytes| abi::of_union(family, bytes));
    match (protocol.and_then(Protocol::of), address, service.be16(svc::PORT)) {
        (Some(protocol), Some(address), Some(port)) => {
            Ok(ServiceKey::Address { protocol, address, port })
        }
        _ => Err(Number::INVAL),
    }
}

const fn family(number: u16) -> Result<Family, Number> {
    match number {
        AF_INET => Ok(Family::Ipv4),
        AF_INET6 => Ok(Family::Ipv6),
        _ => Err(Number::AFNOSUPPORT),
    }
}

/// A service in full.
fn spec(message: &Message) -> Result<ServiceSpec, Number> {
    let key = key(message)?;
    let service = service(message)?;
    // `struct ip_vs_flags`: flags, and which of them are said.
    let said = service.get(svc::FLAGS).and_then(|bytes| {
        let (flags, mask) = bytes.split_at_checked(4)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        Some(number(flags)? & number(mask)?)
    });
    let flags = said.ok_or(Number::INVAL)?;
    let netmask = service.get(svc::NETMASK).and_then(|bytes| bytes.try_into().ok());
    let timeout_s = service.u32(svc::TIMEOUT).ok_or(Number::INVAL)?;
    let persistent = flags & flags::PERSISTENT != 0;
    let engine = service.get(svc::PE_NAME).map(abi::name).transpose()?;
    Ok(ServiceSpec {
        key,
        // A kernel that is told none gives none, by this name.
        scheduler: service.get(svc::SCHED_NAME).map_or(Ok("none".to_owned()), abi::name)?,
        flags,
        timeout_s: if persistent { timeout_s } else { 0 },
        netmask: abi::of_netmask(key.family(), netmask.ok_or(Number::INVAL)?),
        persistence_engine: engine.filter(|name| !name.is_empty()),
        settings: None,
    })
}

/// The destination that a command is about, and what else is said of it.
fn endpoint<'a>(
    message: &Message<'a>,
    key: ServiceKey,
) -> Result<(Attributes<'a>, (IpAddr, u16)), Number> {
    let said = message.attributes.nested(attribute::DEST).ok_or(Number::INVAL)?;
    // Old programs do not say: then it is the service's.
    let family = said.u16(dest::ADDR_FAMILY).map_or(Ok(key.family()), family)?;
    let address = said.get(dest::ADDR).and_then(|bytes| abi::of_union(family, bytes));
    match (address, said.be16(dest::PORT)) {
        (Some(address), Some(port)) => Ok((said, (address, port))),
        _ => Err(Number::INVAL),
    }
}

/// A destination in full.
fn destination(message: &Message, key: ServiceKey) -> Result<Destination, Number> {
    let (said, (address, port)) = endpoint(message, key)?;
    let number = |kind| said.u32(kind).ok_or(Number::INVAL);
    let weight = number(dest::WEIGHT)?;
    Ok(Destination {
        address,
        port,
        method: abi::method(number(dest::FWD_METHOD)?)?,
        tunnel: tunnel(said)?,
        // A signed number in the kernel.
        weight: i32::try_from(weight).map(|_| weight).map_err(|_| Number::RANGE)?,
        upper: number(dest::U_THRESH)?,
        lower: number(dest::L_THRESH)?,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    })
}

fn tunnel(said: Attributes) -> Result<Tunnel, Number> {
    let kind = match said.u8(dest::TUN_TYPE) {
        None | Some(0) => TunnelKind::Ipip,
        Some(1) => TunnelKind::Gue,
        Some(2) => TunnelKind::Gre,
        Some(_) => return Err(Number::INVAL),
    };
    let port = said.be16(dest::TUN_PORT).unwrap_or(0);
    Ok(Tunnel { kind, port, flags: said.u16(dest::TUN_FLAGS).unwrap_or(0) })
}

fn role<'a>(message: &Message<'a>) -> Result<(Attributes<'a>, Role), Number> {
    let said = message.attributes.nested(attribute::DAEMON).ok_or(Number::INVAL)?;
    let state = said.u32(daemon::STATE).and_then(|state| i32::try_from(state).ok());
    Ok((said, abi::role(state.ok_or(Number::INVAL)?)?))
}

/// A daemon in full.
fn started(message: &Message) -> Result<Daemon, Number> {
    let (said, role) = role(message)?;
    let name = said.get(daemon::MCAST_IFN).filter(|name| name.len() <= NAME_BYTES);
    let group = said.get(daemon::MCAST_GROUP).and_then(|b| abi::of_union(Family::Ipv4, b));
    let group6 = said.get(daemon::MCAST_GROUP6).and_then(|b| abi::of_union(Family::Ipv6, b));
    let group6 = group6.filter(|&group| group != Ipv6Addr::UNSPECIFIED);
    Ok(Daemon {
        role,
        interface: abi::name(name.ok_or(Number::INVAL)?)?,
        sync_id: said.u32(daemon::SYNC_ID).ok_or(Number::INVAL)?,
        maximum_length: said.u16(daemon::SYNC_MAXLEN).unwrap_or(0),
        group: group.filter(|group| !group.is_unspecified()).or(group6),
        port: said.u16(daemon::MCAST_PORT).unwrap_or(0),
        ttl: said.u8(daemon::MCAST_TTL).unwrap_or(0),
    })
}
