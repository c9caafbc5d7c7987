//! What the director tells of itself in numbers: the page for Prometheus, and the last hour.
//!
//! The control loop takes a [`Sample`] a second; everything else happens here, on another thread:
//! sums that never fall ([`Ledger`]), the last hour ([`History`]), and the page ([`Meter::page`]),
//! which is written once a sample however many ask for it. No scrape reaches the control loop, let
//! alone a worker.
//!
//! The page is written by ourselves: the counters are the workers', so there is nothing for a
//! metrics library to count. [`families`] is the one list of what there is, from which the
//! documentation comes too. `prometheus-client` writes both formats since 0.26, and would take
//! the place of `page` (about 140 lines) alone. It formats and escapes the labels of each line at
//! each scrape, where `page` copies labels made beforehand, and it writes other bytes: a full stop
//! behind each help text, `1.0` for a whole number in seconds.
#![forbid(unsafe_code)]

mod busy;
pub mod families;
mod history;
mod ledger;
mod meter;
mod networks;
mod page;
mod process;
mod rows;
mod sample;

pub use busy::{RecentWork, Work};
pub use history::{History, SERVICE_STEP_S, SERVICES_KEPT, STEP_S};
pub use ledger::{Account, Counted, Ledger, Owner};
pub use meter::{Identity, Meter};
pub use process::Process;
pub use sample::{Check, Checks, NetworkFigures, Sample, WorkerFigures, WorkerSample};
