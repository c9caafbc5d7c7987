//! How a real server is chosen.

/// The registry of schedulers: a line each, with its name, what it chooses, what it hashes, and
/// the type in `schedule` that does it. Whoever needs a list of them gets it here: configuration,
/// help, schema, API, simulation, fuzzing, benchmarks. A new one is its file there, its line here,
/// a golden row and a paragraph in `docs/schedulers.md`.
macro_rules! schedulers {
    ($of_each:ident) => {
        $of_each! {
            Rr "rr" "in turn, all alike", hashes Nothing, rr::Rr;
            Wrr "wrr" "in turn by weight, interleaved", hashes Nothing, wrr::Wrr;
            Lc "lc" "the fewest sessions", hashes Nothing, lc::Lc;
            Wlc "wlc" "the fewest sessions per weight", hashes Nothing, lc::Wlc;
            Sed "sed" "the same, counting the new session", hashes Nothing, lc::Sed;
            Nq "nq" "one without sessions, otherwise as `sed`", hashes Nothing, lc::Nq;
            Fo "fo" "the highest weight that is available", hashes Nothing, top::Fo;
            Ovf "ovf" "the highest weight with fewer open sessions than its weight",
                hashes Nothing, top::Ovf;
            Lblc "lblc" "the same real server for a VIP until it is overloaded",
                hashes Nothing, local::Lblc;
            Lblcr "lblcr" "the same few real servers for a VIP until they are overloaded",
                hashes Nothing, local::Lblcr;
            Dh "dh" "by a hash of the VIP, over a table filled by weight",
                hashes Destination, hashed::Hashed;
            Sh "sh" "by a hash of the client, over a table filled by weight",
                hashes Client, hashed::Hashed;
            Mh "mh" "by Maglev's consistent hash of the client; few clients move when a real \
server comes or goes", hashes Client, hashed::Hashed;
            P2c "p2c" "of two chosen at random, the one with fewer sessions per weight",
                hashes Nothing, p2c::P2c;
        }
    };
}
pub(crate) use schedulers;

/// What a scheduler chooses by a hash of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashes {
    /// It looks at no address.
    Nothing,
    /// The client: its address, or that and its port ([`HashKey`]).
    Client,
    /// The destination, which is the VIP.
    Destination,
}

macro_rules! names {
    ($($name:ident $word:literal $about:literal, hashes $hashes:ident, $kept:ty;)+) => {
        /// How a real server is chosen for a new session, by IPVS's names.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Scheduling {
            #[default]
            $(#[doc = $about] $name,)+
        }

        impl Scheduling {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What they are for, and what each chooses, as text.
            pub const ABOUT: &str = concat!(
                "The scheduler, which chooses the real server for a new session; names are those \
                 of IPVS (docs/schedulers.md).",
                $(" `", $word, "`: ", $about, "."),+
            );

            /// The name used in configuration and output.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            /// What it hashes.
            pub const fn hashes(self) -> Hashes {
                match self {
                    $(Self::$name => Hashes::$hashes,)+
                }
            }
        }
    };
}
schedulers!(names);

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
