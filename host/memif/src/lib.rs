//! memif 2.0: packets to and from another process by shared memory, in either role.
//!
//! A port of the director to VPP, a container's network or any DPDK program. The peer is not
//! trusted: memory that could shrink is refused ([`region`]), whatever it writes into rings is read
//! once and checked ([`transfer`]), its eventfds are never read nor written blockingly
//! ([`event`]), and it may leave at any moment ([`link`]). The handshake is without sockets
//! ([`negotiation`]), frames are plain bytes to and from a [`Landing`]: this crate knows no DPDK.
//!
//! Unsafe: memory that two processes write at any time has no references; raw pointers, volatile
//! reads and atomics are left. Each block names its invariant.

mod copier;
mod counters;
mod ends;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod handshake;
mod hub;
mod ip;
mod link;
mod message;
mod negotiation;
mod offload;
mod region;
mod ring;
mod share;
mod socket;
mod transfer;
mod turnstile;

pub use copier::{Copier, Job};
pub use counters::Stats;
pub use ends::{Receiver, Sender};
#[cfg(feature = "fuzzing")]
pub use fuzzing::memif as fuzz;
pub use ip::Addresses;
pub use link::{Link, LinkConfig, Mode, Role};
pub use message::SECRET_BYTES;
pub use negotiation::{MAX_LOG2, MAX_SHARED_BYTES, MIN_LOG2};
pub use offload::{Buffer, Dock, IN_FLIGHT, OffloadReceiver, OffloadSender};
pub use socket::Address;
pub use transfer::Landing;
