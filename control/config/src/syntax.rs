//! Errors of TOML itself, in the operator's words.
//!
//! The parser says what it expected next; an operator wants to know what to write. Most such
//! errors are a value without quotes, so the line is looked at and the value as a whole is named.

use std::ops::Range;

use toml::de::Error;

use crate::errors::quoted;
use crate::report::Report;

const GENERAL: &str = "write KEY = VALUE on a line of its own: text in double quotes, lists in \
                       brackets, sections as [name] or [[name]]";

/// How the parser begins its message when a list goes on where it should have ended.
const UNCLOSED_LIST: &str = "missing comma between array elements";

/// Reports what TOML does not allow, once a line: what follows on the same line is most likely a
/// consequence.
pub(crate) fn report_all(errors: &[Error], text: &str, report: &mut Report) {
    let end = text.len()..text.len();
    let mut placed: Vec<(Range<usize>, &str)> = errors
        .iter()
        .map(|error| (error.span().unwrap_or_else(|| end.clone()), error.message()))
        .collect();
    placed.sort_by_key(|(span, _)| span.start);
    let mut last_line = None;
    for (span, message) in placed {
        let start = text.floor_char_boundary(span.start);
        let line = Line::around(text, start);
        if last_line.replace(line.start) == Some(line.start) {
            continue;
        }
        let Told { span, message: told, hint } = tell(message, start..span.end, &line);
        report.syntax(span, told, hint);
        if message.starts_with(UNCLOSED_LIST) {
            // The parser takes everything below for items of the list.
            break;
        }
    }
}

/// What is said about an error.
struct Told {
    span: Range<usize>,
    message: String,
    hint: String,
}

/// A line of the file and the parts of a `key = value` on it.
struct Line<'t> {
    start: usize,
    text: &'t str,
}

impl<'t> Line<'t> {
    fn around(text: &'t str, offset: usize) -> Self {
        let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[offset..].find('\n').map_or(text.len(), |newline| offset + newline);
        Self { start, text: &text[start..end] }
    }

    /// The value of a `key = value` and where it begins in the file.
    fn value(&self) -> Option<(usize, &'t str)> {
        let (key, value) = self.text.split_once('=')?;
        let value = value.split('#').next()?;
        let blank = value.len() - value.trim_start().len();
        Some((self.start + key.len() + 1 + blank, value.trim()))
    }
}

fn tell(message: &str, span: Range<usize>, line: &Line<'_>) -> Told {
    let told = |span, message: &str, hint: &str| Told {
        span,
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    if message.starts_with("duplicate key") {
        let hint = "each key and each [section] stands once: keep one of the two";
        return told(span, "this is there already", hint);
    }
    if message.starts_with(UNCLOSED_LIST) {
        let hint = "write `,` between the items of a list and `]` after the last";
        return told(span, "the list before this is not closed, or a comma is missing", hint);
    }
    if message.starts_with("invalid basic string") && message.ends_with("expected `\"`") {
        return told(span, "the text is not closed", "write a double quote at its end");
    }
    if let Some((start, value)) = line.value() {
        let here = start..start + value.len();
        let concerns = here.start <= span.start && span.start <= here.end;
        if concerns && value.is_empty() {
            return told(span, "the value is missing", "write a value after the `=`");
        }
        if concerns && !value.starts_with(['"', '\'', '[', '{']) {
            let message = format!("{} is not a TOML value", shown(value));
            return Told { span: here, message, hint: bare_value(value) };
        }
    } else if line.text.trim_start().starts_with("//") {
        return told(span, "this is not a comment in TOML", "begin comments with `#`");
    } else if line.text.contains(':') {
        return told(span, "there is no `=` on this line", "write KEY = VALUE, not KEY: VALUE");
    }
    told(span, message, GENERAL)
}

/// What to do about a value that is neither quoted nor a list nor a table.
fn bare_value(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    if lower == "true" || lower == "false" {
        return format!("write {lower}, in lower case");
    }
    if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        return "write the number without leading zeros, underscores only between digits".into();
    }
    let straight = value.trim_matches(['“', '”', '„', '‘', '’', '"', '\'']);
    format!("write {} with straight double quotes if it is text", quoted(straight))
}

fn shown(value: &str) -> String {
    let quoted = quoted(value);
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}
