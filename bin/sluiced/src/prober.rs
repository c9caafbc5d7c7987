//! Where health checks through the data path live: a network namespace whose way out is a port of
//! the director's own, so that a probe is a client's connection like any other.
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

/// The port's name in what is shown.
const PORT: &str = "probe";
/// How long a socket may take to make.
const PATIENCE: Duration = Duration::from_secs(1);

type Wish = (Domain, Type, Protocol, Sender<io::Result<Socket>>);

/// The namespace, which lasts as long as this does.
pub(crate) struct Prober {
    nest: Nest,
}

impl Prober {
    /// Makes it, if the configuration says where probes come from: with a port more, by which they
    /// come and go, and for the checks somebody who makes their sockets.
    pub fn join(config: &mut Config, health: &mut Health) -> Result<Option<Self>, Error> {
        let addresses = &config.director.probe_addresses;
        if addresses.is_empty() {
            return Ok(None);
        }
        // Several directors may share a machine; a name has at most 15 characters.
        let nest = Nest::make(&format!("slp{}", std::process::id()), addresses)?;
        let maker = maker(&nest).map_err(crate::errors::system("start the probes' thread"))?;
        health.maker = Some(maker);
        let prober = Self { nest };
        prober.add_port(config);
        Ok(Some(prober))
    }

    /// Adds the port to a configuration, which has none of it.
    pub fn add_port(&self, config: &mut Config) {
        let device = Device::AfPacket { interface: self.nest.outer().to_owned() };
        let name = PORT.to_owned();
        config.ports.push(Port {
            name,
            network: String::new(),
            device,
            queues: None,
            twin: None,
            mac: None,
            mtu: None,
            flow_rules: false,
        });
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
        for (domain, kind, protocol, reply) in wished {
            // Who asked may have given up.
            let _ = reply.send(Socket::new(domain, kind, Some(protocol)));
        }
    })?;
    told.recv().map_err(io::Error::other)??;
    Ok(Maker(Arc::new(move |domain, kind, protocol| {
        let (reply, made) = channel();
        wishes.send((domain, kind, protocol, reply)).map_err(io::Error::other)?;
        made.recv_timeout(PATIENCE).map_err(io::Error::other)?
    })))
}
