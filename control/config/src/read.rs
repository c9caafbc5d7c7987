//! Reading one table of the file by its description in the schema.
//!
//! Every method reports what is wrong with a value and then goes on with what the key has
//! without it, so that the rest of the file is still looked at.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Fault;
use crate::errors::quoted;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::schema::keys::FILE;
use crate::schema::{Key, Kind, Section, Without};
use crate::suggest::{did_you_mean, meant};
use crate::words::{Word, words_of};

/// The most labels of one table.
const LABELS: usize = 64;
/// The longest name of a label, in bytes.
const NAME_BYTES: usize = 64;
/// The longest text of a label, in bytes: room for a hundred addresses.
const LABEL_BYTES: usize = 4096;

/// One table of the file.
#[derive(Clone, Copy)]
pub(crate) struct Table<'t> {
    /// `None`: the file does not have it.
    entries: Option<&'t DeTable<'t>>,
    section: &'static Section,
    /// Where it is.
    pub path: Path,
}

type Value<'t> = &'t Spanned<DeValue<'t>>;

impl<'t> Table<'t> {
    /// The file itself.
    pub fn file(entries: &'t DeTable<'t>, report: &mut Report) -> Self {
        Self::open(Some(entries), &FILE, Path::FILE, report)
    }

    /// A section that the file does not have: every key has its default.
    pub fn absent(section: &'static Section) -> Self {
        Self { entries: None, section, path: Path::table(section.place, 0) }
    }

    fn open(
        entries: Option<&'t DeTable<'t>>,
        section: &'static Section,
        path: Path,
        report: &mut Report,
    ) -> Self {
        let table = Self { entries, section, path };
        table.check_names(report);
        table
    }

    fn check_names(&self, report: &mut Report) {
        for key in self.entries.into_iter().flat_map(DeTable::keys) {
            let name = key.get_ref().as_ref();
            if !self.section.names().any(|known| known == name) {
                report.stranger(self.path, name, key.span(), self.hint_for_stranger(name));
            }
        }
    }

    /// What to do about a key that is not one of this section's.
    fn hint_for_stranger(&self, name: &str) -> String {
        if let Some(near) = meant(name, self.section.names()) {
            return format!("did you mean `{near}`?");
        }
        let home = |it: &&&'static Section| it.names().any(|known| known == name);
        if let Some(section) = FILE.flatten().iter().find(home) {
            return match section.heading {
                "" => format!("`{name}` is a section of its own and stands at the left margin"),
                heading => format!("`{name}` belongs in {heading}"),
            };
        }
        let kind = if self.section.place == Place::File { "sections" } else { "keys" };
        let known: Vec<_> = self.section.names().collect();
        format!("the {kind} here are: {}", known.join(", "))
    }

