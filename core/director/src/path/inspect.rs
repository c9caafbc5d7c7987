//! Sessions as an operator sees them.

use super::Path;
use super::open::TEMPLATE;
use crate::counters::RealCounters;
use crate::family::Family;
use crate::plan::{Plan, Real, ServiceId};
use crate::session::{SessionOf, Sessions, State};
use crate::spec::{Mode, NetworkId};
use crate::time::Time;
use std::net::IpAddr;

/// What marks the slots of the extended table in a cursor, so that they stay where they are while
/// the IPv4 table grows.
pub(super) const WIDE: u32 = 1 << 31;

/// One session, with addresses in place of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// IP protocol number.
    pub protocol: u8,
    /// Client address and port.
    pub client: (IpAddr, u16),
    /// Virtual address and port.
    pub virtual_: (IpAddr, u16),
    /// Local address and port, where the mode has them (of source NAT: the pool's).
    pub local: Option<(IpAddr, u16)>,
    /// Real server's address and port (of source NAT: the outside's).
    pub real: (IpAddr, u16),
    /// How its packets are forwarded.
    pub mode: Mode,
    /// State.
    pub state: State,
    /// Milliseconds since its last packet.
    pub idle_ms: u32,
    /// Milliseconds until it times out if nothing comes.
    pub expires_ms: u32,
    /// Its service.
    pub service: ServiceId,
    /// Its slot, as a cursor of [`Path::list`]. The upper 32 bits are 0 here: whoever has several
    /// tables may say there which one it is.
    pub slot: u64,
}

/// Which sessions to list; what is `None` does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// In this network: for whoever has a table for each. A path looks at its own, whatever this
    /// says.
    pub network: Option<NetworkId>,
    /// Of this service.
    pub service: Option<ServiceId>,
    /// From this client address.
    pub client: Option<IpAddr>,
    /// From this client port.
    pub client_port: Option<u16>,
    /// To this real server's address.
    pub real: Option<IpAddr>,
    /// To this port of the real server.
    pub real_port: Option<u16>,
    /// In this state.
    pub state: Option<State>,
    /// Of this IP protocol.
    pub protocol: Option<u8>,
    /// Whether to list, too, which clients are bound to which real servers: in state `Template`,
    /// with client port 0. Ending takes no notice of it.
    pub bound: bool,
}

impl SessionFilter {
    pub(super) fn accepts(&self, session: &SessionInfo) -> bool {
        self.service.is_none_or(|service| service == session.service)
            && self.client.is_none_or(|client| client == session.client.0)
            && self.client_port.is_none_or(|port| port == session.client.1)
            && self.real.is_none_or(|real| real == session.real.0)
            && self.real_port.is_none_or(|port| port == session.real.1)
            && self.state.is_none_or(|state| state == session.state)
            && self.protocol.is_none_or(|protocol| protocol == session.protocol)
    }
}

impl Path {
    /// Lists open sessions that pass a filter, from the slot `cursor` on, looking at no more than
    /// `slots` slots. Gives the slot to go on with, or `None` at the end.
    pub fn list(
        &self,
        plan: &Plan,
        now: Time,
        filter: &SessionFilter,
        (cursor, slots): (u32, u32),
        out: &mut Vec<SessionInfo>,
    ) -> Option<u32> {
        if cursor & WIDE == 0 {
            let extended = self.extended.table.sessions.slab().touched() > 0;
            list(&self.v4.table.sessions, plan, now, filter, (cursor, slots), out)
                .or_else(|| extended.then_some(WIDE))
        } else {
            let (within, before) = ((cursor & !WIDE, slots), out.len());
            let next = list(&self.extended.table.sessions, plan, now, filter, within, out);
            out[before..].iter_mut().for_each(|session| session.slot |= u64::from(WIDE));
            next.map(|next| next | WIDE)
        }
    }
}

