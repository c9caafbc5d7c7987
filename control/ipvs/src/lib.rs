//! IPVS's view of the director, for the programs that know IPVS.
//!
//! What the kernel's IPVS holds and answers, in types: services, destinations, connections,
//! timeouts, and each command with the errno that the kernel would give. Those who ask are
//! `sluice ipvsadm` and the library that stock programs are run with; the director answers them
//! all by one route, `POST /v1/ipvs`, so that what they see is the same to the byte.
//!
//! Words follow `linux/ip_vs.h`: *destination* is what Sluice calls a real server. Only `call.rs`
//! does I/O.
#![forbid(unsafe_code)]

pub mod abi;
mod answer;
pub mod call;
mod matching;
mod model;
mod request;

pub use answer::{Answer, Errno, Reply};
pub use matching::{Addresses, Match, MatchError, MatchProtocol};
pub use model::{
    Connection, Daemon, Destination, Family, Info, List, LocalAddress, LocalAddresses, Method,
    Protocol, Role, Service, ServiceKey, ServiceSpec, Settings, Stats, Timeouts, Tunnel,
    TunnelKind, flags,
};
pub use request::Request;
