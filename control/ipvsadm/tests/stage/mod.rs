//! A world on paper: answers from a file, names from a few lines, streams into memory.

use std::net::{IpAddr, Ipv4Addr};

use sluice_ipvs::{
    Answer, Connection, Daemon, Destination, Errno, Family, Info, LocalAddresses, Method, Protocol,
    Reply, Request, Role, Service, ServiceKey, ServiceSpec, Stats, Timeouts, Tunnel, TunnelKind,
};
use sluice_ipvsadm::{Gone, Transport, World};

/// The world, and what came of a run in it.
#[derive(Default)]
pub struct Stage {
    errno: Option<Errno>,
    services: Vec<Service>,
    /// Services by match.
    pub matches: Vec<Service>,
    daemons: Vec<Daemon>,
    timeouts: Option<Timeouts>,
    connections: Option<Vec<Connection>>,
    /// Local addresses, of one service.
    pub locals: Vec<LocalAddresses>,
    /// Clients that are refused or served alone, of one service.
    pub listed: Vec<(ServiceKey, Vec<String>)>,
    /// Lines to come, the last one first.
    pub stdin: Vec<String>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Whether questions without words in the recordings are let through.
    pub lenient: bool,
    /// What was asked for, in the words of the recordings.
    pub calls: Vec<String>,
}

impl Stage {
    /// With every question but the first answered by `errno`, unless it is 0.
    pub fn new(errno: i32, state: Option<&str>, connections: bool) -> Self {
        let mut stage = Self { errno: by_number(errno), ..Self::default() };
        let text = match state {
            Some("st1") => include_str!("../observed/st1.state"),
            Some("st2") => include_str!("../observed/st2.state"),
            Some("st3") => include_str!("../observed/st3.state"),
            Some("st4") => include_str!("../observed/st4.state"),
            _ => "",
        };
        text.lines().for_each(|line| stage.read(line));
        stage.connections = connections.then(some_connections);
        stage
    }

    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "S" => self.services.push(service(&words)),
            "D" => {
                let service = self.services.last_mut().expect("a service before its servers");
                service.destinations.push(destination(&words));
            }
            "T" => {
                let [tcp_s, tcp_fin_s, udp_s] = [1, 2, 3].map(|at| parsed(words[at]));
                self.timeouts = Some(Timeouts { tcp_s, tcp_fin_s, udp_s });
            }
            "M" => self.daemons.push(Daemon {
                role: if words[1] == "1" { Role::Master } else { Role::Backup },
                interface: words[2].to_owned(),
                sync_id: parsed(words[3]),
                maximum_length: parsed(words[4]),
                group: words[5].parse().ok(),
                port: parsed(words[6]),
                ttl: parsed(words[7]),
            }),
            other => panic!("{other}: no such line in a state"),
        }
    }

    fn reply(&self, request: &Request) -> Result<Reply, Errno> {
        if let (Some(errno), true) = (self.errno, !matches!(request, Request::Connections { .. })) {
            return Err(errno);
        }
        Ok(match request {
            Request::Services => Reply::Services(self.services.clone()),
            Request::Matches => Reply::Services(self.matches.clone()),
            Request::Service(key) => {
                let found = self.services.iter().find(|service| service.spec.key == *key);
                Reply::Services(vec![found.cloned().ok_or(Errno::Srch)?])
            }
            Request::Timeouts => {
                let none = Timeouts { tcp_s: 0, tcp_fin_s: 0, udp_s: 0 };
                Reply::Timeouts(self.timeouts.unwrap_or(none))
            }
            Request::Daemons => Reply::Daemons(self.daemons.clone()),
            Request::Connections { .. } => {
                let connections = self.connections.clone().ok_or(Errno::Io)?;
                Reply::Connections { connections, next: None }
            }
            Request::LocalAddresses(_) => Reply::LocalAddresses(self.locals.clone()),
            Request::Listed(..) => Reply::Listed(self.listed.clone()),
            _ => Reply::Done,
        })
    }
}

fn by_number(number: i32) -> Option<Errno> {
    let all = [
        Errno::Perm,
        Errno::NoEnt,
        Errno::Srch,
        Errno::Io,
        Errno::NoMem,
        Errno::Exist,
        Errno::Inval,
        Errno::Range,
        Errno::OpNotSupp,
    ];
    all.into_iter().find(|errno| errno.number() == number)
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().expect(word)
}

