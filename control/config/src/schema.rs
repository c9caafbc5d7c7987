//! What a key is: its type, what happens without it, what it means.
//!
//! The keys themselves are in [`keys`], each described once. Reading, the hints in messages,
//! the suggestions for misspelt keys and the reference are all driven by these descriptions.

pub(crate) mod keys;

#[cfg(test)]
mod tests;

use crate::path::Place;

/// A section of the configuration file.
pub(crate) struct Section {
    /// Where it is.
    pub place: Place,
    /// Its name as a key of what it is part of.
    pub name: &'static str,
    /// Its heading as the file writes it, such as `[[service.real]]`; empty for the file itself.
    pub heading: &'static str,
    /// What it is for, in Markdown.
    pub about: &'static str,
    /// Its keys, in the order they are documented.
    pub keys: &'static [&'static Key],
    /// The sections inside it.
    pub sections: &'static [&'static Section],
}

/// A key of a section.
pub(crate) struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What happens without it.
    pub without: Without,
    /// A value as the file writes it.
    pub example: &'static str,
    /// What it means, in Markdown.
    pub about: &'static str,
}

/// The type of a key.
pub(crate) enum Kind {
    /// An integer from `min` to `max`.
    Integer {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// A list of integers, each from `min` to `max`.
    Integers {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// `true` or `false`.
    Boolean,
    /// One word out of few.
    Word(fn() -> Vec<&'static str>),
    /// A list of words out of few.
    Words(fn() -> Vec<&'static str>),
    /// A port as an integer, or a range of ports as a string.
    PortOrRange,
    /// A string of this form.
    Text(&'static str),
    /// A list of strings of this form.
    Texts(&'static str),
    /// A table of strings, by names that are free.
    Labels,
}

/// What happens without a key.
pub(crate) enum Without {
    /// It must be given.
    Required,
    /// It must be given, too, but what has it not yet can be read: the checks ask for it.
    Awaited,
    /// It has this value.
    Integer(i64),
    /// It has this value.
    Boolean(bool),
    /// It has this value.
    Text(&'static str),
    /// What this says, in Markdown.
    Unset(&'static str),
}

impl Kind {
    /// What is expected, as the end of a sentence: `use …`.
    pub fn expects(&self) -> String {
        match self {
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Integers { min, max } => format!("a list of integers from {min} to {max}"),
            Self::Boolean => "true or false".to_owned(),
            Self::Word(words) => format!("one of: {}", words().join(", ")),
            Self::Words(words) => format!("a list of some of: {}", words().join(", ")),
            Self::PortOrRange => {
                "an integer from 1 to 65535, or a range such as \"8000-8099\"".to_owned()
            }
            Self::Text(form) => (*form).to_owned(),
            Self::Texts(form) => format!("a list, each item {form}"),
            Self::Labels => "a table of strings".to_owned(),
        }
    }
}

impl Section {
    /// The names that may stand in it: keys and inner sections.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let keys = self.keys.iter().map(|key| key.name);
        keys.chain(self.sections.iter().map(|section| section.name))
    }

    /// This section and all inside it, in the order they are documented.
    pub fn flatten(&'static self) -> Vec<&'static Section> {
        let inner = self.sections.iter().flat_map(|section| section.flatten());
        std::iter::once(self).chain(inner).collect()
    }

    /// Whether it is a list of tables, `[[…]]`.
    pub fn repeats(&self) -> bool {
        self.heading.starts_with("[[")
    }
}
