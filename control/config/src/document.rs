//! A configuration as a plain document: the file's sections and keys as JSON has them.
//!
//! Every source (the file, the API, what is kept on disk) speaks of the same sections and keys in
//! the same units. So a document is written as TOML and goes through the one reader, which knows
//! what is right: nothing is described or checked twice. What the schema does not know is carried
//! through untouched, until the reader refuses it.

use std::fmt::Write;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::read::Table;
use crate::report::Report;
use crate::schema::keys::FILE;
use crate::schema::{Key, Section, Without};
use crate::{Config, ConfigErrors, Diagnostic, check, parse, syntax};

/// Sections by name; of those that repeat a list.
pub type Document = Map<String, Value>;

impl Config {
    /// Reads a document, or part of one. Single values are right then; whether they fit together
    /// is what [`Config::check`] tells. A key that is `null` is not there.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors::Invalid`] with everything that is wrong; lines and columns in it mean
    /// nothing.
    pub fn read_document(document: &Document) -> Result<Self, ConfigErrors> {
        let text = compact(document);
        let mut report = Report::new("", &text);
        let (table, errors) = DeTable::parse_recoverable(&text);
        if !errors.is_empty() {
            syntax::report_all(&errors, &text, &mut report);
            return Err(report.into_errors(&Self::default()));
        }
        let config = parse::read(Table::file(table.get_ref(), &mut report), &mut report);
        if report.has_errors() { Err(report.into_errors(&config)) } else { Ok(config) }
    }

    /// Checks whether everything fits together, and gives what is questionable.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors::Invalid`] with everything that does not.
    pub fn check(&self) -> Result<Vec<Diagnostic>, ConfigErrors> {
        self.check_errors()?;
        let mut report = Report::new("", "");
        check::warnings(self, &mut report);
        Ok(report.take_diagnostics(self))
    }

    /// The same without what is questionable.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors::Invalid`] with everything that does not fit together.
    pub fn check_errors(&self) -> Result<(), ConfigErrors> {
        let mut report = Report::new("", "");
        check::errors(self, &check::BOUNDS, &mut report);
        if report.has_errors() { Err(report.into_errors(self)) } else { Ok(()) }
    }
}

/// A TOML file as a document, whatever it says: only its syntax is looked at.
///
/// # Errors
///
/// [`ConfigErrors::Invalid`] with everything that is no TOML.
pub fn parse(file: &str, text: &str) -> Result<Document, ConfigErrors> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut report = Report::new(file, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(of_table(table.get_ref()));
    }
    syntax::report_all(&errors, text, &mut report);
    Err(report.into_errors(&Config::default()))
}

/// A file that was read without errors as a document, without keys that say what holds anyway.
pub(crate) fn of_file(table: &DeTable<'_>) -> Document {
    let mut document = of_table(table);
    normalise(&mut document);
    document
}

fn of_table(table: &DeTable<'_>) -> Document {
    table
        .iter()
        .map(|(key, value)| (key.get_ref().to_string(), of_value(value.get_ref())))
        .collect()
}

fn of_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(at) => Value::from(at.to_string()),
        DeValue::Array(items) => items.iter().map(|item| of_value(item.get_ref())).collect(),
        DeValue::Table(table) => Value::Object(of_table(table)),
    }
}

/// Takes away keys that are `null` or have the value that holds without them.
pub fn normalise(document: &mut Document) {
    normalise_section(document, &FILE);
}

fn normalise_section(table: &mut Document, section: &Section) {
    table.retain(|name, value| {
        let key = section.keys.iter().find(|key| key.name == name);
        !value.is_null() && !key.is_some_and(|key| holds_anyway(key, value))
    });
    for inner in section.sections {
        match table.get_mut(inner.name) {
            Some(Value::Object(table)) => normalise_section(table, inner),
            Some(Value::Array(items)) => {
                let tables = items.iter_mut().filter_map(Value::as_object_mut);
                tables.for_each(|table| normalise_section(table, inner));
            }
            _ => {}
        }
    }
}

fn holds_anyway(key: &Key, value: &Value) -> bool {
    match key.without {
        Without::Integer(default) => value.as_i64() == Some(default),
        Without::Boolean(default) => value.as_bool() == Some(default),
        Without::Text(default) => value.as_str() == Some(default),
        Without::Required | Without::Awaited | Without::Unset(_) => false,
    }
}

/// The document as a file that an operator would write: sections under their headings, in the
/// order of the reference. `remark` gives lines of comment above a section's table, by the
/// section's name and the table.
pub fn to_toml(document: &Document, remark: &dyn Fn(&str, &Document) -> Option<String>) -> String {
    let mut out = String::new();
    for section in FILE.sections {
        write_section(&mut out, document, section, remark);
    }
    out
}

fn write_section(
    out: &mut String,
    around: &Document,
    section: &Section,
    remark: &dyn Fn(&str, &Document) -> Option<String>,
) {
    let tables: Vec<&Document> = match around.get(section.name) {
        Some(Value::Object(table)) => vec![table],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_object).collect(),
        _ => return,
    };
    for table in tables {
        if !out.is_empty() {
            out.push('\n');
        }
        for line in remark(section.name, table).iter().flat_map(|text| text.lines()) {
            // Writing to a string does not fail.
            let _ = writeln!(out, "# {line}");
        }
        let _ = writeln!(out, "{}", section.heading);
        for key in section.keys {
            if let Some(value) = table.get(key.name) {
                let _ = writeln!(out, "{} = {}", key.name, inline(value));
            }
        }
        for inner in section.sections {
            write_section(out, table, inner, remark);
        }
    }
}

/// The document as TOML, whatever is in it.
fn compact(document: &Document) -> String {
    let mut out = String::new();
    for (name, value) in document.iter().filter(|(_, value)| !value.is_null()) {
        let _ = writeln!(out, "{} = {}", quoted(name), inline(value));
    }
    out
}

/// A value on one line of TOML.
fn inline(value: &Value) -> String {
    match value {
        // TOML has no null; in a list there must be something.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) => {
            let pairs = table.iter().filter(|(_, value)| !value.is_null());
            let pairs = pairs.map(|(name, value)| format!("{} = {}", bare(name), inline(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn bare(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.bytes().all(plain) { name.to_owned() } else { quoted(name) }
}

/// A basic string: what TOML does not allow as it is, is escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out + "\""
}
