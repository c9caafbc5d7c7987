//! The REST interface as its clients see it.
//! One program, so that it is linked once.
#![forbid(unsafe_code)]

mod api;
mod config;
mod events;
mod ipvs;
mod look;
mod measures;
mod network;
mod networks;
mod origin;
mod repeat;
mod rules;
mod sessions;
mod socket;
