//! What is wrong with a configuration, and how it is told.
//!
//! Every [`Diagnostic`] says where (file, line, column, key, and the name of the thing it belongs
//! to), what was found, and what would be right; a hint is never missing.

use std::fmt;
use std::io;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigErrors {
    /// The file could not be read, or is not text of a sensible size.
    #[error("error: {file}: {what}\n  = {hint}")]
    Unreadable {
        /// The file's name as it was given.
        file: String,
        /// What went wrong.
        what: String,
        /// What would be right.
        hint: &'static str,
        /// The operating system's reason, where there is one.
        source: Option<io::Error>,
    },
    /// The file's content is wrong.
    #[error("{}", Rendered(.diagnostics, *.more))]
    Invalid {
        /// The errors, in the order of the file; at most 100.
        diagnostics: Vec<Diagnostic>,
        /// How many more there are.
        more: usize,
    },
}

impl ConfigErrors {
    /// The errors in the file's content, in the order of the file; none if it was unreadable.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Invalid { diagnostics, .. } => diagnostics,
        }
    }
}

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is legal, but probably not what was meant.
    Warning,
}

/// One thing that is wrong, or questionable, in a configuration file. Its `Display` is the whole
/// message with an excerpt of the file, over several lines, without a newline at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file's name as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The named thing it belongs to, such as `service "web"`; `None` for the single sections.
    pub subject: Option<String>,
    /// The key, such as `service[2].real[0].port`; empty when it is about the whole file.
    pub key: String,
    /// What was found.
    pub message: String,
    /// What would be right.
    pub hint: String,
    /// The line, printable, cut to a sensible length.
    pub(crate) excerpt: String,
    /// How many characters of `excerpt` precede what is marked.
    pub(crate) indent: usize,
    /// How many characters are marked, at least 1.
    pub(crate) width: usize,
}

impl Diagnostic {
    /// Whether the configuration is refused for it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(out, "{severity}: {}:{}:{}: ", self.file, self.line, self.column)?;
        if let Some(subject) = &self.subject {
            write!(out, "{subject}: ")?;
        }
        if !self.key.is_empty() {
            write!(out, "`{}`: ", self.key)?;
        }
        writeln!(out, "{}", self.message)?;
        if !self.excerpt.is_empty() {
            writeln!(out, "{:>4} | {}", self.line, self.excerpt)?;
            let gutter = self.line.to_string().len().max(4);
            writeln!(
                out,
                "{:gutter$} | {:indent$}{:^<width$}",
                "",
                "",
                "",
                indent = self.indent,
                width = self.width
            )?;
        }
        write!(out, "  = {}", self.hint)
    }
}

/// Several diagnostics, an empty line between them.
struct Rendered<'a>(&'a [Diagnostic], usize);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                write!(out, "\n\n")?;
            }
            write!(out, "{diagnostic}")?;
        }
        if self.1 > 0 {
            write!(out, "\n\nand {} more", self.1)?;
        }
        Ok(())
    }
}

/// Why a piece of text is not a device, a MAC address, a prefix…: what was found and what would
/// be right. The place in the file is added by the reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {hint}")]
pub struct Fault {
    /// What was found.
    pub message: String,
    /// What would be right.
    pub hint: String,
}

impl Fault {
    /// A fault with a message (what was found) and a hint (what would be right).
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// The most characters of a value that a message repeats.
const QUOTED_CHARS: usize = 60;

/// A value from the file in quotes, printable and cut to a sensible length.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}
