//! `virtual_server` becomes one service, or one for each entry of its group.

use std::net::IpAddr;

use serde_json::Value;

use super::block::{account, flag};
use super::check::Found;
use super::groups::{Entry, Groups};
use super::real::{self, Around, Real};
use super::seconds::millis;
use super::tree::Statement;
use crate::note::{Place, Report};
use crate::target::{Made, Table, Target, known, service_name};

/// keepalived's schedulers under other names.
const SCHEDULERS: [(&str, &str); 2] = [("conhash", "mh"), ("twos", "p2c")];
/// Without a word, and with `persistence_timeout` alone.
const DEFAULT_SCHEDULER: &str = "wlc";
const DEFAULT_PERSISTENCE_S: u64 = 360;

/// What a virtual server says.
struct Server<'s> {
    protocol: &'static str,
    mode: String,
    pool: Option<String>,
    table: Table,
    around: Around,
    reals: Vec<Real>,
    sorry: Option<Real>,
    sorry_mode: Option<String>,
    statement: &'s Statement,
}

/// Says that firewall marks are not seen.
pub fn mark(place: &Place, report: &mut Report) {
    let means = "serves what a firewall rule has marked";
    let instead = "the director takes packets before the firewall: write a service for each \
                   address and port that the rule marks";
    report.lost(place, "fwmark", means, instead);
}

/// Converts a virtual server.
pub fn convert(statement: &Statement, groups: &Groups, target: &mut Target, report: &mut Report) {
    let Some(entries) = entries(statement, groups, report) else {
        return account(statement, report);
    };
    report.done(&statement.place);
    let Some(server) = read(statement, groups, report) else { return };
    for entry in entries {
        for vip in entry.addresses() {
            write(&server, vip, entry.port, &entry.place, target, report);
        }
    }
}

/// What it is for; `None` when there is nothing that it could be.
fn entries(statement: &Statement, groups: &Groups, report: &mut Report) -> Option<Vec<Entry>> {
    let place = &statement.place;
    match statement.word(1) {
        "fwmark" => {
            mark(place, report);
            None
        }
        "group" => {
            let name = statement.word(2);
            let found = groups.virtual_servers.get(name).filter(|entries| !entries.is_empty());
            if found.is_none() {
                let means = format!("the group {name:?} has no address");
                report.lost(place, "virtual_server", means, "write the group, or the addresses");
            }
            found.cloned()
        }
        _ => {
            let (vip, port) = real::endpoint(statement, report)?;
            Some(vec![Entry { range: (vip, vip), port, place: place.clone() }])
        }
    }
}

fn read<'s>(statement: &'s Statement, groups: &Groups, report: &mut Report) -> Option<Server<'s>> {
    let mut server = Server {
        protocol: "udp",
        mode: "nat".to_owned(),
        pool: None,
        table: Table::new(),
        around: Around::default(),
        reals: Vec::new(),
        sorry: None,
        sorry_mode: None,
        statement,
    };
    server.table.insert("scheduler".to_owned(), DEFAULT_SCHEDULER.into());
    let mut usable = true;
    for inner in statement.inside() {
        if inner.word(0) == "real_server" || server.around.timing.take(inner, report) {
            continue;
        }
        report.done(&inner.place);
        usable &= server.word(inner, groups, report);
    }
    if !statement.inside().iter().any(|inner| inner.word(0) == "protocol") {
        let means = "without `protocol` keepalived takes it for UDP";
        let how = "so it is here; write `protocol TCP` if that was meant";
        report.differs(&statement.place, "virtual_server", means, how);
    }
    for inner in statement.inside().iter().filter(|inner| inner.word(0) == "real_server") {
        server.reals.extend(real::convert(inner, &server.around, report));
    }
    if server.mode == "fnat" && server.pool.is_none() {
        let means = "full NAT with the local addresses that DPVS finds by itself";
        let instead = "name them: laddr_group_name of a local_address_group, or pool of a [[pool]]";
        report.lost(&statement.place, "virtual_server", means, instead);
        return None;
    }
    usable.then_some(server)
}

