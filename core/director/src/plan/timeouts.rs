//! How long a session may be silent.
//!
//! A plain packet asks one table, by its session's state; what that has is the least that any
//! service says. Who was silent for longer is looked at closer, so that services of their own mind
//! cost the others nothing but that look.

use super::{Plan, Service, ServiceId};
use crate::session::{Core, State};
use crate::spec::Timeouts;

/// Seconds without a packet after which nothing more comes of a connection that is over.
const LINGER_S: u32 = 1;

impl Plan {
    /// Milliseconds without a packet after which a session is over.
    pub(crate) fn timeout_of(&self, session: &Core) -> u32 {
        let state = session.state;
        let service = || self.service_of(session);
        let idle = || service().and_then(|id| self.service(id)).map_or(0, |of| of.idle_ms);
        let by_rule = || service().and_then(|id| self.service(id)).map_or(0, established_ms);
        match state {
            State::Template => service().map_or(0, |id| self.template_ms(id)),
            State::Established if by_rule() > 0 => by_rule(),
            _ if state.is_open() && idle() > 0 => idle(),
            _ => self.state_ms[state as usize],
        }
    }

    /// Milliseconds that a template of a service outlives what refreshed it last.
    pub(crate) fn template_ms(&self, service: ServiceId) -> u32 {
        let service = self.service(service);
        match service.map(|service| (&service.persistence, &service.snat)) {
            Some((Some(persistence), _)) => persistence.timeout_s.saturating_mul(1000),
            // It goes with the last session that holds it.
            Some((None, Some(_))) => u32::MAX,
            _ => 0,
        }
    }

    /// Whether no connection ends before both sides have closed and been acknowledged, or one has
    /// reset it.
    #[inline(always)]
    pub(crate) fn ends_late(&self) -> bool {
        let [_, early @ .., _, _] = self.timeout_ms.first_chunk::<8>().unwrap_or(&[0; 8]);
        early.iter().fold(true, |late, ms| late & (*ms != 0))
    }

    /// Fills both tables. Those of tombstones count: their sessions go on.
    pub(super) fn settle_timeouts(&mut self, timeouts: &Timeouts) {
        self.state_ms = by_state(timeouts);
        self.timeout_ms = self.state_ms;
        let idle = self.services.iter().map(|service| service.idle_ms).filter(|ms| *ms > 0).min();
        let states = State::ALL.into_iter().chain([State::UdpNew]);
        for state in states.filter(|state| state.is_open()) {
            let ms = &mut self.timeout_ms[state as usize];
            *ms = idle.map_or(*ms, |idle| idle.min(*ms));
        }
        let rules = self.services.iter().map(established_ms).filter(|ms| *ms > 0).min();
        let ms = &mut self.timeout_ms[State::Established as usize];
        *ms = rules.map_or(*ms, |rule| rule.min(*ms));
    }
}

/// What a rule of source NAT says of established TCP connections; 0 where there is nothing.
fn established_ms(service: &Service) -> u32 {
    service.snat.as_ref().map_or(0, |snat| snat.established_ms)
}

/// The timeouts of the configuration, by state.
fn by_state(timeouts: &Timeouts) -> [u32; State::PLACES] {
    let mut ms = [0; State::PLACES];
    for (state, seconds) in [
        (State::SynRecv, timeouts.tcp_syn_recv_s),
        (State::Established, timeouts.tcp_established_s),
        (State::FinWait, timeouts.tcp_fin_wait_s),
        (State::CloseWait, timeouts.tcp_close_wait_s),
        (State::LastAck, timeouts.tcp_last_ack_s),
        (State::TimeWait, timeouts.tcp_time_wait_s),
        (State::Close, timeouts.tcp_close_s),
        (State::UdpNew, timeouts.udp_s),
        (State::Udp, timeouts.udp_s),
        (State::OnePacket, timeouts.one_packet_s),
        (State::Sctp, timeouts.sctp_s),
        (State::Icmp, timeouts.icmp_s),
        (State::Other, timeouts.other_s),
        (State::Ended, LINGER_S),
    ] {
        ms[state as usize] = seconds.saturating_mul(1000);
    }
    ms
}
