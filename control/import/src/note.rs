//! What is said of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use serde::{Serialize, Serializer};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file's name, as it was given or included.
    pub file: Rc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// What became of a line that was not simply converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There is nothing like it: something is missing from the result.
    Lost,
    /// It was converted to something that does not behave quite alike.
    Differs,
    /// It stays where it is: keepalived or Linux does it beside Sluice.
    Kept,
}

/// What is said of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Where.
    #[serde(flatten, serialize_with = "flat")]
    pub place: Place,
    /// What became of it.
    pub kind: Kind,
    /// The word that it is about.
    pub word: String,
    /// What it does where it comes from.
    pub means: String,
    /// What to do instead, or how it differs.
    pub instead: String,
}

fn flat<S: Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("file", &*place.file)?;
    map.serialize_entry("line", &place.line)?;
    map.end()
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, word, means, instead, .. } = self;
        write!(out, "{place}: {word}: {means}; {instead}")
    }
}

/// Notes as they are made, and the lines that were accounted for.
#[derive(Debug, Default)]
pub(crate) struct Report {
    notes: Vec<Note>,
    said: BTreeSet<(Place, String)>,
    kept: BTreeSet<&'static str>,
    accounted: BTreeMap<Rc<str>, BTreeSet<usize>>,
}

impl Report {
    /// A line was converted.
    pub fn done(&mut self, place: &Place) {
        self.accounted.entry(place.file.clone()).or_default().insert(place.line);
    }

    /// Says something of a line, once for each word of it.
    pub fn note(
        &mut self,
        kind: Kind,
        place: &Place,
        word: &str,
        means: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.done(place);
        let word = word.to_owned();
        if self.said.insert((place.clone(), word.clone())) {
            let (means, instead) = (means.into(), instead.into());
            self.notes.push(Note { place: place.clone(), kind, word, means, instead });
        }
    }

    /// Something stays where it is: said once for all that is alike.
    pub fn kept_once(
        &mut self,
        alike: &'static str,
        place: &Place,
        word: &str,
        means: &str,
        instead: &str,
    ) {
        self.done(place);
        if self.kept.insert(alike) {
            self.note(Kind::Kept, place, word, means, instead);
        }
    }

    /// There is nothing like it.
    pub fn lost(
        &mut self,
        place: &Place,
        word: &str,
        means: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.note(Kind::Lost, place, word, means, instead);
    }

    /// What there is behaves otherwise.
    pub fn differs(
        &mut self,
        place: &Place,
        word: &str,
        means: impl Into<String>,
        how: impl Into<String>,
    ) {
        self.note(Kind::Differs, place, word, means, how);
    }

    /// Notes in the order of the files' lines, and the lines that were accounted for.
    pub fn finish(mut self) -> (Vec<Note>, BTreeMap<Rc<str>, BTreeSet<usize>>) {
        // Files come in the order in which they were first spoken of.
        let mut files: Vec<Rc<str>> = Vec::new();
        for note in &self.notes {
            if !files.contains(&note.place.file) {
                files.push(note.place.file.clone());
            }
        }
        let rank = |file: &Rc<str>| files.iter().position(|it| it == file);
        self.notes.sort_by_key(|note| (rank(&note.place.file), note.place.line));
        (self.notes, self.accounted)
    }
}
