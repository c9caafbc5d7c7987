//! The list of what is longer than the limits allow: `xtask/ratchet.toml`.
//!
//! An entry is the place and its length now. It may only shrink: when the thing got shorter the
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

    /// Holds `lines` against the list and the limit. `Some(what is wrong)` when it is too long or
    /// the list is not up to date.
    pub fn judge(&mut self, kind: Measured, key: &str, lines: usize) -> Option<String> {
        let (limit, hard, listed) = match kind {
            Measured::File => (500, 600, self.files.get(key)),
            Measured::Function => (70, usize::MAX, self.functions.get(key)),
        };
        if lines > hard {
            self.met.push(key.to_owned());
            return Some(format!("{lines} lines, never more than {hard}: split it"));
        }
        let Some(&listed) = listed else {
            return (lines > limit).then(|| format!("{lines} lines, at most {limit}: split it"));
        };
        self.met.push(key.to_owned());
        if lines <= limit {
            Some(format!("within {limit} lines now: take it off {PLACE}"))
        } else if lines < listed {
            Some(format!("{lines} lines now: lower its {listed} in {PLACE}"))
        } else if lines > listed {
            Some(format!("{lines} lines, was {listed} in {PLACE}: it may only shrink"))
        } else {
            None
        }
    }

    /// Entries for things that are gone.
    pub fn check_spent(&self, report: &mut Report) {
        for key in self.files.keys().chain(self.functions.keys()) {
            if !self.met.contains(key) {
                report.add("ratchet", PLACE, 0, format!("`{key}` is gone: take it off the list"));
            }
        }
    }
}