impl Path {
    /// The gauges of real servers (sessions open, established and closing, clients bound) as a walk
    /// through all sessions finds them: what [`Path::counters`] must have. It takes as long as the
    /// tables are large: for audits.
    pub fn recount(&self) -> Vec<RealCounters> {
        let mut found = vec![RealCounters::default(); self.shared.statistics.counters.reals.len()];
        recount(&self.v4.table.sessions, &mut found);
        recount(&self.extended.table.sessions, &mut found);
        found
    }
}

/// See [`Path::recount`].
fn recount<F: Family>(sessions: &Sessions<F>, found: &mut [RealCounters]) {
    for id in 0..sessions.slab().touched() {
        let session = sessions.slab().at(id);
        let Some(real) = found.get_mut(session.real().0 as usize) else { continue };
        match session.state {
            State::Vacant => {}
            State::Ended => real.lingering += 1,
            State::Template => real.bound += u32::from(session.protocol() == TEMPLATE),
            state => {
                real.active += 1;
                real.established += u32::from(state == State::Established);
                let closing = [
                    State::FinWait,
                    State::CloseWait,
                    State::LastAck,
                    State::TimeWait,
                    State::Close,
                ];
                real.closing += u32::from(closing.contains(&state));
            }
        }
    }
}

/// See [`Path::list`].
fn list<F: Family>(
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
        let wanted = match session.state {
            State::Vacant => false,
            State::Template => filter.bound && session.protocol() == TEMPLATE,
            _ => true,
        };
        if !wanted || super::sweep::expired(session, plan, now) {
            continue;
        }
        if let Some(info) = info::<F>(plan, now, session).filter(|info| filter.accepts(info)) {
            out.push(SessionInfo { slot: id.into(), ..info });
        }
    }
    (end < touched).then_some(end)
}

/// What an operator sees of a session.
pub(super) fn info<F: Family>(
    plan: &Plan,
    now: Time,
    session: &SessionOf<F>,
) -> Option<SessionInfo> {
    let side = F::side(plan);
    let real = plan.real(session.real())?;
    if session.state == State::Template {
        return bound::<F>(plan, now, session, real);
    }
    let (far, far_port, virtual_) = if real.forwarding.has_remote() {
        // The outside is where the host sent to, and what it is reached at.
        let far = F::to_ip(F::far(session));
        (far, session.virtual_port, far)
    } else {
        let port = if real.port == 0 { session.virtual_port } else { real.port };
        (real.address, port, F::to_ip(side.vip(real.service)?))
    };
    let local = match real.forwarding.translates_source() {
        true => Some((F::to_ip(side.local(session.local)?), session.local_port)),
        false => None,
    };
    let timeout = plan.timeout_of(session);
    Some(SessionInfo {
        protocol: session.protocol(),
        client: (F::to_ip(session.client), session.client_port),
        virtual_: (virtual_, session.virtual_port),
        local,
        real: (far, far_port),
        mode: real.mode,
        state: session.state.told(),
        idle_ms: session.idle_ms(now),
        expires_ms: timeout.saturating_sub(session.idle_ms(now)),
        service: real.service,
        slot: 0,
    })
}

/// What an operator sees of a client that is bound to a real server.
fn bound<F: Family>(
    plan: &Plan,
    now: Time,
    template: &SessionOf<F>,
    real: &Real,
) -> Option<SessionInfo> {
    let service = plan.service(real.service)?;
    let port = service.ports.single().unwrap_or(0);
    let idle_ms = template.idle_ms(now);
    Some(SessionInfo {
        protocol: service.protocol.number(),
        client: (F::to_ip(template.client), 0),
        virtual_: (service.vip, port),
        local: None,
        real: (real.address, if real.port == 0 { port } else { real.port }),
        mode: real.mode,
        state: State::Template,
        idle_ms,
        expires_ms: plan.template_ms(real.service).saturating_sub(idle_ms),
        service: real.service,
        slot: 0,
    })
}
