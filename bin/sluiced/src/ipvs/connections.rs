//! Sessions as IPVS lists its connections, and which clients are bound to which destinations.

use crate::lister::{Lister, aside, page};
use sluice_api::Cursor;
use sluice_director::path::{SessionFilter, SessionInfo};
use sluice_director::session::State;
use sluice_director::spec::{Mode, NetworkId};
use sluice_ipvs::{Answer, Connection, Errno, Reply};

/// Connections of one answer.
const PAGE: usize = 10_000;

impl Lister {
    /// Starts to list from a cursor on; the answer goes to `reply`.
    pub fn connections(self, cursor: Option<String>, reply: sluice_api::Reply<Answer>) {
        let place = cursor.as_deref().map(str::parse::<Cursor>).transpose();
        let Ok(cursor) = place else {
            let detail = "the cursor must be the `next` of an answer before".to_owned();
            return drop(reply.send(Answer::Refused { errno: Errno::Inval, detail }));
        };
        aside(move || {
            // IPVS's services are all of the default network.
            let network = Some(NetworkId::DEFAULT);
            let filter = SessionFilter { bound: true, network, ..SessionFilter::default() };
            let place = (cursor.unwrap_or_default(), PAGE);
            let (connections, next) =
                page(&self.workers, &filter, place, |_, session| connection(session));
            // Whoever asked may not wait any more.
            let _ = reply.send(Answer::Ok(Reply::Connections { connections, next }));
        });
    }
}

/// A session; none if it is of source NAT, of which IPVS knows nothing.
fn connection(session: &SessionInfo) -> Option<Connection> {
    (session.mode != Mode::Snat).then(|| Connection {
        protocol: session.protocol,
        client: session.client,
        virtual_: session.virtual_,
        local: session.local,
        destination: session.real,
        state: state(session.state).to_owned(),
        expires_s: session.expires_ms.div_ceil(1000),
    })
}

/// The state by IPVS's names.
fn state(state: State) -> &'static str {
    match state {
        State::OnePacket => State::Udp.name(),
        State::Sctp => State::Established.name(),
        State::Template | State::Icmp | State::Other | State::Vacant => "NONE",
        named => named.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::ServiceId;

    /// The names of the kernel's `ip_vs_state_name`, of TCP, UDP and SCTP.
    const NAMES: [&str; 12] = [
        "NONE",
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "SYNACK",
        "UDP",
    ];

    #[test]
    fn states_have_the_kernels_names() {
        for it in State::ALL {
            assert!(NAMES.contains(&state(it)), "{}", state(it));
        }
        assert_eq!(state(State::Template), "NONE");
    }

    #[test]
    fn a_connection_ends_when_its_session_does() {
        let session = SessionInfo {
            protocol: 6,
            client: ([203, 0, 113, 9].into(), 40_000),
            virtual_: ([198, 51, 100, 200].into(), 80),
            local: Some(([192, 0, 2, 10].into(), 1025)),
            real: ([192, 0, 2, 11].into(), 80),
            mode: Mode::Fnat,
            state: State::Established,
            idle_ms: 100,
            expires_ms: 899_900,
            service: ServiceId(0),
            slot: 7,
        };
        let shown = connection(&session).expect("a connection");
        assert_eq!((shown.protocol, shown.expires_s, &*shown.state), (6, 900, "ESTABLISHED"));
        assert_eq!(shown.local, Some(([192, 0, 2, 10].into(), 1025)));
        assert_eq!(connection(&SessionInfo { mode: Mode::Snat, ..session }), None);
    }
}
