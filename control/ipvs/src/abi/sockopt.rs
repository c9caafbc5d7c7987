//! Socket options of `IPPROTO_IP`, numbers `IP_VS_SO_*`: the interface of programs without netlink.
//!
//! It knows IPv4 only: services and destinations of IPv6 do not show, as the kernel does not show
//! them there. Lengths are held against what the kernel wants before anything is read. Layouts are
//! those of 64-bit machines (`u64` at multiples of eight), which is where Sluice runs.

use std::net::{IpAddr, Ipv4Addr};

use super::bytes::{Fields, Writer};
use super::{Ask, Number, cut, name, netmask_bytes, of_netmask, replied};
use crate::model::flags;
use crate::{
    Daemon, Destination, Family, Protocol, Reply, Request, Role, Service, ServiceKey, ServiceSpec,
    Stats, Timeouts, Tunnel,
};

/// `IP_VS_BASE_CTL`.
pub const BASE: i32 = 64 + 1024 + 64;
/// `IP_VS_SO_SET_MAX`: the options from [`BASE`] to here are IPVS's.
pub const LAST: i32 = BASE + 15;

/// What every structure about a service begins with.
const KEY_BYTES: usize = 16;
/// `sizeof(struct ip_vs_service_user)`.
const SERVICE_BYTES: usize = 44;
/// `sizeof(struct ip_vs_dest_user)`.
const DEST_BYTES: usize = 24;
/// `sizeof(struct ip_vs_timeout_user)`.
const TIMEOUT_BYTES: usize = 12;
/// `sizeof(struct ip_vs_daemon_user)`.
const DAEMON_BYTES: usize = 24;
/// `sizeof(struct ip_vs_getinfo)`.
const INFO_BYTES: usize = 12;
/// `sizeof(struct ip_vs_service_entry)`.
const SERVICE_ENTRY_BYTES: usize = 104;
/// `sizeof(struct ip_vs_dest_entry)`.
const DEST_ENTRY_BYTES: usize = 96;
/// `sizeof(struct ip_vs_get_services)`, its table empty.
const GET_SERVICES_BYTES: usize = 8;
/// `sizeof(struct ip_vs_get_dests)`, its table empty.
const GET_DESTS_BYTES: usize = 24;
/// What `IP_VS_SO_GET_VERSION` takes.
const VERSION_BYTES: usize = 64;

/// Whether an option of `IPPROTO_IP` is IPVS's.
pub const fn is_ours(option: i32) -> bool {
    option >= BASE && option <= LAST
}

/// `setsockopt`.
///
/// # Errors
/// What the kernel would say.
pub fn set(option: i32, value: &[u8], ask: &mut Ask) -> Result<(), Number> {
    let wanted = match option - BASE {
        2..=4 | 15 => SERVICE_BYTES,
        5 => 0,
        7..=9 => SERVICE_BYTES + DEST_BYTES,
        10 => TIMEOUT_BYTES,
        11 | 12 => DAEMON_BYTES,
        _ => return Err(Number::INVAL),
    };
    if value.len() != wanted {
        return Err(Number::INVAL);
    }
    let request = command(option - BASE, &mut Fields(value))?;
    replied(ask, &request, Number::NOPROTOOPT).map(drop)
}

/// What a command asks for.
fn command(command: i32, fields: &mut Fields) -> Result<Request, Number> {
    Ok(match command {
        5 => Request::Flush,
        10 => Request::SetTimeouts(timeouts(fields)?),
        11 => Request::StartDaemon(daemon(fields)?),
        12 => Request::StopDaemon(daemon(fields)?.role),
        // Without address, port and mark it is about all; the protocol is then not looked at.
        15 if fields.0.get(4..KEY_BYTES).is_some_and(|key| key.iter().all(|&byte| byte == 0)) => {
            Request::Zero(None)
        }
        15 => Request::Zero(Some(service(fields)?.key)),
        2 => Request::AddService(service(fields)?),
        3 => Request::EditService(service(fields)?),
        4 => Request::DeleteService(service(fields)?.key),
        _ => {
            let key = service(fields)?.key;
            let dest = destination(fields)?;
            match command {
                7 => Request::AddDestination(key, dest),
                8 => Request::DeleteDestination(key, (dest.address, dest.port)),
                _ => Request::EditDestination(key, dest),
            }
        }
    })
}

