//! What an endpoint shows of itself.

use std::time::Duration;

/// An endpoint and its peers at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it has what its peers had when it started, or had nobody to ask.
    pub synchronised: bool,
    /// The peer that it is asking for everything.
    pub pulling_from: Option<usize>,
    /// Records that came from that peer during the pull, or during the last one.
    pub pull_records: u64,
    /// By index.
    pub peers: Vec<PeerStatus>,
    /// Since the start.
    pub counters: Counters,
}

/// What a director is at a moment, as it tells its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Virtual addresses of its services that its machine has.
    pub held: u32,
    /// Virtual addresses of its services.
    pub addresses: u32,
    /// Whether another director is to take over.
    pub draining: bool,
    /// Its sessions.
    pub sessions: u64,
}

/// A peer at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Whether it is heard, and hears this end.
    pub up: bool,
    /// Its name; empty before it was heard.
    pub name: String,
    /// Whether it says that it is synchronised.
    pub synchronised: bool,
    /// What it is, as far as it says.
    pub standing: Option<Standing>,
    /// Of its configuration.
    pub fingerprint: u64,
    /// Whether it acknowledged nothing for so long that it is not waited for.
    pub behind: bool,
    /// Datagrams of this end that it has not acknowledged.
    pub unacknowledged: u64,
    /// Age of the oldest of them.
    pub lag: Duration,
    /// Id of the key that is used towards it.
    pub key: u32,
    /// For how long it has been up, or has not.
    pub since: Duration,
}

/// What has been counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received, with those rejected.
    pub received: u64,
    /// Records given to the stream, once however many peers there are.
    pub records_sent: u64,
    /// Records delivered.
    pub records_received: u64,
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of datagrams received, with those rejected.
    pub bytes_received: u64,
    /// Datagrams sent to the group, each of them once.
    pub to_group: u64,
    /// Datagrams sent again.
    pub repaired: u64,
    /// Datagrams of peers that could not be had any more.
    pub lost: u64,
    /// How often a peer was given up waiting for.
    pub behind: u64,
    /// Records that cannot be written: mode 0, or a rule with too long a name.
    pub unsendable: u64,
    /// Rejected: the key is not known.
    pub rejected_key: u64,
    /// Rejected: not authentic.
    pub rejected_tag: u64,
    /// Rejected: received before, or too old to know. Duplicates that the network made and
    /// datagrams that were sent again for nothing are among them.
    pub rejected_replay: u64,
    /// Rejected: authentic, or too short to be, but not understood.
    pub rejected_malformed: u64,
    /// Rejected: not of this protocol or version.
    pub rejected_version: u64,
    /// Rejected: from a start of a peer that is not its current one.
    pub rejected_start: u64,
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    Key,
    Tag,
    Replay,
    Malformed,
    Version,
    Start,
}

impl Counters {
    pub(crate) const fn reject(&mut self, reject: Reject) {
        let counter = match reject {
            Reject::Key => &mut self.rejected_key,
            Reject::Tag => &mut self.rejected_tag,
            Reject::Replay => &mut self.rejected_replay,
            Reject::Malformed => &mut self.rejected_malformed,
            Reject::Version => &mut self.rejected_version,
            Reject::Start => &mut self.rejected_start,
        };
        *counter += 1;
    }
}
