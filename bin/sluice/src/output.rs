//! Where text goes: answers to standard output, remarks and complaints to standard error, so that
//! an answer in a pipe is an answer and nothing else.
//!
//! Colours reach terminals only, and only if `NO_COLOR` is not set, unless `--color` says so.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::show::Shown;

/// The turn of `--watch` that has not begun to show anything yet: its title.
static TURN: Mutex<Option<String>> = Mutex::new(None);
/// Whether somebody still reads standard output.
static READ: AtomicBool = AtomicBool::new(true);
/// Lines of a screen that its title and a remark take.
const OTHER_LINES: usize = 4;

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

    /// What is written next takes the screen's place, below a title; elsewhere than on a terminal
    /// it simply follows.
    pub fn begin_turn(title: &str) {
        let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = io::stdout().is_terminal().then(|| title.to_owned());
    }

    /// Whether somebody still reads standard output.
    pub fn is_read() -> bool {
        READ.load(Ordering::Relaxed)
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
        let turned = turn();
        let text = match turned {
            true => first_lines(&shown.text),
            false => shown.text.as_str(),
        };
        let mut stdout = anstream::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        drop(stdout);
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                READ.store(false, Ordering::Relaxed);
                return Ok(false);
            }
            other => other?,
        }
        if let Some(remark) = &shown.remark {
            self::remark(remark);
        }
        Ok(true)
    }
}

/// Clears the screen for a turn that begins; returns whether there is one.
fn turn() -> bool {
    let title = TURN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(title) = title else { return false };
    let mut stdout = io::stdout();
    // To the first column of the first line, and erase all below (ECMA-48: CUP, ED). Nobody is
    // left to tell if this fails.
    let _ = write!(stdout, "\u{1b}[H\u{1b}[J{title}\n\n").and_then(|()| stdout.flush());
    true
}

/// As much of a text as fits on the screen.
fn first_lines(text: &str) -> &str {
    let Some((_, height)) = terminal_size::terminal_size() else { return text };
    let room = usize::from(height.0).saturating_sub(OTHER_LINES).max(1);
    let end = text.match_indices('\n').nth(room - 1).map(|(at, _)| at + 1);
    end.map_or(text, |end| &text[..end])
}

/// Prints a remark as it is.
pub fn remark(text: &str) {
    // Nobody is left to tell that this failed.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints what went wrong.
pub fn complain(text: &str) {
    turn();
    remark(&format!("sluice: {text}"));
}