impl Server<'_> {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.table.insert(key.to_owned(), value.into());
    }

    /// Takes a word; `false` when the service cannot be without it.
    fn word(&mut self, inner: &Statement, groups: &Groups, report: &mut Report) -> bool {
        let value = inner.word(1);
        match inner.word(0) {
            "lb_algo" | "lvs_sched" => self.scheduler(inner, report),
            "lb_kind" | "lvs_method" => match real::mode(inner, &mut self.table, report) {
                Some(mode) => self.mode = mode,
                None => return false,
            },
            "protocol" => match value.to_ascii_lowercase().as_str() {
                "tcp" => self.protocol = "tcp",
                "udp" => self.protocol = "udp",
                "sctp" => self.protocol = "sctp",
                _ => {
                    let means = format!("services of {value}");
                    let instead = "tcp, udp and sctp have ports; protocol = \"any\" has all";
                    report.lost(&inner.place, "protocol", means, instead);
                    return false;
                }
            },
            "persistence_timeout" => self.persistence(inner, report),
            "persistence_granularity" => self.granularity(inner, report),
            "ops" => self.put("one_packet", true),
            "sh-port" | "mh-port" | "flag-2" => self.put("hash", "client_port"),
            "hash_target" if value == "sip" => self.put("hash", "client"),
            "inhibit_on_failure" => self.around.inhibit = flag(inner),
            "virtualhost" => self.around.virtual_host = Some(value.to_owned()),
            "weight" => self.around.weight = Some(inner.clone()),
            "sorry_server" => self.sorry_server(inner, report),
            "sorry_server_lvs_method" => {
                self.sorry_mode = real::mode(inner, &mut Table::new(), report)
            }
            "quorum" | "hysteresis" => self.quorum(inner, report),
            "laddr_group_name" => match groups.pools.get(value) {
                Some(pool) => self.pool = Some(pool.clone()),
                None => {
                    let means = format!("there is no local_address_group {value}");
                    report.lost(&inner.place, "laddr_group_name", means, "write it, or a [[pool]]");
                }
            },
            "daddr_group_name" | "waddr_group_name" => self.clients(inner, groups, report),
            "establish_timeout" | "conn_timeout" => self.idle(inner, report),
            "expire_quiescent_conn" => {
                if flag(inner) {
                    self.put("on_removed", "reschedule");
                    self.put("on_down", "reschedule");
                }
            }
            "proxy_protocol" => match value {
                "v1" | "v1-insist" => self.put("client_address", "proxy_v1"),
                "v2" | "v2-insist" => self.put("client_address", "proxy_v2"),
                "disable" => {}
                _ => real::other(inner, report),
            },
            "flag-1" => {}
            _ => real::other(inner, report),
        }
        true
    }

    fn scheduler(&mut self, inner: &Statement, report: &mut Report) {
        let said = inner.word(1);
        let other = SCHEDULERS.iter().find(|(name, _)| *name == said).map(|(_, ours)| *ours);
        let ours = other.unwrap_or(said);
        if known("scheduler", &ours.into()) {
            return self.put("scheduler", ours);
        }
        let means = format!("the scheduler {said}");
        let instead = format!("it is {DEFAULT_SCHEDULER}; docs/schedulers.md has those there are");
        report.lost(&inner.place, inner.word(0), means, instead);
    }

    fn persistence(&mut self, inner: &Statement, report: &mut Report) {
        let said = inner.word(1);
        let seconds = if said.is_empty() { Ok(DEFAULT_PERSISTENCE_S) } else { said.parse() };
        match seconds {
            Ok(seconds) => {
                if seconds > 86_400 {
                    let means = "binds clients for longer than a day";
                    report.differs(&inner.place, inner.word(0), means, "persistence_s is a day");
                }
                self.put("persistence_s", seconds.min(86_400));
            }
            Err(_) => real::other(inner, report),
        }
    }

    fn granularity(&mut self, inner: &Statement, report: &mut Report) {
        let said = inner.word(1);
        let prefix = match said.parse::<IpAddr>() {
            Ok(IpAddr::V4(mask)) => Some(mask.to_bits())
                .filter(|mask| mask.leading_ones() == mask.count_ones())
                .map(u32::leading_ones),
            Ok(IpAddr::V6(_)) => None,
            Err(_) => said.parse().ok(),
        };
        match prefix.filter(|prefix| (1..=128).contains(prefix)) {
            Some(prefix) => self.put("persistence_prefix", prefix),
            None => {
                let means = format!("{said:?} is no mask whose leading bits are set");
                report.lost(&inner.place, inner.word(0), means, "set persistence_prefix by hand");
            }
        }
    }

    fn sorry_server(&mut self, inner: &Statement, report: &mut Report) {
        let Some((address, port)) = real::endpoint(inner, report) else { return };
        let mut table = Table::new();
        table.insert("fallback".to_owned(), true.into());
        let place = inner.place.clone();
        let (mode, check, inhibit) = (None, None, false);
        self.sorry = Some(Real { table, address, port, mode, check, inhibit, place });
    }

    fn quorum(&mut self, inner: &Statement, report: &mut Report) {
        let word = inner.word(0);
        let trivial = if word == "quorum" { "1" } else { "0" };
        if inner.word(1) == trivial {
            return;
        }
        let means = match word {
            "quorum" => "needs so much weight alive, else the sorry server takes over",
            _ => "has the quorum come and go at different weights",
        };
        let instead = "a fallback takes over when no other real server is up; watch \
                       sluice_real_servers for less than you need";
        report.lost(&inner.place, word, means, instead);
    }

    fn clients(&mut self, inner: &Statement, groups: &Groups, report: &mut Report) {
        let (word, name) = (inner.word(0), inner.word(1));
        let key = if word == "daddr_group_name" { "deny" } else { "allow" };
        let list = groups.clients.get(name).cloned().unwrap_or_default();
        let value: Value = list.into();
        if known(key, &value) {
            return self.put(key, value);
        }
        let means =
            format!("lets clients of {name} {}", if key == "deny" { "not in" } else { "in" });
        let instead = "filter before the director, or at the real servers";
        report.lost(&inner.place, word, means, instead);
    }

    fn idle(&mut self, inner: &Statement, report: &mut Report) {
        let seconds = millis(inner.word(1)).map(|ms| ms / 1000);
        let value: Value = seconds.unwrap_or(0).into();
        if seconds.is_some() && known("idle_timeout_s", &value) {
            return self.put("idle_timeout_s", value);
        }
        let means = "how long an idle connection of this service stays";
        let instead = "tcp_established_s and udp_s of [timeouts] hold for all services";
        report.lost(&inner.place, inner.word(0), means, instead);
    }
}

