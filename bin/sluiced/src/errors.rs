//! Why the daemon cannot start or go on.

/// An error of the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong; the text has its own form.
    #[error("{0}")]
    Config(#[from] sluice_config::ConfigErrors),
    /// The configuration cannot be compiled.
    #[error("{0}")]
    Compile(#[from] sluice_director::plan::CompileError),
    /// The packet memory or a port cannot be had.
    #[error("{0}")]
    Dpdk(#[from] sluice_dpdk::Error),
    /// The session tables cannot be had.
    #[error("worker {worker}: {source}")]
    Tables {
        /// The worker whose tables they are.
        worker: u16,
        /// What was missing.
        source: sluice_director::path::RegionError,
    },
    /// The steering program does not do as told.
    #[error("port {port:?}: {source}")]
    Steer {
        /// The port.
        port: String,
        /// What happened.
        source: Box<sluice_steer::Error>,
    },
    /// The kernel's tables cannot be read.
    #[error("{0}")]
    Linux(#[from] sluice_linux::Error),
    /// What was kept cannot be used.
    #[error("{0}")]
    State(#[from] sluice_state::OpenError),
    /// The desired state is wrong.
    #[error("the desired state is refused: {0}")]
    Refused(#[from] sluice_state::Refusal),
    /// The operator's socket cannot be served.
    #[error("{0}")]
    Api(#[from] sluice_api::ApiError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Sessions cannot be synchronised from there.
    #[error("session synchronisation: {listen}: {source}; [sync] needs an address of this machine")]
    SyncSocket {
        /// The address and port.
        listen: std::net::SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The multicast group of session synchronisation cannot be joined.
    #[error("session synchronisation: cannot join {group}: {source}")]
    SyncGroup {
        /// The group and its port.
        group: std::net::SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A shared secret cannot be used.
    #[error("session synchronisation: {file}: {reason}")]
    SyncKey {
        /// Its file.
        file: std::path::PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Sessions cannot be synchronised with such settings.
    #[error("session synchronisation: {0}")]
    Sync(#[from] sluice_sync::SettingsError),
    /// A running director cannot be followed.
    #[error("{0}")]
    TakeOver(String),
    /// A worker ended by itself.
    #[error("worker {0} ended unexpectedly")]
    WorkerEnded(u16),
}

/// Names what was tried when a system call fails.
pub fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what, source }
}
