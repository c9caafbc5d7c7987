//! What the two ends of a connection will do. Both know it from the client's initial sequence
//! number, so neither has to tell the other.

use crate::rng::Rng;

/// Who ends a connection, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// The client, when it has all answers.
    Client,
    /// The real server, when it has sent all answers.
    Server,
    /// The client closes its side when it has sent all its requests; the answers still come.
    HalfClient,
    /// The real server closes its side; the client then sends some more.
    HalfServer,
    /// Each its own side when it has sent all, without waiting for the other.
    Both,
    /// The client resets it after its first request.
    ClientAborts,
    /// The real server resets it when it has the first request.
    ServerAborts,
    /// The client says nothing more after the handshake.
    ClientVanishes,
    /// The real server falls silent after the first request.
    ServerVanishes,
    /// The client sends its SYN and never answers.
    Scan,
    /// The real server refuses the connection.
    Refused,
    /// Nobody closes it.
    Never,
}

const CLOSES: [(Close, u32); 12] = [
    (Close::Client, 30),
    (Close::Server, 20),
    (Close::HalfClient, 8),
    (Close::HalfServer, 8),
    (Close::Both, 8),
    (Close::ClientAborts, 5),
    (Close::ServerAborts, 5),
    (Close::ClientVanishes, 2),
    (Close::ServerVanishes, 2),
    (Close::Scan, 4),
    (Close::Refused, 3),
    (Close::Never, 2),
];

/// The course of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub rounds: u32,
    /// Bytes of a request.
    pub request: u32,
    /// Bytes of an answer.
    pub response: u32,
    /// Before each request but the first.
    pub think_ms: u64,
    pub mss: u16,
    /// Bytes in flight.
    pub window: u32,
    pub close: Close,
}

impl Script {
    /// The script of a connection by its client's initial sequence number; `timeout_ms` is how
    /// long a silent connection is kept.
    pub fn of(token: u32, seed: u64, timeout_ms: u64) -> Self {
        let mut rng = Rng::of(&[seed, 2, token.into()]);
        let close = CLOSES[rng.weighted(&CLOSES.map(|(_, weight)| weight))].0;
        // Long silences are rare, and lie around the timeout.
        let think_ms = match rng.below(40) {
            0 => timeout_ms.saturating_sub(800),
            1 => timeout_ms + 1500,
            2..10 => rng.below(300),
            _ => rng.below(3),
        };
        Self {
            rounds: *rng.pick(&[1, 1, 2, 5, 12, 12]),
            request: *rng.pick(&[10, 10, 60, 60, 100, 200, 200, 900]),
            response: *rng.pick(&[1, 30, 100, 100, 200, 300, 500, 2000]),
            think_ms,
            mss: *rng.pick(&[100, 300, 536, 1000, 1460]),
            window: *rng.pick(&[1, 600, 3000]),
            close,
        }
    }

    /// The same with answers of many segments, many of them in flight.
    pub fn with_much(self) -> Self {
        let response = 20_000 + 37 * self.request + 11 * self.response;
        Self { rounds: self.rounds.min(4), response, think_ms: 1, window: 12_000, ..self }
    }
}
