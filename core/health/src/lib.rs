//! Health checks as state machines: when to look at a real server, what to say to it, what its
//! answer means, and when it counts as up or down.
//!
//! Nothing here has a socket, a clock or a thread. [`Check`] says when a probe is due and draws the
//! conclusion from its [`Finding`]; the modules beside it make the bytes that a probe sends and
//! judge the bytes that come back. Whoever runs them brings time and I/O, so a test runs a year of
//! checks in a moment, and a fuzzer can play the real server.
//!
//! Time is a [`std::time::Duration`] since any moment that does not change.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod check;
pub mod dns;
pub mod expect;
pub mod finding;
pub mod grpc;
pub mod http;
pub mod passive;
pub mod ping;

pub use check::{Check, Output, Past, Rules, State, Transition};
pub use finding::Finding;
