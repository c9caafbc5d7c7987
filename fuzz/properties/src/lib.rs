//! What must hold for any input: the bodies of the fuzz targets.
//!
//! Each function takes bytes, makes of them whatever they can be read as, and panics when a
//! property does not hold. They live outside of the fuzzer's own crate so that `cargo test` can
//! play the committed corpora ([`corpus`]) on every run, with no fuzzer about.
#![forbid(unsafe_code)]

mod bytes;
mod config;
pub mod corpus;
mod health;
mod import;
mod ipvs;
pub mod seeds;
mod table;
mod turn;
mod wire;

pub use config::config;
pub use health::health;
pub use import::import;
pub use ipvs::ipvs;
pub use sluice_memif::fuzz as memif;
pub use table::table;
pub use turn::{Reached, reach, turn};
pub use wire::wire;

/// A property: panics when the bytes show that it does not hold.
pub type Property = fn(&[u8]);

/// Every property by the name of its fuzz target and corpus.
pub const ALL: [(&str, Property); 8] = [
    ("turn", turn),
    ("wire", wire),
    ("table", table),
    ("config", config),
    ("health", health),
    ("import", import),
    ("ipvs", ipvs),
    ("memif", memif),
];
