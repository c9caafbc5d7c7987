//! Generic netlink's family `IPVS`: the interface that knows everything.
//!
//! A program first asks netlink's controller for the family's number, then sends commands to it.
//! Ours is a number that the kernel never gives away, so that on one socket both can be told
//! apart: what is not about our family is the kernel's, whole datagrams of it.

mod read;
mod write;

use super::netlink::{self, ACK, Body, MULTI, Message, REQUEST};
use super::{Ask, Number, replied};
use crate::{Reply, Request, Service, ServiceKey, Timeouts};

/// The family's number: above `GENL_MAX_ID`, which is 1023.
pub const FAMILY: u16 = 0x7673;
/// Its name.
pub const NAME: &str = "IPVS";
/// `IPVS_GENL_VERSION`.
const VERSION: u8 = 1;
/// `IPVS_CMD_ATTR_MAX`.
const ATTRIBUTES: u32 = 6;
/// The longest datagram that is made of more than one message: half of what `libnl` reads.
const DATAGRAM_BYTES: usize = 8 << 10;

/// Netlink's controller, `GENL_ID_CTRL`, and its words.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_NEWFAMILY: u8 = 1;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_VERSION: u16 = 3;
const CTRL_ATTR_HDRSIZE: u16 = 4;
const CTRL_ATTR_MAXATTR: u16 = 5;
const CTRL_ATTR_OPS: u16 = 6;
const CTRL_ATTR_OP_ID: u16 = 1;
const CTRL_ATTR_OP_FLAGS: u16 = 2;
/// `GENL_ADMIN_PERM`, and whether an operation does, or dumps.
const OP_ADMIN: u32 = 1;
const OP_DO: u32 = 2;
const OP_DUMP: u32 = 4;

/// `IPVS_CMD_*`.
mod command {
    pub const NEW_SERVICE: u8 = 1;
    pub const SET_SERVICE: u8 = 2;
    pub const DEL_SERVICE: u8 = 3;
    pub const GET_SERVICE: u8 = 4;
    pub const NEW_DEST: u8 = 5;
    pub const SET_DEST: u8 = 6;
    pub const DEL_DEST: u8 = 7;
    pub const GET_DEST: u8 = 8;
    pub const NEW_DAEMON: u8 = 9;
    pub const DEL_DAEMON: u8 = 10;
    pub const GET_DAEMON: u8 = 11;
    pub const SET_CONFIG: u8 = 12;
    pub const GET_CONFIG: u8 = 13;
    pub const SET_INFO: u8 = 14;
    pub const GET_INFO: u8 = 15;
    pub const ZERO: u8 = 16;
    pub const FLUSH: u8 = 17;
}

/// `IPVS_CMD_ATTR_*`.
mod attribute {
    pub const SERVICE: u16 = 1;
    pub const DEST: u16 = 2;
    pub const DAEMON: u16 = 3;
    pub const TIMEOUT_TCP: u16 = 4;
    pub const TIMEOUT_TCP_FIN: u16 = 5;
    pub const TIMEOUT_UDP: u16 = 6;
    /// `IPVS_INFO_ATTR_*`.
    pub const VERSION: u16 = 1;
    pub const CONN_TAB_SIZE: u16 = 2;
}

/// `IPVS_SVC_ATTR_*`.
mod svc {
    pub const AF: u16 = 1;
    pub const PROTOCOL: u16 = 2;
    pub const ADDR: u16 = 3;
    pub const PORT: u16 = 4;
    pub const FWMARK: u16 = 5;
    pub const SCHED_NAME: u16 = 6;
    pub const FLAGS: u16 = 7;
    pub const TIMEOUT: u16 = 8;
    pub const NETMASK: u16 = 9;
    pub const STATS: u16 = 10;
    pub const PE_NAME: u16 = 11;
    pub const STATS64: u16 = 12;
}

/// `IPVS_DEST_ATTR_*`.
mod dest {
    pub const ADDR: u16 = 1;
    pub const PORT: u16 = 2;
    pub const FWD_METHOD: u16 = 3;
    pub const WEIGHT: u16 = 4;
    pub const U_THRESH: u16 = 5;
    pub const L_THRESH: u16 = 6;
    pub const ACTIVE_CONNS: u16 = 7;
    pub const INACT_CONNS: u16 = 8;
    pub const PERSIST_CONNS: u16 = 9;
    pub const STATS: u16 = 10;
    pub const ADDR_FAMILY: u16 = 11;
    pub const STATS64: u16 = 12;
    pub const TUN_TYPE: u16 = 13;
    pub const TUN_PORT: u16 = 14;
    pub const TUN_FLAGS: u16 = 15;
}