/// How many bytes of its value a program writes before it calls `getsockopt`: what it asks for.
pub const fn input_bytes(option: i32) -> usize {
    match option - BASE {
        2 => 4,
        3 => KEY_BYTES,
        4 => KEY_BYTES + 4,
        _ => 0,
    }
}

/// `getsockopt`: what is to be written over the beginning of the value, and how long the option is
/// then said to be. `input` is what the program asks for ([`input_bytes`]), `room` the length of
/// the whole value in bytes.
///
/// # Errors
/// What the kernel would say.
pub fn get(
    option: i32,
    input: &[u8],
    room: usize,
    ask: &mut Ask,
) -> Result<(Vec<u8>, usize), Number> {
    let wanted = match option - BASE {
        0 => VERSION_BYTES,
        1 => INFO_BYTES,
        2 => GET_SERVICES_BYTES,
        3 => SERVICE_ENTRY_BYTES,
        4 => GET_DESTS_BYTES,
        6 => TIMEOUT_BYTES,
        7 => 2 * DAEMON_BYTES,
        _ => return Err(Number::INVAL),
    };
    if room < wanted {
        return Err(Number::INVAL);
    }
    let absent = Number::NOPROTOOPT;
    let answer = match option - BASE {
        0 => {
            let text = version(ask)?;
            let length = text.len();
            return Ok((text, length));
        }
        1 => info(ask)?,
        2 => services(input, room, ask)?,
        3 => entry(input, ask)?,
        4 => destinations(input, room, ask)?,
        6 => match replied(ask, &Request::Timeouts, absent)? {
            Reply::Timeouts(t) => {
                let mut writer = Writer::default();
                writer.u32(t.tcp_s).u32(t.tcp_fin_s).u32(t.udp_s);
                writer.0
            }
            _ => return Err(Number::IO),
        },
        _ => match replied(ask, &Request::Daemons, absent)? {
            Reply::Daemons(daemons) => both_daemons(&daemons),
            _ => return Err(Number::IO),
        },
    };
    // What is asked for was held against the length already.
    Ok((answer, room))
}

fn version(ask: &mut Ask) -> Result<Vec<u8>, Number> {
    let Reply::Info(info) = replied(ask, &Request::Info, Number::NOPROTOOPT)? else {
        return Err(Number::IO);
    };
    let [_, major, minor, patch] = info.version.to_be_bytes();
    let size = info.table_size;
    let mut text =
        format!("IP Virtual Server version {major}.{minor}.{patch} (size={size})").into_bytes();
    text.truncate(VERSION_BYTES - 1);
    text.push(0);
    Ok(text)
}

fn info(ask: &mut Ask) -> Result<Vec<u8>, Number> {
    let Reply::Info(info) = replied(ask, &Request::Info, Number::NOPROTOOPT)? else {
        return Err(Number::IO);
    };
    // How many it shows is what a program makes room for.
    let shown = shown(ask)?.len();
    let mut writer = Writer::default();
    writer.u32(info.version).u32(info.table_size).u32(cut(shown as u64));
    Ok(writer.0)
}

/// The services that this interface shows.
fn shown(ask: &mut Ask) -> Result<Vec<Service>, Number> {
    match replied(ask, &Request::Services, Number::NOPROTOOPT)? {
        Reply::Services(mut services) => {
            services.retain(|service| {
                let key = &service.spec.key;
                key.family() == Family::Ipv4 && !matches!(key, ServiceKey::Match(_))
            });
            Ok(services)
        }
        _ => Err(Number::IO),
    }
}

