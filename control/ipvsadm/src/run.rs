//! Runs a command line from beginning to end.

use std::mem;

use sluice_ipvs::{
    Answer, Connection, Daemon, Errno, Info, List, Reply, Request, Role, Service, ServiceKey,
    Timeouts,
};

use crate::connections;
use crate::help;
use crate::listing;
use crate::message;
use crate::order;
use crate::parse::{Command, Fault, Listing, Locals, SockPair, What, parse};
use crate::save::{self, Beside, save};
use crate::verb::Verb;
use crate::world::{Gone, World};

/// What the program says it is: scripts look for this.
pub const VERSION: &str = "ipvsadm v1.31 2019/12/24";

/// A failed command, and an option that does not exist.
const FAILED: u8 = 255;
/// A list that could not be had.
const NO_LIST: u8 = 1;
/// No director.
const NOTHING_THERE: u8 = 2;
/// Changes of a restore that are asked for together at most.
const TOGETHER: usize = 1000;

/// What became of a command line.
enum Outcome {
    /// The next line of a restore may come.
    Next(u8),
    /// Nothing more is done.
    End(u8),
}

/// Runs the command line `arguments` of a program that was called by `name`; the exit code.
pub fn run(name: &str, arguments: &[String], world: &mut impl World) -> u8 {
    let info = match world.ask(&Request::Info) {
        Ok(Answer::Ok(Reply::Info(info))) => info,
        Ok(Answer::Refused { errno, detail }) => {
            return uninitialised(message::plain(errno), &detail, world);
        }
        Ok(Answer::Ok(_)) => {
            return uninitialised(Gone::ABSENT, Gone::STRANGE, world);
        }
        Err(Gone { why, advice }) => return uninitialised(why, &advice, world),
    };
    match line(name, arguments, &info, world) {
        Outcome::Next(code) | Outcome::End(code) => code,
    }
}

fn uninitialised(why: &str, advice: &str, world: &mut impl World) -> u8 {
    world.err(&format!(
        "Can't initialize ipvs: {why}\n\
         Are you sure that IP Virtual Server is built in the kernel or as module?\n\
         sluice: {advice}\n"
    ));
    NOTHING_THERE
}

fn line(name: &str, arguments: &[String], info: &Info, world: &mut impl World) -> Outcome {
    let command = parse(name, arguments, world);
    obey(name, command, info, world)
}

fn obey(
    name: &str,
    command: Result<Command, Fault>,
    info: &Info,
    world: &mut impl World,
) -> Outcome {
    let command = match command {
        Ok(command) => command,
        Err(fault) => {
            world.err(&fault.text);
            return match fault.ends {
                true => Outcome::End(fault.code),
                false => Outcome::Next(fault.code),
            };
        }
    };
    match command {
        Command::Help => {
            world.out(&help::usage(name, info));
            Outcome::End(0)
        }
        Command::Version => {
            world.out(&help::versions(info));
            Outcome::End(0)
        }
        Command::Restore => restore(name, info, world),
        Command::Change(verb, request) => match reply(world, &request) {
            Ok(_) => Outcome::Next(0),
            Err(trouble) => Outcome::Next(trouble.tell(verb, FAILED, world)),
        },
        Command::List(listing) => listed(list(&listing, info, world)),
        Command::Save { numeric } => listed(all_saved(numeric, world)),
        Command::Locals(locals) => listed(local_addresses(&locals, world)),
    }
}

fn listed(outcome: Result<(), u8>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Next(0),
        Err(code) => Outcome::End(code),
    }
}

/// Each line of standard input is a command line, with or without the program's name. A line that
/// cannot be read ends it; one that fails does not, and the last one's exit code is that of all.
/// Changes are asked for together as long as there are lines to be had.
fn restore(name: &str, info: &Info, world: &mut impl World) -> Outcome {
    let mut code = 0;
    let mut changes = Changes::default();
    while let Some(text) = world.line() {
        let words = text.split([' ', '\t', '\r', '\n']);
        let words = words.filter(|word| !word.is_empty() && *word != "ipvsadm");
        let arguments: Vec<String> = words.map(str::to_owned).collect();
        if arguments.is_empty() {
            continue;
        }
        let command = match parse(name, &arguments, world) {
            Ok(Command::Change(verb, request)) => {
                changes.push(verb, request);
                if changes.requests.len() == TOGETHER || !world.has_more() {
                    code = changes.make(world).unwrap_or(code);
                }
                continue;
            }
            // A restore within a restore would read the lines of the one that it is in.
            Ok(Command::Restore) => Err(Fault::puzzled(name)),
            command => command,
        };
        changes.make(world);
        match obey(name, command, info, world) {
            Outcome::Next(last) => code = last,
            Outcome::End(code) => return Outcome::End(code),
        }
    }
    Outcome::Next(changes.make(world).unwrap_or(code))
}

