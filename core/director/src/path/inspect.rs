//! Sessions as an operator sees them.

use crate::family::Family;
use crate::plan::{Plan, ServiceId};
use crate::session::{Session, Sessions, State};
use crate::time::Time;
use sluice_table::Slot;
use std::net::IpAddr;

/// One session, with addresses in place of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// IP protocol number.
    pub protocol: u8,
    /// Client address and port.
    pub client: (IpAddr, u16),
    /// Virtual address and port.
    pub virtual_: (IpAddr, u16),
    /// Local address and port.
    pub local: (IpAddr, u16),
    /// Real server's address and port.
    pub real: (IpAddr, u16),
    /// State.
    pub state: State,
    /// Milliseconds since its last packet.
    pub idle_ms: u32,
    /// Milliseconds until it times out if nothing comes.
    pub expires_ms: u32,
    /// Its service.
    pub service: ServiceId,
}

/// Which sessions to list; what is `None` does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Of this service.
    pub service: Option<ServiceId>,
    /// From this client address.
    pub client: Option<IpAddr>,
    /// To this real server's address.
    pub real: Option<IpAddr>,
    /// In this state.
    pub state: Option<State>,
    /// Of this IP protocol.
    pub protocol: Option<u8>,
}

impl SessionFilter {
    fn accepts(&self, session: &SessionInfo) -> bool {
        self.service.is_none_or(|service| service == session.service)
            && self.client.is_none_or(|client| client == session.client.0)
            && self.real.is_none_or(|real| real == session.real.0)
            && self.state.is_none_or(|state| state == session.state)
            && self.protocol.is_none_or(|protocol| protocol == session.protocol)
    }
}

/// See [`super::Path::list`].
pub(super) fn list<F: Family>(
    sessions: &Sessions<F>,
    plan: &Plan,
    now: Time,
    filter: &SessionFilter,
    (cursor, slots): (u32, u32),
    out: &mut Vec<SessionInfo>,
) -> Option<u32> {
    let touched = sessions.slab().touched();
    let end = cursor.saturating_add(slots).min(touched);
    for id in cursor..end {
        let session = sessions.slab().at(id);
        if session.is_vacant() || super::engine::expired(session, plan, now) {
            continue;
        }
        if let Some(info) = info::<F>(plan, now, session).filter(|info| filter.accepts(info)) {
            out.push(info);
        }
    }
    (end < touched).then_some(end)
}

fn info<F: Family>(plan: &Plan, now: Time, session: &Session<F::Addr>) -> Option<SessionInfo> {
    let [inbound, outbound] = Sessions::<F>::tuples(plan, session)?;
    let timeout = plan.timeout_ms[session.state as usize];
    Some(SessionInfo {
        protocol: session.protocol(),
        client: (F::to_ip(inbound.src), inbound.sport),
        virtual_: (F::to_ip(inbound.dst), inbound.dport),
        local: (F::to_ip(outbound.dst), outbound.dport),
        real: (F::to_ip(outbound.src), outbound.sport),
        state: session.state,
        idle_ms: session.idle_ms(now),
        expires_ms: timeout.saturating_sub(session.idle_ms(now)),
        service: session.service,
    })
}
