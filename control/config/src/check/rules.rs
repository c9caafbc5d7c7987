//! What the keys of one service have to do with one another.

use sluice_director::spec::Ports;

use super::addresses::family;
use super::prime::{is_prime, next_prime};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{ClientAddress, Mode, Protocol, Scheduling, VirtualService};

pub(super) fn check(service: &VirtualService, path: Path, report: &mut Report) {
    if !report.is_broken(path.key("protocol")) {
        check_protocol(service, path, report);
    }
    check_client_address(service, path, report);
    check_persistence(service, path, report);
    check_table(service, path, report);
    super::clients::check(service, path, report);
    if service.reals.is_empty() {
        check_mode(service, service.mode, path.key("mode"), report);
    }
    if !report.is_broken(path.key("mode")) {
        let own = service.reals.iter().filter_map(|real| real.mode);
        let modes: Vec<_> = std::iter::once(service.mode).chain(own).collect();
        crate::tunnel::check(&modes, service.tunnel, path, report);
    }
}

/// Reports what the service's protocol does not allow.
fn check_protocol(service: &VirtualService, path: Path, report: &mut Report) {
    let protocol = service.protocol;
    if protocol == Protocol::Any && service.ports != Ports::ALL {
        let hint = "leave `port` out, or use tcp, udp or sctp";
        report.error(path.key("port"), "a service of any protocol has no port", hint);
    }
    if service.one_packet && protocol != Protocol::Udp {
        let found = format!("{} cannot be scheduled packet by packet", protocol.name());
        report.error(path.key("one_packet"), found, "leave it out, or use protocol = \"udp\"");
    }
    let (right, which) = match service.client_address {
        ClientAddress::Hidden => return,
        ClientAddress::Toa | ClientAddress::ProxyV1 => (protocol == Protocol::Tcp, "tcp"),
        ClientAddress::ProxyV2 => (matches!(protocol, Protocol::Tcp | Protocol::Udp), "tcp or udp"),
    };
    if !right {
        let word = service.client_address.name();
        let found = format!("{word} does not go with {}", protocol.name());
        report.error(path.key("client_address"), found, format!("use it with {which} only"));
    }
}

/// Reports a mode that the service's network or protocol does not allow.
pub(super) fn check_mode(service: &VirtualService, mode: Mode, path: Path, report: &mut Report) {
    // A real server's path has its service's index, too.
    let of_service = Path::table(Place::Service, path.index);
    let protocol = of_service.key("protocol");
    if mode != Mode::Fnat || report.is_broken(protocol) {
        return;
    }
    match service.protocol {
        Protocol::Sctp => {
            let hint = "use nat, dr or a tunnel: an SCTP association knows its ends by several \
                        addresses, which Full NAT would hide from both";
            report.error(path, "sctp cannot be fnat", hint);
        }
        Protocol::Any => {
            let hint = "use nat, dr or a tunnel: Full NAT tells sessions apart by ports, which not \
                        every protocol has";
            report.error(path, "a service of any protocol cannot be fnat", hint);
        }
        Protocol::Tcp | Protocol::Udp | Protocol::Icmp => {}
    }
}

/// Reports real servers that would be told what they know.
fn check_client_address(service: &VirtualService, path: Path, report: &mut Report) {
    if service.client_address == ClientAddress::Hidden || report.is_broken(path.key("mode")) {
        return;
    }
    let word = service.client_address.name();
    let modes = service.reals.iter().map(|real| real.mode.unwrap_or(service.mode));
    let found = match modes.enumerate().find(|(_, mode)| *mode != Mode::Fnat) {
        Some((at, mode)) => {
            let address = service.reals[at].address;
            format!("{word} is for fnat, and real server {address} is {}", mode.name())
        }
        None if service.reals.is_empty() && service.mode != Mode::Fnat => {
            format!("{word} is for fnat, and the service is {}", service.mode.name())
        }
        None => return,
    };
    let hint = "leave it out: only fnat hides the client's address from real servers";
    report.error(path.key("client_address"), found, hint);
}

fn check_persistence(service: &VirtualService, path: Path, report: &mut Report) {
    let Some(persistence) = service.persistence else { return };
    let bits = if service.vip.is_ipv4() { 32 } else { 128 };
    if persistence.prefix > bits && !report.is_broken(path.key("vip")) {
        let found = format!("{} clients have no {} bits", family(service.vip), persistence.prefix);
        let hint = format!("use 1 to {bits}, or leave it out for all bits");
        report.error(path.key("persistence_prefix"), found, hint);
    }
}

/// Reports a table that Maglev's hash cannot fill.
fn check_table(service: &VirtualService, path: Path, report: &mut Report) {
    let (size, reals) = (service.mh_table, service.reals.len());
    let path = path.key("mh_table");
    let least = u32::try_from(reals).unwrap_or(u32::MAX);
    if !is_prime(size) {
        let hint = format!("use a prime, such as {}", next_prime(size.max(least)));
        report.error(path, format!("{size} is not a prime"), hint);
    } else if service.scheduler == Scheduling::Mh && size < least {
        let found = format!("{size} entries are too few for {reals} real servers");
        let wanted = next_prime(least.saturating_mul(100).min(16_777_213));
        report.error(
            path,
            found,
            format!("use a prime, such as {}", wanted.max(next_prime(least))),
        );
    }
}
