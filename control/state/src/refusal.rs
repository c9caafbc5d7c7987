//! Why a change is refused: in words for whoever asked, with the field that is to blame.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_config::{ConfigErrors, Diagnostic};

use crate::object::{Author, Key};

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// What was asked for is wrong.
    Invalid,
    /// It is about something that is not there.
    NotFound,
    /// It is about something that belongs to another source.
    Conflict,
    /// Something else was changed in the meantime.
    Stale,
    /// It could not be written down.
    Storage,
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldFault {
    /// Where in the request's body it is (RFC 6901); empty for the whole of it.
    pub pointer: String,
    /// What was found.
    pub detail: String,
    /// What would be right.
    pub hint: String,
}

/// Why a change was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// What happened, and what to do about it.
    pub detail: String,
    /// Fields that are wrong.
    pub faults: Vec<FieldFault>,
    /// Who owns what was to be changed.
    pub owner: Option<Author>,
    /// The epoch that is in force.
    pub epoch: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), faults: Vec::new(), owner: None, epoch: None }
    }

    pub(crate) fn not_found(key: &Key) -> Self {
        let detail = format!("there is no {key}; `sluice config show` tells what there is");
        Self::new(RefusalKind::NotFound, detail)
    }

    /// `what` is owned by somebody else.
    pub fn owned(what: &str, owner: &Author) -> Self {
        let detail = format!("{what} belongs to {owner}: {}", owner.source.advice());
        Self { owner: Some(owner.clone()), ..Self::new(RefusalKind::Conflict, detail) }
    }

    pub(crate) fn stale(wanted: u64, epoch: u64) -> Self {
        let detail = format!(
            "epoch {epoch} is in force and not {wanted}: somebody made a change in between; read \
             the configuration again and repeat the change"
        );
        Self { epoch: Some(epoch), ..Self::new(RefusalKind::Stale, detail) }
    }

    /// One wrong field.
    pub(crate) fn field(pointer: String, detail: String, hint: impl Into<String>) -> Self {
        Self::invalid(vec![FieldFault { pointer, detail, hint: hint.into() }])
    }

    /// Wrong fields, at least one.
    pub(crate) fn invalid(faults: Vec<FieldFault>) -> Self {
        let told = faults.iter().take(3).map(|fault| {
            let at = match fault.pointer.is_empty() {
                true => String::new(),
                false => format!("{}: ", fault.pointer),
            };
            format!("{at}{}; {}", fault.detail, fault.hint)
        });
        let mut detail = told.collect::<Vec<_>>().join("\n");
        if faults.len() > 3 {
            detail += &format!("\nand {} more", faults.len() - 3);
        }
        Self { faults, ..Self::new(RefusalKind::Invalid, detail) }
    }

    /// A file that is wrong, in the words for its reader: with lines and columns.
    pub fn of_file(errors: &ConfigErrors) -> Self {
        Self::new(RefusalKind::Invalid, errors.to_string())
    }

    /// What a configuration's checks found; `pointer` says where in the request a diagnostic's
    /// key is.
    pub(crate) fn of_errors(
        errors: &ConfigErrors,
        pointer: impl Fn(&Diagnostic) -> Option<String>,
    ) -> Self {
        let faults = errors.diagnostics().iter().map(|found| {
            let at = pointer(found);
            let detail = match (&at, &found.subject) {
                // Of what is not in the request, its name says what it is.
                (None, Some(subject)) => format!("{subject}: {}", found.message),
                _ => found.message.clone(),
            };
            let pointer = at.unwrap_or_default();
            FieldFault { pointer, detail, hint: found.hint.clone() }
        });
        let faults: Vec<_> = faults.collect();
        match faults.is_empty() {
            true => Self::new(RefusalKind::Invalid, errors.to_string()),
            false => Self::invalid(faults),
        }
    }
}

/// A key as diagnostics have it, such as `service[2].real[0].port`, as a JSON pointer.
pub(crate) fn pointer_of(key: &str) -> String {
    if key.is_empty() {
        return String::new();
    }
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/{}", key.replace('[', "/").replace(']', "").replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_pointers() {
        assert_eq!(pointer_of("service[2].real[0].port"), "/service/2/real/0/port");
        assert_eq!(pointer_of("port"), "/port");
        assert_eq!(pointer_of(""), "");
    }
}
