//! What can go wrong in a lab. `Debug` prints the same text as `Display`, so that a test that
//! returns one of these as its error is readable.

use std::fmt;

/// A lab, a program in it, or an expectation that failed.
#[derive(thiserror::Error)]
pub enum LabError {
    /// The lab needs something of the machine that is not there.
    #[error("{0}")]
    Machine(String),
    /// A program could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// The command line.
        command: String,
        /// Exit status in words.
        status: String,
        /// Both its outputs.
        output: String,
    },
    /// Something did not come about in time.
    #[error("waited {waited_s} s in vain for {what}{detail}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long, in seconds.
        waited_s: u64,
        /// What was seen instead; may be empty.
        detail: String,
    },
    /// A program said something that was not understood.
    #[error("cannot read {what}: {text}")]
    Unreadable {
        /// Whose words.
        what: String,
        /// The words.
        text: String,
    },
    /// A file of the lab's own directory.
    #[error("{what}: {source}")]
    File {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The director or a peer did the wrong thing.
    #[error("{0}")]
    Wrong(String),
}

impl fmt::Debug for LabError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl LabError {
    /// For `map_err` after a file operation.
    pub fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::File { what, source }
    }
}

/// `Ok` when `holds`, otherwise [`LabError::Wrong`] with the text.
pub fn expect(holds: bool, text: impl FnOnce() -> String) -> Result<(), LabError> {
    if holds { Ok(()) } else { Err(LabError::Wrong(text())) }
}
