//! One probe: from a specification to a finding. Its time limit is its caller's.

mod datagram;
mod grpc;
mod script;
mod stream;
pub(crate) mod tls;

use crate::runner::Contain;
use crate::socket::{self, Way};
use crate::spec::{Kind, Spec};
use sluice_director::plan::probe_port;
use sluice_health::Finding;
use std::net::SocketAddr;
use std::time::Duration;
use tls::Contexts;

/// What probes share.
pub(crate) struct Tools {
    /// TLS configurations, made once.
    pub contexts: Contexts,
    /// Who may run a program.
    pub scripts: tokio::sync::Semaphore,
    /// Called before a program is started.
    pub contain: Contain,
}

/// Probes once. `number` tells it from others.
pub(crate) async fn probe(spec: &Spec, tools: &Tools, number: u64) -> Finding {
    let to = SocketAddr::new(spec.address, spec.port);
    let way = &match spec.place {
        None => spec.way.clone(),
        Some(place) => match probe_port(place, number) {
            Some(port) => Way { port, ..spec.way.clone() },
            None => return Finding::blind("the service has too many real servers"),
        },
    };
    let found = match &*spec.kind {
        Kind::Tcp => socket::connect(to, way).await.map(|_| Finding::pass("connected")),
        Kind::Tls(tls) => stream::handshake(to, way, tls, tools).await,
        Kind::Http { request, wanted, tls } => {
            stream::http(to, way, (request, wanted), tls.as_ref(), tools).await
        }
        Kind::Udp { payload, expect } => {
            // Silence has to be over before the caller gives up.
            let patience = spec.rules.timeout.saturating_sub(Duration::from_millis(10));
            datagram::udp(to, way, (payload, expect.as_ref()), patience).await
        }
        Kind::Dns { name, of, wanted } => datagram::dns(to, way, (name, *of, *wanted)).await,
        Kind::Grpc { service, tls } => grpc::check(to, way, service, tls.as_ref(), tools).await,
        Kind::Ping => datagram::ping(spec.address, way, number).await,
        Kind::Passive => Ok(Finding::pass("clients' connections are watched")),
        Kind::Script { command } => script::run(spec, command, tools).await,
    };
    found.unwrap_or_else(Finding::from)
}
