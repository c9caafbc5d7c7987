//! The list of what is more than the limits allow: `xtask/ratchet.toml`.
//!
//! An entry is the place and its measure now. It may only shrink: when the thing got shorter the
//! entry must follow, when it is gone or within the limit the entry must go too. So the list is
//! always the whole truth and never a licence to grow.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Report;

/// The list's place, relative to the root.
const PLACE: &str = "xtask/ratchet.toml";

/// The list, and which of its entries were met.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Ratchet {
    /// File → lines.
    #[serde(default)]
    files: BTreeMap<String, usize>,
    /// `file::function` → lines.
    #[serde(default)]
    functions: BTreeMap<String, usize>,
    /// `crate::Type` → files with methods of it.
    #[serde(default)]
    impls: BTreeMap<String, usize>,
    #[serde(skip)]
    met: Vec<String>,
}

/// What is measured.
#[derive(Clone, Copy)]
pub enum Measured {
    /// A whole file.
    File,
    /// One function, with its signature.
    Function,
    /// The files that a type's methods lie in.
    Impls,
}

impl Measured {
    /// What is counted, the limit, the most that the list may excuse, and what to do about more.
    const fn rule(self) -> (&'static str, usize, usize, &'static str) {
        match self {
            Self::File => ("lines", 500, 600, "split it"),
            Self::Function => ("lines", 70, usize::MAX, "split it"),
            Self::Impls => ("files", 3, usize::MAX, "write functions that name what they take"),
        }
    }
}

impl Ratchet {
    /// Reads the list; a tree without one has an empty list.
    pub fn read(root: &Path) -> Result<Self, String> {
        match fs::read_to_string(root.join(PLACE)) {
            Ok(text) => toml::from_str(&text).map_err(|e| format!("{PLACE}: {e}")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{PLACE}: {e}")),
        }
    }

    /// Holds `count` against the list and the limit. `Some(what is wrong)` when it is too much or
    /// the list is not up to date.
    pub fn judge(&mut self, kind: Measured, key: &str, count: usize) -> Option<String> {
        let (what, limit, hard, mend) = kind.rule();
        let listed = match kind {
            Measured::File => self.files.get(key),
            Measured::Function => self.functions.get(key),
            Measured::Impls => self.impls.get(key),
        };
        if count > hard {
            self.met.push(key.to_owned());
            return Some(format!("{count} {what}, never more than {hard}: {mend}"));
        }
        let Some(&listed) = listed else {
            return (count > limit).then(|| format!("{count} {what}, at most {limit}: {mend}"));
        };
        self.met.push(key.to_owned());
        if count <= limit {
            Some(format!("within {limit} {what} now: take it off {PLACE}"))
        } else if count < listed {
            Some(format!("{count} {what} now: lower its {listed} in {PLACE}"))
        } else if count > listed {
            Some(format!("{count} {what}, was {listed} in {PLACE}: it may only shrink"))
        } else {
            None
        }
    }

    /// Entries for things that are gone.
    pub fn check_spent(&self, report: &mut Report) {
        for key in self.files.keys().chain(self.functions.keys()).chain(self.impls.keys()) {
            if !self.met.contains(key) {
                report.add("ratchet", PLACE, 0, format!("`{key}` is gone: take it off the list"));
            }
        }
    }
}
