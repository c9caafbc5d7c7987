//! Why a replay stopped.

use std::io;
use std::path::PathBuf;

use sluice_config::ConfigErrors;
use sluice_director::plan::CompileError;

/// Why a replay stopped. Each names the file, and the packet where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The configuration cannot be compiled.
    #[error("the configuration cannot be used: {0}")]
    Compile(#[from] CompileError),
    /// An input names a port that the configuration has not.
    #[error("--in {port}=…: the configuration has no port `{port}`; it has: {known}")]
    UnknownPort {
        /// What was named.
        port: String,
        /// The ports that there are.
        known: String,
    },
    /// An input is not `PORT=FILE`.
    #[error("--in {0}: expected PORT=FILE, like front=front.pcap")]
    BadInput(String),
    /// A file or folder cannot be opened, read, made or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file is not a capture.
    #[error("{path}: {why}")]
    NotACapture {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A packet cannot be read or its answer not be written.
    #[error("{path}: packet {number}: {why}")]
    Packet {
        /// The capture.
        path: PathBuf,
        /// Number of the packet in it, from 1.
        number: u64,
        /// What is wrong with it.
        why: String,
    },
    /// An output would overwrite an input.
    #[error(
        "{path}: is an input, and the output of port `{port}` would overwrite it; \
             choose another --out-dir"
    )]
    WouldOverwrite {
        /// The file.
        path: PathBuf,
        /// The port whose output it would be.
        port: String,
    },
    /// The session table does not fit in memory.
    #[error("limits.sessions: {0}")]
    Memory(String),
}

impl ReplayError {
    /// For `map_err`: an operating system's error about a file.
    pub(super) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::File { path, source }
    }
}
