//! Commands, matches and the model of changes that come from outside the file.
//! One program, so that it is linked once.
#![forbid(unsafe_code)]

mod commands;
mod matches;
mod model;
mod networks;
