//! Rules that need no parser: length of files and lines, a word at the top of each file, names of
//! files, marks of unfinished work, paths of one machine.

use super::Report;
use super::ratchet::{Measured, Ratchet};
use super::walk::SourceFile;

/// Columns of a line of program text.
const LINE_COLUMNS: usize = 100;

/// Words that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"];

/// Marks of unfinished work. Put together here so that this file holds none.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// Starts of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/ro", "ot/"), concat!(".libr", "ary/")];

/// Checks one file.
pub fn check(file: &SourceFile, ratchet: &mut Ratchet, report: &mut Report) {
    names(file, report);
    for (index, line) in file.content.lines().enumerate() {
        marks(file, index + 1, line, report);
    }
    if file.is_code() {
        let lines = file.content.lines().count();
        if let Some(wrong) = ratchet.judge(Measured::File, &file.path, lines) {
            report.add("file-length", &file.path, 0, wrong);
        }
        if !introduced(file) {
            let text = "starts with no comment on what it is, its invariant, why this shape";
            report.add("introduction", &file.path, 1, text);
        }
    }
}

fn names(file: &SourceFile, report: &mut Report) {
    let stem = file.path.rsplit_once('.').map_or(&*file.path, |(stem, _)| stem);
    for word in stem.split(['/', '_', '-', '.']) {
        if EMPTY_NAMES.contains(&&*word.to_lowercase()) {
            let text = format!("`{word}` says nothing: name the file by what is in it");
            report.add("name", &file.path, 0, text);
        }
    }
}

/// Whether `ident` (snake or camel case) contains a word that says nothing.
pub fn empty_name(ident: &str) -> Option<&'static str> {
    let mut words = String::new();
    let mut lower_before = false;
    for letter in ident.chars() {
        if letter.is_uppercase() && lower_before {
            words.push('_');
        }
        lower_before = letter.is_lowercase() || letter.is_ascii_digit();
        words.extend(letter.to_lowercase());
    }
    EMPTY_NAMES.into_iter().find(|empty| words.split('_').any(|word| word == *empty))
}

fn marks(file: &SourceFile, number: usize, line: &str, report: &mut Report) {
    if file.is_code() && line.chars().count() > LINE_COLUMNS {
        let text = format!("{} columns, at most {LINE_COLUMNS}", line.chars().count());
        report.add("line-length", &file.path, number, text);
    }
    if let Some(mark) = UNFINISHED.into_iter().find(|mark| stands_alone(line, mark)) {
        let text = format!("`{mark}`: finish it, or open an issue and say here what holds now");
        report.add("unfinished", &file.path, number, text);
    }
    if let Some(path) = MACHINE_PATHS.into_iter().find(|path| stands_alone(line, path)) {
        let text = format!("`{path}` exists on one machine only: use a relative path");
        report.add("machine-path", &file.path, number, text);
    }
}

/// Whether `mark` occurs in `line` and is not the end or beginning of a longer word.
fn stands_alone(line: &str, mark: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(word);
        let after = line[at + mark.len()..].chars().next().is_some_and(word);
        !(before || after && mark.ends_with(word))
    })
}

/// Whether the file says at its top what it is.
fn introduced(file: &SourceFile) -> bool {
    let mut lines = file.content.lines().skip_while(|line| line.starts_with("#!/"));
    let first = lines.find(|line| !line.trim().is_empty()).unwrap_or("");
    match file.extension() {
        "rs" => first.starts_with("//!"),
        "c" | "h" | "js" | "css" => first.starts_with("/*") || first.starts_with("//"),
        "py" => first.starts_with("\"\"\"") || first.starts_with('#'),
        _ => first.starts_with('#'),
    }
}