/// `IPVS_DAEMON_ATTR_*`.
mod daemon {
    pub const STATE: u16 = 1;
    pub const MCAST_IFN: u16 = 2;
    pub const SYNC_ID: u16 = 3;
    pub const SYNC_MAXLEN: u16 = 4;
    pub const MCAST_GROUP: u16 = 5;
    pub const MCAST_GROUP6: u16 = 6;
    pub const MCAST_PORT: u16 = 7;
    pub const MCAST_TTL: u16 = 8;
}

/// What becomes of a datagram that a program sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the kernel's.
    Kernel,
    /// It asks for all families: these datagrams, then what the kernel answers.
    Before(Vec<Vec<u8>>),
    /// It is answered with these datagrams, in this order.
    Answered(Vec<Vec<u8>>),
}

/// Answers a datagram. With `hidden` the family is as unknown as on a kernel without IPVS.
pub fn answer(datagram: &[u8], hidden: bool, ask: &mut Ask) -> Outcome {
    let mut messages = netlink::messages(datagram).peekable();
    match messages.peek() {
        Some(first) if asks_for_all(first) => match !hidden && is_there(ask).is_ok() {
            true => Outcome::Before(vec![family(first, MULTI)]),
            false => Outcome::Kernel,
        },
        Some(first) if is_ours(first) => {
            let mut answers = Answers::default();
            messages.for_each(|message| one(&message, hidden, ask, &mut answers));
            Outcome::Answered(answers.0)
        }
        _ => Outcome::Kernel,
    }
}

/// Datagrams in the making.
#[derive(Default)]
struct Answers(Vec<Vec<u8>>);

impl Answers {
    /// One message, in a datagram of its own.
    fn push(&mut self, message: Vec<u8>) {
        self.0.push(message);
    }

    /// One message of many, with the one before while there is room.
    fn join(&mut self, message: Vec<u8>) {
        match self.0.last_mut() {
            Some(last) if last.len() + message.len() <= DATAGRAM_BYTES => last.extend(message),
            _ => self.0.push(message),
        }
    }
}

fn asks_for_all(message: &Message) -> bool {
    message.kind == CONTROLLER && message.command == CTRL_CMD_GETFAMILY && message.is_dump()
}

/// Whether a message is about our family.
fn is_ours(message: &Message) -> bool {
    let by_name = || message.attributes.get(CTRL_ATTR_FAMILY_NAME).is_some_and(is_our_name);
    let by_number = || message.attributes.u16(CTRL_ATTR_FAMILY_ID) == Some(FAMILY);
    match message.kind {
        FAMILY => true,
        CONTROLLER => message.command == CTRL_CMD_GETFAMILY && (by_name() || by_number()),
        _ => false,
    }
}

fn is_our_name(name: &[u8]) -> bool {
    name.split(|&byte| byte == 0).next() == Some(NAME.as_bytes())
}

fn is_there(ask: &mut Ask) -> Result<(), Number> {
    replied(ask, &Request::Info, Number::NOENT).map(drop)
}

/// Answers one message.
fn one(message: &Message, hidden: bool, ask: &mut Ask, answers: &mut Answers) {
    if message.flags & REQUEST == 0 {
        return;
    }
    let done = match message.kind {
        CONTROLLER if !hidden => is_there(ask).map(|()| answers.push(family(message, 0))),
        FAMILY if !hidden => commanded(message, ask, answers),
        _ => Err(Number::NOENT),
    };
    match done {
        Err(number) => answers.push(message.error(number.0)),
        Ok(()) if message.flags & ACK != 0 && !message.is_dump() => answers.push(message.error(0)),
        Ok(()) => {}
    }
}

