//! The checker: walks the tree once, asks each rule about each file, and asks `cargo metadata`
//! about the crates.
//!
//! Every rule only adds findings; none stops the others. What may be more than the limits stands
//! in `xtask/ratchet.toml` with its present measure, which may only go down.

mod impls;
mod manifest;
mod ratchet;
mod rings;
mod rust;
mod text;
mod walk;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use impls::Impls;
use ratchet::Ratchet;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File (or crate folder), relative to the root.
    pub place: String,
    /// Line, 1-based; 0 when the whole file or crate is meant.
    pub line: usize,
    /// The rule's name, as in the tests.
    pub rule: &'static str,
    /// What is wrong and what would be right.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, line, rule, text } = self;
        match line {
            0 => write!(f, "{place}: [{rule}] {text}"),
            _ => write!(f, "{place}:{line}: [{rule}] {text}"),
        }
    }
}

/// What a run looked at, and what it found.
#[derive(Debug, Default)]
pub struct Report {
    /// Broken rules, sorted by place.
    pub findings: Vec<Finding>,
    /// Crates whose dependencies were checked.
    pub crates: usize,
    /// Files read.
    pub files: usize,
    /// Functions measured.
    pub functions: usize,
}

impl Report {
    fn add(&mut self, rule: &'static str, place: &str, line: usize, text: impl Into<String>) {
        self.findings.push(Finding { place: place.to_owned(), line, rule, text: text.into() });
    }
}

/// Checks the tree at `root`.
///
/// # Errors
/// When the tree cannot be read, the ratchet list is not TOML, or `cargo metadata` fails: those
/// are no findings, nothing is known then.
pub fn check(root: &Path) -> Result<Report, String> {
    let mut report = Report::default();
    let mut ratchet = Ratchet::read(root)?;
    let mut impls = Impls::default();
    for file in walk::files(root)? {
        report.files += 1;
        text::check(&file, &mut ratchet, &mut report);
        words::check(&file, &mut report);
        if file.extension() == "rs" {
            rust::check(&file, &mut ratchet, &mut impls, &mut report);
        }
    }
    impls.judge(&mut ratchet, &mut report);
    ratchet.check_spent(&mut report);
    rings::check(root, &mut report)?;
    report.findings.sort();
    Ok(report)
}
