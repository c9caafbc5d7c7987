//! What can go wrong with the socket and behind it, in words for an operator.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// Why there is no server, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A director answers on the socket already.
    #[error(
        "another director listens on {}; stop it, or give this one a control_socket of its own",
        .0.display()
    )]
    AnotherDirector(PathBuf),
    /// There is something else in the socket's place.
    #[error(
        "{} exists and is not a socket; remove it, or name another control_socket",
        .0.display()
    )]
    NotASocket(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// Path of the socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another director has been starting beside this one for too long.
    #[error(
        "cannot listen on {}: its folder stays locked, by a director that is just starting?",
        .0.display()
    )]
    Locked(PathBuf),
    /// An address of the network cannot be listened on.
    #[error(
        "cannot listen on {at}: {source}; is it an address of this machine, and the port free?"
    )]
    Bind {
        /// The address.
        at: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A file that the API over the network needs, or a client, will not do.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What names a director over the network does not.
    #[error("{url:?}: {reason}; use https://HOST:PORT")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nobody at an address.
    #[error("no director answers at {url}: {reason}; is `listen` of [api] configured there?")]
    Unreachable {
        /// Its URL.
        url: String,
        /// What the system or TLS said.
        reason: String,
    },
    /// There is no socket.
    #[error(
        "no director listens on {}: is sluiced running? start it with `sluiced --config FILE`, \
         or name its socket with --socket",
        .0.display()
    )]
    Absent(PathBuf),
    /// There is a socket and nobody behind it.
    #[error(
        "no director listens on {}: the one that made it was killed; start it again with \
         `sluiced --config FILE`, or name another socket with --socket",
        .0.display()
    )]
    Dead(PathBuf),
    /// The socket may not be used.
    #[error(
        "permission denied on {}: run as root, or as a member of the socket's group",
        .0.display()
    )]
    Denied(PathBuf),
    /// No answer in time.
    #[error("the director on {} did not answer within {after_s} s", path.display())]
    Timeout {
        /// Path of the socket.
        path: PathBuf,
        /// How long it had.
        after_s: f64,
    },
    /// The conversation broke.
    #[error("the connection to the director on {} broke: {reason}", path.display())]
    Broken {
        /// Path of the socket.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The director says no.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// What came back is no answer of a director of this version.
    #[error(
        "what answers on {} is not a director that this program understands: {reason}",
        path.display()
    )]
    Strange {
        /// Path of the socket.
        path: PathBuf,
        /// What is strange about it.
        reason: String,
    },
}

impl ApiError {
    /// A file that will not do.
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), reason: reason.into() }
    }
}
