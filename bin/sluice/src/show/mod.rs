//! Answers as an operator reads them.
//!
//! Each function makes text of plain data and does nothing else, so that a test can look at the
//! text. Styles are in the text as escape sequences; [`crate::output`] takes them out where they
//! are not wanted.

mod balance;
mod desired;
mod doctor;
mod figures;
mod ha;
mod health;
mod load;
mod networks;
mod reals;
mod reasons;
mod replay;
mod rules;
mod spread;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod trace;
mod wires;

pub(crate) use balance::{endpoint, real_port};
pub use balance::{services, sessions};
pub use desired::{changed, config, diff, epoch, history};
pub use doctor::{doctor, fix_script};
pub(crate) use figures::{count, memory, percent, percent_of, span};
pub use ha::{by_addresses, ha};
pub use health::{event, events, health};
pub(crate) use load::difference;
pub use load::{elephants, stages};
pub use networks::networks;
pub use reals::{reals, reals_json};
pub use reasons::drops;
pub use replay::replay;
pub use rules::ports_rules;
pub use spread::spread;
pub(crate) use status::file_of;
pub use status::status;
pub(crate) use table::{broken, shortened};
pub use trace::{trace, trace_remark};
pub use wires::ports;

use anstyle::{AnsiColor, Style};

/// Titles of columns.
const TITLE: Style = Style::new().bold();
/// What is as it should not be.
const BAD: Style = AnsiColor::Red.on_default().bold();
/// What somebody may want to look at.
const NOTE: Style = AnsiColor::Yellow.on_default();

/// What is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The answer.
    pub text: String,
    /// A remark on it, for a person.
    pub remark: Option<String>,
}

impl Shown {
    /// An answer without a remark.
    pub fn new(text: String) -> Self {
        Self { text, remark: None }
    }
}

/// A style's text.
fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