/// `IP_VS_SO_GET_SERVICES`: as many as the program has room for.
fn services(input: &[u8], room: usize, ask: &mut Ask) -> Result<Vec<u8>, Number> {
    let count = Fields(input).u32().ok_or(Number::INVAL)?;
    let entries = room.saturating_sub(GET_SERVICES_BYTES);
    if !is_table(entries, count, SERVICE_ENTRY_BYTES) {
        return Err(Number::INVAL);
    }
    let mut services = shown(ask)?;
    services.truncate(entries / SERVICE_ENTRY_BYTES);
    let mut writer = Writer::default();
    writer.u32(cut(services.len() as u64)).hole(4);
    services.iter().for_each(|service| service_entry(&mut writer, service));
    Ok(writer.0)
}

/// Whether so many bytes are `count` entries.
fn is_table(bytes: usize, count: u32, entry: usize) -> bool {
    usize::try_from(count).ok().and_then(|count| count.checked_mul(entry)) == Some(bytes)
}

/// `IP_VS_SO_GET_SERVICE`: one.
fn entry(input: &[u8], ask: &mut Ask) -> Result<Vec<u8>, Number> {
    let key = key(&mut Fields(input))?;
    let service = found(key, ask)?;
    let mut writer = Writer::default();
    service_entry(&mut writer, &service);
    Ok(writer.0)
}

fn found(key: ServiceKey, ask: &mut Ask) -> Result<Service, Number> {
    match replied(ask, &Request::Service(key), Number::NOPROTOOPT)? {
        Reply::Services(services) => services.into_iter().next().ok_or(Number::SRCH),
        _ => Err(Number::IO),
    }
}

/// `IP_VS_SO_GET_DESTS`: a service's, as many as the program has room for.
fn destinations(input: &[u8], room: usize, ask: &mut Ask) -> Result<Vec<u8>, Number> {
    let mut fields = Fields(input);
    let key = key(&mut fields)?;
    let count = fields.u32().ok_or(Number::INVAL)?;
    let entries = room.saturating_sub(GET_DESTS_BYTES);
    if !is_table(entries, count, DEST_ENTRY_BYTES) {
        return Err(Number::INVAL);
    }
    let service = found(key, ask)?;
    let shown = service.destinations.iter().filter(|dest| dest.address.is_ipv4());
    let shown: Vec<_> = shown.take(entries / DEST_ENTRY_BYTES).collect();
    let mut writer = Writer::default();
    let asked = input.get(..KEY_BYTES).unwrap_or_default();
    writer.bytes(asked).u32(cut(shown.len() as u64)).hole(4);
    shown.into_iter().for_each(|dest| dest_entry(&mut writer, dest));
    Ok(writer.0)
}

/// The first fields of every structure about a service.
fn key(fields: &mut Fields) -> Result<ServiceKey, Number> {
    let mut read = || {
        let protocol = fields.u16()?;
        fields.take(2)?;
        let address = Ipv4Addr::from(fields.array::<4>()?);
        let port = fields.be16()?;
        fields.take(2)?;
        Some((protocol, address, port, fields.u32()?))
    };
    let (protocol, address, port, mark) = read().ok_or(Number::INVAL)?;
    if mark != 0 {
        return Ok(ServiceKey::Mark { mark, family: Family::Ipv4 });
    }
    let protocol = u8::try_from(protocol).ok().and_then(Protocol::of).ok_or(Number::INVAL)?;
    Ok(ServiceKey::Address { protocol, address: address.into(), port })
}

/// `struct ip_vs_service_user`.
fn service(fields: &mut Fields) -> Result<ServiceSpec, Number> {
    let key = key(fields)?;
    let mut read = || Some((fields.take(16)?, fields.u32()?, fields.u32()?, fields.array::<4>()?));
    let (scheduler, flags, timeout_s, netmask) = read().ok_or(Number::INVAL)?;
    let persistent = flags & flags::PERSISTENT != 0;
    Ok(ServiceSpec {
        key,
        scheduler: name(scheduler)?,
        flags,
        timeout_s: if persistent { timeout_s } else { 0 },
        netmask: of_netmask(Family::Ipv4, netmask),
        persistence_engine: None,
        settings: None,
    })
}

