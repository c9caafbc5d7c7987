//! How a real server is chosen.

/// How a real server is chosen for a new session, by IPVS's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// Round robin over the real servers in the order they were configured.
    #[default]
    Rr,
    /// Weighted round robin, interleaved smoothly; exact over each cycle.
    Wrr,
    /// Least sessions.
    Lc,
    /// Least sessions for its weight.
    Wlc,
    /// Shortest expected delay: least sessions for its weight, the new one counted.
    Sed,
    /// Never queue: one without sessions, else as [`Self::Sed`].
    Nq,
    /// Failover: the highest weight that is available.
    Fo,
    /// Overflow: the highest weight whose open sessions have not reached it.
    Ovf,
    /// Locality-based least sessions: one real server for a destination until it is overloaded.
    Lblc,
    /// The same with replication: a set of them for a destination.
    Lblcr,
    /// Hash of the destination over a table filled by weight.
    Dh,
    /// Hash of the client over a table filled by weight.
    Sh,
    /// Maglev's consistent hash of the client (Eisenbud et al., NSDI 2016), weighted.
    Mh,
    /// The one with less sessions for its weight of two chosen at random (Mitzenmacher).
    P2c,
}

impl Scheduling {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Wrr => "wrr",
            Self::Lc => "lc",
            Self::Wlc => "wlc",
            Self::Sed => "sed",
            Self::Nq => "nq",
            Self::Fo => "fo",
            Self::Ovf => "ovf",
            Self::Lblc => "lblc",
            Self::Lblcr => "lblcr",
            Self::Dh => "dh",
            Self::Sh => "sh",
            Self::Mh => "mh",
            Self::P2c => "p2c",
        }
    }
}

/// What of a client `sh` and `mh` hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashKey {
    /// Its address.
    #[default]
    Client,
    /// Its address and port (IPVS: `sh-port`, `mh-port`).
    ClientPort,
}

impl HashKey {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::ClientPort => "client_port",
        }
    }
}
