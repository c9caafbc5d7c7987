//! What was found wrong so far, and where in the file everything is.
//!
//! A value that could not be read is replaced by a placeholder, and its path is remembered as
//! broken: whatever later checks say about that path is a consequence and is left out. So all
//! independent errors of a file come out in one go, and nothing but those.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::errors::{Diagnostic, Fault, Severity};
use crate::path::{Path, Place};
use crate::{Config, ConfigErrors, Prefix};

/// The most diagnostics that are kept; the rest is only counted.
const MOST: usize = 100;
/// The longest excerpt of a line, in characters.
const EXCERPT: usize = 96;
/// How much of a longer line is kept before the mark, in characters.
const BEFORE: usize = 32;

/// A file and where in it each value is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    file: String,
    text: String,
    spans: HashMap<Path, Range<usize>>,
}

/// What was found, before it is put into words and in order.
struct Finding {
    severity: Severity,
    path: Path,
    /// The key as the file writes it, where it is not one of ours.
    stranger: Option<String>,
    /// Where exactly, if not where the path is.
    span: Option<Range<usize>>,
    message: String,
    hint: String,
}

/// What was found wrong so far.
#[derive(Default)]
pub(crate) struct Report<'o> {
    origin: Cow<'o, Origin>,
    broken: HashSet<Path>,
    findings: Vec<Finding>,
    more: usize,
}

impl<'o> Report<'o> {
    /// A report on a file, nothing found yet.
    pub fn new(file: &str, text: &str) -> Self {
        let origin = Origin { file: file.to_owned(), text: text.to_owned(), spans: HashMap::new() };
        Self { origin: Cow::Owned(origin), ..Self::default() }
    }

    /// A report on a file whose values' places are known already.
    pub fn resume(origin: &'o Origin) -> Self {
        Self { origin: Cow::Borrowed(origin), ..Self::default() }
    }

    /// Remembers where `path` is.
    pub fn place(&mut self, path: Path, span: Range<usize>) {
        self.origin.to_mut().spans.insert(path, span);
    }

    /// The file's text at `span`.
    fn text(&self, span: Range<usize>) -> &str {
        self.origin.text.get(span).unwrap_or("")
    }

    /// The line that `path` is on, from 1.
    pub fn line(&self, path: Path) -> usize {
        self.origin.position(self.origin.span(path).start).0
    }

    /// Whether the value at `path` could not be read, or was found wrong already, or is part of
    /// what was.
    pub fn is_broken(&self, path: Path) -> bool {
        let mut parts = std::iter::successors(Some(path), |path| path.parent());
        parts.any(|path| path != Path::FILE && self.broken.contains(&path))
    }

    /// The value at `path` as the file writes it, on one line and cut to a sensible length.
    pub fn written(&self, path: Path) -> String {
        const CHARS: usize = 60;
        let text = self.text(self.origin.span(path));
        let cut: String = text.chars().take_while(|c| !c.is_control()).take(CHARS).collect();
        if cut.len() < text.len() { cut + "…" } else { cut }
    }

    /// Reports an error at `path`, unless one was reported there before.
    pub fn error(&mut self, path: Path, message: impl Into<String>, hint: impl Into<String>) {
        if !self.is_broken(path) {
            self.broken.insert(path);
            self.find(Severity::Error, path, message.into(), hint.into());
        }
    }

    /// Reports an error in the text of the value at `path`.
    pub fn fault(&mut self, path: Path, fault: Fault) {
        self.error(path, fault.message, fault.hint);
    }

    /// Reports a key of the table at `path` that should not be there.
    pub fn stranger(&mut self, path: Path, key: &str, span: Range<usize>, hint: String) {
        let stranger = Some(key.chars().take(EXCERPT).collect());
        let message = "there is no such key here".to_owned();
        let severity = Severity::Error;
        self.push(Finding { severity, path, stranger, span: Some(span), message, hint });
    }

    /// Reports an error of TOML itself.
    pub fn syntax(&mut self, span: Range<usize>, message: String, hint: String) {
        let (severity, path, span) = (Severity::Error, Path::FILE, Some(span));
        self.push(Finding { severity, path, stranger: None, span, message, hint });
    }

    /// Reports something legal but probably not meant.
    pub fn warn(&mut self, path: Path, message: impl Into<String>, hint: impl Into<String>) {
        self.find(Severity::Warning, path, message.into(), hint.into());
    }

    /// Whether whatever else is found will only be counted, so that no words need be found for it.
    pub fn is_full(&self) -> bool {
        self.findings.len() >= MOST
    }

    /// Whether an error was found.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The errors, in the order of the file; the names in them come from `config`.
    pub fn into_errors(mut self, config: &Config) -> ConfigErrors {
        let more = self.more;
        ConfigErrors::Invalid { diagnostics: self.take_diagnostics(config), more }
    }

