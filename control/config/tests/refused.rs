//! Refused configurations and what is said about them: the cases of `refused.txt`, which says how
//! it is read and written anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sluice_config::{Config, ConfigErrors};

/// A wrong configuration file, and the messages that refuse it.
pub struct Case {
    pub name: String,
    pub file: String,
    messages: String,
}

const CASE: &str = "=== ";
const MESSAGES: &str = "--- refused";

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused.txt")
}

/// What the table says before its first case, and the cases.
fn read() -> (String, Vec<Case>) {
    let text = fs::read_to_string(table()).expect("the table of refused configurations");
    let (head, rest) = text.split_once(CASE).expect("a case");
    let cases = rest.split("\n=== ").map(|case| {
        let (name, case) = case.split_once('\n').expect("a name");
        // An empty file leaves nothing before the mark, not even the end of a line.
        let at = case.find(MESSAGES).expect("messages");
        let messages = case[at + MESSAGES.len()..].trim_matches('\n').to_owned();
        Case { name: name.to_owned(), file: unescaped(&case[..at]), messages }
    });
    (head.to_owned(), cases.collect())
}

/// The cases of the table.
pub fn cases() -> Vec<Case> {
    let (_, cases) = read();
    assert!(cases.len() >= 129, "only {} refused configurations", cases.len());
    cases
}

/// Whether a character of a file would be hidden by an editor or lost.
fn is_hidden(character: char) -> bool {
    let of_direction = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
    let of_isolation = matches!(character, '\u{2066}'..='\u{2069}' | '\u{feff}');
    of_direction || of_isolation || (character.is_control() && character != '\n')
}

fn escaped(file: &str) -> String {
    assert!(!file.contains("<U+"), "the table cannot hold this file: {file}");
    let mut text = String::new();
    let mut rest = file.chars().peekable();
    while let Some(character) = rest.next() {
        let at_end = character == ' ' && matches!(rest.peek(), None | Some('\n'));
        if at_end || is_hidden(character) {
            write!(text, "<U+{:04X}>", u32::from(character)).expect("room");
        } else {
            text.push(character);
        }
    }
    text
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split("<U+");
    let mut file = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('>').expect("the end of an escape");
        let number = u32::from_str_radix(number, 16).expect("a number of a character");
        file.push(char::from_u32(number).expect("a character"));
        file.push_str(rest);
    }
    file
}

fn refusal(case: &Case) -> ConfigErrors {
    match Config::parse("sluice.toml", &case.file) {
        Err(refused) => refused,
        Ok(_) => panic!("{} is accepted", case.name),
    }
}

#[test]
fn each_is_refused_with_these_words() {
    let (head, cases) = read();
    let mut written = head;
    for case in &cases {
        let Case { name, file, messages } = case;
        let said = refusal(case).to_string();
        let said = said.trim_matches('\n');
        let file = escaped(file);
        write!(written, "{CASE}{name}\n{file}{MESSAGES}\n{said}\n\n").expect("room");
        if env::var_os("UPDATE_REFUSED").is_none() {
            assert_eq!(said, messages, "{name}: see the table's first lines");
        }
    }
    let written = written.trim_end_matches('\n').to_owned() + "\n";
    if env::var_os("UPDATE_REFUSED").is_some() {
        fs::write(table(), written).expect("the table can be written");
    } else {
        let committed = fs::read_to_string(table()).expect("the table");
        assert!(written == committed, "the table is not as it would be written: write it anew");
    }
}

#[test]
fn each_message_says_where_and_what_would_be_right() {
    for case in cases() {
        let refused = refusal(&case);
        let lines = case.file.split('\n').count();
        assert!(!refused.diagnostics().is_empty(), "{}", case.name);
        for diagnostic in refused.diagnostics() {
            let shown = format!("{}: {diagnostic}", case.name);
            assert!((1..=lines).contains(&diagnostic.line), "{shown}");
            assert!(diagnostic.column >= 1, "{shown}");
            assert!(!diagnostic.message.is_empty() && !diagnostic.hint.is_empty(), "{shown}");
            assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
}
