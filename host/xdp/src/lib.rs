//! AF_XDP sockets: packets to and from the queues of a kernel interface, without DPDK's driver.
//!
//! A [`Queue`] is one socket with memory of its own. Its [`Receiver`] has the fill and the receive
//! ring and the frames that are received into, its [`Sender`] the transmit and the completion ring
//! and the other frames; they share nothing that either writes, so there is no lock. Frames are
//! copied to and from the rings, as bytes to and from a [`Landing`]: this crate knows no packet
//! buffers, and no frame of the kernel's is ever held back by a packet that waits somewhere.
//!
//! Which packets come here is an XDP program's business, which gives them to the socket's
//! descriptor ([`Queue::fd`]).
//!
//! A queue can be handed to another process while it receives ([`Heirloom`]).
//!
//! Unsafe: rings and frames are memory shared with the kernel, reached by raw pointers. The kernel
//! is trusted not to write a frame that it has given back, but no index and no descriptor of its is
//! used before it was checked ([`ring`], [`frames`]). Each block names its invariant.

mod adopt;
mod frames;
mod memory;
mod receive;
mod ring;
mod send;
mod socket;

pub use adopt::{Heirloom, Opened};
pub use receive::{Landing, Receiver};
pub use send::Sender;
pub use socket::{Kind, Queue, QueueConfig, Stats};
