//! Where text goes: answers to standard output, remarks and complaints to standard error, so that
//! an answer in a pipe is an answer and nothing else.
//!
//! Colours reach terminals only, and only if `NO_COLOR` is not set.

use std::io::{self, IsTerminal, Write};

use crate::show::Shown;

/// Standard output and standard error.
pub struct Output;

impl Output {
    /// Columns of the terminal; `None` when standard output is no terminal and lines may be as
    /// long as they like.
    pub fn width() -> Option<usize> {
        let is_terminal = io::stdout().is_terminal();
        let (width, _) = is_terminal.then(terminal_size::terminal_size).flatten()?;
        Some(usize::from(width.0))
    }

    /// Prints an answer.
    ///
    /// # Errors
    /// When it cannot be written, unless nobody reads it.
    pub fn write(shown: &Shown) -> io::Result<()> {
        Self::pass(shown).map(drop)
    }

    /// As [`Self::write`]; says whether anybody reads it.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn pass(shown: &Shown) -> io::Result<bool> {
        let mut stdout = anstream::stdout().lock();
        let written = stdout.write_all(shown.text.as_bytes()).and_then(|()| stdout.flush());
        drop(stdout);
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            other => other?,
        }
        if let Some(remark) = &shown.remark {
            // Nobody is left to tell that this failed.
            let _ = writeln!(anstream::stderr(), "{remark}");
        }
        Ok(true)
    }
}

/// Prints a remark as it is.
pub fn remark(text: &str) {
    // Nobody is left to tell that this failed.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints what went wrong.
pub fn complain(text: &str) {
    // Nobody is left to tell that this failed.
    let _ = writeln!(anstream::stderr(), "sluice: {text}");
}