/// Adds the service for one address and port.
fn write(
    server: &Server<'_>,
    vip: IpAddr,
    port: u16,
    place: &Place,
    target: &mut Target,
    report: &mut Report,
) {
    let mut table = server.table.clone();
    let name = service_name(server.protocol, vip, port);
    table.insert("name".to_owned(), name.as_str().into());
    table.insert("protocol".to_owned(), server.protocol.into());
    table.insert("vip".to_owned(), vip.to_string().into());
    if port != 0 {
        table.insert("port".to_owned(), port.into());
    }
    table.insert("mode".to_owned(), server.mode.as_str().into());
    if let Some(pool) = &server.pool {
        table.insert("pool".to_owned(), pool.as_str().into());
    }
    if server.reals.iter().any(|real| real.inhibit) {
        table.insert("on_down".to_owned(), "keep".into());
        if let Some(other) = server.reals.iter().find(|real| !real.inhibit) {
            let means = "taken out with its connections when it fails, unlike others here";
            let how = "on_down = \"keep\" is the service's: its connections go on, too";
            report.differs(&other.place, "real_server", means, how);
        }
    }
    let check = agreed(server, port, report);
    if let Some(check) = &check {
        let name = target.check(&check.content, &check.place);
        table.insert("check".to_owned(), name.into());
    }
    let mut reals = Vec::new();
    for real in &server.reals {
        reals.push(one(server, real, real.mode.as_ref(), port, report));
    }
    if let Some(sorry) = &server.sorry {
        if check.is_some() {
            let means = "is never checked";
            let how = "a fallback is checked like the service's other real servers";
            report.differs(&sorry.place, "sorry_server", means, how);
        }
        reals.push(one(server, sorry, server.sorry_mode.as_ref(), port, report));
    }
    if !reals.is_empty() {
        table.insert("real".to_owned(), reals.into());
    }
    let made = Made { table, place: server.statement.place.clone(), end: server.statement.end };
    if !target.service(made) {
        let means = format!("{name} is there already");
        report.lost(place, "virtual_server", means, "it is converted once: the first time");
    }
}

