//! Retired words: documents use the field's terms, which `docs/glossary.md` explains.
//!
//! Only words that mean nothing else in such a text are here. What stands between backticks or in a
//! block of code is a name of the program, and may still be an old one.

use super::Report;
use super::walk::SourceFile;

/// A retired word, as a whole word in small letters, and what to say.
const RETIRED: [(&str, &str); 29] = [
    ("stray", "misdirected packet"),
    ("strays", "misdirected packets"),
    ("errand", "handoff"),
    ("errands", "handoffs"),
    ("parcel", "handoff message"),
    ("parcels", "handoff messages"),
    ("guest", "handed-off packet"),
    ("guests", "handed-off packets"),
    ("lookout", "capture point"),
    ("lookouts", "capture points"),
    ("sieve", "address filter"),
    ("sieves", "address filters"),
    ("foresee", "speculative prefetch"),
    ("foreseen", "prefetched speculatively"),
    ("twins", "lanes in conflict; of ports: twin interfaces"),
    ("blueprint", "specification"),
    ("blueprints", "specifications"),
    ("super-frame", "super-packet"),
    ("super-frames", "super-packets"),
    ("coming and going", "connection setup and aging"),
    ("come and go", "open and end"),
    ("comes and goes", "opens and ends"),
    ("gives way", "is evicted"),
    ("give way", "are evicted"),
    ("spelt out", "general path"),
    ("whose it is", "owner worker"),
    ("whose they are", "owner worker"),
    ("door", "configuration source or interface"),
    ("doors", "configuration sources or interfaces"),
];

/// Checks one file, if it is a document for readers.
pub fn check(file: &SourceFile, report: &mut Report) {
    if is_document(&file.path) {
        for (number, word, instead) in retired(&file.content) {
            let text = format!("`{word}` is no term of the field: say {instead}");
            report.add("retired-word", &file.path, number, text);
        }
    }
}

fn is_document(path: &str) -> bool {
    let page = path.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
    ["README.md", "ARCHITECTURE.md"].contains(&path) || page.is_some_and(|name| !name.contains('/'))
}

/// Retired words of a text in Markdown, with their lines, 1-based, and what to say instead.
fn retired(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced {
            continue;
        }
        let prose = prose(line);
        let words = RETIRED.iter().filter(|(word, _)| has_word(&prose, word));
        found.extend(words.map(|(word, instead)| (index + 1, *word, *instead)));
    }
    found
}

/// What of a line is not between backticks, in small letters.
fn prose(line: &str) -> String {
    let parts = line.split('`').step_by(2);
    parts.collect::<Vec<_>>().join("`").to_lowercase()
}

/// Whether the word stands in the text by itself.
fn has_word(text: &str, word: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(letter);
        let after = text[at + word.len()..].chars().next().is_some_and(letter);
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_with_their_lines() {
        let text = "A stray.\n\nOther Strays come and go.\n";
        let found: Vec<_> = retired(text).into_iter().map(|(at, word, _)| (at, word)).collect();
        assert_eq!(found, [(1, "stray"), (3, "strays"), (3, "come and go")]);
    }

    #[test]
    fn names_of_the_program_and_longer_words_are_none() {
        let text = "`--door` of `foresee`\n```\nstrays\n```\nastray, outdoor, indoors, twin\n";
        assert_eq!(retired(text), []);
    }

    #[test]
    fn documents_are_those_for_readers() {
        for (path, is) in [
            ("README.md", true),
            ("ARCHITECTURE.md", true),
            ("docs/state.md", true),
            ("docs/images/notes.md", false),
            ("docs/openapi.json", false),
            ("CHANGELOG.md", false),
            ("fuzz/README.md", false),
        ] {
            assert_eq!(is_document(path), is, "{path}");
        }
    }

    #[test]
    fn each_word_is_in_the_list_once() {
        for (index, (word, instead)) in RETIRED.iter().enumerate() {
            assert_eq!(*word, word.to_lowercase());
            assert!(!instead.is_empty() && RETIRED[..index].iter().all(|(known, _)| known != word));
        }
    }
}