fn stats(words: &[&str]) -> Stats {
    let at = |index: usize| words.get(index).map_or(0, |word| parsed(word));
    Stats {
        connections: at(0),
        in_packets: at(1),
        out_packets: at(2),
        in_bytes: at(3),
        out_bytes: at(4),
        connections_per_s: at(5),
        in_packets_per_s: at(6),
        out_packets_per_s: at(7),
        in_bytes_per_s: at(8),
        out_bytes_per_s: at(9),
    }
}

fn service(words: &[&str]) -> Service {
    let mark = parsed(words[5]);
    let family = if words[1] == "6" { Family::Ipv6 } else { Family::Ipv4 };
    let key = match Protocol::of(parsed(words[2])) {
        Some(protocol) if mark == 0 => {
            ServiceKey::Address { protocol, address: parsed(words[3]), port: parsed(words[4]) }
        }
        _ => ServiceKey::Mark { mark, family },
    };
    let mask = words[9].parse::<Ipv4Addr>().map(Ipv4Addr::to_bits);
    let spec = ServiceSpec {
        key,
        scheduler: words[6].to_owned(),
        flags: u32::from_str_radix(words[7], 16).expect("flags"),
        timeout_s: parsed(words[8]),
        netmask: mask.unwrap_or_else(|_| parsed(words[9])),
        persistence_engine: Some(words[10].to_owned()).filter(|engine| engine != "-"),
        settings: None,
    };
    let (owner, name) = ("ipvsadm".to_owned(), String::new());
    Service { spec, owner, name, stats: stats(&words[11..]), destinations: Vec::new() }
}

fn destination(words: &[&str]) -> Destination {
    let kinds = [TunnelKind::Ipip, TunnelKind::Gue, TunnelKind::Gre];
    Destination {
        address: parsed(words[2]),
        port: parsed(words[3]),
        method: Method::ALL[parsed::<usize>(words[4])],
        weight: parsed(words[5]),
        upper: parsed(words[6]),
        lower: parsed(words[7]),
        active: parsed(words[8]),
        inactive: parsed(words[9]),
        persistent: parsed(words[10]),
        tunnel: Tunnel {
            kind: kinds[parsed::<usize>(words[11])],
            port: parsed(words[12]),
            flags: parsed(words[13]),
        },
        stats: stats(&words[14..]),
    }
}

/// The connections that were in the kernel's table when the recordings were made.
fn some_connections() -> Vec<Connection> {
    let one = |protocol, client: (&str, u16), virtual_: (&str, u16), real: (&str, u16)| {
        let end = |(address, port): (&str, u16)| (parsed::<IpAddr>(address), port);
        let (client, virtual_, destination) = (end(client), end(virtual_), end(real));
        let (state, expires_s) = ("FIN_WAIT".to_owned(), 7);
        Connection { protocol, client, virtual_, local: None, destination, state, expires_s }
    };
    let home = "127.0.0.1";
    let with = |connection: Connection, state: &str, expires_s| Connection {
        state: state.to_owned(),
        expires_s,
        ..connection
    };
    let near = |protocol| one(protocol, (home, 80), (home, 53), (home, 69));
    vec![
        one(6, ("2001:db8::5", 40000), ("2001:db8::1", 80), ("2001:db8::2", 8080)),
        with(one(6, ("::1", 40000), ("::1", 80), ("198.51.100.2", 8080)), "FIN_WAIT", 6000),
        with(near(17), "UDP", 360_000),
        with(near(132), "ESTABLISHED", 36),
        with(near(1), "NONE", 36),
    ]
}

impl World for Stage {
    fn ask(&mut self, request: &Request) -> Result<Answer, Gone> {
        if matches!(request, Request::Info) {
            let info = Info { version: 0x0001_0201, table_size: 4096, services: 0 };
            return Ok(Answer::Ok(Reply::Info(info)));
        }
        if !self.lenient {
            self.calls.extend(words::of(request));
        }
        Ok(match self.reply(request) {
            Ok(reply) => Answer::Ok(reply),
            Err(errno) => Answer::Refused { errno, detail: String::new() },
        })
    }

    fn host_address(&mut self, name: &str) -> Option<Ipv4Addr> {
        (name == "localhost").then_some(Ipv4Addr::LOCALHOST)
    }

    fn host_name(&mut self, address: Ipv4Addr) -> Option<String> {
        (address == Ipv4Addr::LOCALHOST).then(|| "localhost".to_owned())
    }

    fn service_port(&mut self, name: &str, transport: Transport) -> Option<u16> {
        let found = SERVICES.iter().find(|(_, t, other)| *t == transport && *other == name);
        found.map(|(port, ..)| *port)
    }

