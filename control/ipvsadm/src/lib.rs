//! `ipvsadm`: its grammar, its output, its messages and its exit codes, without the rest.
//!
//! What goes in and what comes out is text that fifteen years of scripts rely on, so it is the same
//! as that of ipvsadm 1.31 to the byte, quirks included; what that program did was observed and is
//! kept in `tests/observed/`, and each line of it is a test. Added to it are the words of DPVS.
//!
//! No I/O here: whoever runs it ([`run`]) hands in a [`World`], which asks the director, resolves
//! names, prints, and reads lines for `-R`. So the same code is tested against answers that no
//! director has given, and every odd figure can be shown.
#![forbid(unsafe_code)]

mod address;
mod build;
mod check;
mod connections;
mod dpvs;
mod figures;
mod gather;
mod help;
mod listing;
mod message;
mod number;
mod options;
mod order;
mod parse;
mod popt;
mod run;
mod save;
mod verb;
mod world;

pub use parse::{Command, Fault, Listing, Locals, parse};
pub use run::{VERSION, run};
pub use save::{Beside, save};
pub use verb::Verb;
pub use world::{Gone, Transport, World};
