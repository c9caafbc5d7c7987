//! Where health checks through the data path live: for each network that has such, a network
//! namespace whose way out is a port of the director's own in that network, so that a probe is a
//! client's connection like any other.
//!
//! A thread inside makes the sockets. They stay there, whoever uses them, so that the checks
//! themselves run where all the others do.

use crate::errors::Error;
use crate::health::Health;
use sluice_checks::Maker;
use sluice_config::{Config, Device, Port};
use sluice_director::fib::{FibBuilder, LinkId, Target};
use sluice_director::plan::Plan;
use sluice_linux::{INNER_MAC, Kernel, Nest};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The port's name in what is shown; behind a hyphen follows that of its network.
const PORT: &str = "probe";
/// Whether a port with this name may be a prober's.
pub(crate) fn is_port(name: &str) -> bool {
    name.split('-').next() == Some(PORT)
}

/// How long a socket may take to make.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket that a check asks for, and where it goes.
struct Wish {
    domain: Domain,
    kind: Type,
    protocol: Protocol,
    reply: Sender<io::Result<Socket>>,
}

/// The namespaces, which last as long as this does.
pub(crate) struct Prober {
    /// With the names of their networks.
    nests: Vec<(String, Nest)>,
}

impl Prober {
    /// Makes those of networks of which the configuration says where probes come from: each with a
    /// port more, by which they come and go, and for the checks somebody who makes their sockets.
    pub fn join(config: &mut Config, health: &mut Health) -> Result<Self, Error> {
        let mut nests = Vec::new();
        let all = config.probe_addresses().zip(0..);
        for ((network, addresses), number) in all.filter(|((_, all), _)| !all.is_empty()) {
            // Several directors may share a machine; a name has at most 15 characters.
            let place: String = if number == 0 { String::new() } else { format!("n{number}") };
            let nest = Nest::make(&format!("slp{}{place}", std::process::id()), addresses)?;
            let maker = maker(&nest).map_err(crate::errors::system("start the probes' thread"))?;
            health.makers.insert(network.to_owned(), maker);
            nests.push((network.to_owned(), nest));
        }
        let prober = Self { nests };
        prober.add_ports(config);
        Ok(prober)
    }

    /// Adds the ports to a configuration, which has none of them.
    pub fn add_ports(&self, config: &mut Config) {
        let port = |(network, nest): &(String, Nest)| Port {
            name: if network.is_empty() { PORT.to_owned() } else { format!("{PORT}-{network}") },
            network: network.clone(),
            device: Device::AfPacket { interface: nest.outer().to_owned() },
            queues: None,
            twin: None,
            mac: None,
            mtu: None,
            flow_rules: false,
        };
        config.ports.extend(self.nests.iter().map(port));
    }
}

/// Routes what is for the prober to its port, whatever else these addresses are to the machine.
pub(crate) fn route(
    plan: &Plan,
    kernel: &Kernel,
    links: &BTreeMap<u32, LinkId>,
    builder: &mut FibBuilder,
) {
    let is_outer = |index: &u32| {
        let link = kernel.link(*index);
        link.is_some_and(|link| link.mac == Some(sluice_linux::OUTER_MAC))
    };
    let Some((_, link)) = links.iter().find(|(index, _)| is_outer(index)) else { return };
    for address in plan.probes_from.into_iter().flatten() {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        builder.route(address, bits, Target::OnLink(*link));
        builder.neighbour(*link, address, INNER_MAC);
    }
}

fn maker(nest: &Nest) -> io::Result<Maker> {
    let (wishes, wished) = channel::<Wish>();
    let nest = nest.clone();
    let (tell, told) = channel();
    std::thread::Builder::new().name("probes".to_owned()).spawn(move || {
        let entered = nest.enter();
        let is_inside = entered.is_ok();
        // Whoever started this waits.
        let _ = tell.send(entered);
        if !is_inside {
            return;
        }
        for Wish { domain, kind, protocol, reply } in wished {
            // Who asked may have given up.
            let _ = reply.send(Socket::new(domain, kind, Some(protocol)));
        }
    })?;
    told.recv().map_err(io::Error::other)??;
    Ok(Maker(Arc::new(move |domain, kind, protocol| {
        let (reply, made) = channel();
        wishes.send(Wish { domain, kind, protocol, reply }).map_err(io::Error::other)?;
        made.recv_timeout(PATIENCE).map_err(io::Error::other)?
    })))
}