    fn service_name(&mut self, port: u16, transport: Transport) -> Option<String> {
        let found = SERVICES.iter().find(|(other, t, _)| *t == transport && *other == port);
        found.map(|(.., name)| (*name).to_owned())
    }

    fn out(&mut self, text: &str) {
        self.out += text;
    }

    fn err(&mut self, text: &str) {
        self.err += text;
    }

    fn line(&mut self) -> Option<String> {
        self.stdin.pop()
    }

    fn has_more(&mut self) -> bool {
        true
    }
}

/// What of `/etc/services` the recordings used.
const SERVICES: [(u16, Transport, &str); 8] = [
    (53, Transport::Tcp, "domain"),
    (53, Transport::Udp, "domain"),
    (69, Transport::Udp, "tftp"),
    (79, Transport::Tcp, "finger"),
    (80, Transport::Tcp, "http"),
    (443, Transport::Tcp, "https"),
    (443, Transport::Udp, "https"),
    (8080, Transport::Tcp, "http-alt"),
];

mod words {
    //! Requests in the words of the recordings.

    use sluice_ipvs::{Destination, Family, Protocol, Request, Role, ServiceKey, ServiceSpec};

    /// None for what the recordings leave out.
    pub fn of(request: &Request) -> Option<String> {
        Some(match request {
            Request::Info | Request::Connections { .. } => return None,
            Request::LocalAddresses(_) | Request::Listed(..) | Request::Matches => return None,
            Request::Services => "services".to_owned(),
            Request::Service(it) => format!("service {}", key(it)),
            Request::AddService(it) => format!("add_service {}", spec(it)),
            Request::EditService(it) => format!("edit_service {}", spec(it)),
            Request::DeleteService(it) => format!("delete_service {}", key(it)),
            Request::Flush => "flush".to_owned(),
            Request::Zero(None) => "zero all".to_owned(),
            Request::Zero(Some(it)) => format!("zero {}", key(it)),
            Request::AddDestination(it, to) => format!("add_server {} {}", key(it), server(to)),
            Request::EditDestination(it, to) => format!("edit_server {} {}", key(it), server(to)),
            Request::DeleteDestination(it, (address, port)) => {
                format!("delete_server {} {address} {port}", key(it))
            }
            Request::Timeouts => "timeouts".to_owned(),
            Request::SetTimeouts(it) => format!("set {} {} {}", it.tcp_s, it.tcp_fin_s, it.udp_s),
            Request::Daemons => "daemons".to_owned(),
            Request::StartDaemon(it) => {
                let group = it.group.map_or_else(|| "-".to_owned(), |group| group.to_string());
                let (interface, id) = (&it.interface, it.sync_id);
                let (length, port, ttl) = (it.maximum_length, it.port, it.ttl);
                let role = role(it.role);
                format!("start {role} {interface} {id} {length} {group} {port} {ttl}")
            }
            Request::StopDaemon(it) => format!("stop {}", role(*it)),
            other => panic!("the stock program has nothing like {other:?}"),
        })
    }

    fn role(role: Role) -> u8 {
        if role == Role::Master { 1 } else { 2 }
    }

    fn key(key: &ServiceKey) -> String {
        match *key {
            ServiceKey::Mark { mark, family } => {
                format!("mark {mark} ipv{}", if family == Family::Ipv6 { 6 } else { 4 })
            }
            ServiceKey::Address { protocol, address, port } => {
                let protocol = match protocol {
                    Protocol::Tcp => "tcp",
                    Protocol::Udp => "udp",
                    Protocol::Sctp => "sctp",
                };
                format!("{protocol} {address} {port}")
            }
            ServiceKey::Match(it) => format!("match {it}"),
        }
    }

    fn spec(it: &ServiceSpec) -> String {
        let scheduler = if it.scheduler.is_empty() { "''" } else { &it.scheduler };
        let engine = it.persistence_engine.as_deref().unwrap_or("-");
        let (flags, timeout, mask) = (it.flags, it.timeout_s, it.netmask);
        format!("{} {scheduler} {flags:x} {timeout} {mask} {engine}", key(&it.key))
    }

    fn server(it: &Destination) -> String {
        let (address, port, method) = (it.address, it.port, it.method.number());
        let (weight, upper, lower, tunnel) = (it.weight, it.upper, it.lower, it.tunnel);
        let (kind, sum) = (tunnel.kind as u8, tunnel.flags);
        format!("{address} {port} {method} {weight} {upper} {lower} {kind} {} {sum}", tunnel.port)
    }
}
