//! Changes in words: a line for each thing that changes, and one for all.

use serde_json::Value;

use crate::change::Change;
use crate::object::{Author, Key, Kind, Object, Override};

/// Longest text of one value.
const VALUE_CHARS: usize = 60;

impl Change {
    /// What it changes, in one line or a few: `service "web": scheduler: "rr" -> "wlc"`.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Object { key, before, after } => object(key, before.as_deref(), after.as_deref()),
            Self::Real { service, real, before, after, .. } => {
                let at = format!("service {service:?}: real {real}");
                match (before, after) {
                    (Some(before), Some(after)) => keys(&at, before, after),
                    (None, Some(after)) => vec![format!("{at}: added {}", short(after))],
                    (_, None) => vec![format!("{at}: removed")],
                }
            }
            Self::Override { service, real, before, after } => {
                let at = format!("service {service:?}: real {real}");
                vec![format!("{at}: override {} -> {}", said(*before), said(*after))]
            }
            Self::File { .. } => Vec::new(),
        }
    }
}

fn object(key: &Key, before: Option<&Object>, after: Option<&Object>) -> Vec<String> {
    match (before, after) {
        (Some(before), Some(after)) => {
            let mut lines = keys(&key.to_string(), &before.value, &after.value);
            if before.owner.source != after.owner.source {
                lines.push(format!("{key}: owner {} -> {}", before.owner, after.owner));
            }
            if lines.is_empty() {
                lines.push(format!("{key}: moved"));
            }
            lines
        }
        (None, Some(_)) => vec![format!("{key}: added")],
        (_, None) => vec![format!("{key}: removed")],
    }
}

/// A line for each key that differs.
fn keys(at: &str, before: &Value, after: &Value) -> Vec<String> {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return vec![format!("{at}: changed")];
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let all = new.keys().chain(gone).filter(|key| old.get(*key) != new.get(*key));
    let text = |value: Option<&Value>| value.map_or_else(|| "(none)".to_owned(), short);
    all.map(|key| format!("{at}: {key}: {} -> {}", text(old.get(key)), text(new.get(key))))
        .collect()
}

fn said(over: Option<Override>) -> String {
    let Some(over) = over else { return "(none)".to_owned() };
    let weight = over.weight.map(|weight| format!("weight {weight}"));
    let state = over.state.map(|state| state.name().to_owned());
    weight.into_iter().chain(state).collect::<Vec<_>>().join(", ")
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// What all steps together are, in one line.
pub(crate) fn summary(author: &Author, changes: &[Change]) -> String {
    // That a file was read is a step too, but has no line: its author says it.
    let mut told = changes.iter().filter(|change| !matches!(change, Change::File { .. }));
    if let (Some(only), None) = (told.next(), told.next())
        && let [line] = &only.lines()[..]
    {
        return line.clone();
    }
    let counted = Kind::NAMED.into_iter().chain([Kind::Section]).filter_map(|kind| {
        let of = |wanted: fn(bool, bool) -> bool| {
            let fits = |change: &&Change| match change {
                Change::Object { key, before, after } => {
                    key.kind == kind && wanted(before.is_some(), after.is_some())
                }
                _ => false,
            };
            changes.iter().filter(fits).count()
        };
        let parts = [
            (of(|before, after| !before && after), "added"),
            (of(|before, after| before && after), "changed"),
            (of(|before, after| before && !after), "removed"),
        ];
        let told = parts.iter().filter(|(count, _)| *count > 0);
        let told: Vec<_> = told.map(|(count, word)| format!("{count} {word}")).collect();
        (!told.is_empty()).then(|| format!("{}s: {}", kind.name(), told.join(", ")))
    });
    let mut parts: Vec<String> = counted.collect();
    let count = |fits: fn(&Change) -> bool| changes.iter().filter(|it| fits(it)).count();
    for (count, what) in [
        (count(|change| matches!(change, Change::Real { .. })), "real servers"),
        (count(|change| matches!(change, Change::Override { .. })), "overrides"),
    ] {
        if count > 0 {
            parts.push(format!("{what}: {count} changed"));
        }
    }
    match parts.is_empty() {
        true => format!("the running state is that of the {author}"),
        false => parts.join("; "),
    }
}