/// What the controller says of the family.
fn family(message: &Message, flags: u16) -> Vec<u8> {
    let mut body = Body::default();
    body.text(CTRL_ATTR_FAMILY_NAME, NAME).u16(CTRL_ATTR_FAMILY_ID, FAMILY);
    body.u32(CTRL_ATTR_VERSION, VERSION.into()).u32(CTRL_ATTR_HDRSIZE, 0);
    body.u32(CTRL_ATTR_MAXATTR, ATTRIBUTES);
    body.nest(CTRL_ATTR_OPS, |operations| {
        for (index, command) in (1_u16..).zip(command::NEW_SERVICE..=command::FLUSH) {
            let does = match command {
                command::GET_SERVICE => OP_DO | OP_DUMP,
                command::GET_DEST | command::GET_DAEMON => OP_DUMP,
                // Only an answer has it.
                command::SET_INFO => continue,
                _ => OP_DO,
            };
            operations.nest(index, |operation| {
                operation.u32(CTRL_ATTR_OP_ID, command.into());
                operation.u32(CTRL_ATTR_OP_FLAGS, OP_ADMIN | does);
            });
        }
    });
    message.answer(CTRL_CMD_NEWFAMILY, 2, flags, &body)
}

/// What a command is answered when the director has gone since the program found the family. Not
/// `ENOENT`, which keepalived takes for "no such destination" and so for done: then it would not
/// try again, and the director would come back with a real server that is dead.
const GONE: Number = Number::IO;

/// A command for IPVS.
fn commanded(message: &Message, ask: &mut Ask, answers: &mut Answers) -> Result<(), Number> {
    let absent = GONE;
    match message.command {
        command::GET_SERVICE if message.is_dump() => {
            let services = services(ask, &Request::Services)?;
            let kernels = services.iter().filter(|it| !matches!(it.spec.key, ServiceKey::Match(_)));
            let bodies = kernels.map(write::service);
            dump(message, command::NEW_SERVICE, bodies, answers);
        }
        command::GET_SERVICE => {
            let key = read::key(message)?;
            let services = services(ask, &Request::Service(key))?;
            let service = services.first().ok_or(Number::SRCH)?;
            let body = write::service(service);
            answers.push(message.answer(command::NEW_SERVICE, VERSION, 0, &body));
        }
        command::GET_DEST => {
            let key = read::key(message)?;
            let found = destinations(ask, key)?;
            let bodies = found.iter().flat_map(|service| &service.destinations);
            let bodies = bodies.map(write::destination);
            dump(message, command::NEW_DEST, bodies, answers);
        }
        command::GET_DAEMON => {
            let Reply::Daemons(daemons) = replied(ask, &Request::Daemons, absent)? else {
                return Err(Number::IO);
            };
            dump(message, command::NEW_DAEMON, daemons.iter().map(write::daemon), answers);
        }
        command::GET_CONFIG => {
            let timeouts = timeouts(ask)?;
            let body = write::timeouts(timeouts);
            answers.push(message.answer(command::SET_CONFIG, VERSION, 0, &body));
        }
        command::GET_INFO => {
            let Reply::Info(info) = replied(ask, &Request::Info, absent)? else {
                return Err(Number::IO);
            };
            let body = write::info(info);
            answers.push(message.answer(command::SET_INFO, VERSION, 0, &body));
        }
        _ => {
            let request = read::request(message)?;
            replied(ask, &request, absent)?;
        }
    }
    Ok(())
}

/// All of something, and the end of it.
fn dump(message: &Message, command: u8, bodies: impl Iterator<Item = Body>, answers: &mut Answers) {
    for body in bodies {
        answers.join(message.answer(command, VERSION, MULTI, &body));
    }
    answers.join(message.done());
}

fn services(ask: &mut Ask, request: &Request) -> Result<Vec<Service>, Number> {
    match replied(ask, request, GONE)? {
        Reply::Services(services) => Ok(services),
        _ => Err(Number::IO),
    }
}

/// A service; none when it is not there, for then a dump of its destinations is empty.
fn destinations(ask: &mut Ask, key: ServiceKey) -> Result<Vec<Service>, Number> {
    match services(ask, &Request::Service(key)) {
        Err(Number::SRCH) => Ok(Vec::new()),
        other => other,
    }
}

fn timeouts(ask: &mut Ask) -> Result<Timeouts, Number> {
    match replied(ask, &Request::Timeouts, GONE)? {
        Reply::Timeouts(timeouts) => Ok(timeouts),
        _ => Err(Number::IO),
    }
}

#[cfg(test)]
mod tests;