    /// What was found, in the order of the file; the names in it come from `config`.
    pub fn take_diagnostics(&mut self, config: &Config) -> Vec<Diagnostic> {
        let origin = &self.origin;
        let findings = std::mem::take(&mut self.findings);
        let mut placed: Vec<(Range<usize>, Finding)> = findings
            .into_iter()
            .map(|finding| {
                (finding.span.clone().unwrap_or_else(|| origin.span(finding.path)), finding)
            })
            .collect();
        placed.sort_by_key(|(span, _)| span.start);
        placed.into_iter().map(|(span, finding)| origin.diagnose(config, span, finding)).collect()
    }

    /// Where everything is, for later reports on the same file.
    pub fn into_origin(self) -> Origin {
        self.origin.into_owned()
    }

    fn find(&mut self, severity: Severity, path: Path, message: String, hint: String) {
        self.push(Finding { severity, path, stranger: None, span: None, message, hint });
    }

    fn push(&mut self, finding: Finding) {
        if self.findings.len() < MOST {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

impl Origin {
    /// Where `path` is, or else what it is part of.
    fn span(&self, path: Path) -> Range<usize> {
        let mut at = Some(path);
        while let Some(path) = at {
            if let Some(span) = self.spans.get(&path) {
                return span.clone();
            }
            at = path.parent();
        }
        0..0
    }

    /// Line and column (in characters) of an offset, both from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    fn diagnose(&self, config: &Config, span: Range<usize>, finding: Finding) -> Diagnostic {
        let Finding { severity, path, stranger, mut message, hint, .. } = finding;
        if self.text.is_empty() {
            // There is no file whose lines could be named.
            message = message.replace(" (line 1)", "");
        }
        let (line, column) = self.position(span.start);
        let (excerpt, indent, width) = self.excerpt(&span);
        let mut key = path.to_string();
        if let Some(stranger) = stranger {
            let dot = if key.is_empty() { "" } else { "." };
            key = format!("{key}{dot}{}", stranger.escape_debug());
        }
        let subject = subject(config, path);
        let file = self.file.clone();
        Diagnostic {
            severity,
            file,
            line,
            column,
            subject,
            key,
            message,
            hint,
            excerpt,
            indent,
            width,
        }
    }

    /// The line that `span` begins on, printable and not too long, and which of its characters
    /// to mark.
    fn excerpt(&self, span: &Range<usize>) -> (String, usize, usize) {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.floor_char_boundary(span.end).max(start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let line = self.text[line_start..line_end].trim_end();
        let mut indent = self.text[line_start..start].chars().count();
        let marked = self.text[start..end.min(line_end)].trim_end().chars().count();
        let mut excerpt: Vec<char> = line.chars().map(printable).collect();
        if excerpt.len() > EXCERPT {
            let cut = indent.saturating_sub(BEFORE).min(excerpt.len() - EXCERPT);
            let rest = excerpt.len() - cut - EXCERPT;
            excerpt = excerpt[cut..cut + EXCERPT].to_vec();
            if cut > 0 {
                excerpt[0] = '…';
            }
            if rest > 0 {
                excerpt[EXCERPT - 1] = '…';
            }
            indent -= cut;
        }
        let width = marked.min(excerpt.len().saturating_sub(indent)).max(1);
        (excerpt.into_iter().collect(), indent, width)
    }
}

/// A character that a terminal shows in one column and does not obey.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        '"' | '\'' | '\\' => character,
        // What Unicode does not call printable, which includes marks that turn the text around.
        other if other.escape_debug().len() > 1 => '\u{fffd}',
        other => other,
    }
}

/// What an operator calls the thing that `path` belongs to.
fn subject(config: &Config, path: Path) -> Option<String> {
    let named = |kind: &str, name: Option<&String>| {
        name.filter(|name| !name.is_empty()).map(|name| format!("{kind} {name:?}"))
    };
    let index = path.index;
    match path.place {
        Place::Network => named("network", config.networks.get(index).map(|it| &it.name)),
        Place::Port => named("port", config.ports.get(index).map(|port| &port.name)),
        Place::Pool => named("pool", config.pools.get(index).map(|pool| &pool.name)),
        Place::Service => named("service", config.services.get(index).map(|it| &it.name)),
        Place::Real => {
            let service = config.services.get(index)?;
            let address = service.reals.get(path.real)?.address;
            let named = named("service", Some(&service.name));
            if address.is_unspecified() {
                return named;
            }
            let comma = named.map(|named| named + ", ").unwrap_or_default();
            Some(format!("{comma}real {address}"))
        }
        Place::Check => named("check", config.checks.get(index).map(|check| &check.name)),
        Place::Snat => named("snat", config.snat.get(index).map(|rule| &rule.name)),
        Place::Route => {
            let prefix = config.routes.get(index)?.prefix;
            let known = prefix != Prefix::from(crate::parse::NO_ADDRESS);
            known.then(|| format!("route {prefix}"))
        }
        Place::Neighbour => {
            let address = config.neighbours.get(index)?.address;
            (!address.is_unspecified()).then(|| format!("neighbour {address}"))
        }
        _ => None,
    }
}
