//! What was found: where, how bad, and what mends it.

use serde::Serialize;

/// How bad it is; the worst one is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// All is well.
    Ok,
    /// It could not be looked at.
    Unseen,
    /// It works, and may not always, or may do better.
    Warn,
    /// It does not work.
    Fail,
}

impl Mark {
    /// Exit code of a doctor whose worst finding has this mark. What could not be looked at is no
    /// reason to wake anybody.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Unseen => 0,
            Self::Warn => 1,
            Self::Fail => 2,
        }
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The process, its configuration, its files, its rights, the clock.
    Director,
    /// Memory and huge pages.
    Memory,
    /// Processors.
    Cores,
    /// Ports and their interfaces.
    Ports,
    /// Virtual and local addresses.
    Addresses,
    /// Session synchronisation.
    Sync,
    /// The ways to real servers.
    Reals,
}

impl Section {
    /// Its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Director => "Director",
            Self::Memory => "Memory",
            Self::Cores => "Cores",
            Self::Ports => "Ports",
            Self::Addresses => "Addresses",
            Self::Sync => "Session synchronisation",
            Self::Reals => "Real servers",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word for it that stays the same: `rp_filter`, `huge_pages`.
    pub id: &'static str,
    /// What it is about.
    pub section: Section,
    /// How bad it is.
    pub mark: Mark,
    /// What is so, and what comes of it.
    pub text: String,
    /// What to do, in words, where commands do not say it all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
    /// Commands that mend it, for a shell of root's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fix: Vec<String>,
}

impl Finding {
    /// A finding of nothing to mend.
    pub fn new(section: Section, id: &'static str, mark: Mark, text: impl Into<String>) -> Self {
        let (text, advice, fix) = (text.into(), String::new(), Vec::new());
        Self { id, section, mark, text, advice, fix }
    }

    /// With what to do in words.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// With a command that mends it.
    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }
}
