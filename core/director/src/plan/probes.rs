//! Health checks through the data path: each probe is a client's connection, but for the real
//! server that gets it.
//!
//! Of each real server that is probed a plan has a double: the same endpoint, reached in the same
//! way, that no scheduler knows. A session with it goes on whatever is found of the real server
//! itself, and is counted apart, so that probes look to nobody like clients. Which double a probe
//! is for is in its source port: whoever sends probes and every worker know it without a word
//! between them.

use super::{CompileError, HealthState, Plan, Real, RealId, Service, ServiceId, ids::Ids};
use crate::spec::Orphans;
use std::net::IpAddr;

/// The first source port of probes.
const FIRST: u16 = 1024;
/// Source ports for each real server, taken in turn: a probe does not meet what is left of the one
/// before.
const EACH: u16 = 8;

/// The most real servers of a service that can be probed.
pub const MAX_PROBED: usize = ((u16::MAX - FIRST) / EACH) as usize;

/// The source port by which a probe reaches the real server at a place of its service. `None` for
/// those behind the first [`MAX_PROBED`].
pub fn probe_port(position: usize, number: u64) -> Option<u16> {
    if position >= MAX_PROBED {
        return None;
    }
    Some(FIRST + position as u16 * EACH + (number % u64::from(EACH)) as u16)
}

impl Plan {
    /// Makes the doubles of a service's real servers.
    pub(super) fn add_probes(&mut self, id: ServiceId, ids: &mut Ids) -> Result<(), CompileError> {
        let reals = self.services[usize::from(id.0)].reals.clone();
        for real in reals.into_iter().take(MAX_PROBED) {
            let Some(double) = self.real(real).map(double) else { continue };
            let double = ids.real(&mut self.reals, double)?;
            self.services[usize::from(id.0)].probes.push(double);
        }
        Ok(())
    }

    /// Whether probes come from this address, and nothing else does.
    #[inline(always)]
    pub fn sends_probes(&self, address: IpAddr) -> bool {
        self.probes_from[usize::from(address.is_ipv6())] == Some(address)
    }

    /// The double that a probe of a service is for.
    #[inline(always)]
    pub(crate) fn probed(&self, service: &Service, from: (IpAddr, u16)) -> Option<RealId> {
        if !self.sends_probes(from.0) {
            return None;
        }
        let position = from.1.checked_sub(FIRST)? / EACH;
        service.probes.get(usize::from(position)).copied()
    }
}

fn double(real: &Real) -> Real {
    Real {
        weight: 0,
        upper_sessions: 0,
        lower_sessions: 0,
        down: false,
        fallback: false,
        is_probe: true,
        found_down: false,
        was_up: false,
        health_state: HealthState::Serves,
        orphans: Orphans::Keep,
        ..real.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Retired;
    use crate::spec::{Mode, RealServer, Spec, VirtualService};

    fn spec(probed: bool) -> Spec {
        let real = |last: u8| RealServer {
            address: [192, 0, 2, last].into(),
            port: 80,
            ..RealServer::default()
        };
        let service = VirtualService {
            name: "web".into(),
            vip: [198, 51, 100, 200].into(),
            mode: Mode::Nat,
            on_down: Orphans::Reset,
            probed,
            reals: vec![real(11), real(12)],
            ..VirtualService::default()
        };
        let probes_from = [Some([192, 0, 2, 9].into()), None];
        Spec { services: vec![service], probes_from, ..Spec::default() }
    }

    fn compile(probed: bool, before: Option<&Plan>) -> Plan {
        Plan::compile(&spec(probed), before, &Retired::default()).expect("a plan")
    }

    #[test]
    fn a_source_port_names_a_double() {
        let plan = compile(true, None);
        let service = &plan.services[0];
        let from = IpAddr::from([192, 0, 2, 9]);
        for (position, real) in service.reals.iter().enumerate() {
            for number in 0..20 {
                let port = probe_port(position, number).expect("a port");
                let double = plan.probed(service, (from, port)).expect("a double");
                let (real, double) = (plan.real(*real).unwrap(), plan.real(double).unwrap());
                assert_eq!((double.address, double.port), (real.address, real.port));
                assert!(double.is_probe && !real.is_probe && double.weight == 0);
            }
        }
        assert_eq!(plan.probed(service, (from, FIRST - 1)), None);
        assert_eq!(plan.probed(service, (from, FIRST + 2 * EACH)), None);
        assert_eq!(plan.probed(service, ([192, 0, 2, 10].into(), FIRST)), None, "a client");
        assert_eq!(probe_port(MAX_PROBED - 1, u64::MAX).map(|port| port > 60_000), Some(true));
        assert_eq!(probe_port(MAX_PROBED, 0), None);
    }

    #[test]
    fn sessions_of_probes_go_on_when_the_real_server_is_down() {
        let plan = compile(true, None);
        let (real, double) = (plan.services[0].reals[1], plan.services[0].probes[1]);
        let down = plan.with_health(&[(real, true)]);
        assert!(!down.v4.real(real).unwrap().goes_on(true));
        assert!(down.v4.real(double).unwrap().goes_on(true));
        let next = compile(true, Some(&down));
        assert_eq!(next.services[0].probes, plan.services[0].probes, "ids stay");
        assert!(next.v4.real(double).unwrap().goes_on(true));
        assert!(compile(false, Some(&next)).services[0].probes.is_empty());
    }
}
