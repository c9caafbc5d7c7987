//! Lines as keepalived sees them: without comments, joined, included, repeated, with their
//! parameters put in.
//!
//! What a file can make of itself by parameters has a limit, since it may double at each step.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::substitute::{definition, repeats, substituted};
use super::{Files, Source};
use crate::note::{Kind, Place, Report};

/// The most lines that come of a file.
const MOST_LINES: usize = 200_000;
/// The most steps that may be taken for that; 64 characters of a line are one, too.
const MOST_STEPS: usize = 1_000_000;
/// The most characters of a line with its parameters.
const LONGEST: usize = 256 * 1024;
/// Files may include one another, and parameters may stand in one another, so deep.
const DEEPEST: usize = 32;

/// A line with something on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it is; of what a parameter stands for, where the parameter is used.
    pub place: Place,
    /// What is on it.
    pub text: String,
}

/// All lines of a file and of those that it includes.
pub fn read(
    source: &Source,
    config_id: &str,
    files: &mut dyn Files,
    report: &mut Report,
) -> Vec<Line> {
    let mut reader = Reader {
        config_id,
        files,
        report,
        parameters: BTreeMap::new(),
        lines: Vec::new(),
        steps: 0,
        full: false,
    };
    for (name, value) in [("_INSTANCE", config_id), ("_HASH", "#"), ("_BANG", "!")] {
        reader.parameters.insert(name.to_owned(), value.to_owned());
    }
    reader.file(source, 0);
    reader.lines
}

struct Reader<'r> {
    config_id: &'r str,
    files: &'r mut dyn Files,
    report: &'r mut Report,
    parameters: BTreeMap<String, String>,
    lines: Vec<Line>,
    steps: usize,
    full: bool,
}

impl Reader<'_> {
    fn file(&mut self, source: &Source, depth: usize) {
        let file: Rc<str> = source.name.as_str().into();
        let folder = source.name.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let before = self.parameters.insert("_PWD".to_owned(), folder.to_owned());
        let mut joined: Option<(Place, String)> = None;
        for (index, raw) in source.text.lines().enumerate() {
            let place = Place { file: file.clone(), line: index + 1 };
            let text = without_comment(raw);
            let (text, goes_on) = match text.strip_suffix('\\') {
                Some(text) => (text, true),
                None => (text, false),
            };
            let (start, whole) = match joined.take() {
                None => (place, text.to_owned()),
                Some((start, whole)) => {
                    self.report.done(&place);
                    // Only a definition has several lines; elsewhere they are one.
                    let between = if whole.trim_start().starts_with('$') { "\n" } else { " " };
                    (start, whole + between + text)
                }
            };
            if goes_on && whole.len() < LONGEST {
                joined = Some((start, whole));
            } else {
                self.line(&start, &whole, depth);
            }
        }
        if let Some((start, whole)) = joined {
            self.line(&start, &whole, depth);
        }
        self.parameters.extend(before.map(|folder| ("_PWD".to_owned(), folder)));
    }

    /// Takes a line apart until nothing stands for anything else.
    fn line(&mut self, place: &Place, text: &str, depth: usize) {
        let text = text.trim();
        if text.is_empty() || self.is_full(place, text, depth) {
            return;
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if is_include(first) {
            return self.include(place, first, rest.trim(), depth);
        }
        if let Some(tag) = first.strip_prefix('@') {
            return self.conditional(place, tag, rest, depth);
        }
        if let Some((name, value)) = definition(text) {
            self.report.done(place);
            self.parameters.insert(name.to_owned(), value.to_owned());
            return;
        }
        if let Some((rounds, rest)) = repeats(text) {
            self.report.done(place);
            for round in rounds {
                if self.full {
                    return;
                }
                self.parameters.extend(round);
                self.line(place, rest, depth + 1);
            }
            return;
        }
        match substituted(text, &self.parameters, LONGEST) {
            Some(with) => {
                self.report.done(place);
                for line in with.split('\n') {
                    self.line(place, line, depth + 1);
                }
            }
            None => self.lines.push(Line { place: place.clone(), text: text.to_owned() }),
        }
    }

    fn is_full(&mut self, place: &Place, text: &str, depth: usize) -> bool {
        self.steps += 1 + text.len() / 64;
        let too_many = self.lines.len() >= MOST_LINES || self.steps >= MOST_STEPS;
        if !self.full && too_many {
            self.full = true;
            let means = format!("the file becomes more than {MOST_LINES} lines");
            self.report.lost(place, "$", means, "what comes behind this line was not read");
        }
        if depth > DEEPEST {
            let word = text.split_whitespace().next().unwrap_or_default();
            let means = "files or parameters that lead to themselves";
            self.report.lost(place, word, means, "this line was not read");
        }
        self.full || depth > DEEPEST
    }

    fn conditional(&mut self, place: &Place, tag: &str, rest: &str, depth: usize) {
        let wanted = match tag.strip_prefix('^') {
            Some(other) => other != self.config_id,
            None => tag == self.config_id,
        };
        if wanted {
            self.report.done(place);
            return self.line(place, rest, depth);
        }
        let means = format!("a line that does not count for the id {:?}", self.config_id);
        let word = format!("@{tag}");
        let instead = "--config-id ID converts for another one";
        self.report.note(Kind::Kept, place, &word, means, instead);
    }

    fn include(&mut self, place: &Place, word: &str, pattern: &str, depth: usize) {
        self.report.done(place);
        let pattern = pattern.trim_matches('"');
        match self.files.include(pattern, &place.file) {
            Ok(sources) => sources.iter().for_each(|source| self.file(source, depth + 1)),
            Err(why) => {
                let means = format!("it takes in {pattern}, which cannot be read: {why}");
                self.report.lost(place, word, means, "convert that file as well");
            }
        }
    }
}

fn is_include(word: &str) -> bool {
    ["include", "includer", "includem", "includew", "includeb", "includea"].contains(&word)
}

/// A line up to where a comment begins: at `#` or `!` outside of quotes.
fn without_comment(raw: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in raw.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '#' | '!' if !quoted => return raw[..at].trim_end(),
            _ => {}
        }
    }
    raw.trim_end()
}
