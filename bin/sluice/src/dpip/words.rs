//! The command line: options anywhere, then an object, a command, and pairs of word and value.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::str::FromStr;

use super::failure::Failure;

/// A version of IP that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `-4`.
    Ipv4,
    /// `-6`.
    Ipv6,
}

/// What one can do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `add`: it must not be there.
    Add,
    /// `del`.
    Del,
    /// `set`, `change`, `replace`: it may be there.
    Set,
    /// `show`, `list`, and nothing.
    Show,
    /// `flush`.
    Flush,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Only this family.
    pub family: Option<Family>,
    /// `-s`.
    pub statistics: bool,
    /// `-v`.
    pub verbose: bool,
    /// Seconds from one count to the next, `-i`.
    pub interval_s: Option<u32>,
    /// So many times, `-c`.
    pub count: Option<u32>,
    /// Its object.
    pub object: String,
    /// Its command, as it is written; empty without one.
    pub command: String,
    /// The rest.
    pub rest: Rest,
}

/// What stands behind the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest(VecDeque<String>);

/// What a command line is.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A question for the usage.
    Help,
    /// A question for the version.
    Version,
    /// A command.
    Line(Line),
}

/// Takes a command line apart.
///
/// # Errors
/// When an option is unknown or lacks its value.
pub fn parse(arguments: &[String]) -> Result<Parsed, Failure> {
    let mut line = Line::default();
    let mut plain = VecDeque::new();
    let mut left: VecDeque<String> = arguments.iter().cloned().collect();
    while let Some(word) = left.pop_front() {
        let mut value = || {
            let none = || Failure::parameter(format!("{word} needs a value"));
            left.pop_front().ok_or_else(none)
        };
        match word.as_str() {
            "-4" => line.family = Some(Family::Ipv4),
            "-6" => line.family = Some(Family::Ipv6),
            "-f" | "--family" => line.family = family(&value()?)?,
            "-s" | "--stats" | "--statistics" => line.statistics = true,
            "-v" | "--verbose" => line.verbose = true,
            // Nothing here is coloured, and nothing asks back.
            "-C" | "--color" | "-F" | "--force" => {}
            "-i" | "--interval" => line.interval_s = Some(number(&word, &value()?, 1, 86_400)?),
            "-c" | "--count" => line.count = Some(number(&word, &value()?, 1, 1_000_000_000)?),
            "-h" | "--help" | "help" => return Ok(Parsed::Help),
            "-V" | "--version" => return Ok(Parsed::Version),
            option if option.starts_with('-') && option.len() > 1 => {
                return Err(Failure::parameter(format!("there is no option {option}; see -h")));
            }
            _ => plain.push_back(word),
        }
    }
    let Some(object) = plain.pop_front() else { return Ok(Parsed::Help) };
    line.object = object;
    line.command = plain.pop_front().unwrap_or_default();
    line.rest = Rest(plain);
    Ok(Parsed::Line(line))
}

fn family(word: &str) -> Result<Option<Family>, Failure> {
    match word {
        "inet" => Ok(Some(Family::Ipv4)),
        "inet6" => Ok(Some(Family::Ipv6)),
        other => Err(Failure::parameter(format!("{other} is no family: inet or inet6"))),
    }
}

/// A number within bounds.
///
/// # Errors
/// When it is none; `what` is what it was for.
pub fn number(what: &str, text: &str, least: u32, most: u32) -> Result<u32, Failure> {
    let wrong = || Failure::parameter(format!("{what} {text}: a number from {least} to {most}"));
    let number = text.parse().map_err(|_| wrong())?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
}

/// A prefix, an address (all its bits) or `default`, where that may stand.
///
/// # Errors
/// When it is none of these.
pub fn prefix(text: &str) -> Result<(IpAddr, u8), Failure> {
    let wrong = || Failure::parameter(format!("{text} is no address and no prefix"));
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Ok(width), |length| length.parse().map_err(|_| wrong()))?;
    if length > width {
        return Err(Failure::parameter(format!("{text}: the length is at most {width}")));
    }
    Ok((address, length))
}

/// A scope's number: `RT_SCOPE_*`.
///
/// # Errors
/// When it is no scope.
pub fn scope(text: &str) -> Result<u8, Failure> {
    Ok(match text {
        "global" => 0,
        "link" => 253,
        "host" => 254,
        other => {
            let wrong = format!("{other} is no scope: host, link, global or a number to 255");
            other.parse().map_err(|_| Failure::parameter(wrong))?
        }
    })
}

/// A scope's name.
pub fn scope_name(scope: u8) -> String {
    match scope {
        0 => "global".to_owned(),
        200 => "site".to_owned(),
        253 => "link".to_owned(),
        254 => "host".to_owned(),
        other => other.to_string(),
    }
}

/// `on` or `off`, or another such pair.
///
/// # Errors
/// When it is neither.
pub fn either(what: &str, text: &str, yes: &str, no: &str) -> Result<bool, Failure> {
    match text {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        other => Err(Failure::parameter(format!("{what} {other}: it is {yes} or {no}"))),
    }
}

impl Line {
    /// The command; `known` are those of the object, for the message.
    ///
    /// # Errors
    /// When it is none.
    pub fn verb(&self, known: &str) -> Result<Verb, Failure> {
        match self.command.as_str() {
            "add" => Ok(Verb::Add),
            "del" | "delete" => Ok(Verb::Del),
            "set" | "change" | "replace" => Ok(Verb::Set),
            "show" | "list" | "" => Ok(Verb::Show),
            "flush" => Ok(Verb::Flush),
            _ => Err(self.unknown_command(known)),
        }
    }

    /// Says that the object has no such command.
    pub fn unknown_command(&self, known: &str) -> Failure {
        let (object, command) = (&self.object, &self.command);
        Failure::parameter(format!("{object} has no command {command:?}: {known}"))
    }

    /// Whether an address's family is asked for.
    pub fn wants(&self, ip: IpAddr) -> bool {
        match self.family {
            None => true,
            Some(Family::Ipv4) => ip.is_ipv4(),
            Some(Family::Ipv6) => ip.is_ipv6(),
        }
    }

    /// Refuses an address of a family other than the one that is asked for.
    ///
    /// # Errors
    /// Then.
    pub fn check_family(&self, ip: IpAddr) -> Result<(), Failure> {
        let wrong = || Failure::parameter(format!("{ip} is not of the family that was asked for"));
        if self.wants(ip) { Ok(()) } else { Err(wrong()) }
    }
}

impl Rest {
    /// The next word.
    pub fn word(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    /// The value of a word that was just read.
    ///
    /// # Errors
    /// When the line ends there.
    pub fn value(&mut self, of: &str) -> Result<String, Failure> {
        self.word().ok_or_else(|| Failure::parameter(format!("{of} needs a value")))
    }

    /// The same, read as something.
    ///
    /// # Errors
    /// When it is missing, or is none.
    pub fn read<T: FromStr>(&mut self, of: &str, what: &str) -> Result<T, Failure> {
        let text = self.value(of)?;
        text.parse().map_err(|_| Failure::parameter(format!("{of} {text}: not {what}")))
    }

    /// Says that a word has no place here.
    pub fn surplus(word: &str, twice: bool) -> Failure {
        let why = if twice { "is said twice" } else { "is not understood here" };
        Failure::parameter(format!("{word} {why}; see -h"))
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// When something is.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.word().map_or(Ok(()), |word| Err(Self::surplus(&word, false)))
    }
}
