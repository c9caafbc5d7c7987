//! Session synchronisation between directors: each tells the others of its sessions, so that any of
//! them can take over the traffic of another.
//!
//! Nothing here has a socket, a clock or a thread. [`Endpoint`] is one end of the protocol with all
//! its peers: whoever runs it passes datagrams and time in, and sends what
//! [`Endpoint::poll_transmit`] gives. Time is a [`std::time::Duration`] since any moment that does
//! not change, and random bytes come with the [`Settings`].
//!
//! # On the wire
//!
//! A datagram is a header in clear, which is authenticated too, and a payload sealed with
//! AES-256-GCM:
//!
//! | bytes | |
//! |---|---|
//! | 2 | magic |
//! | 1 | version |
//! | 4 | id of the key: the first bytes of HMAC-SHA256(key, "id") |
//! | 16 | start id of the sender, random for each start |
//! | 8 | counter, which is the nonce |
//!
//! The AEAD key is HKDF-SHA256 of the shared key with the start id as salt. The highest bit of the
//! counter is set in data, where the rest is the sequence number: a datagram that is sent again is
//! the very same bytes, and duplicates are known before anything is decrypted. Hello and
//! acknowledgement count up from 1 and are checked against a replay window.
//!
//! A start of a peer is accepted when its Hello echoes a challenge that this end made for that peer
//! and has not used before. Recordings of former starts therefore never get in. Hello and
//! acknowledgement name the start that they are for, so they cannot be passed on to another
//! director that has the same keys.
//!
//! A Hello and data say what the time was by the clock of their sender when they were made. The
//! shortest that any took lately shows how far the clocks are apart, and how old others are: so
//! much is added to the time that their sessions were idle.
//!
//! Data is one stream for all peers, numbered without gaps, delivered in order, and held until all
//! peers have it or the window is overrun. What a peer lost for good it learns from the number of
//! the first datagram that is still held, and asks for everything anew: a pull.
//!
//! As the datagrams of the stream are the same for all, several peers can have one by multicast
//! ([`Settings::group`]). A group that does not carry them is noticed by what is not acknowledged:
//! such a peer gets its own for a while.
#![forbid(unsafe_code)]

mod clock;
mod codec;
mod endpoint;
mod incoming;
mod message;
mod outgoing;
mod peer;
mod progress;
mod pull;
pub mod record;
pub mod records;
mod replay;
mod seal;
mod settings;
mod status;
#[cfg(test)]
mod tests;

pub use endpoint::{Destination, Endpoint, Event};
pub use settings::{Settings, SettingsError};
pub use status::{Counters, PeerStatus, Standing, Status};