/// Changes that were not asked for yet.
#[derive(Default)]
struct Changes {
    verbs: Vec<Verb>,
    requests: Vec<Request>,
}

impl Changes {
    fn push(&mut self, verb: Verb, request: Request) {
        self.verbs.push(verb);
        self.requests.push(request);
    }

    /// Asks for all of them and tells what failed; the last one's exit code, if there is any.
    fn make(&mut self, world: &mut impl World) -> Option<u8> {
        let (verbs, requests) = (mem::take(&mut self.verbs), mem::take(&mut self.requests));
        let last = *verbs.last()?;
        let answers = match world.ask_all(&requests) {
            Ok(answers) => answers,
            Err(gone) => return Some(Trouble::Gone(gone).tell(last, FAILED, world)),
        };
        let mut code = 0;
        for (verb, answer) in verbs.into_iter().zip(answers) {
            code = match answer {
                Answer::Ok(_) => 0,
                Answer::Refused { errno, detail } => {
                    Trouble::Refused(errno, detail).tell(verb, FAILED, world)
                }
            };
        }
        Some(code)
    }
}

/// Why there is no reply.
enum Trouble {
    Refused(Errno, String),
    Gone(Gone),
}

impl Trouble {
    fn tell(self, verb: Verb, code: u8, world: &mut impl World) -> u8 {
        match self {
            Self::Refused(errno, detail) => {
                // First, as where the stock program runs with the director as its IPVS.
                if !message::tells_enough(verb, errno) && !detail.is_empty() {
                    world.err(&format!("sluice: {detail}\n"));
                }
                world.err(&format!("{}\n", message::failed(verb, errno)));
            }
            Self::Gone(Gone { why, advice }) => {
                world.err(&format!("sluice: {advice}\n{why}\n"));
            }
        }
        code
    }
}

impl Trouble {
    /// The stock program reads connections from a file.
    fn tell_of_connections(self, world: &mut impl World) -> u8 {
        let (Self::Refused(_, advice) | Self::Gone(Gone { advice, .. })) = self;
        if !advice.is_empty() {
            world.err(&format!("sluice: {advice}\n"));
        }
        world.err("cannot open file /proc/net/ip_vs_conn\n");
        NO_LIST
    }
}

fn reply(world: &mut impl World, request: &Request) -> Result<Reply, Trouble> {
    match world.ask(request) {
        Ok(Answer::Ok(reply)) => Ok(reply),
        Ok(Answer::Refused { errno, detail }) => Err(Trouble::Refused(errno, detail)),
        Err(gone) => Err(Trouble::Gone(gone)),
    }
}

fn strange() -> Trouble {
    Trouble::Gone(Gone { why: Gone::ABSENT, advice: Gone::STRANGE.to_owned() })
}

fn services(world: &mut impl World, key: Option<ServiceKey>) -> Result<Vec<Service>, Trouble> {
    let requests = match key {
        Some(key) => vec![Request::Service(key)],
        None => vec![Request::Services, Request::Matches],
    };
    let mut all = Vec::new();
    for request in requests {
        match reply(world, &request)? {
            Reply::Services(services) => all.extend(services),
            _ => return Err(strange()),
        }
    }
    Ok(all)
}

fn list(listing: &Listing, info: &Info, world: &mut impl World) -> Result<(), u8> {
    match listing.what {
        What::Connections(pair) => all_connections(listing, pair, world),
        What::Timeouts => {
            let Ok(Reply::Timeouts(timeouts)) = reply(world, &Request::Timeouts) else {
                return Err(NO_LIST);
            };
            let Timeouts { tcp_s, tcp_fin_s, udp_s } = timeouts;
            world.out(&format!("Timeout (tcp tcpfin udp): {tcp_s} {tcp_fin_s} {udp_s}\n"));
            Ok(())
        }
        What::Daemons => {
            let Ok(Reply::Daemons(daemons)) = reply(world, &Request::Daemons) else {
                return Err(NO_LIST);
            };
            daemons.iter().for_each(|it| world.out(&daemon(it)));
            Ok(())
        }
        What::Services(key) => {
            if key.is_none() {
                let (version, size) = (help::version(info), info.table_size);
                world.out(&format!("IP Virtual Server version {version} (size={size})\n"));
            }
            let services = services(world, key);
            let mut services = services.map_err(|why| why.tell(Verb::of(key), NO_LIST, world))?;
            if listing.sorted {
                order::sort(&mut services);
            }
            world.out(&listing::heading(listing.columns));
            for service in &services {
                let text = listing::service(service, listing, world);
                world.out(&text);
            }
            Ok(())
        }
    }
}

