//! Open sessions.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_director::session;

use super::Protocol;

/// Some open sessions: `GET /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    /// Those that were asked for, in no particular order.
    pub sessions: Vec<Session>,
    /// Whether there are more than the limit that was asked for.
    pub more: bool,
    /// Where they go on, as `cursor` of the next request; absent when there are no more. A session
    /// that stays open all the while is on exactly one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Sessions that were ended: `DELETE /v1/sessions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Killed {
    /// How many; of a dry run how many there were to end.
    pub sessions: u64,
    /// Whether they go on because it was only asked how many there are.
    pub dry_run: bool,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// IP protocol.
    pub protocol: Protocol,
    /// Client's address and port; of source NAT the inside host's.
    pub client: SocketAddr,
    /// Virtual address and port; of source NAT the outside's.
    #[serde(rename = "virtual")]
    pub virtual_: SocketAddr,
    /// Local address and port; absent where the mode has none (`nat`, `dr`, `ipip`).
    pub local: Option<SocketAddr>,
    /// Real server's address and port.
    pub real: SocketAddr,
    /// Forwarding mode, by the configuration's word.
    pub mode: String,
    /// State.
    pub state: SessionState,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it times out if nothing comes.
    pub expires_ms: u64,
    /// Name of its virtual service.
    pub service: String,
    /// Name of the network that it is in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Number of the worker that owns it.
    pub worker: u16,
}

/// The state of an open session; TCP's by IPVS's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SessionState {
    /// TCP: a SYN was seen.
    SynRecv,
    /// TCP: the handshake is complete.
    Established,
    /// TCP: the client closed its side.
    FinWait,
    /// TCP: the real server closed its side.
    CloseWait,
    /// TCP: both sides closed; an acknowledgement is missing.
    LastAck,
    /// TCP: both sides closed and acknowledged.
    TimeWait,
    /// TCP: reset.
    Close,
    /// UDP.
    Udp,
    /// UDP of a service that schedules each datagram by itself: an answer is waited for.
    OnePacket,
    /// SCTP.
    Sctp,
    /// ICMP echo.
    Icmp,
    /// Another protocol.
    Other,
}

impl SessionState {
    /// Every state, in the order of a session's life.
    pub const ALL: [Self; 12] = [
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::Udp,
        Self::OnePacket,
        Self::Sctp,
        Self::Icmp,
        Self::Other,
    ];

    /// The name used in output.
    pub fn name(self) -> &'static str {
        session::State::from(self).name()
    }

    /// The state of an open session; `None` for that of a free slot or of what is no connection.
    pub fn of(state: session::State) -> Option<Self> {
        Self::ALL.into_iter().find(|open| session::State::from(*open) == state)
    }
}

impl From<SessionState> for session::State {
    fn from(state: SessionState) -> Self {
        match state {
            SessionState::SynRecv => Self::SynRecv,
            SessionState::Established => Self::Established,
            SessionState::FinWait => Self::FinWait,
            SessionState::CloseWait => Self::CloseWait,
            SessionState::LastAck => Self::LastAck,
            SessionState::TimeWait => Self::TimeWait,
            SessionState::Close => Self::Close,
            SessionState::Udp => Self::Udp,
            SessionState::OnePacket => Self::OnePacket,
            SessionState::Sctp => Self::Sctp,
            SessionState::Icmp => Self::Icmp,
            SessionState::Other => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_as_the_director_names_them() {
        for state in SessionState::ALL {
            let json = serde_json::to_value(state).expect("a word");
            assert_eq!(json, state.name());
            assert_eq!(SessionState::of(state.into()), Some(state));
        }
        assert_eq!(SessionState::ALL.map(session::State::from), session::State::ALL);
        assert_eq!(SessionState::of(session::State::Vacant), None);
    }
}
