//! The desired state: what the director is to do, whoever said so.
//!
//! The configuration file, the API and IPVS's commands are sources to one set of objects
//! ([`State`]): services, checks, pools, rules of source NAT, and the file's other sections. Each
//! object has an owner, the [`Source`] that it came by, and only that source changes it; on top of
//! any real server an operator may put an [`Override`]. Each applied change is an [`Epoch`] with
//! its author, kept in a history that one can go back in.
//!
//! Everything here is a pure function of states, edits and epochs, but for [`disk`], the one file
//! that reads and writes: [`Journal`] makes epochs last. [`Desired`] puts the two together with
//! the checks of `sluice_config`: a change is checked as a whole, compiled, written, and only then
//! in force; on any error nothing has happened.
#![forbid(unsafe_code)]

mod change;
mod desired;
mod diff;
pub mod disk;
mod edit;
mod history;
mod object;
mod record;
mod refusal;
mod state;
mod typed;
mod view;
mod weight;
mod words;

pub use change::Change;
pub use desired::{Applied, Desired, Outcome, Publish, Weight};
pub use disk::{Journal, OpenError};
pub use edit::{Edit, FileContent, Request, What, file_changes, stage};
pub use history::{EPOCHS_KEPT, Epoch, HISTORY_BYTES, History};
pub use object::{
    Author, IPVS, Key, Kind, Object, Override, OverridePatch, RealState, Source, real_key,
};
pub use refusal::{FieldFault, Refusal, RefusalKind};
pub use state::State;
pub use view::{Entry, Placed, View};
