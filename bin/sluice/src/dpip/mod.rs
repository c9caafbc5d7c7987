//! `sluice dpip`, and this program under the name `dpip`: DPVS's command for addresses, routes,
//! neighbours and links, doing the same to Linux, which is the director's control stack.
//!
//! Grammar, output and messages are DPVS's; a device is a port of the director, by its name, or a
//! Linux interface. What is said of a port is done to the interface that carries its addresses.
//! Objects that Linux or Sluice do otherwise are refused, with what to use.

mod addr;
mod devices;
mod failure;
mod link;
mod neigh;
mod route;
#[cfg(test)]
mod tests;
mod tunnel;
mod vlan;
mod words;

use std::path::Path;
use std::process::ExitCode;

use crate::output::{self, Output};
use crate::show::Shown;
use failure::Failure;
use words::{Line, Parsed};

/// What is printed for `help`, `-h`, and without an object.
const USAGE: &str = "\
Usage: dpip [OPTIONS] OBJECT COMMAND [ARGUMENTS]

  addr   { add | set | del } ADDR[/PLEN] dev DEV [broadcast ADDR] [valid_lft SECONDS|forever]
         [scope host|link|global|N] [sapool]
         flush dev DEV | show [dev DEV]
  route  { add | set | del } { PREFIX | ADDR | default } [via ADDR] [dev DEV] [src ADDR]
         [mtu N] [metric N] [scope host|link|global|kni_host]
         flush dev DEV | show [dev DEV]
  neigh  { add | del } ADDR lladdr MAC dev DEV | show [dev DEV]
  link   show [DEV | cpu]
         set DEV up|down | set DEV link up|down | set DEV addr MAC | set DEV mtu N
         set DEV { promisc | allmulticast } on|off
  vlan   add [NAME] link DEV [proto 802.1q|802.1ad] id N | del NAME | show [NAME]
  tunnel { add | change } [NAME] mode ipip|gre [remote ADDR] [local ADDR] [ttl N|inherit]
         [tos N|inherit] [dev DEV] [[i|o]key KEY] [[i|o]seq] [[i|o]csum]
         del NAME | show [NAME]

  -4, -6, -f inet|inet6   only this family      -s   statistics      -v   more
  -i SECONDS, -c COUNT    rates, so often (link show)                -h   this text

DEV is a port of the director or a Linux interface.
";

/// What a command leads to.
pub(crate) type Done = Result<Shown, Failure>;

/// Whether this program was called by the name `dpip`.
pub fn is_named(program: Option<&std::ffi::OsStr>) -> bool {
    program.map(Path::new).and_then(Path::file_name).is_some_and(|name| name == "dpip")
}

/// Runs a command line, without the program's name. `socket` is where the director may be.
pub fn run(arguments: &[String], socket: &Path) -> ExitCode {
    let done = match words::parse(arguments) {
        Ok(Parsed::Help) => Ok(Shown::new(USAGE.to_owned())),
        Ok(Parsed::Version) => {
            Ok(Shown::new(format!("dpip of sluice {}\n", env!("CARGO_PKG_VERSION"))))
        }
        Ok(Parsed::Line(line)) => object(line, socket),
        Err(failure) => Err(failure),
    };
    let written = done.and_then(|shown| Ok(Output::write(&shown)?));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::remark(&format!("dpip: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn object(line: Line, socket: &Path) -> Done {
    match line.object.as_str() {
        "addr" => addr::run(line, socket),
        "route" => route::run(line, socket),
        "neigh" => neigh::run(line, socket),
        "link" => link::run(line, socket),
        "vlan" => vlan::run(line, socket),
        "tunnel" => tunnel::run(line, socket),
        other => Err(elsewhere(other)),
    }
}

/// A MAC address as it is written.
fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// What to use for objects that are DPVS's own.
fn elsewhere(object: &str) -> Failure {
    let instead = match object {
        "qsch" | "cls" => {
            "`tc` shapes what the kernel sends; a service's own limits are \
                           `max_sessions` and `max_new_per_s`"
        }
        "ipset" => {
            "`ipset` or nftables sets are Linux's; who may use a service is told by its \
                    own lists"
        }
        "flow" => {
            "the director tells its packets from the kernel's by itself: `sluice ports` \
                   shows the steering"
        }
        "iftraf" => {
            "`sluice elephants` shows the sessions with the most traffic, `sluice top` \
                     the rates"
        }
        "eal-mem" => "`sluice status` shows memory",
        "ipv6" => "`nstat -a` has the kernel's counters, `sluice drops` the director's",
        "maddr" => "`ip maddress show` shows multicast addresses",
        "lldp" => "`lldpd` speaks LLDP on the ports' interfaces",
        _ => {
            let advice = "the objects are addr, route, neigh, link, vlan, tunnel";
            return Failure::parameter(format!("there is no object {object:?}: {advice}"));
        }
    };
    Failure::unsupported(format!("{object}: {instead}"))
}
