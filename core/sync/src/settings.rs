//! What an endpoint is made of.

use std::fmt;
use thiserror::Error;

/// Longest name of a director, in bytes.
const LONGEST_NAME: usize = 64;

/// Most keys at a time.
pub(crate) const MOST_KEYS: usize = 4;

/// Most peers.
const MOST_PEERS: usize = 64;

/// What an endpoint is made of.
#[derive(Clone)]
pub struct Settings {
    /// Shown to peers; at most 64 bytes, without control characters.
    pub name: String,
    /// Shared keys, from one to four, the newest first.
    pub keys: Vec<[u8; 32]>,
    /// Number of peers, which are addressed by index.
    pub peers: usize,
    /// Largest UDP payload, from 512 to 8900 bytes.
    pub datagram: usize,
    /// Whether all peers can be reached by one datagram, as by multicast. Data that is due to
    /// several of them then goes to all at once; what one of them lost is sent to it alone.
    pub group: bool,
    /// Of the configuration, shown to peers.
    pub fingerprint: u64,
    /// Fresh random bytes of this start. They must never be used twice.
    pub random: [u8; 32],
}

impl fmt::Debug for Settings {
    /// Without what is secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("name", &self.name)
            .field("keys", &self.keys.len())
            .field("peers", &self.peers)
            .field("datagram", &self.datagram)
            .field("group", &self.group)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    /// No keys yet, which are needed, nor random bytes.
    fn default() -> Self {
        Self {
            name: String::new(),
            keys: Vec::new(),
            peers: 1,
            datagram: 1400,
            group: false,
            fingerprint: 0,
            random: [0; 32],
        }
    }
}

/// Why settings make no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The name is too long, or has control characters.
    #[error("the name has more than {LONGEST_NAME} bytes or control characters")]
    Name,
    /// There are no keys, or too many.
    #[error("there must be 1 to {MOST_KEYS} keys")]
    Keys,
    /// Two keys cannot be told apart.
    #[error("the same key is given twice")]
    SameKey,
    /// There are too many peers.
    #[error("there are more than {MOST_PEERS} peers")]
    Peers,
    /// The datagram size is out of range.
    #[error("the datagram size must be 512 to 8900 bytes")]
    Datagram,
}

/// Whether this can be a director's name.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME && !name.contains(char::is_control)
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if !is_name(&self.name) {
            return Err(SettingsError::Name);
        }
        if !(1..=MOST_KEYS).contains(&self.keys.len()) {
            return Err(SettingsError::Keys);
        }
        if self.peers > MOST_PEERS {
            return Err(SettingsError::Peers);
        }
        if !(512..=8900).contains(&self.datagram) {
            return Err(SettingsError::Datagram);
        }
        Ok(())
    }
}
