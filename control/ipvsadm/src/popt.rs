//! Finds options among arguments by the rules of popt, the library that the stock program uses.
//!
//! Letters may stand together (`-Ln`), the last one's argument right behind it (`-t192.0.2.1:80`,
//! `-t=192.0.2.1:80`); words take theirs behind `=` or as the next argument, and cannot be
//! shortened. `--` ends options. What is no option is kept for later, wherever it stands.

use crate::options::{self, Row, Tag, Takes};
use crate::verb::Verb;

/// Why an argument cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The argument as it was given.
    pub(crate) argument: String,
    /// popt's words.
    pub(crate) why: &'static str,
}

/// Goes through arguments.
pub(crate) struct Popt<'a> {
    arguments: std::slice::Iter<'a, String>,
    /// The argument that is being read.
    current: &'a str,
    /// Letters of it that are still to be read.
    letters: &'a str,
    /// Whether `--` was seen.
    ended: bool,
    /// What is no option.
    left_over: std::vec::Vec<&'a str>,
}

impl<'a> Popt<'a> {
    pub(crate) fn new(arguments: &'a [String]) -> Self {
        let arguments = arguments.iter();
        Self { arguments, current: "", letters: "", ended: false, left_over: Vec::new() }
    }

    /// The argument in which the option was that came last.
    pub(crate) fn current(&self) -> &'a str {
        self.current
    }

    /// What was no option, in order.
    pub(crate) fn left_over(self) -> Vec<&'a str> {
        self.left_over
    }

    /// The next option and its argument; none at the end. `verb` is the command, once it is known.
    pub(crate) fn next(
        &mut self,
        verb: Option<Verb>,
    ) -> Option<Result<(Tag, Option<&'a str>), Trouble>> {
        if self.letters.is_empty() {
            loop {
                let argument = self.arguments.next()?.as_str();
                if self.ended || argument == "-" || !argument.starts_with('-') {
                    self.left_over.push(argument);
                } else if argument == "--" {
                    self.ended = true;
                } else {
                    self.current = argument;
                    break;
                }
            }
            match self.current.strip_prefix("--") {
                Some(word) => return Some(self.word(word)),
                None => self.letters = &self.current[1..],
            }
        }
        Some(self.letter(verb))
    }

    fn word(&mut self, word: &'a str) -> Result<(Tag, Option<&'a str>), Trouble> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let row = options::by_name(name).ok_or_else(|| self.trouble("unknown option"))?;
        self.with_argument(row, value)
    }

    fn letter(&mut self, verb: Option<Verb>) -> Result<(Tag, Option<&'a str>), Trouble> {
        let mut letters = self.letters.chars();
        let found = letters.next().and_then(|letter| options::by_letter(letter, verb));
        let rest = letters.as_str();
        let row = found.ok_or_else(|| self.trouble("unknown option"))?;
        let value = match (rest.strip_prefix('='), row.2) {
            (Some(value), _) => Some(value),
            (None, Takes::Nothing) => {
                self.letters = rest;
                return Ok((row.3, None));
            }
            (None, _) => Some(rest).filter(|rest| !rest.is_empty()),
        };
        self.letters = "";
        self.with_argument(row, value)
    }

    fn with_argument(
        &mut self,
        row: &'static Row,
        value: Option<&'a str>,
    ) -> Result<(Tag, Option<&'a str>), Trouble> {
        let value = match (row.2, value) {
            (Takes::Nothing, Some(_)) => {
                return Err(self.trouble("option does not take an argument"));
            }
            (Takes::Nothing, None) => None,
            (_, Some(value)) => Some(value),
            (Takes::Perhaps, None) => {
                let next = self.arguments.as_slice().first();
                let wanted = next.is_some_and(|next| !next.starts_with('-'));
                wanted.then(|| self.arguments.next()).flatten().map(String::as_str)
            }
            (Takes::Argument, None) => {
                let next = self.arguments.next().map(String::as_str);
                Some(next.ok_or_else(|| self.trouble("missing argument"))?)
            }
        };
        Ok((row.3, value))
    }

    fn trouble(&self, why: &'static str) -> Trouble {
        Trouble { argument: self.current.to_owned(), why }
    }
}
