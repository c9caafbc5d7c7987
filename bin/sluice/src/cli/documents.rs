//! Commands that documents, runbooks and units name are commands that there are: each is given to
//! the definition of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::Cli;

/// Files and folders of the repository that name commands.
const PLACES: [&str; 6] = ["README.md", "CHANGELOG.md", "docs", "packaging", "examples", "demo"];
/// What a file with commands is called.
const KINDS: [&str; 8] = ["md", "yml", "json", "toml", "conf", "service", "sh", "html"];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder").flatten();
        entries.for_each(|entry| files(&entry.path(), found));
    } else if path.extension().is_some_and(|kind| KINDS.iter().any(|known| kind == *known)) {
        found.push(path.to_owned());
    }
}

/// What begins with `sluice` between backticks, or as a line of its own behind a prompt or not;
/// with whether it must be a whole command line.
fn commands(text: &str) -> Vec<(String, bool)> {
    let (mut found, text) = (Vec::new(), text.replace("\\\n", " "));
    for line in text.lines() {
        let line = line.trim_start().trim_start_matches(['$', '#']).trim_start();
        if line.starts_with("sluice ") {
            found.push((line.to_owned(), true));
        }
    }
    // Text between backticks may go on in the next line; a block between three is none.
    for part in text.replace("```", "\n\n").split("\n\n") {
        let inline = part.split('`').skip(1).step_by(2);
        let inline = inline.filter(|text| text.starts_with("sluice ") && text.len() < 200);
        found.extend(inline.map(|text| (text.to_owned(), false)));
    }
    found
}

/// A shell's words, up to what is no argument any more; `None` for what is a sentence.
fn words(command: &str) -> Option<Vec<String>> {
    let command = command.replace("\\\"", "\"");
    let mut words = vec![String::new()];
    let (mut quote, mut braces) = (None, 0);
    for sign in command.chars() {
        match (sign, quote) {
            ('{', None) => braces += 1,
            ('}', None) => braces -= 1,
            (' ' | '\n', None) if braces == 0 => words.push(String::new()),
            ('\'' | '"', None) => quote = Some(sign),
            (sign, Some(begun)) if sign == begun => quote = None,
            (sign, _) => words.last_mut()?.push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    let ends = |word: &String| {
        let shell = ["|", "||", "&&", "&", ";", ">", "<", ">>", "2>", "\\", "…", "..."];
        shell.contains(&word.as_str()) || word.starts_with("2>") || word.starts_with(['#', '('])
    };
    let end = words.iter().position(ends).unwrap_or(words.len());
    words.truncate(end);
    Some(words)
}

/// Whether a command line is one that there is. Options in brackets may be there or not; of one
/// that is only named, arguments may be missing and values be words such as `N`.
fn is_right(words: &[String], whole: bool) -> Result<(), String> {
    let given = words.iter().map(|word| word.replace(['[', ']'], ""));
    let given: Vec<String> =
        given.map(|word| word.split('|').next().unwrap_or("").into()).collect();
    let Err(wrong) = Cli::try_parse_from(&given) else { return Ok(()) };
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion, InvalidValue,
        MissingRequiredArgument, MissingSubcommand, ValueValidation,
    };
    match wrong.kind() {
        DisplayHelp | DisplayVersion | ValueValidation => Ok(()),
        DisplayHelpOnMissingArgumentOrSubcommand
        | InvalidValue
        | MissingRequiredArgument
        | MissingSubcommand
            if !whole =>
        {
            Ok(())
        }
        _ => Err(wrong.to_string()),
    }
}

#[test]
fn commands_in_documents_are_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    PLACES.iter().for_each(|place| files(&root.join(place), &mut all));
    let known: Vec<String> =
        Cli::command().get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in &all {
        let text = fs::read_to_string(file).expect("text");
        for (command, whole) in commands(&text) {
            let Some(words) = words(&command) else { continue };
            // A line of prose may begin with the product's name.
            let prose = whole
                && words
                    .get(1)
                    .is_none_or(|second| !second.starts_with('-') && !known.contains(second));
            if prose || words.iter().any(|word| word == "COMMAND") {
                continue;
            }
            seen += 1;
            if let Err(error) = is_right(&words, whole) {
                let first = error.lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{}: {command}: {first}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} commands were found");
}

/// What the test above is for.
#[test]
fn a_command_that_is_not_there_is_found() {
    let wrong = |text: &str| {
        let all = commands(text);
        assert_eq!(all.len(), 1, "{text}");
        is_right(&words(&all[0].0).expect("words"), all[0].1).is_err()
    };
    assert!(wrong("give weight back (`sluice real\n            weight`)"));
    assert!(wrong("    sluice sessions --sevice web\n"));
    assert!(wrong("$ sluice config diff\n"));
    assert!(!wrong("`sluice real set`"));
    assert!(!wrong("$ sluice real set web 192.0.2.11 --weight 5 --json | jq .epoch\n"));
    assert!(!wrong("`sluice services {{ $labels.service }}` shows"));
}