fn daemon(it: &Daemon) -> String {
    let role = match it.role {
        Role::Master => "master",
        Role::Backup => "backup",
    };
    let (interface, id) = (&it.interface, it.sync_id);
    let mut text = format!("{role} sync daemon (mcast={interface}, syncid={id}");
    if it.maximum_length != 0 {
        text += &format!(", maxlen={}", it.maximum_length);
    }
    if let Some(group) = it.group {
        text += &format!(", group={group}");
    }
    if it.port != 0 {
        text += &format!(", port={}", it.port);
    }
    if it.ttl != 0 {
        text += &format!(", ttl={}", it.ttl);
    }
    text + ")\n"
}

fn all_connections(
    listing: &Listing,
    pair: Option<SockPair>,
    world: &mut impl World,
) -> Result<(), u8> {
    let wanted =
        |it: &Connection| pair.is_none_or(|pair| pair == (it.protocol, it.client, it.virtual_));
    let mut cursor = None;
    let mut first = true;
    loop {
        let page = match reply(world, &Request::Connections { cursor }) {
            Ok(Reply::Connections { connections, next }) => (connections, next),
            Ok(_) => return Err(strange().tell_of_connections(world)),
            Err(trouble) => return Err(trouble.tell_of_connections(world)),
        };
        if std::mem::take(&mut first) {
            world.out(&connections::heading(listing));
        }
        for it in page.0.iter().filter(|it| wanted(it)) {
            let text = connections::row(it, listing, world);
            world.out(&text);
        }
        if page.1.is_none() {
            return Ok(());
        }
        cursor = page.1;
    }
}

fn all_saved(numeric: bool, world: &mut impl World) -> Result<(), u8> {
    let all = services(world, None);
    let mut all = all.map_err(|trouble| trouble.tell(Verb::Save, NO_LIST, world))?;
    order::sort(&mut all);
    let mut beside = Beside::default();
    if let Ok(Reply::LocalAddresses(locals)) = reply(world, &Request::LocalAddresses(None)) {
        beside.locals = locals;
    }
    let [denied, allowed] =
        save::LISTS.map(|list| match reply(world, &Request::Listed(list, None)) {
            Ok(Reply::Listed(listed)) => listed,
            _ => Vec::new(),
        });
    (beside.denied, beside.allowed) = (denied, allowed);
    for service in &all {
        let text = save(service, &beside, numeric, world);
        world.out(&text);
    }
    Ok(())
}

fn local_addresses(asked: &Locals, world: &mut impl World) -> Result<(), u8> {
    let request = match asked.list {
        None => Request::LocalAddresses(asked.key),
        Some(list) => Request::Listed(list, asked.key),
    };
    let found = reply(world, &request);
    match found.map_err(|trouble| trouble.tell(Verb::GetLocal, NO_LIST, world))? {
        Reply::LocalAddresses(services) => {
            let heading = ["VIP:VPORT", "TOTAL", "SNAT_IP", "CONFLICTS", "CONNS"];
            let [service, total, address, conflicts, connections] = heading;
            world.out(&format!(
                "{service:<20} {total:<8} {address:<20} {conflicts:<10} {connections:<10}\n"
            ));
            for it in services {
                let service = listing::plain_name(&it.key, asked.numeric, world);
                world.out(&format!("{service:<20} {:<8} \n", it.addresses.len()));
                for it in it.addresses {
                    let (address, count) = (it.address.to_string(), it.connections);
                    let conflicts = it.conflicts;
                    world.out(&format!(
                        "{:<20} {:<8} {address:<20} {conflicts:<10} {count:<10}\n",
                        "", ""
                    ));
                }
            }
        }
        Reply::Listed(services) => {
            let list = match asked.list {
                Some(List::Allow) => "WHITELIST",
                _ => "BLACKLIST",
            };
            world.out(&format!("{:<8} {:<30} {list:<30}\n", "PROTO", "VIP:VPORT"));
            for (key, clients) in services {
                let service = listing::plain_name(&key, asked.numeric, world);
                let protocol = listing::transport(&key)
                    .map_or("FWM", |transport| ["TCP", "UDP", "SCTP"][transport as usize]);
                for client in clients {
                    world.out(&format!("{protocol:<8} {service:<30} {client:<30}\n"));
                }
            }
        }
        _ => return Err(strange().tell(Verb::GetLocal, NO_LIST, world)),
    }
    Ok(())
}

impl Verb {
    /// Whose words a list that fails has: one service may not be there, all may.
    fn of(key: Option<ServiceKey>) -> Self {
        key.map_or(Self::Save, |_| Self::List)
    }
}
