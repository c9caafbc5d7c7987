//! Steering: which received frames are the director's and which the kernel's.
//!
//! The decision is an XDP program (`bpf/steer.bpf.c`, compiled when this crate is built and
//! embedded as [`OBJECT`]). [`Attached`] loads and attaches it, or DPDK's AF_XDP driver does;
//! [`Steer`] finds its maps from the interface and keeps them equal to the configuration. Nothing
//! is pinned: a pinned path is not visible inside `ip netns exec`, which mounts a `/sys` of its
//! own.
//!
//! Invariant: the maps' layout here ([`layout`]) is the program's. An interface that has lost its
//! program (it was deleted) makes calls fail, never the process.

#![forbid(unsafe_code)]

mod attached;
mod contents;
mod descriptors;
mod hits;
mod layout;
mod link;
mod loader;
mod seal;
mod stale;
mod steer;
mod table;

pub use attached::Attached;
pub use descriptors::{Held, descriptors_held, link_held};
pub use link::Mode;
pub use loader::prepare;
pub use seal::Seal;
pub use sluice_rules::{
    EndpointMatch, InnerMatch, LocalMatch, Matches, Network, SnatMatch, VxlanMatch,
};
pub use stale::{detach, release_stale};
pub use steer::{Changed, Counters, Steer, bind};

/// The program's object file, for DPDK's AF_XDP driver's `xdp_prog` too.
pub const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The program's name in the kernel.
pub const PROGRAM: &str = "sluice_steer";

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface has no XDP program, or none of ours.
    #[error("interface {index} does not carry the steering program")]
    NotAttached {
        /// The interface's index.
        index: u32,
    },
    /// The program that seals an interface cannot be loaded.
    #[error("the kernel's stack cannot be kept from {interface}: {problem}")]
    Seal {
        /// The interface's name.
        interface: String,
        /// The reason.
        problem: String,
    },
    /// The steering program cannot be loaded.
    #[error("the steering program cannot be loaded: {problem}")]
    Load {
        /// The reason.
        problem: String,
    },
    /// Somebody else's XDP program is on the interface.
    #[error(
        "interface {index} already carries the XDP program {program:?} (id {id}). Detach it with \
         `ip link set dev {name} xdp off` if it is not needed, or use af_packet"
    )]
    Foreign {
        /// The interface's index.
        index: u32,
        /// The interface's name.
        name: String,
        /// The program's name.
        program: String,
        /// The program's number in the kernel.
        id: u32,
    },
    /// Another director runs on the interface.
    #[error("interface {name} is in use by another director (process {pid})")]
    InUse {
        /// The interface's name.
        name: String,
        /// The process that holds the program.
        pid: u32,
    },
    /// The program lacks a map: it is of another version.
    #[error("the steering program of interface {index} has no map {map:?}: another version's?")]
    NoMap {
        /// The interface's index.
        index: u32,
        /// The map.
        map: &'static str,
    },
    /// The kernel refused a request about BPF programs.
    #[error("{context}: {source}")]
    Program {
        /// What was being done.
        context: &'static str,
        /// The reason.
        source: aya::programs::ProgramError,
    },
    /// A map of the program has no room left.
    #[error(
        "the steering program's map {map:?} is full: it takes {limit} entries. What did not fit \
         goes to the kernel; configure fewer services, port ranges, real servers or networks"
    )]
    Full {
        /// The map.
        map: &'static str,
        /// Its entries.
        limit: u32,
    },
    /// Rules of source NAT differ in more ways than the program can tell apart.
    #[error(
        "the steering program tells apart {limit} combinations of destinations and protocols of \
         source NAT rules, and there are more. Give rules the same destinations and protocols"
    )]
    TooManyRules {
        /// How many it tells apart.
        limit: usize,
    },
    /// The kernel refused a change to a map.
    #[error("{context}: {source}")]
    Map {
        /// What was being done.
        context: &'static str,
        /// The reason.
        source: aya::maps::MapError,
    },
    /// The kernel refused a request about an interface.
    #[error("{context}: {source}")]
    Link {
        /// What was being done.
        context: &'static str,
        /// The reason.
        source: std::io::Error,
    },
}

/// What can go wrong returns this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
