//! What the table that a turn is not of has, where a key of one may be the other's too.
//!
//! Where a pool serves both tables each has its half of the ports (`plan/port_sharing.rs`).
//! Sessions that come from another director, or from the one that ran before, have ports of its
//! halves: it may have had another configuration before, or another number of workers.

use super::parse::Parse;
use super::shared::Shared;
use super::sweep;
use super::table::Table;
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::key::Key;
use crate::plan::{LocalId, Plan};
use crate::session::{Flow, SessionOf, Sessions};
use std::net::IpAddr;

/// The sessions of the table that a turn is not of.
#[derive(Clone, Copy)]
pub(super) enum Others<'a> {
    Compact(&'a Sessions<Ipv4>),
    Extended(&'a Sessions<Ipv6>),
}

impl Others<'_> {
    /// Whether one is found by what a session of the turn's table would be found by, which takes a
    /// port of this local address. They are asked only if they may have it; `mixed` is whether they
    /// may have it of any address.
    pub fn have<F: Family>(
        &self,
        (plan, mixed): (&Plan, bool),
        local: LocalId,
        key: &Key<F::Addr>,
    ) -> bool {
        let sharing = plan.port_sharing.get(usize::from(local.0));
        if !mixed && !sharing.is_some_and(|sharing| sharing.mixed) {
            return false;
        }
        let tuple = F::tuple(key).map(F::to_ip);
        match self {
            Self::Compact(sessions) => has(sessions, plan, &tuple),
            Self::Extended(sessions) => has(sessions, plan, &tuple),
        }
    }
}

#[cold]
fn has<F: Family>(sessions: &Sessions<F>, plan: &Plan, tuple: &Tuple<IpAddr>) -> bool {
    found(sessions, plan, tuple).is_some()
}

fn found<F: Family>(sessions: &Sessions<F>, plan: &Plan, tuple: &Tuple<IpAddr>) -> Option<Flow> {
    let (src, dst) = (F::from_ip(tuple.src)?, F::from_ip(tuple.dst)?);
    let Tuple { sport, dport, protocol, .. } = *tuple;
    let tuple = Tuple { src, dst, sport, dport, protocol };
    sessions.find(plan, sessions.hash(&tuple), &tuple)
}

/// Ends what the other table has by a key of a session that has come from elsewhere, if nothing of
/// it was seen later. Whether the keys are free now.
pub(super) fn make_way<F: Family, G: Parse>(
    other: &mut Table<G>,
    shared: &mut Shared,
    plan: &Plan,
    session: &SessionOf<F>,
) -> bool {
    if other.sessions.slab().live() == 0 || !has_local::<F>(plan, session) {
        return true;
    }
    let keys = Sessions::<F>::keys(plan, session);
    for key in keys.iter().flatten().flatten() {
        let Some(flow) = found(&other.sessions, plan, &key.map(F::to_ip)) else { continue };
        let later = session.seen_ms.wrapping_sub(other.sessions.slab().at(flow.id()).seen_ms);
        if (later as i32) < 0 {
            return false;
        }
        sweep::remove(other, shared, plan, flow.id());
    }
    true
}

/// A session has come from elsewhere: if its local port is of the other table's half here, that one
/// looks for it from now on.
pub(super) fn mix<F: Family>(shared: &mut Shared, plan: &Plan, session: &SessionOf<F>) {
    let side = F::side(plan);
    let local = side.local(session.local).filter(|_| has_local::<F>(plan, session));
    let Some(local) = local else { return };
    let Some(pool) = plan.pool_of(side, local).filter(|pool| pool.shared) else { return };
    let six = F::to_ip(local).is_ipv6();
    let (first, count) = pool.share_of((F::WIDE, six), (shared.worker, shared.workers));
    let port = u32::from(session.local_port.wrapping_sub(pool.first_port));
    shared.ports.mixed |= !(first..first + count).contains(&port);
}

/// Whether a session has a local address and port.
fn has_local<F: Family>(plan: &Plan, session: &SessionOf<F>) -> bool {
    let real = F::side(plan).real(session.real());
    real.is_some_and(|real| real.forwarding.translates_source())
}
