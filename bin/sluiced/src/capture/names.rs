//! Names in place of the ids that workers tell.

use sluice_director::fib::{Fib, PortId};
use sluice_director::plan::{Plan, Service, ServiceId};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What the workers have: the plan of all networks, and each network's routes and neighbours.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    pub plan: Arc<Plan>,
    pub fibs: Vec<Arc<Fib>>,
}

/// What names are looked up in.
pub struct Names {
    /// What the workers have now: a trace may outlive a reload, and ids are stable.
    pub latest: Arc<Mutex<Latest>>,
    /// Name and device of each port.
    pub ports: Vec<(String, String)>,
}

impl Names {
    /// What the workers have now.
    pub fn latest(&self) -> Latest {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A port's name.
    pub fn port(&self, id: PortId) -> String {
        let known = self.ports.get(usize::from(id.0));
        known.map_or_else(|| format!("port {}", id.0), |(name, _)| name.clone())
    }

    /// A service or a rule of source NAT that is configured, by its name.
    pub fn service_id(&self, name: &str) -> Option<ServiceId> {
        let plan = self.latest().plan;
        let services = plan.services.iter().zip(0..);
        let mut named = services.filter(|(service, _)| service.live && service.name == name);
        named.next().map(|(_, id)| ServiceId(id))
    }

    /// Names of those that are configured.
    pub fn services(&self) -> Vec<String> {
        let plan = self.latest().plan;
        let live = |service: &&Service| service.live;
        plan.services.iter().filter(live).map(|service| service.name.clone()).collect()
    }

    /// The neighbour that a frame was sent to: by its port, VLAN and MAC address. Where a gateway
    /// has several addresses, the least.
    pub fn neighbour(&self, port: PortId, (mac, vlan): ([u8; 6], u16)) -> Option<IpAddr> {
        let fibs = self.latest().fibs;
        // A port is one network's.
        fibs.iter()
            .flat_map(|fib| fib.neighbours())
            .filter(|(_, hop)| (hop.port, hop.macs[0], hop.vlan) == (port, mac, vlan))
            .map(|(address, _)| address)
            .min()
    }
}
