//! How a real server is chosen.

/// The one list of schedulers: their type, all of them, and their names.
macro_rules! schedulers {
    ($($(#[$about:meta])+ $name:ident => $word:literal,)+) => {
        /// How a real server is chosen for a new session, by IPVS's names.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Scheduling {
            $($(#[$about])+ $name,)+
        }

        impl Scheduling {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name used in configuration and output.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

schedulers! {
    /// Round robin over the real servers in the order they were configured.
    #[default]
    Rr => "rr",
    /// Weighted round robin, interleaved smoothly; exact over each cycle.
    Wrr => "wrr",
    /// Least sessions.
    Lc => "lc",
    /// Least sessions for its weight.
    Wlc => "wlc",
    /// Shortest expected delay: least sessions for its weight, the new one counted.
    Sed => "sed",
    /// Never queue: one without sessions, else as [`Self::Sed`].
    Nq => "nq",
    /// Failover: the highest weight that is available.
    Fo => "fo",
    /// Overflow: the highest weight whose open sessions have not reached it.
    Ovf => "ovf",
    /// Locality-based least sessions: one real server for a destination until it is overloaded.
    Lblc => "lblc",
    /// The same with replication: a set of them for a destination.
    Lblcr => "lblcr",
    /// Hash of the destination over a table filled by weight.
    Dh => "dh",
    /// Hash of the client over a table filled by weight.
    Sh => "sh",
    /// Maglev's consistent hash of the client (Eisenbud et al., NSDI 2016), weighted.
    Mh => "mh",
    /// The one with less sessions for its weight of two chosen at random (Mitzenmacher).
    P2c => "p2c",
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
