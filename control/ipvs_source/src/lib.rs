//! What IPVS's commands mean for the desired state.
//!
//! `sluice_ipvs` has the words; this has their meaning, as pure functions: a state and a request
//! give edits ([`edits`]), or the errno that the kernel would give. What is there, whoever owns
//! it, is seen as IPVS would have it ([`services`]); figures are not known here.
//!
//! Why a crate beside `sluice_ipvs`: that one is linked into programs that are not ours, and knows
//! neither the configuration nor the state.
#![forbid(unsafe_code)]

mod interpret;
mod listed;
mod local;
mod matches;
mod name;
mod refused;
mod seen;
mod tunnel;
mod whole;
mod write;

pub use interpret::edits;
pub use listed::lists;
pub use local::local_addresses;
pub use matches::matches;
pub use name::service_name;
pub use refused::Refused;
pub use seen::{find, service, services};
pub use whole::daemons;
