//! What a replay counted, as `counters.json` has it. Same input, same bytes.

use serde::Serialize;
use serde_json::{Map, Value};
use sluice_config::Config;
use sluice_director::Reason;
use sluice_director::counters::{Counters, RealCounters};
use sluice_director::plan::{Plan, RealId};
use sluice_director::reason::Fate;

/// A number for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ways {
    /// Client to real server.
    pub inbound: u64,
    /// Real server to client.
    pub outbound: u64,
}

impl From<[u64; 2]> for Ways {
    fn from([inbound, outbound]: [u64; 2]) -> Self {
        Self { inbound, outbound }
    }
}

/// What was counted of a virtual service or a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Balanced {
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions open at the end.
    pub active: u64,
    /// Packets forwarded.
    pub packets: Ways,
    /// Bytes of IP packets forwarded.
    pub bytes: Ways,
}

impl From<RealCounters> for Balanced {
    fn from(counters: RealCounters) -> Self {
        Self {
            sessions: counters.sessions,
            active: counters.active,
            packets: counters.packets.into(),
            bytes: counters.bytes.into(),
        }
    }
}

/// A real server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RealReport {
    /// Address.
    pub address: String,
    /// Port.
    pub port: u16,
    /// What was counted of it.
    #[serde(flatten)]
    pub counted: Balanced,
}

/// A virtual service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// What was counted of all its real servers.
    #[serde(flatten)]
    pub counted: Balanced,
    /// Its real servers, in the configuration's order.
    pub reals: Vec<RealReport>,
}

/// Sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SessionReport {
    /// Opened.
    pub created: u64,
    /// Timed out.
    pub expired: u64,
    /// Ended by themselves: four-way close or reset.
    pub closed: u64,
    /// Ended early, so that new ones had their place; left out if none was.
    #[serde(skip_serializing_if = "is_zero")]
    pub evicted: u64,
    /// Open at the end.
    pub live: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Frames of the captures that it received.
    pub received: u64,
    /// Frames in its output.
    pub sent: u64,
}

/// All that a replay counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Virtual services, in the configuration's order.
    pub services: Vec<ServiceReport>,
    /// Packets by reason; reasons without packets are left out.
    pub reasons: Map<String, Value>,
    /// Packets that are the kernel's.
    pub to_kernel: u64,
    /// Sessions.
    pub sessions: SessionReport,
    /// Ports, in the configuration's order.
    pub ports: Vec<PortReport>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Report {
    /// Puts together what the paths and the ports counted.
    pub(super) fn new(
        (config, plan): (&Config, &Plan),
        (counters, live): (&Counters, u64),
        ports: Vec<PortReport>,
    ) -> Self {
        let seen = Reason::ALL.iter().filter(|reason| counters.of(**reason) > 0);
        let kernel = seen.clone().filter(|reason| reason.fate() == Fate::Kernel);
        Self {
            services: config.services.iter().map(|s| service(plan, counters, &s.name)).collect(),
            to_kernel: kernel.map(|reason| counters.of(*reason)).sum(),
            reasons: seen.map(|r| (r.name().to_owned(), counters.of(*r).into())).collect(),
            sessions: SessionReport {
                created: counters.created,
                expired: counters.expired,
                closed: counters.closed,
                evicted: counters.evicted,
                live,
            },
            ports,
        }
    }

    /// The text of `counters.json`.
    ///
    /// # Errors
    /// None that could happen: the report holds strings and numbers only.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

fn service(plan: &Plan, counters: &Counters, name: &str) -> ServiceReport {
    let found = plan.live_services().find(|(_, service)| service.name == name);
    let ids = found.map_or(&[][..], |(_, service)| &service.reals);
    let counted = |id: &RealId| counters.reals.get(id.0 as usize).copied().unwrap_or_default();
    let mut all = RealCounters::default();
    let mut reals = Vec::new();
    for id in ids {
        all.add(&counted(id));
        if let Some(real) = plan.reals.get(id.0 as usize) {
            let counted = counted(id).into();
            let address = real.address.to_string();
            reals.push(RealReport { address, port: real.port, counted });
        }
    }
    ServiceReport { name: name.to_owned(), counted: all.into(), reals }
}
