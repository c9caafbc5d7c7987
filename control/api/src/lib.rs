//! The director's API: what it shows ([`model`]), the server inside the daemon ([`Server`]) and
//! the client that the operator's command uses ([`Client`]).
//!
//! HTTP/1.1 with JSON over a Unix socket. The server runs on a thread of its own and knows
//! nothing of workers: it turns each request into a [`Call`] with a place for the answer and hands
//! it to a function that the daemon gave. Nothing that happens here can delay a packet.
#![forbid(unsafe_code)]

mod access;
mod call;
mod client;
mod engine;
mod error;
mod events;
mod follow;
mod look;
pub mod model;
mod network;
mod openapi;
mod origin;
mod paced;
mod places;
mod problem;
mod query;
mod remote;
mod repeat;
mod routes;
mod server;
mod socket;
mod tls;
mod tokens;

pub use call::{Call, Exposition, Reply};
pub use client::{Change, Client, Resource, Verb};
pub use error::ApiError;
pub use events::{EventLog, EventQuery};
pub use follow::Followed;
pub use look::{LookRefusal, Pieces};
pub use network::{Network, Prepared, check_files};
pub use openapi::openapi;
pub use problem::{Blame, Problem, WrongChange};
pub use query::{Cursor, Endpoint, SessionQuery, WrongValue, parse_limit};
pub use remote::Remote;
pub use server::{Options, Server};
pub use socket::group_id;
pub use tokens::{Holder, NewToken, Role, Tokens, check_name};

/// Where a director listens unless its configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/sluice/sluice.sock";
