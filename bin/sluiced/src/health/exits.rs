//! How probes leave in isolated networks: by which devices, and from which addresses.
//!
//! Both are the kernel's news, not the configuration's: checks ask for them when they probe, so
//! that a route that changes begins no check again.

use super::Health;
use crate::networks::Networks;
use sluice_checks::{Exits, Network, Sources, Spec};
use sluice_config::Config;
use sluice_director::spec::NetworkId;
use sluice_linux::Kernel;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// What checks of an isolated network share.
pub(super) struct Isolated {
    id: NetworkId,
    /// Its name and its devices.
    pub network: Network,
    /// Which addresses plain probes may not come from.
    pub sources: Sources,
    /// Where probes go.
    targets: BTreeSet<IpAddr>,
}

/// All isolated networks by their names, as a configuration says; checks keep what they hold.
pub(super) fn isolated(
    config: &Config,
    mut before: HashMap<String, Isolated>,
) -> HashMap<String, Isolated> {
    let of = |network: &sluice_config::IsolatedNetwork| {
        let name = &network.name;
        let id = config.network_id(name).unwrap_or_default();
        let isolated = match before.remove(name) {
            Some(known) => Isolated { id, ..known },
            None => Isolated {
                id,
                network: Network { name: name.as_str().into(), exits: Exits::default() },
                sources: Sources::default(),
                targets: BTreeSet::new(),
            },
        };
        (name.clone(), isolated)
    };
    config.networks.iter().map(of).collect()
}

/// Notes where the probes of each network go.
pub(super) fn aim(isolated: &mut HashMap<String, Isolated>, specs: &[Spec]) {
    for it in isolated.values_mut() {
        it.targets.clear();
    }
    for spec in specs {
        let network = spec.way.network.as_ref();
        if let Some(it) = network.and_then(|network| isolated.get_mut(&*network.name)) {
            it.targets.insert(spec.address);
        }
    }
}

impl Health {
    /// Takes what the kernel says of the ways of probes. The networks have followed it already.
    pub fn follow_kernel(&self, networks: &Networks, kernel: &Kernel) {
        self.sources.set(networks.stand_ins(NetworkId::DEFAULT));
        for it in self.isolated.values() {
            it.sources.set(networks.stand_ins(it.id));
            let exits = it.targets.iter().map(|to| (*to, networks.exit(kernel, it.id, *to)));
            it.network.exits.set(exits.collect());
        }
    }
}
