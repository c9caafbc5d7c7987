//! Whether the sessions of both tables share the ports of a local address, over all plans.
//!
//! Where they do, each table has its own half of the ports and need not look
//! into the other. A reload may make that so while sessions of the one still have ports of what is
//! now the other's half; from then on each looks into the other too.

use super::Plan;

/// Which tables' sessions use the ports of an IPv4 local address, now and before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSharing {
    /// Whether sessions of the IPv4 table, and whether such of the extended one, ever did.
    ever: [bool; 2],
    /// Whether each table had its half when last any did.
    halves: bool,
    /// Whether either may have ports of the other's half.
    pub mixed: bool,
}

impl PortSharing {
    fn after(before: Self, now: [bool; 2], halves: bool) -> Self {
        if now == [false; 2] {
            return before;
        }
        let ever = [before.ever[0] | now[0], before.ever[1] | now[1]];
        let kept = before.ever == [false; 2] || before.halves && halves;
        Self { ever, halves, mixed: before.mixed || ever == [true; 2] && !kept }
    }
}

impl Plan {
    /// Which pools serve sessions of both tables with addresses of IPv4, and what that means for
    /// addresses that served others before.
    pub(super) fn share_pools(&mut self, before: Option<&Self>) {
        let mut users = vec![[false; 2]; self.pools.len()];
        for service in self.services.iter().filter(|s| s.live && self.takes_v4_ports(s)) {
            if let Some(users) = service.pool.and_then(|pool| users.get_mut(pool)) {
                users[usize::from(service.extended)] = true;
            }
        }
        let mut all = before.map(|before| before.port_sharing.clone()).unwrap_or_default();
        all.resize(self.locals.len(), PortSharing::default());
        for (pool, users) in self.pools.iter_mut().zip(users) {
            pool.shared = users == [true; 2];
            for local in pool.locals[0].iter().chain(&pool.peers[0]) {
                let one = &mut all[usize::from(local.0)];
                *one = PortSharing::after(*one, users, pool.shared);
            }
        }
        self.port_sharing = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: which tables' sessions use the ports now, and whether they are mixed then.
    fn run(steps: &[([bool; 2], bool)]) {
        let mut ports = PortSharing::default();
        for (at, (now, mixed)) in steps.iter().enumerate() {
            ports = PortSharing::after(ports, *now, *now == [true; 2]);
            assert_eq!(ports.mixed, *mixed, "step {at} of {steps:?}");
        }
    }

    #[test]
    fn halves_that_always_were_are_not_mixed() {
        const NARROW: [bool; 2] = [true, false];
        const WIDE: [bool; 2] = [false, true];
        const BOTH: [bool; 2] = [true; 2];
        const NONE: [bool; 2] = [false; 2];
        run(&[(BOTH, false), (BOTH, false), (NONE, false), (BOTH, false)]);
        run(&[(NARROW, false), (NONE, false), (NARROW, false), (BOTH, true), (BOTH, true)]);
        run(&[(BOTH, false), (WIDE, true), (BOTH, true)]);
        run(&[(WIDE, false), (NARROW, true)]);
        run(&[(NONE, false), (WIDE, false), (WIDE, false)]);
    }
}
