//! From a spec's real server to a plan's.

use super::{Forwarding, HealthState, Real, ServiceId, forwarding};
use crate::spec::{Mode, Orphans, RealServer, TunnelOptions};

impl Real {
    /// A real server as its service has it, of which nothing was found yet.
    pub(super) fn of(
        from: &RealServer,
        (service, position): (ServiceId, usize),
        (mode, options): (Mode, TunnelOptions),
    ) -> Self {
        Self {
            service,
            position: position as u32,
            address: from.address,
            port: from.port,
            weight: from.weight,
            mode,
            forwarding: Forwarding::of(mode),
            encap: forwarding::encap(mode, options, from.address),
            upper_sessions: from.upper_sessions,
            lower_sessions: from.lower_sessions,
            down: from.down,
            fallback: from.fallback,
            is_probe: false,
            found_down: false,
            was_up: false,
            health_state: HealthState::Serves,
            orphans: Orphans::Keep,
            live: true,
        }
    }
}
