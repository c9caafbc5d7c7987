//! What `ipvsadm-save` (`ipvsadm -S`) wrote: a command a line, of stock ipvsadm and of DPVS's.

mod options;

use std::net::IpAddr;
use std::rc::Rc;

use serde_json::Value;
use sluice_ipvs::{Match, MatchError};

use crate::keepalived::Source;
use crate::note::{Place, Report};
use crate::output::Imported;
use crate::outward::Outward;
use crate::sound;
use crate::target::{Made, Table, Target, known, service_name};
use crate::tunnel;
use options::{Command, Options};

/// Who knows names: lists without `-n` have them in place of numbers.
pub trait Names {
    /// Whether hosts are asked for: asking takes seconds a name where nobody answers.
    fn resolves(&self) -> bool;
    /// The address of a host, where they are asked for.
    fn host(&mut self, name: &str) -> Option<IpAddr>;
    /// The port of a service; `protocol` is `tcp`, `udp` or `sctp`.
    fn port(&mut self, name: &str, protocol: &str) -> Option<u16>;
}

/// ipvsadm's defaults.
const DEFAULT_SCHEDULER: &str = "wlc";
const DEFAULT_PERSISTENCE_S: u32 = 360;

/// Converts what was saved.
pub fn ipvsadm_save(source: &Source, names: &mut dyn Names) -> Imported {
    let mut target = Target::default();
    let mut report = Report::default();
    let mut outward = Outward::default();
    let file: Rc<str> = source.name.as_str().into();
    for (index, line) in source.text.lines().enumerate() {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let place = Place { file: file.clone(), line: index + 1 };
        report.done(&place);
        match options::read(text) {
            Ok((command, options)) => {
                let (target, report, outward) = (&mut target, &mut report, &mut outward);
                Turn { place, options, names, target, report, outward }.take(command);
            }
            Err((word, means)) => {
                report.lost(&place, &word, means, "see ipvsadm(8) for what a line may have");
            }
        }
    }
    target.services.retain(|made| {
        let reals = made.table.get("real").and_then(Value::as_array);
        let is_fnat = |real: &Value| real.get("mode").and_then(Value::as_str) == Some("fnat");
        let bare =
            !made.table.contains_key("pool") && reals.is_some_and(|it| it.iter().any(is_fnat));
        if bare {
            let means = "full NAT without local addresses, which DPVS's -S leaves out";
            let instead = "add lines such as `-P -t VIP:PORT -z ADDRESS -F DEVICE`: they become a \
                           pool; the service was left out";
            report.lost(&made.place, "-b", means, instead);
        }
        !bare
    });
    outward.settle(&mut target, &mut report);
    sound::settle(&mut target, &mut report);
    Imported::new(target, report)
}

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    protocol: &'static str,
    address: IpAddr,
    port: u16,
}

struct Turn<'t> {
    place: Place,
    options: Options,
    names: &'t mut dyn Names,
    target: &'t mut Target,
    report: &'t mut Report,
    outward: &'t mut Outward,
}