/// `struct ip_vs_dest_user`.
fn destination(fields: &mut Fields) -> Result<Destination, Number> {
    let mut read = || {
        let address = Ipv4Addr::from(fields.array::<4>()?);
        let port = fields.be16()?;
        fields.take(2)?;
        let (method, weight) = (fields.u32()?, fields.i32()?);
        Some((address, port, method, weight, fields.u32()?, fields.u32()?))
    };
    let (address, port, method, weight, upper, lower) = read().ok_or(Number::INVAL)?;
    Ok(Destination {
        address: address.into(),
        port,
        method: super::method(method)?,
        tunnel: Tunnel::IPIP,
        weight: u32::try_from(weight).map_err(|_| Number::RANGE)?,
        upper,
        lower,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    })
}

/// `struct ip_vs_timeout_user`.
fn timeouts(fields: &mut Fields) -> Result<Timeouts, Number> {
    let mut next = || {
        let number = fields.i32().ok_or(Number::INVAL)?;
        u32::try_from(number).map_err(|_| Number::INVAL)
    };
    Ok(Timeouts { tcp_s: next()?, tcp_fin_s: next()?, udp_s: next()? })
}

/// `struct ip_vs_daemon_user`.
fn daemon(fields: &mut Fields) -> Result<Daemon, Number> {
    let mut read = || Some((fields.i32()?, fields.take(16)?, fields.u32()?));
    let (state, interface, sync_id) = read().ok_or(Number::INVAL)?;
    let role = super::role(state)?;
    let interface = name(interface)?;
    Ok(Daemon { role, interface, sync_id, maximum_length: 0, group: None, port: 0, ttl: 0 })
}

/// The master and the backup, each with state 0 where it does not run.
fn both_daemons(daemons: &[Daemon]) -> Vec<u8> {
    let mut writer = Writer::default();
    for role in [Role::Master, Role::Backup] {
        match daemons.iter().find(|daemon| daemon.role == role) {
            Some(daemon) => {
                writer.u32(super::state(role)).name(&daemon.interface).u32(daemon.sync_id)
            }
            None => writer.hole(DAEMON_BYTES),
        };
    }
    writer.0
}

/// `struct ip_vs_service_entry`.
fn service_entry(writer: &mut Writer, service: &Service) {
    let spec = &service.spec;
    let (protocol, address, port, mark) = match spec.key {
        ServiceKey::Mark { mark, .. } => (Protocol::Tcp, Ipv4Addr::UNSPECIFIED, 0, mark),
        // Not asked for, and not shown.
        ServiceKey::Match(_) => (Protocol::Tcp, Ipv4Addr::UNSPECIFIED, 0, 0),
        ServiceKey::Address { protocol, address: IpAddr::V4(v4), port } => (protocol, v4, port, 0),
        ServiceKey::Address { protocol, port, .. } => (protocol, Ipv4Addr::UNSPECIFIED, port, 0),
    };
    let dests = service.destinations.iter().filter(|dest| dest.address.is_ipv4()).count();
    writer.u16(protocol.number().into()).hole(2).bytes(&address.octets());
    writer.bytes(&port.to_be_bytes()).hole(2).u32(mark).name(&spec.scheduler);
    writer.u32(spec.flags).u32(spec.timeout_s);
    writer.bytes(&netmask_bytes(Family::Ipv4, spec.netmask)).u32(cut(dests as u64));
    stats(writer, &service.stats);
}

/// `struct ip_vs_dest_entry`.
fn dest_entry(writer: &mut Writer, dest: &Destination) {
    let address = match dest.address {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    writer.bytes(&address.octets()).bytes(&dest.port.to_be_bytes()).hole(2);
    writer.u32(super::fwd(dest.method)).u32(dest.weight).u32(dest.upper).u32(dest.lower);
    writer.u32(dest.active).u32(dest.inactive).u32(dest.persistent).hole(4);
    stats(writer, &dest.stats);
}

/// `struct ip_vs_stats_user`.
fn stats(writer: &mut Writer, stats: &Stats) {
    for number in [stats.connections, stats.in_packets, stats.out_packets] {
        writer.u32(cut(number));
    }
    writer.hole(4).u64(stats.in_bytes).u64(stats.out_bytes);
    for rate in super::rates(stats) {
        writer.u32(cut(rate));
    }
    writer.hole(4);
}

#[cfg(test)]
mod tests;
