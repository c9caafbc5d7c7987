//! keepalived.conf: lines become statements (`lines`, `tree`), statements become sections.
//!
//! The grammar and what each word does are those of keepalived.conf(5), version 2.2, and of DPVS's
//! fork. A file that keepalived would refuse is converted as far as it can be understood.

mod block;
mod check;
mod groups;
mod lines;
mod matching;
mod real;
mod seconds;
mod service;
mod substitute;
mod timing;
mod tree;
mod words;

use crate::note::{Kind, Report};
use crate::output::Imported;
use crate::outward::Outward;
use crate::sound;
use crate::target::Target;
use groups::Groups;
use tree::Statement;
use words::Top;

/// A file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Who reads files that others include.
pub trait Files {
    /// The files that a pattern names, in the order of their names. `from` is the file that
    /// includes them; relative patterns begin at its folder.
    ///
    /// # Errors
    /// Why there are none.
    fn include(&mut self, pattern: &str, from: &str) -> Result<Vec<Source>, String>;
}

/// Converts a file. `config_id` is what `@` lines ask for: keepalived's `--config-id`, and without
/// one the first part of the host's name.
pub fn keepalived(source: &Source, config_id: &str, files: &mut dyn Files) -> Imported {
    let mut report = Report::default();
    let lines = lines::read(source, config_id, files, &mut report);
    let statements = tree::build(lines, &mut report);
    let mut target = Target::default();
    let groups = Groups::read(&statements, &mut target, &mut report);
    let mut outward = Outward::default();
    for statement in &statements {
        match (statement.word(0), statement.word(1)) {
            ("virtual_server", "match") => matching::convert(statement, &mut outward, &mut report),
            _ => top(statement, &groups, &mut target, &mut report),
        }
    }
    outward.settle(&mut target, &mut report);
    sound::settle(&mut target, &mut report);
    Imported::new(target, report)
}

fn top(statement: &Statement, groups: &Groups, target: &mut Target, report: &mut Report) {
    match statement.word(0) {
        "virtual_server" => service::convert(statement, groups, target, report),
        "virtual_server_group"
        | "local_address_group"
        | "deny_address_group"
        | "allow_address_group" => {}
        "global_defs" => global(statement, report),
        word if words::top(word).is_some() => {
            block::account(statement, report);
            match words::top(word) {
                Some(Top::Kept(alike, means, instead)) => {
                    report.kept_once(alike, &statement.place, word, means, instead);
                }
                Some(Top::Lost(means, instead)) => {
                    report.lost(&statement.place, word, means, instead);
                }
                None => {}
            }
        }
        word => {
            block::account(statement, report);
            let means = "keepalived's word for something that is not known here";
            report.lost(&statement.place, word, means, "look it up in keepalived.conf(5)");
        }
    }
}

/// `global_defs`: what concerns the balancing is spoken of, the rest is keepalived's own.
fn global(statement: &Statement, report: &mut Report) {
    block::account(statement, report);
    let mut rest = false;
    for inner in statement.inside() {
        match words::global(inner.word(0)) {
            Some((means, instead)) => report.lost(&inner.place, inner.word(0), means, instead),
            None => rest = true,
        }
    }
    if rest {
        let means = "keepalived's own settings (mail, names, VRRP)";
        let instead = "they stay with keepalived where it runs for VRRP";
        report.note(Kind::Kept, &statement.place, "global_defs", means, instead);
    }
}
