//! Steering rules: what is taken from a port, as one model for all back-ends.
//!
//! [`Matches`] says what a configuration wants of a port. The XDP program's maps are made of it as
//! a whole. [`rules_of`] makes [`Rule`]s of it: an ordered list without duplicates, each with an
//! identity that only depends on what it says, so two lists have a [`Diff`]. [`compile`] makes the
//! NIC's [`Flow`]s of a rule, or says why a driver cannot have it ([`Limits`]), and a [`RuleTable`]
//! keeps a NIC's table equal to a list, by steps that never take away a rule that stays.
//!
//! Nothing here has a device: a [`FlowPort`] comes from outside, in tests a made-up one.
#![forbid(unsafe_code)]

mod blocks;
mod classify;
mod flow;
mod limits;
mod matches;
mod rule;
mod table;

pub use blocks::blocks;
pub use classify::{Carries, Packet, classify};
pub use flow::{Addresses, Endpoint, Flow, Target, compile};
pub use limits::{Capability, FieldSets, Limits, Masks, SpreadBy};
pub use matches::{EndpointMatch, InnerMatch, LocalMatch, Matches, Network, SnatMatch, VxlanMatch};
pub use rule::{Diff, Kind, Owned, Ports, Protocol, Rule, diff, rules_of};
pub use table::{FlowPort, Placed, Refused, RefusedKind, Row, RuleTable, Totals};