impl Turn<'_> {
    fn lost(&mut self, word: &str, means: impl Into<String>, instead: impl Into<String>) {
        self.report.lost(&self.place, word, means, instead);
    }

    fn take(&mut self, command: Command) {
        let matches = self.options.matches.clone();
        match command {
            Command::AddService | Command::AddServer if matches.is_some() => {
                self.source_nat(command == Command::AddService, &matches.unwrap_or_default());
            }
            Command::AddService => self.service(),
            Command::AddServer => self.server(),
            Command::AddLocal => self.local(),
            Command::AddDenied => self.clients("deny"),
            Command::AddAllowed => self.clients("allow"),
            Command::Clear => {}
            Command::Timeouts => self.lost(
                "--set",
                "sets how long idle connections stay",
                "set tcp_established_s, tcp_fin_wait_s and udp_s of [timeouts] in the file",
            ),
            Command::Daemon => self.lost(
                "--start-daemon",
                "sends connections to a standby director",
                "there is no synchronisation of connections",
            ),
            Command::Other(word) => {
                self.lost(&word, "no command that adds anything", "run it by hand if it matters");
            }
        }
    }

    /// The service that the line names.
    fn key(&mut self) -> Option<Key> {
        if self.options.mark.is_some() {
            self.lost(
                "-f",
                "serves what a firewall rule has marked",
                "the director takes packets before the firewall: write a service for each \
                 address and port that the rule marks",
            );
            return None;
        }
        if self.options.matches.is_some() {
            let means = "a service by match has neither local addresses nor lists of clients";
            self.lost("-H", means, "src-range says who goes out by it");
            return None;
        }
        let Some((protocol, text)) = self.options.service.clone() else {
            self.lost("-t", "no service is named", "see ipvsadm(8)");
            return None;
        };
        let (address, port) = self.endpoint(&text, protocol)?;
        Some(Key { protocol, address, port: port.unwrap_or(0) })
    }

    fn endpoint(&mut self, text: &str, protocol: &str) -> Option<(IpAddr, Option<u16>)> {
        let (host, port) = options::endpoint(text);
        let by_number = host.parse().ok();
        if by_number.is_none() && !self.names.resolves() {
            let means = format!("the host {host:?} was not looked up");
            self.lost(text, means, "save with -n, or import with --resolve");
            return None;
        }
        let Some(address) = by_number.or_else(|| self.names.host(host)) else {
            self.lost(text, format!("nobody knows the host {host:?}"), "save with -n");
            return None;
        };
        let Some(port) = port else { return Some((address, None)) };
        let number = port.parse().ok().or_else(|| self.names.port(port, protocol));
        if number.is_none() {
            self.lost(text, format!("nobody knows the service {port:?}"), "save with -n");
        }
        Some((address, Some(number?)))
    }

    /// A service by match, or an address that sources become.
    fn source_nat(&mut self, is_service: bool, text: &str) {
        let is = match text.parse::<Match>() {
            Ok(is) => is,
            Err(MatchError { found, right }) => return self.lost("-H", found, right),
        };
        let options = self.options.clone();
        if is_service {
            if !self.outward.add(is, self.place.clone(), self.place.line) {
                self.lost("-A", format!("{} is there already", is.rule_name()), "the first counts");
            }
            if options.persistent.is_some() {
                let means = "has what comes from one machine have one source";
                let how = "each inside address and port has one, wherever it goes (mapping)";
                self.report.differs(&self.place, "-p", means, how);
            }
            for (word, means, instead) in options.without_equal() {
                self.lost(word, means, instead);
            }
            return;
        }
        if !['J', 'g'].contains(&options.method) {
            let means = "a service by match forwards to nobody: it is source NAT";
            return self.lost(&format!("-{}", options.method), means, "use -J");
        }
        let Some(text) = &options.real else {
            return self.lost("-r", "no address is named", "see ipvsadm(8)");
        };
        let Some((address, _)) = self.endpoint(text, "tcp") else { return };
        if !self.outward.address(&is, address, options.weight.unwrap_or(1)) {
            self.lost("-a", format!("{} is not there", is.rule_name()), "add the service first");
        }
    }

    fn service(&mut self) {
        let Some(key) = self.key() else { return };
        let mut table = Table::new();
        let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
        let name = service_name(key.protocol, key.address, key.port);
        put("name", name.as_str().into());
        put("protocol", key.protocol.into());
        put("vip", key.address.to_string().into());
        if key.port != 0 {
            put("port", key.port.into());
        }
        // Servers bring their own; full NAT needs a pool, which a service may be without.
        put("mode", "nat".into());
        let options = self.options.clone();
        let said = options.scheduler.as_deref().unwrap_or(DEFAULT_SCHEDULER);
        let ours = if said == "conhash" { "mh" } else { said };
        if known("scheduler", &ours.into()) {
            put("scheduler", ours.into());
        } else {
            put("scheduler", DEFAULT_SCHEDULER.into());
            let instead =
                format!("it is {DEFAULT_SCHEDULER}; docs/schedulers.md has those there are");
            self.lost("-s", format!("the scheduler {said}"), instead);
        }
        if let Some(seconds) = &options.persistent {
            let seconds = seconds.unwrap_or(DEFAULT_PERSISTENCE_S);
            put("persistence_s", seconds.clamp(1, 86_400).into());
        }
        if let Some(mask) = &options.netmask {
            match options::prefix(mask) {
                Some(32) if key.address.is_ipv4() => {}
                Some(128) => {}
                Some(bits) => put("persistence_prefix", bits.into()),
                None => self.lost("-M", format!("the mask {mask}"), "set persistence_prefix"),
            }
        }
        if options.one_packet {
            put("one_packet", true.into());
        }
        if options.flags.iter().any(|flag| ["sh-port", "mh-port", "flag-2"].contains(&&**flag)) {
            put("hash", "client_port".into());
        }
        self.of_dpvs(&options, &mut table);
        let end = self.place.line;
        let made = Made { table, place: self.place.clone(), end };
        if !self.target.service(made) {
            self.lost("-A", format!("{name} is there already"), "the first one counts");
        }
    }

    /// What DPVS's ipvsadm says of a service, and what there is nothing for.
    fn of_dpvs(&mut self, options: &Options, table: &mut Table) {
        let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
        if let Some(word) = &options.proxy_protocol {
            match word.as_str() {
                "disable" => {}
                v1 if v1.starts_with("v1") => put("client_address", "proxy_v1".into()),
                v2 if v2.starts_with("v2") => put("client_address", "proxy_v2".into()),
                other => self.lost("--proxy-protocol", other, "client_address says it"),
            }
        }
        if options.expire_quiescent {
            put("on_removed", "reschedule".into());
        }
        if let Some(seconds) = options.connection_timeout {
            if known("idle_timeout_s", &seconds.into()) {
                put("idle_timeout_s", seconds.into());
            } else {
                self.lost(
                    "--conn-timeout",
                    "how long an idle connection of this service stays",
                    "tcp_established_s and udp_s of [timeouts] hold for all services",
                );
            }
        }
        for (word, means, instead) in options.without_equal() {
            self.lost(word, means, instead);
        }
    }

    /// The service of a line that must be there.
    fn own(&mut self) -> Option<(Key, String)> {
        let key = self.key()?;
        let name = service_name(key.protocol, key.address, key.port);
        let line = self.place.line;
        let found = self.target.service_named(&name).map(|made| made.end = line).is_some();
        if !found {
            self.lost("-a", format!("{name} is not there"), "add the service first");
        }
        found.then_some((key, name))
    }

    fn server(&mut self) {
        let Some((key, name)) = self.own() else { return };
        let options = self.options.clone();
        let Some(text) = &options.real else {
            return self.lost("-r", "no server is named", "see ipvsadm(8)");
        };
        let Some((address, port)) = self.endpoint(text, key.protocol) else { return };
        let Some(mode) = self.mode(&options) else { return };
        let mut table = Table::new();
        let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
        put("address", address.to_string().into());
        let is_tunnel = tunnel::named(mode).is_some();
        if mode != "dr" && !is_tunnel {
            let port = port.unwrap_or(key.port);
            if port != 0 {
                put("port", port.into());
            }
        }
        let weight = options.weight.unwrap_or(1);
        put("weight", weight.min(65_535).into());
        if mode != "nat" {
            put("mode", mode.into());
        }
        let tunnel_port = options.tunnel_port.as_ref().and_then(|port| port.parse::<u16>().ok());
        if let Some(port) = tunnel_port.filter(|port| mode == "gue" && *port != 0) {
            put("tunnel_port", port.into());
        }
        if is_tunnel && mode != "ipip" && options.tunnel_sum.as_deref() == Some("--tun-csum") {
            put("tunnel_checksum", true.into());
        }
        for (key, value) in [("upper_sessions", options.upper), ("lower_sessions", options.lower)] {
            if let Some(value) = value.filter(|&value| value > 0) {
                put(key, value.min(1 << 30).into());
            }
        }
        if weight > 65_535 {
            let means = format!("a weight of {weight}");
            self.report.differs(&self.place, "-w", means, "it is 65535, the most there is");
        }
        if is_tunnel {
            let means = "tunnels packets to the server";
            let how = "the director's file needs source_v4 or source_v6 of [ipip]";
            self.report.differs(&self.place, "-i", means, how);
        }
        if let Some(made) = self.target.service_named(&name) {
            let reals = made.table.entry("real").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(reals) = reals {
                reals.push(Value::Object(table));
            }
        }
    }

    fn mode(&mut self, options: &Options) -> Option<&'static str> {
        let mode = match (options.method, options.tunnel.as_deref()) {
            ('m', _) => "nat",
            ('g', _) => "dr",
            ('b', _) => "fnat",
            ('i', _) if options.tunnel_sum.as_deref() == Some("--tun-remcsum") => {
                let means = "remote checksum offload: the receiver makes the inner checksum";
                self.lost("--tun-remcsum", means, "use --tun-csum or --tun-nocsum");
                return None;
            }
            ('i', kind) => match tunnel::named(kind.unwrap_or("ipip")) {
                Some(mode) => mode,
                None => {
                    let means = format!("tunnels by {}", kind.unwrap_or_default());
                    self.lost("--tun-type", means, "mode = \"ipip\" is a tunnel that there is");
                    return None;
                }
            },
            _ => {
                let means = "source NAT for connections from inside";
                self.lost("-J", means, "name a service by match (-H), or write a [[snat]] rule");
                return None;
            }
        };
        Some(mode)
    }

    /// A local address: each service has a pool of its own, as in DPVS, unless another service
    /// has the same addresses.
    fn local(&mut self) {
        let Some((_, name)) = self.own() else { return };
        let Some(address) = self.options.local.clone() else {
            return self.lost("-z", "no local address is named", "-z ADDRESS");
        };
        let first = self.target.pools.iter().position(|pool| {
            let all = pool.table.get("addresses").and_then(Value::as_array);
            all.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(&address)))
        });
        let own = self
            .target
            .service_named(&name)
            .and_then(|made| made.table.get("pool").and_then(Value::as_str).map(str::to_owned));
        let pool = match (own, first) {
            (Some(pool), None) => pool,
            (Some(pool), Some(first)) if self.target.pools[first].name() == pool => return,
            (Some(_), Some(_)) => {
                let means = format!("{address} is a local address of another service's pool");
                return self.lost("-z", means, "have both services use one [[pool]]");
            }
            (None, Some(first)) => self.target.pools[first].name().to_owned(),
            (None, None) => format!("local-{name}"),
        };
        if first.is_none() {
            self.add_to_pool(&pool, &address);
        }
        if let Some(made) = self.target.service_named(&name) {
            made.table.insert("pool".to_owned(), pool.into());
        }
    }

    fn add_to_pool(&mut self, name: &str, address: &str) {
        if let Some(pool) = self.target.pools.iter_mut().find(|pool| pool.name() == name) {
            if let Some(Value::Array(all)) = pool.table.get_mut("addresses") {
                all.push(address.into());
            }
            return;
        }
        let mut table = Table::new();
        table.insert("name".to_owned(), name.into());
        table.insert("addresses".to_owned(), vec![Value::from(address)].into());
        let (place, end) = (self.place.clone(), self.place.line);
        self.target.pools.push(Made { table, place, end });
    }

    fn clients(&mut self, key: &str) {
        let Some((_, name)) = self.own() else { return };
        let (word, subject) = match key {
            "deny" => ("-k", self.options.denied.clone()),
            _ => ("-2", self.options.allowed.clone()),
        };
        let subject = subject.unwrap_or_default();
        if !subject.starts_with("ipset:") && known(key, &vec![Value::from(subject.as_str())].into())
        {
            if let Some(made) = self.target.service_named(&name) {
                let list = made.table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(subject.into());
                }
            }
            return;
        }
        let means = format!("a list of clients: {subject}");
        self.lost(word, means, "filter before the director, or at the real servers");
    }
}
