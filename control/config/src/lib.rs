//! The configuration file: its format, its checks, its reference.
//!
//! [`Config::load`] reads a TOML file into plain typed data. Everything that is wrong with the
//! file is reported in one go, each error with file, line, column, key, what was found and what
//! would be right; nothing of a wrong file is ever used. What is legal but probably not meant
//! comes back as warnings beside the configuration ([`Loaded`]).
//!
//! Why a hand-driven walk over TOML's spanned tree and not a derived deserialiser: a derive stops
//! at the first error and cannot say what would be right. The walk is driven by one table of
//! sections and keys (`schema`), from which the allowed values, the suggestions for misspelt keys
//! and the reference ([`reference::markdown`]) all come.
#![forbid(unsafe_code)]

mod address;
mod check;
mod check_model;
mod device;
pub mod document;
mod errors;
mod ipvs;
mod json_schema;
mod model;
mod parse;
mod path;
mod read;
pub mod reference;
mod report;
mod schema;
mod spec;
mod suggest;
mod syntax;
mod tunnel;
mod words;

pub use address::{AddressRange, Mac, Prefix};
pub use check_model::{Check, CheckKind, Initial, Method, Through};
pub use device::{Device, Dma, Memif, MemifMode, MemifRole, PciAddress, XdpDriver};
pub use document::Document;
pub use errors::{ConfigErrors, Diagnostic, Fault, Severity};
pub use ipvs::{Ipvs, MarkDestination};
pub use json_schema::json_schema;
pub use model::{
    Announce, Api, Config, Director, Elephants, HugePages, Icmp, Idle, Ipip, IsolatedNetwork,
    Limits, LogFormat, LogLevel, Metrics, Neighbour, Pool, Port, Route, SessionSync, Snat,
    Spreading, Tcp,
};
pub use parse::Loaded;
pub use sluice_director::spec::{
    AllDown, CheckAt, ClientAddress, HashKey, Hashes, Mapping, Mode, NetworkId, NoSession, Orphans,
    Persistence, Ports, Protocol, RealServer, Refusal, Scheduling, Timeouts, VirtualService,
};
pub use sluice_health::dns::Type as Question;
pub use words::schedulers;
