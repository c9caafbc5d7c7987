//! From the configuration to the packet path's view of it.

use sluice_director::blueprint::{Blueprint, LocalPool};

use crate::Config;

impl Config {
    /// What the packet path needs to know: ranges of local addresses written out in the file's
    /// order, and nothing about ports, cores or sockets.
    ///
    /// A checked configuration has at most 65,535 local addresses in all; one made by hand with
    /// larger ranges takes as much memory as its author asked for.
    pub fn blueprint(&self) -> Blueprint {
        let pools = self.pools.iter().map(|pool| LocalPool {
            name: pool.name.clone(),
            addresses: pool.addresses.iter().flat_map(|range| range.iter()).collect(),
            ports: pool.ports.clone(),
        });
        Blueprint {
            services: self.services.clone(),
            pools: pools.collect(),
            timeouts: self.timeouts,
            no_session: self.tcp.no_session,
            accept_mid_stream: self.tcp.accept_mid_stream,
            ..Blueprint::default()
        }
    }
}
