//! What the table that a turn is not of has, where a key of one may be the other's too.

use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::key::Key;
use crate::plan::{LocalId, Plan};
use crate::session::Sessions;
use std::net::IpAddr;

/// The sessions of the table that a turn is not of.
#[derive(Clone, Copy)]
pub(super) enum Others<'a> {
    Compact(&'a Sessions<Ipv4>),
    Extended(&'a Sessions<Ipv6>),
}

impl Others<'_> {
    /// Whether one is found by what a session of the turn's table would be found by, which takes a
    /// port of this local address. They are asked only if they may have it.
    pub fn have<F: Family>(&self, plan: &Plan, local: LocalId, key: &Key<F::Addr>) -> bool {
        if !plan.takers.get(usize::from(local.0)).is_some_and(|takers| takers.mixed) {
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
    let (Some(src), Some(dst)) = (F::from_ip(tuple.src), F::from_ip(tuple.dst)) else {
        return false;
    };
    let Tuple { sport, dport, protocol, .. } = *tuple;
    let tuple = Tuple { src, dst, sport, dport, protocol };
    sessions.find(plan, sessions.hash(&tuple), &tuple).is_some()
}
