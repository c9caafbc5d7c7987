//! Between the director's words and those of the protocol.

use sluice_director::path::{Change, Portable};
use sluice_director::plan::{Names, Plan, RealId, ServiceName};
use sluice_director::spec::Mode;
use sluice_sync::record;
use std::net::IpAddr;

/// The real servers of a plan by id, in the protocol's words.
pub struct Reals(Vec<record::Real>);

impl Reals {
    /// Those of a plan.
    pub fn of(plan: &Plan) -> Self {
        let Names { services, reals, .. } = plan.names();
        let unknown = || record::Service::Rule(String::new());
        let reals = reals.into_iter().map(|real| {
            let service = services.get(usize::from(real.service.0));
            record::Real {
                service: service.map_or_else(unknown, service_record),
                address: real.address,
                port: real.port,
                mode: real.mode as u8 + 1,
            }
        });
        Self(reals.collect())
    }

    /// One of them.
    pub fn get(&self, id: RealId) -> Option<&record::Real> {
        self.0.get(id.0 as usize)
    }
}

fn service_record(name: &ServiceName) -> record::Service {
    match *name {
        ServiceName::Rule(ref name) => record::Service::Rule(name.clone()),
        ServiceName::Service {
            ref network,
            protocol,
            vip,
            ports: (first_port, last_port),
            extended,
        } => record::Service::Service {
            network: network.clone(),
            protocol,
            vip,
            first_port,
            last_port,
            extended,
        },
    }
}

/// What a service is called here.
pub fn service_name(record: &record::Service) -> ServiceName {
    match *record {
        record::Service::Rule(ref name) => ServiceName::Rule(name.clone()),
        record::Service::Service {
            ref network,
            protocol,
            vip,
            first_port,
            last_port,
            extended,
        } => ServiceName::Service {
            network: network.clone(),
            protocol,
            vip,
            ports: (first_port, last_port),
            extended,
        },
    }
}

/// Address, port and mode of a real server. `None` for a mode that this version does not know.
pub fn real_name(record: &record::Real) -> Option<(IpAddr, u16, Mode)> {
    let modes = Mode::OF_REALS.into_iter().chain([Mode::Snat]);
    let mode = modes.into_iter().find(|mode| *mode as u8 + 1 == record.mode)?;
    Some((record.address, record.port, mode))
}

/// A change in the protocol's words.
pub const fn session_record(change: &Change) -> record::Session {
    let session = change.session;
    record::Session {
        change: if change.ended { record::Change::Ended } else { record::Change::Live },
        protocol: session.protocol,
        state: session.state,
        closing: session.closing,
        client: session.client,
        client_port: session.client_port,
        virtual_port: session.virtual_port,
        local: session.local,
        far: session.far,
        idle_ms: session.idle_ms,
        fin: session.fin,
        seen: session.seen,
        isn: session.isn,
    }
}

/// A session, and whether it has ended.
pub const fn session(record: &record::Session) -> (Portable, bool) {
    let session = Portable {
        protocol: record.protocol,
        state: record.state,
        closing: record.closing,
        client: record.client,
        client_port: record.client_port,
        virtual_port: record.virtual_port,
        local: record.local,
        far: record.far,
        idle_ms: record.idle_ms,
        fin: record.fin,
        seen: record.seen,
        isn: record.isn,
    };
    (session, matches!(record.change, record::Change::Ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::Retired;
    use sluice_director::spec::{RealServer, Spec, VirtualService};

    /// What one director says of its real servers another understands, whatever the mode.
    #[test]
    fn names_come_back() {
        let services = Mode::OF_REALS.into_iter().zip(0..).map(|(mode, last)| VirtualService {
            name: mode.name().to_owned(),
            vip: IpAddr::from([198, 51, 100, last]),
            mode,
            pool: "lan".to_owned(),
            reals: vec![RealServer { address: [192, 0, 2, 11].into(), ..RealServer::default() }],
            ..VirtualService::default()
        });
        let pool = sluice_director::spec::LocalPool {
            network: String::new(),
            name: "lan".to_owned(),
            addresses: vec![[192, 0, 2, 10].into()],
            ports: 1024..=65_535,
            peer_addresses: Vec::new(),
        };
        let spec = Spec { services: services.collect(), pools: vec![pool], ..Spec::default() };
        let plan = Plan::compile(&spec, None, &Retired::default()).expect("a plan");
        let (reals, names) = (Reals::of(&plan), plan.names());
        assert_eq!(names.reals.len(), Mode::OF_REALS.len());
        for (id, real) in (0..).zip(&names.reals) {
            let record = reals.get(RealId(id)).expect("a real server");
            assert_eq!(real_name(record), Some((real.address, real.port, real.mode)));
            let service = &names.services[usize::from(real.service.0)];
            assert_eq!(service_name(&record.service), *service);
        }
        let later = record::Real { mode: 200, ..reals.get(RealId(0)).expect("one").clone() };
        assert_eq!(real_name(&later), None, "a mode of a later version");
    }
}