    /// The inner section that occurs at most once.
    pub fn one(&self, section: &'static Section, report: &mut Report) -> Table<'t> {
        let path = Path::table(section.place, 0);
        let entries = self.entries.and_then(|entries| entries.get(section.name));
        let Some(value) = entries else { return Table::absent(section) };
        report.place(path, value.span());
        match value.get_ref() {
            DeValue::Table(table) => Self::open(Some(table), section, path, report),
            other => {
                let hint = format!("write {} and its keys on the lines below", section.heading);
                report.error(path, what_is_here(other, path, report), hint);
                Table::absent(section)
            }
        }
    }

    /// The inner section that is a list of tables.
    pub fn many(&self, section: &'static Section, report: &mut Report) -> Vec<Table<'t>> {
        let path = |index| match section.place {
            Place::Real => Path::real(self.path.index, index),
            place => Path::table(place, index),
        };
        let hint =
            || format!("write {} and its keys on the lines below, once for each", section.heading);
        let entries = self.entries.and_then(|entries| entries.get(section.name));
        let Some(value) = entries else { return Vec::new() };
        let whole = self.path.key(section.name);
        report.place(whole, value.span());
        let DeValue::Array(items) = value.get_ref() else {
            let found = what_is_here(value.get_ref(), whole, report);
            report.error(whole, found, hint());
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            report.place(path(index), item.span());
            let table = item.get_ref().as_table();
            if table.is_none() {
                let found = what_is_here(item.get_ref(), path(index), report);
                report.error(path(index), found, hint());
            }
            tables.push(Self::open(table, section, path(index), report));
        }
        tables
    }

    /// Whether the file has a key.
    pub fn has(&self, key: &'static Key) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key.name))
    }

    /// The value of a key, if the file has it. A missing key that is required is reported.
    fn value(&self, key: &'static Key, report: &mut Report) -> Option<Value<'t>> {
        let path = self.path.key(key.name);
        let entries = self.entries?;
        let value = entries.get(key.name);
        match value {
            Some(value) => report.place(path, value.span()),
            None if matches!(key.without, Without::Required) => {
                let hint = format!("add a line such as {} = {}", key.name, key.example);
                report.error(path, "this key is missing", hint);
            }
            None => {}
        }
        value
    }

    fn mismatch(path: Path, key: &'static Key, value: Value<'t>, report: &mut Report) {
        let found = what_is_here(value.get_ref(), path, report);
        let example = match key.kind {
            Kind::Boolean | Kind::Word(_) | Kind::PortOrRange => String::new(),
            _ => format!(", such as {}", key.example),
        };
        report.error(path, found, format!("use {}{example}", key.kind.expects()));
    }

    /// An integer in the key's range.
    pub fn integer_if_given<T>(&self, key: &'static Key, report: &mut Report) -> Option<T>
    where
        T: TryFrom<i64>,
    {
        let value = self.value(key, report)?;
        Self::integer_at(self.path.key(key.name), key, value, report)
    }

    /// An integer in the key's range, or its default.
    pub fn integer<T>(&self, key: &'static Key, report: &mut Report) -> T
    where
        T: TryFrom<i64> + Default,
    {
        let default = || match key.without {
            Without::Integer(default) => T::try_from(default).ok(),
            _ => None,
        };
        self.integer_if_given(key, report).or_else(default).unwrap_or_default()
    }

    fn integer_at<T: TryFrom<i64>>(
        path: Path,
        key: &'static Key,
        value: Value<'t>,
        report: &mut Report,
    ) -> Option<T> {
        let (min, max) = match key.kind {
            Kind::Integer { min, max } | Kind::Integers { min, max } => (min, max),
            Kind::PortOrRange => (1, u16::MAX.into()),
            _ => return None,
        };
        let hint = format!("use an integer from {min} to {max}");
        let DeValue::Integer(integer) = value.get_ref() else {
            let bare = value.get_ref().as_str().and_then(|text| text.parse::<i64>().ok());
            let hint = match bare.filter(|bare| (min..=max).contains(bare)) {
                Some(bare) => format!("write {bare} without the quotes"),
                None => hint,
            };
            report.error(path, what_is_here(value.get_ref(), path, report), hint);
            return None;
        };
        let parsed = i64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|parsed| (min..=max).contains(parsed))
            .and_then(|parsed| T::try_from(parsed).ok());
        if parsed.is_none() {
            let found = report.written(path);
            report.error(path, format!("{found} is out of range"), hint);
        }
        parsed
    }

    /// A list of integers in the key's range; items that are wrong are reported and left out.
    pub fn integers<T>(&self, key: &'static Key, report: &mut Report) -> Option<Vec<T>>
    where
        T: TryFrom<i64> + Default,
    {
        let value = self.value(key, report)?;
        let path = self.path.key(key.name);
        let DeValue::Array(items) = value.get_ref() else {
            Self::mismatch(path, key, value, report);
            return None;
        };
        let integers = items.iter().enumerate().map(|(index, item)| {
            report.place(path.item(index), item.span());
            Self::integer_at(path.item(index), key, item, report).unwrap_or_default()
        });
        Some(integers.collect())
    }

    /// A port or what `parse` makes of a range of ports, if the file has the key.
    pub fn ports<T: From<u16>>(
        &self,
        key: &'static Key,
        parse: fn(&str) -> Result<T, Fault>,
        report: &mut Report,
    ) -> Option<T> {
        let value = self.value(key, report)?;
        let path = self.path.key(key.name);
        match value.get_ref() {
            DeValue::String(text) if text.parse::<i64>().is_err() => {
                parse(text).map_err(|fault| report.fault(path, fault)).ok()
            }
            DeValue::Integer(_) | DeValue::String(_) => {
                Self::integer_at::<u16>(path, key, value, report).map(T::from)
            }
            _ => {
                Self::mismatch(path, key, value, report);
                None
            }
        }
    }

    /// `true` or `false`, or the key's default.
    pub fn boolean(&self, key: &'static Key, report: &mut Report) -> bool {
        let default = matches!(key.without, Without::Boolean(true));
        let Some(value) = self.value(key, report) else { return default };
        value.get_ref().as_bool().unwrap_or_else(|| {
            Self::mismatch(self.path.key(key.name), key, value, report);
            default
        })
    }

    /// A boolean, if the file has the key.
    pub fn boolean_if_given(&self, key: &'static Key, report: &mut Report) -> Option<bool> {
        let value = self.value(key, report)?;
        let read = value.get_ref().as_bool();
        if read.is_none() {
            Self::mismatch(self.path.key(key.name), key, value, report);
        }
        read
    }

    /// A string, if the file has the key.
    fn text_if_given(&self, key: &'static Key, report: &mut Report) -> Option<&'t str> {
        let value = self.value(key, report)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            Self::mismatch(self.path.key(key.name), key, value, report);
        }
        text
    }

    /// One word out of few, if the file has the key.
    pub fn word_if_given<W: Word>(&self, key: &'static Key, report: &mut Report) -> Option<W> {
        let text = self.text_if_given(key, report)?;
        meaning(text).map_err(|fault| report.fault(self.path.key(key.name), fault)).ok()
    }

    /// One word out of few, or the key's default.
    pub fn word<W: Word>(&self, key: &'static Key, report: &mut Report) -> W {
        let default = || match key.without {
            Without::Text(text) => meaning(text).ok(),
            _ => None,
        };
        self.word_if_given(key, report).or_else(default).unwrap_or(W::ALL[0].1)
    }

    /// A list of words out of few, if the file has the key; items that are wrong are reported and
    /// left out.
    pub fn words<W: Word>(&self, key: &'static Key, report: &mut Report) -> Option<Vec<W>> {
        let words = self.list(key, meaning::<W>, report)?;
        Some(words.into_iter().flatten().collect())
    }

    /// Looks at a table of strings by names that are free.
    pub fn labels(&self, key: &'static Key, report: &mut Report) {
        let Some(value) = self.value(key, report) else { return };
        let path = self.path.key(key.name);
        let DeValue::Table(labels) = value.get_ref() else {
            return Self::mismatch(path, key, value, report);
        };
        let hint = format!(
            "use at most {LABELS} names of letters, digits, `.`, `_` and `-`, each with a text of \
             at most {LABEL_BYTES} bytes, such as {}",
            key.example
        );
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        for (name, text) in labels {
            let name = name.get_ref().as_ref();
            let is_name = (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed);
            let is_text = text.get_ref().as_str().is_some_and(|text| text.len() <= LABEL_BYTES);
            if !is_name || !is_text {
                let found = format!("the label {} cannot be used", quoted(name));
                return report.error(path, found, hint);
            }
        }
        if labels.len() > LABELS {
            report.error(path, format!("there are {} labels", labels.len()), hint);
        }
    }

    /// A string that `parse` makes something of, if the file has the key.
    pub fn parsed<T>(
        &self,
        key: &'static Key,
        parse: fn(&str) -> Result<T, Fault>,
        report: &mut Report,
    ) -> Option<T> {
        let text = self.text_if_given(key, report)?;
        parse(text).map_err(|fault| report.fault(self.path.key(key.name), fault)).ok()
    }

    /// A string that `parse` makes something of, or the key's default.
    pub fn parsed_or_default<T>(
        &self,
        key: &'static Key,
        parse: fn(&str) -> Result<T, Fault>,
        report: &mut Report,
    ) -> Option<T> {
        let default = || match key.without {
            Without::Text(text) => parse(text).ok(),
            _ => None,
        };
        self.parsed(key, parse, report).or_else(default)
    }

    /// A list of strings that `parse` makes something of, if the file has the key; `None` stands
    /// for an item that is wrong.
    pub fn list<T>(
        &self,
        key: &'static Key,
        parse: fn(&str) -> Result<T, Fault>,
        report: &mut Report,
    ) -> Option<Vec<Option<T>>> {
        let path = self.path.key(key.name);
        let value = self.value(key, report)?;
        let DeValue::Array(items) = value.get_ref() else {
            Self::mismatch(path, key, value, report);
            return None;
        };
        let mut parsed = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.item(index);
            report.place(path, item.span());
            parsed.push(match item.get_ref().as_str() {
                Some(text) => parse(text).map_err(|fault| report.fault(path, fault)).ok(),
                None => {
                    let found = what_is_here(item.get_ref(), path, report);
                    report.error(path, found, format!("use a list such as {}", key.example));
                    None
                }
            });
        }
        Some(parsed)
    }
}

/// What a word means.
fn meaning<W: Word>(text: &str) -> Result<W, Fault> {
    let found = W::ALL.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words = words_of::<W>();
        let near = did_you_mean(text, words.iter().copied());
        let hint = format!("use one of: {}{near}", words.join(", "));
        Fault::new(format!("{} is not {}", quoted(text), W::NOUN), hint)
    })
}

/// `80 is an integer`, of the value at `path`, which has the wrong type.
fn what_is_here(value: &DeValue<'_>, path: Path, report: &Report) -> String {
    let written = report.written(path);
    match value {
        DeValue::Table(_) => "a table stands here".to_owned(),
        DeValue::Array(_) => "a list stands here".to_owned(),
        DeValue::Integer(_) => format!("{written} is an integer"),
        DeValue::Datetime(_) => format!("{written} is a date or time"),
        other => format!("{written} is a {}", other.type_str()),
    }
}
