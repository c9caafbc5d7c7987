//! Services as the commands that make them.

use sluice_ipvs::{
    Destination, Family, List, LocalAddresses, Method, Protocol, Service, ServiceKey, TunnelKind,
    flags,
};

use crate::listing::{flag_names, mask, place_name, transport};
use crate::world::World;

/// What a service has beyond the list of services.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Local addresses.
    pub locals: Vec<LocalAddresses>,
    /// Clients that are refused.
    pub denied: Vec<(ServiceKey, Vec<String>)>,
    /// Clients that alone are served.
    pub allowed: Vec<(ServiceKey, Vec<String>)>,
}

/// One service as commands, a line each. In the stock program's words where there are some; it
/// leaves thresholds out, which would be lost by a restore, and has no words for the rest.
pub fn save(service: &Service, beside: &Beside, numeric: bool, world: &mut impl World) -> String {
    let spec = &service.spec;
    let key = name(&spec.key, numeric, world);
    let mut text = format!("-A {key} -s {}", spec.scheduler);
    if spec.flags & flags::PERSISTENT != 0 {
        text += &format!(" -p {}", spec.timeout_s);
        if let Some(mask) = mask(spec) {
            text += &format!(" -M {mask}");
        }
    }
    if let Some(engine) = &spec.persistence_engine {
        text += &format!(" --pe {engine}");
    }
    if spec.flags & flags::ONE_PACKET != 0 {
        text += " -o";
    }
    if let Some(names) = flag_names(spec) {
        text += &format!(" -b {names}");
    }
    if let Some(settings) = &spec.settings {
        match settings.client_address.as_deref() {
            Some("proxy_v1") => text += " --proxy-protocol v1",
            Some("proxy_v2") => text += " --proxy-protocol v2",
            _ => {}
        }
        if let Some(seconds) = settings.connection_timeout_s {
            text += &format!(" --conn-timeout {seconds}");
        }
        if settings.expire_quiescent {
            text += " --expire-quiescent";
        }
    }
    text.push('\n');
    let of_this = |lists: &[(ServiceKey, Vec<String>)], command: &str| -> String {
        let mine = lists.iter().filter(|(other, _)| *other == spec.key);
        mine.flat_map(|(_, all)| all).map(|one| format!("{command} {one}\n")).collect()
    };
    let locals = beside.locals.iter().filter(|locals| locals.key == spec.key);
    for local in locals.flat_map(|locals| &locals.addresses) {
        text += &format!("-P {key} -z {}\n", local.address);
    }
    text += &of_this(&beside.denied, &format!("-U {key} -k"));
    text += &of_this(&beside.allowed, &format!("-O {key} -2"));
    for it in &service.destinations {
        let place = (it.address, it.port);
        let place = place_name(place, transport(&spec.key), numeric, world);
        text += &format!("-a {key} -r {place} {}\n", destination(it));
    }
    text
}

/// For which list a service of another source is asked.
pub(crate) const LISTS: [List; 2] = [List::Deny, List::Allow];

fn destination(it: &Destination) -> String {
    let method = match it.method {
        Method::Masq => "-m",
        Method::Tunnel => "-i",
        Method::Route | Method::Local => "-g",
        Method::Bypass => "(null)",
        Method::FullNat => "-b",
        Method::Snat => "-J",
    };
    let mut text = format!("{method} -w {}", it.weight as i32);
    if it.method == Method::Tunnel {
        let sum = match it.tunnel.flags {
            0 => "--tun-nocsum",
            1 => "--tun-csum",
            _ => "--tun-remcsum",
        };
        text += &match it.tunnel.kind {
            TunnelKind::Ipip => " --tun-type ipip".to_owned(),
            TunnelKind::Gue => format!(" --tun-type gue --tun-port {} {sum}", it.tunnel.port),
            TunnelKind::Gre => format!(" --tun-type gre {sum}"),
        };
    }
    for (letter, limit) in [('x', it.upper), ('y', it.lower)] {
        if limit != 0 {
            text += &format!(" -{letter} {limit}");
        }
    }
    text
}

fn name(key: &ServiceKey, numeric: bool, world: &mut impl World) -> String {
    match *key {
        ServiceKey::Mark { mark, family: Family::Ipv4 } => format!("-f {}", mark as i32),
        ServiceKey::Mark { mark, family: Family::Ipv6 } => format!("-f {} -6", mark as i32),
        ServiceKey::Address { protocol, address, port } => {
            let option = match protocol {
                Protocol::Tcp => "-t",
                Protocol::Udp => "-u",
                Protocol::Sctp => "--sctp-service",
            };
            format!("{option} {}", place_name((address, port), transport(key), numeric, world))
        }
        ServiceKey::Match(it) => format!("-H {it}"),
    }
}
