//! The desired state: its model, its transactions and its journal.
//! One program, so that it is linked once.
#![forbid(unsafe_code)]

mod journal;
mod model;
mod networks;
mod transactions;
