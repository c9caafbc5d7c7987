//! From arguments to a command, or to what is wrong with them.

use std::net::IpAddr;

use sluice_ipvs::{List, Request, ServiceKey};

use crate::build;
use crate::check;
use crate::gather::Gathered;
use crate::options::{Opt, Tag};
use crate::popt::Popt;
use crate::verb::Verb;
use crate::world::World;

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What goes to standard error, its end of line included.
    pub text: String,
    /// The exit code.
    pub code: u8,
    /// Whether it ends a restore, in which it is a line.
    pub ends: bool,
}

impl Fault {
    /// A usage error: exit code 2.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into() + "\n", code: 2, ends: true }
    }

    /// What an option that is no command gets in a command's place.
    pub(crate) fn puzzled(name: &str) -> Self {
        let text = format!("Try `{name} -h' or '{name} --help' for more information.\n");
        Self { text, code: 255, ends: true }
    }
}

/// What is listed of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    Plain,
    TunnelInfo,
    Stats,
    Rate,
    Thresholds,
    Persistent,
}

/// Two ends of a connection: protocol, client, virtual address.
pub(crate) type SockPair = (u8, (IpAddr, u16), (IpAddr, u16));

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Services(Option<ServiceKey>),
    Connections(Option<SockPair>),
    Timeouts,
    Daemons,
}

/// A list, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    pub(crate) what: What,
    pub(crate) columns: Columns,
    pub(crate) numeric: bool,
    pub(crate) exact: bool,
    pub(crate) sorted: bool,
    /// With connections: the columns of persistence engines.
    pub(crate) engines: bool,
    /// With connections: the column of local addresses.
    pub(crate) local: bool,
}

/// DPVS's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locals {
    /// Which list of clients; none for local addresses.
    pub(crate) list: Option<List>,
    pub(crate) key: Option<ServiceKey>,
    pub(crate) numeric: bool,
}

/// What a command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Shows how to use it.
    Help,
    /// Shows the version.
    Version,
    /// Changes something.
    Change(Verb, Request),
    /// Shows services, connections, timeouts, daemons.
    List(Listing),
    /// Shows local addresses, or lists of clients.
    Locals(Locals),
    /// Shows all as commands that make it; with numbers, or names.
    Save {
        /// Whether with numbers.
        numeric: bool,
    },
    /// Reads commands from standard input.
    Restore,
}

/// Reads a command line. `name` is what the program was called by.
///
/// # Errors
/// When it is none, with the stock program's words.
pub fn parse(name: &str, arguments: &[String], world: &mut impl World) -> Result<Command, Fault> {
    let mut popt = Popt::new(arguments);
    if arguments.is_empty() {
        return build::command(Verb::List, &Gathered::new());
    }
    let (verb, role) = match popt.next(None) {
        Some(Ok((Tag::Verb(verb), value))) => (verb, value),
        Some(Ok((Tag::Help, _))) => return Ok(Command::Help),
        Some(Ok((Tag::Version, _))) => return Ok(Command::Version),
        _ => return Err(Fault::puzzled(name)),
    };
    let mut gathered = Gathered::new();
    gathered.role(verb, role)?;
    while let Some(step) = popt.next(Some(verb)) {
        let (tag, value) = step.map_err(|trouble| Fault {
            text: format!("{}: {}\n", trouble.argument, trouble.why),
            code: 255,
            ends: false,
        })?;
        let taken = popt.current();
        gathered.take(tag, value.unwrap_or_default(), value.is_some(), taken, world)?;
    }
    let mut left_over = popt.left_over().into_iter();
    if verb == Verb::Set {
        gathered.timeouts(&mut left_over)?;
    }
    if let Some(argument) = left_over.next() {
        return Err(Fault::usage(format!("unexpected argument {argument}")));
    }
    gathered.scheduler_flags()?;
    check::options(verb, &gathered)?;
    check::refused(&gathered)?;
    match verb {
        Verb::AddService | Verb::EditService => check::service(&gathered)?,
        Verb::AddServer | Verb::EditServer => check::server(&mut gathered)?,
        Verb::List => check::list(&gathered)?,
        _ => {}
    }
    build::command(verb, &gathered)
}

impl Gathered {
    /// Whether an option was given.
    pub(crate) fn has(&self, option: Opt) -> bool {
        self.given[option as usize]
    }
}
