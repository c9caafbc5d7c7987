//! `real_server` and `sorry_server` become `[[service.real]]` sections.

use sluice_config::Mode;
use std::net::IpAddr;

use super::block::{account, flag};
use super::check::{self, Found};
use super::timing::Timing;
use super::tree::Statement;
use super::words;
use crate::note::{Place, Report};
use crate::target::Table;
use crate::tunnel;

/// A real server, converted.
#[derive(Clone, Debug)]
pub struct Real {
    /// Its keys, without `mode` where it has the service's.
    pub table: Table,
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
    /// How packets reach it, if it says so.
    pub mode: Option<String>,
    /// Who looks at it.
    pub check: Option<Found>,
    /// Whether it is drained rather than removed when it fails.
    pub inhibit: bool,
    /// Where it is.
    pub place: Place,
}

/// What a virtual server says for all of its real servers.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// When checks look.
    pub timing: Timing,
    /// What checks ask for by HTTP.
    pub virtual_host: Option<String>,
    /// Their weight.
    pub weight: Option<Statement>,
    /// Whether they are drained rather than removed.
    pub inhibit: bool,
}

/// An address and a port at the end of a statement.
pub fn endpoint(statement: &Statement, report: &mut Report) -> Option<(IpAddr, u16)> {
    let port = statement.word(2);
    let port = if port.is_empty() { Some(0) } else { port.parse().ok() };
    let address = statement.word(1).parse().ok();
    let both = address.zip(port);
    if both.is_none() {
        account(statement, report);
        let means = format!("{:?} is no address with a port", statement.rest());
        report.lost(&statement.place, statement.word(0), means, "write ADDRESS PORT");
    }
    both
}

/// Converts a real server.
pub fn convert(statement: &Statement, around: &Around, report: &mut Report) -> Option<Real> {
    let (address, port) = endpoint(statement, report)?;
    report.done(&statement.place);
    let mut real = Real {
        table: Table::new(),
        address,
        port,
        mode: None,
        check: None,
        inhibit: around.inhibit,
        place: statement.place.clone(),
    };
    let mut timing = Timing::default();
    let mut virtual_host = around.virtual_host.clone();
    if let Some(weight) = &around.weight {
        number(weight, "weight", u64::from(u16::MAX), &mut real.table, report);
    }
    let mut checkers = Vec::new();
    for inner in statement.inside() {
        if timing.take(inner, report) {
            continue;
        }
        report.done(&inner.place);
        match inner.word(0) {
            "weight" => number(inner, "weight", u64::from(u16::MAX), &mut real.table, report),
            "uthreshold" => number(inner, "upper_sessions", 1 << 30, &mut real.table, report),
            "lthreshold" => number(inner, "lower_sessions", 1 << 30, &mut real.table, report),
            "inhibit_on_failure" => real.inhibit = flag(inner),
            "virtualhost" => virtual_host = Some(inner.word(1).to_owned()),
            "lb_kind" | "lvs_method" => real.mode = mode(inner, &mut real.table, report),
            word if check::is_checker(word) => checkers.push(inner),
            _ => other(inner, report),
        }
    }
    let timing = timing.within(&around.timing);
    for checker in checkers {
        if real.check.is_some() {
            account(checker, report);
            let means = "another check that must pass, too";
            let instead = "a service has one check: let that one tell of all, or use a script";
            report.lost(&checker.place, checker.word(0), means, instead);
            continue;
        }
        real.check = check::convert(checker, &timing, virtual_host.as_deref(), report);
    }
    Some(real)
}

/// A word for which there is nothing, or one that is not known.
pub fn other(inner: &Statement, report: &mut Report) {
    account(inner, report);
    let word = inner.word(0);
    if words::holds_anyway(word) {
        return;
    }
    let not_known = ("not known here", "look it up in keepalived.conf(5)");
    let (means, instead) = words::lost(word).unwrap_or(not_known);
    report.lost(&inner.place, word, means, instead);
}

/// How packets reach real servers, by keepalived's word for it.
pub fn mode(statement: &Statement, table: &mut Table, report: &mut Report) -> Option<String> {
    let word = statement.word(0);
    let kind = statement.words.get(2..).unwrap_or_default().iter().map(String::as_str);
    let kind: Vec<&str> = kind.filter(|word| *word != "type").collect();
    let mode = match (statement.word(1), kind.first().copied()) {
        ("NAT", _) => "nat",
        ("DR", _) => "dr",
        ("FNAT" | "FULLNAT", _) => "fnat",
        ("TUN", _) => return tunnelled(statement, &kind, table, report),
        ("SNAT", _) => {
            let means = "source NAT for connections from inside";
            report.lost(&statement.place, word, means, "say so of a `virtual_server match`");
            return None;
        }
        (other, _) => {
            let means = format!("{other:?} is no way to forward that is known here");
            report.lost(&statement.place, word, means, "NAT, DR, TUN or FNAT");
            return None;
        }
    };
    Some(mode.to_owned())
}

/// Whether packets of a mode keep the virtual address and port.
pub fn keeps_destination(mode: &str) -> bool {
    Mode::OF_REALS.iter().any(|known| known.name() == mode && known.keeps_destination())
}

/// The mode of a tunnel that is said in these words, with what it has of its own.
fn tunnelled(
    statement: &Statement,
    words: &[&str],
    table: &mut Table,
    report: &mut Report,
) -> Option<String> {
    let word = statement.word(0);
    let (kind, mut options) = match words {
        [kind, rest @ ..] if !matches!(*kind, "nocsum" | "csum") => (*kind, rest.iter()),
        all => ("ipip", all.iter()),
    };
    let Some(mode) = tunnel::named(kind) else {
        let means = format!("tunnels by {kind}");
        report.lost(&statement.place, word, means, "mode = \"ipip\" is a tunnel that there is");
        return None;
    };
    while let Some(option) = options.next() {
        match *option {
            "port" => {
                let port = options.next().and_then(|port| port.parse::<u16>().ok());
                table.insert("tunnel_port".to_owned(), port.filter(|&port| port != 0)?.into());
            }
            "csum" if mode != "ipip" => {
                table.insert("tunnel_checksum".to_owned(), true.into());
            }
            "remcsum" => {
                let means = "remote checksum offload: the receiver makes the inner checksum";
                report.lost(&statement.place, word, means, "use csum or nocsum");
                return None;
            }
            _ => {}
        }
    }
    let means = "tunnels packets to real servers";
    let how = "the director's file needs source_v4 or source_v6 of [ipip]";
    report.differs(&statement.place, word, means, how);
    Some(mode.to_owned())
}

/// A number up to a bound.
fn number(statement: &Statement, key: &str, most: u64, table: &mut Table, report: &mut Report) {
    let (place, word) = (&statement.place, statement.word(0));
    let Ok(number) = statement.word(1).parse::<u64>() else {
        let means = format!("{:?} is no number", statement.rest());
        return report.lost(place, word, means, "write a number from 0 on");
    };
    if number > most {
        let means = format!("{number} is more than {key} can have");
        report.differs(place, word, means, format!("it is {most}"));
    }
    table.insert(key.to_owned(), number.min(most).into());
}