/// A real server's table within a service.
fn one(
    server: &Server<'_>,
    real: &Real,
    mode: Option<&String>,
    service_port: u16,
    report: &mut Report,
) -> Value {
    let mut table = real.table.clone();
    table.insert("address".to_owned(), real.address.to_string().into());
    let mode = mode.unwrap_or(&server.mode);
    if *mode != server.mode {
        table.insert("mode".to_owned(), mode.as_str().into());
    }
    let stays = real::keeps_destination(mode);
    if stays && real.port != 0 && real.port != service_port {
        let means = format!("port {}, which IPVS takes no notice of with {mode}", real.port);
        report.differs(&real.place, "real_server", means, "packets keep the service's port");
    } else if real.port != 0 && !stays {
        table.insert("port".to_owned(), real.port.into());
    }
    if let Some(check) = &real.check {
        if let Some(address) = check.address.filter(|it| *it != real.address) {
            table.insert("check_address".to_owned(), address.to_string().into());
        }
        // Where it goes by itself: what stays as it is has the service's port.
        let own = if real.port != 0 && !stays { real.port } else { service_port };
        let wanted = check.port.or(Some(real.port).filter(|&port| port != 0));
        if let Some(port) = wanted.filter(|&port| check.has_port() && port != own) {
            table.insert("check_port".to_owned(), port.into());
        }
    }
    Value::Object(table)
}

/// The check that most real servers have; the others' are spoken of.
fn agreed(server: &Server<'_>, service_port: u16, report: &mut Report) -> Option<Found> {
    let all: Vec<&Found> = server.reals.iter().filter_map(|real| real.check.as_ref()).collect();
    let votes = |found: &Found| all.iter().filter(|it| it.content == found.content).count();
    let chosen = all.iter().rev().max_by_key(|found| votes(found)).copied()?.clone();
    let blind = |real: &&Real| {
        let port = real.check.as_ref().and_then(|check| check.port);
        chosen.has_port() && real.port == 0 && service_port == 0 && port.is_none()
    };
    if let Some(real) = server.reals.iter().find(blind) {
        let means = "a check of a real server without a port, in a service of all ports";
        let instead = "nobody looks at this service's real servers; set check and check_port";
        report.lost(&real.place, "real_server", means, instead);
        return None;
    }
    for real in &server.reals {
        match &real.check {
            Some(found) if found.content != chosen.content => {
                let means = "a check unlike that of the service's other real servers";
                let instead = format!("a service has one check: that of {}", chosen.place);
                report.lost(&found.place, "check", means, instead);
            }
            Some(_) => {}
            None => {
                let means = "nobody looks at it";
                let how = format!("it is checked as the others are, by {}", chosen.place);
                report.differs(&real.place, "real_server", means, how);
            }
        }
    }
    Some(chosen)
}
